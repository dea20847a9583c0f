"""The history of one entity: what `log` lists and `blame` attributes, by hand and against their definition."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engine import entity_history
from omnigraph.errors import OmniGraphError, UsageError
from omnigraph.policy import load_bundle
from tests.support.maintenance_fixtures import hours_later

pytestmark = pytest.mark.slow

Values = Mapping[str, Any] | None


@dataclass
class HistoryModel:
    """What `log` and `blame` answer, by definition: the commit graph, and the values of the entity at each commit.

    The definition is that of `git log` for a path: a commit is passed over if the entity is as in one of its parents,
    and the walk goes on along the first such parent; otherwise it is listed, and the walk goes on along all of them.
    """

    commits: Mapping[str, Any]
    values: Mapping[str, Values]
    head: str

    @classmethod
    def read(
        cls,
        graph: og.Graph,
        type_name: str,
        key: str,
        branch: str,
        defaults: Mapping[str, object] = MappingProxyType({}),
    ) -> HistoryModel:
        """Read an entity at every commit.

        `defaults` are those of required properties that the type got later: entities count as having had them always.
        """
        listed = graph.commits(branch)
        values: dict[str, Values] = {}
        for commit in listed:
            row = graph.get(type_name, key, branch=branch, at=commit.commit_id)
            filled = {} if row is None else {name: defaults[name] for name in defaults if row[name] is None}
            values[commit.commit_id] = None if row is None else {**row, **filled}
        return cls({commit.commit_id: commit for commit in listed}, values, listed[0].commit_id)

    def parents(self, commit_id: str) -> list[str]:
        commit = self.commits[commit_id]
        return [parent for parent in (commit.parent, commit.merged_parent) if parent is not None]

    def log(self) -> set[tuple[str, str]]:
        """Return the ids of the commits that changed the entity, with what each did."""
        found: set[tuple[str, str]] = set()
        waiting, visited = [self.head], set[str]()
        while waiting:
            commit_id = waiting.pop()
            if commit_id in visited:
                continue
            visited.add(commit_id)
            parents, now = self.parents(commit_id), self.values[commit_id]
            same = [parent for parent in parents if self.values[parent] == now]
            if same or not parents:
                waiting += same[:1]
                continue
            before = self.values[parents[0]]
            found.add((commit_id, "insert" if before is None else "delete" if now is None else "update"))
            waiting += parents
        return found

    def blame(self, name: str) -> str:
        """Return the commit that set a property: the walk follows the first parent that has the value already."""
        commit_id = self.head
        now = self.values[commit_id]
        assert now is not None
        while True:
            having = (
                parent
                for parent in self.parents(commit_id)
                if (values := self.values[parent]) is not None and values.get(name) == now[name]
            )
            parent = next(having, None)
            if parent is None:
                return commit_id
            commit_id = parent


SCHEMA = """
node Person { name: String @key  age: I32?  team: String?  photo: Blob? }
node Step { number: I64 @key  done: Bool? }
edge Knows: Person -> Person { since: I32? }
"""


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return og.init(tmp_path / "g.omni", SCHEMA, actor="ada")


def put(graph: og.Graph, branch: str = "main", message: str | None = None, **values: object) -> str:
    record = {"type": "Person", "data": {"name": "ann", **values}}
    commit = graph.ingest([record], branch=branch, message=message).commit
    assert commit is not None
    return str(commit.commit_id)


def other(graph: og.Graph, branch: str = "main") -> None:
    graph.ingest([{"type": "Person", "data": {"name": "bob", "age": random.randrange(10**6)}}], branch=branch)


def delete(graph: og.Graph, branch: str = "main") -> str:
    commit = graph.mutate('query q() { delete Person where name = "ann" }', branch=branch).commit
    assert commit is not None
    return str(commit.commit_id)


def listed(graph: og.Graph, **options: Any) -> list[tuple[str, str]]:
    return [(change.commit.commit_id, change.op) for change in graph.log("Person", "ann", **options)]


def test_log_lists_what_changed_the_entity_newest_first(graph: og.Graph) -> None:
    first = put(graph, age=1)
    other(graph)
    second = put(graph, age=2, team="sea", message="Move to sea")
    put(graph, age=2, team="sea")
    graph.maintenance.optimize()
    gone = delete(graph)
    other(graph)
    again = put(graph, age=3)
    log = graph.log("Person", "ann")
    assert listed(graph) == [(again, "insert"), (gone, "delete"), (second, "update"), (first, "insert")]
    assert (len(log), log.is_complete, log[2].changed, log[2].commit.message) == (
        4,
        True,
        ("age", "team"),
        "Move to sea",
    )
    assert (log[2].before, log[2].after) == (
        {"properties": {"age": 1, "name": "ann", "team": None}},
        {"properties": {"age": 2, "name": "ann", "team": "sea"}},
    )
    assert (log[1].after, log[3].before) == (None, None)
    assert listed(graph, at=second) == listed(graph)[2:]
    assert listed(graph, limit=1) == listed(graph)[:1]
    assert not graph.log("Person", "ann", limit=1).is_complete
    assert len(graph.log("Person", "nobody")) == 0


def test_log_sees_blobs_and_edges(graph: og.Graph) -> None:
    put(graph, photo="base64:aGVsbG8=")
    put(graph, photo="base64:aGVsbG8h")
    graph.ingest([{"type": "Person", "data": {"name": "bob"}}, {"type": "Step", "data": {"number": 7, "done": True}}])
    for since in (1, 2):
        graph.ingest([{"edge": "Knows", "from": "ann", "to": "bob", "data": {"id": "k", "since": since}}])
    newest = graph.log("Person", "ann")[0]
    assert (newest.op, newest.changed, newest.after) == (
        "update",
        ("photo",),
        {"properties": {"age": None, "name": "ann", "team": None}},
    )
    assert graph.log("Knows", "k")[0].after == {
        "properties": {"since": 2},
        "endpoints": {"from": "ann", "to": "bob"},
    }
    blame = graph.blame("Knows", "k")
    assert [item.name for item in blame.properties] == ["from", "since", "to"]
    assert blame["since"].commit == graph.commits()[0]
    assert graph.blame("Step", "7")["done"].value is True


def test_merge_that_took_one_side_is_passed_over(graph: og.Graph) -> None:
    first = put(graph, age=1)
    graph.branches.create("review")
    other(graph)
    on_review = put(graph, "review", age=2)
    graph.branches.merge("review", delete_branch=True)
    assert listed(graph) == [(on_review, "update"), (first, "insert")]
    assert graph.log("Person", "ann")[0].commit.branch == "review"
    assert graph.blame("Person", "ann")["age"].commit.commit_id == on_review  # type: ignore[union-attr]


def test_merge_that_combined_both_sides_is_listed(graph: og.Graph) -> None:
    first = put(graph, age=1, team="sea")
    graph.branches.create("review")
    on_review = put(graph, "review", age=2, team="sea")
    on_main = put(graph, age=1, team="sky")
    merge = graph.branches.merge("review").commit
    assert merge is not None
    assert listed(graph)[0] == (merge.commit_id, "update")
    assert {commit_id for commit_id, _ in listed(graph)} == {merge.commit_id, on_review, on_main, first}
    blame = graph.blame("Person", "ann")
    origins = {item.name: item.commit.commit_id for item in blame.properties if item.commit is not None}
    assert origins == {"age": on_review, "team": on_main, "name": first, "photo": first}
    assert graph.log("Person", "ann")[0].changed == ("age",)


def test_merge_that_resolved_a_conflict_set_the_value(graph: og.Graph) -> None:
    put(graph, age=1)
    graph.branches.create("review")
    put(graph, "review", age=2)
    on_main = put(graph, age=3)
    graph.branches.create("other")
    conflict = {"type_key": "node:Person", "entity_id": "ann", "property": "age"}
    merge = graph.branches.merge("review", resolutions=[{**conflict, "value": 4}]).commit
    assert graph.blame("Person", "ann")["age"].commit == merge
    graph.branches.merge("review", "other", resolutions=[{**conflict, "take": "ours"}])
    assert graph.blame("Person", "ann", branch="other")["age"].commit.commit_id == on_main  # type: ignore[union-attr]


def test_history_survives_renames_and_new_properties(graph: og.Graph) -> None:
    first = put(graph, age=1)
    second = put(graph, age=2)
    graph.schema.apply(SCHEMA.replace("age: I32?", 'years: I32? @rename_from("age")  mail: String?'))
    assert listed(graph) == [(second, "update"), (first, "insert")]
    assert graph.log("Person", "ann")[0].changed == ("years",)
    blame = graph.blame("Person", "ann")
    assert (blame["years"].commit.commit_id, blame["mail"].commit.commit_id) == (second, first)  # type: ignore[union-attr]


def test_history_ends_where_cleanup_removed_states(graph: og.Graph) -> None:
    put(graph, age=1)
    put(graph, age=2)
    other(graph)
    with hours_later():
        graph.maintenance.cleanup(keep=2, confirm=True)
        opened = og.open(graph.uri)
        log, blame = opened.log("Person", "ann"), opened.blame("Person", "ann")
    assert ([change.commit.commit_id for change in log], log.is_complete) == ([], False)
    assert (blame["age"].value, blame["age"].commit) == (2, None)


def test_odd_arguments_are_refused(graph: og.Graph) -> None:
    for call in (
        lambda: graph.log("Persn", "ann"),
        lambda: graph.log("Person", {"x": 1}),
        lambda: graph.log("Person", "ann", limit=0),
        lambda: graph.blame("Step", "seven"),
        lambda: graph.blame("Knows", 7),
    ):
        with pytest.raises(UsageError):
            call()


# -- against the definition --------------------------------------------------------------------------------------------


def random_history(graph: og.Graph, seed: int, steps: int) -> None:
    choice = random.Random(seed)
    branches = ["main"]
    for number in range(steps):
        branch = choice.choice(branches)
        act = choice.randrange(12)
        if act < 5:
            put(graph, branch, age=choice.randrange(3), team=choice.choice(["a", "b"]))
        elif act == 5:
            delete(graph, branch) if graph.get("Person", "ann", branch=branch) else other(graph, branch)
        elif act < 8:
            other(graph, branch)
        elif act == 8 and len(branches) < 4:
            branches.append(f"b{number}")
            graph.branches.create(branches[-1], branch)
        elif act == 9 and branch == "main":
            graph.maintenance.optimize(branch)
        elif len(branches) > 1:
            source = choice.choice([name for name in branches if name != branch])
            try:
                graph.branches.merge(source, branch)
            except OmniGraphError:
                conflicts = graph.branches.merge(source, branch, dry_run=True).conflicts
                sides = [
                    {
                        "type_key": str(item.type_key),
                        "entity_id": item.entity_id,
                        "take": choice.choice(["ours", "theirs"]),
                    }
                    for item in conflicts
                ]
                graph.branches.merge(source, branch, resolutions=sides)


def check_against_model(
    graph: og.Graph,
    type_name: str = "Person",
    branches: Iterable[str] | None = None,
    defaults: Mapping[str, object] = MappingProxyType({}),
) -> None:
    for branch in graph.branches.list() if branches is None else branches:
        model = HistoryModel.read(graph, type_name, "ann", branch, defaults)
        log = graph.log(type_name, "ann", branch=branch, limit=1_000)
        assert {(change.commit.commit_id, change.op) for change in log} == model.log()
        assert log.is_complete
        ages = [(change.commit.created_at_us, change.commit.commit_id) for change in log]
        assert ages == sorted(ages, reverse=True)
        for item in graph.blame(type_name, "ann", branch=branch).properties:
            if item.name != "photo":
                assert item.commit is not None
                assert item.commit.commit_id == model.blame(item.name), (branch, item.name)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.sampled(1)
def test_history_is_as_its_definition_says(graph: og.Graph, seed: int) -> None:
    random_history(graph, seed, 24)
    check_against_model(graph)


def test_model_catches_a_walk_that_skips_too_far(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    put(graph, age=1)
    put(graph, age=2)
    put(graph, age=3)
    check_against_model(graph)
    monkeypatch.setattr(entity_history, "row_version", lambda dataset, entity_id: 0)
    with pytest.raises(AssertionError):
        check_against_model(graph)


# -- types and properties that came later ------------------------------------------------------------------------------

TOOLS = SCHEMA + "node Tool { name: String @key  size: I32? }\n"


def put_tool(graph: og.Graph, name: str, size: int, branch: str = "main") -> None:
    graph.ingest([{"type": "Tool", "data": {"name": name, "size": size}}], branch=branch)


def add_type_late(graph: og.Graph, before: int, after: int, branch: str = "main") -> None:
    for _ in range(before):
        other(graph, branch)
    graph.schema.apply(TOOLS, branch=branch)
    put_tool(graph, "ann", 1, branch)
    for number in range(after):
        put_tool(graph, f"t{number}", number, branch)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("after", range(5))
@pytest.mark.parametrize("before", range(3))
def test_entity_of_a_type_that_came_later_has_its_history(graph: og.Graph, before: int, after: int) -> None:
    add_type_late(graph, before, after)
    check_against_model(graph, "Tool")


def rename_late_type(graph: og.Graph) -> str:
    add_type_late(graph, 1, 3)
    graph.schema.apply(TOOLS.replace("node Tool {", 'node Device @rename_from("Tool") {'))
    other(graph)
    return "Device"


def merge_late_type(graph: og.Graph) -> str:
    graph.branches.create("review")
    add_type_late(graph, 1, 3, "review")
    put(graph, age=1)
    graph.branches.merge("review")
    for number in range(3):
        put_tool(graph, f"later {number}", number)
    return "Tool"


def drop_type_and_revert(graph: og.Graph) -> str:
    add_type_late(graph, 1, 2)
    graph.schema.apply(SCHEMA)
    other(graph)
    graph.revert(graph.commits()[1].commit_id)
    for number in range(4):
        put_tool(graph, f"later {number}", number)
    return "Tool"


def delete_entity_of_late_type(graph: og.Graph) -> str:
    add_type_late(graph, 1, 2)
    graph.mutate('delete Tool where name = "ann"')
    put_tool(graph, "last", 1)
    return "Tool"


@pytest.mark.parametrize(
    "scenario", [rename_late_type, merge_late_type, drop_type_and_revert, delete_entity_of_late_type]
)
def test_late_type_keeps_its_history(graph: og.Graph, scenario: Callable[[og.Graph], str]) -> None:
    type_name = scenario(graph)
    check_against_model(graph, type_name, ["main"])


def test_late_type_on_a_branch_has_its_history_there(graph: og.Graph) -> None:
    graph.branches.create("review")
    add_type_late(graph, 2, 3, "review")
    check_against_model(graph, "Tool", ["review"])


def test_model_catches_a_run_that_goes_past_the_start_of_a_type(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_type_late(graph, 1, 3)
    monkeypatch.setattr(entity_history, "_SCHEMA_KINDS", frozenset())
    with pytest.raises(AssertionError):
        check_against_model(graph, "Tool")


def test_walk_over_a_long_history_reads_few_states(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    put(graph, age=1)
    for _ in range(64):
        other(graph)
    read: list[object] = []
    original = entity_history._Walk._read_row

    def counted(self: Any, *arguments: Any) -> Any:
        read.append(arguments)
        return original(self, *arguments)

    monkeypatch.setattr(entity_history._Walk, "_read_row", counted)
    assert graph.blame("Person", "ann")["age"].value == 1
    assert len(read) < 25


# -- what is hidden ----------------------------------------------------------------------------------------------------

RULES = """
version: 1
groups: {all: [root], ann: [ann], bob: [bob]}
protected_branches: [secret]
rules:
  - {id: all, allow: {actors: {group: all}, actions: [read, change, branch_create, branch_merge]}}
  - {id: ann, allow: {actors: {group: ann}, actions: [read], branch_scope: unprotected}}
  - {id: bob, allow: {actors: {group: bob}, actions: [read], types: [Step]}}
"""


def test_hidden_side_of_a_merge_shows_as_the_merge(graph: og.Graph) -> None:
    first = put(graph, age=1)
    graph.branches.create("secret")
    hidden = put(graph, "secret", age=2, message="Do not tell")
    other(graph)
    merge = graph.branches.merge("secret", message="Publish").commit
    assert merge is not None
    root = og.open(graph.uri, actor="root", policy=load_bundle(RULES))
    assert listed(root) == [(hidden, "update"), (first, "insert")]
    ann = root.acting_as("ann")
    assert listed(ann) == [(merge.commit_id, "update"), (first, "insert")]
    assert "Do not tell" not in f"{ann.log('Person', 'ann').to_json()} {ann.blame('Person', 'ann').to_json()}"
    assert ann.blame("Person", "ann")["age"].commit.commit_id == merge.commit_id  # type: ignore[union-attr]
    for call in (root.acting_as("bob").log, root.acting_as("bob").blame):
        with pytest.raises(UsageError, match="no type"):
            call("Person", "ann")
