"""What a read may answer, and how its columns, keys and ties are read; part of the reference evaluator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omnigraph.lang.query import ast
from tests.oracle.aggregates import AGGREGATES, ROUGH
from tests.oracle.model import Edge, Node

RANKS = frozenset({"nearest"})


@dataclass(frozen=True)
class Way:
    """A path: its nodes from left to right, the edges between them, and their weight."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    cost: float

    @property
    def order(self) -> tuple[Any, ...]:
        """What paths are ordered by among themselves."""
        return tuple((node.type, node.id) for node in self.nodes)


@dataclass(frozen=True)
class Columns:
    """The result part of a read, with entities as their properties."""

    projections: tuple[ast.Projection, ...]
    distinct: bool
    distinct_on: tuple[ast.Expression, ...]
    having: ast.Expression | None
    order: tuple[ast.Ordering, ...]
    skip: ast.Bound | None
    limit: ast.Bound | None
    limit_per: ast.LimitPer | None = None


@dataclass(frozen=True)
class Answer:
    """What a read may return: all its rows, of which `skip` and `limit` leave some.

    A total order leaves one right answer. Otherwise rows that are equal in the columns `ordered_by` may swap; without
    such columns any order is right.
    """

    rows: list[tuple[Any, ...]]
    is_total: bool
    ordered_by: tuple[int, ...]
    skip: int
    limit: int | None
    # Columns that are computed in floating point, whose last digits depend on the order of the work.
    rough: frozenset[int]
    # What each row is ordered by, if that is computed from its columns.
    keys: tuple[tuple[Any, ...], ...] = ()

    @property
    def page(self) -> slice:
        return slice(self.skip, None if self.limit is None else self.skip + self.limit)


def bound_name(projection: ast.Projection | ast.EntityProjection) -> str:
    assert isinstance(projection, ast.Projection)
    if projection.alias is not None:
        return projection.alias.text
    assert isinstance(projection.expression, ast.Variable)
    return projection.expression.name


def is_bound_by(expression: ast.Expression, read: Columns) -> bool:
    """Return True for a variable that the `with` itself binds."""
    named = {one.alias.text for one in read.projections if one.alias is not None and one.is_variable}
    return isinstance(expression, ast.Variable) and expression.name in named


def settle_key(value: Any) -> tuple[Any, ...]:
    """Return what values, nodes, edges and paths are ordered by; null comes first."""
    if isinstance(value, Node | Edge):
        return (True, value.type, value.id)
    return (value is not None, value.order if isinstance(value, Way) else 0 if value is None else value)


def rank_of(read: Columns) -> ast.Call | None:
    first = read.order[0].expression
    if isinstance(first, ast.Alias):
        first = next((one.expression for one in read.projections if one.alias and one.alias.text == first.name), first)
    return first if isinstance(first, ast.Call) and first.function in RANKS else None


def is_rough(expression: ast.Expression) -> bool:
    rough = {*ROUGH, "pow", *RANKS}
    return any(isinstance(one, ast.Call) and one.function in rough for one in ast.walk_expression(expression))


def has_aggregate(expression: ast.Expression) -> bool:
    return any(isinstance(one, ast.Call) and one.function in AGGREGATES for one in ast.walk_expression(expression))


def column_of(key: ast.Expression, read: Columns) -> int | None:
    """Return which returned column an order key names; None if it computes with them."""
    for index, one in enumerate(read.projections):
        if isinstance(key, ast.Alias | ast.Variable) and one.alias is not None and one.alias.text == key.name:
            return index
        if not isinstance(key, ast.Alias) and shape(one.expression) == shape(key):
            return index
    return None


def shape(expression: ast.Expression) -> tuple[Any, ...]:
    """Return what an expression says, without where it says it."""
    if isinstance(expression, ast.PropertyAccess):
        return expression.variable.text, expression.property.text
    if isinstance(expression, ast.Variable | ast.Alias):
        return (expression.name,)
    if isinstance(expression, ast.Literal):
        return expression.scalar, expression.value
    if isinstance(expression, ast.Subquery):
        return expression.word, expression.span
    operator = getattr(expression, "operator", None)
    word = getattr(expression, "function", None) or (operator.text if operator is not None else None)
    parts = tuple(shape(part) for part in ast.parts_of(expression))
    return type(expression).__name__, word, getattr(expression, "is_distinct", False), parts
