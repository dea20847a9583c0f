"""Nothing that an actor may not read gets to where it could be read, whatever sequence of permitted calls it makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.errors import GraphError, OmniGraphError, PolicyDenied
from omnigraph.graph import Graph, session_of
from tests.support.flow_fixtures import (
    PAY,
    PEOPLE,
    RAISE,
    code_of,
    person,
    policy,
    root,
    salary,
    same_answer,
    secret_commit,
    template,
)

__all__ = ["policy", "root", "template"]

pytestmark = pytest.mark.slow


# -- the branch that a commit was made on ------------------------------------------------------------------------------


def reads_of(graph: Graph, commit: str) -> dict[str, Callable[[], object]]:
    return {
        "query": lambda: graph.query(PAY, branch="open", at=commit),
        "export": lambda: list(graph.export("open", at=commit)),
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
    pro = og.open(root.uri, actor="pro", policy=session_of(root).policy)
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


def test_merge_from_a_base_that_is_hidden_does_not_tell_equal_values(hidden_base: Graph) -> None:
    # A side that holds the hidden value of the base would lose without a conflict, which tells what the value is.
    told = []
    for guess in (777, 778):
        set_amount(hidden_base, "left", guess)
        told.append(code_of(lambda: hidden_base.acting_as("eve").branches.merge("left", "right", dry_run=True)))
    assert told == ["policy.denied"] * 2


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


def test_commit_that_is_answered_as_not_found_is_logged_as_denied(
    root: Graph, caplog: pytest.LogCaptureFixture
) -> None:
    root.branches.create("open")
    commit = secret_commit(root)
    with caplog.at_level("INFO", "omnigraph.policy"):
        assert code_of(lambda: root.acting_as("unp").query(PAY, branch="open", at=commit)) == "commit.not_found"
    assert "deny" in {vars(record)["decision"] for record in caplog.records}


# -- tags --------------------------------------------------------------------------------------------------------------


EXISTS = ("tag.exists", "branch.exists", "branch.not_found")


def test_tag_of_a_commit_that_may_not_be_read_is_not_found(root: Graph) -> None:
    root.branches.create("open")
    commit = secret_commit(root)
    tagger = root.acting_as("tag")
    # Its newest commit is one of main as long as it has none of its own.
    with pytest.raises(PolicyDenied) as caught:
        tagger.tags.create("v1", branch="open")
    assert str(root.snapshot().head) not in str(caught.value.to_json())
    root.ingest([person("bea")], branch="open")
    answer = same_answer(lambda one: tagger.tags.create("v1", one, branch="open"), commit, NOWHERE)
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
