"""Writers learn nothing of what they may not read, neither from what is refused nor from what is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.errors import OmniGraphError, PolicyDenied
from omnigraph.graph import Graph
from omnigraph.ids import new_ulid
from omnigraph.policy import load_bundle
from tests.support.flow_fixtures import PEOPLE, person, policy, root, salary, same_answer, template
from tests.support.graph_template import copy_built

__all__ = ["policy", "root", "template"]

pytestmark = pytest.mark.slow


# -- writers that may not read -----------------------------------------------------------------------------------------

BLIND = """
version: 1
groups: {all: [root], clerk: [clerk]}
rules:
  - {id: a1, allow: {actors: {group: all}, actions: [read, change]}}
  - {id: c1, allow: {actors: {group: clerk}, actions: [change]}}
  - {id: c2, allow: {actors: {group: clerk}, actions: [read], types: [Person]}}
"""


@pytest.fixture
def clerk(root: Graph) -> Iterator[Graph]:
    root.ingest([{"edge": "Knows", "from": "ann", "to": "ann", "data": {}}])
    with og.open(root.uri, actor="clerk", policy=load_bundle(BLIND)) as graph:
        yield graph


@pytest.mark.parametrize("statement", ["update Salary set { amount: 1 }", "delete Salary", "delete Knows"])
@pytest.mark.parametrize("value", ["s1", "ann", "nothing"])
def test_mutation_with_a_condition_needs_to_read_its_type(clerk: Graph, statement: str, value: str) -> None:
    column = "from" if "Knows" in statement else "slip"
    name = "Knows" if "Knows" in statement else "Salary"
    head = clerk.acting_as("root").snapshot().head
    with pytest.raises(PolicyDenied, match=f"`read` of `{name}`") as caught:
        clerk.mutate(f'query q() {{ {statement} where {column} = "{value}" }}')
    assert caught.value.context["type_name"] == name
    assert clerk.acting_as("root").snapshot().head == head


@pytest.mark.parametrize(
    "statement",
    [
        "match { $s: Salary } update $s set { amount: 1 }",
        "match { $s: Salary } delete $s",
        "match { $s: Salary  $p: Person  $s.amount > 1 } insert Person { name: $p.name }",
        'create Salary { slip: "s1" amount: 1 }',
        'upsert Salary { slip: "s1" amount: 1 }',
        "update Salary set { amount: amount + 1 } where amount > 0 and slip is not null",
    ],
)
def test_writes_by_pattern_and_those_that_look_first_need_to_read(clerk: Graph, statement: str) -> None:
    head = clerk.acting_as("root").snapshot().head
    for dry_run in (True, False):
        with pytest.raises(PolicyDenied, match="`read` of `Salary`"):
            clerk.mutate(f"query q() {{ {statement} }}", dry_run=dry_run)
    assert clerk.acting_as("root").snapshot().head == head


def test_insert_and_load_need_no_right_to_read(clerk: Graph) -> None:
    assert clerk.mutate('query q() { insert Salary { slip: "s9" amount: 9 } }').affected_nodes == 1
    assert clerk.ingest([salary("s8", 8)]).commit is not None


def test_edges_that_may_not_be_read_are_not_counted(clerk: Graph) -> None:
    receipt = clerk.mutate('query q() { delete Person where name = "ann" }')
    assert (receipt.affected_nodes, receipt.affected_edges) == (1, 0)
    assert len(clerk.acting_as("root").query("query q() { match { $p: Person $p knows $q } return { $q.name } }")) == 0


# -- writers of a branch that they may not read ------------------------------------------------------------------------

DROPBOX = """
version: 1
groups: {all: [root], cat: [cat], uma: [uma], wen: [wen]}
protected_branches: [main]
rules:
  - {id: a1, allow: {actors: {group: all}, actions: [read, change, branch_create, branch_merge]}}
  - {id: c1, allow: {actors: {group: cat}, actions: [read], branch_scope: unprotected}}
  - {id: c2, allow: {actors: {group: cat}, actions: [change]}}
  - {id: u1, allow: {actors: {group: uma}, actions: [read, change], branch_scope: unprotected}}
  - {id: u2, allow: {actors: {group: uma}, actions: [branch_merge]}}
  - {id: w1, allow: {actors: {group: wen}, actions: [read], types: [Person]}}
  - {id: w2, allow: {actors: {group: wen}, actions: [change], types: [Person, Salary]}}
"""


@pytest.fixture
def dropbox(root: Graph) -> Iterator[Graph]:
    with og.open(root.uri, actor="root", policy=load_bundle(DROPBOX)) as graph:
        graph.branches.create("play")
        yield graph


def answers_of(call: Callable[[], object]) -> str:
    """Return what a call answers, without ids of commits."""
    try:
        call()
    except OmniGraphError as error:
        return str(error.to_json())
    return "ok"


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("kind", ["cherry_pick", "revert"])
@pytest.mark.parametrize("actor", ["cat", "wen"])
def test_replay_onto_types_that_may_not_be_read_is_denied(dropbox: Graph, actor: str, kind: str, dry_run: bool) -> None:
    # On play each guess is replaced by -1: to repeat that on main would work for the right guess alone.
    commits = []
    for guess in (99, 100, 101):
        dropbox.ingest([salary("s1", guess)], branch="play")
        commits.append(str(dropbox.ingest([salary("s1", -1)], branch="play").commit_id))
    writer, head = dropbox.acting_as(actor), dropbox.snapshot().head
    if kind == "revert":
        commits = [str(dropbox.ingest([salary("s1", amount)]).commit_id) for amount in (5, 6, 7)]
        head = dropbox.snapshot().head
    told = {
        answers_of(lambda commit=commit: getattr(writer, kind)(commit, "main", dry_run=dry_run)).replace(commit, "ID")  # type: ignore[misc]
        for commit in commits
    }
    [answer] = told
    assert "policy.denied" in answer or "commit.not_found" in answer
    assert dropbox.snapshot().head == head


@pytest.mark.parametrize("dry_run", [True, False])
def test_merge_into_types_that_may_not_be_read_is_denied(dropbox: Graph, dry_run: bool) -> None:
    dropbox.ingest([salary("s1", 77)])
    uma, head = dropbox.acting_as("uma"), dropbox.snapshot().head
    told = set()
    for guess in (76, 77, 78):
        uma.ingest([salary("s1", guess)], branch="play")
        told.add(answers_of(lambda: uma.branches.merge("play", "main", dry_run=dry_run)))
    [answer] = told
    assert "policy.denied" in answer
    assert "Salary" not in answer
    assert dropbox.snapshot().head == head


def test_merge_may_bring_types_that_the_target_did_not_change(dropbox: Graph) -> None:
    dropbox.ingest([salary("s2", 77)])
    uma = dropbox.acting_as("uma")
    uma.ingest([person("bea")], branch="play")
    receipt = uma.branches.merge("play", "main")
    assert receipt.commit is not None
    assert receipt.types == ()
    assert [row["p.name"] for row in dropbox.query(PEOPLE).rows()] == ["ann", "bea"]


BLIND_SCHEMA = """
node Person { name: String @key
  mail: String? @unique }
node Salary { slip: String @key }
edge Knows: Person -> Person @card(0..2)
edge Paid: Salary -> Person
"""
BLIND_RULES = """
version: 1
groups: {w: [wendy], v: [vic]}
rules:
  - {id: w, allow: {actors: {group: w}, actions: [change], types: [Person, Knows]}}
  - {id: v, allow: {actors: {group: v}, actions: [read, change], types: [Person, Knows]}}
  - {id: m, allow: {actors: {group: v}, actions: [branch_create, branch_merge]}}
"""


def knows(source: str, target: str, entity_id: str | None = None) -> dict[str, Any]:
    return {"edge": "Knows", "from": source, "to": target, "data": {"id": entity_id} if entity_id else {}}


def salary_slip(slip: str) -> dict[str, Any]:
    return {"type": "Salary", "data": {"slip": slip}}


@pytest.fixture
def wendy(tmp_path: Path) -> Iterator[Graph]:
    with copy_built(build, tmp_path / "blind.omni", actor="wendy", policy=load_bundle(BLIND_RULES)) as graph:
        yield graph


def build(path: Path) -> Graph:
    graph = og.init(path, BLIND_SCHEMA)
    people = [person(name, mail=f"{name}@secret") for name in ("ann", "bob", "cy")]
    graph.ingest([*people, knows("ann", "bob", "k1"), knows("ann", "cy", "k2")])
    return graph


def error_of(call: Callable[[], object]) -> OmniGraphError:
    with pytest.raises(OmniGraphError) as caught:
        call()
    return caught.value


@pytest.mark.parametrize("door", ["ingest", "mutate", "load"])
def test_unique_violation_does_not_name_a_row_that_may_not_be_read(wendy: Graph, door: str, tmp_path: Path) -> None:
    row = {"name": "zed", "mail": "ann@secret"}
    (tmp_path / "in.jsonl").write_text('{"type": "Person", "data": {"name": "zed", "mail": "ann@secret"}}\n')
    error = error_of(
        {
            "ingest": lambda: wendy.ingest([person(**row)]),
            "mutate": lambda: wendy.mutate('query q() { insert Person { name: "zed" mail: "ann@secret" } }'),
            "load": lambda: pipeline.load(wendy, tmp_path / "in.jsonl", mode="append", job_id="j"),
        }[door]
    )
    assert error.context["rule"] == "E5"
    assert error.context["property"] == "mail"
    assert "`ann`" not in str(error.to_json())


def test_cardinality_violation_does_not_count_edges_that_may_not_be_read(wendy: Graph) -> None:
    told = [
        str(error_of(lambda count=count: wendy.ingest([knows("ann", "bob")] * count, mode="append")).to_json())  # type: ignore[misc]
        for count in (1, 1)
    ]
    assert "would have" not in str(told)
    assert "'rule': 'E10'" in told[0]
    assert "ann" in told[0]


def test_overwrite_does_not_list_edges_that_may_not_be_read(wendy: Graph) -> None:
    error = error_of(lambda: wendy.ingest([person("zed")], mode="overwrite"))
    assert error.context["rule"] == "E9"
    told = str(error.to_json())
    assert not any(name in told for name in ("k1", "k2", "ann", "bob", "cy"))
    # One for each end of the type, however many edges there are.
    assert [(one["type_key"], one["property"]) for one in error.context["violations"]] == [  # type: ignore[attr-defined]
        ("edge:Knows", "from"),
        ("edge:Knows", "to"),
    ]


def test_condition_on_an_unreadable_branch_does_not_tell_its_head(wendy: Graph) -> None:
    error = error_of(lambda: wendy.mutate('query q() { insert Person { name: "q" } }', if_commit="x"))
    assert error.code == "precondition.failed"
    assert str(og.open(wendy.uri).snapshot().head) not in str(error.to_json())
    assert "actual" not in error.context


@pytest.mark.parametrize("door", ["merge", "dry run", "overwrite"])
def test_hidden_edges_of_removed_nodes_tell_one_bit_and_no_more(wendy: Graph, door: str) -> None:
    """That an edge would lose its end refuses the write; which node, which edge and how many there are is not told."""
    vic, root = wendy.acting_as("vic"), og.open(wendy.uri)
    root.ingest([salary_slip("s1"), salary_slip("s2")])
    told = []
    for number, ends in enumerate([["bob"], ["cy"], ["bob", "cy", "cy"], []]):
        root.branches.create(f"ours{number}")
        vic.branches.create(f"theirs{number}", from_=f"ours{number}")
        for name in ("bob", "cy"):
            vic.mutate(f'query q() {{ delete Person where name = "{name}" }}', branch=f"theirs{number}")
        paid = [{"edge": "Paid", "from": "s1", "to": name, "data": {}} for name in ends]
        root.ingest(paid, branch=f"ours{number}")
        remove: Callable[[], object] = {
            "merge": lambda n=number: vic.branches.merge(f"theirs{n}", f"ours{n}"),
            "dry run": lambda n=number: vic.branches.merge(f"theirs{n}", f"ours{n}", dry_run=True),
            "overwrite": lambda n=number: vic.ingest(
                [person("ann"), knows("ann", "ann")], mode="overwrite", branch=f"ours{n}"
            ),
        }[door]
        if ends:
            error = error_of(remove)
            told.append(str(error.to_json()).replace(f"ours{number}", "ours").replace(f"theirs{number}", "theirs"))
        else:
            remove()
    assert len(set(told)) == 1
    assert not any(word in told[0] for word in ("Paid", "bob", "s1"))


@pytest.mark.parametrize("door", ["ingest", "mutate", "load", "load again", "operation"])
def test_receipt_does_not_tell_the_head_of_an_unreadable_branch(wendy: Graph, door: str, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"type": "Person", "data": {"name": "zed"}}\n')
    heads = [str(commit.commit_id) for commit in og.open(wendy.uri).commits()]
    operation_id = new_ulid()
    write: Callable[[Graph], Any] = {
        "ingest": lambda actor: actor.ingest([person("zed")]),
        "mutate": lambda actor: actor.mutate('query q() { insert Person { name: "zed" } }'),
        "load": lambda actor: pipeline.load(actor, tmp_path / "in.jsonl", job_id="j"),
        "load again": lambda actor: [pipeline.load(actor, tmp_path / "in.jsonl", job_id="j") for _ in range(2)],
        "operation": lambda actor: actor.acting_as("wendy", operation_id).ingest([person("zed")]),
    }[door]
    receipt = write(wendy)
    if door == "load again":
        receipt = receipt[1]
    if door == "operation":
        receipt = wendy.operation(operation_id)
    assert receipt.commit is not None
    assert receipt.commit.actor == "wendy"
    assert not any(head in str(receipt.commit.to_json()) for head in heads)
    # Who may read the branch is told, as from the list of commits.
    told = wendy.acting_as("vic").ingest([person("yan")]).commit
    assert told is not None
    assert told.parent == receipt.commit.commit_id


def test_merge_receipt_does_not_tell_the_head_of_an_unreadable_target(dropbox: Graph) -> None:
    dropbox.ingest([salary("s2", 77)])
    head = dropbox.snapshot().head
    uma = dropbox.acting_as("uma")
    uma.ingest([person("bea")], branch="play")
    receipt = uma.branches.merge("play", "main")
    assert receipt.commit is not None
    assert receipt.commit.parent is None
    assert str(head) not in str(receipt.to_json())


def test_name_of_a_hidden_type_in_the_input_is_like_any_other_word(wendy: Graph) -> None:
    vic = wendy.acting_as("vic")
    insert = 'query q($a: String) { insert Person { name: $a mail: "ann@secret" } }'
    for call in (
        lambda word: vic.ingest([knows("bob", word, "k9")]),
        lambda word: vic.ingest([person(word), person(word)]),
        lambda word: vic.ingest([{"type": word, "data": {}}]),
        lambda word: vic.mutate('query q() { insert Person { name: "q" } }', if_commit=word),
        lambda word: vic.mutate(insert, params={"a": word}),
        lambda word: vic.mutate('query q() { insert Person { name: "q" } }', branch=word),
        lambda word: vic.mutate('query q() { insert Person { name: "q" } }', name=word),
    ):
        assert "policy.denied" not in same_answer(call, "Salary", "Paid", "Bonus")


def test_conflict_of_a_row_that_is_named_like_a_hidden_type_is_shown(root: Graph) -> None:
    root.ingest([person("Salary", age=1)])
    root.branches.create("side")
    root.ingest([person("Salary", age=2)], branch="side")
    root.ingest([person("Salary", age=3)])
    [conflict] = root.acting_as("mer").branches.merge("side", dry_run=True).conflicts
    assert conflict.entity_id == "Salary"


def test_branch_in_use_names_only_dependents_that_the_actor_may_list(dropbox: Graph) -> None:
    rules = """
version: 1
groups: {all: [root], uma: [uma]}
protected_branches: [main, secret]
rules:
  - {id: a1, allow: {actors: {group: all}, actions: [read, change, branch_create]}}
  - {id: u1, allow: {actors: {group: uma}, actions: [read], branch_scope: unprotected}}
  - {id: u2, allow: {actors: {group: uma}, actions: [branch_delete]}}
"""
    with og.open(dropbox.uri, actor="root", policy=load_bundle(rules)) as graph:
        graph.ingest([person("bea")], branch="play")
        graph.branches.create("secret", from_="play")
        uma = graph.acting_as("uma")
        error = error_of(lambda: uma.branches.delete("play"))
        assert (error.code, error.context["dependents"]) == ("branch.in_use", [])
        assert "secret" not in str(error.to_json())
        graph.branches.create("shown", from_="play")
        error = error_of(lambda: uma.branches.delete("play"))
        assert error.context["dependents"] == ["shown"]
        assert "secret" not in str(error.to_json())
