"""Two servers follow one ledger while applies go by, some of which are killed."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread

import pytest

import omnigraph as og
from omnigraph.limits import SERVER_RELOAD_SECONDS
from tests.support.cluster_folder import QUERIES, apply_in_process, cluster, codes, deploy, write_folder
from tests.support.examples import IS_LONG
from tests.support.s3_server import S3Server, s3_server
from tests.support.server_process import Running, running, wait_until

__all__ = ["s3_server"]
# The applies that are killed, each at another durable change.
KILLED = {3: 4, 4: 9, 8: 14}
STEPS = 10 if IS_LONG else 4


class Reader(Thread):
    """Asks a server for the same graph again and again; every answer must be complete."""

    def __init__(self, server: Running) -> None:
        super().__init__(daemon=True)
        self.url = f"http://{server.host}:{server.port}"
        self.answers = 0
        self.failures: list[str] = []
        self.stopped = Event()

    def run(self) -> None:
        with og.connect(self.url, graph="knowledge") as graph:
            while not self.stopped.wait(0.02):
                try:
                    rows = graph.query(QUERIES).rows()
                    names = [query["name"] for query in graph.queries()]
                except og.OmniGraphError as failure:
                    self.failures.append(str(failure))
                    continue
                self.answers += 1
                # Each revision has exactly one query of a step beside the one that stays.
                if rows != [{"name": "Ann"}] or len(names) != 2 or "all" not in names:
                    self.failures.append(f"{rows} {names}")

    def served(self) -> tuple[set[str], list[str]]:
        """Return the graphs of the server, and the queries of the steady graph."""
        with og.connect(self.url, graph="knowledge") as graph:
            names = [query["name"] for query in graph.queries()]
        present = set()
        for name in ["knowledge", *(f"step-{number}" for number in range(STEPS + 1))]:
            with og.connect(self.url, graph=name) as graph:
                try:
                    graph.schema.source  # noqa: B018 - a request
                    present.add(name)
                except og.GraphError:
                    pass
        return present, names


def write_step(folder: Path, storage: str | None, number: int) -> None:
    """Declare a step: a new query, a property more, and every second step another second graph."""
    graphs = ("knowledge", f"step-{number // 2}")
    write_folder(folder, graphs=graphs, storage=storage)
    properties = "".join(f"  p{index}: String?" for index in range(number))
    (folder / "person.pg").write_text(f"node Person {{ name: String @key{properties} }}\n")
    (folder / "queries" / "steps.gq").write_text(QUERIES.replace("all", f"step_{number}"))


def run_steps(folder: Path, storage: str | None) -> None:
    for number in range(1, STEPS + 1):
        write_step(folder, storage, number)
        if number % 2 == 0:
            assert cluster(folder).approve(f"graph.step-{number // 2 - 1}").ok
        if number in KILLED:
            killed = apply_in_process(folder, "after", KILLED[number])
            assert killed.returncode < 0, (killed.stdout, killed.stderr)
            if number == min(KILLED):
                # The servers see the interrupted apply, and keep what they serve.
                assert "cluster_recovery_pending" in codes(cluster(folder).status())
                time.sleep(SERVER_RELOAD_SECONDS + 1)
        report = deploy(folder)
        assert report.members["converged"] is True, report.to_json()


def show(tmp_path: Path, storage: str | None) -> None:
    folder = tmp_path / "team"
    write_folder(folder, storage=storage)
    write_step(folder, storage, 0)
    assert deploy(folder).members["converged"] is True
    with og.open(f"{storage or folder}/graphs/knowledge.omni") as graph:
        graph.mutate('query add() { insert Person { name: "Ann" } }')
    location = storage or str(folder)
    with ExitStack() as stack:
        servers = [
            stack.enter_context(running("--cluster", location, "--unauthenticated", log=tmp_path / f"log{number}"))
            for number in range(2)
        ]
        readers = [Reader(server) for server in servers]
        for reader in readers:
            reader.start()
        with (
            og.connect(readers[0].url, graph="knowledge") as served,
            pytest.raises(og.GraphError, match="cluster apply"),
        ):
            served.schema.apply("node Person { name: String @key  extra: I64? }")
        run_steps(folder, storage)
        final = ({"knowledge", f"step-{STEPS // 2}"}, ["all", f"step_{STEPS}"])
        for reader in readers:
            wait_until(lambda reader=reader: reader.served() == final, 60)  # type: ignore[misc]
            reader.stopped.set()
            reader.join(30)
            assert reader.failures == []
            assert reader.answers > STEPS
    assert codes(cluster(folder).status()) == []
    assert cluster(folder).apply().members["changes"] == []


@pytest.mark.slow
def test_two_servers_follow_many_applies_on_disk(tmp_path: Path) -> None:
    show(tmp_path, None)


@pytest.mark.long
@pytest.mark.s3
def test_two_servers_follow_many_applies_on_s3(tmp_path: Path, s3_server: S3Server) -> None:
    show(tmp_path, s3_server.uri("team"))
