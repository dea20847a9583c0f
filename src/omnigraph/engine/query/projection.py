"""Projection: pattern rows to returned columns, with grouping, distinct, order, skip and limit.

Late materialisation: property values are read only for the rows that are returned.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.engine.query.aggregate import KERNELS, Groups, SingleGroup, aggregate_groups
from omnigraph.engine.query.context import QueryRun
from omnigraph.engine.query.expressions import (
    Evaluate,
    compile_predicate,
    compile_value,
    source_values,
    stored_column,
    variables_of,
    walk,
)
from omnigraph.engine.query.ordering import RowIndices, SortKey, encode_values, sort_keys, string_ranks, top_rows
from omnigraph.engine.query.ranking import Ranked, Ranking, scores_by_id
from omnigraph.engine.query.vectors import (
    Codes,
    Constant,
    Ids,
    Mask,
    Numbers,
    Rows,
    Strings,
    Vector,
    distinct_rows,
    places_in_runs,
    vector_from_arrow,
    vector_to_arrow,
)
from omnigraph.errors import DataError
from omnigraph.lang.catalog import KINDS, TypeKey
from omnigraph.lang.query import ir
from omnigraph.lang.query.functions import AGGREGATES
from omnigraph.lang.schema.arrow_schema import arrow_type

# So many rows are worth an estimate of their size before their values are read.
_ESTIMATE_ROWS_MIN: Final = 100_000

# A column of a result, read only at the places that are asked for; all when None.
Deferred: TypeAlias = Callable[[RowIndices | None], Any]
Project: TypeAlias = Callable[[QueryRun, Rows], Any]


@dataclass(frozen=True)
class SkipLimit:
    """Which rows of the ordered result are returned."""

    skip: int
    limit: int | None

    @property
    def end(self) -> int | None:
        return None if self.limit is None else self.skip + self.limit


class Projection:
    """The compiled end of one read.

    `tables` names the type of every variable that breaks ties, None for hops and paths; values of what the read starts
    from, `source_names`, break them after those.
    """

    def __init__(
        self,
        query: ir.ReadIR,
        tables: Mapping[str, TypeKey | None],
        source_names: Sequence[str],
        keys: Mapping[str, str],
    ) -> None:
        self.query = query
        self._is_identified = returns_identity(query, keys)
        self._tables = tables
        self._source_names = sorted(source_names)
        self.values = [_compile_column(column.expression) for column in query.columns]
        self.composites = compile_composites(query) if query.is_grouped else {}
        self._arrays = [_compile_arrow_column(column) for column in query.columns]
        self._names = [column.name for column in query.returned]
        self._having = None if query.having is None else compile_predicate(query.having)
        self._distinct_on = [compile_value(key) for key in query.distinct_on]
        self._scores = [
            Ranking(column.expression) if isinstance(column.expression, ir.Rank) else None for column in query.columns
        ]
        self._keys = [self._order_key(key.expression) for key in query.order]
        is_of_rows = query.limit_per is not None and not query.is_grouped and not query.is_distinct
        keys_per = query.limit_per.keys if query.limit_per is not None and is_of_rows else ()
        self._per = [(resolve_aliases(query, key), compile_value(resolve_aliases(query, key))) for key in keys_per]

    def run(self, run: QueryRun, rows: Rows, bounds: SkipLimit, ranked: Ranked | None) -> pa.Table:
        """Return the result; `ranked` is the ranking that the rows are in the order of, if the read has one."""
        if self.query.is_grouped:
            columns, count = self._group(run, rows)
            return self.run_grouped(run, columns, count, bounds)
        if self.query.is_distinct:
            if self._is_identified and ranked is None:
                # Entities tell the rows apart, so their values need not be compared.
                rows = distinct_rows(rows)
                arrays = self._project(run, rows, ranked)
            else:
                arrays = _distinct_rows(self._project(run, rows, ranked), rows.count)
            columns = [computed_column(array) for array in arrays]
            return self._cut_table(run, columns, len(arrays[0]), bounds, is_ordered=ranked is not None)
        if ranked is None and (self.query.is_ordered or self._distinct_on):
            keys = [key for evaluate, order in zip(self._keys, self.query.order, strict=True)
                    for key in sort_keys(evaluate(run, rows), order.descending)]  # fmt: skip
            if self._distinct_on and keys and rows.count > 1:
                best_rows = self._best_of_groups(run, rows, keys[0])
                rows, keys = rows.take(best_rows), [key[best_rows] for key in keys]
            limit = None if self._distinct_on or self._per else bounds.end
            rows = rows.take(top_rows(keys, rows.count, limit, lambda indices: self.ties(run, rows, indices)))
        if self._distinct_on and rows.count > 1:
            rows = rows.take(np.sort(self._distinct_groups(run, rows).first))
        if self._per and rows.count:
            codes = [self._key_codes(run, rows, key, evaluate) for key, evaluate in self._per]
            rows = rows.where(self._first_of_groups(run, codes, np.arange(rows.count)))
        rows = _slice_rows(rows, bounds)
        return self._table(self._project(run, rows, ranked))

    def _first_of_groups(self, run: QueryRun, codes: list[tuple[Codes, int]], row_indices: RowIndices) -> Mask:
        """Return which rows, in their order, are among the first of those with equal codes."""
        assert self.query.limit_per is not None
        count = run.bound(self.query.limit_per.count, "limit")
        groups = Groups(codes, len(codes[0][0])).of[row_indices]
        # A stable sort by group keeps the order within each.
        by_group = np.argsort(groups, kind="stable")
        mask = np.empty(len(by_group), np.bool_)
        mask[by_group] = places_in_runs(groups[by_group]) < count
        return mask

    def _distinct_groups(self, run: QueryRun, rows: Rows) -> Groups:
        keys = zip(self.query.distinct_on, self._distinct_on, strict=True)
        return Groups([self._key_codes(run, rows, key, evaluate) for key, evaluate in keys], rows.count)

    def _best_of_groups(self, run: QueryRun, rows: Rows, key: SortKey) -> RowIndices:
        """Return the rows that may be the first of those equal in `distinct on`, by the first key of the order."""
        groups = self._distinct_groups(run, rows)
        best = key[groups.first]
        np.minimum.at(best, groups.of, key)
        return np.flatnonzero(key == best[groups.of])

    # -- columns -----------------------------------------------------------------------------------------------

    def _project(self, run: QueryRun, rows: Rows, ranked: Ranked | None) -> list[Any]:
        is_many = rows.count > _ESTIMATE_ROWS_MIN
        width = sum(self._width(run, column) if is_many else 1 for column in self.query.columns)
        run.spending.reserve(rows.count, width, "the result")
        columns = []
        for column, project, score in zip(self.query.columns, self._arrays, self._scores, strict=True):
            if score is not None:
                vector = self._score(run, rows, score, ranked)
                columns.append(vector_to_arrow(vector, arrow_type(column.type), rows.count))
            else:
                assert project is not None
                columns.append(project(run, rows))
        return columns

    def _width(self, run: QueryRun, column: ir.Column) -> int:
        expression = column.expression
        if column.type.dimension is not None:
            return 4 * column.type.dimension
        if isinstance(expression, ir.NodeRef):
            entities, name = run.nodes(expression.node_type), "id"
        elif isinstance(expression, ir.PropertyRef) and (column.type.is_text or column.type.is_list):
            entities, name = run.entities(TypeKey.of(expression.owner_kind, expression.owner)), expression.property
        else:
            return 8
        return int(entities.column(name).array.nbytes) // max(entities.count, 1) + 8

    def _score(self, run: QueryRun, rows: Rows, score: Ranking, ranked: Ranked | None) -> Vector:
        ids = rows.columns[score.variable]
        if ranked is not None and score.rank == self.query.rank:
            return scores_by_id(ranked, ids, run.nodes(score.node_type).count)
        return score.scores(run, ids)

    def _table(self, columns: list[Any]) -> pa.Table:
        return pa.Table.from_arrays(columns, names=self._names)

    # -- groups ------------------------------------------------------------------------------------------------

    def _group(self, run: QueryRun, rows: Rows) -> tuple[list[Deferred], int]:
        keys = self.group_keys(run, rows)
        groups = Groups(keys, rows.count) if keys else SingleGroup(rows.count)
        run.spending.reserve(groups.size, 8 * len(self.query.columns), "grouping")
        columns: list[Deferred] = []
        for index, (column, evaluate) in enumerate(zip(self.query.columns, self.values, strict=True)):
            if isinstance(column.expression, ir.Aggregate):
                vector = evaluate(run, rows) if evaluate is not None else None
                columns.append(computed_column(_aggregate_column(column.expression, vector, groups)))
            elif index in self.composites:
                columns.append(computed_column(self._composite(run, rows, groups, index)))
            else:
                columns.append(self.deferred(run, index, rows, groups.first))
        return columns, groups.size

    def _composite(self, run: QueryRun, rows: Rows, groups: Groups, index: int) -> Any:
        composite, column = self.composites[index], self.query.columns[index]
        firsts = rows.take(groups.first) if composite.keys else rows
        values: dict[str, Vector] = {}
        for name, key in composite.keys:
            values[name] = key(run, firsts)
        for name, call, argument in composite.aggregates:
            vector = argument(run, rows) if argument is not None else None
            values[name] = vector_from_arrow(_aggregate_column(call, vector, groups))
        result = composite.evaluate(run, Rows(groups.size, {}, values))
        return vector_to_arrow(result, arrow_type(column.type), groups.size)

    def deferred(self, run: QueryRun, index: int, rows: Rows, firsts: RowIndices) -> Deferred:
        """Return a group key whose values are read only for the groups that are returned."""
        project = self._arrays[index]
        assert project is not None
        return lambda indices: project(run, rows.take(firsts if indices is None else firsts[indices]))

    def run_grouped(self, run: QueryRun, columns: list[Deferred], count: int, bounds: SkipLimit) -> pa.Table:
        if self._having is not None:
            columns, count = self._filter_groups(run, columns, count)
        columns = columns[: len(self._names)]
        if self.query.is_distinct:
            arrays = _distinct_rows([column(None) for column in columns], count)
            columns, count = [computed_column(array) for array in arrays], len(arrays[0])
        return self._cut_table(run, columns, count, bounds, is_ordered=False)

    def _filter_groups(self, run: QueryRun, columns: list[Deferred], count: int) -> tuple[list[Deferred], int]:
        assert self._having is not None
        assert self.query.having is not None
        kept = np.flatnonzero(self._having(run, self._column_rows(self.query.having, columns, count)))
        return [_restrict_column(column, kept) for column in columns], len(kept)

    def group_keys(self, run: QueryRun, rows: Rows) -> list[tuple[Codes, int]]:
        """Return the codes of every column that is not an aggregate."""
        return [
            self._key_codes(run, rows, column.expression, evaluate)
            for column, evaluate in zip(self.query.columns, self.values, strict=True)
            if not ir.has_aggregate(column.expression)
        ]

    def _key_codes(self, run: QueryRun, rows: Rows, key: ir.Expr, evaluate: Evaluate | None) -> tuple[Codes, int]:
        is_union = isinstance(key, ir.NodeRef) and ir.is_union(key.node_type)
        if isinstance(key, ir.HopsRef | ir.VariableRef | ir.NodeRef) and not is_union:
            ids = rows.columns[key.variable]
            return ids.astype(np.int64) + 1, int(ids.max(initial=-1)) + 2
        if isinstance(key, ir.PropertyRef) and key.type.is_text:
            entities = run.entities(TypeKey.of(key.owner_kind, key.owner))
            if rows.count * 4 >= entities.count > 0:
                # Codes of the whole column are kept, and gathering them is cheaper than coding the texts again.
                column = entities.column(key.property)
                return column.codes_of(rows.columns[key.variable]).astype(np.int64) + 1, len(column.dictionary) + 1
        assert evaluate is not None
        return encode_values(evaluate(run, rows), rows.count)

    # -- order -------------------------------------------------------------------------------------------------

    def _order_key(self, expression: ir.Expr) -> Evaluate:
        if isinstance(expression, ir.ColumnRef) and expression.type is None:
            raise DataError(
                f"no column is called `{expression.name}`, so nothing can be ordered by it; return it under that"
                " name, or order by a property",
                rule="E2",
                column=expression.name,
            )
        expression = resolve_aliases(self.query, expression)
        if ir.has_aggregate(expression) or isinstance(expression, ir.Rank):
            return lambda run, rows: Constant(None, ir.SCORE)
        evaluate = compile_value(expression)
        if not isinstance(expression, ir.PropertyRef) or not expression.type.is_text:
            return evaluate

        def ranks_or_texts(run: QueryRun, rows: Rows) -> Vector:
            ranks = _known_ranks(run, rows, expression)
            return evaluate(run, rows) if ranks is None else Numbers(ranks, None)

        return ranks_or_texts

    def ties(self, run: QueryRun, rows: Rows, row_indices: RowIndices) -> list[SortKey]:
        """Return the ids of all bound variables, in the order of their names, hops last."""
        keys: list[SortKey] = []
        for name, table in sorted(self._tables.items(), key=lambda item: (item[1] is None, item[0])):
            ids = rows.columns[name][row_indices]
            keys.append(ids if table is None else _rank_entities(run, table, ids))
        for name in self._source_names:
            keys.extend(sort_keys(source_values(run, name, rows.columns[name][row_indices]), False))
        return keys

    def _cut_table(
        self, run: QueryRun, columns: list[Deferred], count: int, bounds: SkipLimit, *, is_ordered: bool
    ) -> pa.Table:
        """Order and cut rows that are columns already; what the keys leave equal is settled by the columns."""
        row_indices = np.arange(count, dtype=np.int64)
        if self.query.is_ordered and not is_ordered:
            keys: list[SortKey] = []
            for order in self.query.order:
                keys.extend(sort_keys(self._column_key(run, order.expression, columns, count), order.descending))
            end = bounds.end if self.query.limit_per is None else None
            row_indices = top_rows(keys, count, end, lambda tied: self._tie_breakers(run, columns, tied))
        if self.query.limit_per is not None and count:
            vectors = [self._column_key(run, key, columns, count) for key in self.query.limit_per.keys]
            codes = [encode_values(vector, count) for vector in vectors]
            row_indices = row_indices[self._first_of_groups(run, codes, row_indices)]
        row_indices = row_indices[bounds.skip : bounds.end]
        return self._table(
            [column(row_indices if len(row_indices) < count or self.query.is_ordered else None) for column in columns]
        )

    def _tie_breakers(self, run: QueryRun, columns: list[Deferred], row_indices: RowIndices) -> list[SortKey]:
        keys: list[SortKey] = []
        for column, values in zip(self.query.columns, columns, strict=False):
            passed = column.expression
            if isinstance(passed, ir.VariableRef) and passed.kind in KINDS:
                ids = values(row_indices).to_numpy(zero_copy_only=False)
                keys.append(_rank_entities(run, TypeKey.of(passed.kind, passed.type_name), ids))
            else:
                keys.extend(sort_keys(vector_from_arrow(values(row_indices)), False))
        return keys

    def _column_key(self, run: QueryRun, expression: ir.Expr, columns: list[Deferred], count: int) -> Vector:
        references = {column.expression: ir.ColumnRef(column.name, column.type) for column in self.query.columns[::-1]}
        reference = ir.substitute(expression, references)
        return compile_value(reference)(run, self._column_rows(reference, columns, count))

    def _column_rows(self, expression: ir.Expr, columns: list[Deferred], count: int) -> Rows:
        """Return the rows of a result with the columns that an expression over columns reads."""
        names = [column.name for column in self.query.columns]
        read = {part.name for part in walk(expression) if isinstance(part, ir.ColumnRef)}
        return Rows(count, {}, {name: vector_from_arrow(columns[names.index(name)](None)) for name in read})


def _known_ranks(run: QueryRun, rows: Rows, reference: ir.PropertyRef) -> Codes | None:
    """Return the ranks of texts; None where rows are so few that ranking all entities, which is kept, costs more."""
    key, name = stored_column(reference)
    entities = run.entities(key)
    if rows.count * 4 < entities.count:
        return None
    return entities.column(name).ranks_of(rows.columns[reference.variable])


def _with_ranks(reference: ir.PropertyRef) -> Evaluate:
    evaluate = compile_value(reference)

    def values(run: QueryRun, rows: Rows) -> Vector:
        texts = evaluate(run, rows)
        return Strings(texts.array, _known_ranks(run, rows, reference)) if isinstance(texts, Strings) else texts

    return values


def computed_column(array: Any) -> Deferred:
    return lambda indices: array if indices is None else array.take(pa.array(indices))


def _restrict_column(column: Deferred, kept: RowIndices) -> Deferred:
    return lambda indices: column(kept if indices is None else kept[indices])


def _rank_entities(run: QueryRun, table: TypeKey, ids: Ids) -> SortKey:
    """Return numbers in the order of the ids of entities, those of a union by type first; null comes first."""
    entities = run.entities(table)
    if len(ids) * 4 >= entities.count or ir.is_union(table.name):
        ranks: SortKey = np.append(entities.id_ranks, entities.dtype(-1))[ids]
        return ranks
    ids_as_strings = entities.values("id", ids)
    assert isinstance(ids_as_strings, Strings)
    return string_ranks(ids_as_strings.array)


def resolve_aliases(query: ir.ReadIR, expression: ir.Expr) -> ir.Expr:
    """Return an order key with the expressions of columns in place of their names."""
    columns = {ir.ColumnRef(column.name, column.type): column.expression for column in query.columns[::-1]}
    return ir.substitute(expression, columns)  # type: ignore[arg-type]


def returns_identity(query: ir.ReadIR, keys: Mapping[str, str]) -> bool:
    """True if every returned variable is also returned by its id or key, so rows are distinct by identity."""
    used: set[str] = set()
    identified: set[str] = set()
    for column in query.columns:
        expression = column.expression
        used |= variables_of(expression)
        if isinstance(expression, ir.NodeRef | ir.HopsRef | ir.VariableRef):
            # Ids are unique in a type, not in a union of types.
            is_identity = not isinstance(expression, ir.NodeRef) or not ir.is_union(expression.node_type)
            identified |= {expression.variable} if is_identity else set()
        elif isinstance(expression, ir.PropertyRef) and expression.owner_kind == "node":
            identified |= {expression.variable} if keys.get(expression.owner) == expression.property else set()
    return used == identified


def _compile_column(expression: ir.Expr) -> Evaluate | None:
    if isinstance(expression, ir.Rank):
        return None
    if isinstance(expression, ir.Aggregate):
        argument = expression.argument
        if isinstance(argument, ir.NodeRef) and not AGGREGATES[expression.function].reads_values:
            # Which nodes are there is known without their ids; nodes of several types may share an id.
            variable = argument.variable
            if not expression.is_distinct or not ir.is_union(argument.node_type):
                return lambda run, rows: Numbers(rows.columns[variable], rows.columns[variable] >= 0)
        if KERNELS[expression.function].sorts_values and isinstance(argument, ir.PropertyRef) and argument.type.is_text:
            return _with_ranks(argument)
        return None if argument is None else compile_value(argument)
    return None if ir.has_aggregate(expression) else compile_value(expression)


@dataclass(frozen=True)
class Composite:
    """A column that computes with aggregates: what it reads of each group, by name, and the computation."""

    keys: tuple[tuple[str, Evaluate], ...]
    aggregates: tuple[tuple[str, ir.Aggregate, Evaluate | None], ...]
    evaluate: Evaluate


def compile_composites(query: ir.ReadIR) -> dict[int, Composite]:
    """Return the columns that compute with aggregates, by position."""
    keys = {column.expression for column in query.columns if not ir.has_aggregate(column.expression)}
    composites: dict[int, Composite] = {}
    for index, column in enumerate(query.columns):
        expression = column.expression
        if isinstance(expression, ir.Aggregate) or not ir.has_aggregate(expression):
            continue
        inputs = list(dict.fromkeys(_group_inputs(expression, keys)))
        names = {part: ir.ColumnRef(f"~{number}", part.type) for number, part in enumerate(inputs)}
        composites[index] = Composite(
            tuple((names[part].name, compile_value(part)) for part in inputs if not isinstance(part, ir.Aggregate)),
            tuple((names[part].name, part, _compile_column(part)) for part in inputs if isinstance(part, ir.Aggregate)),
            compile_value(ir.substitute(expression, names)),
        )
    return composites


def _group_inputs(expression: ir.Expr, keys: Collection[ir.Expr]) -> Iterator[ir.Expr]:
    if isinstance(expression, ir.Aggregate) or expression in keys:
        yield expression
    else:
        for part in ir.children_of(expression):
            yield from _group_inputs(part, keys)


def _aggregate_column(call: ir.Aggregate, vector: Vector | None, groups: Groups) -> Any:
    values = aggregate_groups(call, vector, groups)
    return vector_to_arrow(vector_from_arrow(values), arrow_type(call.type), groups.size)


def _compile_arrow_column(column: ir.Column) -> Project | None:
    """Return a function from rows to a returned column; None for scores and aggregates, which are no value of a row."""
    expression, result_type = column.expression, arrow_type(column.type)
    if isinstance(expression, ir.Rank) or ir.has_aggregate(expression):
        return None
    if isinstance(expression, ir.PropertyRef | ir.NodeRef):
        key, property_ = stored_column(expression)
        variable = expression.variable
        return lambda run, rows: run.entities(key).arrow(property_, rows.columns[variable], result_type)
    if isinstance(expression, ir.VariableRef):
        passed = expression.variable
        return lambda run, rows: pa.array(rows.columns[passed].astype(np.int64))
    evaluate = compile_value(expression)
    return lambda run, rows: vector_to_arrow(evaluate(run, rows), result_type, rows.count)


def _distinct_rows(columns: list[Any], count: int) -> list[Any]:
    """Return equal rows once, the first of them each."""
    if count < 2:
        return columns
    groups = Groups([encode_values(vector_from_arrow(column), count) for column in columns], count)
    first_rows = pa.array(np.sort(groups.first))
    return [column.take(first_rows) for column in columns]


def _slice_rows(rows: Rows, bounds: SkipLimit) -> Rows:
    if bounds.skip == 0 and (bounds.limit is None or bounds.limit >= rows.count):
        return rows
    start, end, _ = slice(bounds.skip, bounds.end).indices(rows.count)
    return Rows(max(end - start, 0), {name: array[start:end] for name, array in rows.columns.items()})
