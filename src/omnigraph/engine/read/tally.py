"""Tallies: grouped results of tree-shaped patterns, put together from weights.

Answers the same as grouping the rows would; `Tally.of` says whether a query can be answered like this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.engine.read.context import Run
from omnigraph.engine.read.counting import (
    Factor,
    Forest,
    check_count,
    count_factor,
    forest_of,
    is_in_memory,
    select,
    sum_factor,
    weigh,
)
from omnigraph.engine.read.exact_sums import join_limbs, limb_bits, split_limbs
from omnigraph.engine.read.finish import Deferred, Finish, ready
from omnigraph.engine.read.grouping import AnyGroups, Groups, OneGroup, OwnGroups, finish_sums
from omnigraph.engine.read.rows import Rows
from omnigraph.engine.read.steps import Pipeline
from omnigraph.engine.read.vectors import Ids
from omnigraph.lang.query import ir


@dataclass(frozen=True, slots=True)
class Weighed:
    """The selected nodes of the variable that holds the groups, and the places of those that complete any way."""

    ids: Ids
    completed: Ids

    def completed_of(self, values: Any) -> Any:
        return values if len(self.completed) == len(self.ids) else values[self.completed]


@dataclass(frozen=True)
class Tally:
    """A grouped read whose groups all come from one variable, or that has none."""

    query: ir.ReadIR
    forest: Forest
    variable: str

    @staticmethod
    def of(query: ir.ReadIR, pipeline: Pipeline) -> Tally | None:
        """Return how to answer a read by weights, or None."""
        forest = forest_of(pipeline) if query.is_grouped and query.rank is None else None
        if forest is None or not all(_is_weighable(column.expression, forest) for column in query.columns):
            return None
        keys = {
            item.expression.variable
            for item in query.columns
            if isinstance(item.expression, ir.PropertyRef | ir.NodeRef)
        }
        if len(keys) > 1 or not forest.roots:
            return None
        return Tally(query, forest, next(iter(keys), None) or forest.cheapest_root(_added_variable(query)))

    def is_worthwhile(self, run: Run) -> bool:
        """Tell whether weights are likely to be cheaper than rows: not when few rows come from one looked-up node."""
        keyed = [name for name, vertex in self.forest.vertices.items() if vertex.find_key is not None]
        if run.traversal_mode == "indexed" or any(name != self.variable for name in keyed):
            return False
        return is_in_memory(run, self.forest)

    def columns(self, run: Run, finish: Finish) -> tuple[list[Deferred], int]:
        """Return the columns of the grouped result."""
        root = self.forest.rooted_at(self.variable)
        ids = select(run, root, None)
        others = int(self._other_trees(run, None))
        weights = weigh(run, root, ids, None)
        ways = int(weights.sum(dtype=np.float64)) * others
        check_count(ways, self.variable)
        # A node that completes no way is in no row, and so in no group.
        weighed = Weighed(ids, np.flatnonzero(weights) if ways else np.empty(0, np.int64))
        # Without any way the number of the others may be too large for an array.
        weights = weighed.completed_of(weights * (others if ways else 0))
        rows = Rows(len(weights), {self.variable: weighed.completed_of(ids)})
        groups = self._groups(run, finish, rows)
        counts: dict[ir.Expr | None, Any] = {None: groups.sum_integers(weights)}
        made: list[Deferred] = []
        for place, column in enumerate(self.query.columns):
            if isinstance(column.expression, ir.Aggregate):
                made.append(ready(self._aggregate(run, column.expression, weighed, groups, counts)))
            else:
                made.append(finish.deferred(run, place, rows, groups.first))
        return made, groups.size

    def _groups(self, run: Run, finish: Finish, rows: Rows) -> AnyGroups:
        keys = [item.expression for item in self.query.columns if not isinstance(item.expression, ir.Aggregate)]
        if not keys:
            return OneGroup(rows.count)
        if any(isinstance(key, ir.NodeRef) for key in keys):
            return OwnGroups(rows.count)
        return Groups(finish.group_keys(run, rows), rows.count)

    def _aggregate(
        self,
        run: Run,
        call: ir.Aggregate,
        weighed: Weighed,
        groups: AnyGroups,
        counts: dict[ir.Expr | None, Any],
    ) -> Any:
        argument = call.argument if isinstance(call.argument, ir.PropertyRef) else None
        if argument not in counts and not _has_nulls(run, argument):
            counts[argument] = counts[None]
        if argument not in counts:
            assert argument is not None
            factor = count_factor(run, argument.owner, argument.property, argument.variable)
            counts[argument] = groups.sum_integers(self._weigh(run, factor, weighed))
        count = counts[argument]
        if call.function == "count":
            return pa.array(count, pa.int64())
        assert argument is not None
        sums = self._sums(run, argument, weighed, groups, float(counts[None].sum()))
        return finish_sums(call.function, sums, np.asarray(count))

    def _sums(self, run: Run, argument: ir.PropertyRef, weighed: Weighed, groups: AnyGroups, ways: float) -> Any:
        """Return the sums of a property over so many ways; of integers exactly, limb by limb."""
        factor = sum_factor(run, argument.owner, argument.property, argument.variable)
        if factor.values.dtype.kind not in "iu":
            return groups.sum(self._weigh(run, factor, weighed))
        bits = limb_bits(ways)
        limbs = [
            groups.sum_integers(self._weigh(run, Factor(factor.variable, limb), weighed))
            for limb in split_limbs(factor.values, bits)
        ]
        return join_limbs(limbs, bits, factor.values.dtype.kind == "u")

    def _weigh(self, run: Run, factor: Factor, weighed: Weighed) -> Any:
        if not len(weighed.completed):
            # The trees besides may be completed in more ways than any number type can hold.
            return np.empty(0, factor.values.dtype)
        root = self.forest.rooted_at(self.variable)
        others: Any = self._other_trees(run, factor)
        if factor.values.dtype.kind == "i":
            # Sums of limbs fit 64 bits in the end, so what wraps on the way there comes back.
            others = np.array([others % 2**64], np.uint64).astype(np.int64)
        with np.errstate(over="ignore"):
            return weighed.completed_of(weigh(run, root, weighed.ids, factor) * others)

    def _other_trees(self, run: Run, factor: Factor | None) -> int | float:
        """Return in how many ways the trees that do not hold the groups can be completed."""
        total: int | float = 1
        for index, name in enumerate(self.forest.roots):
            if index != self.forest.trees[self.variable]:
                root = self.forest.rooted_at(name)
                total *= weigh(run, root, select(run, root, None), factor).sum().item()
        return total


def _is_weighable(expression: ir.Expr, forest: Forest) -> bool:
    if isinstance(expression, ir.NodeRef | ir.PropertyRef):
        return expression.variable in forest.vertices
    if not isinstance(expression, ir.Aggregate):
        return False
    argument = expression.argument
    if expression.function == "count" and (argument is None or isinstance(argument, ir.NodeRef)):
        return True
    is_sum = expression.function in ("sum", "avg", "count")
    return is_sum and isinstance(argument, ir.PropertyRef) and argument.variable in forest.vertices


def _has_nulls(run: Run, argument: ir.PropertyRef | None) -> bool:
    return argument is None or run.nodes(argument.owner).column(argument.property).array.null_count > 0


def _added_variable(query: ir.ReadIR) -> str | None:
    """Return the one variable whose values a read adds up, if there is just one."""
    calls = [item.expression for item in query.columns if isinstance(item.expression, ir.Aggregate)]
    found = {call.argument.variable for call in calls if isinstance(call.argument, ir.PropertyRef)}
    return next(iter(found)) if len(found) == 1 else None
