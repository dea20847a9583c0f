"""Check statements that write what a pattern matches; each becomes a read of ids and new values.

Pure. A statement with a full condition is one, too: its type is the pattern, and bare names are its properties.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final, TypeAlias, cast

from omnigraph.lang.catalog import FLOATS, INTEGERS, EdgeType, NodeType, PropertyType, Scalar
from omnigraph.lang.diagnostic import Span, did_you_mean, join_words
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check_calls import is_null_literal
from omnigraph.lang.query.check_context import Context, Kind, Scope
from omnigraph.lang.query.check_expressions import Role, check_expression
from omnigraph.lang.query.check_patterns import Block, check_block
from omnigraph.lang.query.check_values import END_NODES, describe, misfit

Lower: TypeAlias = Callable[[Block], tuple[ir.Operator, ...]]
Columns: TypeAlias = dict[str, tuple[str, PropertyType]]
# Names that no source can spell: the entity of a condition, and the ends of an edge.
ROW: Final = "~row"
_FROM, _TO = END_NODES
_END_NAMES: Final = {"from": _FROM, "@src": _FROM, "to": _TO, "@dst": _TO}


def type_pattern(target: NodeType | EdgeType, span: Span) -> ast.Clause:
    """Return the clause that binds every entity of a type to `~row`."""
    row = ast.Name(ROW, span)
    if isinstance(target, NodeType):
        return ast.Binding(row, (ast.Name(target.name, span),), (), span)
    ends = ast.Name(_FROM, span), ast.Name(_TO, span)
    return ast.Traversal(ends[0], (ast.Name(target.word, span),), ends[1], False, row, None, None, span)


def qualify(expression: ast.Expression, target: NodeType | EdgeType) -> ast.Expression:
    """Return an expression in which every bare name, but for `null`, is a property of `~row`, or an end of it."""
    return cast(ast.Expression, _map_members(expression, target))


def _qualify_name(alias: ast.Alias, target: NodeType | EdgeType) -> ast.Expression:
    span = alias.span
    if alias.name == "null":
        return alias
    if isinstance(target, EdgeType) and alias.name in _END_NAMES:
        # The end of an edge is the id of a node, by which the node and its edges are found without reading all others.
        return ast.PropertyAccess(ast.Name(_END_NAMES[alias.name], span), ast.Name("@id", span), span)
    return ast.PropertyAccess(ast.Name(ROW, span), ast.Name(alias.name, span), span)


def _parts(part: Any) -> Iterator[Any]:
    """Yield an expression and all that it is made of."""
    yield part
    if isinstance(part, tuple):
        for item in part:
            yield from _parts(item)
    elif is_dataclass(part) and not isinstance(part, type | Span | ast.Name | ast.Literal | PropertyType):
        for member in fields(part):
            yield from _parts(getattr(part, member.name))


def find_variable(expression: ast.Expression, params: Container[str]) -> ast.PropertyAccess | None:
    """Return the first `$x.name` of an expression; in a condition on a type, a bare name is the property."""
    accesses = (part for part in _parts(expression) if isinstance(part, ast.PropertyAccess))
    return next((part for part in accesses if part.variable.text != ROW and part.variable.text not in params), None)


def _map_members(part: Any, target: NodeType | EdgeType) -> Any:
    if isinstance(part, ast.Alias):
        return _qualify_name(part, target)
    if isinstance(part, tuple):
        return tuple(_map_members(item, target) for item in part)
    if is_dataclass(part) and not isinstance(part, type | Span | ast.Name | ast.Literal | PropertyType):
        changed = {item.name: _map_members(getattr(part, item.name), target) for item in fields(part)}
        return replace(part, **changed)
    return part


class PatternWrites:
    """The pattern of the statements after it, checked once."""

    def __init__(self, ctx: Context, clauses: tuple[ast.Clause, ...], lower: Lower) -> None:
        before = len(ctx.findings)
        block = check_block(ctx, clauses, Scope()) if clauses else Block(Scope())
        self.scope = block.scope
        self.is_valid = len(ctx.findings) == before
        self._ctx = ctx
        self._pipeline = lower(block) if self.is_valid and clauses else ()

    def update(
        self, target: NodeType | EdgeType, variable: str, assignments: Iterable[ast.Assign], columns: Columns
    ) -> ir.UpdateMatched | None:
        """Return an update of a variable of the pattern."""
        typed = self._assignments(assignments, columns, target.name)
        if typed is None or not self.is_valid:
            return None
        read = self._read([self._id(target, variable), *typed[0]])
        return ir.UpdateMatched(target.kind, target.name, read, typed[1])

    def delete(self, target: NodeType | EdgeType, variable: str) -> ir.DeleteMatched | None:
        """Return a delete of a variable of the pattern."""
        if not self.is_valid:
            return None
        cascades = self._ctx.catalog.edges_at(target.name) if isinstance(target, NodeType) else ()
        read = self._read([self._id(target, variable)])
        return ir.DeleteMatched(target.kind, target.name, replace(read, is_distinct=True), cascades)

    def insert(
        self, target: NodeType | EdgeType, verb: ir.Verb, assignments: Iterable[ast.Assign], columns: Columns
    ) -> ir.InsertMatched | None:
        """Return an insert for each row of the pattern."""
        typed = self._assignments(assignments, columns, target.name)
        if typed is None or not self.is_valid:
            return None
        return ir.InsertMatched(target.kind, target.name, verb, self._read(typed[0]), typed[1])

    def target_of(self, variable: ast.Name) -> NodeType | EdgeType | None:
        """Return the type of a variable that is to be written; reports one that cannot be."""
        bound, catalog = self.scope.get(variable.text), self._ctx.catalog
        if bound is None:
            hint = did_you_mean(variable.text, self.scope, prefix="$", otherwise="bind it in the `match` before")
            self._ctx.report("T26", variable.span, f"`${variable.text}` is not bound by the pattern", hint)
            return None
        types: Mapping[str, NodeType | EdgeType] = catalog.edges if bound.kind is Kind.EDGE else catalog.nodes
        if bound.kind in (Kind.NODE, Kind.EDGE) and bound.type_name is not None:
            target = types.get(bound.type_name)
            if target is None:
                names = join_words([f"`{name}`" for name in bound.type_name.split("|")])
                message = f"`${variable.text}` may be of several types, {names}, but a statement writes one"
                self._ctx.report("T23", variable.span, message, "write a `match` for each type")
            return target
        if bound.kind is not Kind.BROKEN:
            message = f"`${variable.text}` is neither a node nor an edge"
            self._ctx.report("T23", variable.span, message, "name a node or an edge of the pattern")
        return None

    def _assignments(
        self, assignments: Iterable[ast.Assign], columns: Columns, type_name: str
    ) -> tuple[list[ir.Column], tuple[PropertyType, ...]] | None:
        typed: list[ir.Column] = []
        types: list[PropertyType] = []
        items = list(assignments)
        for item in items:
            column, type_ = columns[item.property.text]
            value = self._value(item, type_, type_name)
            if value is not None:
                typed.append(ir.Column(column, value, value.type or type_))
                types.append(type_)
        return (typed, tuple(types)) if len(typed) == len(items) else None

    def _value(self, item: ast.Assign, type_: PropertyType, type_name: str) -> ir.Expr | None:
        if self._reports_bare_name(item.value):
            return None
        value = check_expression(self._ctx, self.scope, item.value, Role.MATCH)
        if value is None or value.type is None:
            return None
        if is_null_literal(value):
            return ir.Literal(None, replace(type_, nullable=True))
        reason = misfit(value, type_) if isinstance(value, ir.Literal) else _misfit_of(value.type, type_)
        if reason is None:
            return value
        name = item.property.text
        if isinstance(value, ir.Literal):
            self._ctx.report(
                "T3", item.value.span, f"this value does not fit `{name}`: {reason}", f"`{name}` is {type_}"
            )
        elif type_.scalar is Scalar.BLOB:
            message = f"`{type_name}.{name}` is a Blob, which cannot be set for each row of a pattern"
            hint = "set it with `insert` or `upsert`, or with an `update` of nodes that has one comparison"
            self._ctx.report("T3", item.value.span, message, hint)
        else:
            message = f"{describe(value)}, which does not fit `{type_name}.{name}`"
            self._ctx.report("T3", item.value.span, message, f"`{name}` is {type_}; convert it with `cast(… as …)`")
        return None

    def _reports_bare_name(self, value: ast.Expression) -> bool:
        """Report a name without a variable, which means nothing here."""
        alias = next((part for part in _parts(value) if isinstance(part, ast.Alias) and part.name != "null"), None)
        if alias is None:
            return False
        owner = next((name for name, bound in self.scope.items() if bound.kind in (Kind.NODE, Kind.EDGE)), None)
        hint = f'write `"{alias.name}"` for a string, or `${alias.name}` for a parameter'
        if alias.name in ast.SYSTEM_FIELDS:
            hint = f"write `${owner or 'v'}.{alias.name}`"
        elif owner is not None:
            hint = f'write `${owner}.{alias.name}` for a property, or `"{alias.name}"` for a string'
        self._ctx.report("T7", alias.span, f"`{alias.name}` is not a value", hint)
        return True

    def _id(self, target: NodeType | EdgeType, variable: str) -> ir.Column:
        if isinstance(target, NodeType):
            return ir.Column(ir.MATCHED_ID, ir.NodeRef(variable, target.name), ir.ID)
        return ir.Column(ir.MATCHED_ID, ir.PropertyRef(variable, "edge", target.name, "id", ir.ID), ir.ID)

    def _read(self, columns: list[ir.Column]) -> ir.ReadIR:
        params = tuple(self._ctx.params.values())
        return ir.ReadIR("match", params, self._pipeline, tuple(columns), False, False, None, (), None, None)


def _misfit_of(value: PropertyType, expected: PropertyType) -> str | None:
    """Return why values of a type cannot be stored in a property, or None; their range is checked when they are."""
    if value.is_list != expected.is_list or expected.scalar is Scalar.BLOB:
        return "other shape"
    numbers = INTEGERS | FLOATS
    is_number = value.scalar in numbers and expected.scalar in numbers
    if is_number and not (value.scalar in FLOATS and expected.scalar in INTEGERS):
        return None
    if value.scalar is expected.scalar and value.dimension == expected.dimension:
        return None
    return "other type"
