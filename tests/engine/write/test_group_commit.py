"""Mutations that wait for one branch are published together, each with a commit, a receipt and a state of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import failpoints
from omnigraph.engine.write import mutate as mutations
from omnigraph.engine.write.group_rows import GroupRows
from omnigraph.errors import (
    ConflictError,
    DataError,
    Effect,
    GraphError,
    KeyConflict,
    PreconditionFailed,
    StorageError,
    StorageKind,
)
from omnigraph.failpoints import Point
from omnigraph.graph import session_of
from omnigraph.ids import new_ulid
from omnigraph.lang.diagnostic import Source
from omnigraph.manifest import group_commit, groups
from omnigraph.manifest.commit_loop import BranchTurn
from omnigraph.manifest.kernel import find_operation
from omnigraph.manifest.publish import Publication, watched
from tests.support.grouped_writes import groups_of, queue_of, write_together
from tests.support.maintenance_fixtures import hours_later

SCHEMA = """
node Person { name: String @key  mail: String? @unique  age: I32? }
node Note { text: String? }
edge Knows: Person -> Person
"""
ADD = "query q($name: String, $age: I32?) { insert Person { name: $name, age: $age } }"
CREATE = "query q($name: String) { create Person { name: $name } }"
MAIL = "query q($name: String, $mail: String) { upsert Person { name: $name, mail: $mail } }"
AGE = "query q($name: String, $age: I32) { update Person set { age: $age } where name = $name }"
ANYBODY = "query q($age: I32, $to: I32) { update Person set { age: $to } where age = $age }"
DROP = "query q($name: String) { delete Person where name = $name }"
KNOW = "query q($a: String, $b: String) { insert Knows { from: $a, to: $b } }"
BOTH_KNOW = "query q($a: String, $b: String) { insert Knows { from: $a, to: $b } insert Knows { from: $b, to: $b } }"
PEOPLE = "query q() { match { $p: Person } return { $p.name as name, $p.age as age } order { name asc } }"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[og.Graph]:
    with og.init(tmp_path / "graph.omni", SCHEMA) as graph:
        graph.mutate(ADD, params={"name": "ada", "age": 1})
        yield graph


def mutation(graph: og.Graph, source: str, **params: object) -> Callable[[], og.MutationReceipt]:
    return partial(graph.mutate, source, params=params)


def ages(graph: og.Graph, at: str | None = None) -> dict[str, int | None]:
    return {row["name"]: row["age"] for row in graph.query(PEOPLE, at=at).rows()}


def together(graph: og.Graph, *writes: Callable[[], Any]) -> list[Any]:
    return write_together(graph, writes)


def test_group_publishes_one_version_with_a_commit_each(graph: og.Graph) -> None:
    before = graph.snapshot().version
    receipts = together(graph, *(mutation(graph, ADD, name=name, age=2) for name in ("bob", "cyd", "dan")))
    assert graph.snapshot().version == before + 1
    assert [receipt.commit.manifest_version for receipt in receipts] == [before + 1] * 3
    *_, group = groups_of(graph)
    assert [commit.commit_id for commit in group] == [receipt.commit.commit_id for receipt in receipts]
    assert len({commit.operation_id for commit in group}) == 3
    assert [commit.parent for commit in group[1:]] == [commit.commit_id for commit in group[:-1]]


def test_group_state_after_each_commit_is_its_own(graph: og.Graph) -> None:
    receipts = together(
        graph,
        mutation(graph, ADD, name="bob", age=2),
        mutation(graph, AGE, name="ada", age=7),
        mutation(graph, AGE, name="bob", age=8),
        mutation(graph, DROP, name="ada"),
    )
    states = [ages(graph, receipt.commit.commit_id) for receipt in receipts]
    assert states == [{"ada": 1, "bob": 2}, {"ada": 7, "bob": 2}, {"ada": 7, "bob": 8}, {"bob": 8}]
    assert ages(graph) == {"bob": 8}
    assert graph.maintenance.verify().is_sound


def test_group_members_see_what_those_before_them_did(graph: og.Graph) -> None:
    receipts = together(
        graph,
        mutation(graph, ADD, name="bob", age=5),
        mutation(graph, KNOW, a="ada", b="bob"),
        mutation(graph, ANYBODY, age=5, to=6),
        mutation(graph, DROP, name="bob"),
        mutation(graph, CREATE, name="bob"),
    )
    assert [receipt.affected_nodes for receipt in receipts] == [1, 0, 1, 1, 1]
    assert [receipt.affected_edges for receipt in receipts] == [0, 1, 0, 1, 0]
    assert ages(graph) == {"ada": 1, "bob": None}


def test_member_that_breaks_a_rule_fails_alone(graph: og.Graph) -> None:
    first, twice, orphan, last = together(
        graph,
        mutation(graph, MAIL, name="bob", mail="x@y"),
        mutation(graph, MAIL, name="cyd", mail="x@y"),
        mutation(graph, KNOW, a="ada", b="cyd"),
        mutation(graph, MAIL, name="dan", mail="d@y"),
    )
    assert isinstance(twice, DataError)
    assert twice.effect is Effect.NONE
    assert isinstance(orphan, DataError)
    assert [first.affected_nodes, last.affected_nodes] == [1, 1]
    assert sorted(ages(graph)) == ["ada", "bob", "dan"]


def test_member_of_an_existing_key_is_refused(graph: og.Graph) -> None:
    done, refused = together(graph, mutation(graph, CREATE, name="bob"), mutation(graph, CREATE, name="bob"))
    assert done.affected_nodes == 1
    assert isinstance(refused, DataError | KeyConflict)


def test_member_that_changes_nothing_has_no_commit(graph: og.Graph) -> None:
    nothing, done = together(graph, mutation(graph, DROP, name="nobody"), mutation(graph, ADD, name="bob", age=2))
    assert nothing.commit is None
    assert done.commit is not None
    *_, group = groups_of(graph)
    assert len(group) == 1
    assert group[0].group is None


def test_if_commit_holds_for_the_member_before(graph: og.Graph) -> None:
    head = graph.commits(limit=1)[0].commit_id
    first, second = together(
        graph,
        partial(graph.mutate, ADD, params={"name": "bob", "age": 2}, if_commit=head),
        partial(graph.mutate, ADD, params={"name": "cyd", "age": 2}, if_commit=head),
    )
    assert first.commit is not None
    assert isinstance(second, PreconditionFailed)
    assert sorted(ages(graph)) == ["ada", "bob"]


def test_request_repeated_within_a_group_is_applied_once(graph: og.Graph) -> None:
    key = new_ulid()
    session = session_of(graph)

    def write() -> og.MutationReceipt:
        return mutations.mutate(session.acting_as(None, key), Source("q.gq", ADD), None, {"name": "bob", "age": 2})

    first, again = together(graph, write, write)
    assert isinstance(again, GraphError)
    assert again.code == "conflict.repeated"
    assert again.context["graph_commit_id"] == first.commit.commit_id
    assert graph.commits(limit=1)[0].commit_id == first.commit.commit_id


def test_messages_and_actors_stay_with_their_commits(graph: og.Graph) -> None:
    together(
        graph,
        partial(graph.mutate, ADD, params={"name": "bob", "age": 2}, message="first"),
        partial(graph.mutate, ADD, params={"name": "cyd", "age": 2}, message="second"),
    )
    assert [commit.message for commit in graph.commits(limit=2)] == ["second", "first"]


def test_group_that_would_leave_no_image_is_closed_before(graph: og.Graph) -> None:
    before = graph.snapshot().version
    receipts = together(graph, mutation(graph, ADD, name="bob", age=2), mutation(graph, DROP, name="bob"))
    assert graph.snapshot().version == before + 2
    assert [ages(graph, receipt.commit.commit_id) for receipt in receipts] == [{"ada": 1, "bob": 2}, {"ada": 1}]


def test_pattern_mutation_is_not_grouped_and_sees_the_group(graph: og.Graph) -> None:
    queue = queue_of(session_of(graph).kernel)
    matched = "query q() { match { $p: Person  $p.age = 1 } update $p set { age: 9 } }"
    graph.mutate(matched)
    assert ages(graph) == {"ada": 9}
    assert not queue._is_led


def test_group_of_a_new_branch_forks_what_it_writes(graph: og.Graph) -> None:
    graph.branches.create("review")
    receipts = write_together(
        graph,
        [partial(graph.mutate, ADD, params={"name": name, "age": 2}, branch="review") for name in ("bob", "cyd")]
        + [partial(graph.mutate, AGE, params={"name": "ada", "age": 4}, branch="review")],
        "review",
    )
    assert all(isinstance(receipt, og.MutationReceipt) for receipt in receipts)
    states = [ages(graph, receipt.commit.commit_id) for receipt in receipts]  # type: ignore[union-attr]
    assert states == [{"ada": 1, "bob": 2}, {"ada": 1, "bob": 2, "cyd": 2}, {"ada": 4, "bob": 2, "cyd": 2}]
    assert ages(graph) == {"ada": 1}
    graph.branches.merge("review")
    assert ages(graph) == {"ada": 4, "bob": 2, "cyd": 2}


def test_read_only_handle_reads_states_between_commits(graph: og.Graph, tmp_path: Path) -> None:
    receipts = together(graph, *(mutation(graph, ADD, name=name, age=2) for name in ("bob", "cyd", "dan")))
    with og.open(tmp_path / "graph.omni", read_only=True) as reader:
        assert sorted(ages(reader, receipts[1].commit.commit_id)) == ["ada", "bob", "cyd"]


def test_states_between_commits_leave_no_file(graph: og.Graph, tmp_path: Path) -> None:
    receipts = together(
        graph, mutation(graph, AGE, name="ada", age=3), *(mutation(graph, ADD, name=name, age=2) for name in "bcd")
    )
    session_of(graph).kernel.links.wait()
    before = sorted(tmp_path.rglob("*"))
    for receipt in receipts:
        ages(graph, receipt.commit.commit_id)
    assert sorted(tmp_path.rglob("*")) == before


def test_diff_log_blame_and_feed_know_the_commits_of_a_group(graph: og.Graph) -> None:
    start = graph.commits(limit=1)[0].commit_id
    one, two, three = together(
        graph,
        mutation(graph, AGE, name="ada", age=7),
        mutation(graph, ADD, name="bob", age=2),
        mutation(graph, AGE, name="ada", age=8),
    )
    ids = [receipt.commit.commit_id for receipt in (one, two, three)]
    page = graph.changes(start=f"after:{start}")
    assert [block.cause["graph_commit_id"] for block in page.blocks] == ids
    assert [[(change["op"], change["id"]) for change in block.to_json()["changes"]] for block in page.blocks] == [
        [("update", "ada")],
        [("insert", "bob")],
        [("update", "ada")],
    ]
    log = graph.log("Person", "ada")
    assert [entry.commit.commit_id for entry in log.changes][:2] == [ids[2], ids[0]]
    assert graph.blame("Person", "ada")["age"].commit.commit_id == ids[2]
    assert graph.blame("Person", "bob")["age"].commit.commit_id == ids[1]
    between = graph.diff(ids[0], ids[1])
    assert "bob" in str(between.to_json())
    assert "ada" not in str(between.to_json())


def test_revert_of_a_commit_of_a_group_undoes_only_it(graph: og.Graph) -> None:
    one, two, _ = together(
        graph,
        mutation(graph, AGE, name="ada", age=7),
        mutation(graph, ADD, name="bob", age=2),
        mutation(graph, ADD, name="cyd", age=2),
    )
    graph.revert(one.commit.commit_id)
    assert ages(graph) == {"ada": 1, "bob": 2, "cyd": 2}
    graph.revert(two.commit.commit_id)
    assert ages(graph) == {"ada": 1, "cyd": 2}


def test_ancestors_of_a_group_are_counted_one_by_one(graph: og.Graph) -> None:
    together(graph, *(mutation(graph, ADD, name=name, age=2) for name in ("bob", "cyd", "dan")))
    assert [sorted(ages(graph, f"HEAD~{steps}")) for steps in (0, 1, 2, 3)] == [
        ["ada", "bob", "cyd", "dan"],
        ["ada", "bob", "cyd"],
        ["ada", "bob"],
        ["ada"],
    ]


def test_writer_that_stops_waiting_is_left_out(graph: og.Graph) -> None:
    publication = Publication()

    def give_up() -> og.MutationReceipt:
        with watched(publication):
            return graph.mutate(ADD, params={"name": "bob", "age": 2})

    def close(_: str) -> None:
        publication.close()

    with failpoints.armed({Point.PUBLISH_BEFORE: close}):
        gone, done = together(graph, give_up, mutation(graph, ADD, name="cyd", age=2))
    assert isinstance(gone, ConflictError)
    assert done.commit is not None
    assert sorted(ages(graph)) == ["ada", "cyd"]


def test_unknown_outcome_names_the_operation_of_each_member(graph: og.Graph) -> None:
    def lose_answer(_: str) -> None:
        raise StorageError("no answer", kind=StorageKind.TRANSIENT)

    with failpoints.armed({Point.PUBLISH_AFTER: lose_answer}):
        errors = together(graph, *(mutation(graph, ADD, name=name, age=2) for name in ("bob", "cyd")))
    assert [error.effect for error in errors] == [Effect.UNKNOWN] * 2
    *_, group = groups_of(graph)
    assert [error.context["operation_id"] for error in errors] == [commit.operation_id for commit in group]
    kernel = session_of(graph).kernel
    assert [find_operation(kernel, error.context["operation_id"]) for error in errors] == group


def test_failure_before_the_publish_is_told_to_each_member(graph: og.Graph) -> None:
    def fail(_: str) -> None:
        raise StorageError("no room", kind=StorageKind.FULL)

    with failpoints.armed({Point.COMMIT_SYNCED: fail}):
        errors = together(graph, *(mutation(graph, ADD, name=name, age=2) for name in ("bob", "cyd")))
    assert all(isinstance(error, StorageError) and error.effect is Effect.NONE for error in errors)
    assert errors[0] is not errors[1]
    assert ages(graph) == {"ada": 1}


@pytest.mark.parametrize("number", range(1, 13))
@pytest.mark.parametrize("point", [Point.DURABLE_BEFORE, Point.DURABLE_AFTER, Point.COMMIT_STAGED, Point.LINK_BEFORE])
def test_failure_at_any_step_leaves_all_or_nothing(graph: og.Graph, point: Point, number: int) -> None:
    passed = 0

    def fail(_: str) -> None:
        nonlocal passed
        passed += 1
        if passed == number:
            raise StorageError("broken", kind=StorageKind.TRANSIENT)

    before = ages(graph)
    with failpoints.armed({point: fail}):
        answers = together(
            graph,
            mutation(graph, ADD, name="bob", age=2),
            mutation(graph, AGE, name="ada", age=7),
            mutation(graph, AGE, name="bob", age=3),
        )
    effects = {answer.effect if isinstance(answer, StorageError) else Effect.APPLIED for answer in answers}
    assert len(effects) == 1
    after = {"ada": 7, "bob": 3}
    expected = {Effect.NONE: [before], Effect.APPLIED: [after], Effect.UNKNOWN: [before, after]}[effects.pop()]
    assert ages(graph) in expected
    graph.mutate(ADD, params={"name": "cyd", "age": 9})
    assert ages(graph) in [state | {"cyd": 9} for state in expected]
    assert graph.maintenance.verify().is_sound


def test_group_that_loses_a_race_is_prepared_again(graph: og.Graph, tmp_path: Path) -> None:
    lock = threading.Lock()
    with og.open(tmp_path / "graph.omni") as other:

        def overtake(_: str) -> None:
            if lock.acquire(blocking=False):
                strangers(other)
                other.mutate(AGE, params={"name": "ada", "age": 5})

        with failpoints.armed({Point.PUBLISH_BEFORE: overtake}):
            receipts = together(graph, mutation(graph, ANYBODY, age=5, to=6), mutation(graph, ADD, name="bob", age=2))
    assert [receipt.affected_nodes for receipt in receipts] == [1, 1]
    assert ages(graph) == {"ada": 6, "bob": 2}


def test_commits_of_groups_are_spilled_whole(graph: og.Graph) -> None:
    for number in range(12):
        together(graph, *(mutation(graph, ADD, name=f"p{number}-{place}", age=2) for place in range(13)))
    groups = groups_of(graph)
    assert [len(group) for group in groups[2:]] == [13] * 12
    kept = session_of(graph).kernel.snapshot().state.commits
    by_version = {commit.manifest_version for commit in kept}
    assert sum(len(group) for group in groups if group[0].manifest_version in by_version) == len(kept)
    steps = [block.cause["graph_commit_id"] for block in graph.changes(start="beginning", commits_max=200).blocks]
    assert steps == [commit.commit_id for group in groups for commit in group][1 : 1 + len(steps)]


# -- mutants ---------------------------------------------------------------------------------------------------


def test_mutant_inner_commit_without_pins_is_caught(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_pin_between", lambda pin, earlier, later: pin)
    with pytest.raises(AssertionError):
        test_group_state_after_each_commit_is_its_own(graph)


def test_mutant_later_member_after_failed_one_is_caught(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    def add_first(self: Any, snapshot: Any, stage: GroupRows) -> Any:
        may = self.may
        with monkeypatch.context() as lenient:
            lenient.setattr(type(may), "validate", lambda *_: None)
            ran = self._run(snapshot, stage)
        stage.add(ran.deltas)
        may.validate(ran, GroupRows.__mro__[1](stage.view))
        return group_commit.Plan("mutation", actor=None)

    monkeypatch.setattr(mutations._Mutation, "_prepare_in_group", add_first)
    with pytest.raises((AssertionError, ValueError)):
        test_member_that_breaks_a_rule_fails_alone(graph)


def test_mutant_two_members_with_one_unique_value_is_caught(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupRows, "matching", GroupRows.__mro__[1].matching)
    with pytest.raises(AssertionError):
        test_member_that_breaks_a_rule_fails_alone(graph)


# -- branches, tags, upkeep ------------------------------------------------------------------------------------


def grouped(graph: og.Graph) -> list[str]:
    """Publish a group that changes all that a group can; return the ids of its commits."""
    receipts = together(
        graph,
        mutation(graph, ADD, name="bob", age=2),
        mutation(graph, AGE, name="ada", age=7),
        mutation(graph, BOTH_KNOW, a="ada", b="bob"),
        mutation(graph, AGE, name="bob", age=8),
        mutation(graph, DROP, name="ada"),
        mutation(graph, ADD, name="cyd", age=9),
    )
    assert len({receipt.commit.manifest_version for receipt in receipts}) == 1
    return [receipt.commit.commit_id for receipt in receipts]


STATES = [
    {"ada": 1, "bob": 2},
    {"ada": 7, "bob": 2},
    {"ada": 7, "bob": 2},
    {"ada": 7, "bob": 8},
    {"bob": 8},
    {"bob": 8, "cyd": 9},
]
KNOWN = [0, 0, 2, 2, 1, 1]


def friends(graph: og.Graph, **where: Any) -> int:
    friends = "query q() { match { $p: Person  $p knows $q } return { $p.name as name, $q.name as friend } }"
    return len(graph.query(friends, **where).rows())


@pytest.mark.parametrize("place", range(6))
def test_branch_from_a_commit_of_a_group_starts_there(graph: og.Graph, place: int) -> None:
    ids = grouped(graph)
    graph.branches.create("review", at=ids[place])
    assert {row["name"]: row["age"] for row in graph.query(PEOPLE, branch="review").rows()} == STATES[place]
    assert friends(graph, branch="review") == KNOWN[place]
    assert graph.maintenance.verify().is_sound
    graph.mutate(ADD, params={"name": "dan", "age": 4}, branch="review")
    assert {row["name"]: row["age"] for row in graph.query(PEOPLE, branch="review").rows()} == STATES[place] | {
        "dan": 4
    }
    line = [commit.commit_id for commit in graph.commits("review")]
    assert line[1] == ids[place]
    assert not set(ids[place + 1 :]) & set(line)
    blocks = graph.changes("review", start=f"after:{ids[0]}").blocks
    assert [block.cause["graph_commit_id"] for block in blocks] == [*ids[1 : place + 1], line[0]]
    graph.branches.merge("review")
    assert ages(graph) == STATES[5] | {"dan": 4}
    assert graph.maintenance.verify().is_sound


def test_tag_on_a_commit_of_a_group_keeps_its_state(graph: og.Graph, tmp_path: Path) -> None:
    ids = grouped(graph)
    graph.tags.create("middle", ids[3])
    for number in range(4):
        graph.mutate(AGE, params={"name": "cyd", "age": number})
    graph.maintenance.optimize()
    with hours_later():
        assert graph.maintenance.cleanup(keep=1, confirm=True).bytes_removed
    with og.open(tmp_path / "graph.omni") as reopened:
        assert ages(reopened, "middle") == STATES[3]
        assert friends(reopened, at="middle") == KNOWN[3]
        assert reopened.maintenance.verify(data=True).is_sound
    graph.branches.create("review", at="middle")
    assert {row["name"]: row["age"] for row in graph.query(PEOPLE, branch="review").rows()} == STATES[3]


def test_cleanup_keeps_or_removes_a_group_as_one(graph: og.Graph, tmp_path: Path) -> None:
    ids = grouped(graph)
    with hours_later():
        graph.maintenance.cleanup(keep=1, confirm=True)
        with og.open(tmp_path / "graph.omni") as reopened:
            assert [ages(reopened, commit_id) for commit_id in ids] == STATES
        graph.mutate(AGE, params={"name": "cyd", "age": 1})
    with hours_later(4):
        graph.maintenance.cleanup(keep=1, confirm=True)
        with og.open(tmp_path / "graph.omni") as reopened:
            for commit_id in ids:
                with pytest.raises(GraphError) as gone:
                    ages(reopened, commit_id)
                assert gone.value.code == "graph.version_reclaimed"
            assert reopened.maintenance.verify().is_sound


def test_clone_has_the_states_between_commits(graph: og.Graph, tmp_path: Path) -> None:
    ids = grouped(graph)
    graph.clone(tmp_path / "copy.omni")
    with og.open(tmp_path / "copy.omni") as copy:
        assert [ages(copy, commit_id) for commit_id in ids] == STATES


def test_mutation_of_a_blob_is_published_by_itself(tmp_path: Path) -> None:
    schema = "node Doc { name: String @key  body: Blob  pages: I32? }"
    add = "query q($name: String, $body: Blob?) { insert Doc { name: $name, body: $body } }"
    turn = "query q($name: String, $pages: I32) { update Doc set { pages: $pages } where name = $name }"
    with og.init(tmp_path / "docs.omni", schema.replace("Blob ", "Blob? ")) as graph:
        together(
            graph,
            mutation(graph, add, name="a", body=None),
            mutation(graph, add, name="d", body=None),
            mutation(graph, add, name="b", body=b"bytes"),
            mutation(graph, turn, name="b", pages=3),
            mutation(graph, turn, name="a", pages=4),
        )
        docs = graph.query("query q() { match { $d: Doc } return { $d.name as name, $d.pages as pages } }").rows()
        assert {row["name"]: row["pages"] for row in docs} == {"a": 4, "b": 3, "d": None}
        assert graph.blob("Doc", "b", "body").read() == b"bytes"
        inner = next(commit for group in groups_of(graph) for commit in group if commit.is_inner)
        graph.branches.create("review", at=inner.commit_id)
        graph.mutate(add, params={"name": "c", "body": b"more"}, branch="review")
        assert graph.blob("Doc", "c", "body", branch="review").read() == b"more"
        assert graph.maintenance.verify(data=True).is_sound


def test_group_that_loses_to_another_type_keeps_what_it_staged(graph: og.Graph, tmp_path: Path) -> None:
    staged: list[str] = []
    with og.open(tmp_path / "graph.omni") as other:
        strangers(other)

        def overtake(_: str) -> None:
            if not staged:
                staged.append("overtaken")
                other.mutate('query q() { insert Note { text: "hi" } }')

        prepared: list[object] = []
        prepare = GroupRows.finish
        with pytest.MonkeyPatch.context() as counted:
            counted.setattr(GroupRows, "finish", lambda self, state: prepared.append(state) or prepare(self, state))
            with failpoints.armed({Point.PUBLISH_BEFORE: overtake}):
                receipts = together(
                    graph, mutation(graph, AGE, name="ada", age=5), mutation(graph, ADD, name="bob", age=2)
                )
    assert len(prepared) == 1
    assert [receipt.commit.manifest_version for receipt in receipts] == [graph.snapshot().version] * 2
    assert [ages(graph, receipt.commit.commit_id) for receipt in receipts] == [{"ada": 5}, {"ada": 5, "bob": 2}]
    assert len(graph.commits()) == 5
    assert graph.maintenance.verify().is_sound


def strangers(graph: og.Graph) -> None:
    """Let a handle of this process take turns by itself, as another process would."""
    session_of(graph).kernel.commit_loop._turns.put(None, BranchTurn())


def test_search_between_commits_finds_what_was_there(tmp_path: Path) -> None:
    schema = "node Doc { name: String @key  body: String? @index  place: Vector(2)? @index }"
    add = "query q($name: String, $body: String, $place: Vector(2)) {"
    add += " upsert Doc { name: $name, body: $body, place: $place } }"
    by_text = 'query q() { match { $d: Doc  search($d.body, "amber") } return { $d.name as name } }'
    by_place = "query q() { match { $d: Doc } return { $d.name as name }"
    by_place += " order { nearest($d.place, [1.0, 0.0]) } limit 1 }"
    with og.init(tmp_path / "docs.omni", schema) as graph:
        graph.mutate(add, params={"name": "a", "body": "amber light", "place": [0.9, 0.1]})
        graph.maintenance.ensure_indices()
        receipts = together(
            graph,
            mutation(graph, add, name="b", body="amber too", place=[1.0, 0.0]),
            mutation(graph, add, name="a", body="grey", place=[0.0, 1.0]),
            mutation(graph, add, name="b", body="grey", place=[0.0, 1.0]),
            mutation(graph, add, name="c", body="amber again", place=[1.0, 0.0]),
        )
        found = [
            (
                sorted(row["name"] for row in graph.query(by_text, at=receipt.commit.commit_id).rows()),
                [row["name"] for row in graph.query(by_place, at=receipt.commit.commit_id).rows()],
            )
            for receipt in receipts[:2]
        ]
        assert found == [(["a", "b"], ["b"]), (["b"], ["b"])]
        assert sorted(row["name"] for row in graph.query(by_text, at=receipts[2].commit.commit_id).rows()) == []
        assert [row["name"] for row in graph.query(by_text).rows()] == ["c"]
