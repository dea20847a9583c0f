"""Servers that follow the ledger of a cluster, as real processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cluster import Cluster
from tests.support.cluster_folder import QUERIES, write_folder
from tests.support.server_process import running


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.2)


@pytest.mark.slow
def test_a_server_follows_the_ledger_and_keeps_what_works(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "team")
    Cluster(folder, actor="ada").import_()
    Cluster(folder, actor="ada").apply()
    with running("--cluster", str(folder), "--unauthenticated", log=tmp_path / "log") as server:
        url = f"http://{server.host}:{server.port}"
        with og.connect(url, graph="knowledge") as graph:
            assert [query["name"] for query in graph.queries()] == ["all"]
            (folder / "queries" / "people.gq").write_text(QUERIES + QUERIES.replace("all", "again"))
            assert Cluster(folder, actor="ada").apply().members["converged"] is True
            wait_until(lambda: [query["name"] for query in graph.queries()] == ["again", "all"])
            with pytest.raises(og.GraphError, match="cluster apply"):
                graph.schema.apply("node Person { name: String @key  extra: I64? }")
            write_folder(folder, graphs=("knowledge", "second"))
            assert Cluster(folder, actor="ada").apply().ok
        with og.connect(url, graph="second") as second:

            def is_served() -> bool:
                try:
                    return "Person" in second.schema.source
                except og.GraphError:
                    return False

            wait_until(is_served)
