"""Every kind of change on one side against every kind on the other, in both directions."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import MergeConflict
from omnigraph.graph import Graph
from tests.support.merge_fixtures import change, content, knows, people, put

pytestmark = pytest.mark.slow

CHANGES = ("noop", "addNode", "delNode", "addEdge", "delEdge", "setProp", "netZero")
# Rows are what the source did, columns what the target did.
TABLE = """
noop    = =               =              =          = =               =
addNode F DivergentInsert M              M          M M               M
delNode F M               M              OrphanEdge M DeleteVsUpdate  M
addEdge F M               OrphanEdge     M          M M               M
delEdge F M               M              M          M M               M
setProp F M               DeleteVsUpdate M          M DivergentUpdate M
netZero F M               M              M          M M               M
"""
OUTCOMES = {"=": "already_up_to_date", "F": "fast_forward", "M": "merged"}


def cells() -> list[tuple[str, str, str]]:
    found = []
    for line in TABLE.strip().splitlines():
        source, *expected = line.split()
        found += [(source, target, cell) for target, cell in zip(CHANGES, expected, strict=True)]
    return found


def do(graph: Graph, what: str, branch: str) -> None:
    """Make a change on a branch; the two sides never make it alike."""
    number = 40 if branch == "main" else 50
    if what == "addNode":
        change(graph, f'insert Person {{ name: "Eve" age: {number} }}', branch)
    elif what == "delNode":
        change(graph, 'delete Person where name = "Alice"', branch)
    elif what == "addEdge":
        put(graph, knows("Alice", "Carol", f"ac-{branch}"), branch=branch)
    elif what == "delEdge":
        change(graph, 'delete Knows where from = "Bob"', branch)
    elif what == "setProp":
        change(graph, f'update Person set {{ age: {number} }} where name = "Alice"', branch)
    elif what == "netZero":
        put(graph, knows("Carol", "Bob", f"cb-{branch}"), branch=branch)
        change(graph, 'delete Knows where from = "Carol"', branch)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    graph = people(tmp_path_factory.mktemp("people"))
    graph.close()
    return Path(graph.uri)


@pytest.mark.parametrize(("source", "target", "expected"), cells())
def test_merge_table_cell(template: Path, tmp_path: Path, source: str, target: str, expected: str) -> None:
    graph = og.open(shutil.copytree(template, tmp_path / "graph.omni"))
    graph.branches.create("review")
    do(graph, source, "review")
    do(graph, target, "main")
    before, theirs = content(graph), content(graph, "review")
    head = graph.snapshot().head
    dry = graph.branches.merge("review", dry_run=True)
    if expected not in OUTCOMES:
        with pytest.raises(MergeConflict) as caught:
            graph.branches.merge("review")
        conflicts = caught.value.context["conflicts"]
        assert isinstance(conflicts, list)
        assert [one["kind"] for one in conflicts] == [expected]
        assert [one.to_json() for one in dry.conflicts] == conflicts
        assert (graph.snapshot().head, content(graph)) == (head, before)
        return
    receipt = graph.branches.merge("review")
    assert receipt.outcome == dry.outcome == OUTCOMES[expected]
    assert (receipt.commit is None) == (expected == "=")
    assert receipt.types == dry.types
    expected_content = {"=": before, "F": theirs}.get(expected)
    if expected_content is not None:
        assert content(graph) == expected_content
    else:
        assert content(graph) == _combined(before, theirs, target)
    if receipt.commit is not None:
        assert (receipt.commit.parent, receipt.commit.merged_parent) == (head, graph.snapshot("review").head)
    assert graph.branches.merge("review").outcome == "already_up_to_date"


def _combined(
    ours: dict[str, dict[str, object]], theirs: dict[str, dict[str, object]], target: str
) -> dict[str, dict[str, object]]:
    """Return what both sides made together: what either deleted is gone, what either added or changed is there."""
    gone = {key: {*(_start()[key])} - {*ours[key]} | {*(_start()[key])} - {*theirs[key]} for key in ours}
    first, second = (theirs, ours) if target == "setProp" else (ours, theirs)
    both = {key: {**first[key], **second[key]} for key in ours}
    return {key: {one: row for one, row in held.items() if one not in gone[key]} for key, held in both.items()}


def _start() -> dict[str, set[str]]:
    return {"node:Person": {"Alice", "Bob", "Carol"}, "edge:Knows": {"bc"}}
