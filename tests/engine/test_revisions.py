"""How states are named: every way, on every call that takes a state, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engine.revisions import AsOf
from omnigraph.errors import GraphError, PreconditionFailed, UsageError
from omnigraph.graph import session_of
from omnigraph.limits import AMBIGUOUS_COMMITS_SHOWN, REVISION_CHARACTERS_MAX
from omnigraph.policy import load_bundle
from tests.support.graph_template import copy_built

SCHEMA = "node Person { name: String @key  age: I32? }"
AGE = "query q() { match { $p: Person } return { $p.age as age } }"


def build(path: Path) -> og.Graph:
    """Main with ages 1 and 2, a branch `review/x` from age 1 with age 3, and a tag of age 1."""
    graph = og.init(path, SCHEMA)
    put(graph, 1)
    graph.branches.create("review/x")
    graph.tags.create("v1")
    put(graph, 2)
    put(graph, 3, "review/x")
    return graph


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return copy_built(build, tmp_path / "g.omni")


def put(graph: og.Graph, age: int, branch: str = "main") -> str:
    commit = graph.ingest([{"type": "Person", "data": {"name": "ann", "age": age}}], branch=branch).commit
    assert commit is not None
    return str(commit.commit_id)


def age_at(graph: og.Graph, at: AsOf, branch: str = "main") -> object:
    found = graph.get("Person", "ann", at=at, branch=branch)
    return None if found is None else found["age"]


def names_of_states(graph: og.Graph) -> dict[AsOf, int | None]:
    """Return names of states of main with the age that they have."""
    head, before, first = graph.commits()
    [own, *_] = graph.commits("review/x")
    before_head = datetime.fromtimestamp(head.created_at_us / 1e6, UTC) - timedelta(microseconds=1)
    return {
        "main": 2,
        "HEAD": 2,
        "HEAD~0": 2,
        "HEAD~": 1,
        "HEAD~1": 1,
        "HEAD~1~1": None,
        "main~2": None,
        "v1": 1,
        "v1~1": None,
        "review/x": 3,
        "review/x~1": 1,
        str(head.commit_id): 2,
        f"  {head.commit_id}\n": 2,
        str(before.commit_id): 1,
        f"{head.commit_id}~1": 1,
        str(own.commit_id)[:-1]: 3,
        str(own.commit_id)[:-1].lower(): 3,
        str(own.commit_id).lower(): 3,
        f"{str(own.commit_id)[:-1]}~2": None,
        str(first.manifest_version): None,
        str(before.manifest_version): 1,
        int(before.manifest_version or 0): 1,
        before_head.isoformat(): 1,
        before_head: 1,
        "2999-01-01": 2,
        "2999-01-01 00:00:00+02:00": 2,
    }


def test_state_is_named_in_every_way(graph: og.Graph) -> None:
    expected = names_of_states(graph)
    assert {at: age_at(graph, at) for at in expected} == expected
    assert {at: graph.at(at).get("Person", "ann") is None for at in expected} == {
        at: age is None for at, age in expected.items()
    }


def test_head_versions_and_times_are_those_of_the_branch(graph: og.Graph) -> None:
    assert [age_at(graph, at, "review/x") for at in ("HEAD", "HEAD~1", "HEAD~2", "2999-01-01")] == [3, 1, None, 3]
    version = graph.snapshot("review/x").version
    assert (age_at(graph, version, "review/x"), age_at(graph, str(version), "review/x")) == (3, 3)


def test_names_come_before_everything_else(graph: og.Graph) -> None:
    for name in ("2999-01-01", "7", "HEAD", "HEAD~1", "ABCDEFGH"):
        graph.tags.create(name, "v1")
        assert age_at(graph, name) == 1
    assert age_at(graph, "HEAD~1~1") is None


def refusal(call: Callable[[], object]) -> GraphError:
    with pytest.raises(GraphError) as caught:
        call()
    return caught.value


CALLS: dict[str, Callable[[og.Graph, Any], object]] = {
    "query": lambda graph, at: graph.query(AGE, at=at).rows(),
    "explain": lambda graph, at: graph.explain(AGE, at=at).to_json(),
    "export": lambda graph, at: list(graph.export(at=at)),
    "diff from": lambda graph, at: graph.diff(at, "main").to_json()["changes"],
    "diff to": lambda graph, at: graph.diff("main", at).to_json()["changes"],
    "commit": lambda graph, at: graph.commit(at),
    "changes": lambda graph, at: graph.commit_changes(at).to_json(),
    "before": lambda graph, at: graph.commits(before=at),
    "feed": lambda graph, at: len(graph.changes(start=f"after:{at}").blocks),
    "snapshot": lambda graph, at: graph.snapshot(at=at).to_json(),
    "networkx": lambda graph, at: dict(graph.to_networkx(at=at).nodes),
    "branch": lambda graph, at: (graph.branches.create(f"b{at}", at), graph.commits(f"b{at}"))[1],
    "branch at": lambda graph, at: (graph.branches.create(f"b{at}", at=at), graph.commits(f"b{at}"))[1],
    "tag": lambda graph, at: graph.tags.create(f"t{at}", at).commit_id,
    "revert": lambda graph, at: graph.revert(at, dry_run=True),
    "cherry-pick": lambda graph, at: graph.cherry_pick(at, "review/x", dry_run=True),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_call_takes_every_name_of_a_state(call: Callable[[og.Graph, Any], object], graph: og.Graph) -> None:
    full = str(graph.commits()[1].commit_id)
    expected = call(graph, full)
    for at in ("v1", "main~1", full.lower()):
        assert call(graph, at) == expected


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_call_refuses_a_state_that_is_not_there(call: Callable[[og.Graph, Any], object], graph: og.Graph) -> None:
    for at in ("nosuch", "nosuch~1", "HEAD~9", "00000000", "1999-01-01", "", "~", "~1", "x" * 300, "~" * 200):
        assert refusal(partial(call, graph, at)).code == "commit.not_found", at


def test_value_that_names_no_state_is_refused(graph: og.Graph) -> None:
    for at in (True, 0, -1, 1 << 63, b"main", 1.5):
        with pytest.raises(UsageError):
            graph.query(AGE, at=at)  # type: ignore[arg-type]
    with pytest.raises(GraphError):
        graph.query(AGE, at="9999999")
    assert len(str(refusal(lambda: graph.at("x" * 10_000)))) < 2 * REVISION_CHARACTERS_MAX


def test_ancestor_beyond_the_first_commit_says_how_many_there_are(graph: og.Graph) -> None:
    with pytest.raises(GraphError, match="only 2 earlier commits"):
        graph.at("main~3")


def begun_alike(graph: og.Graph, monkeypatch: pytest.MonkeyPatch, count: int) -> list[str]:
    """Make commits on two branches whose ids begin with the same 18 characters."""
    from omnigraph.manifest import plan

    ids = iter(f"01JCW0V7Q2M4RRP5K3{number:02d}000000" for number in range(count))
    monkeypatch.setattr(plan, "new_ulid", lambda: next(ids))
    return [put(graph, 10 + number, "review/x" if number % 2 else "main") for number in range(count)]


def test_short_id_of_several_commits_lists_them(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = begun_alike(graph, monkeypatch, AMBIGUOUS_COMMITS_SHOWN + 2)
    with pytest.raises(GraphError, match="and 2 more") as caught:
        graph.at("01JCW0V7Q2")
    assert caught.value.code == "commit.ambiguous"
    assert caught.value.context["commits"] == sorted(ids)[:AMBIGUOUS_COMMITS_SHOWN]
    assert age_at(graph, ids[1][:-1]) == 11


def test_short_id_finds_commits_of_the_log_and_of_deleted_branches(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.manifest.publish.COMMIT_WINDOW_ROWS", 2)
    [own, *_] = graph.commits("review/x")
    old = graph.commits()[1]
    for number in range(5):
        put(graph, 100 + number)
    graph.branches.delete("review/x")
    assert old.commit_id not in {commit.commit_id for commit in session_of(graph).kernel.snapshot().state.commits}
    assert graph.commit(str(old.commit_id)[:-2]).commit_id == old.commit_id
    assert graph.commit(str(own.commit_id)[:-2]).branch == "review/x"
    assert age_at(graph, "HEAD~5") == 2


def test_write_expects_a_head_by_any_name(graph: og.Graph) -> None:
    text = 'query q() { update Person set { age: 9 } where name = "ann" }'
    for wrong in ("v1", "HEAD~1", "nosuch", str(graph.commits()[1].commit_id)[:-1]):
        with pytest.raises(PreconditionFailed):
            graph.mutate(text, if_commit=wrong)
    assert graph.mutate(text, if_commit=str(graph.commits()[0].commit_id)[:-1]).commit is not None


RULES = """
version: 1
groups: {all: [root], ann: [ann]}
protected_branches: [review/x]
rules:
  - {id: all, allow: {actors: {group: all}, actions: [read, export, change, branch_create, branch_delete]}}
  - {id: ann, allow: {actors: {group: ann}, actions: [read, change], branch_scope: unprotected}}
"""


def test_hidden_commits_are_neither_candidates_nor_counted(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = begun_alike(graph, monkeypatch, 3)
    root = og.open(graph.uri, actor="root", policy=load_bundle(RULES))
    ann = root.acting_as("ann")
    with pytest.raises(GraphError, match="beginning of 3 commits"):
        root.at("01JCW0V7Q2")
    with pytest.raises(GraphError, match="beginning of 2 commits") as caught:
        ann.at("01JCW0V7Q2")
    assert ids[1] not in str(caught.value.to_json())
    # What is hidden is answered like what does not exist.
    hidden = ("review/x", "review/x~1", "review/x~99", ids[1], f"{ids[1]}~1", f"{ids[1]}~99", ids[1][:-1])
    for at in hidden:
        error, missing = refusal(lambda at=at: ann.at(at)), refusal(lambda: ann.at("nosuch"))  # type: ignore[misc]
        assert str(error).replace(at, "nosuch") == str(missing)
        assert age_at(root, ids[1]) == 11
