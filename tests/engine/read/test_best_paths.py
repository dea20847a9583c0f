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
    lines += [
        {"edge": "Leg", "from": a, "to": b, "data": {"id": a + b, "minutes": w}} for (a, b), w in legs_of(seed).items()
    ]
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


def check_free_ends(world: tuple[og.Graph, int]) -> None:
    """Check the best path to every other stop, or from it, and that paths come in the order of their stops."""
    graph, seed = world
    for is_weighted in (False, True):
        best = {(a, b): by_definition(seed, a, b, 1, is_weighted=is_weighted) for a in STOPS for b in STOPS if a != b}
        for bound in ("", *STOPS):
            for walk in ("$x leg{1,} $y", "$y leg{1,} $x"):
                start = f'$x: Stop {{ name: "{bound}" }}' if bound else "$x: Stop"
                by = " by minutes" if is_weighted else ""
                source = f"query q() {{ match {{ {start} path $p = shortest {walk}{by} }} return {{ $p, cost($p) }} }}"
                found = [("".join(nodes), cost) for nodes, cost in (row.values() for row in graph.query(source).rows())]
                place = 0 if walk.startswith("$x") else 1
                expected = sorted(path for pair, paths in best.items() for path in paths if bound in ("", pair[place]))
                assert sorted(found) == expected, (bound, walk, by)
                assert found == expected or not bound, "of one start, in the order of their stops"


def test_best_paths_to_free_ends_are_the_first_of_all_paths(world: tuple[og.Graph, int]) -> None:
    check_free_ends(world)


def test_best_paths_to_free_ends_in_blocks_of_starts_are_the_same(
    world: tuple[og.Graph, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "_STATES_MAX", 2 * len(STOPS))
    check_free_ends(world)


def test_edges_of_best_paths_lead_from_node_to_node(world: tuple[og.Graph, int]) -> None:
    graph, _ = world
    for walk in ("$x leg{1,} $y", "$y leg{1,} $x"):
        for search in ("shortest", "shortest 2", "all shortest"):
            source = (
                f'query q() {{ match {{ $x: Stop {{ name: "a" }} $y: Stop path $p = {search} {walk} by minutes }}'
                " return { nodes($p) as nodes, edges($p) as edges } }"
            )
            for row in graph.query(source).rows():
                steps = zip(row["nodes"], row["nodes"][1:], strict=False)
                assert row["edges"] == ["".join(step) for step in steps]


@pytest.mark.parametrize("search", COUNTS)
@pytest.mark.parametrize("by", ["", " by minutes"])
def test_search_without_a_path_binds_nothing(tmp_path: Path, search: str, by: str) -> None:
    lines: list[dict[str, Any]] = [{"type": "Stop", "data": {"name": name}} for name in "ab"]
    lines.append({"edge": "Leg", "from": "a", "to": "b", "data": {"minutes": 1.0}})
    graph = create(tmp_path, lines, SCHEMA)
    # No leg leads on from the start, whether or not the end is bound.
    for end in ("", '$y: Stop { name: "a" }'):
        source = (
            f'query q() {{ match {{ $x: Stop {{ name: "b" }} {end} path $p = {search} $x leg{{1,}} $y{by} }}'
            " return { nodes($p) as nodes, edges($p) as edges, length($p) as hops, cost($p) as cost } }"
        )
        assert graph.query(source).rows() == []


@pytest.mark.parametrize("name", ["level by level", "hops are kept"])
def test_definition_notices_broken_trees(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "level by level":
        monkeypatch.setattr(paths, "preorder_positions", number_levels)
    else:
        keep_fewest_hops(monkeypatch)
    worlds = []
    for seed in range(4):
        (tmp_path / str(seed)).mkdir()
        worlds.append((build(tmp_path / str(seed), seed), seed))
    with pytest.raises(AssertionError):
        check_free_ends_of_all(worlds)


def check_free_ends_of_all(worlds: list[tuple[og.Graph, int]]) -> None:
    for world in worlds:
        check_free_ends(world)


def keep_fewest_hops(patch: pytest.MonkeyPatch) -> None:
    """Count the hops of a heavier path for a lighter one."""
    improve = paths.PathSearch._improve

    def fewest(self: Any, states: Any, costs: Any, hops: Any) -> Any:
        before = hops.copy()
        improved = improve(self, states, costs, hops)
        np.minimum(hops, before, out=hops)
        return improved

    patch.setattr(paths.PathSearch, "_improve", fewest)


def number_levels(roots: Any, parents: Any) -> Any:
    """Number paths by their length first."""
    sizes = np.cumsum([len(roots), *map(len, parents)])
    return np.split(np.arange(sizes[-1]), sizes[:-1])


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
