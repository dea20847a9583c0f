"""Patterns in expressions: `exists { … }` and `count { … }`, for all rows at once.

Decorrelated as an anti join is: the inner pattern runs over the distinct values of the one variable that it reads from
outside, or over numbered rows where it reads several.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from omnigraph.engine.query.context import QueryRun
from omnigraph.engine.query.operators import Expand, Pipeline
from omnigraph.engine.query.vectors import Ids, Rows, distinct_rows
from omnigraph.lang.query.format_plan import show_count

Counts = npt.NDArray[np.int64]


@dataclass
class CountJoin:
    """Bind how many rows the inner pipeline returns for each row; 1 or 0 if it only asks whether there are any."""

    inner: Pipeline
    variable: str
    is_existence: bool
    marker: str
    correlated: tuple[str, ...] = ()
    keep: frozenset[str] = frozenset()

    @cached_property
    def title(self) -> str:
        return f"{'test' if self.is_existence else 'count'} matches as {show_count(self.variable)}"

    def run(self, run: QueryRun, rows: Rows) -> Rows:
        run.spending.reserve(rows.count, rows.row_bytes + 8, self.title)
        counts = self._count(run, rows)
        if self.is_existence:
            counts = (counts > 0).astype(np.int64)
        return rows.with_columns({self.variable: counts})

    def _count(self, run: QueryRun, rows: Rows) -> Counts:
        if len(self.correlated) != 1:
            marked = rows.only(self.correlated).with_columns({self.marker: np.arange(rows.count)})
            matched = self.inner.run(run, marked).columns[self.marker]
            return np.bincount(matched, minlength=rows.count)
        [name] = self.correlated
        # A missing entity is -1, and has a place of its own.
        ids = rows.columns[name].astype(np.int64) + 1
        if (step := self._single_walk(run)) is not None and step.walk.source == name:
            return _count_neighbours(run, step, rows.columns[name])
        candidates = distinct_rows(rows.only((name,)))
        matched = self.inner.run(run, candidates).columns[name].astype(np.int64) + 1
        counts: Counts = np.bincount(matched, minlength=int(ids.max(initial=0)) + 1)[ids]
        return counts

    def _single_walk(self, run: QueryRun) -> Expand | None:
        """Return the walk that is all there is to the inner pipeline, if each of its rows is one neighbour."""
        if run.observer is not None or len(self.inner.steps) != 1:
            return None
        [step] = self.inner.steps
        is_walk = isinstance(step, Expand) and step.walk.is_single and not step.conditions
        return step if is_walk and isinstance(step, Expand) else None


def _count_neighbours(run: QueryRun, step: Expand, ids: Ids) -> Counts:
    """Return the degree of each node; a missing one has no neighbours."""
    present = ids >= 0
    counts = np.zeros(len(ids), np.int64)
    counts[present] = step.degrees(run, ids[present])
    return counts
