"""Writers in processes of their own, and writers against maintenance: one winner per id, nobody lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from omnigraph import failpoints
from omnigraph.failpoints import Point
from omnigraph.graph import session_of
from omnigraph.lang.catalog import TypeKey
from tests.engine.write.racing_writer import race
from tests.engine.write.test_concurrency import THREADS, at_once, once
from tests.support.fleet_worker import rewrite
from tests.support.kernel_fixtures import check_invariants
from tests.support.maintenance_fixtures import elsewhere
from tests.support.s3_server import S3Server, s3_server
from tests.support.write_fixtures import create, rows, run

__all__ = ["s3_server"]

SCHEMA = "node Note { text: String } node N { k: String @key  v: I32? @index }"


def check_race(root: str, kind: str, count: int) -> None:
    """Have two processes write the same or different ids, and hold the graph against what they say they got."""
    graph = create(root, SCHEMA)
    won = race(root, ["ann", "bob"], count, kind)
    held = {entity: row["text"] for entity, row in rows(graph, "node:Note").items()}
    assert held == {entity: name for name, ids in won.items() for entity in ids}
    assert len(held) == count * (2 if kind == "disjoint" else 1)
    assert sum(map(len, won.values())) == len(held), "two processes got one id"
    assert len(graph.commits()) == len(held) + 1
    check_invariants(session_of(graph).kernel)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["same", "disjoint"])
def test_processes_that_insert_have_one_winner_an_id(tmp_path: Path, kind: str) -> None:
    check_race(str(tmp_path / "g"), kind, 12)


@pytest.mark.slow
@pytest.mark.s3
def test_processes_that_insert_the_same_ids_into_a_bucket_have_one_winner(s3_server: S3Server) -> None:
    check_race(s3_server.uri("race"), "same", 4)


@pytest.mark.slow
def test_update_after_maintenance_elsewhere_needs_no_second_try(tmp_path: Path) -> None:
    graph = create(tmp_path / "g", SCHEMA, *(f'{{"type":"N","data":{{"k":"{number}"}}}}' for number in range(4)))
    run(graph, 'delete N where k = "0"')
    foreign = elsewhere(graph)
    foreign.maintenance.ensure_indices()
    rewrite(session_of(foreign).kernel, TypeKey("node:N"))
    assert run(graph, 'update N set {v: 1} where k = "1"').affected_nodes == 1
    assert rows(graph, "node:N")["1"]["v"] == 1


@pytest.mark.slow
def test_update_and_insert_over_maintenance_in_between_are_written(tmp_path: Path) -> None:
    graph = create(tmp_path / "g", SCHEMA, '{"type":"N","data":{"k":"a"}}')
    race_ = once(partial(elsewhere(graph).maintenance.ensure_indices))
    with failpoints.armed({Point.COMMIT_PREPARED: race_}):
        run(graph, 'update N set {v: 1} where k = "a"')
    assert rows(graph, "node:N")["a"]["v"] == 1
    run(graph, 'insert N {k: "b"}')
    race_ = once(partial(rewrite, session_of(elsewhere(graph)).kernel, TypeKey("node:N")))
    with failpoints.armed({Point.COMMIT_PREPARED: race_}):
        run(graph, 'insert N {k: "c"}')
    assert set(rows(graph, "node:N")) == {"a", "b", "c"}
    check_invariants(session_of(graph).kernel)


@pytest.mark.slow
def test_writers_beside_maintenance_all_survive(tmp_path: Path) -> None:
    graph = create(tmp_path / "g", SCHEMA, '{"type":"N","data":{"k":"start"}}')
    foreign = elsewhere(graph)
    writers: list[Callable[[], object]] = [
        partial(run, graph, f'insert N {{k: "k{number}" v: {number}}}') for number in range(THREADS - 2)
    ]
    writers += [foreign.maintenance.ensure_indices, partial(rewrite, session_of(foreign).kernel, TypeKey("node:N"))]
    assert at_once(writers) == [None] * THREADS
    assert len(rows(graph, "node:N")) == THREADS - 1
    check_invariants(session_of(graph).kernel)
