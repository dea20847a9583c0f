"""Projection of a read on Spark: scores, grouping, distinct, order, skip and limit.

Ties in the order are broken by all bound variables, as in process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from omnigraph.engine.query.aggregate import overflow_message
from omnigraph.engine.query.physical_plan import ReadPlan
from omnigraph.engine.query.projection import SkipLimit, find_column
from omnigraph.lang.catalog import INTEGERS, Scalar
from omnigraph.lang.query import ir
from omnigraph.pipeline.query.expressions import Expressions
from omnigraph.pipeline.query.scan import HOPS, ID, Names, spark_type
from omnigraph.pipeline.query.search import POSITION, SCORE, Search

# Wide enough for a sum of more 64-bit integers than any graph has rows.
_EXACT: Final = "decimal(38,0)"
_RANKS: Final = (ir.Nearest, ir.Bm25, ir.Rrf)


class Projection:
    """The projection of one read."""

    def __init__(self, plan: ReadPlan, expressions: Expressions, names: Names, search: Search) -> None:
        self._plan = plan
        self._query = plan.query
        self._expressions = expressions
        self._functions = expressions.functions
        self._names = names
        self._search = search

    def run(self, rows: Any, cut: SkipLimit) -> Any:
        """Return the result with the column names of the query."""
        query = self._query
        rows = self._scored(rows)
        if query.is_grouped:
            rows = self._ordered_by_columns(self._distinct(self._grouped(rows)))
        elif query.is_distinct:
            rows = self._ordered_by_columns(self._distinct(rows.select(*self._columns(), *self._position())))
        else:
            rows = self._ordered(rows).select(*self._columns())
        if cut.skip:
            rows = rows.offset(cut.skip)
        if cut.limit is not None:
            rows = rows.limit(cut.limit)
        return rows.toDF(*(column.name for column in query.columns))

    # -- columns -----------------------------------------------------------------------------------------------

    def _columns(self) -> list[Any]:
        return [
            self._value(index, column).cast(spark_type(column.type)).alias(f"r{index}")
            for index, column in enumerate(self._query.columns)
        ]

    def _value(self, index: int, column: ir.Column) -> Any:
        if isinstance(column.expression, _RANKS):
            is_order = column.expression == self._query.rank
            return self._functions.col(SCORE if is_order else f"s{index}")
        return self._expressions.value(column.expression)

    def _scored(self, rows: Any) -> Any:
        """Add search scores to the rows, and drop rows that are not ranked."""
        query = self._query
        others = [
            (index, column.expression)
            for index, column in enumerate(query.columns)
            if isinstance(column.expression, _RANKS) and column.expression != query.rank
        ]
        if query.rank is None and not others:
            return rows
        # The rows are evaluated twice: once for the entities to rank, once for the result.
        rows = rows.localCheckpoint()
        if self._plan.ranking is not None:
            rows = self._search.rank(rows, self._names(self._plan.ranking.variable, ID))
        for index, rank in others:
            field = rank.first.field if isinstance(rank, ir.Rrf) else rank.field
            rows = self._search.scored(rows, rank, self._names(field.variable, ID), f"s{index}")
        return rows

    # -- groups ------------------------------------------------------------------------------------------------

    def _grouped(self, rows: Any) -> Any:
        keys, aggregates = [], []
        for index, column in enumerate(self._query.columns):
            if isinstance(column.expression, ir.Aggregate):
                aggregate = self._aggregate(column.expression).cast(spark_type(column.type))
                aggregates.append(aggregate.alias(f"r{index}"))
            else:
                keys.append(self._value(index, column).cast(spark_type(column.type)).alias(f"r{index}"))
        groups = rows.groupBy(*keys).agg(*aggregates)
        return groups.select(*(f"r{index}" for index in range(len(self._query.columns))))

    def _aggregate(self, call: ir.Aggregate) -> Any:
        functions, argument = self._functions, call.argument
        if argument is None:
            return functions.count(functions.lit(1))
        value = self._expressions.value(argument)
        if call.function == "count":
            return functions.count(value)
        if call.function in ("sum", "avg"):
            assert argument.type is not None
            # Integers are summed exactly, as decimals; an average rounds once, at the end.
            wide = value.cast(_EXACT if argument.type.scalar in INTEGERS else "double")
            total = functions.sum(wide)
            return (
                self._raise_on_overflow(total, call)
                if call.function == "sum"
                else total.cast("double") / functions.count(value)
            )
        extreme: Callable[[Any], Any] = functions.min if call.function == "min" else functions.max
        return extreme(value)

    def _raise_on_overflow(self, total: Any, call: ir.Aggregate) -> Any:
        """Return a sum that fails the query if it overflows the type of its column."""
        functions, scalar = self._functions, call.type.scalar
        if scalar not in INTEGERS:
            return total
        lowest, highest = (0, 2**64 - 1) if scalar is Scalar.U64 else (-(2**63), 2**63 - 1)
        is_outside = (total < functions.lit(str(lowest)).cast(_EXACT)) | (
            total > functions.lit(str(highest)).cast(_EXACT)
        )
        return functions.when(
            is_outside, functions.raise_error(functions.lit(overflow_message(call.function, scalar)))
        ).otherwise(total)

    # -- order -------------------------------------------------------------------------------------------------

    def _position(self) -> list[Any]:
        return [self._functions.col(POSITION)] if self._plan.ranking is not None else []

    def _distinct(self, rows: Any) -> Any:
        """Return distinct rows; ranked rows keep the position of the best duplicate."""
        if not self._query.is_distinct:
            return rows
        if self._plan.ranking is None or self._query.is_grouped:
            return rows.distinct()
        names = [f"r{index}" for index in range(len(self._query.columns))]
        best = rows.groupBy(*names).agg(self._functions.min(POSITION).alias(POSITION))
        return best.orderBy(POSITION).select(*names)

    def _ordered_by_columns(self, rows: Any) -> Any:
        """Order projected rows; ties are broken by the columns."""
        if not self._query.order or self._plan.ranking is not None:
            return rows
        keys = [
            self._directed(self._functions.col(f"r{self._column_index(order.expression)}"), order.descending)
            for order in self._query.order
        ]
        return rows.orderBy(*keys, *(f"r{index}" for index in range(len(self._query.columns))))

    def _column_index(self, expression: ir.Expr) -> int:
        if isinstance(expression, ir.ColumnRef):
            index = find_column(self._query, expression)
        else:
            index = next((n for n, column in enumerate(self._query.columns) if column.expression == expression), None)
        assert index is not None, "the checker lets only returned columns order groups and distinct rows"
        return index

    def _ordered(self, rows: Any) -> Any:
        keys = self._position()
        if not keys:
            for order in self._query.order:
                expression = order.expression
                if isinstance(expression, ir.ColumnRef):
                    expression = self._query.columns[self._column_index(expression)].expression
                if not isinstance(expression, (ir.Aggregate, *_RANKS)):
                    keys.append(self._directed(self._expressions.value(expression), order.descending))
        if not keys and not self._query.order:
            return rows
        return rows.orderBy(*keys, *self._ties())

    def _ties(self) -> list[Any]:
        tables = sorted(self._plan.tables.items(), key=lambda item: (item[1] is None, item[0]))
        return [self._functions.col(self._names(name, HOPS if table is None else ID)) for name, table in tables]

    def _directed(self, column: Any, descending: bool) -> Any:
        return column.desc_nulls_last() if descending else column.asc_nulls_first()
