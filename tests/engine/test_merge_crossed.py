"""Merges of histories that have more than one commit in common: what the base is, and that nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engine.merge import ancestry, row_merge
from omnigraph.engine.merge import merge as merge_branches
from omnigraph.engine.merge.placement import Placement
from omnigraph.engine.tasks import Threads
from omnigraph.errors import GraphError, MergeConflict
from omnigraph.graph import Graph, session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.manifest.kernel import Kernel
from omnigraph.public_values import MergeReceipt
from tests.support.maintenance_fixtures import hours_later
from tests.support.merge_fixtures import files
from tests.support.write_fixtures import rows

SCHEMA = """
node N {
  k: String @key
  a: I32?
  b: I32?
  hi: I32? @merge(max)
  mine: I32? @merge(ours)
  tags: [String]? @merge(union)
}
edge E: N -> N { w: I32? }
"""
NODE, EDGE = TypeKey("node:N"), TypeKey("edge:E")
pytestmark = pytest.mark.slow


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return og.init(tmp_path / "g.omni", SCHEMA)


def put(graph: Graph, branch: str, key: str, **values_: object) -> None:
    """Insert a node, or change some properties of it."""
    row = (node(graph, key, branch) or {"k": key}) | values_
    row.pop("id", None)
    graph.ingest([{"type": "N", "data": row}], mode="merge", branch=branch)


def delete(graph: Graph, branch: str, key: str) -> None:
    graph.mutate(f'query q() {{ delete N where k = "{key}" }}', branch=branch)


def node(graph: Graph, key: str, branch: str = "main") -> dict[str, Any] | None:
    found: dict[str, dict[str, Any]] = rows(graph, NODE, branch)
    return found.get(key)


def here(graph: Graph, source: str, into: str, **options: Any) -> MergeReceipt:
    return graph.branches.merge(source, into, **options)


def on_ranges(graph: Graph, source: str, into: str, **options: Any) -> MergeReceipt:
    """Merge as a large merge does: each task has a few ids."""
    placement = Placement(Threads(), 1, 1)
    return merge_branches(session_of(graph), source, into, placement=placement, resolutions=options.get("resolutions"))


BOTH = pytest.mark.parametrize("merge", [here, on_ranges])
Merge = Callable[..., MergeReceipt]


# -- one best common ancestor ----------------------------------------------------------------------------------------


@BOTH
def test_merge_of_two_features_undoes_nothing_that_main_did_meanwhile(graph: Graph, merge: Merge) -> None:
    put(graph, "main", "x", a=0)
    graph.branches.create("one")
    put(graph, "one", "one")
    put(graph, "main", "x", a=1)
    put(graph, "main", "y", a=1)
    graph.branches.create("two")
    put(graph, "two", "two")
    delete(graph, "main", "y")
    put(graph, "main", "x", a=0)
    for number in range(6):
        put(graph, "main", f"m{number}")
    assert merge(graph, "one", "main").outcome == "merged"
    dry = graph.branches.merge("two", dry_run=True)
    receipt = merge(graph, "two", "main")
    assert (receipt.outcome, receipt.bases) == ("merged", dry.bases)
    assert node(graph, "y") is None
    assert (node(graph, "x") or {})["a"] == 0
    assert node(graph, "two") is not None


@BOTH
def test_merge_of_long_lived_branches_with_older_features_undoes_nothing(graph: Graph, merge: Merge) -> None:
    put(graph, "main", "x", a=1)
    for name in ("f1", "f2"):
        graph.branches.create(name)
        put(graph, name, name)
    put(graph, "main", "x", a=2)
    put(graph, "main", "secret")
    graph.branches.create("dev")
    for number in range(3):
        put(graph, "dev", f"d{number}")
    put(graph, "main", "x", a=1)
    delete(graph, "main", "secret")
    put(graph, "main", "m")
    merge(graph, "f1", "main")
    merge(graph, "f2", "dev")
    assert merge(graph, "dev", "main").outcome == "merged"
    assert (node(graph, "x") or {})["a"] == 1
    assert node(graph, "secret") is None


# -- several -----------------------------------------------------------------------------------------------------------


def cross(
    graph: Graph,
    main: Callable[[], object],
    dev: Callable[[], object],
    merge: Merge = here,
    decided: tuple[list[Mapping[str, object]] | None, list[Mapping[str, object]] | None] = (None, None),
) -> None:
    """Let main and dev each do something, and then merge what the other had done before its own merge."""
    main()
    dev()
    graph.branches.create("before", from_="main")
    merge(graph, "dev", "main", resolutions=decided[0])
    merge(graph, "before", "dev", resolutions=decided[1])


def start(graph: Graph, **values_: object) -> None:
    put(graph, "main", "x", **values_)
    graph.branches.create("dev")


@BOTH
@pytest.mark.parametrize("side", ["main", "dev"])
def test_change_is_not_undone_whichever_ancestor_is_newer(graph: Graph, merge: Merge, side: str) -> None:
    """Either ancestor alone would be a wrong base: one of them does not know what the other changed."""
    start(graph, a=1, b=1)
    cross(graph, lambda: put(graph, "main", "x", a=2), lambda: put(graph, "dev", "x", b=2), merge)
    put(graph, side, "x", a=1, b=1)
    receipt = merge(graph, "dev", "main")
    assert (receipt.outcome, len(receipt.bases)) == ("merged", 2)
    found = node(graph, "x") or {}
    assert (found["a"], found["b"]) == (1, 1)


@BOTH
def test_deleted_entity_does_not_come_back(graph: Graph, merge: Merge) -> None:
    start(graph, a=1)
    cross(graph, lambda: put(graph, "main", "y"), lambda: put(graph, "dev", "z"), merge)
    delete(graph, "main", "z")
    delete(graph, "dev", "y")
    put(graph, "dev", "new")
    merge(graph, "dev", "main")
    assert sorted(rows(graph, NODE, "main")) == ["new", "x"]


def take(side: str, key: str = "x") -> list[Mapping[str, object]]:
    return [{"type_key": NODE, "entity_id": key, "take": side}]


def disagree(graph: Graph, merge: Merge) -> None:
    """Let both ancestors change `a`, and either branch keep its own value."""
    start(graph, a=1, b=1)
    ours = (take("ours"), take("ours"))
    cross(graph, lambda: put(graph, "main", "x", a=2), lambda: put(graph, "dev", "x", a=3, b=3), merge, ours)


@BOTH
def test_what_ancestors_disagree_about_is_a_conflict_and_the_rest_is_not(graph: Graph, merge: Merge) -> None:
    disagree(graph, merge)
    put(graph, "main", "x", b=4)
    dry = graph.branches.merge("dev", dry_run=True)
    [conflict] = dry.conflicts
    assert (conflict.kind, conflict.properties, len(dry.bases)) == ("DivergentUpdate", ("a",), 2)
    assert conflict.base is not None
    # Of what is unknown the image says nothing; `b` was 3 on both.
    assert ("a" not in conflict.base, conflict.base["b"]) == (True, 3)
    with pytest.raises(MergeConflict):
        merge(graph, "dev", "main")
    with pytest.raises(GraphError, match="disagree") as error:
        merge(graph, "dev", "main", resolutions=take("base"))
    assert error.value.code == "merge.resolution"
    given = [conflict.to_json() | {"take": "theirs"}]
    assert merge(graph, "dev", "main", resolutions=given).outcome == "merged"
    found = node(graph, "x") or {}
    assert (found["a"], found["b"]) == (3, 4)


@BOTH
def test_ancestors_that_disagree_do_not_matter_where_both_sides_agree(graph: Graph, merge: Merge) -> None:
    disagree(graph, merge)
    for branch in ("main", "dev"):
        put(graph, branch, "x", a=9)
    put(graph, "dev", "new")
    assert merge(graph, "dev", "main").outcome == "merged"
    assert (node(graph, "x") or {})["a"] == 9


@BOTH
def test_ancestors_that_disagree_whether_an_entity_exists_make_a_conflict(graph: Graph, merge: Merge) -> None:
    start(graph, a=1)
    decided = (take("ours"), take("ours"))
    cross(graph, lambda: put(graph, "main", "x", a=2), lambda: delete(graph, "dev", "x"), merge, decided)
    [conflict] = graph.branches.merge("dev", dry_run=True).conflicts
    assert (conflict.kind, conflict.base, conflict.theirs) == ("DeleteVsUpdate", {"id": "x"}, None)
    with pytest.raises(MergeConflict):
        merge(graph, "dev", "main")
    merge(graph, "dev", "main", resolutions=take("theirs"))
    assert node(graph, "x") is None


@BOTH
def test_symmetric_rules_settle_ancestors_and_others_settle_the_sides(graph: Graph, merge: Merge) -> None:
    start(graph, hi=1, tags=["old"], mine=1)
    main = {"hi": 3, "tags": ["old", "main"], "mine": 2}
    dev = {"hi": 2, "tags": ["old", "dev"], "mine": 3}
    cross(graph, lambda: put(graph, "main", "x", **main), lambda: put(graph, "dev", "x", **dev), merge)
    found = node(graph, "x", "dev") or {}
    assert (found["hi"], found["mine"], sorted(found["tags"])) == (3, 3, ["dev", "main", "old"])
    # Only dev goes on: it lowers a number and takes an item out, which no rule may undo.
    put(graph, "dev", "x", hi=0, tags=["dev", "main"])
    merge(graph, "dev", "main")
    found = node(graph, "x") or {}
    assert (found["hi"], found["mine"], sorted(found["tags"])) == (0, 2, ["dev", "main"])


@BOTH
def test_edges_of_crossed_histories_keep_their_ends(graph: Graph, merge: Merge) -> None:
    start(graph)
    put(graph, "main", "y")
    graph.branches.merge("main", "dev")

    def link(branch: str, edge: str, source: str, target: str) -> None:
        graph.ingest([{"edge": "E", "from": source, "to": target, "data": {"id": edge}}], mode="merge", branch=branch)

    cross(graph, lambda: link("main", "e", "x", "y"), lambda: link("dev", "f", "y", "x"), merge)
    link("main", "f", "y", "y")
    delete(graph, "dev", "x")
    dry = graph.branches.merge("dev", dry_run=True)
    assert [one.kind for one in dry.conflicts] == ["DeleteVsUpdate"]
    merge(graph, "dev", "main", resolutions=[{"type_key": EDGE, "entity_id": "f", "take": "ours"}])
    assert sorted(rows(graph, NODE, "main")) == ["y"]
    assert [(one["src"], one["dst"]) for one in rows(graph, EDGE, "main").values()] == [("y", "y")]
    assert graph.maintenance.verify().is_sound


@BOTH
def test_crossing_again_and_again_joins_all_the_way_down(graph: Graph, merge: Merge) -> None:
    start(graph, a=0)
    for number in range(4):
        cross(graph, lambda: put(graph, "main", f"m{number}"), lambda: put(graph, "dev", f"d{number}"), merge)  # noqa: B023 - called at once
        graph.branches.delete("before")
    delete(graph, "main", "d0")
    delete(graph, "dev", "m3")
    put(graph, "dev", "x", a=1)
    assert len(merge(graph, "dev", "main").bases) == 2
    assert sorted(rows(graph, NODE, "main")) == ["d1", "d2", "d3", "m0", "m1", "m2", "x"]


def test_virtual_base_is_published_nowhere_and_leaves_nothing(graph: Graph) -> None:
    disagree(graph, here)
    commits, before = len(session_of(graph).kernel.all_commits()), files(graph)
    dry = graph.branches.merge("dev", dry_run=True)
    assert files(graph) == before
    with pytest.raises(MergeConflict):
        graph.branches.merge("dev")
    assert (files(graph), len(session_of(graph).kernel.all_commits())) == (before, commits)
    assert not dry.commit
    with pytest.raises(MergeConflict):
        on_ranges(graph, "dev", "main")
    assert files(graph) == before


def test_ancestor_state_that_cleanup_removed_makes_conflicts_not_guesses(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(graph, a=1, b=1)
    below = graph.snapshot("dev").head
    cross(graph, lambda: put(graph, "main", "x", a=2), lambda: put(graph, "dev", "x", b=2))
    real = Kernel.snapshot_of

    def removed(self: Kernel, commit: Any) -> Any:
        if commit.commit_id == below:
            raise GraphError("gone", code="graph.version_reclaimed")
        return real(self, commit)

    monkeypatch.setattr(Kernel, "snapshot_of", removed)
    put(graph, "main", "x", a=1)
    put(graph, "dev", "y")
    [conflict] = graph.branches.merge("dev", dry_run=True).conflicts
    assert (conflict.entity_id, conflict.properties) == ("x", ("a",))
    monkeypatch.setattr(Kernel, "snapshot_of", real)
    assert graph.branches.merge("dev").outcome == "merged"
    assert (node(graph, "x") or {})["a"] == 1


def test_cleanup_keeps_what_a_merge_of_crossed_histories_needs(graph: Graph) -> None:
    start(graph, a=1, b=1)
    cross(graph, lambda: put(graph, "main", "x", a=2), lambda: put(graph, "dev", "x", b=2))
    put(graph, "main", "x", a=1)
    put(graph, "dev", "y")
    with hours_later():
        graph.maintenance.cleanup(keep=1, confirm=True)
        assert graph.branches.merge("dev").outcome == "merged"
    assert (node(graph, "x") or {})["a"] == 1


# -- mutants ---------------------------------------------------------------------------------------------------------


def one_ancestor_is_enough(patch: pytest.MonkeyPatch) -> None:
    """Of several best common ancestors, the newest is the base."""
    real = ancestry._best
    patch.setattr(ancestry, "_best", lambda *given: real(*given)[:1])


def unknown_counts_as_known(patch: pytest.MonkeyPatch) -> None:
    """What ancestors disagree about is what one of them says."""
    real = row_merge.Unknown.joined
    patch.setattr(row_merge.Unknown, "joined", lambda self, others: real(self, []))


@pytest.mark.parametrize(
    ("mutant", "test"),
    [
        (
            one_ancestor_is_enough,
            lambda graph: test_change_is_not_undone_whichever_ancestor_is_newer(graph, here, "main"),
        ),
        (
            unknown_counts_as_known,
            lambda graph: test_what_ancestors_disagree_about_is_a_conflict_and_the_rest_is_not(graph, here),
        ),
    ],
)
@pytest.mark.sampled(2)
def test_crossed_histories_catch_a_broken_engine(
    mutant: Callable[[pytest.MonkeyPatch], None],
    test: Callable[[Graph], None],
    graph: Graph,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mutant(monkeypatch)
    with pytest.raises((AssertionError, ValueError)):
        test(graph)


# -- properties that one side dropped ----------------------------------------------------------------------------------


def crossed(graph: Graph, setter: str, schema: str = SCHEMA.replace("  a: I32?\n", "")) -> None:
    """Make histories cross, after main or the branch has set `a` from 1 to 5; then the branch drops `a`, or more."""
    put(graph, "main", "n", a=1)
    graph.branches.create("topic")
    other = "topic" if setter == "main" else "main"
    put(graph, setter, "n", a=5)
    put(graph, other, "n", b=1)
    graph.branches.create("before", "main")
    graph.branches.merge("topic", "main")
    graph.branches.merge("before", "topic")
    graph.schema.apply(schema, branch="topic")


@pytest.mark.parametrize("setter", ["main", "topic"])
def test_dropped_property_unchanged_since_a_virtual_base_is_no_conflict(graph: Graph, setter: str) -> None:
    crossed(graph, setter)
    graph.branches.merge("topic", "main")
    assert "a" not in graph.schema.types[0].properties
    assert node(graph, "n") == {"id": "n", "k": "n", "b": 1, "hi": None, "mine": None, "tags": None}


@pytest.mark.parametrize("setter", ["main", "topic"])
def test_dropped_property_changed_since_a_virtual_base_is_a_conflict(graph: Graph, setter: str) -> None:
    crossed(graph, setter)
    put(graph, "main", "n", a=1)
    with pytest.raises(MergeConflict) as caught:
        graph.branches.merge("topic", "main")
    conflicts: Any = caught.value.context["conflicts"]
    [conflict] = conflicts
    assert (conflict["kind"], conflict["properties"]) == ("DropVsUpdate", ["a"])


# -- properties that one side requires ---------------------------------------------------------------------------------

REQUIRED = SCHEMA.replace("  b: I32?", "  b: I32?\n  c: I32 @default(7)")


@pytest.mark.parametrize("setter", ["main", "topic"])
def test_required_property_reaches_a_target_that_equals_the_base(graph: Graph, setter: str) -> None:
    crossed(graph, setter, REQUIRED)
    graph.branches.merge("topic", "main")
    assert node(graph, "n") == {"id": "n", "k": "n", "a": 5, "b": 1, "c": 7, "hi": None, "mine": None, "tags": None}


@pytest.mark.parametrize("setter", ["main", "topic"])
def test_required_property_is_refused_where_the_target_has_changed(graph: Graph, setter: str) -> None:
    crossed(graph, setter, REQUIRED)
    put(graph, "main", "m", a=1)
    with pytest.raises(MergeConflict, match="added it as a required property"):
        graph.branches.merge("topic", "main")


# -- types that only one of several ancestors has ----------------------------------------------------------------------

LATE = SCHEMA + "\nnode Late { k: String @key  m: I32? }\n"
LATE_WIDENED = LATE.replace("m: I32?", "m: I64?")


def late_type(graph: Graph) -> None:
    """Make histories cross: of two best common ancestors only one has the type `Late`; then `topic` widens it."""
    for branch in ("topic", "added"):
        graph.branches.create(branch)
    put(graph, "topic", "n", a=1)
    graph.branches.merge("topic", "main")
    graph.schema.apply(LATE, branch="added")
    graph.load([{"type": "Late", "data": {"k": "x", "m": 1}}], mode="append", branch="added")
    for target in ("main", "topic"):
        graph.branches.merge("added", target)
    graph.schema.apply(LATE_WIDENED, branch="topic")


def late_values(graph: Graph) -> list[dict[str, Any]]:
    query = "query q() { match { $n: Late } return { $n.k as k, $n.m as m } order { $n.k } }"
    return list(graph.query(query).rows())


def test_widened_type_reaches_a_target_that_equals_one_ancestor(graph: Graph) -> None:
    late_type(graph)
    graph.load([{"type": "Late", "data": {"k": "y", "m": 1 << 40}}], mode="append", branch="topic")
    graph.branches.merge("topic", "main")
    assert late_values(graph) == [{"k": "x", "m": 1}, {"k": "y", "m": 1 << 40}]


def test_widened_type_is_refused_where_the_target_changed(graph: Graph) -> None:
    late_type(graph)
    graph.load([{"type": "Late", "data": {"k": "x", "m": 2}}], mode="merge")
    with pytest.raises(MergeConflict, match="changed its type to `I64"):
        graph.branches.merge("topic", "main")
    assert late_values(graph) == [{"k": "x", "m": 2}]
