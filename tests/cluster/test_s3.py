"""The life of a cluster in object stores: one code path with a directory, so a sample of each kind is enough."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli import main
from omnigraph.cluster import ClusterError, ledger
from omnigraph.cluster.ledger import hold_lock
from omnigraph.ids import new_ulid
from omnigraph.store.objects.uri import Location
from tests.support.cloud_stores import Cloud, azurite, azurite_server, gcs_server
from tests.support.cluster_folder import (
    QUERIES,
    apply_in_process,
    cluster,
    codes,
    crash_apply,
    deploy,
    write_folder,
)
from tests.support.examples import IS_LONG
from tests.support.s3_server import (
    BUCKET,
    CONFLICT_409,
    DENY_403,
    DROP_AFTER,
    ERROR_500,
    Fault,
    Request,
    S3Server,
    s3_server,
)
from tests.support.server_process import running, wait_until

__all__ = ["azurite", "azurite_server", "gcs_server", "s3_server"]
pytestmark = pytest.mark.s3
NEW_SCHEMA = "node Person { name: String @key  team: String? }\n"


def prepare(folder: Path, storage: str) -> None:
    """Deploy two graphs; the next apply creates one, changes one and deletes one."""
    write_folder(folder, graphs=("changed", "deleted"), storage=storage)
    assert deploy(folder).members["converged"] is True
    write_folder(folder, graphs=("changed", "created"), storage=storage)
    (folder / "person.pg").write_text(NEW_SCHEMA)
    (folder / "queries" / "people.gq").write_text("query teams() { match { $p: Person } return { $p.team as team } }\n")
    assert cluster(folder).approve("graph.deleted").ok


def check_finished(folder: Path, storage: str) -> None:
    report = deploy(folder)
    assert report.members["converged"] is True, report.to_json()
    assert deploy(folder).members["state_written"] is False
    assert codes(cluster(folder).status()) == []
    for name in ("changed", "created"):
        with og.open(f"{storage}/graphs/{name}.omni") as graph:
            assert "team" in graph.schema.nodes["Person"].properties
    with pytest.raises(og.GraphNotFound):
        og.open(f"{storage}/graphs/deleted.omni")


@pytest.mark.parametrize("server_name", ["s3_server", "gcs_server", "azurite"])
def test_cluster_in_a_bucket_creates_changes_deletes_and_excludes(
    tmp_path: Path, server_name: str, request: pytest.FixtureRequest
) -> None:
    server: S3Server | Cloud = request.getfixturevalue(server_name)
    folder, storage = tmp_path / "team", server.uri(f"{new_ulid()}/team")
    prepare(folder, storage)
    with hold_lock(cluster(folder).ledger, "apply", "bob"), pytest.raises(ClusterError, match="state_lock_held"):
        cluster(folder).apply()
    check_finished(folder, storage)
    assert codes(cluster(folder).refresh()) == []
    base = cluster(folder).ledger.read()
    assert base is not None
    cluster(folder).ledger.write(base.state, base)
    with pytest.raises(ClusterError, match="state_cas_mismatch"):
        cluster(folder).ledger.write(type(base.state)(config_digest="other"), base)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.sampled(1)
def test_apply_on_s3_that_crashes_is_finished_by_the_next(tmp_path: Path, s3_server: S3Server, moment: str) -> None:
    crashed, number = True, 3
    while crashed:
        folder, storage = tmp_path / f"team{number}", s3_server.uri(f"team{number}")
        prepare(folder, storage)
        crashed = crash_apply(folder, moment, number)
        check_finished(folder, storage)
        number += 14
    assert number > 21


@pytest.mark.long
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_apply_killed_at_any_durable_write_on_s3_is_finished(tmp_path: Path, s3_server: S3Server, moment: str) -> None:
    number, returncode = 0, -1
    while returncode < 0:
        number += 1
        folder, storage = tmp_path / f"team{number}", s3_server.uri(f"team{number}")
        prepare(folder, storage)
        returncode = apply_in_process(folder, moment, number).returncode
        check_finished(folder, storage)
    # The last number is past the end: nothing was killed.
    assert returncode == 0
    assert number > 25


@pytest.mark.slow
@pytest.mark.parametrize("fault", [DROP_AFTER, ERROR_500, CONFLICT_409], ids=lambda fault: fault.kind)
def test_apply_survives_lost_answers_of_any_change(tmp_path: Path, s3_server: S3Server, fault: Fault) -> None:
    """Each change is answered wrongly once: carried out without an answer, or refused although nothing was wrong."""
    folder, storage = tmp_path / "team", s3_server.uri("team")
    seen: set[tuple[str, str]] = set()

    def fail_once(request: Request) -> Fault | None:
        key = (request.method, request.key)
        if not request.is_mutating or "__cluster" not in request.key or key in seen:
            return None
        if fault is CONFLICT_409 and not request.condition:
            # Only a conditional request meets another one.
            return None
        seen.add(key)
        return fault

    s3_server.fault = fail_once
    prepare(folder, storage)
    check_finished(folder, storage)
    s3_server.fault = None
    assert len(seen) > 5
    revisions = cluster(folder).ledger.revisions()
    assert revisions == list(range(1, len(revisions) + 1))
    assert [item["operation"] for item in cluster(folder).history().members["revisions"]] == [
        "apply",
        "apply",
        "import",
    ]


@pytest.mark.slow
def test_apply_that_loses_its_storage_is_finished_when_it_is_back(tmp_path: Path, s3_server: S3Server) -> None:
    for number in (4, 12, 20) if IS_LONG else (12,):
        folder, storage = tmp_path / f"team{number}", s3_server.uri(f"team{number}")
        prepare(folder, storage)
        count = 0

        def go_away(request: Request, number: int = number) -> Fault | None:
            nonlocal count
            count += request.is_mutating
            return DENY_403 if count >= number else None

        s3_server.fault = go_away
        # Its process ends with an error, and leaves the lock and whatever it was doing behind.
        assert apply_in_process(folder, "after", 0).returncode == 1
        s3_server.fault = None
        check_finished(folder, storage)


@pytest.mark.slow
def test_server_follows_a_cluster_on_s3_without_its_folder(tmp_path: Path, s3_server: S3Server) -> None:
    storage = s3_server.uri("team")
    folder = write_folder(tmp_path / "team", storage=storage)
    assert deploy(folder).members["converged"] is True
    log = tmp_path / "log"
    with (
        running("--cluster", storage, "--unauthenticated", log=log) as server,
        og.connect(f"http://{server.host}:{server.port}", graph="knowledge") as graph,
    ):
        assert [query["name"] for query in graph.queries()] == ["all"]
        (folder / "queries" / "people.gq").write_text(QUERIES + QUERIES.replace("all", "again"))
        assert deploy(folder).members["converged"] is True
        wait_until(lambda: len(graph.queries()) == 2)


def managed_root(uri: str) -> str | None:
    """Return the root of the cluster that a graph of this address would belong to, as the commands look for it."""
    root = ledger.cluster_root(Location.parse(uri))
    return None if root is None else root.uri


@pytest.mark.parametrize(
    ("uri", "root"),
    [
        ("s3://graphs/supply.omni", None),
        ("s3://lake/graphs/supply.omni", "s3://lake"),
        ("s3://graphs/graphs/supply.omni", "s3://graphs"),
        ("s3://graphs/team/graphs/supply.omni", "s3://graphs/team"),
        ("s3://lake/graphs/more/supply.omni", None),
        ("s3://lake/graphs/supply", None),
        ("s3://graphs", None),
        ("/graphs/supply.omni", "/"),
        ("/data/team/graphs/supply.omni", "/data/team"),
    ],
)
def test_cluster_root_is_a_folder_and_never_part_of_a_bucket_name(uri: str, root: str | None) -> None:
    assert managed_root(uri) == root


def test_commands_make_a_graph_in_a_bucket_named_graphs(
    s3_server: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.pg").write_text(NEW_SCHEMA)
    schema = str(tmp_path / "a.pg")
    assert BUCKET == "graphs"
    for words in (["init"], ["schema", "apply"]):
        assert main([*words, f"s3://{BUCKET}/supply.omni", "--schema", schema]) == 0, capsys.readouterr()
    write_folder(tmp_path / "team", graphs=("supply",), storage=f"s3://{BUCKET}")
    deploy(tmp_path / "team")
    assert main(["schema", "apply", f"s3://{BUCKET}/graphs/supply.omni", "--schema", schema]) == 1
    assert "cluster.managed" in capsys.readouterr().err
