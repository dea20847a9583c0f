"""Walks that end at looked-up nodes: the same rows wherever they meet, over as few edges as the estimates promise."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import omnigraph as og
from omnigraph.engine.query import meeting
from omnigraph.engine.query.meeting import Meeting, MeetingWalks, reverse_walk
from tests.support.read_fixtures import create

SCHEMA = """
node Person { name: String @key  age: I32 }
node Club { name: String @key }
edge Knows: Person -> Person { since: I32 }
edge In: Person -> Club
"""
PEOPLE = [f"p{number}" for number in range(12)]
CLUBS = ["c0", "c1"]


def edges_of(seed: int) -> tuple[list[tuple[str, str, int]], list[tuple[str, str]]]:
    """Return random edges, of which some are parallel and some lead back to where they start."""
    source = random.Random(seed)
    knows = [(source.choice(PEOPLE), source.choice(PEOPLE), source.randint(0, 3)) for _ in range(60)]
    clubs = [(source.choice(PEOPLE), source.choice(CLUBS)) for _ in range(14)]
    return knows, clubs


@pytest.fixture(scope="module", params=range(3))
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[og.Graph, int]:
    knows, clubs = edges_of(request.param)
    lines: list[dict[str, Any]] = [
        {"type": "Person", "data": {"name": name, "age": place % 5}} for place, name in enumerate(PEOPLE)
    ]
    lines += [{"type": "Club", "data": {"name": name}} for name in CLUBS]
    lines += [{"edge": "Knows", "from": a, "to": b, "data": {"since": since}} for a, b, since in knows]
    lines += [{"edge": "In", "from": a, "to": b} for a, b in clubs]
    return create(tmp_path_factory.mktemp("meeting"), lines, SCHEMA), request.param


ENDS = '$a: Person {name: "p1"} $b: Person {name: "p2"}'
# Patterns of single hops, with the edges between their variables, and conditions on ages and years.
SINGLE: list[tuple[str, list[tuple[str, str, str]], str]] = [
    ("$a knows $x $b knows $x", [("a", "knows", "x"), ("b", "knows", "x")], ""),
    ("$x knows $a $x knows $b", [("x", "knows", "a"), ("x", "knows", "b")], ""),
    ("$a knows $x $x knows $b", [("a", "knows", "x"), ("x", "knows", "b")], ""),
    ("$a knows $x $x knows $y $y knows $b", [("a", "knows", "x"), ("x", "knows", "y"), ("y", "knows", "b")], ""),
    (
        "$a knows $x $x knows $y $b knows $y $x.age > 1",
        [("a", "knows", "x"), ("x", "knows", "y"), ("b", "knows", "y")],
        "x",
    ),
    (
        "$a knows $y $y knows $x $b knows $z $z knows $x $z.age > 1",
        [("a", "knows", "y"), ("y", "knows", "x"), ("b", "knows", "z"), ("z", "knows", "x")],
        "z",
    ),
]
OTHERS = [
    "$a knows{1,2} $x $b knows $x",
    "$a knows{1,2} $x $b knows{1,2} $x",
    "$a knows{0,3} $x $x knows{1,2} $b",
    '$a knows $x $x in $c $c.name = "c1"',
    '$x: Person $x knows{1,2} $b $x in $c $c.name = "c0"',
    "$a knows $x optional { $x knows $y $y knows $b }",
    "$a knows $x not { $x knows $y $y knows $b }",
    "$x: Person not { $x knows{1,2} $y $y knows $b }",
]


def answers(graph: og.Graph, body: str, returns: str, *, distinct: bool = False) -> Counter[tuple[Any, ...]]:
    word = "return distinct" if distinct else "return"
    source = f"query q() {{ match {{ {ENDS} {body} }} {word} {{ {returns} }} }}"
    return Counter(tuple(row.values()) for row in graph.query(source).rows())


def by_definition(seed: int, pattern: list[tuple[str, str, str]], older: str) -> Counter[tuple[Any, ...]]:
    """Return every assignment of people to variables under which each edge of the pattern exists."""
    pairs = {(source, target) for source, target, _ in edges_of(seed)[0]}
    free = sorted({name for one, _, other in pattern for name in (one, other)} - {"a", "b"})
    found: Counter[tuple[Any, ...]] = Counter()
    for people in product(PEOPLE, repeat=len(free)):
        bound = {"a": "p1", "b": "p2", **dict(zip(free, people, strict=True))}
        if older and PEOPLE.index(bound[older]) % 5 <= 1:
            continue
        if all((bound[one], bound[other]) in pairs for one, _, other in pattern):
            found[tuple(bound[name] for name in free)] += 1
    return found


@pytest.mark.parametrize("case", SINGLE, ids=[text for text, _, _ in SINGLE])
def test_walks_from_two_ends_find_what_the_pattern_says(
    world: tuple[og.Graph, int], case: tuple[str, list[tuple[str, str, str]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    check_definition(world, case, monkeypatch)


@pytest.mark.parametrize("case", SINGLE[:4], ids=[text for text, _, _ in SINGLE[:4]])
def test_walks_that_meet_at_few_of_many_nodes_find_what_the_pattern_says(
    world: tuple[og.Graph, int], case: tuple[str, list[tuple[str, str, str]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(meeting, "_OFFSETS_SHARE", 0)
        check_definition(world, case, monkeypatch)


def check_definition(
    world: tuple[og.Graph, int], case: tuple[str, list[tuple[str, str, str]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, seed = world
    body, pattern, older = case
    expected = by_definition(seed, pattern, older)
    free = sorted({name for one, _, other in pattern for name in (one, other)} - {"a", "b"})
    returns = ", ".join(f"${name}.name as {name}" for name in free)
    for place in (None, *range(5)):
        meet_at(monkeypatch, place)
        assert answers(graph, body, returns) == expected, place
        assert answers(graph, body, returns, distinct=True) == Counter(expected.keys()), place
        first = returns.split(",", maxsplit=1)[0]
        assert answers(graph, body, first) == _first_only(expected), place


def _first_only(found: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    firsts: Counter[tuple[Any, ...]] = Counter()
    for row, number in found.items():
        firsts[row[:1]] += number
    return firsts


def meet_at(monkeypatch: pytest.MonkeyPatch, place: int | None) -> None:
    """Let chains meet after so many walks, or where the estimates say."""
    monkeypatch.undo()
    if place is not None:
        monkeypatch.setattr(
            MeetingWalks, "choose_meeting", lambda self, run, count: Meeting(min(place, len(self.walks)), 0, 0)
        )


@pytest.mark.parametrize("body", OTHERS)
def test_walks_find_the_same_wherever_they_meet(
    world: tuple[og.Graph, int], body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, _ = world
    for returns, distinct in (("$x.name as x", False), ("$x.name as x, $b.name as b", True), ("count(*) as n", False)):
        # After all walks: none goes backwards.
        meet_at(monkeypatch, 9)
        expected = answers(graph, body, returns, distinct=distinct)
        for place in (None, 0, 1, 2):
            meet_at(monkeypatch, place)
            assert answers(graph, body, returns, distinct=distinct) == expected, (place, returns)


def test_edges_and_hops_of_walks_from_the_end_are_bound(
    world: tuple[og.Graph, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, seed = world
    knows, _ = edges_of(seed)
    body = "$a $first: knows $x $x $second: knows $b $second.since > 0"
    returns = "$x.name as x, $first.since as first, $second.since as second"
    expected = Counter(
        (middle, first, second)
        for (start, middle, first), (other, end, second) in product(knows, knows)
        if start == "p1" and middle == other and end == "p2" and second > 0
    )
    for place in (None, 0, 1, 2):
        meet_at(monkeypatch, place)
        assert answers(graph, body, returns) == expected, place


def wrong_way(patch: pytest.MonkeyPatch) -> None:
    """Walk from the looked-up node in the direction in which the pattern leads to it."""
    # A property, because plans that are kept have turned their walks already.
    wrong = property(lambda self: [replace(reverse_walk(one.walk), direction=one.walk.direction) for one in self.walks])
    patch.setattr(MeetingWalks, "reversed_walks", wrong)


def once_for_each_place(patch: pytest.MonkeyPatch) -> None:
    """Count what leads on from a place where walks meet once, however many ways there are."""
    locate = meeting._locate_matches

    def once(values: Any, wanted: Any, size: int) -> Any:
        starts, degrees = locate(values, wanted, size)
        return starts, np.minimum(degrees, 1)

    patch.setattr(meeting, "_locate_matches", once)


@pytest.mark.parametrize("mutate", [wrong_way, once_for_each_place])
def test_definition_notices_wrong_joins(
    world: tuple[og.Graph, int], mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, seed = world
    meet_at(monkeypatch, 0)
    mutate(monkeypatch)
    differ = []
    for body, pattern, older in SINGLE:
        free = sorted({name for one, _, other in pattern for name in (one, other)} - {"a", "b"})
        found = answers(graph, body, ", ".join(f"${name}.name as {name}" for name in free))
        differ.append(found != by_definition(seed, pattern, older))
    assert any(differ)


def test_explain_says_where_walks_meet(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [{"type": "Person", "data": {"name": name, "age": 1}} for name in PEOPLE]
    lines += [
        {"edge": "Knows", "from": one, "to": other, "data": {"since": 1}} for one, other in product(PEOPLE, PEOPLE)
    ]
    graph = create(tmp_path, lines, SCHEMA)
    source = f"query q() {{ match {{ {ENDS} $a knows{{1,2}} $x $b knows{{1,2}} $x }} return {{ $x.name as x }} }}"
    plan = str(graph.explain(source))
    assert "meet between $a and $b, which is looked up" in plan
    assert "meeting at $x" in plan
    profile = str(graph.explain(source, profile=True))
    assert "meeting at $x, over about 288 edges instead of" in profile
