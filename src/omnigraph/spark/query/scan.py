"""Scans on Spark: what a read needs of each type, a few fragments a task, and the hits of text and vector searches.

Conditions run the code of the in-process engine. The driver holds ids of candidates and hits, never other properties.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.engine.arguments import Value, missing_parameter_error
from omnigraph.engine.pinned_scan import Scan
from omnigraph.engine.query.context import QueryRun
from omnigraph.engine.query.entities import quote_literal
from omnigraph.engine.query.expressions import Predicate, compile_predicate, compile_text_search, variables_of, walk
from omnigraph.engine.query.physical_plan import ReadPlan
from omnigraph.engine.query.ranking import Ranked, Ranking, union_of_ids
from omnigraph.engine.query.vectors import Ids, Mask, Rows, vector_from_arrow
from omnigraph.engine.write.committed_rows import comparison
from omnigraph.lang.catalog import INTEGERS, PropertyType, TypeKey
from omnigraph.lang.query import ir
from omnigraph.spark.datasource.options import spark_data_type, to_spark_column
from omnigraph.spark.executors import map_tasks
from omnigraph.store.read.lookup import ROW_ID
from omnigraph.store.write.fragments import scan_fragments

# A condition that only the scan of a type can evaluate; it becomes a boolean column of the scan.
Mark: TypeAlias = ir.TextMatch | ir.IsNull


@dataclass(frozen=True, slots=True)
class Need:
    """The properties and marks of a variable that are needed after its scan."""

    properties: dict[str, ir.PropertyRef] = field(default_factory=dict)
    marks: dict[Mark, None] = field(default_factory=dict)


def push_down_filters(pipeline: tuple[ir.Operator, ...]) -> tuple[ir.Operator, ...]:
    """Move conditions on a single variable into the scan or traversal that binds it."""
    binders: dict[str, int] = {}
    for index, operator in enumerate(pipeline):
        binders |= dict.fromkeys(_bound_by(operator), index)
    pushed: dict[int, list[ir.Expr]] = {}
    operators: list[ir.Operator | None] = []
    for operator in pipeline:
        used = variables_of(operator.condition) if isinstance(operator, ir.Filter) else set()
        if isinstance(operator, ir.Filter) and len(used) == 1 and used <= binders.keys():
            pushed.setdefault(binders[next(iter(used))], []).append(operator.condition)
            operators.append(None)
        elif isinstance(operator, ir.Join):
            operators.append(replace(operator, inner=push_down_filters(operator.inner)))
        else:
            operators.append(operator)
    return tuple(
        _add_filters(operator, pushed.get(index, []))
        for index, operator in enumerate(operators)
        if operator is not None
    )


def _bound_by(operator: ir.Operator) -> Iterator[str]:
    if isinstance(operator, ir.NodeScan | ir.PathNodes):
        yield operator.variable
    elif isinstance(operator, ir.Expand):
        yield operator.target
        if operator.edge_variable is not None:
            yield operator.edge_variable


def _add_filters(operator: ir.Operator, conditions: list[ir.Expr]) -> ir.Operator:
    if not conditions:
        return operator
    assert isinstance(operator, ir.NodeScan | ir.Expand | ir.PathNodes), (
        "only operators that bind a variable take its conditions"
    )
    return replace(operator, filters=(*operator.filters, *conditions))


def collect_needs(read: ir.ReadIR, pipeline: tuple[ir.Operator, ...]) -> Mapping[str, Need]:
    """Return what later operators need of each variable."""
    needs: dict[str, Need] = {}
    for expression in _late_expressions(read, pipeline):
        for part in _read_parts(expression):
            if isinstance(part, ir.PropertyRef):
                need = needs.setdefault(part.variable, Need())
                if part.property != ID:
                    # Every row has the ids of its variables.
                    need.properties[part.property] = part
            else:
                [variable] = variables_of(part)
                needs.setdefault(variable, Need()).marks[part] = None
    return needs


def _read_parts(expression: ir.Expr) -> Iterator[ir.PropertyRef | Mark]:
    if is_mark(expression):
        assert isinstance(expression, ir.TextMatch | ir.IsNull)
        yield expression
    elif isinstance(expression, ir.PropertyRef):
        yield expression
    else:
        for part in ir.children_of(expression):
            yield from _read_parts(part)


def is_mark(expression: ir.Expr) -> bool:
    """Return True for a condition that only a scan can evaluate."""
    if isinstance(expression, ir.IsNull):
        operand = expression.operand
        return isinstance(operand, ir.PropertyRef) and operand.type.is_blob
    return isinstance(expression, ir.TextMatch)


def _late_expressions(read: ir.ReadIR, pipeline: tuple[ir.Operator, ...]) -> Iterator[ir.Expr]:
    yield from _conditions(pipeline)
    for column in read.columns:
        if not isinstance(column.expression, ir.Rank):
            yield column.expression
    yield from (key.expression for key in read.order)
    yield from read.distinct_on
    if read.limit_per is not None:
        yield from read.limit_per.keys


def _conditions(pipeline: tuple[ir.Operator, ...]) -> Iterator[ir.Expr]:
    for operator in pipeline:
        if isinstance(operator, ir.Filter):
            yield operator.condition
        elif isinstance(operator, ir.Join):
            yield from _conditions(operator.inner)
        elif isinstance(operator, ir.Unwind):
            yield operator.collection
        elif isinstance(operator, ir.Expand):
            bound = {operator.target, operator.edge_variable}
            yield from (
                condition
                for condition in operator.filters
                if len(used := variables_of(condition)) != 1 or not used <= bound
            )
        else:
            yield from (condition for condition in operator.filters if variables_of(condition) != {operator.variable})


ID = "id"
HOPS = "hops"
VALUE = "value"
# Stands between type and id where ids of several types are in one column. No type name holds it, and it sorts before
# all their characters, so that such ids sort by type, then id.
TYPE_MARK = "/"


def resolve_type_names(condition: ir.Expr, type_name: str) -> ir.Expr:
    """Return a condition on the entities of one type with that name in place of `type($v)`."""
    literal = ir.Literal(type_name, ir.ID)
    return ir.substitute(condition, {part: literal for part in walk(condition) if isinstance(part, ir.TypeRef)})


class Names:
    """Assigns column names to the ids, properties and marks of variables."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, object], str] = {}

    def __call__(self, variable: str, attribute: object) -> str:
        return self._names.setdefault((variable, attribute), f"c{len(self._names)}")

    def of(self, variables: Iterable[str], columns: Iterable[str], *, is_key: bool = False) -> list[str]:
        """Return the columns that belong to the variables; only those that identify what is bound, if `is_key`."""
        selected, present = set(variables), set(columns)
        return [
            name
            for (variable, attribute), name in self._names.items()
            if variable in selected and name in present and (not is_key or attribute in (ID, HOPS, VALUE))
        ]


_PUSHED = frozenset({ir.CompareOp.EQ, ir.CompareOp.LT, ir.CompareOp.LE, ir.CompareOp.GT, ir.CompareOp.GE})
_I64_MIN: Final = -(2**63)


@dataclass(frozen=True, slots=True)
class ScanSource:
    """A scan as its tasks see it.

    `outputs` are (name, column, type) of the returned columns; `marks` follow them. `matches` has the row ids that each
    text condition found.
    """

    scan: Scan
    runs: Sequence[Sequence[int]]
    variable: str
    outputs: tuple[tuple[str, str, PropertyType], ...]
    marks: tuple[tuple[str, Mark], ...]
    conditions: tuple[ir.Expr, ...]
    where: str | None
    constants: ConstantsRun
    matches: Mapping[ir.TextMatch, Any]

    @property
    def schema(self) -> str:
        """The Spark schema of the output."""
        columns = [f"`{name}` {spark_type(type_)}" for name, _, type_ in self.outputs]
        return ", ".join(columns + [f"`{name}` boolean" for name, _ in self.marks])


def spark_type(type_: PropertyType) -> str:
    """Return the Spark name of a type.

    >>> from omnigraph.lang.scalars import Scalar
    >>> spark_type(PropertyType(Scalar.U64, is_list=True))
    'array<decimal(20,0)>'
    """
    word = type_.scalar.facts.spark
    return f"array<{word}>" if type_.is_array else word


def scan_frame(spark: Any, source: ScanSource) -> Any:
    """Return a scan as a lazy DataFrame."""
    return map_tasks(spark, partial(_scan_run, source), source.runs, source.schema)


def _scan_run(source: ScanSource, fragments: Sequence[int]) -> Iterator[pa.RecordBatch]:
    read = _columns_to_read(source)
    targets = [carrier_type(type_) for _, _, type_ in source.outputs]
    tests = [compile_condition(condition, source.matches) for condition in source.conditions]
    marks = [compile_condition(mark, source.matches) for _, mark in source.marks]
    for batch in scan_fragments(source.scan.open(), fragments, read, source.where):
        run: Any = _BatchRun(batch, source.constants)
        rows = Rows(batch.num_rows, {source.variable: run.all})
        passed = np.logical_and.reduce([np.ones(batch.num_rows, np.bool_), *(test(run, rows) for test in tests)])
        truths = [pa.array(mark(run, rows)) for mark in marks]
        columns = [
            to_spark_column(run.column(name), target)
            for (_, name, _), target in zip(source.outputs, targets, strict=True)
        ]
        names = [name for name, _, _ in source.outputs] + [name for name, _ in source.marks]
        output = pa.RecordBatch.from_arrays([*columns, *truths], names=names)
        yield output if passed.all() else output.filter(pa.array(passed))


def _columns_to_read(source: ScanSource) -> list[str]:
    """Return the stored columns that a scan reads: those it returns and those its conditions use."""
    read = {name for _, name, _ in source.outputs if name != ROW_ID}
    for condition in (*source.conditions, *(mark for _, mark in source.marks)):
        parts = list(_walk_beside_searches(condition))
        read |= {part.property for part in parts if isinstance(part, ir.PropertyRef)}
        if any(isinstance(part, ir.NodeRef) for part in parts):
            read.add("id")
    return sorted(read)


def _walk_beside_searches(expression: ir.Expr) -> Iterator[ir.Expr]:
    """Yield the parts of an expression that are evaluated on columns; searches know their rows already."""
    if not isinstance(expression, ir.TextMatch):
        yield expression
        for part in ir.children_of(expression):
            yield from _walk_beside_searches(part)


class ConstantsRun:
    """The part of a query run that expressions over columns use: parameters, and the time."""

    def __init__(self, params: Mapping[str, Value], now_ms: int) -> None:
        self.params = params
        self.now_ms = now_ms

    def parameter(self, name: str) -> Value:
        if name not in self.params:
            raise missing_parameter_error(name)
        return self.params[name]


class _BatchRun(ConstantsRun):
    """A batch that poses as a query run, so that compiled tests can be evaluated on it."""

    def __init__(self, batch: pa.RecordBatch, constants: ConstantsRun) -> None:
        super().__init__(constants.params, constants.now_ms)
        self._batch = batch
        self.all: Ids = np.arange(batch.num_rows)

    def entities(self, key: TypeKey) -> _BatchRun:
        return self

    def column(self, name: str) -> Any:
        return self._batch.column(self._batch.schema.get_field_index(name))

    def values(self, name: str, ids: Ids) -> Any:
        vector = vector_from_arrow(self.column(name))
        return vector if ids is self.all else vector.take(ids)

    def dictionary_codes(self, name: str, ids: Ids) -> None:
        return None

    def null_mask(self, name: str) -> Mask:
        mask: Mask = self.column(name).is_null().to_numpy(zero_copy_only=False)
        return mask


def compile_condition(condition: ir.Expr, matches: Mapping[ir.TextMatch, Any]) -> Predicate:
    """Compile a condition whose text searches have been run already."""
    if isinstance(condition, ir.TextMatch):
        row_ids = matches[condition]
        return lambda run, rows: np.isin(run.column(ROW_ID).to_numpy(zero_copy_only=False), row_ids)  # type: ignore[attr-defined]
    if isinstance(condition, ir.And | ir.Or):
        tests = [compile_condition(part, matches) for part in condition.conditions]
        joined: Callable[..., Any] = np.logical_and if isinstance(condition, ir.And) else np.logical_or
        return lambda run, rows: joined.reduce([test(run, rows) for test in tests])  # type: ignore[attr-defined]
    if isinstance(condition, ir.Not) and isinstance(condition.condition, ir.TextMatch):
        matching = compile_condition(condition.condition, matches)
        return lambda run, rows: ~matching(run, rows)
    return compile_predicate(condition)


def carrier_type(type_: PropertyType) -> pa.DataType:
    """Return the Arrow type of a property in Spark."""
    from pyspark.sql.pandas.types import to_arrow_type

    item_type = to_arrow_type(spark_data_type(type_.scalar), timezone="UTC")
    return pa.list_(item_type) if type_.is_array else item_type


def pushdown_filter(conditions: Sequence[ir.Expr], constant: Callable[[ir.Expr], Any]) -> str | None:
    """Return the conditions that storage can evaluate, possibly with an index, as a Lance filter.

    The task evaluates all conditions again, so this only reduces how much is read.
    """
    parts = [text for condition in conditions if (text := _to_sql(condition, constant)) is not None]
    return " AND ".join(parts) or None


def _to_sql(condition: ir.Expr, constant: Callable[[ir.Expr], Any]) -> str | None:
    if not isinstance(condition, ir.Compare) or condition.op not in _PUSHED:
        return None
    property_, value = condition.left, condition.right
    if not isinstance(property_, ir.PropertyRef) or not isinstance(value, ir.Literal | ir.ParameterRef):
        return None
    is_simple = property_.type.is_text or (property_.type.scalar in INTEGERS and not property_.type.is_list)
    operand = constant(value)
    if not is_simple or operand is None:
        return None
    test = comparison(property_.property, property_.type, condition.op, operand)
    if test.op is None:
        return None
    number = test.constant.as_py()
    if property_.type.is_text:
        return f"`{property_.property}` {test.op} {quote_literal(number)}"
    if number == _I64_MIN:
        # Storage reads its digits without the sign, which are too large; the task's own test is exact.
        return None
    word = property_.type.scalar.facts.filter_word
    literal = str(number) if word is None else f"arrow_cast({number}, '{word}')"
    return f"`{property_.property}` {test.op} {literal}"


POSITION = "position"
SCORE = "score"


class Search:
    """All searches of one read."""

    def __init__(self, spark: Any, plan: ReadPlan, run: QueryRun) -> None:
        self._spark = spark
        self._plan = plan
        self._run = run
        self._arms: list[Ranked] | None = None

    def matches(self, match: ir.TextMatch) -> Any:
        """Return the sorted row ids that a text condition matches."""
        return compile_text_search(match)(self._run)

    # -- ranking -----------------------------------------------------------------------------------------------

    def narrow(self, frame: Any, id_name: str) -> Any:
        """Restrict the scan of the ranked variable to the best candidates of each ranking call."""
        ranking = self._ranking
        candidates = self._dense(frame, id_name, ranking)
        self._arms = ranking.narrow(self._run, candidates, self._plan.cut(self._run).end)
        if self._arms is None:
            return frame
        return frame.join(self._frame(union_of_ids(self._arms), id_name, {}, ranking), id_name, "left_semi")

    def rank(self, rows: Any, id_name: str) -> Any:
        """Keep the rows of ranked entities, and add their position and score."""
        ranking, limit = self._ranking, self._plan.cut(self._run).end
        present = self._dense(rows, id_name, ranking)
        arms = self._arms if self._arms is not None else ranking.arms(self._run, present, limit)
        ranked = ranking.rank_present(self._run, arms, present, limit)
        columns = {POSITION: np.arange(len(ranked.ids)), SCORE: ranked.scores}
        return rows.join(self._frame(ranked.ids, id_name, columns, ranking), id_name)

    def scored(self, rows: Any, rank: ir.Rank, id_name: str, name: str) -> Any:
        """Add the scores of a call that does not order the rows."""
        ranking = Ranking(rank)
        present = self._dense(rows, id_name, ranking)
        scores = ranking.scores(self._run, present)
        scored = np.flatnonzero(scores.valid) if scores.valid is not None else np.arange(len(present))
        return rows.join(self._frame(present[scored], id_name, {name: scores.data[scored]}, ranking), id_name, "left")

    @property
    def _ranking(self) -> Ranking:
        assert self._plan.ranking is not None
        return self._plan.ranking

    def _dense(self, rows: Any, id_name: str, ranking: Ranking) -> Ids:
        """Return the dense entity numbers of the ids in rows."""
        from pyspark.sql import functions

        ids = rows.select(id_name).where(functions.col(id_name).isNotNull()).distinct().toArrow().column(0)
        entities = self._run.nodes(ranking.node_type)
        return np.sort(entities.find_all(ids.cast(pa.string())))

    def _frame(self, ids: Ids, id_name: str, columns: dict[str, Any], ranking: Ranking) -> Any:
        from pyspark.sql import functions

        texts = self._run.nodes(ranking.node_type).arrow("id", ids, pa.string())
        return functions.broadcast(self._spark.createDataFrame(pa.table({id_name: texts, **columns})))
