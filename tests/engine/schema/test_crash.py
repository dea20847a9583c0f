"""An apply that dies anywhere has happened as a whole or not at all, and the next one works at once."""

from __future__ import annotations

import shutil
import signal
import sys
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.failpoints import Point
from omnigraph.graph import session_of
from tests.support.forked_python import run_forked
from tests.support.kernel_fixtures import CITY, PERSON, SCHEMA, check_invariants, ids_of, insert

NEXT = """
node Person { name: String @key  years: I32? @rename_from("age")  email: String? }
node Town @rename_from("City") { name: String @key }
node Ship { imo: String @key }
edge Sails: Person -> Ship
"""
# Creating two datasets, committing one, staging and publishing the catalog, linking, and the copy for people.
MOMENTS = [
    (Point.DURABLE_BEFORE, 1),
    (Point.DURABLE_AFTER, 1),
    (Point.DURABLE_AFTER, 2),
    (Point.COMMIT_PREPARED, 1),
    (Point.COMMIT_STAGED, 1),
    (Point.COMMIT_SYNCED, 1),
    (Point.PUBLISH_BEFORE, 1),
    (Point.PUBLISH_AFTER, 1),
    (Point.LINK_BEFORE, 1),
]
HAPPENED = {Point.PUBLISH_AFTER, Point.LINK_BEFORE}


def image(graph: og.Graph) -> dict[str, tuple[list[str], list[str]]]:
    """Return columns and ids of every type."""
    kernel, snapshot = session_of(graph).kernel, graph.snapshot()
    return {key: (kernel.dataset(snapshot, key).schema.names, ids_of(kernel, key)) for key in snapshot.state.pins}


@pytest.mark.slow
def test_apply_killed_anywhere_is_before_or_after(tmp_path: Path) -> None:
    origin = tmp_path / "origin.omni"
    with og.init(origin, SCHEMA) as graph:
        insert(session_of(graph).kernel, {PERSON: ["ann"], CITY: ["rome"]})
        before = image(graph)
    jobs = []
    for point, number in MOMENTS:
        root = tmp_path / f"{point.value}-{number}.omni"
        shutil.copytree(origin, root)
        jobs += [str(root), "main", point.value, str(number)]
    run = run_forked([sys.executable, "-m", "tests.support.schema_crash_child", NEXT, *jobs])
    assert run.stdout.split() == [str(-signal.SIGKILL)] * len(MOMENTS)
    origin_after = og.open(origin)
    origin_after.schema.apply(NEXT)
    after = image(origin_after)
    for (point, _), place in zip(MOMENTS, jobs[::4], strict=True):
        graph = og.open(place)
        found = image(graph)
        assert found == (after if point in HAPPENED else before), point
        assert graph.schema.source == (NEXT if point in HAPPENED else SCHEMA), point
        assert graph.schema.apply(NEXT).applied is (point not in HAPPENED), point
        assert image(graph) == after, point
        insert(session_of(graph).kernel, {"edge:Sails": ["s"]})
        check_invariants(session_of(graph).kernel)
