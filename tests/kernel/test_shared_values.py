"""Catalogs of many branches hold the commits, pins and schema that they have in common once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from omnigraph.manifest import branches
from omnigraph.manifest.model import share_values
from tests.support.kernel_fixtures import PERSON, create, insert, open_graph


def test_snapshots_of_branches_share_what_they_have_in_common(tmp_path: Path) -> None:
    root = str(tmp_path / "graph.omni")
    kernel = create(root)
    insert(kernel, {PERSON: ["a"]})
    for name in ("one", "two"):
        branches.create_branch(kernel, name, kernel.snapshot())
    fresh = open_graph(root)
    one, two = (fresh.snapshot(name).state for name in ("one", "two"))
    assert one.commits
    assert all(left is right for left, right in zip(one.commits, two.commits, strict=True))
    assert one.pins[PERSON] is two.pins[PERSON]
    assert one.schema is two.schema


def test_share_values_keeps_values_that_differ_apart(tmp_path: Path) -> None:
    """A damaged catalog may hold another commit or pin under a key that is known."""
    kernel = create(str(tmp_path / "graph.omni"))
    insert(kernel, {PERSON: ["a"]})
    state = share_values(kernel.snapshot().state)
    changed = replace(
        state,
        commits=tuple(replace(one, kind="other") for one in state.commits),
        pins={key: replace(pin, row_count=7) for key, pin in state.pins.items()},
        schema=replace(state.schema, source="other"),
    )
    assert share_values(changed) == changed
    others = tuple(replace(one, checksums="other", branch_names=("b",)) for one in state.commits)
    shared = share_values(replace(state, commits=others)).commits
    assert {(one.checksums, one.branch_names) for one in shared} == {("other", ("b",))}
