"""Walks that end at a looked-up node: walked from both ends, and joined where they meet.

A chain of walks from what the rows bind to one node would visit all that the rows reach before it tests for that node.
Walked backwards from it, the other half of the chain is as small as the neighbourhood of one node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from omnigraph.engine.query.context import QueryRun
from omnigraph.engine.query.expand import average_degree, hop_bounds
from omnigraph.engine.query.operators import Condition, Expand, Pipeline, PlanStep, drop_null_rows, filter_rows
from omnigraph.engine.query.vectors import Ids, Rows, distinct_rows, group_offsets, range_indices
from omnigraph.lang.catalog import TypeKey
from omnigraph.lang.query import ir

# The share of nodes that a condition is assumed to leave; there are no value statistics.
_KEPT_BY_CONDITION = 0.1
# How many powers of the degree count for a walk of many hops; it has met all nodes by then.
_POWERS_MAX = 6

# Numbers are looked up by offset if at most this many are possible for each that exists, otherwise by search.
_OFFSETS_SHARE = 16


def reverse_walk(walk: ir.Expand) -> ir.Expand:
    """Return the walk from its target to its source, without the conditions on its target."""
    return replace(walk.reversed(), filters=())


def fuse_meetings(steps: Sequence[PlanStep], *, as_set: bool) -> tuple[PlanStep, ...]:
    """Return the steps with each chain of walks that ends at a looked-up node as one."""
    fused: list[PlanStep] = []
    for step in steps:
        fused.append(step)
        chain = _chain_of(fused)
        if chain:
            fused[-len(chain) :] = [MeetingWalks(tuple(chain), as_set, keep=chain[-1].keep)]
    return tuple(fused)


def walks_of(step: PlanStep) -> Sequence[PlanStep]:
    """Return the walks of a chain one by one, and any other step as it is."""
    return step.walks if isinstance(step, MeetingWalks) else (step,)


def _chain_of(steps: Sequence[PlanStep]) -> list[Expand]:
    """Return the walks at the end of some steps that lead, each from where the one before ends, to a looked-up node."""
    last = steps[-1]
    if not isinstance(last, Expand) or last.find_target is None or not _is_reversible(last):
        return []
    chain = [last]
    for step in reversed(steps[:-1]):
        if not isinstance(step, Expand) or step.walk.target != chain[0].walk.source or not _is_reversible(step):
            break
        chain.insert(0, step)
    return chain


def _is_reversible(step: Expand) -> bool:
    return step.walk.path is None and not step.is_existence


@dataclass(frozen=True)
class Meeting:
    """After how many walks of a chain the rows meet what leads to its end, and how many edges that is about."""

    forward: int
    edges: float
    edges_one_way: float


@dataclass
class MeetingWalks(PlanStep):
    """A chain of walks whose last target is looked up: some from the rows on, the others backwards from that node."""

    walks: tuple[Expand, ...]
    as_set: bool

    def __post_init__(self) -> None:
        # The walks one after the other, as they are written.
        self.inner = Pipeline(self.walks, self.as_set, self.keep)

    @cached_property
    def reversed_walks(self) -> tuple[ir.Expand, ...]:
        """Each walk from its target to its source."""
        return tuple(reverse_walk(step.walk) for step in self.walks)

    @cached_property
    def title(self) -> str:
        return f"meet between ${self.walks[0].walk.source} and ${self.walks[-1].walk.target}, which is looked up"

    def run(self, run: QueryRun, rows: Rows) -> Rows:
        meeting = self.choose_meeting(run, rows.count)
        run.note("meeting", self.describe(meeting))
        for step in self.walks[: meeting.forward]:
            rows = step.run(run, rows).only(step.keep)
            rows = distinct_rows(rows) if self.as_set else rows
        walks = self.walks[meeting.forward :]
        if not walks or rows.count == 0:
            return rows if not walks else rows.take(np.empty(0, np.int64)).with_columns(_nothing(self.keep, rows))
        return self._join(run, rows, walks, self._walk_back(run, walks))

    def choose_meeting(self, run: QueryRun, count: int) -> Meeting:
        """Return where it costs least to meet, by the mean degrees of the edge types, for `count` rows."""
        forward, backward = [0.0], [0.0]
        frontier = float(count)
        for step in self.walks:
            edges = _edges_per_node(run, step.walk)
            forward.append(forward[-1] + frontier * edges)
            conditions = len(step.conditions) if step.find_target is None else 0
            frontier *= min(edges, _node_count(run, step.walk)) * _KEPT_BY_CONDITION**conditions
        frontier = 1.0
        for walk in reversed(self.reversed_walks):
            edges = _edges_per_node(run, walk)
            backward.append(backward[-1] + frontier * edges)
            frontier *= min(edges, _node_count(run, walk))
        length = len(self.walks)
        costs = [forward[steps] + backward[length - steps] for steps in range(length + 1)]
        best = min(range(length + 1), key=lambda steps: (costs[steps], -steps))
        return Meeting(best, costs[best], costs[-1])

    def describe(self, meeting: Meeting) -> str:
        if meeting.forward == len(self.walks):
            return f"at ${self.walks[-1].walk.target}, over about {meeting.edges:.0f} edges"
        variable = self.walks[meeting.forward].walk.source
        return f"at ${variable}, over about {meeting.edges:.0f} edges instead of {meeting.edges_one_way:.0f}"

    def _walk_back(self, run: QueryRun, walks: Sequence[Expand]) -> Rows:
        """Return what leads to the looked-up node, as rows that bind all of it and where it begins."""
        last = walks[-1]
        assert last.find_target is not None
        ids = last.find_target(run)
        rows = Rows(len(ids), {last.walk.target: ids})
        pending = [condition for step in walks for condition in step.conditions]
        rows, pending = _filter_bound(run, rows, pending)
        for step, walk in zip(reversed(walks), reversed(self.reversed_walks), strict=False):
            if rows.count == 0:
                return Rows(0, _nothing(self.keep | {walks[0].walk.source}, rows))
            waiting = {name for condition in pending for name in condition.variables}
            kept = (self.keep & (rows.columns.keys() | _bound_by(step))) | waiting | {step.walk.source}
            back = Expand(walk, (), keep=frozenset(kept))
            rows, pending = _filter_bound(run, back.run(run, rows).only(kept), pending)
            rows = distinct_rows(rows) if self.as_set else rows
        assert not pending, "the conditions of a walk read what it binds"
        return rows

    def _join(self, run: QueryRun, rows: Rows, walks: Sequence[Expand], back: Rows) -> Rows:
        variable = walks[0].walk.source
        rows = drop_null_rows(rows, variable)
        ids, meets = rows.columns[variable], back.columns[variable]
        starts, degrees = _locate_matches(meets, ids, run.nodes(walks[0].walk.source_type).count)
        outer = rows.only(self.keep)
        run.spending.reserve(int(degrees.sum()), outer.row_bytes + back.row_bytes, self.title)
        matched = np.argsort(meets, kind="stable")[range_indices(starts, degrees)]
        new = {name: column[matched] for name, column in back.columns.items() if name in self.keep and name != variable}
        return outer.take(np.repeat(np.arange(rows.count), degrees)).with_columns(new)


def _locate_matches(values: Ids, ids: Ids, size: int) -> tuple[Any, Any]:
    """Return where each id begins among the sorted values, all below a size, and how often it is there."""
    if size <= _OFFSETS_SHARE * (len(values) + len(ids)):
        offsets = group_offsets(values, size)
        return offsets[ids], offsets[ids + 1] - offsets[ids]
    # Offsets for all nodes would cost as much as the graph is large, however few of them meet.
    ordered = np.sort(values)
    starts = np.searchsorted(ordered, ids)
    return starts, np.searchsorted(ordered, ids, "right") - starts


def _bound_by(step: Expand) -> set[str]:
    walk = step.walk
    names = (walk.source, walk.target, walk.edge_variable, walk.hops_variable)
    return {name for name in names if name is not None}


def _nothing(names: frozenset[str], rows: Rows) -> dict[str, Ids]:
    return {name: np.empty(0, np.int32) for name in names - rows.columns.keys()}


def _filter_bound(run: QueryRun, rows: Rows, conditions: list[Condition]) -> tuple[Rows, list[Condition]]:
    """Check the conditions whose variables are bound; return the rows that are left, and the other conditions."""
    ready = [condition for condition in conditions if condition.variables <= rows.columns.keys()]
    waiting = [condition for condition in conditions if condition not in ready]
    return filter_rows(run, rows, ready), waiting


def _edges_per_node(run: QueryRun, walk: ir.Expand) -> float:
    degree = average_degree(run, walk)
    if walk.is_single or walk.joins_types:
        return degree
    hops = min(hop_bounds(run, walk).maximum, _POWERS_MAX)
    edges = degree * max(run.row_count(TypeKey.of("node", walk.source_type)), 1)
    return min(sum(degree**hop for hop in range(1, hops + 1)), edges)


def _node_count(run: QueryRun, walk: ir.Expand) -> float:
    return float(run.row_count(TypeKey.of("node", walk.target_type)))
