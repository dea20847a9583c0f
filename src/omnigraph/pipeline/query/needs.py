"""Column pruning and filter pushdown on the IR, and the column names of variables. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from omnigraph.engine.query.expressions import variables_of, walk
from omnigraph.lang.catalog import Scalar
from omnigraph.lang.query import ir

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
    kept: list[ir.Operator | None] = []
    for operator in pipeline:
        used = variables_of(operator.condition) if isinstance(operator, ir.Filter) else set()
        if isinstance(operator, ir.Filter) and len(used) == 1 and used <= binders.keys():
            pushed.setdefault(binders[next(iter(used))], []).append(operator.condition)
            kept.append(None)
        elif isinstance(operator, ir.AntiJoin | ir.OptionalJoin):
            kept.append(replace(operator, inner=push_down_filters(operator.inner)))
        else:
            kept.append(operator)
    return tuple(
        _add_filters(operator, pushed.get(index, [])) for index, operator in enumerate(kept) if operator is not None
    )


def _bound_by(operator: ir.Operator) -> Iterator[str]:
    if isinstance(operator, ir.NodeScan):
        yield operator.variable
    elif isinstance(operator, ir.Expand):
        yield operator.target
        if operator.edge_variable is not None:
            yield operator.edge_variable


def _add_filters(operator: ir.Operator, conditions: list[ir.Expr]) -> ir.Operator:
    if not conditions:
        return operator
    assert isinstance(operator, ir.NodeScan | ir.Expand), "only operators that bind a variable take its conditions"
    return replace(operator, filters=(*operator.filters, *conditions))


def collect_needs(read: ir.ReadIR, pipeline: tuple[ir.Operator, ...]) -> Mapping[str, Need]:
    """Return what later operators need of each variable."""
    needs: dict[str, Need] = {}
    for expression in _late_expressions(read, pipeline):
        for part in _read_parts(expression):
            if isinstance(part, ir.PropertyRef):
                needs.setdefault(part.variable, Need()).properties[part.property] = part
            else:
                [variable] = variables_of(part)
                needs.setdefault(variable, Need()).marks[part] = None
    return needs


def _read_parts(expression: ir.Expr) -> Iterator[ir.PropertyRef | Mark]:
    marks = [part for part in walk(expression) if is_mark(part)]
    hidden = {id(inner) for mark in marks for inner in walk(mark)}
    yield from (part for part in marks if isinstance(part, ir.TextMatch | ir.IsNull))
    for part in walk(expression):
        if isinstance(part, ir.PropertyRef) and id(part) not in hidden:
            yield part


def is_mark(expression: ir.Expr) -> bool:
    """Return True for a condition that only a scan can evaluate."""
    if isinstance(expression, ir.IsNull):
        operand = expression.operand
        return isinstance(operand, ir.PropertyRef) and operand.type.scalar is Scalar.BLOB
    return isinstance(expression, ir.TextMatch)


def _late_expressions(read: ir.ReadIR, pipeline: tuple[ir.Operator, ...]) -> Iterator[ir.Expr]:
    yield from _conditions(pipeline)
    for column in read.columns:
        if not isinstance(column.expression, ir.Nearest | ir.Bm25 | ir.Rrf):
            yield column.expression
    yield from (key.expression for key in read.order)


def _conditions(pipeline: tuple[ir.Operator, ...]) -> Iterator[ir.Expr]:
    for operator in pipeline:
        if isinstance(operator, ir.Filter):
            yield operator.condition
        elif isinstance(operator, ir.AntiJoin | ir.OptionalJoin):
            yield from _conditions(operator.inner)
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


class Names:
    """Assigns column names to the ids, properties and marks of variables."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, object], str] = {}

    def __call__(self, variable: str, what: object) -> str:
        return self._names.setdefault((variable, what), f"c{len(self._names)}")

    def of(self, variables: Iterable[str], columns: Iterable[str]) -> list[str]:
        """Return the columns that belong to the variables."""
        selected, present = set(variables), set(columns)
        return [name for (variable, _), name in self._names.items() if variable in selected and name in present]

    def keys(self, variables: Iterable[str], columns: Iterable[str]) -> list[str]:
        """Return the columns that identify what the variables are bound to."""
        selected, present = set(variables), set(columns)
        return [
            name
            for (variable, what), name in self._names.items()
            if variable in selected and what in (ID, HOPS) and name in present
        ]
