"""Merges through the facade: outcomes, history, what is left alone, what is taken over, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import failpoints
from omnigraph.engine.authorization import between, on_branch, on_target
from omnigraph.engine.merge import apply, graph_merge, moves
from omnigraph.errors import GraphError, MergeConflict, ReadSetChanged, UsageError
from omnigraph.failpoints import Point
from omnigraph.graph import Graph, session_of
from omnigraph.ids import new_ulid
from omnigraph.manifest.intents import pending
from omnigraph.manifest.recovery import read_audit
from tests.support.failpoint_actions import fail_with
from tests.support.full_comparison import all_row_ids
from tests.support.kernel_fixtures import check_invariants
from tests.support.merge_fixtures import KNOWS, PERSON, SCHEMA, age, change, content, files, knows, people, put
from tests.support.orphan_sweep import sweep
from tests.support.policy_recorder import Recorder
from tests.support.write_fixtures import rows

pytestmark = pytest.mark.slow


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = people(tmp_path)
    graph.branches.create("review")
    return graph


def set_age(graph: Graph, name: str, value: int, branch: str = "main") -> None:
    change(graph, f'update Person set {{ age: {value} }} where name = "{name}"', branch)


def test_merge_makes_one_commit_with_two_parents_and_an_actor(graph: Graph) -> None:
    set_age(graph, "Alice", 31, "review")
    set_age(graph, "Bob", 26)
    session_of(graph).actor = "ann"
    target, source = graph.snapshot().head, graph.snapshot("review").head
    receipt = graph.branches.merge(" review ")
    commit = receipt.commit
    assert commit is not None
    assert (commit.parent, commit.merged_parent, commit.actor, commit.kind) == (target, source, "ann", "merge")
    assert (graph.snapshot().head, graph.commits()[0]) == (commit.commit_id, commit)
    assert receipt.to_json() == {
        "source": "review",
        "target": "main",
        "outcome": "merged",
        "base_commit_id": graph.commits("review")[1].commit_id,
        "base_commit_ids": [graph.commits("review")[1].commit_id],
        "commit": commit.to_json(),
        "types": [{"type_key": PERSON, "inserted": 0, "updated": 1, "deleted": 0, "adopted": False}],
        "conflicts": [],
        "schema_changes": None,
        "dry_run": False,
        "actor_id": "ann",
        "branch_deleted": None,
        "branch_delete_error": None,
    }
    assert graph.snapshot("review").head == source


def test_merge_leaves_untouched_rows_and_types_alone(graph: Graph) -> None:
    set_age(graph, "Alice", 31, "review")
    set_age(graph, "Bob", 26)
    before = graph.snapshot().state.pins
    versions = _row_versions(graph)
    graph.branches.merge("review")
    after = graph.snapshot().state.pins
    assert after[KNOWS] == before[KNOWS]
    changed = {name for name, version in _row_versions(graph).items() if versions[name] != version}
    assert changed == {"Alice"}


def _row_versions(graph: Graph) -> dict[str, int]:
    dataset = session_of(graph).view().dataset(PERSON)
    table = dataset.lance.to_table(columns=["id", "_row_last_updated_at_version"])
    return {row["id"]: row["_row_last_updated_at_version"] for row in table.to_pylist()}


def test_merge_of_the_same_change_on_both_sides_only_records_it(graph: Graph) -> None:
    for branch in ("main", "review"):
        set_age(graph, "Alice", 31, branch)
        put(graph, knows("Alice", "Bob", "ab", since=1), branch=branch)
    before = graph.snapshot().state.pins
    receipt = graph.branches.merge("review")
    assert (receipt.outcome, receipt.types) == ("merged", ())
    assert receipt.commit is not None
    assert graph.snapshot().state.pins == before


def test_merge_inserts_updates_and_deletes_of_one_type_together(graph: Graph) -> None:
    set_age(graph, "Carol", 21)
    set_age(graph, "Alice", 31, "review")
    change(graph, 'insert Person { name: "Eve" }', "review")
    change(graph, 'delete Person where name = "Bob"', "review")
    receipt = graph.branches.merge("review")
    assert [one.to_json() for one in receipt.types][1] == {
        "type_key": PERSON,
        "inserted": 1,
        "updated": 1,
        "deleted": 1,
        "adopted": False,
    }
    assert sorted(rows(graph, PERSON)) == ["Alice", "Carol", "Eve"]
    assert (age(graph, "Alice"), age(graph, "Carol"), rows(graph, KNOWS)) == (31, 21, {})
    set_age(graph, "Eve", 1)


def test_merge_back_and_forth_needs_no_second_decision(graph: Graph) -> None:
    """Criss-cross through merged parents: each side has the other's commits, so nothing clashes again."""
    set_age(graph, "Alice", 31, "review")
    set_age(graph, "Bob", 26)
    graph.branches.merge("review")
    assert graph.branches.merge("main", into="review").outcome == "fast_forward"
    assert content(graph) == content(graph, "review")
    set_age(graph, "Alice", 32)
    set_age(graph, "Bob", 27, "review")
    graph.branches.merge("main", into="review")
    graph.branches.merge("review")
    assert (age(graph, "Alice"), age(graph, "Bob")) == (32, 27)
    assert content(graph) == content(graph, "review")
    for _ in range(2):
        assert graph.branches.merge("review").outcome == "already_up_to_date"
    session_of(graph).kernel.close()


def test_merge_history_is_newest_first_over_both_lines(graph: Graph) -> None:
    first = change(graph, 'update Person set { age: 1 } where name = "Alice"', "review").commit
    second = change(graph, 'update Person set { age: 2 } where name = "Bob"').commit
    third = graph.branches.merge("review", delete_branch=True).commit
    assert [one.commit_id for one in og.open(graph.uri).commits()[:3]] == [
        one.commit_id for one in (third, second, first) if one is not None
    ]


def test_merge_blobs_by_bytes(tmp_path: Path) -> None:
    schema = "node Doc { name: String @key  note: String?  body: Blob? }"
    graph = people(tmp_path, schema, b'{"type":"Doc","data":{"name":"d","body":"base64:QUFB"}}')
    graph.branches.create("review")
    change(graph, 'update Doc set { note: "x" } where name = "d"')
    put(graph, '{"type":"Doc","data":{"name":"d","body":"base64:QkJC"}}', branch="review")
    put(graph, '{"type":"Doc","data":{"name":"e","body":"base64:QUFB"}}', branch="review")
    graph.branches.merge("review")
    assert [(one["note"], one["body"]) for _, one in sorted(rows(graph, "node:Doc").items())] == [
        ("x", b"BBB"),
        (None, b"AAA"),
    ]
    put(graph, '{"type":"Doc","data":{"name":"d","body":"base64:Q0ND"}}')
    put(graph, '{"type":"Doc","data":{"name":"d","body":"base64:RERE"}}', branch="review")
    [conflict] = graph.branches.merge("review", dry_run=True).conflicts
    assert (conflict.properties, conflict.ours and conflict.ours["body"]) == (("body",), "base64:Q0ND")


RULED = """
node Person { name: String @key  mail: String? @unique  age: I32? @range(age, 0..99) }
edge Knows: Person -> Person @card(0..1) { a: String?  b: String?  @unique(src, dst) }
"""


@pytest.mark.parametrize(
    ("ours", "theirs", "kind"),
    [
        ('insert Person { name: "x" mail: "m" }', 'insert Person { name: "y" mail: "m" }', "UniqueViolation"),
        (
            'insert Knows { from: "Alice" to: "Bob" }',
            'insert Knows { from: "Alice" to: "Carol" }',
            "CardinalityViolation",
        ),
        ('delete Person where name = "Carol"', 'insert Knows { from: "Alice" to: "Carol" }', "OrphanEdge"),
        ('insert Knows { from: "Alice" to: "Carol" }', 'delete Person where name = "Carol"', "OrphanEdge"),
    ],
)
def test_merge_result_that_breaks_a_rule_is_a_conflict(tmp_path: Path, ours: str, theirs: str, kind: str) -> None:
    data = b"\n".join(b'{"type":"Person","data":{"name":"%b"}}' % name for name in (b"Alice", b"Bob", b"Carol"))
    schema = RULED.replace(" @range(age, 0..99)", "")
    graph = people(tmp_path, schema, data)
    graph.branches.create("review")
    change(graph, ours)
    change(graph, theirs, "review")
    before = graph.snapshot()
    with pytest.raises(MergeConflict) as caught:
        graph.branches.merge("review")
    conflicts: Any = caught.value.context["conflicts"]
    assert [one["kind"] for one in conflicts] == [kind]
    assert graph.snapshot() == before


def test_merge_value_rule_broken_by_a_resolution_is_a_conflict(tmp_path: Path) -> None:
    schema = "node Person { name: String @key  age: I32?  @range(age, 0..99) }"
    graph = people(tmp_path, schema, b'{"type":"Person","data":{"name":"Alice"}}')
    graph.branches.create("review")
    set_age(graph, "Alice", 1)
    set_age(graph, "Alice", 2, "review")
    decided = {"type_key": PERSON, "entity_id": "Alice", "property": "age", "value": 100}
    with pytest.raises(MergeConflict) as caught:
        graph.branches.merge("review", resolutions=[decided])
    conflicts: Any = caught.value.context["conflicts"]
    assert [one["kind"] for one in conflicts] == ["ValueConstraintViolation"]


def test_merge_lists_every_broken_rule(tmp_path: Path) -> None:
    graph = people(tmp_path, "node A { n: I32 @key  u: I32? @unique }", b'{"type":"A","data":{"n":-1}}')
    graph.branches.create("review")
    count = 150
    for branch, start in (("main", 0), ("review", 1_000)):
        put(graph, *(f'{{"type":"A","data":{{"n":{start + one},"u":{one}}}}}' for one in range(count)), branch=branch)
    receipt = graph.branches.merge("review", dry_run=True)
    assert len(receipt.conflicts) == count


# -- the fast path against the full compare -----------------------------------------------------------------------


def test_merge_by_fragments_equals_merge_by_comparing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for name in ("fragments", "comparing"):
        if name == "comparing":
            monkeypatch.setattr(moves, "moved_row_ids", all_row_ids)
        graph = people(tmp_path / name)
        graph.branches.create("review")
        for number in range(20):
            put(graph, f'{{"type":"Person","data":{{"name":"p{number}","age":{number}}}}}', branch="review")
            set_age(graph, "Alice", number)
        change(graph, "delete Person where age < 5", "review")
        set_age(graph, "Carol", 21, "review")
        receipt = graph.branches.merge("review")
        results.append((receipt.types, content(graph)))
    assert results[0] == results[1]


# -- refusals --------------------------------------------------------------------------------------------------------


def test_merge_into_itself_is_usage(graph: Graph) -> None:
    with pytest.raises(UsageError, match="into itself"):
        graph.branches.merge("review", into=" review")


@pytest.mark.parametrize(("source", "into"), [("nope", "main"), ("review", "nope")])
def test_merge_of_a_missing_branch_is_not_found(graph: Graph, source: str, into: str) -> None:
    with pytest.raises(GraphError) as caught:
        graph.branches.merge(source, into=into)
    assert caught.value.code == "branch.not_found"


@pytest.mark.parametrize("touches_source_type", [True, False])
def test_merge_overtaken_by_a_writer_of_the_target_catches_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, touches_source_type: bool
) -> None:
    graph = people(tmp_path, SCHEMA + "node City { name: String @key }")
    graph.branches.create("review")
    set_age(graph, "Alice", 31, "review")
    set_age(graph, "Carol", 21)
    other = og.open(graph.uri)
    staged: list[int] = []
    stage = graph_merge._Run._effects

    def meanwhile(*args: Any) -> Any:
        if not staged and touches_source_type:
            set_age(other, "Bob", 1)
        elif not staged:
            other.ingest([{"type": "City", "data": {"name": "Rome"}}], mode="append")
        staged.append(1)
        return stage(*args)

    monkeypatch.setattr(graph_merge._Run, "_effects", meanwhile)
    receipt = graph.branches.merge("review")
    assert receipt.outcome == "merged"
    # Only what changed meanwhile is worked out again.
    assert len(staged) == (2 if touches_source_type else 1)
    assert (age(graph, "Bob") == 1, age(graph, "Alice")) == (touches_source_type, 31)
    assert graph.commits()[0].merged_parent == graph.commits(branch="review")[0].commit_id
    assert pending(session_of(graph).kernel.store) == ([], [])
    assert graph.maintenance.verify().is_sound


def test_merge_of_a_source_made_anew_is_refused(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    set_age(graph, "Alice", 31, "review")
    other = og.open(graph.uri)
    resolve = session_of(graph).kernel.resolve
    asked = 0

    def recreate(branch: str) -> Any:
        nonlocal asked
        asked += branch == "review"
        if branch == "review" and asked == 2:
            other.branches.delete("review")
            other.branches.create("review")
        return resolve(branch)

    monkeypatch.setattr(session_of(graph).kernel, "resolve", recreate)
    with pytest.raises(ReadSetChanged) as caught:
        graph.branches.merge("review")
    assert caught.value.context["member"] == "branch_merge_source_incarnation:review"


def test_merge_while_the_source_goes_on_takes_what_it_read(graph: Graph) -> None:
    set_age(graph, "Alice", 31, "review")
    other = og.open(graph.uri)

    def meanwhile(_: str) -> None:
        with failpoints.armed({Point.COMMIT_PREPARED: lambda _: None}):
            set_age(other, "Alice", 32, "review")

    with failpoints.armed({Point.COMMIT_PREPARED: meanwhile}):
        receipt = graph.branches.merge("review")
    assert receipt.commit is not None
    assert age(graph, "Alice") == 31
    assert graph.branches.merge("review").outcome == "merged"
    assert age(graph, "Alice") == 32


def test_merge_of_a_read_only_graph_is_refused_but_can_be_looked_at(graph: Graph) -> None:
    set_age(graph, "Alice", 31, "review")
    reader = og.open(graph.uri, read_only=True)
    assert reader.branches.merge("review", dry_run=True).outcome == "fast_forward"
    with pytest.raises(GraphError) as caught:
        reader.branches.merge("review")
    assert caught.value.code == "graph.read_only"


def test_merge_asks_the_policy_for_both_branches(graph: Graph) -> None:
    session_of(graph).actor, session_of(graph).policy = "ann", (policy := Recorder())
    graph.branches.merge(" review ", delete_branch=True)
    scopes = [(action, scope) for action, scope, _ in policy.asked]
    assert scopes == [
        ("branch_merge", between("review", "main")),
        ("read", on_branch("review")),
        ("branch_delete", on_target("review")),
    ]


@pytest.mark.parametrize("reason", ["child", "tag", "policy"])
def test_merge_stands_when_the_branch_cannot_be_deleted(graph: Graph, reason: str) -> None:
    set_age(graph, "Alice", 31, "review")
    if reason == "child":
        graph.branches.create("child", from_="review")
    elif reason == "tag":
        graph.tags.create("v1", branch="review")
    else:
        session_of(graph).actor = "ann"
        session_of(graph).policy = Recorder(denies=("branch_delete",))
    receipt = graph.branches.merge("review", delete_branch=True)
    assert (receipt.outcome, receipt.branch_deleted) == ("fast_forward", False)
    assert receipt.branch_delete_error is not None
    assert "review" in graph.branches.list()
    assert age(graph, "Alice") == 31


# -- intents ---------------------------------------------------------------------------------------------------------


def test_merge_that_dies_leaves_an_intent_that_a_sweep_rolls_back(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_age(graph, "Alice", 31, "review")
    before, stored = content(graph), files(graph)
    # A process that dies takes its intent away no more.
    monkeypatch.setattr(type(session_of(graph).kernel.store.objects), "delete_into_reserve", lambda self, path: None)
    cut = failpoints.armed({Point.COMMIT_STAGED: fail_with(RuntimeError("the power went"))})
    with cut, pytest.raises(RuntimeError):
        graph.branches.merge("review")
    monkeypatch.undo()
    [intent], _ = pending(session_of(graph).kernel.store)
    assert intent.kind == "merge"
    staged = set(intent.paths) & (files(graph) - stored)
    assert staged
    monkeypatch.setattr(type(intent.owner), "is_dead", lambda self, heartbeat_us: True)
    sweep(session_of(og.open(graph.uri)).kernel, 3_600.0)
    assert not staged & files(graph)
    assert {path for path in stored if path.startswith(("nodes", "edges"))} <= files(graph)
    assert [row.kind for row in read_audit(session_of(graph).kernel.store)] == ["merge"]
    assert content(og.open(graph.uri)) == before


def test_merge_leaves_no_intent_behind(graph: Graph) -> None:
    set_age(graph, "Alice", 31, "review")
    graph.branches.merge("review")
    assert pending(session_of(graph).kernel.store) == ([], [])
    check_invariants(session_of(graph).kernel)


def test_merge_repeated_under_its_id_names_its_commit_without_its_source(graph: Graph) -> None:
    set_age(graph, "Alice", 31, "review")
    chosen = new_ulid()
    done = graph.acting_as(None, chosen).branches.merge("review", delete_branch=True)
    assert done.branch_deleted
    assert done.commit is not None
    with pytest.raises(GraphError) as caught:
        graph.acting_as(None, chosen).branches.merge("review", delete_branch=True)
    assert (caught.value.code, caught.value.context["graph_commit_id"]) == ("conflict.repeated", done.commit.commit_id)


@pytest.mark.parametrize("is_forward", [True, False])
def test_branch_that_took_over_versions_of_main_can_be_kept_up(graph: Graph, is_forward: bool) -> None:
    if not is_forward:
        put(graph, knows("Alice", "Bob", "ab"), branch="review")
    set_age(graph, "Alice", 31)
    receipt = graph.branches.merge("main", "review")
    assert receipt.commit is not None
    assert "adopted_forks" not in receipt.commit.properties
    assert graph.maintenance.verify().is_sound
    graph.maintenance.cleanup(keep=1, confirm=True)
    graph.maintenance.reconcile()
    assert age(graph, "Alice", "review") == 31


def test_empty_list_of_adopted_forks_names_no_fork(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs that were written before hold such lists."""
    real = apply.Application._prepare

    def prepare(self: Any, *given: Any) -> Any:
        plan, receipt = real(self, *given)
        assert plan is not None
        return replace(plan, properties={**plan.properties, "adopted_forks": ""}), receipt

    monkeypatch.setattr(apply.Application, "_prepare", prepare)
    set_age(graph, "Alice", 31)
    receipt = graph.branches.merge("main", "review")
    assert receipt.commit is not None
    assert receipt.commit.properties["adopted_forks"] == ""
    assert graph.snapshot("review").head_commit.adopted_forks == frozenset()
    assert graph.maintenance.verify().is_sound
    graph.maintenance.cleanup(keep=1, confirm=True)
