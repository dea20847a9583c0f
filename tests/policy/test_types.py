"""Types that are hidden from an actor are not there for it, however it reads; each leak that we know is caught."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engine.write import hidden_type_errors
from omnigraph.errors import GraphError, OmniGraphError, PolicyDenied
from omnigraph.graph import Graph
from omnigraph.policy import load_bundle
from tests.support.visibility_oracle import HIDDEN, LEAKS, build, edge, loaded, node, outcome, reader, restricted

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Graph, Graph, Path]]:
    root = tmp_path_factory.mktemp("sights")
    with build(root / "whole.omni") as whole, build(root / "small.omni", HIDDEN) as small:
        yield whole, small, root


@pytest.fixture(scope="module")
def expected(graphs: tuple[Graph, Graph, Path]) -> dict[str, object]:
    _, small, root = graphs
    return reader(og.open(small.uri, actor="ann", read_only=True)).everything(root / "small")


def differences(graphs: tuple[Graph, Graph, Path], expected: dict[str, object]) -> list[str]:
    """Return in which ways the actor sees another thing than in a graph without the hidden types."""
    whole, _, root = graphs
    # Read-only, so that a mutant which lets writes through changes nothing for those after it.
    seen = restricted(whole, read_only=True).everything(root / "small")
    return [name for name, told in seen.items() if told != expected.get(name)]


def test_hidden_types_are_not_there_however_one_reads(
    graphs: tuple[Graph, Graph, Path], expected: dict[str, object]
) -> None:
    assert differences(graphs, expected) == []


def test_hidden_types_show_to_whoever_may_see_them(graphs: tuple[Graph, Graph, Path], tmp_path: Path) -> None:
    """Most ways to read differ for those who see all, so the comparison is no empty one."""
    whole, small, _ = graphs
    chief = restricted(whole, "root", read_only=True).everything(tmp_path / "a")
    other = reader(og.open(small.uri, actor="root", read_only=True)).everything(tmp_path / "a")
    told = {name for name in chief if chief[name] != other[name]}
    assert {"snapshot", "schema", "export", "baseline", "diff", "blob hidden", "commits", "spark export"} <= told


@pytest.mark.parametrize(
    ("place", "name", "mutant"),
    [
        *LEAKS,
        (hidden_type_errors, "is_about_any", lambda hidden, error: False),
    ],
)
@pytest.mark.sampled(2)
def test_hidden_types_leak_is_caught(
    graphs: tuple[Graph, Graph, Path],
    expected: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
    place: Any,
    name: str,
    mutant: Any,
) -> None:
    monkeypatch.setattr(place, name, mutant)
    if place is hidden_type_errors:
        whole, _, _ = graphs
        assert "Paid" in message_of(lambda: overwrite(restricted(whole).graph))
    else:
        assert differences(graphs, expected) != []


def message_of(call: Callable[[], object]) -> str:
    with pytest.raises(OmniGraphError) as caught:
        call()
    return f"{caught.value.message} {caught.value.context}"


def overwrite(graph: Graph) -> object:
    """Take away people that hidden edges end at."""
    kept = [node("Person", name=name) for name in ("eve", "cat")]
    return graph.ingest(
        [*kept, edge("Knows", "k9", "eve", "cat"), edge("LivesIn", "l9", "eve", "oslo")], mode="overwrite"
    )


# -- writes ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Graph, Graph]]:
    with build(tmp_path / "whole.omni") as whole, build(tmp_path / "small.omni", HIDDEN) as small:
        yield whole, small


def test_snapshot_shows_dataset_paths_only_to_those_who_see_all_types(pair: tuple[Graph, Graph]) -> None:
    whole, _ = pair
    for actor, is_shown in (("ann", False), ("root", True)):
        for branch in ("main", "review"):
            shown = restricted(whole, actor).graph.snapshot(branch).to_json()["datasets"]
            assert isinstance(shown, list)
            assert {"dataset_path" in one for one in shown} == {is_shown}
            assert is_shown or not any("native_dataset_branch" in one for one in shown)


def test_upkeep_tells_nothing_of_hidden_types_and_looks_after_them(pair: tuple[Graph, Graph]) -> None:
    whole, small = pair
    told = restricted(whole).upkeep()
    assert told == reader(small.acting_as("ann")).upkeep()
    chief = whole.query("query q() { match { $p: Person $p follows $q } return { $p.name } }")
    # The edges of whoever was deleted are gone, though the one who deleted did not see them.
    assert chief.rows() == []
    assert whole.maintenance.verify().is_sound


def test_write_that_breaks_hidden_data_is_refused_without_a_word_of_it(pair: tuple[Graph, Graph]) -> None:
    whole, _ = pair
    before = whole.snapshot().head
    message = message_of(lambda: overwrite(restricted(whole).graph))
    assert not any(word in message for word in HIDDEN)
    assert "may not see" in message
    assert whole.snapshot().head == before


@pytest.mark.parametrize("method", ["revert", "cherry_pick"])
def test_replay_of_a_commit_that_touched_hidden_types_is_denied(pair: tuple[Graph, Graph], method: str) -> None:
    whole, _ = pair
    [newest] = [one.commit_id for one in whole.commits("review")][:1]
    seen = restricted(whole).graph
    with pytest.raises(PolicyDenied, match="may not see"):
        getattr(seen, method)(newest, branch="review" if method == "revert" else "main")


def test_merge_conflict_in_hidden_types_is_refused_without_details(tmp_path: Path) -> None:
    with build(tmp_path / "g.omni") as graph:
        graph.branches.create("other")
        for branch, amount in (("other", 1), ("main", 2)):
            graph.ingest([node("Salary", slip="s3", amount=amount)], branch=branch)
        seen = restricted(graph).graph
        told = [message_of(lambda dry=dry: seen.branches.merge("other", dry_run=dry)) for dry in (True, False)]  # type: ignore[misc]
        assert told[0] == told[1]
        assert not any(word in told[0] for word in HIDDEN)


def test_types_that_may_be_read_but_not_changed_are_named_in_the_refusal(tmp_path: Path) -> None:
    rules = """
version: 1
groups: {team: [ann]}
rules:
  - {id: a, allow: {actors: {group: team}, actions: [read]}}
  - {id: b, allow: {actors: {group: team}, actions: [change], types: [Knows, City]}}
"""
    with build(tmp_path / "g.omni") as graph:
        ann = og.open(graph.uri, actor="ann", policy=load_bundle(rules))
        assert ann.mutate('query q() { insert Knows { from: "bob" to: "ann" } }').affected_edges == 1
        before = graph.snapshot().head
        insert = 'query q() { insert Person { name: "zoe" } }'
        for call in (
            lambda: ann.mutate(insert),
            lambda: ann.ingest([node("Person", name="zoe")]),
            lambda: ann.ingest(
                [node("City", name="bonn"), node("Person", name="zoe")], branch="new", from_branch="main"
            ),
        ):
            with pytest.raises(PolicyDenied) as caught:
                call()
            assert caught.value.code == "policy.denied"
        assert "`Person`" in message_of(lambda: ann.mutate(insert))
        assert (graph.snapshot().head, graph.branches.list()) == (before, ["main", "review"])


def test_past_is_judged_by_the_branch_that_it_belongs_to(tmp_path: Path) -> None:
    rules = """
version: 1
groups: {team: [ann]}
protected_branches: [main]
rules:
  - {id: a, allow: {actors: {group: team}, actions: [read], branch_scope: unprotected}}
"""
    with build(tmp_path / "g.omni") as graph:
        ann = og.open(graph.uri, actor="ann", policy=load_bundle(rules))
        source = "query q() { match { $p: Person } return { $p.name } }"
        own, main = graph.commits("review")[0].commit_id, graph.commits()[0].commit_id
        assert ann.query(source, branch=" review ").rows() == ann.query(source, branch="main", at=own).rows()
        for call in (
            lambda: ann.query(source, branch=" main"),
            lambda: ann.query(source, at=main),
            lambda: ann.commit(main),
            lambda: ann.diff("review", main),
        ):
            with pytest.raises(PolicyDenied):
                call()
        # Of a branch that may be read, they are commits that are not there.
        for absent in (
            lambda: ann.query(source, branch="review", at=main),
            lambda: ann.query(source, branch="review", at="v1"),
            lambda: ann.at(main, "review"),
            lambda: ann.blob("Person", "cat", "photo", branch="review", at=main),
        ):
            with pytest.raises(GraphError, match="no branch, tag or commit"):
                absent()


def test_load_of_a_hidden_type_is_refused_like_an_unknown_one(pair: tuple[Graph, Graph], tmp_path: Path) -> None:
    whole, small = pair
    record = node("Salary", slip="s9", amount=1)
    told = outcome(lambda: loaded(restricted(whole).graph, tmp_path / "in", record))
    assert told == outcome(lambda: loaded(small, tmp_path / "in", record))
    assert "there is no node type `Salary`; the schema has City, Person" in str(told)
