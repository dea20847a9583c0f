"""The elements of lists as rows: `unwind`.

An element is bound as its place among all elements, so that later operators copy a number and never the value.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from omnigraph.engine.query.context import QueryRun
from omnigraph.engine.query.expressions import Evaluate, source_key
from omnigraph.engine.query.operators import PlanStep
from omnigraph.engine.query.vectors import Constant, Lists, Rows, materialize


@dataclass
class Unwind(PlanStep):
    """Bind each element of a list, one row each; a missing or empty list has none."""

    evaluate: Evaluate
    variable: str
    text: str

    @cached_property
    def title(self) -> str:
        return f"unwind {self.text} as ${self.variable}"

    def run(self, run: QueryRun, rows: Rows) -> Rows:
        vector, outer = self.evaluate(run, rows), rows.only(self.keep)
        if isinstance(vector, Constant):
            # The same list for every row is copied for each of them.
            length = len(vector.value) if isinstance(vector.value, tuple) else 0
            run.spending.reserve(rows.count * length, outer.row_bytes + 16, self.title)
        lists = materialize(vector, rows.count)
        assert isinstance(lists, Lists)
        lengths = lists.lengths
        total = int(lengths.sum())
        run.spending.reserve(total, outer.row_bytes + 16, self.title)
        run.scratch[source_key(self.variable)] = lists.items
        parents = np.repeat(np.arange(rows.count), lengths)
        return outer.take(parents).with_columns({self.variable: np.arange(total)})
