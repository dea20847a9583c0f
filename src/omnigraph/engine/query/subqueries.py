"""Patterns in expressions: `exists { … }` and `count { … }`, for all rows at once, decorrelated as an anti join is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from omnigraph.engine.query.context import QueryRun
from omnigraph.engine.query.operators import CorrelatedJoin
from omnigraph.engine.query.vectors import Rows
from omnigraph.lang.query.format_plan import show_count


@dataclass
class CountJoin(CorrelatedJoin):
    """Bind how many rows the inner pipeline returns for each row; 1 or 0 if it only asks whether there are any."""

    variable: str
    is_existence: bool

    @cached_property
    def title(self) -> str:
        return f"{'test' if self.is_existence else 'count'} matches as {show_count(self.variable)}"

    def run(self, run: QueryRun, rows: Rows) -> Rows:
        run.spending.reserve(rows.count, rows.row_bytes + 8, self.title)
        if (step := self.single_walk(run)) is not None:
            counts = step.degrees(run, rows)
        else:
            asked, matched = self.match(run, rows)
            # A missing entity is -1, and has a place of its own.
            size = int(asked.max(initial=-1)) + 2
            counts = np.bincount(matched.astype(np.int64) + 1, minlength=size)[asked.astype(np.int64) + 1]
        if self.is_existence:
            counts = (counts > 0).astype(np.int64)
        return rows.with_columns({self.variable: counts})
