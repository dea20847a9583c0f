"""What a read starts from: the rows of a `with` or of a union, bound as variables.

Entities stay the numbers that they are. A value is bound as the row of the source that holds it, so that the operators
of a pattern copy a number and never the value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from omnigraph.engine.query.context import QueryRun
from omnigraph.engine.query.expressions import source_key
from omnigraph.engine.query.paths import path_key
from omnigraph.engine.query.search import Ids, Rows, vector_from_arrow
from omnigraph.lang.catalog import KINDS, TypeKey
from omnigraph.lang.query import ir
from omnigraph.lang.schema.arrow_schema import arrow_type

if TYPE_CHECKING:
    from omnigraph.engine.query.physical_plan import ReadPlan


class Source:
    """The rows that a read starts from: those of one plan, or of the blocks of a union."""

    def __init__(self, columns: Sequence[ir.Column], plans: Sequence[ReadPlan]) -> None:
        self.columns = columns
        self.plans = plans

    @property
    def tables(self) -> dict[str, TypeKey | None]:
        """The nodes, edges and paths that are passed on, with their types; a path has none."""
        passed = {column.name: column.expression for column in self.columns}
        return {
            name: TypeKey.of(item.kind, item.type_name) if item.kind in KINDS else None
            for name, item in passed.items()
            if isinstance(item, ir.VariableRef)
        }

    @property
    def values(self) -> tuple[str, ...]:
        """The names of the values."""
        return tuple(column.name for column in self.columns if not isinstance(column.expression, ir.VariableRef))

    def rows(self, run: QueryRun) -> Rows:
        """Run the source and bind its columns."""
        scratch: dict[str, Any] = {}
        tables = []
        for plan in self.plans:
            part = run.fork()
            tables.append(plan.run(part))
            scratch = part.scratch
        count = sum(table.num_rows for table in tables)
        run.spending.reserve(count, 8 * len(self.columns), "the rows of a union" if len(tables) > 1 else "a `with`")
        bindings: dict[str, Ids] = {}
        for index, column in enumerate(self.columns):
            arrays = [_one_array(table.column(index)) for table in tables]
            if isinstance(column.expression, ir.VariableRef):
                bindings[column.name] = arrays[0].to_numpy(zero_copy_only=False)
                _pass_path(run, scratch, column.name, column.expression)
            else:
                joined = pa.concat_arrays([array.cast(arrow_type(column.type)) for array in arrays])
                run.scratch[source_key(column.name)] = vector_from_arrow(joined)
                bindings[column.name] = np.arange(count)
        return Rows(count, bindings)


def _pass_path(run: QueryRun, scratch: Mapping[str, Any], name: str, passed: ir.VariableRef) -> None:
    if passed.kind not in KINDS and path_key(passed.variable) in scratch:
        run.scratch[path_key(name)] = scratch[path_key(passed.variable)]


def _one_array(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
