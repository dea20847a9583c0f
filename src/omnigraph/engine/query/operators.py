"""Physical operators: scan, expand, cycle checks, filter, anti join and optional join.

Operators are built once per plan and stateless; `keep` names the variables that later steps need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

import numpy as np

from omnigraph.engine.query.adjacency import convert_ids
from omnigraph.engine.query.context import QueryRun
from omnigraph.engine.query.expand import (
    MANY_PAIRS,
    Expansion,
    HopBounds,
    Walker,
    choose_union_walker,
    choose_walker,
    expand_hops,
    expand_into,
    expand_once,
    intersect_neighbours,
    is_indexed_cheaper,
)
from omnigraph.engine.query.expressions import Predicate
from omnigraph.engine.query.hash_join import Join, hash_join
from omnigraph.engine.query.paths import PathSearch, build_path_graph, path_key
from omnigraph.engine.query.vectors import Ids, Mask, Rows, concatenate_rows, distinct_rows, range_indices
from omnigraph.lang.catalog import TypeKey
from omnigraph.lang.query import ir
from omnigraph.lang.query.format_plan import format_hops, format_search
from omnigraph.lang.query.ir import REVERSED, Direction

# Fewer than one row in this many are worth copying before the next condition is checked.
_SELECTIVE: Final = 8

Ranker = Callable[[QueryRun, Ids], Ids]
KeyLookup = Callable[[QueryRun], Ids]


class PlanStep(Protocol):
    """One operator; `title` describes it, and `inner` is the pipeline of a join."""

    keep: frozenset[str]

    @property
    def title(self) -> str: ...
    @property
    def inner(self) -> Pipeline | None: ...
    def run(self, run: QueryRun, rows: Rows) -> Rows: ...


@dataclass(frozen=True)
class Pipeline:
    """Steps in order; `as_set` means that duplicate rows do not matter, so they can be dropped early."""

    steps: tuple[PlanStep, ...]
    as_set: bool
    outputs: frozenset[str]

    def run(self, run: QueryRun, rows: Rows) -> Rows:
        for step in self.steps:
            if rows.count == 0:
                return Rows(0, {name: np.empty(0, np.int32) for name in self.outputs})
            before = rows
            rows = step.run(run, rows) if run.observer is None else run.observer.observe(run, step, rows)
            rows = rows.only(step.keep)
            if self.as_set and _may_duplicate_rows(before, rows):
                rows = distinct_rows(rows)
        return rows


def _may_duplicate_rows(before: Rows, after: Rows) -> bool:
    """True if a step may have produced duplicates: it dropped a variable, or added one that is not kept."""
    if not before.columns.keys() <= after.columns.keys():
        return True
    return after.count > before.count and len(after.columns) == len(before.columns)


@dataclass(frozen=True)
class Condition:
    """A compiled condition, with the variables it reads and its text."""

    test: Predicate
    variables: frozenset[str]
    text: str
    # Types and properties whose texts it searches.
    searched: tuple[tuple[str, str], ...] = ()


@dataclass
class Scan:
    """All nodes of a type that pass the conditions, crossed with the rows so far."""

    variable: str
    node_type: str
    conditions: tuple[Condition, ...]
    find_key: KeyLookup | None
    keep: frozenset[str] = frozenset()
    is_existence: bool = False
    narrow: Ranker | None = None
    join: Join | None = None
    inner: Pipeline | None = None

    @cached_property
    def title(self) -> str:
        how = "look up" if self.find_key is not None else "scan"
        joined = f" joined on {self.join.text}" if self.join is not None else ""
        return f"{how} ${self.variable}: {self.node_type}{format_conditions(self.conditions)}{joined}"

    def run(self, run: QueryRun, rows: Rows) -> Rows:
        ids = self.find(run)
        if self.is_existence:
            return rows if len(ids) else rows.take(np.empty(0, np.int64))
        if rows.count == 1 and not rows.columns:
            return Rows(len(ids), {self.variable: ids})
        if self.join is not None:
            matches = hash_join(
                self.join.bound(run, rows), self.join.scanned(run, Rows(len(ids), {self.variable: ids}))
            )
            rows = rows.only(self.keep)
            run.spending.reserve(matches.total, rows.row_bytes + 32, self.title)
            left_rows = np.repeat(np.arange(rows.count), matches.degrees)
            return rows.take(left_rows).with_columns(
                {self.variable: ids[matches.adjacency.neighbours[matches.entries()]]}
            )
        rows = rows.only(self.keep)
        total = rows.count * len(ids)
        run.spending.reserve(total, rows.row_bytes + ids.dtype.itemsize, self.title)
        columns = {name: np.repeat(array, len(ids)) for name, array in rows.columns.items()}
        return Rows(total, {**columns, self.variable: np.tile(ids, rows.count)})

    def find(self, run: QueryRun) -> Ids:
        """Return the nodes themselves."""
        entities = run.nodes(self.node_type)
        ids = entities.all if self.find_key is None else self.find_key(run)
        rows = filter_rows(run, Rows(len(ids), {self.variable: ids}), self.conditions)
        ids = rows.columns[self.variable]
        return ids if self.narrow is None else self.narrow(run, ids)


@dataclass
class Expand:
    """One walk from a bound variable; the conditions apply to the reached nodes."""

    source: str
    target: str
    target_type: str
    edge: str
    direction: Direction
    minimum: ir.HopBound
    maximum: ir.HopBound | None
    conditions: tuple[Condition, ...]
    edge_variable: str | None
    hops_variable: str | None
    is_backwards: bool = False
    source_type: str = ""
    legs: tuple[ir.Leg, ...] = ()
    path: ir.Path | None = None
    keep: frozenset[str] = frozenset()
    is_existence: bool = False
    inner: Pipeline | None = None

    @cached_property
    def title(self) -> str:
        hops = "" if self.is_single else format_hops(self.minimum, self.maximum)
        edge = f"${self.edge_variable}:{self.edge}" if self.edge_variable else self.edge
        walk = f"${self.source} {self.direction} {edge}{hops} ${self.target}: {self.target_type}"
        verb = "test" if self.is_existence else "expand"
        if self.path is not None:
            verb = f"paths ${self.path.variable} {format_search(self.path)}"
        return f"{verb} {walk}{format_conditions(self.conditions)}"

    @property
    def is_single(self) -> bool:
        return self.minimum == self.maximum == 1 and self.path is None

    @property
    def joins_types(self) -> bool:
        """True for one edge between different types, which cannot follow itself: it is walked once or not at all."""
        return not self.legs and self.source_type != self.target_type

    def run(self, run: QueryRun, rows: Rows) -> Rows:
        rows = drop_null_rows(rows, self.source)
        bounds = self.bounds(run)
        if bounds.minimum > bounds.maximum:
            rows = rows.take(np.empty(0, np.int64))
        sources = rows.columns[self.source]
        if self.is_existence:
            return rows.where(self.test(run, sources))
        outer = rows.only(self.keep)
        if self.path is not None:
            return self._search_paths(run, rows, self.path, bounds)
        reached = self._reach(run, sources, bounds, outer.row_bytes + 8)
        bindings: dict[str, Ids] = {self.target: reached.targets}
        if self.edge_variable is not None and reached.edges is not None:
            bindings[self.edge_variable] = reached.edges
        if self.hops_variable is not None:
            bindings[self.hops_variable] = (
                np.ones(len(reached.targets), np.int64) if reached.hops is None else reached.hops
            )
        return extend_rows(run, outer, reached.rows, bindings, self.conditions)

    def _search_paths(self, run: QueryRun, rows: Rows, path: ir.Path, bounds: HopBounds) -> Rows:
        space, edges = run.nodes(self.space), run.edges(self.edge)
        if path.end is not None:
            rows = drop_null_rows(rows, path.end)
        run.note("traversal", "csr")
        run.note("because", "paths are searched in memory")
        topology = run.union_topology(self.legs, self.space, self.space)
        graph = topology.derived(path.weight, lambda adjacency: build_path_graph(adjacency, edges, path.weight))
        starts = convert_ids(
            rows.columns[self.source], run.nodes(self.source_type), self.source_type, space, self.space
        )
        ends = None
        if path.end is not None:
            # A node of a type that no path leads to has an end that none of them has.
            ends = convert_ids(rows.columns[path.end], run.nodes(self.target_type), self.target_type, space, self.space)
            rows, starts, ends = rows.where(ends >= 0), starts[ends >= 0], ends[ends >= 0]
        count = None if path.is_all else run.bound(path.count, "shortest", least=1)
        search = PathSearch(run, graph, bounds, count, space.id_ranks, self.title)
        paths, table = search.search(starts, ends, (space, edges))
        run.scratch[path_key(path.variable)] = table
        targets = convert_ids(paths.targets, space, self.space, run.nodes(self.target_type), self.target_type)
        kept = np.flatnonzero(targets >= 0)
        bindings: dict[str, Ids] = {self.target: targets[kept], path.variable: paths.numbers[kept]}
        return extend_rows(run, rows.only(self.keep), paths.rows[kept], bindings, self.conditions)

    def test(self, run: QueryRun, sources: Ids) -> Mask:
        """Return the mask of nodes that have a neighbour; none may be null."""
        walker = _choose_walker(run, self, self.source_type, self.target_type, 1, len(sources))
        return walker.locate(sources).degrees > 0

    def bounds(self, run: QueryRun) -> HopBounds:
        """Return the hop bounds of a run; an open range ends at the number of nodes, beyond which nothing is new."""
        minimum = run.bound(self.minimum, "hops")
        if self.maximum is None:
            maximum = max(run.row_count(TypeKey.of("node", self.space)), minimum)
        else:
            maximum = run.bound(self.maximum, "hops")
            if self.joins_types:
                minimum, maximum = max(minimum, 1), min(maximum, 1)
        return HopBounds(minimum, maximum, self.is_backwards)

    @cached_property
    def space(self) -> str:
        """The types that a walk of several hops visits."""
        return ir.walk_space(self.source_type, self.legs) if self.legs else self.target_type

    def _reach(self, run: QueryRun, sources: Ids, bounds: HopBounds, row_bytes: int) -> Expansion:
        if self.is_single or self.joins_types:
            walker = _choose_walker(run, self, self.source_type, self.target_type, 1, len(sources))
            return expand_once(run, walker, sources, row_bytes, self.title)
        space = run.nodes(self.space)
        walker = _choose_walker(run, self, self.space, self.space, bounds.maximum, len(sources))
        if not self.legs:
            return expand_hops(run, walker, sources, space.count, bounds, row_bytes, self.title)
        starts = convert_ids(sources, run.nodes(self.source_type), self.source_type, space, self.space)
        reached = expand_hops(run, walker, starts, space.count, bounds, row_bytes, self.title)
        targets = convert_ids(reached.targets, space, self.space, run.nodes(self.target_type), self.target_type)
        kept = np.flatnonzero(targets >= 0)
        assert reached.hops is not None
        return Expansion(reached.rows[kept], targets[kept], None, reached.hops[kept])


@dataclass
class ExpandInto:
    """Keep the rows whose two bound ends an edge joins; with an edge variable, once per edge."""

    source: str
    end: str
    edge: str
    direction: Direction
    edge_variable: str | None
    hops_variable: str | None
    ends: tuple[str, str] = ("", "")
    legs: tuple[ir.Leg, ...] = ()
    keep: frozenset[str] = frozenset()
    inner: Pipeline | None = None

    @cached_property
    def title(self) -> str:
        edge = f"${self.edge_variable}:{self.edge}" if self.edge_variable else self.edge
        return f"close ${self.source} {self.direction} {edge} ${self.end}"

    def run(self, run: QueryRun, rows: Rows) -> Rows:
        rows = drop_null_rows(drop_null_rows(rows, self.source), self.end)
        sources, ends = rows.columns[self.source], rows.columns[self.end]
        walker = _choose_walker(run, self, *self.ends, 1, len(sources))
        reached = expand_into(run, walker, sources, ends, rows.row_bytes + 8, self.title)
        bindings: dict[str, Ids] = {}
        if self.edge_variable is not None and reached.edges is not None:
            bindings[self.edge_variable] = reached.edges
        if self.hops_variable is not None:
            bindings[self.hops_variable] = np.ones(len(reached.rows), np.int64)
        return extend_rows(run, rows.only(self.keep), reached.rows, bindings, ())


def _choose_walker(run: QueryRun, step: Expand | ExpandInto, near: str, far: str, hops: int, frontier: int) -> Walker:
    """Return the cheaper traversal of a step from so many nodes, and report it."""
    per_edge = step.edge_variable is not None
    if step.legs:
        walker = choose_union_walker(run, step.legs, near, far, hops, frontier, per_edge=per_edge)
    else:
        walker = choose_walker(run, step.edge, step.direction, hops, frontier, per_edge=per_edge)
    report_walker(run, walker)
    return walker


@dataclass
class ExpandIntersect:
    """Expand and cycle check in one, by intersecting neighbour lists (worst-case optimal join)."""

    walk: Expand
    closing: ExpandInto
    keep: frozenset[str] = frozenset()
    inner: Pipeline | None = None

    @staticmethod
    def of(walk: PlanStep, closing: PlanStep) -> ExpandIntersect | None:
        """Fuse two steps, if the second only checks whether the reached node is also a neighbour of another one."""
        if (
            not isinstance(walk, Expand)
            or not isinstance(closing, ExpandInto)
            or walk.is_existence
            or not walk.is_single
            or walk.legs
            or closing.legs
        ):
            return None
        if {walk.edge_variable, walk.hops_variable, closing.edge_variable, closing.hops_variable} != {None}:
            return None
        if (closing.source == walk.target) == (closing.end == walk.target):
            return None
        return ExpandIntersect(walk, closing, closing.keep)

    @cached_property
    def title(self) -> str:
        return f"{self.walk.title} and {self.closing.title}"

    @property
    def _other(self) -> tuple[str, Direction]:
        """Return the variable at which the cycle ends, and the direction from there."""
        closing = self.closing
        if closing.end == self.walk.target:
            return closing.source, closing.direction
        return closing.end, REVERSED[closing.direction]

    def run(self, run: QueryRun, rows: Rows) -> Rows:
        other, direction = self._other
        rows = drop_null_rows(drop_null_rows(rows, self.walk.source), other)
        sources, others = rows.columns[self.walk.source], rows.columns[other]
        walks = ((self.walk.edge, self.walk.direction), (self.closing.edge, direction))
        if any(is_indexed_cheaper(run, *walk, 1, rows.count)[0] for walk in walks):
            return self._one_by_one(run, rows)
        near = run.topology(self.walk.edge).adjacency(self.walk.direction, per_edge=False)
        if int(near.degrees[sources].sum()) <= MANY_PAIRS:
            # Too few pairs to justify building another adjacency direction.
            return self._one_by_one(run, rows)
        far = run.topology(self.closing.edge).adjacency(direction, per_edge=False)
        report_walker(run, choose_walker(run, *walks[0], 1, rows.count, per_edge=False))
        outer = rows.only(self.keep)
        reached = intersect_neighbours(run, near, sources, far, others, outer.row_bytes + 8, self.title)
        return extend_rows(run, outer, reached.rows, {self.walk.target: reached.targets}, self.walk.conditions)

    def _one_by_one(self, run: QueryRun, rows: Rows) -> Rows:
        walked = self.walk.run(run, rows).only(self.walk.keep)
        return self.closing.run(run, walked) if walked.count else walked


@dataclass
class PathNodes:
    """Bind each node of a bound path, one row each."""

    path: str
    variable: str
    node_type: str
    conditions: tuple[Condition, ...]
    keep: frozenset[str] = frozenset()
    inner: Pipeline | None = None

    @cached_property
    def title(self) -> str:
        return f"bind ${self.variable}: {self.node_type} in nodes(${self.path}){format_conditions(self.conditions)}"

    def run(self, run: QueryRun, rows: Rows) -> Rows:
        rows = drop_null_rows(rows, self.path)
        numbers = rows.columns[self.path]
        if not rows.count:
            return Rows(0, {name: np.empty(0, np.int32) for name in {*self.keep, self.variable}})
        table = run.scratch[path_key(self.path)]
        lengths = table.lengths[numbers] + 1
        outer = rows.only(self.keep)
        run.spending.reserve(int(lengths.sum()), outer.row_bytes + 16, self.title)
        nodes = table.nodes[range_indices(table.offsets[:-1][numbers], lengths)]
        parents = np.repeat(np.arange(rows.count), lengths)
        return extend_rows(run, outer, parents, {self.variable: nodes}, self.conditions)


@dataclass
class Filter:
    """Keep the rows for which all conditions are true."""

    conditions: tuple[Condition, ...]
    keep: frozenset[str] = frozenset()
    inner: Pipeline | None = None

    @cached_property
    def title(self) -> str:
        return f"filter{format_conditions(self.conditions).removeprefix(' where')}"

    def run(self, run: QueryRun, rows: Rows) -> Rows:
        return filter_rows(run, rows, self.conditions)


@dataclass
class AntiJoin:
    """Keep the rows for which the inner pipeline returns no row (anti-join)."""

    inner: Pipeline
    correlated: tuple[str, ...]
    marker: str
    keep: frozenset[str] = frozenset()

    @cached_property
    def title(self) -> str:
        return "anti join"

    def run(self, run: QueryRun, rows: Rows) -> Rows:
        if len(self.correlated) == 1:
            [name] = self.correlated
            if (walk := self._single_walk(run)) is not None and walk.source == name:
                return _drop_expandable(rows, walk, run)
            # The result depends on one outer variable only, so each of its entities is checked once.
            candidates = distinct_rows(rows.only((name,)))
            matched = self.inner.run(run, candidates).columns[name]
            flags = np.zeros(int(rows.columns[name].max()) + 2, np.bool_)
            flags[matched] = True
            return rows.where(~flags[rows.columns[name]])
        marked = rows.only(self.correlated).with_columns({self.marker: np.arange(rows.count)})
        matched = self.inner.run(run, marked).columns[self.marker]
        flags = np.zeros(rows.count, np.bool_)
        flags[matched] = True
        return rows.where(~flags)

    def _single_walk(self, run: QueryRun) -> Expand | None:
        """Return the walk that is all there is to the inner pipeline, if it needs no rows; a profile wants its rows."""
        if run.observer is not None or len(self.inner.steps) != 1:
            return None
        [step] = self.inner.steps
        return step if isinstance(step, Expand) and step.is_existence else None


def _drop_expandable(rows: Rows, walk: Expand, run: QueryRun) -> Rows:
    """Return the rows from which a walk leads nowhere; it never leads on from null."""
    ids = rows.columns[walk.source]
    if len(ids) and ids.min() < 0:
        leads = np.zeros(rows.count, np.bool_)
        leads[ids >= 0] = walk.test(run, ids[ids >= 0])
        return rows.where(~leads)
    return rows.where(~walk.test(run, ids))


@dataclass
class OptionalJoin:
    """Replace each row by its inner solutions, or keep it with the new variables null."""

    inner: Pipeline
    bindings: tuple[str, ...]
    marker: str
    keep: frozenset[str] = frozenset()

    @cached_property
    def title(self) -> str:
        return f"optional join {', '.join(f'${name}' for name in self.bindings)}".rstrip()

    def run(self, run: QueryRun, rows: Rows) -> Rows:
        marked = rows.with_columns({self.marker: np.arange(rows.count)})
        solved = self.inner.run(run, marked)
        flags = np.zeros(rows.count, np.bool_)
        flags[solved.columns[self.marker]] = True
        unsolved = rows.where(~flags)
        kept_variables = self.keep - {self.marker}
        null = np.full(unsolved.count, -1, np.int32)
        missing = {name: null for name in self.bindings if name in kept_variables}
        return concatenate_rows(solved.only(kept_variables), unsolved.with_columns(missing).only(kept_variables))


def drop_null_rows(rows: Rows, name: str) -> Rows:
    """Return the rows in which a variable is not null."""
    ids = rows.columns[name]
    return rows.where(ids >= 0) if len(ids) and ids.min() < 0 else rows


def extend_rows(
    run: QueryRun, outer: Rows, row_indices: Ids, bindings: dict[str, Ids], conditions: Sequence[Condition]
) -> Rows:
    """Return the rows at some places with new variables, after the conditions on those."""
    if conditions:
        # What does not pass is dropped before the other variables are copied.
        candidates = Rows(len(row_indices), {**bindings, "~place": row_indices})
        candidates = filter_rows(run, candidates, conditions)
        row_indices = candidates.columns["~place"]
        bindings = {name: candidates.columns[name] for name in bindings}
    return outer.take(row_indices).with_columns(bindings)


def filter_rows(run: QueryRun, rows: Rows, conditions: Sequence[Condition]) -> Rows:
    """Return the rows for which all conditions are true; they are copied once few are left, or at the end."""
    mask = None
    for condition in conditions:
        true = condition.test(run, rows)
        mask = true if mask is None else mask & true
        if np.count_nonzero(mask) * _SELECTIVE < rows.count:
            rows, mask = rows.where(mask), None
    return rows if mask is None else rows.where(mask)


def report_walker(run: QueryRun, walker: Walker) -> None:
    run.note("traversal", walker.mode)
    run.note("because", walker.reason)


def format_conditions(conditions: Sequence[Condition]) -> str:
    """Return conditions as the end of a title."""
    return f" where {' and '.join(condition.text for condition in conditions)}" if conditions else ""
