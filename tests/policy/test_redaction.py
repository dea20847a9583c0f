"""What a restricted actor receives beside entities depends only on what it may read: commits, receipts, keys, names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.errors import JobExists, OmniGraphError, PolicyDenied
from omnigraph.graph import Graph
from omnigraph.ids import new_ulid
from omnigraph.policy import Policy, load_bundle
from tests.support.graph_template import copy_built

pytestmark = pytest.mark.slow

SCHEMA = """
node Person { name: String @key
  age: I32? }
node Slip { key: String @key }
node Salary { slip: String @key
  amount: I32?
  note: String? }
edge Knows: Person -> Person
edge Paid: Person -> Slip @card(0..3)
"""
ALL = "read, export, change, admin, schema_apply, branch_create, branch_delete, branch_merge, tag_create, tag_delete"
RULES = f"""
version: 1
groups: {{all: [root], ann: [ann], sam: [sam], uma: [uma], ivy: [ivy], leo: [leo]}}
protected_branches: [main, secret]
rules:
  - {{id: all, allow: {{actors: {{group: all}}, actions: [{ALL}]}}}}
  - {{id: a1, allow: {{actors: {{group: ann}}, actions: [read, export], types: [Person, Knows]}}}}
  - {{id: a2, allow: {{actors: {{group: ann}}, actions: [change], types: [Person, Knows, Slip, Paid]}}}}
  - {{id: a3, allow: {{actors: {{group: ann}}, actions: [branch_create, branch_merge, tag_create]}}}}
  - {{id: s1, allow: {{actors: {{group: sam}}, actions: [change], types: [Slip]}}}}
  - {{id: u1, allow: {{actors: {{group: uma}}, actions: [read, change], branch_scope: unprotected}}}}
  - {{id: u2, allow: {{actors: {{group: uma}}, actions: [branch_merge]}}}}
  - {{id: i1, allow: {{actors: {{group: ivy}}, actions: [read, change]}}}}
  - {{id: l1, allow: {{actors: {{group: leo}}, actions: [admin]}}}}
"""
WORDS = ("Salary", "amount", "note")


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_bundle(RULES)


def build(path: Path) -> Graph:
    graph = og.init(path, SCHEMA, actor="root")
    graph.ingest([person("ann"), person("bob"), salary("s1", 100)])
    return graph


@pytest.fixture
def root(tmp_path: Path, policy: Policy) -> Iterator[Graph]:
    with copy_built(build, tmp_path / "g.omni", actor="root", policy=policy) as graph:
        yield graph


def person(name: str) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name}}


def salary(slip: str, amount: int) -> dict[str, Any]:
    return {"type": "Salary", "data": {"slip": slip, "amount": amount}}


def insert(statement: str) -> str:
    return f"query q() {{ insert {statement} }}"


def error_of(call: Callable[[], object]) -> OmniGraphError:
    with pytest.raises(OmniGraphError) as caught:
        call()
    return caught.value


def payroll(folder: Path, amount: int = 52_000) -> Path:
    path = folder / f"payroll-{amount}.ndjson"
    path.write_text(f'{{"type": "Salary", "data": {{"slip": "boss", "amount": {amount}}}}}\n')
    return path


# -- loads and their jobs ----------------------------------------------------------------------------------------------


def load(graph: Graph, path: Path, job_id: str) -> Any:
    return pipeline.load(graph, path, mode="append", job_id=job_id, engine="local")


def test_digest_and_job_show_to_their_author_and_full_readers(root: Graph, tmp_path: Path) -> None:
    commit = load(root, payroll(tmp_path), "day-1").commit
    shown = {"job_id", "input_digest", "mode"}
    for actor in ("root", "ivy"):
        assert root.acting_as(actor).commit(commit.commit_id).properties.keys() == shown
    ann = root.acting_as("ann")
    for seen in (ann.commit(commit.commit_id), ann.commits()[0], ann.snapshot().state.commits[-1]):
        assert seen.properties == {"mode": "append"}
    assert ann.operation(commit.operation_id).commit.properties == {"mode": "append"}  # type: ignore[union-attr]
    slips = tmp_path / "slips.ndjson"
    slips.write_text('{"type": "Slip", "data": {"key": "a"}}\n')
    own = load(ann, slips, "mine").commit
    assert ann.commit(own.commit_id).properties.keys() == shown


@pytest.mark.parametrize("actor", ["ann", "sam"])
def test_load_with_the_job_of_another_actor_confirms_no_guess(root: Graph, tmp_path: Path, actor: str) -> None:
    load(root, payroll(tmp_path), "day-1")
    writer, head = root.acting_as(actor), root.snapshot().head
    inputs = (payroll(tmp_path, amount) for amount in (52_000, 61_000))
    answers = {str(error_of(lambda path=path: load(writer, path, "day-1")).to_json()) for path in inputs}  # type: ignore[misc]
    [answer] = answers
    assert "pipeline.job_exists" in answer
    assert str(head) not in answer
    assert root.snapshot().head == head


def test_load_with_the_job_of_another_actor_is_answered_to_full_readers(root: Graph, tmp_path: Path) -> None:
    commit = load(root, payroll(tmp_path), "day-1").commit
    ivy = root.acting_as("ivy")
    again = load(ivy, payroll(tmp_path), "day-1")
    assert (again.already_applied, again.commit) == (True, commit)
    with pytest.raises(JobExists, match=commit.commit_id):
        load(ivy, payroll(tmp_path, 61_000), "day-1")


# -- idempotency keys --------------------------------------------------------------------------------------------------


def test_idempotency_key_belongs_to_its_actor(root: Graph) -> None:
    root.branches.create("b")
    key = new_ulid()
    commit = root.acting_as("root", key).mutate(insert('Salary { slip: "h" }'), branch="b").commit
    assert commit is not None
    assert "request_id" not in root.acting_as("ann").commits("b")[0].properties
    # Another actor's write under the same key is a write of its own, and does not take the key over.
    other = root.acting_as("ann", key).mutate(insert('Person { name: "cy" }'), branch="b").commit
    mine = root.acting_as("ann", key).mutate
    assert other is not None
    assert (
        error_of(lambda: mine(insert('Person { name: "di" }'), branch="b")).context["graph_commit_id"]
        == other.commit_id
    )
    root.acting_as("sam", key).mutate(insert('Slip { key: "x" }'))
    for actor, expected in (("root", commit), ("ann", other)):
        found = root.acting_as(actor).operation(key).commit
        assert found is not None
        assert found.commit_id == expected.commit_id


# -- names of what was dropped -----------------------------------------------------------------------------------------


def without(*lines: str) -> str:
    schema = SCHEMA
    for line in lines:
        assert line in schema
        schema = schema.replace(line, "")
    return schema


HARD_DROPS = {
    "property": ("\n  note: String?",),
    # Nothing is hidden from the actor any more after this.
    "every hidden type": (
        "node Salary { slip: String @key\n  amount: I32?\n  note: String? }\n",
        "node Slip { key: String @key }\n",
        "edge Paid: Person -> Slip @card(0..3)\n",
    ),
}


@pytest.mark.parametrize("drop", HARD_DROPS)
def test_names_of_hidden_types_that_were_dropped_are_not_shown(root: Graph, drop: str) -> None:
    old = root.snapshot().head
    root.schema.apply(without(*HARD_DROPS[drop]), allow_data_loss=True)
    ann = root.acting_as("ann")
    refused = error_of(lambda: ann.branches.create("secret", at=old))
    assert refused.code == "branch.purged"
    snapshot = ann.snapshot()
    texts = [refused.to_json(), snapshot, ann.commits(), snapshot.to_json(), ann.at(str(old)).snapshot()]
    for text in texts:
        assert not any(word in str(text) for word in WORDS), text
    assert "hard_drops" in root.acting_as("ivy").commits()[0].properties
    assert "Salary" in str(error_of(lambda: root.branches.create("secret", at=old)).to_json())


# -- snapshots ---------------------------------------------------------------------------------------------------------


def test_snapshot_names_branches_and_tags_to_those_who_may_list(root: Graph) -> None:
    root.branches.create("b")
    root.branches.create("secret")
    root.tags.create("merger", branch="secret")
    uma = root.acting_as("uma")
    assert error_of(uma.tags.list).code == "policy.denied"
    for snapshot in (uma.snapshot("b"), uma.at(root.snapshot("b").version, "b").snapshot()):
        assert (snapshot.state.branches, snapshot.state.tags) == ({}, {})
    listed = root.acting_as("ann").snapshot().state
    assert (set(listed.branches), set(listed.tags)) == ({"b", "secret"}, {"merger"})


def test_snapshot_of_a_restricted_actor_has_no_numbers_of_types(root: Graph) -> None:
    snapshot, full = root.acting_as("ann").snapshot(), root.snapshot()
    for key, pin in snapshot.state.pins.items():
        assert (pin.path, pin.fork) == ("", None)
        assert pin.identity != full.state.pins[key].identity
        assert pin.row_count == full.state.pins[key].row_count
    assert "identity_domain" not in str(snapshot)
    assert root.acting_as("ivy").snapshot() == full


# -- merges into a branch that may not be read -------------------------------------------------------------------------


def knows(source: str, target: str) -> str:
    return insert(f'Knows {{ from: "{source}" to: "{target}" }}')


DELETE_ANN, DELETE_BOB = (
    'query q() { delete Person where name = "ann" }',
    'query q() { delete Person where name = "bob" }',
)


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize(
    ("source", "worlds"),
    [
        (knows("ann", "ann"), (DELETE_ANN, DELETE_BOB)),
        (DELETE_ANN, (knows("ann", "ann"), knows("bob", "bob"))),
    ],
)
def test_merge_does_not_tell_which_ends_of_edges_are_gone(
    root: Graph, tmp_path: Path, policy: Policy, source: str, worlds: tuple[str, str], dry_run: bool
) -> None:
    answers = set()
    for number, world in enumerate(worlds):
        og.init(tmp_path / f"w{number}.omni", SCHEMA, actor="root")
        with og.open(tmp_path / f"w{number}.omni", actor="root", policy=policy) as graph:
            graph.ingest([person("ann"), person("bob")])
            graph.branches.create("b")
            uma = graph.acting_as("uma")
            uma.mutate(source, branch="b")
            graph.mutate(world)
            answers.add(str(error_of(lambda uma=uma: uma.branches.merge("b", dry_run=dry_run)).to_json()))  # type: ignore[misc]
    [answer] = answers
    assert "policy.denied" in answer


@pytest.mark.parametrize("world", ["untouched", "moved on", "merged before"])
def test_receipt_of_a_merge_into_an_unreadable_branch_tells_nothing_of_it(root: Graph, world: str) -> None:
    root.branches.create("b")
    uma = root.acting_as("uma")
    uma.mutate(insert('Person { name: "cy" }'), branch="b")
    if world == "moved on":
        root.mutate(insert('Salary { slip: "s2" }'))
    elif world == "merged before":
        root.branches.merge("b")
    for receipt in (uma.branches.merge("b", dry_run=True), uma.branches.merge("b")):
        assert (receipt.outcome.value, receipt.bases, receipt.types) == ("merged", (), ())
        # Whether there was anything to write is all that is left.
        assert (receipt.commit is None) == (receipt.dry_run or world == "merged before")
        shown = receipt.to_json()["commit"]
        if isinstance(shown, dict):
            assert (shown["parent_commit_id"], shown["graph_manifest_version"]) == (None, None)
    assert root.branches.merge("b", dry_run=True).outcome.value == "already_up_to_date"


def test_receipts_on_an_unreadable_branch_do_not_count_its_versions(root: Graph, tmp_path: Path) -> None:
    sam = root.acting_as("sam")
    slips = tmp_path / "slips.ndjson"
    slips.write_text('{"type": "Slip", "data": {"key": "c"}}\n')
    commits = [
        sam.mutate(insert('Slip { key: "a" }')).commit,
        sam.ingest([{"type": "Slip", "data": {"key": "b"}}]).commit,
        load(sam, slips, "slips").commit,
        load(sam, slips, "slips").commit,
    ]
    for commit in commits:
        assert commit is not None
        shown = commit.to_json()
        assert (shown["parent_commit_id"], shown["graph_manifest_version"]) == (None, None)
        found = sam.operation(commit.operation_id).commit
        assert found is not None
        assert found.to_json()["graph_manifest_version"] is None
        assert root.commit(commit.commit_id).manifest_version is not None


# -- rules about edges that may not be read ----------------------------------------------------------------------------


@pytest.mark.parametrize("stored", [0, 1, 2, 3])
@pytest.mark.parametrize("beside", ["missing end", "taken key"])
def test_cardinality_of_hidden_edges_is_not_told_beside_another_violation(
    root: Graph, stored: int, beside: str
) -> None:
    paid = {"edge": "Paid", "from": "ann", "to": "x"}
    root.ingest([{"type": "Slip", "data": {"key": "x"}}, *[paid] * stored])
    bad = (
        {"edge": "Paid", "from": "nope", "to": "x"}
        if beside == "missing end"
        else {"type": "Slip", "data": {"key": "x"}}
    )
    error = error_of(lambda: root.acting_as("ann").ingest([paid, bad], mode="append"))
    violations = error.context["violations"]
    assert isinstance(violations, list)
    assert {violation["rule"] for violation in violations} == {"E9" if beside == "missing end" else "E11"}


# -- maintenance -------------------------------------------------------------------------------------------------------

UPKEEP: dict[str, Callable[[Graph], object]] = {
    "optimize": lambda graph: graph.maintenance.optimize(),
    "ensure_indices": lambda graph: graph.maintenance.ensure_indices(),
    "verify": lambda graph: graph.maintenance.verify(),
    "verify data": lambda graph: graph.maintenance.verify(data=True),
    "pipeline optimize": lambda graph: pipeline.optimize(graph, engine="local"),
    "pipeline verify": lambda graph: pipeline.verify(graph, engine="local"),
}


@pytest.mark.parametrize("name", UPKEEP)
def test_maintenance_takes_admin_or_read_of_everything(root: Graph, name: str) -> None:
    head = root.snapshot().head
    for actor in ("ann", "sam", "uma"):
        with pytest.raises(PolicyDenied):
            UPKEEP[name](root.acting_as(actor))
    assert root.snapshot().head == head
    for actor in ("root", "ivy", "leo"):
        UPKEEP[name](root.acting_as(actor))


# -- reverts and cherry-picks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["revert", "cherry_pick"])
def test_replay_does_not_tell_which_unreadable_type_a_commit_touched(root: Graph, kind: str) -> None:
    root.ingest([{"type": "Slip", "data": {"key": "x"}}])
    ann, answers = root.acting_as("ann"), set()
    for statement in ('Slip { key: "y" }', 'Paid { from: "ann" to: "x" }', 'Salary { slip: "s9" }'):
        commit = root.mutate(insert(statement)).commit
        assert commit is not None
        commit_id = str(commit.commit_id)
        error = error_of(lambda commit_id=commit_id: getattr(ann, kind)(commit_id, dry_run=True))  # type: ignore[misc]
        answers.add(str(error.to_json()))
    [answer] = answers
    assert "policy.denied" in answer


# -- messages ----------------------------------------------------------------------------------------------------------


def test_message_shows_to_its_author_and_full_readers(root: Graph) -> None:
    raised = root.mutate(insert('Salary { slip: "b", amount: 9 }'), message="Raise the boss").commit
    assert raised is not None
    ann = root.acting_as("ann")
    own = ann.mutate(insert('Person { name: "cy" }'), message="Add Cy").commit
    assert own is not None
    for actor, expected in (
        ("root", ["Add Cy", "Raise the boss"]),
        ("ivy", ["Add Cy", "Raise the boss"]),
        ("ann", ["Add Cy", None]),
    ):
        reader = root.acting_as(actor)
        assert [commit.message for commit in reader.commits(limit=2)] == expected
        assert reader.commit(raised.commit_id).message == expected[1]
        blocks = reader.changes(start=f"after:{raised.parent}").blocks
        assert [block.cause.get("message") for block in reversed(blocks)] == expected
        assert reader.commit_changes(raised.commit_id).block.cause.get("message") == expected[1]
        stored = reader.snapshot().state.commits
        assert [commit.properties.get("message") for commit in reversed(stored[-2:])] == expected
