"""The reference evaluator: what a read returns, by brute force over plain Python values.

Written from the language's description, for being right and readable and not for speed. It shares the parser and the
declared types with the product, and nothing that checks, plans or runs a query.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from omnigraph.lang.catalog import Catalog, Scalar
from omnigraph.lang.query import ast
from tests.oracle import truth
from tests.oracle.aggregates import AGGREGATES
from tests.oracle.answers import (
    Answer,
    Columns,
    Way,
    bound_name,
    column_of,
    has_aggregate,
    is_bound_by,
    is_rough,
    rank_of,
    settle_key,
)
from tests.oracle.functions import FUNCTIONS, apply, convert
from tests.oracle.model import Edge, Graph, Node, field
from tests.oracle.pattern import HOPS, NO_ENTITY, PATH, VALUE, Block, Member, Patterns, Scan, Walk
from tests.oracle.walking import Row, Walking

EMPTY: Mapping[str, str] = {}
CONDITIONS = (ast.AnyOf, ast.AllOf, ast.Inverse, ast.NullTest, ast.Membership, ast.Comparison)
COMPUTED = (ast.Quantifier, ast.Case, ast.Conversion, ast.Element)
TEXT_PREDICATES = frozenset({"search", "match_text", "fuzzy"})


class TooManyRows(Exception):
    """Brute force has made more rows than the caller wants to wait for."""


def evaluate(
    graph: Graph,
    catalog: Catalog,
    query: ast.Query,
    params: Mapping[str, Any],
    now: dt.datetime | None = None,
    rows_max: float = math.inf,
) -> Answer:
    """Return everything that a read may answer on a graph; raises `TooManyRows` beyond a number of them."""
    assert isinstance(query.body, ast.Read | ast.Union)
    evaluator = _Evaluator(graph, catalog, params, now)
    evaluator.rows_left = rows_max
    return evaluator.read(query.body) if isinstance(query.body, ast.Read) else evaluator.union(query.body)


class _Evaluator(Walking):
    def __init__(self, graph: Graph, catalog: Catalog, params: Mapping[str, Any], now: dt.datetime | None) -> None:
        self.graph = graph
        self.catalog = catalog
        self.params = params
        self.now = now
        self.scope: Mapping[str, str] = {}
        self.is_stage = False
        self.patterns = Patterns(catalog)
        self.rows_left = math.inf

    # -- patterns ----------------------------------------------------------------------------------------------

    def solutions(self, block: Block, row: Row) -> Iterator[Row]:
        """Yield every way to extend a row by what a block binds."""
        rows = [row]
        for step in block.steps:
            rows = self.count([longer for one in rows for longer in self.extended(step, one)])
        for inner, new in block.optionals:
            rows = self.count([longer for one in rows for longer in self.optional(inner, new, one)])
        for one in rows:
            if not all(self.condition(condition, one, block.scope) is True for condition in block.conditions):
                continue
            if not any(next(self.solutions(inner, one), None) is not None for inner in block.negations):
                yield one

    def count(self, rows: list[Row]) -> list[Row]:
        self.rows_left -= len(rows)
        if self.rows_left < 0:
            raise TooManyRows
        return rows

    def optional(self, block: Block, new: list[str], row: Row) -> list[Row]:
        return list(self.solutions(block, row)) or [row | dict.fromkeys(new)]

    def extended(self, step: Scan | Walk | Member | ast.Unwind, row: Row) -> Iterator[Row]:
        if isinstance(step, ast.Unwind):
            elements = self.value(step.collection, row) or ()
            return (row | {step.variable.text: one} for one in elements)
        if isinstance(step, Member):
            way = row[step.path]
            nodes = way.nodes if isinstance(way, Way) else ()
            return (row | {step.variable: one} for one in nodes if row.get(step.variable, one) == one)
        return self.scanned(step, row) if isinstance(step, Scan) else self.walked(step, row)

    def scanned(self, scan: Scan, row: Row) -> Iterator[Row]:
        types = scan.type.split("|")
        everything = [node for name in types for node in self.graph.nodes[name].values()]
        nodes = [row[scan.variable]] if scan.variable in row else everything
        for node in nodes:
            # A variable that an optional block left empty is no node of any type.
            if (
                isinstance(node, Node)
                and node.type in types
                and all(self.matches(node, match) is True for match in scan.matches)
            ):
                yield row | {scan.variable: node}

    def matches(self, node: Node, match: ast.Match) -> bool | None:
        type_ = self.catalog.nodes[node.type].properties[match.property.text].type
        value = self.value(match.value, {})
        if type_.scalar is Scalar.F32:
            value = truth.narrowed(value)
        return truth.compare("contains" if type_.is_list else "=", node.values[match.property.text], value)

    # -- conditions and values ---------------------------------------------------------------------------------

    def condition(self, condition: ast.Expression, row: Row, scope: Mapping[str, str]) -> bool | None:
        if isinstance(condition, ast.AnyOf):
            return truth.any_of([self.condition(part, row, scope) for part in condition.conditions])
        if isinstance(condition, ast.AllOf):
            return truth.all_of([self.condition(part, row, scope) for part in condition.conditions])
        if isinstance(condition, ast.Inverse):
            return truth.opposite(self.condition(condition.condition, row, scope))
        if isinstance(condition, ast.NullTest):
            return (self.value(condition.operand, row, scope) is None) is not condition.negated
        if isinstance(condition, ast.Membership):
            items = self.value(condition.collection, row, scope)
            items = self.fitted(items, condition.collection, condition.operand, scope)
            found = truth.member(self.value(condition.operand, row, scope), items)
            return truth.opposite(found) if condition.negated else found
        if isinstance(condition, ast.Call) and condition.function in TEXT_PREDICATES:
            return self.text(condition, row)
        if isinstance(condition, ast.Comparison):
            return self.comparison(condition, row, scope)
        value: bool | None = self.value(condition, row, scope)
        return value

    def comparison(self, condition: ast.Comparison, row: Row, scope: Mapping[str, str]) -> bool | None:
        if isinstance(condition.left, ast.Call) and condition.left.function in TEXT_PREDICATES:
            return self.text(condition.left, row)
        left = self.fitted(self.value(condition.left, row, scope), condition.left, condition.right, scope)
        right = self.fitted(self.value(condition.right, row, scope), condition.right, condition.left, scope)
        return truth.compare(condition.operator.text, left, right)

    def fitted(self, value: Any, written: ast.Expression, other: ast.Expression, scope: Mapping[str, str]) -> Any:
        """Return a constant as it is compared with the other side: a decimal means what a 32-bit column stores."""
        is_constant = isinstance(written, ast.Literal | ast.ListLiteral) or (
            isinstance(written, ast.Variable) and written.name in self.params
        )
        if not is_constant or not isinstance(other, ast.PropertyAccess) or other.property.text.startswith("@"):
            return value
        owner = scope[other.variable.text].split("|")[0]
        edge = self.catalog.edges.get(owner)
        properties = edge.properties if edge is not None else self.catalog.nodes[owner].properties
        return truth.narrowed(value) if properties[other.property.text].type.scalar is Scalar.F32 else value

    def text(self, call: ast.Call, row: Row) -> bool | None:
        edits = 0
        if call.function == "fuzzy":
            edits = self.value(call.arguments[2], row) if len(call.arguments) > 2 else 2
        return truth.text_match(self.value(call.arguments[0], row), self.value(call.arguments[1], row), edits)

    def of_entity(self, function: str, bound: Node | Edge | Way | int | None) -> Any:
        """Return a function of a bound node, edge or path."""
        if isinstance(bound, Node | Edge):
            return bound.type
        if not isinstance(bound, Way):
            return None
        lists: dict[str, tuple[Node | Edge, ...]] = {"nodes": bound.nodes, "edges": bound.edges}
        if function in lists:
            return tuple(one.id for one in lists[function])
        return len(bound.edges) if function == "length" else bound.cost

    def value(self, expression: ast.Expression, row: Row, scope: Mapping[str, str] = EMPTY) -> Any:
        if isinstance(expression, CONDITIONS):
            return self.condition(expression, row, scope)
        if isinstance(expression, ast.Call) and expression.function in ("type", "nodes", "edges", "length", "cost"):
            [argument] = expression.arguments
            if isinstance(argument, ast.Variable) and argument.name not in self.params:
                bound = row[argument.name]
                # An item of a list is a text, of which `length` is a function of strings.
                if not isinstance(bound, str):
                    return self.of_entity(expression.function, bound)
        if isinstance(expression, COMPUTED) or (isinstance(expression, ast.Call) and expression.function in FUNCTIONS):
            return self.computed(expression, row, scope)
        if isinstance(expression, ast.Subquery):
            matches = sum(1 for _ in self.solutions(self.patterns.subqueries[id(expression)], row))
            return matches > 0 if expression.word == "exists" else matches
        if isinstance(expression, ast.Alias):
            assert expression.name == "null"
            return None
        if isinstance(expression, ast.ListLiteral):
            return tuple(self.value(item, row) for item in expression.items)
        if isinstance(expression, ast.Literal):
            if expression.scalar is Scalar.DATE:
                return dt.date.fromisoformat(str(expression.value))
            if expression.scalar is Scalar.DATETIME:
                return dt.datetime.fromisoformat(str(expression.value))
            return (
                convert(expression.value, Scalar.DURATION) if expression.scalar is Scalar.DURATION else expression.value
            )
        if isinstance(expression, ast.PropertyAccess):
            entity = row[expression.variable.text]
            if entity is None:
                return None
            assert isinstance(entity, Node | Edge)
            return field(entity, expression.property.text)
        if isinstance(expression, ast.Variable):
            if expression.name in self.params:
                return self.params[expression.name]
            bound = row[expression.name]
            if isinstance(bound, Way):
                return tuple(node.id for node in bound.nodes)
            return bound.id if isinstance(bound, Node) else bound
        assert isinstance(expression, ast.Call)
        if expression.function == "nearest":
            vector, query = (self.value(argument, row) for argument in expression.arguments)
            return None if vector is None else math.dist(vector, truth.narrowed(tuple(map(float, query))))
        assert expression.function == "now"
        return self.now

    def computed(self, expression: ast.Expression, row: Row, scope: Mapping[str, str]) -> Any:
        """Return the value of an operator, a function, a `case` or a `cast`."""
        if isinstance(expression, ast.Case):
            for condition, value in expression.branches:
                if self.condition(condition, row, scope) is True:
                    return self.value(value, row, scope)
            return None if expression.otherwise is None else self.value(expression.otherwise, row, scope)
        if isinstance(expression, ast.Quantifier):
            return self.quantified(expression, row, scope)
        if isinstance(expression, ast.Conversion):
            return convert(self.value(expression.operand, row, scope), expression.type.scalar)
        if isinstance(expression, ast.Element):
            parts = [expression.collection, expression.position]
            return apply("element", [self.value(part, row, scope) for part in parts])
        assert isinstance(expression, ast.Call)
        if expression.function == "today":
            assert self.now is not None
            return self.now.date()
        return apply(expression.function, [self.value(one, row, scope) for one in expression.arguments])

    def quantified(self, expression: ast.Quantifier, row: Row, scope: Mapping[str, str]) -> bool | None:
        items = self.value(expression.collection, row, scope)
        if items is None:
            return None
        parts = [self.condition(expression.condition, row | {expression.item.text: item}, scope) for item in items]
        return truth.any_of(parts) if expression.function == "any" else truth.all_of(parts)

    # -- results -----------------------------------------------------------------------------------------------

    def read(self, written: ast.Read) -> Answer:
        """Evaluate a read: what a `with` makes of rows is what the next pattern starts from."""
        rows: list[Row] = [{}]
        scope: dict[str, str] = {}
        self.patterns = Patterns(self.catalog)
        for stage in written.stages:
            self.is_stage = True
            answer = self.part(stage, rows, scope)
            self.is_stage = False
            assert answer.is_total or answer.page == slice(0, None), "which rows are left must not be open"
            names = [bound_name(one) for one in stage.projections]
            passed = [one.expression for one in stage.projections if isinstance(one, ast.Projection)]
            scope = {name: self.passed_type(one) for name, one in zip(names, passed, strict=True)}
            spaces = self.patterns.spaces
            renamed = {name: one.name for name, one in zip(names, passed, strict=True) if isinstance(one, ast.Variable)}
            spaces |= {name: spaces[old] for name, old in renamed.items() if old in spaces}
            left = self.patterns.left
            self.patterns.left = {name: left[old] for name, old in renamed.items() if old in left}
            rows = [dict(zip(names, row, strict=True)) for row in answer.rows[answer.page]]
        return self.part(written, rows, scope)

    def passed_type(self, expression: ast.Expression) -> str:
        if isinstance(expression, ast.Variable) and self.scope.get(expression.name, VALUE) not in (HOPS, VALUE):
            return self.scope[expression.name]
        return VALUE

    def union(self, written: ast.Union) -> Answer:
        """Evaluate a union: the rows of all blocks, equal ones once unless it is of all."""
        answers = [self.read(part) for part in written.parts]
        rows = [row for answer in answers for row in answer.rows]
        rows = rows if written.is_all else list(dict.fromkeys(rows))
        rough = frozenset(index for answer in answers for index in answer.rough)
        names = [
            one.alias.text for one in written.parts[0].projections if isinstance(one, ast.Projection) and one.alias
        ]
        keys = [names.index(key.expression.name) for key in written.order if isinstance(key.expression, ast.Alias)]
        assert len(keys) == len(written.order), "the maker orders a union by names"
        for index, key in reversed(list(zip(keys, written.order, strict=True))):
            is_down = key.direction is not None and key.direction.text == "desc"
            rows.sort(key=lambda row: settle_key(row[index]), reverse=is_down)
        skip, limit = self.bound(written.skip) or 0, self.bound(written.limit)
        return Answer(rows, False, tuple(keys), skip, limit, rough)

    def part(self, written: ast.Read, rows: list[Row], outer: Mapping[str, str]) -> Answer:
        """Evaluate a pattern that starts from rows, and the `with` or `return` behind it."""
        block = self.patterns.pattern(written.clauses, outer)
        projections = tuple(self.columns(written.projections, block.scope))
        read = Columns(
            projections,
            written.distinct,
            written.distinct_on,
            written.having,
            written.order,
            written.skip,
            written.limit,
            written.limit_per,
        )
        found = [longer for row in rows for longer in self.solutions(block, row)]
        self.scope = block.scope
        keys_per = read.limit_per.keys if read.limit_per is not None else ()
        shown = [one.expression for one in projections] + [key.expression for key in read.order]
        for expression in (*shown, *read.distinct_on, *keys_per):
            self.patterns.resolve(expression, block.scope, self.patterns.left)
        is_grouped = any(has_aggregate(one.expression) for one in read.projections)
        if read.distinct_on:
            found = self.first_of_each(read, block, found)
        columns = self.grouped(read, found) if is_grouped else self.projected(read, found)
        if read.distinct:
            columns = list(dict.fromkeys(columns))
        is_total = not is_grouped and not read.distinct
        if self.is_stage and not is_total:
            return self.settled(read, columns)
        skip, limit = self.bound(read.skip) or 0, self.bound(read.limit)
        rough = frozenset(index for index, one in enumerate(read.projections) if is_rough(one.expression))
        if read.limit_per is not None and is_total:
            ordered_rows = self.first_of_groups(read, block, found)
            return Answer(self.projected(read, ordered_rows), True, (), skip, limit, rough)
        if not read.order and read.skip is not None and is_total:
            # Pages have an order of their own: that of what breaks ties.
            pages = sorted(zip(found, columns, strict=True), key=lambda one: self.tie(block, one[0]))
            return Answer([column for _, column in pages], True, (), skip, limit, rough)
        if not read.order:
            return Answer(columns, False, (), skip, limit, rough)
        if (rank := rank_of(read)) is not None:
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
        keys = () if is_total else tuple(one[0] for one in ordered)
        return Answer([one[2] for one in ordered], is_total, (), skip, limit, rough, keys)

    def settled(self, read: Columns, columns: list[tuple[Any, ...]]) -> Answer:
        """Return groups or distinct rows of a `with` in their total order: its keys, then all columns."""
        columns = sorted(columns, key=lambda row: tuple(map(settle_key, row)))
        for key in reversed(read.order):
            expression = key.expression
            is_down = key.direction is not None and key.direction.text == "desc"
            columns.sort(key=lambda row: settle_key(self.key(expression, read, row, None)), reverse=is_down)
        is_cut = bool(read.order) or read.skip is not None or read.limit_per is not None
        if read.limit_per is not None:
            keys = [tuple(settle_key(self.key(key, read, row, None)) for key in read.limit_per.keys) for row in columns]
            columns = [columns[place] for place in self.first_places(keys, read.limit_per)]
        return Answer(columns, is_cut, (), self.bound(read.skip) or 0, self.bound(read.limit), frozenset())

    def column(self, expression: ast.Expression, row: Row) -> Any:
        """Return a column of a row; a `with` passes nodes, edges and paths on as they are."""
        if self.is_stage and isinstance(expression, ast.Variable) and expression.name not in self.params:
            return row[expression.name]
        return self.value(expression, row, self.scope)

    def columns(self, projections: Iterable[Any], scope: Mapping[str, str]) -> Iterator[ast.Projection]:
        """Yield the columns of `return`; an entity is its properties, all of them without vectors."""
        for one in projections:
            if isinstance(one, ast.Projection):
                yield one
                continue
            owners = [
                self.catalog.edges.get(name) or self.catalog.nodes[name] for name in scope[one.variable.text].split("|")
            ]
            shared = [
                name
                for name, each in sorted(owners[0].properties.items())
                if all(name in other.properties and other.properties[name].type == each.type for other in owners)
            ]
            names = [name.text for name in one.properties or ()] or [
                name for name in shared if owners[0].properties[name].type.scalar is not Scalar.VECTOR
            ]
            for name in names:
                access = ast.PropertyAccess(one.variable, ast.Name(name, one.span), one.span)
                yield ast.Projection(access, None)

    def first_of_groups(self, read: Columns, block: Block, found: list[Row]) -> list[Row]:
        """Return the rows in order, of those that are equal in the keys of `limit … per` only so many."""
        assert read.limit_per is not None
        projected = self.projected(read, found)
        places = sorted(range(len(found)), key=lambda place: self.tie(block, found[place]))
        for index in reversed(range(len(read.order))):
            direction = read.order[index].direction
            is_down = direction is not None and direction.text == "desc"
            places.sort(key=lambda place: self.keys(read, projected[place], found[place])[index], reverse=is_down)
        keys = [
            tuple(self.group_key(key, read, projected[place], found[place]) for key in read.limit_per.keys)
            for place in places
        ]
        return [found[places[position]] for position in self.first_places(keys, read.limit_per)]

    def group_key(self, key: ast.Expression, read: Columns, column: tuple[Any, ...], row: Row) -> Any:
        if isinstance(key, ast.Variable) and isinstance(row.get(key.name), Node | Edge):
            return row[key.name]
        return self.key(key, read, column, row)

    def first_places(self, keys: list[tuple[Any, ...]], per: ast.LimitPer) -> list[int]:
        count = self.bound(per.count)
        assert count is not None
        return [place for place, key in enumerate(keys) if keys[:place].count(key) < count]

    def first_of_each(self, read: Columns, block: Block, found: list[Row]) -> list[Row]:
        """Keep, of the rows that are equal in the keys, the first in order."""
        projected = self.projected(read, found)
        tied = sorted(range(len(found)), key=lambda place: self.tie(block, found[place]))
        for index in reversed(range(len(read.order))):
            direction = read.order[index].direction
            is_down = direction is not None and direction.text == "desc"
            tied.sort(key=lambda place: self.keys(read, projected[place], found[place])[index], reverse=is_down)
        chosen: dict[tuple[Any, ...], Row] = {}
        for place in tied:
            key = tuple(self.value(one, found[place], self.scope) for one in read.distinct_on)
            chosen.setdefault(key, found[place])
        return list(chosen.values())

    def ranked(self, rank: ast.Call, columns: list[Any], found: list[Row], block: Block) -> list[tuple[Any, ...]]:
        tied = [(self.value(rank, row), self.tie(block, row)) for row in found]
        scored = [(*one, column) for one, column in zip(tied, columns, strict=True) if one[0] is not None]
        return [column for _, _, column in sorted(scored, key=lambda one: one[:2])]

    def keys(self, read: Columns, column: tuple[Any, ...], row: Row | None) -> tuple[Any, ...]:
        values = [self.key(key.expression, read, column, row) for key in read.order]
        return tuple((value is not None, value if value is not None else 0) for value in values)

    def key(self, expression: ast.Expression, read: Columns, column: tuple[Any, ...], row: Row | None) -> Any:
        """Return an order key: a column, something computed with columns, or with the row of the pattern."""
        if row is None or isinstance(expression, ast.Alias) or is_bound_by(expression, read):
            index = column_of(expression, read)
            if index is not None:
                return column[index]
        if isinstance(expression, ast.Call) and expression.function in FUNCTIONS:
            return apply(expression.function, [self.key(one, read, column, row) for one in expression.arguments])
        return self.value(expression, row or {}, self.scope)

    def tie(self, block: Block, row: Row | None) -> tuple[Any, ...]:
        if row is None:
            return ()
        names = [name for name in sorted(block.scope) if not name.startswith("~")]
        bound = [row[name] for name in names if block.scope[name] not in NO_ENTITY]
        hops = [row[name] for name in names if block.scope[name] in (HOPS, PATH)]
        # Ids are unique in a type only, so the type goes first.
        ids = tuple((one.type, one.id) if isinstance(one, Node | Edge) else ("", "") for one in bound)
        ties = ids + tuple((one is not None, one.order if isinstance(one, Way) else one or 0) for one in hops)
        return ties + tuple(settle_key(row[name]) for name in names if block.scope[name] == VALUE)

    def projected(self, read: Columns, found: list[Row]) -> list[tuple[Any, ...]]:
        return [tuple(self.column(one.expression, row) for one in read.projections) for row in found]

    def grouped(self, read: Columns, found: list[Row]) -> list[tuple[Any, ...]]:
        plain = [one.expression for one in read.projections if not has_aggregate(one.expression)]
        groups: dict[tuple[Any, ...], list[Row]] = {} if plain else {(): []}
        for row in found:
            groups.setdefault(tuple(self.column(one, row) for one in plain), []).append(row)
        rows = []
        for key, members in groups.items():
            if read.having is not None and self.of_group(read.having, members, read) is not True:
                continue
            rest = iter(key)
            rows.append(
                tuple(
                    self.of_group(one.expression, members) if has_aggregate(one.expression) else next(rest)
                    for one in read.projections
                )
            )
        return rows

    def of_group(self, expression: ast.Expression, rows: list[Row], read: Columns | None = None) -> Any:
        """Return an expression over aggregates, constants and what a group has in common."""
        if isinstance(expression, ast.Call) and expression.function in AGGREGATES:
            return self.aggregate(expression, rows)
        if read is not None and (isinstance(expression, ast.Alias) or is_bound_by(expression, read)):
            index = column_of(expression, read)
            assert index is not None, "the compiler lets only columns be named here"
            return self.of_group(read.projections[index].expression, rows)
        if isinstance(expression, ast.Comparison):
            sides = [self.of_group(side, rows, read) for side in (expression.left, expression.right)]
            return truth.compare(expression.operator.text, *sides)
        if isinstance(expression, ast.Inverse):
            return truth.opposite(self.of_group(expression.condition, rows, read))
        if isinstance(expression, ast.Call) and expression.function in FUNCTIONS:
            return apply(expression.function, [self.of_group(one, rows, read) for one in expression.arguments])
        return self.value(expression, rows[0] if rows else {}, self.scope)

    def aggregate(self, call: ast.Call, rows: list[Row]) -> Any:
        if not call.arguments:
            return len(rows)
        values = [value for row in rows if (value := self.value(call.arguments[0], row, self.scope)) is not None]
        if call.is_distinct:
            values = list(dict.fromkeys(values))
        return AGGREGATES[call.function](values, *(self.value(one, {}) for one in call.arguments[1:]))

    def bound(self, bound: ast.Bound | None) -> int | None:
        if bound is None:
            return None
        return bound.value if isinstance(bound.value, int) else int(self.params[bound.value.name])
