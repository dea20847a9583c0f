"""Physical operators: scan, hash join, expand, cycle checks, filter, anti join and optional join.

Operators are built once per plan and stateless; `keep` names the variables that later steps need.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.query.adjacency import Adjacency
from omnigraph.engine.query.context import QueryRun
from omnigraph.engine.query.expand import (
    MANY_PAIRS,
    Expansion,
    HopBounds,
    NeighbourRanges,
    choose_walker,
    expand_hops,
    expand_into,
    expand_once,
    hop_bounds,
    intersect_neighbours,
    is_indexed_cheaper,
    visited_types,
)
from omnigraph.engine.query.expressions import Evaluate, Predicate, compile_value, variables_of
from omnigraph.engine.query.ordering import encode_values
from omnigraph.engine.query.path_graph import build_path_graph
from omnigraph.engine.query.paths import PathSearch, path_key
from omnigraph.engine.query.vectors import (
    Codes,
    Ids,
    Numbers,
    Rows,
    Strings,
    Vector,
    concatenate_rows,
    distinct_rows,
    flag_positions,
    group_offsets,
    range_indices,
)
from omnigraph.lang.catalog import INTEGERS
from omnigraph.lang.query import ir
from omnigraph.lang.query.format_plan import format_hops, format_search
from omnigraph.lang.query.ir import REVERSED, Direction
from omnigraph.lang.scalars import NUMBERS, PLAIN, RANGES


@dataclass(frozen=True)
class Join:
    """A property of the scanned nodes that must equal a property of the rows so far."""

    scanned: Evaluate
    bound: Evaluate
    text: str


def compile_join(variable: str, bound: set[str], condition: ir.Expr, text: str) -> Join | None:
    """Return a condition as a join of a scan, or None when it is not one."""
    for scanned, bound_side in equal_sides(condition):
        is_pair = isinstance(scanned, ir.PropertyRef) and isinstance(bound_side, ir.PropertyRef | ir.ValueRef)
        if (
            is_pair
            and variables_of(scanned) == {variable}
            and variables_of(bound_side) <= bound
            and _is_joinable(scanned, bound_side)
        ):
            return Join(compile_value(scanned), compile_value(bound_side), text)
    return None


def equal_sides(condition: ir.Expr) -> Iterator[tuple[ir.Expr, ir.Expr]]:
    """Yield the two sides of an equality in either order; nothing of another condition."""
    if isinstance(condition, ir.Compare) and condition.op is ir.CompareOp.EQ:
        yield condition.left, condition.right
        yield condition.right, condition.left


def _is_joinable(scanned: ir.Expr, bound_side: ir.Expr) -> bool:
    assert scanned.type is not None
    assert bound_side.type is not None
    first, second = scanned.type, bound_side.type
    if first.is_list or second.is_list:
        return False
    if first.scalar in INTEGERS and second.scalar in INTEGERS:
        # The largest unsigned integers do not fit beside signed ones, so they are compared pair by pair.
        return max(RANGES[first.scalar][1], RANGES[second.scalar][1]) < 2**63
    return first.scalar is second.scalar and first.scalar in PLAIN - NUMBERS


def hash_join(left: Vector, right: Vector) -> NeighbourRanges:
    """Return, for each left value, where the equal right values are; a null equals nothing."""
    codes, size, left_count = _join_codes(left, right)
    lefts, rights = codes[:left_count], codes[left_count:]
    # The code of null is 0, and nothing is there.
    non_null = np.flatnonzero(rights)
    order = non_null[np.argsort(rights[non_null], kind="stable")]
    starts = group_offsets(rights[non_null], size)
    matches = Adjacency(starts, order, None, len(rights))
    return NeighbourRanges(matches, starts[:-1][lefts], matches.degrees[lefts])


def _join_codes(left: Vector, right: Vector) -> tuple[Codes, int, int]:
    """Return the codes of the left values and then the right ones, how many codes there may be, and left values."""
    if isinstance(left, Strings) and isinstance(right, Strings):
        strings: Any = pa.chunked_array([left.array, right.array]).combine_chunks()
        return *encode_values(Strings(strings), len(strings)), len(left.array)
    assert isinstance(left, Numbers)
    assert isinstance(right, Numbers)
    data = np.concatenate([left.data.astype(np.int64), right.data.astype(np.int64)])
    valid = np.concatenate([left.valid_mask, right.valid_mask])
    return *encode_values(Numbers(data, valid), len(data)), len(left.data)


# Fewer than one row in this many are worth copying before the next condition is checked.
_SELECTIVE: Final = 8

Ranker = Callable[[QueryRun, Ids], Ids]
KeyLookup = Callable[[QueryRun], Ids]


@dataclass(kw_only=True)
class PlanStep(ABC):
    """One operator; `title` describes it, and `inner` is the pipeline of a join."""

    keep: frozenset[str] = frozenset()
    inner: Pipeline | None = None

    @property
    @abstractmethod
    def title(self) -> str: ...
    @abstractmethod
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


# What a join has until it is planned.
EMPTY_PIPELINE: Final = Pipeline((), False, frozenset())


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
class Scan(PlanStep):
    """All nodes of a type that pass the conditions, crossed with the rows so far."""

    variable: str
    node_type: str
    conditions: tuple[Condition, ...]
    find_key: KeyLookup | None
    is_existence: bool = False
    narrow: Ranker | None = None
    join: Join | None = None

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
            return rows.take(matches.owners()).with_columns({self.variable: ids[matches.neighbours()]})
        rows = rows.only(self.keep)
        total = rows.count * len(ids)
        run.spending.reserve(total, rows.row_bytes + ids.dtype.itemsize, self.title)
        columns = {name: np.repeat(array, len(ids)) for name, array in rows.columns.items()}
        return Rows(total, {**columns, self.variable: np.tile(ids, rows.count)})

    def find(self, run: QueryRun) -> Ids:
        entities = run.nodes(self.node_type)
        ids = entities.all if self.find_key is None else self.find_key(run)
        rows = filter_rows(run, Rows(len(ids), {self.variable: ids}), self.conditions)
        ids = rows.columns[self.variable]
        return ids if self.narrow is None else self.narrow(run, ids)


@dataclass
class Expand(PlanStep):
    """One walk from a bound variable; the conditions apply to the reached nodes."""

    walk: ir.Expand
    conditions: tuple[Condition, ...]
    is_existence: bool = False
    # Finds the only node that the conditions can be true of.
    find_target: KeyLookup | None = None

    @cached_property
    def title(self) -> str:
        walk = self.walk
        hops = "" if walk.is_single else format_hops(walk.minimum, walk.maximum)
        verb = "test" if self.is_existence else "expand"
        if walk.path is not None:
            verb = f"paths ${walk.path.variable} {format_search(walk.path)}"
        target = f"${walk.target}: {walk.target_type}{format_conditions(self.conditions)}"
        return f"{verb} {_format_walk(walk)}{hops} {target}"

    def run(self, run: QueryRun, rows: Rows) -> Rows:
        walk = self.walk
        if self.is_existence:
            return rows.where(self.degrees(run, rows) > 0)
        rows = drop_null_rows(rows, walk.source)
        bounds = hop_bounds(run, walk)
        if bounds.minimum > bounds.maximum:
            rows = rows.take(np.empty(0, np.int64))
        sources = rows.columns[walk.source]
        if walk.path is not None:
            return self._search_paths(run, rows, walk.path, bounds)
        outer = rows.only(self.keep)
        reached = self._reach(run, sources, bounds, outer.row_bytes + 8)
        bindings = {walk.target: reached.targets, **_bind_edges_and_hops(walk, reached)}
        return extend_rows(run, outer, reached.rows, bindings, self.conditions)

    def _search_paths(self, run: QueryRun, rows: Rows, path: ir.Path, bounds: HopBounds) -> Rows:
        walk, space_type = self.walk, visited_types(self.walk)
        space, edges = run.nodes(space_type), run.edges(walk.edge)
        if path.end is not None:
            rows = drop_null_rows(rows, path.end)
        run.note("traversal", "csr")
        run.note("because", "paths are searched in memory")
        topology = run.union_topology(walk.legs, space_type, space_type)
        graph = topology.derived(path.weight, lambda adjacency: build_path_graph(adjacency, edges, path.weight))
        starts = run.convert_ids(rows.columns[walk.source], walk.source_type, space_type)
        ends = None
        if path.end is not None:
            # A node of a type that no path leads to has an end that none of them has.
            ends = run.convert_ids(rows.columns[path.end], walk.target_type, space_type)
            rows, starts, ends = rows.where(ends >= 0), starts[ends >= 0], ends[ends >= 0]
        count = None if path.is_all else run.bound(path.count, "shortest", least=1)
        search = PathSearch(run, graph, bounds, count, space.id_ranks, self.title)
        paths, table = search.search(starts, ends, (space, edges))
        run.scratch[path_key(path.variable)] = table
        targets = run.convert_ids(paths.targets, space_type, walk.target_type)
        kept = np.flatnonzero(targets >= 0)
        bindings: dict[str, Ids] = {walk.target: targets[kept], path.variable: paths.numbers[kept]}
        return extend_rows(run, rows.only(self.keep), paths.rows[kept], bindings, self.conditions)

    def degrees(self, run: QueryRun, rows: Rows) -> Ids:
        """Return how many neighbours the node of each row has, or edges if the walk binds them; null has none."""
        sources = rows.columns[self.walk.source]
        if not len(sources) or sources.min() >= 0:
            return choose_walker(run, self.walk, len(sources)).locate(sources).degrees
        present, degrees = sources >= 0, np.zeros(len(sources), np.int64)
        degrees[present] = self.degrees(run, rows.only((self.walk.source,)).where(present))
        return degrees

    def _reach(self, run: QueryRun, sources: Ids, bounds: HopBounds, row_bytes: int) -> Expansion:
        walk = self.walk
        if walk.is_single or walk.joins_types:
            return expand_once(run, choose_walker(run, walk, len(sources)), sources, row_bytes, self.title)
        space = visited_types(walk)
        node_count = run.nodes(space).count
        walker = choose_walker(run, walk, len(sources), bounds.maximum, (space, space))
        starts = run.convert_ids(sources, walk.source_type, space)
        reached = expand_hops(run, walker, starts, node_count, bounds, row_bytes, self.title)
        if space == walk.target_type:
            return reached
        targets = run.convert_ids(reached.targets, space, walk.target_type)
        kept = np.flatnonzero(targets >= 0)
        assert reached.hops is not None
        return Expansion(reached.rows[kept], targets[kept], None, reached.hops[kept])


@dataclass
class ExpandInto(PlanStep):
    """Keep the rows whose two bound ends an edge joins; with an edge variable, once per edge."""

    walk: ir.Expand
    end: str

    @cached_property
    def title(self) -> str:
        return f"close {_format_walk(self.walk)} ${self.end}"

    def run(self, run: QueryRun, rows: Rows) -> Rows:
        walk = self.walk
        rows = drop_null_rows(drop_null_rows(rows, walk.source), self.end)
        sources, ends = rows.columns[walk.source], rows.columns[self.end]
        walker = choose_walker(run, walk, len(sources))
        reached = expand_into(run, walker, sources, ends, rows.row_bytes + 8, self.title)
        return extend_rows(run, rows.only(self.keep), reached.rows, _bind_edges_and_hops(walk, reached), ())


def _format_walk(walk: ir.Expand) -> str:
    edge = f"${walk.edge_variable}:{walk.edge}" if walk.edge_variable else walk.edge
    return f"${walk.source} {walk.direction} {edge}"


def _bind_edges_and_hops(walk: ir.Expand, reached: Expansion) -> dict[str, Ids]:
    bindings: dict[str, Ids] = {}
    if walk.edge_variable is not None and reached.edges is not None:
        bindings[walk.edge_variable] = reached.edges
    if walk.hops_variable is not None:
        bindings[walk.hops_variable] = np.ones(len(reached.rows), np.int64) if reached.hops is None else reached.hops
    return bindings


@dataclass
class ExpandIntersect(PlanStep):
    """Expand and cycle check in one, by intersecting neighbour lists (worst-case optimal join)."""

    expand: Expand
    closing: ExpandInto

    @staticmethod
    def of(expand: PlanStep, closing: PlanStep) -> ExpandIntersect | None:
        """Fuse two steps, if the second only checks whether the reached node is also a neighbour of another one."""
        if not isinstance(expand, Expand) or not isinstance(closing, ExpandInto):
            return None
        walk, check = expand.walk, closing.walk
        if expand.is_existence or not walk.is_single or walk.legs or check.legs:
            return None
        if {walk.edge_variable, walk.hops_variable, check.edge_variable, check.hops_variable} != {None}:
            return None
        if (check.source == walk.target) == (closing.end == walk.target):
            return None
        return ExpandIntersect(expand, closing, keep=closing.keep)

    @cached_property
    def title(self) -> str:
        return f"{self.expand.title} and {self.closing.title}"

    @property
    def _other(self) -> tuple[str, Direction]:
        """Return the variable at which the cycle ends, and the direction from there."""
        check, end = self.closing.walk, self.closing.end
        return (check.source, check.direction) if end == self.expand.walk.target else (end, REVERSED[check.direction])

    def run(self, run: QueryRun, rows: Rows) -> Rows:
        walk, (other, direction) = self.expand.walk, self._other
        rows = drop_null_rows(drop_null_rows(rows, walk.source), other)
        sources, others = rows.columns[walk.source], rows.columns[other]
        walks = ((walk.edge, walk.direction), (self.closing.walk.edge, direction))
        if any(is_indexed_cheaper(run, *pair, 1, rows.count)[0] for pair in walks):
            return self._one_by_one(run, rows)
        near = run.topology(walk.edge).adjacency(walk.direction, per_edge=False)
        if int(near.degrees[sources].sum()) <= MANY_PAIRS:
            # Too few pairs to justify building another adjacency direction.
            return self._one_by_one(run, rows)
        far = run.topology(self.closing.walk.edge).adjacency(direction, per_edge=False)
        choose_walker(run, walk, rows.count)
        outer = rows.only(self.keep)
        reached = intersect_neighbours(run, near, sources, far, others, outer.row_bytes + 8, self.title)
        return extend_rows(run, outer, reached.rows, {walk.target: reached.targets}, self.expand.conditions)

    def _one_by_one(self, run: QueryRun, rows: Rows) -> Rows:
        walked = self.expand.run(run, rows).only(self.expand.keep)
        return self.closing.run(run, walked) if walked.count else walked


@dataclass
class PathNodes(PlanStep):
    """Bind each node of a bound path, one row each."""

    path: str
    variable: str
    node_type: str
    conditions: tuple[Condition, ...]

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
class Filter(PlanStep):
    """Keep the rows for which all conditions are true."""

    conditions: tuple[Condition, ...]

    @cached_property
    def title(self) -> str:
        return f"filter{format_conditions(self.conditions).removeprefix(' where')}"

    def run(self, run: QueryRun, rows: Rows) -> Rows:
        return filter_rows(run, rows, self.conditions)


@dataclass
class CorrelatedJoin(PlanStep):
    """A step that asks what the inner pipeline returns for each row, of all rows at once (decorrelation).

    The inner pipeline runs over the distinct values of the one variable that it reads from outside, or over rows
    numbered by `marker` where it reads several.
    """

    marker: str
    _: KW_ONLY
    inner: Pipeline = EMPTY_PIPELINE
    correlated: tuple[str, ...] = ()

    def single_walk(self, run: QueryRun) -> Expand | None:
        """Return the walk that is all there is to the inner pipeline, if each of its rows is one neighbour."""
        # A profile wants the rows of the walk.
        if run.observer is not None or len(self.inner.steps) != 1:
            return None
        [step] = self.inner.steps
        is_walk = isinstance(step, Expand) and step.walk.is_single and not step.conditions
        return step if is_walk and isinstance(step, Expand) and self.correlated == (step.walk.source,) else None

    def match(self, run: QueryRun, rows: Rows) -> tuple[Ids, Ids]:
        """Return what stands for each row in the inner pipeline, an entity or a number, and that of each inner row."""
        if len(self.correlated) == 1:
            [name] = self.correlated
            outer = distinct_rows(rows.only(self.correlated))
            return rows.columns[name], self.inner.run(run, outer).columns[name]
        numbers = np.arange(rows.count)
        outer = rows.only(self.correlated).with_columns({self.marker: numbers})
        return numbers, self.inner.run(run, outer).columns[self.marker]


@dataclass
class AntiJoin(CorrelatedJoin):
    """Keep the rows for which the inner pipeline returns no row (anti-join)."""

    @cached_property
    def title(self) -> str:
        return "anti join"

    def run(self, run: QueryRun, rows: Rows) -> Rows:
        if (step := self.single_walk(run)) is not None:
            return rows.where(step.degrees(run, rows) == 0)
        asked, matched = self.match(run, rows)
        return rows.where(~flag_positions(matched, int(asked.max(initial=0)) + 2)[asked])


@dataclass
class OptionalJoin(PlanStep):
    """Replace each row by its inner solutions, or keep it with the new variables null."""

    bindings: tuple[str, ...]
    marker: str
    _: KW_ONLY
    inner: Pipeline = EMPTY_PIPELINE

    @cached_property
    def title(self) -> str:
        return f"optional join {', '.join(f'${name}' for name in self.bindings)}".rstrip()

    def run(self, run: QueryRun, rows: Rows) -> Rows:
        marked = rows.with_columns({self.marker: np.arange(rows.count)})
        solved = self.inner.run(run, marked)
        unsolved = rows.where(~flag_positions(solved.columns[self.marker], rows.count))
        kept_variables = self.keep - {self.marker}
        null = np.full(unsolved.count, -1, np.int32)
        missing = {name: null for name in self.bindings if name in kept_variables}
        return concatenate_rows(solved.only(kept_variables), unsolved.with_columns(missing).only(kept_variables))


def drop_null_rows(rows: Rows, name: str) -> Rows:
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


def format_conditions(conditions: Sequence[Condition]) -> str:
    return f" where {' and '.join(condition.text for condition in conditions)}" if conditions else ""
