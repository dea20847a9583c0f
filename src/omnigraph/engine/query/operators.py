"""Steps: the operators of a physical plan, each a function from rows to rows.

A step is made once per plan and holds no state of a run; `keep` names the variables that later steps still need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engine.query.adjacency import REVERSED, Adjacency
from omnigraph.engine.query.context import Run, nulls
from omnigraph.engine.query.expand import (
    MANY_PAIRS,
    Hops,
    Located,
    Reached,
    Walker,
    choose_walker,
    expand_hops,
    expand_into,
    expand_once,
    has_neighbour,
    is_indexed_cheaper,
    meet,
)
from omnigraph.engine.query.expressions import Evaluate, Test, compile_value, variables_of
from omnigraph.engine.query.vectors import Constant, Ids, Mask, Numbers, Rows, Texts, Vector, concatenate, distinct
from omnigraph.lang.catalog import INTEGERS, Scalar
from omnigraph.lang.query import ir
from omnigraph.lang.query.ir import Direction


@dataclass(frozen=True)
class Join:
    """A property of the scanned nodes that must equal a property of the rows so far."""

    own: Evaluate
    other: Evaluate
    text: str


def compile_join(variable: str, bound: set[str], condition: ir.Expr, text: str) -> Join | None:
    """Return a condition as a join of a scan, or None when it is not one."""
    if not isinstance(condition, ir.Compare) or condition.op is not ir.CompareOp.EQ:
        return None
    sides = (condition.left, condition.right)
    for own, other in (sides, sides[::-1]):
        is_pair = isinstance(own, ir.PropertyRef) and isinstance(other, ir.PropertyRef)
        if is_pair and variables_of(own) == {variable} and variables_of(other) <= bound and _is_one_kind(own, other):
            return Join(compile_value(own), compile_value(other), text)
    return None


def _is_one_kind(own: ir.Expr, other: ir.Expr) -> bool:
    assert own.type is not None
    assert other.type is not None
    first, second = own.type, other.type
    if first.is_list or second.is_list:
        return False
    # The largest unsigned integers do not fit beside signed ones, so they are compared pair by pair.
    narrow = INTEGERS - {Scalar.U64}
    kinds = {Scalar.STRING, Scalar.DATE, Scalar.DATETIME, Scalar.BOOL}
    return (first.scalar in narrow and second.scalar in narrow) or (first.scalar is second.scalar in kinds)


def locate_equal(left: Vector, right: Vector) -> Located:
    """Return, for each left value, where the equal right values are; a null equals nothing."""
    codes, left_count = _codes(left, right)
    lefts, rights = codes[:left_count], codes[left_count:]
    places = np.flatnonzero(rights >= 0)
    order = places[np.argsort(rights[places], kind="stable")]
    size = int(codes.max(initial=-1)) + 1
    counts = np.append(np.bincount(rights[places], minlength=size), 0)
    starts = np.concatenate([[0], np.cumsum(counts)])
    # The extra last place is what a null code reads, and nothing is there.
    return Located(Adjacency(starts, order, None, len(rights)), starts[:-1][lefts], counts[lefts])


def _codes(left: Vector, right: Vector) -> tuple[npt.NDArray[np.int64], int]:
    if isinstance(left, Texts) and isinstance(right, Texts):
        both: Any = pa.chunked_array([left.array, right.array]).combine_chunks().dictionary_encode()
        codes = both.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        return codes, len(left.array)
    assert not isinstance(left, Constant)
    assert isinstance(left, Numbers)
    assert isinstance(right, Numbers)
    data = np.concatenate([left.data.astype(np.int64), right.data.astype(np.int64)])
    codes = np.unique(data, return_inverse=True)[1].astype(np.int64)
    return np.where(np.concatenate([_valid(left), _valid(right)]), codes, -1), len(left.data)


def _valid(numbers: Numbers) -> npt.NDArray[np.bool_]:
    return np.ones(len(numbers.data), np.bool_) if numbers.valid is None else numbers.valid


# Fewer than one row in this many are worth copying before the next condition is checked.
_FEW_LEFT: Final = 8

Narrow = Callable[[Run, Ids], Ids]
FindKey = Callable[[Run], Ids]


class Step(Protocol):
    """One operator. `title` says what it does, `inner` what it does it with."""

    keep: frozenset[str]

    @property
    def title(self) -> str: ...
    @property
    def inner(self) -> Pipeline | None: ...
    def run(self, run: Run, rows: Rows) -> Rows: ...


@dataclass(frozen=True)
class Pipeline:
    """Steps in order; `as_set` tells that equal rows need not be kept apart, which lets them be dropped early."""

    steps: tuple[Step, ...]
    as_set: bool
    outputs: frozenset[str]

    def run(self, run: Run, rows: Rows) -> Rows:
        for step in self.steps:
            if rows.count == 0:
                return Rows(0, {name: np.empty(0, np.int32) for name in self.outputs})
            before = rows
            rows = step.run(run, rows) if run.observer is None else run.observer.observe(run, step, rows)
            rows = rows.only(step.keep)
            if self.as_set and _may_repeat(before, rows):
                rows = distinct(rows)
        return rows


def _may_repeat(before: Rows, after: Rows) -> bool:
    """Tell whether a step may have made rows equal: by dropping a variable, or by adding one that is not kept."""
    if not before.columns.keys() <= after.columns.keys():
        return True
    return after.count > before.count and len(after.columns) == len(before.columns)


@dataclass(frozen=True)
class Condition:
    """A compiled condition, with the variables it reads and its text."""

    test: Test
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
    find_key: FindKey | None
    keep: frozenset[str] = frozenset()
    is_existence: bool = False
    narrow: Narrow | None = None
    join: Join | None = None
    inner: Pipeline | None = None

    @cached_property
    def title(self) -> str:
        how = "look up" if self.find_key is not None else "scan"
        joined = f" joined on {self.join.text}" if self.join is not None else ""
        return f"{how} ${self.variable}: {self.node_type}{where(self.conditions)}{joined}"

    def run(self, run: Run, rows: Rows) -> Rows:
        ids = self.find(run)
        if self.is_existence:
            return rows if len(ids) else rows.take(np.empty(0, np.int64))
        if rows.count == 1 and not rows.columns:
            return Rows(len(ids), {self.variable: ids})
        if self.join is not None:
            found = locate_equal(self.join.other(run, rows), self.join.own(run, Rows(len(ids), {self.variable: ids})))
            rows = rows.only(self.keep)
            run.spending.reserve(found.total, rows.row_bytes + 32, self.title)
            places = np.repeat(np.arange(rows.count), found.degrees)
            return rows.take(places).with_columns({self.variable: ids[found.adjacency.neighbours[found.entries()]]})
        rows = rows.only(self.keep)
        total = rows.count * len(ids)
        run.spending.reserve(total, rows.row_bytes + ids.dtype.itemsize, self.title)
        columns = {name: np.repeat(array, len(ids)) for name, array in rows.columns.items()}
        return Rows(total, {**columns, self.variable: np.tile(ids, rows.count)})

    def find(self, run: Run) -> Ids:
        """Return the nodes themselves."""
        entities = run.nodes(self.node_type)
        ids = entities.all if self.find_key is None else self.find_key(run)
        found = satisfying(run, Rows(len(ids), {self.variable: ids}), self.conditions)
        ids = found.columns[self.variable]
        return ids if self.narrow is None else self.narrow(run, ids)


@dataclass
class Expand:
    """One walk from a bound variable; the conditions are about what it reaches."""

    source: str
    target: str
    target_type: str
    edge: str
    direction: Direction
    minimum: int
    maximum: int
    conditions: tuple[Condition, ...]
    edge_variable: str | None
    hops_variable: str | None
    is_backwards: bool = False
    keep: frozenset[str] = frozenset()
    is_existence: bool = False
    inner: Pipeline | None = None

    @cached_property
    def title(self) -> str:
        hops = "" if self.is_single else f"{{{self.minimum},{self.maximum}}}"
        edge = f"${self.edge_variable}:{self.edge}" if self.edge_variable else self.edge
        walk = f"${self.source} {self.direction} {edge}{hops} ${self.target}: {self.target_type}"
        return f"{'test' if self.is_existence else 'expand'} {walk}{where(self.conditions)}"

    @property
    def is_single(self) -> bool:
        return self.minimum == self.maximum == 1

    def run(self, run: Run, rows: Rows) -> Rows:
        rows = present(rows, self.source)
        if self.minimum > self.maximum:
            rows = rows.take(np.empty(0, np.int64))
        sources = rows.columns[self.source]
        if self.is_existence:
            return rows.where(self.test(run, sources))
        walker = self._walker(run, sources)
        outer = rows.only(self.keep)
        reached = self._reach(run, walker, sources, outer.row_bytes + 8)
        own: dict[str, Ids] = {self.target: reached.targets}
        if self.edge_variable is not None and reached.edges is not None:
            own[self.edge_variable] = reached.edges
        if self.hops_variable is not None:
            own[self.hops_variable] = np.ones(len(reached.targets), np.int64) if reached.hops is None else reached.hops
        return extend(run, outer, reached.places, own, self.conditions)

    def test(self, run: Run, sources: Ids) -> Mask:
        """Tell which nodes the walk leads on from; none of them may be null."""
        return has_neighbour(self._walker(run, sources), sources)

    def _walker(self, run: Run, sources: Ids) -> Walker:
        per_edge = self.edge_variable is not None
        walker = choose_walker(run, self.edge, self.direction, self.maximum, len(sources), per_edge=per_edge)
        note_walker(run, walker)
        return walker

    def _reach(self, run: Run, walker: Walker, sources: Ids, row_bytes: int) -> Reached:
        if self.is_single:
            return expand_once(run, walker, sources, row_bytes, self.title)
        node_count = run.nodes(self.target_type).count
        bounds = Hops(self.minimum, self.maximum, self.is_backwards)
        return expand_hops(run, walker, sources, node_count, bounds, row_bytes, self.title)


@dataclass
class Close:
    """Keep the rows whose two bound ends an edge joins; with an edge variable, once per edge."""

    source: str
    end: str
    edge: str
    direction: Direction
    edge_variable: str | None
    hops_variable: str | None
    keep: frozenset[str] = frozenset()
    inner: Pipeline | None = None

    @cached_property
    def title(self) -> str:
        edge = f"${self.edge_variable}:{self.edge}" if self.edge_variable else self.edge
        return f"close ${self.source} {self.direction} {edge} ${self.end}"

    def run(self, run: Run, rows: Rows) -> Rows:
        rows = present(present(rows, self.source), self.end)
        sources, ends = rows.columns[self.source], rows.columns[self.end]
        per_edge = self.edge_variable is not None
        walker = choose_walker(run, self.edge, self.direction, 1, len(sources), per_edge=per_edge)
        note_walker(run, walker)
        reached = expand_into(run, walker, sources, ends, rows.row_bytes + 8, self.title)
        own: dict[str, Ids] = {}
        if self.edge_variable is not None and reached.edges is not None:
            own[self.edge_variable] = reached.edges
        if self.hops_variable is not None:
            own[self.hops_variable] = np.ones(len(reached.places), np.int64)
        return extend(run, rows.only(self.keep), reached.places, own, ())


@dataclass
class Meet:
    """A walk, and the check that what it reaches closes a cycle, as one: nothing is made that does not."""

    walk: Expand
    closing: Close
    keep: frozenset[str] = frozenset()
    inner: Pipeline | None = None

    @staticmethod
    def of(walk: Step, closing: Step) -> Meet | None:
        """Return two steps as one, if the second asks of what the first reaches only whether it is a neighbour too."""
        if not isinstance(walk, Expand) or not isinstance(closing, Close) or walk.is_existence or not walk.is_single:
            return None
        if {walk.edge_variable, walk.hops_variable, closing.edge_variable, closing.hops_variable} != {None}:
            return None
        if (closing.source == walk.target) == (closing.end == walk.target):
            return None
        return Meet(walk, closing, closing.keep)

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

    def run(self, run: Run, rows: Rows) -> Rows:
        other, direction = self._other
        rows = present(present(rows, self.walk.source), other)
        sources, others = rows.columns[self.walk.source], rows.columns[other]
        walks = ((self.walk.edge, self.walk.direction), (self.closing.edge, direction))
        if any(is_indexed_cheaper(run, *walk, 1, rows.count)[0] for walk in walks):
            return self._one_by_one(run, rows)
        near = run.topology(self.walk.edge).adjacency(self.walk.direction, per_edge=False)
        if int(near.degrees[sources].sum()) <= MANY_PAIRS:
            # Not worth the neighbours in a direction that nobody may have asked for yet.
            return self._one_by_one(run, rows)
        far = run.topology(self.closing.edge).adjacency(direction, per_edge=False)
        note_walker(run, choose_walker(run, *walks[0], 1, rows.count, per_edge=False))
        outer = rows.only(self.keep)
        reached = meet(run, near, sources, far, others, outer.row_bytes + 8, self.title)
        return extend(run, outer, reached.places, {self.walk.target: reached.targets}, self.walk.conditions)

    def _one_by_one(self, run: Run, rows: Rows) -> Rows:
        walked = self.walk.run(run, rows).only(self.walk.keep)
        return self.closing.run(run, walked) if walked.count else walked


@dataclass
class Filter:
    """Keep the rows for which all conditions are true."""

    conditions: tuple[Condition, ...]
    keep: frozenset[str] = frozenset()
    inner: Pipeline | None = None

    @cached_property
    def title(self) -> str:
        return f"filter{where(self.conditions).removeprefix(' where')}"

    def run(self, run: Run, rows: Rows) -> Rows:
        return satisfying(run, rows, self.conditions)


@dataclass
class Anti:
    """Keep the rows for which the inner pipeline gives nothing."""

    inner: Pipeline
    correlated: tuple[str, ...]
    marker: str
    keep: frozenset[str] = frozenset()

    @cached_property
    def title(self) -> str:
        return "anti join"

    def run(self, run: Run, rows: Rows) -> Rows:
        if len(self.correlated) == 1:
            [name] = self.correlated
            if (walk := self._single_walk(run)) is not None and walk.source == name:
                return _without(rows, walk, run)
            # One outer variable alone decides, so each of its entities is asked about once.
            asked = distinct(rows.only((name,)))
            found = self.inner.run(run, asked).columns[name]
            flags = np.zeros(int(rows.columns[name].max()) + 2, np.bool_)
            flags[found] = True
            return rows.where(~flags[rows.columns[name]])
        marked = rows.only(self.correlated).with_columns({self.marker: np.arange(rows.count)})
        found = self.inner.run(run, marked).columns[self.marker]
        flags = np.zeros(rows.count, np.bool_)
        flags[found] = True
        return rows.where(~flags)

    def _single_walk(self, run: Run) -> Expand | None:
        """Return the walk that is all there is to the inner pipeline, if it needs no rows; a profile wants its rows."""
        if run.observer is not None or len(self.inner.steps) != 1:
            return None
        [step] = self.inner.steps
        return step if isinstance(step, Expand) and step.is_existence else None


def _without(rows: Rows, walk: Expand, run: Run) -> Rows:
    """Return the rows from which a walk leads nowhere; it never leads on from null."""
    ids = rows.columns[walk.source]
    if len(ids) and ids.min() < 0:
        leads = np.zeros(rows.count, np.bool_)
        leads[ids >= 0] = walk.test(run, ids[ids >= 0])
        return rows.where(~leads)
    return rows.where(~walk.test(run, ids))


@dataclass
class Optional:
    """Replace each row by its inner solutions, or keep it with the new variables null."""

    inner: Pipeline
    bindings: tuple[str, ...]
    marker: str
    keep: frozenset[str] = frozenset()

    @cached_property
    def title(self) -> str:
        return f"optional join {', '.join(f'${name}' for name in self.bindings)}".rstrip()

    def run(self, run: Run, rows: Rows) -> Rows:
        marked = rows.with_columns({self.marker: np.arange(rows.count)})
        solved = self.inner.run(run, marked)
        flags = np.zeros(rows.count, np.bool_)
        flags[solved.columns[self.marker]] = True
        unsolved = rows.where(~flags)
        wanted = self.keep - {self.marker}
        missing = {name: nulls(unsolved.count) for name in self.bindings if name in wanted}
        return concatenate(solved.only(wanted), unsolved.with_columns(missing).only(wanted))


def present(rows: Rows, name: str) -> Rows:
    """Return the rows in which a variable is not null."""
    ids = rows.columns[name]
    return rows.where(ids >= 0) if len(ids) and ids.min() < 0 else rows


def extend(run: Run, outer: Rows, places: Ids, own: dict[str, Ids], conditions: Sequence[Condition]) -> Rows:
    """Return the rows at some places with new variables, after the conditions on those."""
    if conditions:
        # What does not pass is dropped before the other variables are copied.
        found = Rows(len(places), {**own, "~place": places})
        found = satisfying(run, found, conditions)
        places = found.columns["~place"]
        own = {name: found.columns[name] for name in own}
    return outer.take(places).with_columns(own)


def satisfying(run: Run, rows: Rows, conditions: Sequence[Condition]) -> Rows:
    """Return the rows for which all conditions are true; they are copied once few are left, or at the end."""
    mask = None
    for condition in conditions:
        true = condition.test(run, rows)
        mask = true if mask is None else mask & true
        if np.count_nonzero(mask) * _FEW_LEFT < rows.count:
            rows, mask = rows.where(mask), None
    return rows if mask is None else rows.where(mask)


def note_walker(run: Run, walker: Walker) -> None:
    run.note("traversal", walker.mode)
    run.note("because", walker.reason)


def where(conditions: Sequence[Condition]) -> str:
    """Return conditions as the end of a title."""
    return f" where {' and '.join(condition.text for condition in conditions)}" if conditions else ""
