"""Projection of a read on Spark: scores, grouping, distinct, order, skip and limit.

Ties in the order are broken by all bound variables, as in process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from omnigraph.engine.query.expressions import walk
from omnigraph.engine.query.physical_plan import ReadPlan
from omnigraph.engine.query.projection import SkipLimit, resolve_aliases
from omnigraph.lang.query import ir
from omnigraph.spark.query.aggregates import EXPRESSIONS
from omnigraph.spark.query.expressions import Expressions
from omnigraph.spark.query.scan import HOPS, ID, POSITION, SCORE, VALUE, Search, spark_type


class Projection:
    """The projection of one read."""

    def __init__(self, plan: ReadPlan, expressions: Expressions, search: Search) -> None:
        self._plan = plan
        self._query = plan.query
        self._expressions = expressions
        self._functions = expressions.functions
        self._names = expressions.names
        self._search = search
        self._per_group = 0

    def run(self, rows: Any, cut: SkipLimit, per_group: int = 0) -> Any:
        """Return the columns of the query, named by their places; `per_group` is the number of `limit … per`."""
        query, self._per_group = self._query, per_group
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
        return rows

    # -- columns -----------------------------------------------------------------------------------------------

    def _columns(self) -> list[Any]:
        return [
            self._cast(self._value(index, column), column).alias(f"r{index}")
            for index, column in enumerate(self._query.columns)
        ]

    def _cast(self, value: Any, column: ir.Column) -> Any:
        return value if isinstance(column.expression, ir.VariableRef) else value.cast(spark_type(column.type))

    def _value(self, index: int, column: ir.Column) -> Any:
        if isinstance(column.expression, ir.Rank):
            is_order = column.expression == self._query.rank
            return self._functions.col(SCORE if is_order else f"s{index}")
        return self._expressions.value(column.expression)

    def _scored(self, rows: Any) -> Any:
        """Add search scores to the rows, and drop rows that are not ranked."""
        query = self._query
        others = [
            (index, column.expression)
            for index, column in enumerate(query.columns)
            if isinstance(column.expression, ir.Rank) and column.expression != query.rank
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
        keys, references = [], {}
        for index, column in enumerate(self._query.columns):
            if not ir.has_aggregate(column.expression):
                keys.append(self._cast(self._value(index, column), column).alias(f"r{index}"))
                references[column.expression] = ir.ColumnRef(f"r{index}", column.type)
        calls = [part for column in self._query.columns for part in walk(column.expression)]
        aggregates: list[Any] = []
        for call in dict.fromkeys(part for part in calls if isinstance(part, ir.Aggregate)):
            references[call] = ir.ColumnRef(f"a{len(aggregates)}", call.type)
            aggregates.append(self._aggregate(call).cast(spark_type(call.type)).alias(references[call].name))
        groups = rows.groupBy(*keys).agg(*aggregates)
        columns = [ir.substitute(column.expression, references) for column in self._query.columns]
        computed = groups.select(
            *(
                self._cast(self._expressions.value(expression), column).alias(f"r{index}")
                for index, (expression, column) in enumerate(zip(columns, self._query.columns, strict=True))
            )
        )
        if self._query.having is not None:
            computed = computed.where(self._expressions.condition(self._over_results(self._query.having)))
        return computed.select(*(f"r{index}" for index in range(len(self._query.returned))))

    def _over_results(self, expression: ir.Expr) -> ir.Expr:
        """Return an expression over columns of the query as one over the computed columns."""
        names: dict[ir.Expr, ir.Expr] = {}
        for index, column in reversed(list(enumerate(self._query.columns))):
            reference = ir.ColumnRef(f"r{index}", column.type)
            names |= {column.expression: reference, ir.ColumnRef(column.name, column.type): reference}
        return ir.substitute(expression, names)

    def _aggregate(self, call: ir.Aggregate) -> Any:
        value = self._functions.lit(1) if call.argument is None else self._expressions.value(call.argument)
        return EXPRESSIONS[call.function](self._functions, call, value)

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
        if not self._query.is_ordered or self._plan.ranking is not None:
            return rows
        keys = [
            self._directed(self._expressions.value(self._over_results(order.expression)), order.descending)
            for order in self._query.order
        ]
        columns = [f"r{index}" for index in range(len(self._query.returned))]
        if self._query.limit_per is not None:
            groups = [self._over_results(key) for key in self._query.limit_per.keys]
            rows = self._first_of_each(rows, groups, [*keys, *columns], self._per_group).select(*columns)
        return rows.orderBy(*keys, *columns)

    def _ordered(self, rows: Any) -> Any:
        keys = self._position()
        if not keys:
            for order in self._query.order:
                expression = resolve_aliases(self._query, order.expression)
                if not isinstance(expression, ir.Rank) and not ir.has_aggregate(expression):
                    keys.append(self._directed(self._expressions.value(expression), order.descending))
        if self._query.distinct_on:
            rows = self._first_of_each(rows, self._query.distinct_on, [*keys, *self._ties()], 1)
        if self._query.limit_per is not None:
            groups = [resolve_aliases(self._query, key) for key in self._query.limit_per.keys]
            rows = self._first_of_each(rows, groups, [*keys, *self._ties()], self._per_group)
        if not keys and not self._query.is_ordered and not self._query.distinct_on:
            return rows
        return rows.orderBy(*keys, *self._ties())

    def _first_of_each(self, rows: Any, keys: Sequence[ir.Expr], order: list[Any], count: int) -> Any:
        """Keep the first rows in order of those that are equal in the keys of `distinct on` or `limit … per`."""
        from pyspark.sql import Window

        names = [f"d{index}" for index in range(len(keys))]
        for name, key in zip(names, keys, strict=True):
            rows = rows.withColumn(name, self._expressions.value(key))
        row_number = self._functions.row_number().over(Window.partitionBy(*names).orderBy(*order))
        first = rows.withColumn("row_number", row_number).where(self._functions.col("row_number") <= count)
        return first.drop("row_number", *names)

    def _ties(self) -> list[Any]:
        tables = sorted(self._plan.tables.items(), key=lambda item: (item[1] is None, item[0]))
        columns = [self._names(name, HOPS if table is None else ID) for name, table in tables]
        columns += [self._names(name, VALUE) for name in sorted(self._plan.values)]
        return [self._functions.col(column) for column in columns]

    def _directed(self, column: Any, descending: bool) -> Any:
        return column.desc_nulls_last() if descending else column.asc_nulls_first()
