"""Path search: all shortest and k shortest paths by hops or by weight, as arrays.

A path visits no node twice. Paths are ordered by weight, hops, and the ids of their nodes from left to right as
written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engine.query.context import QueryRun
from omnigraph.engine.query.entities import Entities, take_numbers
from omnigraph.engine.query.expand import HopBounds
from omnigraph.engine.query.k_shortest import find_k_shortest
from omnigraph.engine.query.ordering import stable_order
from omnigraph.engine.query.path_graph import Indices, Numeric, PathGraph
from omnigraph.engine.query.path_tree import preorder_positions
from omnigraph.engine.query.vectors import (
    Ids,
    Lists,
    Mask,
    Numbers,
    Vector,
    distinct_below,
    flag_positions,
    places_in_runs,
    range_indices,
    run_starts,
)
from omnigraph.lang.query import ir

# How many states, one per node and start, a search has in memory at once.
_STATES_MAX: Final = 1 << 23
_STATE_BYTES: Final = 24
_STEP_BYTES: Final = 48


class FoundPaths(NamedTuple):
    """Paths of the same length: a row of nodes each in walking order, its start and its weight.

    `positions`, if a search knows them, order all paths that it finds as the ids of their nodes do.
    """

    starts: Indices
    nodes: npt.NDArray[np.int64]
    costs: Numeric
    positions: Indices | None = None

    def where(self, mask: Mask) -> FoundPaths:
        return FoundPaths(self.starts[mask], self.nodes[mask], self.costs[mask])


@dataclass(frozen=True)
class PathTable:
    """The paths that a variable is bound to, by number; numbers follow the ids of their nodes."""

    offsets: Indices
    costs: Numeric
    # Paths as they were found, and the number of each; a negative one was not kept.
    parts: Sequence[FoundPaths]
    numbers: Indices
    graph: PathGraph
    is_backwards: bool
    space: Entities
    edge_space: Entities

    @cached_property
    def nodes(self) -> Indices:
        """The nodes of all paths, laid out only if a query asks for them."""
        nodes = np.empty(int(self.offsets[-1]), np.int64)
        first = 0
        for part in self.parts:
            numbers = self.numbers[first : first + len(part.starts)]
            first += len(part.starts)
            rows = part.nodes[:, ::-1] if self.is_backwards else part.nodes
            kept = np.flatnonzero(numbers >= 0)
            nodes[self.offsets[numbers[kept], None] + np.arange(rows.shape[1])] = rows[kept]
        return nodes

    @cached_property
    def edges(self) -> Indices:
        """The edge of each step, looked up only if a query asks for it."""
        inner = np.flatnonzero(~flag_positions(self.offsets, len(self.nodes) + 1)[:-1])
        ends = self.nodes[inner - 1], self.nodes[inner]
        near, far = ends[::-1] if self.is_backwards else ends
        adjacency = self.graph.adjacency
        assert adjacency.edges is not None
        edges: Indices = adjacency.edges[np.searchsorted(adjacency.pairs, near * self.graph.width + far)]
        return edges.astype(np.int64)

    @property
    def lengths(self) -> Indices:
        return np.diff(self.offsets) - 1

    @cached_property
    def node_lists(self) -> Any:
        return self._lists(self.space, self.nodes, self.offsets)

    @cached_property
    def edge_lists(self) -> Any:
        return self._lists(self.edge_space, self.edges, self.offsets - np.arange(len(self.offsets)))

    def _lists(self, entities: Entities, ids: Indices, offsets: Indices) -> Any:
        strings: Any = entities.values("id", ids)
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), strings.array.cast(pa.string()))

    def values(self, function: str, ids: Ids) -> Vector:
        """Return a function of some paths; a negative number gives null."""
        if function in ("length", "cost"):
            return take_numbers(Numbers(self.lengths if function == "length" else self.costs, None), ids)
        lists = self.node_lists if function == "nodes" else self.edge_lists
        return Lists(lists.take(pa.array(ids.astype(np.int64), mask=ids < 0)))


def path_key(variable: str) -> str:
    return f"path {variable}"


def path_values(run: QueryRun, path: ir.PathRef, ids: Ids) -> Vector:
    table = run.scratch.get(path_key(path.variable))
    if table is not None:
        return table.values(path.function, ids)  # type: ignore[no-any-return]
    # The search was never reached, so there are no paths, and every number is null.
    if path.function in ("length", "cost"):
        return take_numbers(Numbers(np.empty(0, np.int64 if path.function == "length" else np.float64), None), ids)
    return Lists(pa.nulls(len(ids), pa.list_(pa.string())))


class PathRows(NamedTuple):
    """The paths of rows: which row each belongs to, where it ends, and its number."""

    rows: Indices
    targets: Indices
    numbers: Indices


@dataclass(frozen=True)
class PathSearch:
    """One search: how many paths, between which nodes, over which graph."""

    run: QueryRun
    graph: PathGraph
    bounds: HopBounds
    # How many paths of each pair; None for all that tie for the shortest.
    count: int | None
    ranks: Ids
    where: str

    def search(self, starts: Ids, ends: Ids | None, spaces: tuple[Entities, Entities]) -> tuple[PathRows, PathTable]:
        """Return the paths from each start, to its end if there are ends."""
        sources, origins = np.unique(starts, return_inverse=True)
        targets = None
        if ends is not None:
            targets = np.unique(origins.astype(np.int64) * self.graph.width + ends)
        parts: list[FoundPaths] = []
        block = max(1, _STATES_MAX // self.graph.width)
        for first in range(0, len(sources), block):
            chosen = sources[first : first + block]
            size = len(chosen) * self.graph.width
            block_targets = None
            if targets is not None:
                low = first * self.graph.width
                block_targets = targets[slice(*np.searchsorted(targets, [low, low + size]))] - low
            self.run.spending.reserve_bytes(size * _STATE_BYTES, self.where)
            search = self._shortest
            if (self.count or 1) > 1:
                is_guided = block_targets is not None and self.graph.is_finite
                search = self._guided if is_guided else self._enumerate
            block_parts = [part._replace(starts=part.starts + first) for part in search(chosen, block_targets)]
            # Positions are those in one block alone.
            is_only = len(sources) <= block
            parts += block_parts if is_only else [part._replace(positions=None) for part in block_parts]
        return self._collect(parts, origins, ends, spaces)

    # -- shortest ----------------------------------------------------------------------------------------------

    def _shortest(self, sources: Ids, targets: Indices | None) -> Iterator[FoundPaths]:
        """Yield the best path, or all that tie for it, of every pair: by hops first to last."""
        width = self.graph.width
        starts = np.arange(len(sources), dtype=np.int64) * width + sources
        costs, hops = self._distances(starts, len(sources) * width, targets)
        if targets is None and self.count is not None:
            yield from self._tree(starts, costs, hops)
            return
        farthest, leads = self.bounds.maximum, None
        if targets is not None:
            ended = targets[np.isfinite(costs[targets])]
            farthest = min(farthest, int(hops[ended].max(initial=-1)))
            leads = self._leading_to(ended, costs, hops)
        level = Level(starts, None, None)
        levels = [level]
        if self.bounds.minimum == 0:
            yield from self._trace(levels, targets, costs)
        for hop in range(1, farthest + 1):
            level = self._next_level(level, hop, costs, hops, leads)
            if len(level.states) == 0:
                return
            levels.append(level)
            yield from self._trace(levels, targets, costs)

    def _tree(self, starts: Indices, costs: Numeric, hops: npt.NDArray[np.int32]) -> Iterator[FoundPaths]:
        """Yield the best path to every state, level by level: each is that of its parent and one node more."""
        width, levels = self.graph.width, [Level(starts, None, None)]
        parents: list[Indices] = []
        while len(levels) <= self.bounds.maximum:
            level = self._next_level(levels[-1], len(levels), costs, hops, None)
            if len(level.states) == 0:
                break
            assert level.parents is not None
            assert level.ranges is not None
            parents.append(level.parents[level.ranges[0]])
            levels.append(level)
        positions: Sequence[Indices | None] = [None] * len(levels)
        if not self.bounds.is_backwards:
            positions = preorder_positions(self.ranks[starts % width], parents)
        owners, nodes = starts // width, (starts % width)[:, None]
        for hop, level in enumerate(levels):
            if hop > 0:
                self.run.spending.reserve(len(level.states), 8 * (hop + 1), self.where)
                before = parents[hop - 1]
                owners = owners[before]
                nodes = np.concatenate([nodes[before], (level.states % width)[:, None]], axis=1)
            if hop >= self.bounds.minimum:
                yield FoundPaths(owners, nodes, costs[level.states], positions[hop])

    def _distances(self, starts: Indices, size: int, targets: Indices | None) -> tuple[Numeric, npt.NDArray[np.int32]]:
        """Return the least weight of every state, and the fewest hops with that weight, as far as targets need them.

        A state is settled when it is reached by hops, or when no lighter one is left to go on from; so the search ends
        when all that are wanted are.
        """
        costs = np.full(size, np.inf)
        hops = np.full(size, np.iinfo(np.int32).max, np.int32)
        costs[starts], hops[starts] = 0.0, 0
        if self.graph.is_weighted:
            self._relax(costs, hops, starts, targets)
            return costs, hops
        frontier, hop = starts, 0
        # Breadth-first search from all starts of the block at once.
        while len(frontier) and hop < self.bounds.maximum:
            self.run.check(self.where)
            if targets is not None and bool(np.isfinite(costs[targets]).all()):
                break
            hop += 1
            _, reached = self._reach(frontier)
            frontier = distinct_below(reached[np.isinf(costs[reached])], size)
            costs[frontier], hops[frontier] = float(hop), hop
        return costs, hops

    def _relax(self, costs: Numeric, hops: npt.NDArray[np.int32], starts: Indices, targets: Indices | None) -> None:
        """Relax the edges of states, light ones first: delta-stepping with a near and a far pile.

        Edges of the near pile are relaxed until it is empty; then all states up to its bound are settled.
        """
        near, far = starts, np.empty(0, np.int64)
        bound, is_far = self.graph.step_weight, np.zeros(len(costs), np.bool_)
        while True:
            self.run.check(self.where)
            if len(near) == 0:
                # Whatever became lighter in the meantime was relaxed with the near pile it fell into.
                far = far[costs[far] > bound]
                if len(far) == 0 or (targets is not None and bool((costs[targets] <= bound).all())):
                    return
                bound = float(costs[far].min()) + self.graph.step_weight
                is_near = costs[far] <= bound
                near, far = far[is_near], far[~is_near]
                is_far[near] = False
            improved = self._improve(near, costs, hops)
            is_near = costs[improved] <= bound
            near, later = improved[is_near], improved[~is_near]
            later = later[~is_far[later]]
            is_far[later] = True
            far = np.concatenate([far, later])

    def _improve(self, states: Indices, costs: Numeric, hops: npt.NDArray[np.int32]) -> Indices:
        """Relax the edges of some states; return those that became lighter, or were reached with fewer hops."""
        entries, reached = self._reach(states)
        degrees = self.graph.adjacency.degrees[states % self.graph.width]
        cost, count = (
            np.repeat(costs[states], degrees) + self.graph.weights[entries],
            np.repeat(hops[states] + 1, degrees),
        )
        before = costs[reached]
        is_better = np.flatnonzero((cost < before) | ((cost == before) & (count < hops[reached])))
        reached, cost, count, before = reached[is_better], cost[is_better], count[is_better], before[is_better]
        # Least values of groups without sorting; hops start over for what became lighter.
        np.minimum.at(costs, reached, cost)
        hops[reached[cost < before]] = np.iinfo(np.int32).max
        is_best = np.flatnonzero(cost == costs[reached])
        reached = reached[is_best]
        np.minimum.at(hops, reached, count[is_best])
        return distinct_below(reached, len(costs))

    def _reach(self, states: Indices) -> tuple[Indices, Indices]:
        """Return the edges that lead on from states, and the states that they lead to."""
        width = self.graph.width
        nodes = states % width
        located, entries = self.graph.steps(nodes)
        self.run.spending.reserve(len(entries), _STEP_BYTES, self.where)
        return entries, np.repeat(states - nodes, located.degrees) + self.graph.adjacency.neighbours[entries]

    def _leading_to(self, ends: Indices, costs: Numeric, hops: npt.NDArray[np.int32]) -> Mask:
        """Return the states on best paths to some ends, which a walk back along tight edges finds."""
        back, frontier, leads = replace(self, graph=self.graph.turned), ends, flag_positions(ends, len(costs))
        while len(frontier):
            entries, before = back._reach(frontier)
            degrees = back.graph.adjacency.degrees[frontier % self.graph.width]
            is_tight = hops[before] + 1 == np.repeat(hops[frontier], degrees)
            if self.graph.is_weighted:
                is_tight &= costs[before] + back.graph.weights[entries] == np.repeat(costs[frontier], degrees)
            before = before[is_tight]
            frontier = distinct_below(before[~leads[before]], len(costs))
            leads[frontier] = True
        return leads

    def _next_level(
        self,
        level: Level,
        hop: int,
        costs: Numeric,
        hops: npt.NDArray[np.int32],
        leads: Mask | None,
    ) -> Level:
        """Return the states at a number of hops, or those that are wanted, with the states before each on a best path.

        States are in the order of their best paths. Backwards, a path as written begins at its last state, so the
        smallest id among the states before decides; forwards the best path so far does.
        """
        width = self.graph.width
        located, entries = self.graph.steps(level.states % width)
        self.run.spending.reserve(len(entries), _STEP_BYTES, self.where)
        parents = located.owners()
        origin = level.states[parents]
        states = origin - origin % width + self.graph.adjacency.neighbours[entries]
        # Shortest paths form a DAG of tight edges: cost and hops of the end are those of the start plus the edge.
        is_tight = hops[states] == hop
        if self.graph.is_weighted:
            is_tight &= costs[origin] + self.graph.weights[entries] == costs[states]
        if leads is not None:
            is_tight &= leads[states]
        parents, states = parents[is_tight], states[is_tight]
        rank = self.ranks[level.states[parents] % width] if self.bounds.is_backwards else parents
        order = stable_order([states, rank], len(states))
        parents, states = parents[order], states[order]
        firsts = np.flatnonzero(run_starts(states))
        ends = np.append(firsts[1:], len(states))
        level_order = np.lexsort((self.ranks[states[firsts] % width], parents[firsts]))
        ranges = np.stack([firsts[level_order], ends[level_order]])
        return Level(states[firsts][level_order], parents, ranges)

    def _trace(self, levels: Sequence[Level], targets: Indices | None, costs: Numeric) -> Iterator[FoundPaths]:
        states = levels[-1].states
        indices = np.arange(len(states)) if targets is None else np.flatnonzero(np.isin(states, targets))
        if len(indices) == 0:
            return
        columns = [indices]
        for level in reversed(levels[1:]):
            assert level.parents is not None
            assert level.ranges is not None
            first, last = level.ranges[:, columns[0]]
            if self.count is not None:
                columns.insert(0, level.parents[first])
                continue
            degrees = last - first
            self.run.spending.reserve(int(degrees.sum()), 8 * len(levels), self.where)
            entries = range_indices(first, degrees)
            columns = [level.parents[entries], *(np.repeat(column, degrees) for column in columns)]
        self.run.spending.reserve(len(columns[0]), 8 * len(levels), self.where)
        rows = [level.states[column] for level, column in zip(levels, columns, strict=True)]
        yield FoundPaths(rows[0] // self.graph.width, np.stack(rows, axis=1) % self.graph.width, costs[rows[-1]])

    # -- k shortest --------------------------------------------------------------------------------------------

    def _guided(self, sources: Ids, targets: Indices | None) -> Iterator[FoundPaths]:
        """Yield the best paths of every wanted pair, and those that tie with the last."""
        assert targets is not None
        assert self.count is not None
        graph = self.graph
        owners, ends = np.divmod(targets, graph.width)
        back = replace(self, graph=graph.turned)
        for end in np.unique(ends).tolist():
            remaining, _ = back._distances(np.array([end], np.int64), graph.width, None)
            for owner in owners[ends == end].tolist():
                start = int(sources[owner])
                if start == end:
                    if self.bounds.minimum == 0:
                        yield FoundPaths(np.array([owner]), np.array([[start]]), np.zeros(1))
                    continue
                best = find_k_shortest(
                    graph, start, end, self.count, self.bounds.maximum, remaining, self._reserve_partial
                )
                yield from (FoundPaths(np.full(len(nodes), owner), nodes, costs) for nodes, costs in best)

    def _reserve_partial(self, count: int) -> None:
        self.run.check(self.where)
        self.run.spending.reserve(count, _STATE_BYTES + 8, self.where)

    def _enumerate(self, sources: Ids, targets: Indices | None) -> Iterator[FoundPaths]:
        """Yield paths without a repeated node, level by level, until every wanted pair has enough of them.

        By weight, a partial path that is heavier than the last one wanted of its only possible pair leads nowhere.
        """
        assert self.count is not None
        starts = np.arange(len(sources), dtype=np.int64)
        part = FoundPaths(starts, np.asarray(sources, np.int64)[:, None], np.zeros(len(sources)))
        best = _BestCosts(targets, self.graph.width, self.count, len(sources)) if targets is not None else None
        for hop in range(self.bounds.maximum + 1):
            self.run.check(self.where)
            if hop >= self.bounds.minimum:
                yield part if best is None else part.where(best.add(part))
            if best is not None:
                part = part.where(best.is_open(part))
            if len(part.starts) == 0 or hop == self.bounds.maximum:
                return
            part = self._extend(part)

    def _extend(self, part: FoundPaths) -> FoundPaths:
        located, entries = self.graph.steps(part.nodes[:, -1])
        self.run.spending.reserve(len(entries), 8 * (part.nodes.shape[1] + 3), self.where)
        parents = located.owners()
        reached = self.graph.adjacency.neighbours[entries].astype(np.int64)
        # Loopless paths, as in Yen's k shortest paths: no node comes twice.
        is_new = ~(part.nodes[parents] == reached[:, None]).any(axis=1)
        parents, reached, entries = parents[is_new], reached[is_new], entries[is_new]
        nodes = np.concatenate([part.nodes[parents], reached[:, None]], axis=1)
        return FoundPaths(part.starts[parents], nodes, part.costs[parents] + self.graph.weights[entries])

    # -- results -----------------------------------------------------------------------------------------------

    def _collect(
        self, parts: list[FoundPaths], origins: Indices, ends: Ids | None, spaces: tuple[Entities, Entities]
    ) -> tuple[PathRows, PathTable]:
        """Number the paths in the order of their nodes, keep the best of each pair, and give them to their rows."""
        parts = [part for part in parts if len(part.starts)]
        sizes = np.array([part.nodes.shape for part in parts], np.int64).reshape(len(parts), 2)
        lengths = np.repeat(sizes[:, 1], sizes[:, 0])
        starts, last = (
            np.concatenate([np.empty(0, np.int64), *columns])
            for columns in ([part.starts for part in parts], [part.nodes[:, -1] for part in parts])
        )
        costs = np.concatenate([np.empty(0), *(part.costs for part in parts)])
        order = self._order(parts, len(starts))
        lengths, starts, last, costs = lengths[order], starts[order], last[order], costs[order]
        # Start and end as one number, so that a pair is compared and grouped in one array.
        pairs = starts * self.graph.width + last
        if self.count is not None and self.count > 1:
            best = np.lexsort((lengths, costs, pairs))
            kept = np.sort(best[places_in_runs(pairs[best]) < self.count])
            order, lengths, starts, costs = order[kept], lengths[kept], starts[kept], costs[kept]
            pairs, last = pairs[kept], last[kept]
        numbers = np.full(sum(len(part.starts) for part in parts), -1, np.int64)
        numbers[order] = np.arange(len(order))
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        table = PathTable(offsets, costs, parts, numbers, self.graph, self.bounds.is_backwards, *spaces)
        return _join_rows(pairs, starts, last, origins, ends, self.graph.width), table

    def _order(self, parts: Sequence[FoundPaths], total: int) -> Indices:
        """Return the order of paths by the ids of their nodes, from left to right as written."""
        positions = [part.positions for part in parts if part.positions is not None]
        if len(positions) == len(parts) and parts:
            return np.argsort(np.concatenate(positions))
        longest = max((part.nodes.shape[1] for part in parts), default=1)
        self.run.spending.reserve(total, 16 * longest + 32, self.where)
        ranks, first = np.full((total, longest), -1, np.int64), 0
        for part in parts:
            nodes = part.nodes[:, ::-1] if self.bounds.is_backwards else part.nodes
            ranks[first : first + len(nodes), : nodes.shape[1]] = self.ranks[nodes]
            first += len(nodes)
        # Most paths from many starts, or to many ends, differ in their first node already.
        if len(np.unique(ranks[:, 0])) == total:
            return np.argsort(ranks[:, 0])
        order: Indices = np.lexsort(ranks.T[::-1])
        return order


class Level(NamedTuple):
    """The states at one number of hops; `ranges` are those of each state's predecessors in `parents`, best first."""

    states: Indices
    parents: Indices | None
    ranges: npt.NDArray[np.int64] | None


class _BestCosts:
    """The weights of the paths found so far, of each wanted pair."""

    def __init__(self, targets: Indices, width: int, count: int, sources: int) -> None:
        self._targets, self._width, self._count = targets, width, count
        self._costs = np.full((len(targets), count), np.inf)
        self._pairs_of = np.searchsorted(targets, np.arange(sources + 1) * width)

    def add(self, part: FoundPaths) -> Mask:
        """Record the paths that end a wanted pair, and return which do."""
        pairs = part.starts * self._width + part.nodes[:, -1]
        slots = np.minimum(np.searchsorted(self._targets, pairs), max(len(self._targets) - 1, 0))
        is_end: Mask = (self._targets[slots] == pairs) if len(self._targets) else np.zeros(len(pairs), np.bool_)
        slots_ended, costs = slots[is_end], part.costs[is_end]
        all_slots = np.concatenate([np.repeat(np.arange(len(self._targets)), self._count), slots_ended])
        all_costs = np.concatenate([self._costs.ravel(), costs])
        order = np.lexsort((all_costs, all_slots))
        kept = order[places_in_runs(all_slots[order]) < self._count]
        self._costs = all_costs[kept].reshape(len(self._targets), self._count)
        return is_end

    def is_open(self, part: FoundPaths) -> Mask:
        """Return which partial paths may still lead to a path that is wanted."""
        worst = np.append(self._costs[:, -1], -np.inf)
        # The heaviest that any pair of the same start still takes.
        limits = np.maximum.reduceat(worst, self._pairs_of[:-1]) if len(self._targets) else worst[:1]
        has_pairs = np.diff(self._pairs_of) > 0
        is_open: Mask = part.costs <= np.where(has_pairs, limits, -np.inf)[part.starts]
        return is_open


def _join_rows(
    pairs: Indices, starts: Indices, last: Indices, origins: Indices, ends: Ids | None, width: int
) -> PathRows:
    """Return the paths of each row, in the order of their numbers."""
    owners = starts if ends is None else pairs
    row_keys = origins.astype(np.int64) if ends is None else origins.astype(np.int64) * width + ends
    order = np.argsort(owners, kind="stable")
    first, end = (np.searchsorted(owners[order], row_keys, side) for side in ("left", "right"))
    degrees = end - first
    numbers = order[range_indices(first, degrees)]
    return PathRows(np.repeat(np.arange(len(row_keys)), degrees), last[numbers], numbers)
