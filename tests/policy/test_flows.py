"""Nothing that an actor may not read gets to where it could be read, whatever sequence of permitted calls it makes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.errors import GraphError, OmniGraphError, PolicyDenied
from omnigraph.graph import Graph
from omnigraph.policy import Policy, load_bundle

SCHEMA = """
node Person { name: String @key
  age: I32? }
node Salary { slip: String @key
  amount: I32 }
edge Knows: Person -> Person
"""
RULES = """
version: 1
groups: {all: [root], unp: [unp], eve: [eve], pul: [pul], ren: [ren], mer: [mer], bob: [bob], pro: [pro], tag: [tag]}
protected_branches: [main, secret]
rules:
  - {id: a1, allow: {actors: {group: all}, actions: [read, export, change]}}
  - {id: a2, allow: {actors: {group: all}, actions: [branch_create, branch_delete, branch_merge, tag_create]}}
  - {id: u1, allow: {actors: {group: unp}, actions: [read, export, change], branch_scope: unprotected}}
  - {id: e1, allow: {actors: {group: eve}, actions: [read], branch_scope: protected, types: [Person, Knows]}}
  - {id: e2, allow: {actors: {group: eve}, actions: [read, export, change], branch_scope: unprotected}}
  - {id: e3, allow: {actors: {group: eve}, actions: [branch_create, branch_merge], target_branch_scope: unprotected}}
  - {id: p1, allow: {actors: {group: pul}, actions: [branch_merge, branch_create], target_branch_scope: unprotected}}
  - {id: p2, allow: {actors: {group: pul}, actions: [read, export], branch_scope: unprotected}}
  - {id: r1, allow: {actors: {group: ren}, actions: [branch_create, branch_delete]}}
  - {id: r2, allow: {actors: {group: ren}, actions: [read], branch_scope: unprotected}}
  - {id: m1, allow: {actors: {group: mer}, actions: [branch_merge]}}
  - {id: m2, allow: {actors: {group: mer}, actions: [read], types: [Person]}}
  - {id: b1, allow: {actors: {group: bob}, actions: [read, export, change], types: [Person, Knows]}}
  - {id: b2, allow: {actors: {group: bob}, actions: [branch_create, branch_delete, branch_merge, tag_create]}}
  - {id: t1, allow: {actors: {group: tag}, actions: [tag_create, branch_create, branch_delete]}}
  - {id: t3, allow: {actors: {group: tag}, actions: [tag_delete], target_branch_scope: unprotected}}
  - {id: t2, allow: {actors: {group: tag}, actions: [read, change], branch_scope: unprotected}}
  - {id: o1, allow: {actors: {group: pro}, actions: [read], branch_scope: protected}}
"""
PAY = "query p() { match { $s: Salary } return { $s.slip, $s.amount } order { $s.slip } }"
PEOPLE = "query p() { match { $p: Person } return { $p.name } order { $p.name } }"
RAISE = 'query r() { update Salary set { amount: 111 } where slip = "s1" }'


def person(name: str, **data: object) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, **data}}


def salary(slip: str, amount: int) -> dict[str, Any]:
    return {"type": "Salary", "data": {"slip": slip, "amount": amount}}


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_bundle(RULES)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "g.omni"
    with og.init(path, SCHEMA) as graph:
        graph.ingest([person("ann", age=1), salary("s1", 100)])
    return path


@pytest.fixture
def root(template: Path, tmp_path: Path, policy: Policy) -> Iterator[Graph]:
    shutil.copytree(template, tmp_path / "g.omni")
    with og.open(tmp_path / "g.omni", actor="root", policy=policy) as graph:
        yield graph


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(OmniGraphError) as caught:
        call()
    return caught.value.code


def secret_commit(root: Graph) -> str:
    root.branches.create("secret")
    receipt = root.ingest([salary("top", 999)], branch="secret")
    return str(receipt.commit_id)


# -- the branch that a commit was made on ------------------------------------------------------------------------------


def reads_of(graph: Graph, commit: str) -> dict[str, Callable[[], object]]:
    return {
        "query": lambda: graph.query(PAY, branch="open", at=commit),
        "export": lambda: list(graph.export("open", commit)),
        "commit": lambda: graph.commit(commit),
        "changes": lambda: graph.commit_changes(commit),
        "diff": lambda: graph.diff("open", commit, branch="open"),
        "at": lambda: graph.at(commit, "open"),
        "branch": lambda: graph.branches.create("x", at=commit, from_="open"),
    }


@pytest.mark.parametrize("is_merged", [False, True])
def test_commits_of_a_deleted_protected_branch_stay_protected(root: Graph, is_merged: bool) -> None:
    root.branches.create("open")
    commit = secret_commit(root)
    if is_merged:
        root.branches.merge("secret", "open")
    root.branches.delete("secret")
    unp = root.acting_as("unp")
    for name, call in reads_of(unp, commit).items():
        assert code_of(call) in ("policy.denied", "commit.not_found"), name
    root.branches.create("secret")
    assert code_of(reads_of(unp, commit)["query"]) == "commit.not_found"
    # Whoever may read protected branches still does, by another handle too.
    assert len(root.query(PAY, at=commit)) == 2
    pro = og.open(root.uri, actor="pro", policy=root.session.policy)
    assert len(pro.query(PAY, at=commit)) == 2


def test_renamed_branch_stays_protected_under_its_new_name(root: Graph) -> None:
    commit = secret_commit(root)
    root.branches.rename("secret", "open")
    unp = root.acting_as("unp")
    for call in (
        lambda: unp.query(PAY, branch="open"),
        lambda: unp.mutate('query a() { insert Person { name: "x" } }', branch="open"),
        lambda: unp.ingest([person("x")], branch="open"),
        lambda: list(unp.export("open")),
        lambda: unp.commits("open"),
        lambda: unp.changes("open"),
    ):
        assert code_of(call) == "policy.denied"
    assert len(root.acting_as("pro").query(PAY, branch="open")) == 2
    root.branches.rename("open", "other")
    root.branches.delete("other")
    assert code_of(lambda: unp.query(PAY, at=commit)) in ("policy.denied", "commit.not_found")


def test_commits_of_a_deleted_unprotected_branch_stay_readable(root: Graph) -> None:
    root.branches.create("open")
    commit = str(root.ingest([person("bea")], branch="open").commit_id)
    root.branches.delete("open")
    # Its names were recorded, and none of them was protected.
    root.branches.create("next")
    assert len(root.acting_as("unp").query(PEOPLE, branch="next", at=commit)) == 2


@pytest.mark.parametrize(("name", "new_name"), [("secret", "open"), ("open", "secret")])
def test_rename_that_changes_protection_asks_to_read_all_of_the_branch(root: Graph, name: str, new_name: str) -> None:
    root.branches.create(name)
    for actor in ("ren", "bob"):
        if (actor, name) != ("ren", "open"):
            with pytest.raises(PolicyDenied):
                root.acting_as(actor).branches.rename(name, new_name)
    assert root.branches.list() == sorted(["main", name])
    root.branches.rename(name, new_name)


def test_rename_that_keeps_protection_does_not_ask_to_read(root: Graph) -> None:
    root.branches.create("open")
    assert root.acting_as("bob").branches.rename("open", "other").name == "other"


# -- what is carried ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "create",
    [
        lambda graph: graph.branches.create("mine"),
        lambda graph: graph.branches.create("mine", at=graph.acting_as("root").snapshot().head),
        lambda graph: graph.ingest([person("x")], branch="mine", from_branch="main"),
        lambda graph: pipeline.load(graph, nodes={"Person": "missing.parquet"}, branch="mine", from_branch="main"),
    ],
)
def test_branch_is_not_made_of_what_is_hidden_where_it_could_be_read(
    root: Graph, create: Callable[[Graph], object]
) -> None:
    with pytest.raises(PolicyDenied) as caught:
        create(root.acting_as("eve"))
    assert "Salary" not in f"{caught.value.message} {caught.value.context}"
    assert root.branches.list() == ["main"]
    # Nor where somebody else could read it: `bob` never sees it, but `unp` would.
    with pytest.raises(PolicyDenied):
        create(root.acting_as("bob"))
    assert root.branches.list() == ["main"]


def test_branch_between_branches_of_one_protection_may_hold_hidden_types(root: Graph) -> None:
    root.branches.create("open")
    root.acting_as("bob").branches.create("mine", from_="open")
    assert len(root.query(PAY, branch="mine")) == 1


def test_cherry_pick_does_not_carry_what_is_hidden(root: Graph) -> None:
    root.branches.create("mine")
    commit = str(root.ingest([salary("s2", 200)]).commit_id)
    with pytest.raises(PolicyDenied):
        root.acting_as("eve").cherry_pick(commit, "mine")
    assert len(root.query(PAY, branch="mine")) == 1


def test_merge_needs_to_read_its_source(root: Graph) -> None:
    root.branches.create("lure")
    secret_commit(root)
    for actor in ("pul", "eve"):
        for dry_run in (True, False):
            with pytest.raises(PolicyDenied):
                root.acting_as(actor).branches.merge("secret", "lure", dry_run=dry_run)
    assert len(root.query(PAY, branch="lure")) == 1


def test_revert_does_not_carry_what_is_hidden(root: Graph) -> None:
    root.branches.create("lure")
    root.branches.create("secret")
    commit = root.mutate(RAISE, branch="secret").commit
    assert commit is not None
    root.branches.merge("secret", "lure")
    with pytest.raises(OmniGraphError) as caught:
        root.acting_as("eve").revert(commit.commit_id, "lure")
    assert caught.value.code in ("policy.denied", "commit.not_found")


# -- the merge base ----------------------------------------------------------------------------------------------------


def take_ours(root: Graph, source: str, target: str) -> None:
    """Merge, and keep the target's side of every conflict."""
    conflicts = root.branches.merge(source, target, dry_run=True).conflicts
    picks = [{"type_key": one.type_key, "entity_id": one.entity_id, "take": "ours"} for one in conflicts]
    root.branches.merge(source, target, resolutions=picks)


def set_amount(root: Graph, branch: str, amount: int) -> None:
    root.mutate(RAISE.replace("111", str(amount)), branch=branch)


@pytest.fixture
def hidden_base(root: Graph) -> Graph:
    """Let two unprotected branches have a commit of main in common, whose salary neither of them ever held."""
    for number, name in enumerate(("left", "right")):
        root.branches.create(name)
        set_amount(root, name, 10 + number)
    set_amount(root, "main", 777)
    for name in ("left", "right"):
        take_ours(root, "main", name)
    return root


TAKE_BASE = {"type_key": "node:Salary", "entity_id": "s1", "take": "base"}


@pytest.mark.slow
@pytest.mark.parametrize("resolutions", [None, [TAKE_BASE]])
@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("actor", ["eve", "pul"])
def test_merge_from_a_base_that_is_hidden_is_refused(
    hidden_base: Graph, actor: str, dry_run: bool, resolutions: list[dict[str, str]] | None
) -> None:
    assert hidden_base.branches.merge("left", "right", dry_run=True).conflicts[0].base == {
        "id": "s1",
        "slip": "s1",
        "amount": 777,
    }
    with pytest.raises(PolicyDenied) as caught:
        hidden_base.acting_as(actor).branches.merge("left", "right", dry_run=dry_run, resolutions=resolutions)
    assert "777" not in str(caught.value.to_json())
    assert "Salary" not in str(caught.value.to_json())
    assert "have in common" in caught.value.message
    assert hidden_base.query(PAY, branch="right").rows() == [{"s.slip": "s1", "s.amount": 11}]


@pytest.mark.slow
def test_merge_from_a_base_that_is_hidden_does_not_tell_equal_values(hidden_base: Graph) -> None:
    # A side that holds the hidden value of the base would lose without a conflict, which tells what the value is.
    told = []
    for guess in (777, 778):
        set_amount(hidden_base, "left", guess)
        told.append(code_of(lambda: hidden_base.acting_as("eve").branches.merge("left", "right", dry_run=True)))
    assert told == ["policy.denied"] * 2


@pytest.mark.slow
@pytest.mark.parametrize("dry_run", [True, False])
def test_merge_from_a_virtual_base_with_a_hidden_part_is_refused(root: Graph, dry_run: bool) -> None:
    root.branches.create("left")
    root.branches.create("right", from_="left")
    for number, name in enumerate(("left", "right")):
        set_amount(root, name, 10 + number)
    set_amount(root, "main", 777)
    middle = root.branches.create("middle", from_="left")
    root.ingest([person("mia")], branch=middle.name)
    for name in ("left", "right"):
        take_ours(root, "middle", name)
        take_ours(root, "main", name)
    preview = root.branches.merge("left", "right", dry_run=True)
    assert len(preview.bases) == 2
    assert code_of(lambda: root.acting_as("eve").branches.merge("left", "right", dry_run=dry_run)) == "policy.denied"


@pytest.mark.slow
def test_merge_from_a_hidden_base_passes_where_the_sides_do_not_differ(root: Graph) -> None:
    root.branches.create("left")
    set_amount(root, "left", 10)
    root.branches.create("right", from_="left")
    set_amount(root, "main", 777)
    for name in ("left", "right"):
        take_ours(root, "main", name)
    root.ingest([{"edge": "Knows", "from": "ann", "to": "ann", "data": {}}], branch="left")
    eve = root.acting_as("eve")
    assert eve.branches.merge("left", "right").commit is not None
    assert eve.query(PAY, branch="right").rows() == [{"s.slip": "s1", "s.amount": 10}]


def test_merge_of_children_of_a_hidden_branch_starts_from_what_is_shown(root: Graph) -> None:
    for name in ("left", "right"):
        root.branches.create(name)
        root.ingest([person(name), salary(name, 5)], branch=name)
    root.branches.create("far", from_="left")
    root.ingest([salary("far", 6)], branch="far")
    # The base is a commit of main, where all is hidden from `pul`, but both branches began with it.
    assert root.acting_as("pul").branches.merge("far", "right").commit is not None


# -- resolutions -------------------------------------------------------------------------------------------------------


@pytest.fixture
def clash(root: Graph) -> Graph:
    """Let both sides change a salary."""
    root.branches.create("side")
    root.mutate(RAISE, branch="side")
    root.mutate(RAISE.replace("111", "222"))
    return root


SEEN = {"id": "s1", "slip": "s1", "amount": 222}


@pytest.mark.parametrize(
    "picked",
    [
        {"take": "ours", "ours": SEEN},
        {"take": "ours", "ours": {**SEEN, "amount": 1}},
        {"take": "theirs"},
        {"row": {"bogus": 1}},
        {"row": {"slip": "s1", "amount": 31337}},
        {"row": {"slip": "s1", "amount": "much"}},
        {"property": "amount", "value": 31337},
    ],
)
@pytest.mark.parametrize("dry_run", [True, False])
def test_resolution_of_a_hidden_type_is_one_of_a_type_that_is_not_there(
    clash: Graph, picked: dict[str, object], dry_run: bool
) -> None:
    mer = clash.acting_as("mer")
    told = []
    for name in ("Salary", "Nothing"):
        resolution = {"type_key": f"node:{name}", "entity_id": "s1", **picked}
        with pytest.raises(GraphError) as caught:
            mer.branches.merge("side", dry_run=dry_run, resolutions=[resolution])
        told.append(str(caught.value.to_json()).replace(name, "X"))
    assert told[0] == told[1]
    assert "no conflict" in told[0]
    assert clash.query(PAY).rows() == [{"s.slip": "s1", "s.amount": 222}]


def test_resolution_that_gives_a_value_needs_to_change_its_type(root: Graph) -> None:
    root.branches.create("side")
    grow = 'query g() { update Person set { age: 2 } where name = "ann" }'
    root.mutate(grow, branch="side")
    root.mutate(grow.replace("2", "3"))
    mer = root.acting_as("mer")
    at = {"type_key": "node:Person", "entity_id": "ann"}
    for given in ({"row": {"name": "ann", "age": 9}}, {"property": "age", "value": 9}):
        with pytest.raises(PolicyDenied, match="`change` of `Person`"):
            mer.branches.merge("side", resolutions=[{**at, **given}])
    assert mer.branches.merge("side", resolutions=[{**at, "take": "theirs"}]).commit is not None


def test_merge_preview_with_hidden_conflicts_is_refused_like_the_merge(clash: Graph) -> None:
    mer = clash.acting_as("mer")
    told = []
    for dry_run in (True, False):
        with pytest.raises(PolicyDenied) as caught:
            mer.branches.merge("side", dry_run=dry_run)
        told.append(caught.value.to_json())
    assert told[0] == told[1]
    assert "Salary" not in str(told)


# -- commits that may not be read --------------------------------------------------------------------------------------

NOWHERE = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def test_commit_that_may_not_be_read_is_answered_like_an_absent_one(root: Graph) -> None:
    root.branches.create("open")
    commit = secret_commit(root)
    unp = root.acting_as("unp")
    told: list[dict[str, str]] = []
    for one in (commit, NOWHERE):
        answers = {}
        for name, call in reads_of(unp, one).items():
            with pytest.raises(OmniGraphError) as caught:
                call()
            answers[name] = str(caught.value.to_json()).replace(one, "ID")
        told.append(answers)
    assert told[0] == told[1]
    assert "secret" not in str(told)


# -- tags --------------------------------------------------------------------------------------------------------------


EXISTS = ("tag.exists", "branch.exists", "branch.not_found")


def same_answer(call: Callable[[str], object], *names: str) -> str:
    """Return what a call answers for names; it must be the same for all of them but for the name itself."""
    told = set()
    for name in names:
        with pytest.raises(OmniGraphError) as caught:
            call(name)
        told.add(str(caught.value.to_json()).replace(name, "NAME"))
    [answer] = told
    return answer


def test_tag_of_a_commit_that_may_not_be_read_is_not_found(root: Graph) -> None:
    root.branches.create("open")
    commit = secret_commit(root)
    tagger = root.acting_as("tag")
    # Its newest commit is one of main as long as it has none of its own.
    with pytest.raises(PolicyDenied) as caught:
        tagger.tags.create("v1", branch="open")
    assert str(root.snapshot().head) not in str(caught.value.to_json())
    root.ingest([person("bea")], branch="open")
    answer = same_answer(lambda one: tagger.tags.create("v1", one, "open"), commit, NOWHERE)
    assert "commit.not_found" in answer
    assert "secret" not in answer
    # A branch that the request names and that may not be read is refused by name, as everywhere.
    for branch in ("main", "secret"):
        with pytest.raises(PolicyDenied) as caught:
            tagger.tags.create("v1", branch=branch)
        assert commit not in str(caught.value.to_json())
    assert root.tags.list() == []
    assert tagger.tags.create("v1", branch="open").name == "v1"


def test_name_of_a_hidden_tag_is_not_confirmed(root: Graph) -> None:
    root.branches.create("open")
    commit = secret_commit(root)
    root.tags.create("hidden", commit)
    root.ingest([person("bea")], branch="open")
    root.tags.create("shown", branch="open")
    tagger = root.acting_as("tag")
    assert "policy.denied" in same_answer(tagger.tags.delete, "hidden", "nothing")
    for call in (
        lambda name: tagger.tags.create(name, branch="open"),
        lambda name: tagger.branches.create(name, from_="open"),
        lambda name: tagger.branches.rename("open", name),
        lambda name: tagger.ingest([person("x")], branch=name, from_branch="open"),
    ):
        with pytest.raises(OmniGraphError) as caught:
            call("hidden")
        told = caught.value.to_json()
        assert caught.value.code == "policy.denied"
        assert "tag `hidden`" not in str(told)
        assert "secret" not in str(told)
        # One that can be seen is told.
        assert code_of(lambda call=call: call("shown")) in EXISTS  # type: ignore[misc]
    assert [one.name for one in root.tags.list()] == ["hidden", "shown"]
    tagger.tags.delete("shown")


def test_tags_are_listed_if_their_commits_may_be_read(root: Graph) -> None:
    root.tags.create("v1")
    assert [one.name for one in root.acting_as("mer").tags.list()] == ["v1"]
    with pytest.raises(PolicyDenied):
        root.acting_as("tag").tags.list()


# -- the first commit of a branch --------------------------------------------------------------------------------------


@pytest.mark.parametrize("actor", ["eve", "unp"])
def test_first_commit_of_a_branch_is_compared_with_its_beginning(root: Graph, actor: str) -> None:
    root.branches.create("open")
    commit = root.mutate(RAISE, branch="open").commit
    assert commit is not None
    reader = root.acting_as(actor)
    expected = root.commit_changes(commit.commit_id).to_json()["changes"]
    assert reader.commit_changes(commit.commit_id).to_json()["changes"] == expected
    assert isinstance(expected, list)
    assert [(one["op"], "100" in str(one["before"]), "111" in str(one["after"])) for one in expected] == [
        ("update", True, True)
    ]
    blocks = blocks_of(reader, "open")
    assert blocks[-1]["changes"] == expected
    # What main did before stays hidden.
    assert all("Salary" not in str(one["changes"]) for one in blocks[:-1])


def blocks_of(graph: Graph, branch: str) -> list[Any]:
    blocks = graph.changes(branch, start="beginning").to_json()["blocks"]
    assert isinstance(blocks, list)
    return blocks


def test_first_commit_of_a_protected_branch_hides_what_is_hidden_there(root: Graph) -> None:
    root.branches.create("open")
    root.ingest([salary("s2", 1)], branch="open")
    root.branches.create("secret", from_="open")
    commit = root.ingest([person("bea"), salary("s3", 1)], branch="secret").commit
    assert commit is not None
    told = root.acting_as("eve").commit_changes(commit.commit_id).to_json()
    assert "Salary" not in str(told)
    assert "bea" in str(told)


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
"""


def knows(source: str, target: str, entity_id: str | None = None) -> dict[str, Any]:
    return {"edge": "Knows", "from": source, "to": target, "data": {"id": entity_id} if entity_id else {}}


@pytest.fixture
def wendy(tmp_path: Path) -> Iterator[Graph]:
    og.init(tmp_path / "blind.omni", BLIND_SCHEMA).ingest(
        [
            *(person(name, mail=f"{name}@secret") for name in ("ann", "bob", "cy")),
            knows("ann", "bob", "k1"),
            knows("ann", "cy", "k2"),
        ]
    )
    with og.open(tmp_path / "blind.omni", actor="wendy", policy=load_bundle(BLIND_RULES)) as graph:
        yield graph


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
