"""The reference evaluator: what a read returns, by brute force over plain Python values.

Written from the language's description, for being right and readable and not for speed. It shares the parser and the
declared types with the product, and nothing that checks, plans or runs a query.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from omnigraph.lang.catalog import Catalog, Scalar
from omnigraph.lang.query import ast
from tests.oracle import truth
from tests.oracle.model import Edge, Graph, Node
from tests.oracle.pattern import HOPS, Block, Patterns, Scan, Walk

Row: TypeAlias = dict[str, Node | Edge | int | None]
AGGREGATES = frozenset({"count", "sum", "avg", "min", "max"})
RANKS = frozenset({"nearest"})


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

    @property
    def page(self) -> slice:
        return slice(self.skip, None if self.limit is None else self.skip + self.limit)


def evaluate(
    graph: Graph, catalog: Catalog, query: ast.Query, params: Mapping[str, Any], now: dt.datetime | None = None
) -> Answer:
    """Return everything that a read may answer on a graph."""
    assert isinstance(query.body, ast.Read)
    return _Evaluator(graph, catalog, params, now).read(query.body)


class _Evaluator:
    def __init__(self, graph: Graph, catalog: Catalog, params: Mapping[str, Any], now: dt.datetime | None) -> None:
        self.graph = graph
        self.catalog = catalog
        self.params = params
        self.now = now

    # -- patterns ----------------------------------------------------------------------------------------------

    def solutions(self, block: Block, row: Row) -> Iterator[Row]:
        """Yield every way to extend a row by what a block binds."""
        rows = [row]
        for step in block.steps:
            rows = [longer for one in rows for longer in self.extended(step, one)]
        for inner, new in block.optionals:
            rows = [longer for one in rows for longer in self.optional(inner, new, one)]
        for one in rows:
            if not all(self.condition(condition, one, block.scope) is True for condition in block.conditions):
                continue
            if not any(next(self.solutions(inner, one), None) is not None for inner in block.negations):
                yield one

    def optional(self, block: Block, new: list[str], row: Row) -> list[Row]:
        return list(self.solutions(block, row)) or [row | dict.fromkeys(new)]

    def extended(self, step: Scan | Walk, row: Row) -> Iterator[Row]:
        return self.scanned(step, row) if isinstance(step, Scan) else self.walked(step, row)

    def scanned(self, scan: Scan, row: Row) -> Iterator[Row]:
        nodes = [row[scan.variable]] if scan.variable in row else list(self.graph.nodes[scan.type].values())
        for node in nodes:
            # A variable that an optional block left empty is no node of any type.
            if isinstance(node, Node) and all(self.matches(node, match) is True for match in scan.matches):
                yield row | {scan.variable: node}

    def matches(self, node: Node, match: ast.Match) -> bool | None:
        type_ = self.catalog.nodes[node.type].properties[match.property.text].type
        value = self.value(match.value, {})
        if type_.scalar is Scalar.F32:
            value = truth.narrowed(value)
        return truth.compare("contains" if type_.is_list else "=", node.values[match.property.text], value)

    def walked(self, walk: Walk, row: Row) -> Iterator[Row]:
        start = row[walk.start]
        if not isinstance(start, Node):
            return
        nodes = self.graph.nodes[walk.end_type]
        for end, edge, hops in self.arrivals(walk, start.id):
            if walk.end in row and row[walk.end] != nodes[end]:
                continue
            longer: Row = row | {walk.end: nodes[end]}
            if walk.edge_variable is not None:
                longer[walk.edge_variable] = edge
            if walk.hops_variable is not None:
                longer[walk.hops_variable] = hops
            yield longer

    def arrivals(self, walk: Walk, start: str) -> Iterator[tuple[str, Edge | None, int]]:
        if walk.edge_variable is not None:
            yield from ((end, edge, 1) for edge in self.graph.edges[walk.edge] for end in _ends(edge, start, walk))
            return
        for end, hops in self.reached(walk, start).items():
            yield end, None, hops

    def reached(self, walk: Walk, start: str) -> dict[str, int]:
        """Return the nodes that a walk joins with its start: each at its shortest distance, if that is within bounds.

        A node one hop nearer than the bounds counts as well when the end of the walk, as written, has a loop: the
        loop is then its last hop.
        """
        distances = self.distances(walk, start)
        emitted = {end: hop for end, hop in distances.items() if hop and hop >= walk.minimum}
        if walk.start_type == walk.end_type:
            for end, hop in distances.items():
                if hop == walk.minimum - 1 and self.has_loop(walk, start if walk.is_backwards else end):
                    emitted[end] = walk.minimum
        return emitted

    def distances(self, walk: Walk, start: str) -> dict[str, int]:
        if walk.start_type != walk.end_type:
            ends = {end for edge in self.graph.edges[walk.edge] for end in _ends(edge, start, walk)}
            return dict.fromkeys(ends, 1)
        found, frontier = {start: 0}, {start}
        for hop in range(1, walk.maximum + 1):
            ends = {end for edge in self.graph.edges[walk.edge] for node in frontier for end in _ends(edge, node, walk)}
            frontier = ends - found.keys()
            found |= dict.fromkeys(frontier, hop)
        return found

    def has_loop(self, walk: Walk, node: str) -> bool:
        return any(edge.source == edge.target == node for edge in self.graph.edges[walk.edge])

    # -- conditions and values ---------------------------------------------------------------------------------

    def condition(self, condition: ast.Condition, row: Row, scope: Mapping[str, str]) -> bool | None:
        if isinstance(condition, ast.AnyOf):
            return truth.any_of([self.condition(part, row, scope) for part in condition.conditions])
        if isinstance(condition, ast.AllOf):
            return truth.all_of([self.condition(part, row, scope) for part in condition.conditions])
        if isinstance(condition, ast.NullTest):
            return (self.value(condition.operand, row) is None) is not condition.negated
        if isinstance(condition, ast.Membership):
            items = self.value(condition.collection, row)
            items = self.fitted(items, condition.collection, condition.operand, scope)
            return truth.member(self.value(condition.operand, row), items)
        if isinstance(condition, ast.TextPredicate):
            return self.text(condition.call, row)
        if isinstance(condition.left, ast.Call) and condition.left.function != "now":
            return self.text(condition.left, row)
        left = self.fitted(self.value(condition.left, row), condition.left, condition.right, scope)
        right = self.fitted(self.value(condition.right, row), condition.right, condition.left, scope)
        return truth.compare(condition.operator.text, left, right)

    def fitted(self, value: Any, written: ast.Expression, other: ast.Expression, scope: Mapping[str, str]) -> Any:
        """Return a constant as it is compared with the other side: a decimal means what a 32-bit column stores."""
        if isinstance(written, ast.PropertyAccess) or not isinstance(other, ast.PropertyAccess):
            return value
        owner = scope[other.variable.text]
        edge = self.catalog.edges.get(owner)
        properties = edge.properties if edge is not None else self.catalog.nodes[owner].properties
        return truth.narrowed(value) if properties[other.property.text].type.scalar is Scalar.F32 else value

    def text(self, call: ast.Call, row: Row) -> bool | None:
        edits = 0
        if call.function == "fuzzy":
            edits = self.value(call.arguments[2], row) if len(call.arguments) > 2 else 2
        return truth.text_match(self.value(call.arguments[0], row), self.value(call.arguments[1], row), edits)

    def value(self, expression: ast.Expression, row: Row) -> Any:
        if isinstance(expression, ast.ListLiteral):
            return tuple(self.value(item, row) for item in expression.items)
        if isinstance(expression, ast.Literal):
            if expression.scalar is Scalar.DATE:
                return dt.date.fromisoformat(str(expression.value))
            if expression.scalar is Scalar.DATETIME:
                return dt.datetime.fromisoformat(str(expression.value))
            return expression.value
        if isinstance(expression, ast.PropertyAccess):
            entity = row[expression.variable.text]
            return None if entity is None else entity.values[expression.property.text]  # type: ignore[union-attr]
        if isinstance(expression, ast.Variable):
            if expression.name in self.params:
                return self.params[expression.name]
            bound = row[expression.name]
            return bound.id if isinstance(bound, Node) else bound
        assert isinstance(expression, ast.Call)
        if expression.function == "nearest":
            vector, query = (self.value(argument, row) for argument in expression.arguments)
            return None if vector is None else math.dist(vector, truth.narrowed(tuple(map(float, query))))
        assert expression.function == "now"
        return self.now

    # -- results -----------------------------------------------------------------------------------------------

    def read(self, read: ast.Read) -> Answer:
        block = Patterns(self.catalog).block(read.clauses, {})
        found = list(self.solutions(block, {}))
        is_grouped = any(_is_aggregate(one.expression) for one in read.projections)
        columns = self.grouped(read, found) if is_grouped else self.projected(read, found)
        if read.distinct:
            columns = list(dict.fromkeys(columns))
        is_total = not is_grouped and not read.distinct
        skip, limit = self.bound(read.skip) or 0, self.bound(read.limit)
        rough = frozenset(index for index, one in enumerate(read.projections) if _is_rough(one.expression))
        if not read.order:
            return Answer(columns, False, (), skip, limit, rough)
        if (rank := _rank_of(read)) is not None:
            return Answer(self.ranked(rank, columns, found, block), True, (), skip, limit, rough)
        keyed = []
        for position, column in enumerate(columns):
            row = found[position] if is_total else None
            keyed.append((self.keys(read, column, row), self.tie(block, row), column))
        ordered = sorted(keyed, key=lambda one: one[1])
        for index in reversed(range(len(read.order))):
            direction = read.order[index].direction
            is_down = direction is not None and direction.text == "desc"
            ordered.sort(key=lambda one: one[0][index], reverse=is_down)
        ordered_by = () if is_total else tuple(_column_of(key.expression, read) for key in read.order)
        return Answer([one[2] for one in ordered], is_total, ordered_by, skip, limit, rough)

    def ranked(self, rank: ast.Call, columns: list[Any], found: list[Row], block: Block) -> list[tuple[Any, ...]]:
        tied = [(self.value(rank, row), self.tie(block, row)) for row in found]
        scored = [(*one, column) for one, column in zip(tied, columns, strict=True) if one[0] is not None]
        return [column for _, _, column in sorted(scored, key=lambda one: one[:2])]

    def keys(self, read: ast.Read, column: tuple[Any, ...], row: Row | None) -> tuple[Any, ...]:
        found = []
        for key in read.order:
            is_column = row is None or isinstance(key.expression, ast.Alias)
            value = column[_column_of(key.expression, read)] if is_column else self.value(key.expression, row or {})
            found.append((value is not None, value if value is not None else 0))
        return tuple(found)

    def tie(self, block: Block, row: Row | None) -> tuple[Any, ...]:
        if row is None:
            return ()
        names = [name for name in sorted(block.scope) if not name.startswith("~")]
        bound = [row[name] for name in names if block.scope[name] != HOPS]
        hops = [row[name] for name in names if block.scope[name] == HOPS]
        ids = tuple((one is not None, one.id if isinstance(one, Node | Edge) else "") for one in bound)
        return ids + tuple((one is not None, one or 0) for one in hops)

    def projected(self, read: ast.Read, found: list[Row]) -> list[tuple[Any, ...]]:
        return [tuple(self.value(one.expression, row) for one in read.projections) for row in found]

    def grouped(self, read: ast.Read, found: list[Row]) -> list[tuple[Any, ...]]:
        plain = [one.expression for one in read.projections if not _is_aggregate(one.expression)]
        groups: dict[tuple[Any, ...], list[Row]] = {} if plain else {(): []}
        for row in found:
            groups.setdefault(tuple(self.value(one, row) for one in plain), []).append(row)
        rows = []
        for key, members in groups.items():
            rest = iter(key)
            rows.append(
                tuple(
                    self.aggregate(one.expression, members) if _is_aggregate(one.expression) else next(rest)
                    for one in read.projections
                )
            )
        return rows

    def aggregate(self, call: ast.Expression, rows: list[Row]) -> Any:
        assert isinstance(call, ast.Call)
        if not call.arguments:
            return len(rows)
        values = [value for row in rows if (value := self.value(call.arguments[0], row)) is not None]
        if call.function == "count":
            return len(values)
        if not values:
            return None
        if call.function in ("min", "max"):
            return min(values) if call.function == "min" else max(values)
        # Sums of integers are exact; those of floats are correct to the last digit here, and compared less strictly.
        total = sum(values) if all(isinstance(value, int) for value in values) else math.fsum(values)
        return total if call.function == "sum" else total / len(values)

    def bound(self, bound: ast.Bound | None) -> int | None:
        if bound is None:
            return None
        return bound.value if isinstance(bound.value, int) else int(self.params[bound.value.name])


def _ends(edge: Edge, node: str, walk: Walk) -> list[str]:
    """Return where an edge leads from a node; a loop leads there once."""
    ends = []
    if walk.direction in ("out", "both") and edge.source == node:
        ends.append(edge.target)
    if walk.direction in ("in", "both") and edge.target == node and not (ends and edge.source == node):
        ends.append(edge.source)
    return ends


def _rank_of(read: ast.Read) -> ast.Call | None:
    first = read.order[0].expression
    if isinstance(first, ast.Alias):
        first = next((one.expression for one in read.projections if one.alias and one.alias.text == first.name), first)
    return first if isinstance(first, ast.Call) and first.function in RANKS else None


def _is_rough(expression: ast.Expression) -> bool:
    return isinstance(expression, ast.Call) and expression.function in ("sum", "avg", *RANKS)


def _is_aggregate(expression: ast.Expression) -> bool:
    return isinstance(expression, ast.Call) and expression.function in AGGREGATES


def _column_of(key: ast.Expression, read: ast.Read) -> int:
    """Return which returned column an order key names."""
    for index, one in enumerate(read.projections):
        if isinstance(key, ast.Alias) and one.alias is not None and one.alias.text == key.name:
            return index
        if not isinstance(key, ast.Alias) and _shape(one.expression) == _shape(key):
            return index
    raise AssertionError("the compiler lets only returned columns order here")


def _shape(expression: ast.Expression) -> tuple[str, ...]:
    """Return what an expression says, without where it says it."""
    if isinstance(expression, ast.PropertyAccess):
        return expression.variable.text, expression.property.text
    return (expression.name,) if isinstance(expression, ast.Variable | ast.Alias) else ("?",)
