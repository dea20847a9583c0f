"""The lightest paths between two nodes against all paths, enumerated from the definition."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import omnigraph as og
from omnigraph.engine.query import k_shortest, paths
from tests.support.read_fixtures import create

SCHEMA = "node Stop { name: String @key }\nedge Leg: Stop -> Stop { minutes: F64 }"
STOPS = "abcdefgh"
COUNTS = {"shortest": 1, "shortest 2": 2, "shortest 4": 4, "shortest 30": 30, "all shortest": None}


def legs_of(seed: int) -> dict[tuple[str, str], float]:
    """Return random edges; few different weights make many ties, and some weigh nothing."""
    source = random.Random(seed)
    pairs = {(source.choice(STOPS), source.choice(STOPS)) for _ in range(26)}
    return {pair: float(source.choice((0, 1, 1, 2, 3))) for pair in sorted(pairs)}


@pytest.fixture(scope="module", params=range(4))
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[og.Graph, int]:
    return build(tmp_path_factory.mktemp("best"), request.param), request.param


def build(path: Path, seed: int) -> og.Graph:
    lines: list[dict[str, Any]] = [{"type": "Stop", "data": {"name": name}} for name in STOPS]
    lines += [{"edge": "Leg", "from": a, "to": b, "data": {"minutes": w}} for (a, b), w in legs_of(seed).items()]
    return create(path, lines, SCHEMA)


def by_definition(seed: int, start: str, end: str, count: int | None, *, is_weighted: bool) -> list[tuple[str, float]]:
    """Return the best of all paths without a repeated node: by weight, then hops, then names."""
    legs = legs_of(seed)
    complete: list[tuple[float, int, str]] = []
    partial = [(0.0, start)]
    while partial:
        cost, nodes = partial.pop()
        if nodes[-1] == end and len(nodes) > 1:
            complete.append((cost, len(nodes), nodes))
        partial += [
            (cost + (weight if is_weighted else 1.0), nodes + target)
            for (source, target), weight in legs.items()
            if source == nodes[-1] and target not in nodes
        ]
    complete.sort()
    if count is None:
        complete = [path for path in complete if path[:2] == complete[0][:2]]
    return [(nodes, cost) for cost, _, nodes in complete[:count]]


def check(world: tuple[og.Graph, int], search: str) -> None:
    graph, seed = world
    for start, end in (("a", "b"), ("c", "h"), ("g", "a"), ("d", "e")):
        for by in ("", " by minutes"):
            ends = f'$x: Stop {{name: "{start}"}} $y: Stop {{name: "{end}"}}'
            source = (
                f"query q() {{ match {{ {ends} path $p = {search} $x leg{{1,}} $y{by} }} return {{ $p, cost($p) }} }}"
            )
            found = [("".join(nodes), cost) for nodes, cost in (row.values() for row in graph.query(source).rows())]
            expected = by_definition(seed, start, end, COUNTS[search], is_weighted=bool(by))
            assert sorted(found) == sorted(expected), (start, end, by)


def check_all(worlds: list[tuple[og.Graph, int]], search: str) -> None:
    for world in worlds:
        check(world, search)


@pytest.mark.parametrize("search", COUNTS)
def test_best_paths_are_the_first_of_all_paths(world: tuple[og.Graph, int], search: str) -> None:
    check(world, search)


@pytest.mark.parametrize("search", ["shortest 2", "shortest 4"])
def test_best_paths_are_found_few_at_a_time(
    world: tuple[og.Graph, int], search: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(k_shortest, "_BATCH_MIN", 1)
    check(world, search)


def stop_early(patch: pytest.MonkeyPatch) -> None:
    """Stop as soon as there are enough paths, although others may be as good."""
    patch.setattr(k_shortest, "_SLACK", -1.0)
    patch.setattr(k_shortest, "_BATCH_MIN", 1)


def repeat_nodes(patch: pytest.MonkeyPatch) -> None:
    """Let a path come to a node again."""
    patch.setattr(k_shortest.PartialPaths, "visits", lambda self, parents, nodes: self.nodes[parents] == nodes)


def settle_early(patch: pytest.MonkeyPatch) -> None:
    """Take the first weight that a node is reached with for the least."""
    improve = paths.PathSearch._improve

    def first_only(self: Any, states: Any, costs: Any, hops: Any) -> Any:
        before = costs.copy()
        improved = improve(self, states, costs, hops)
        costs[np.isfinite(before)] = before[np.isfinite(before)]
        return improved[np.isinf(before[improved])]

    patch.setattr(paths.PathSearch, "_improve", first_only)


@pytest.mark.parametrize(
    ("mutate", "search"), [(stop_early, "shortest 4"), (repeat_nodes, "shortest 4"), (settle_early, "shortest")]
)
def test_definition_notices_broken_searches(
    tmp_path: Path, mutate: Any, search: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    worlds = []
    for seed in range(4):
        (tmp_path / str(seed)).mkdir()
        worlds.append((build(tmp_path / str(seed), seed), seed))
    with pytest.raises(AssertionError):
        check_all(worlds, search)
