"""Tallies: grouped results of tree-shaped patterns, put together from weights.

Answers the same as grouping the rows would; `Tally.of` says whether a query can be answered like this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.read.context import Run
from omnigraph.engine.read.counting import (
    Factor,
    Forest,
    check_count,
    factor_of,
    forest_of,
    is_in_memory,
    select,
    weigh,
)
from omnigraph.engine.read.finish import Deferred, Finish, ready
from omnigraph.engine.read.grouping import AnyGroups, Groups, OneGroup, OwnGroups
from omnigraph.engine.read.rows import Rows
from omnigraph.engine.read.steps import Pipeline
from omnigraph.engine.read.vectors import Ids
from omnigraph.lang.query import ir

# Integers above this are not exact in the floats that numpy adds groups in.
_EXACT_MAX: Final = 2**53


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
        others = self._other_trees(run, None)
        weights = weigh(run, root, ids, None)
        check_count(float(weights.sum(dtype=np.float64)) * others, self.variable)
        # A node that completes no way is in no row, and so in no group.
        weighed = Weighed(ids, np.flatnonzero(weights) if others else np.empty(0, np.int64))
        weights = weighed.completed_of(weights * others)
        rows = Rows(len(weights), {self.variable: weighed.completed_of(ids)})
        groups = self._groups(run, finish, rows)
        counts: dict[ir.Expr | None, Any] = {None: _totals(weights, groups)}
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
            counts[argument] = _totals(self._weigh(run, argument, "count", weighed), groups)
        count = counts[argument]
        if call.function == "count":
            return pa.array(count, pa.int64())
        assert argument is not None
        sums = groups.sum(self._weigh(run, argument, "sum", weighed))
        with np.errstate(invalid="ignore", divide="ignore"):
            values = sums if call.function == "sum" else sums / count
        return pa.array(values, pa.float64(), mask=np.asarray(count) == 0)

    def _weigh(self, run: Run, argument: ir.PropertyRef | None, function: str, weighed: Weighed) -> Any:
        assert argument is not None
        factor = factor_of(argument.owner, run, argument.property, argument.variable, function)
        root = self.forest.rooted_at(self.variable)
        return weighed.completed_of(weigh(run, root, weighed.ids, factor) * self._other_trees(run, factor))

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


def _totals(weights: Any, groups: AnyGroups) -> Any:
    if float(weights.sum(dtype=np.float64)) < _EXACT_MAX:
        return groups.sum(weights).astype(np.int64, copy=False)
    totals = np.zeros(groups.size, np.int64)
    np.add.at(totals, groups.of, weights)
    return totals
