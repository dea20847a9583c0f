"""Mutations: statements checked against the types they write.

Pure. Rules on the data itself are checked when the mutation runs.
"""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.lang.catalog import EdgeType, NodeType, Property, PropertyType, Scalar
from omnigraph.lang.diagnostic import did_you_mean, join_words
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check_context import Context
from omnigraph.lang.query.check_expressions import fit_value

_ENDS = {"from": "src", "to": "dst"}


def check_mutation(ctx: Context, mutation: ast.Mutation) -> tuple[ir.Statement, ...]:
    """Check every statement; a mix of deletes with others is E1 at the first statement of the second kind."""
    statements: list[ir.Statement] = []
    for statement in mutation.statements:
        typed = _statement(ctx, statement)
        if typed is not None:
            statements.append(typed)
    first_deletes = isinstance(mutation.statements[0], ast.Delete)
    other = next((item for item in mutation.statements if isinstance(item, ast.Delete) is not first_deletes), None)
    if other is not None:
        message = "a mutation either inserts and updates, or deletes, but not both"
        hint = "run two mutations: first the inserts and updates, then the deletes"
        ctx.report("E1", other.span, message, hint)
    return tuple(statements)


def _statement(ctx: Context, statement: ast.Statement) -> ir.Statement | None:
    name = statement.type.text
    target = ctx.catalog.nodes.get(name) or ctx.catalog.edges.get(name)
    if target is None:
        _report_unknown_type(ctx, statement.type)
        return None
    if isinstance(statement, ast.Insert):
        return _insert(ctx, statement, target)
    if isinstance(statement, ast.Update):
        return _update(ctx, statement, target)
    predicate = _predicate(ctx, statement.predicate, target)
    if predicate is None:
        return None
    if isinstance(target, EdgeType):
        return ir.Delete("edge", name, predicate, ())
    cascades = sorted(edge.name for edge in ctx.catalog.edges.values() if name in (edge.source, edge.target))
    return ir.Delete("node", name, predicate, tuple(cascades))


def _report_unknown_type(ctx: Context, name: ast.Name) -> None:
    type_names = [*ctx.catalog.nodes, *ctx.catalog.edges]
    hint = did_you_mean(name.text, type_names)
    if name.text in ctx.catalog.interfaces:
        hint = "an interface holds no entities; name one of the types that implement it"
    ctx.report("T10", name.span, f"there is no node or edge type `{name.text}`", hint)


def _insert(ctx: Context, statement: ast.Insert, target: NodeType | EdgeType) -> ir.Insert | None:
    before = len(ctx.findings)
    assignments = _assignments(ctx, statement.assignments, target)
    assigned = {match.property.text for match in statement.assignments}
    missing = [] if isinstance(target, NodeType) else [end for end in _ENDS if end not in assigned]
    for property_ in target.properties.values():
        if property_.type.nullable or property_.name in assigned:
            continue
        if property_.embed is None or property_.embed.source not in assigned:
            missing.append(property_.name)
    if missing:
        names = join_words([f"`{name}`" for name in missing], conjunction="and")
        hint = "set every required property"
        ctx.report("T12", statement.type.span, f"inserting `{target.name}` needs {names}", hint)
    kind = "node" if isinstance(target, NodeType) else "edge"
    return ir.Insert(kind, target.name, assignments) if len(ctx.findings) == before else None


def _update(ctx: Context, statement: ast.Update, target: NodeType | EdgeType) -> ir.Update | None:
    if isinstance(target, EdgeType):
        hint = "delete the edge and insert it again"
        ctx.report("T16", statement.type.span, f"`{target.name}` is an edge, and edges cannot be updated", hint)
        return None
    before = len(ctx.findings)
    assignments = _assignments(ctx, statement.assignments, target)
    for match in statement.assignments:
        if match.property.text in target.key:
            message = f"`{match.property.text}` is part of the key of `{target.name}` and cannot be updated"
            ctx.report("E3", match.property.span, message, "insert a new node and delete the old one")
    predicate = _predicate(ctx, statement.predicate, target)
    if predicate is None or len(ctx.findings) != before:
        return None
    return ir.Update(target.name, assignments, predicate)


def _assignments(
    ctx: Context, matches: tuple[ast.Match, ...], target: NodeType | EdgeType
) -> tuple[ir.Assignment, ...]:
    columns = _columns(target)
    seen: set[str] = set()
    assignments: list[ir.Assignment] = []
    for match in matches:
        name = match.property.text
        if name in seen:
            ctx.report("T13", match.property.span, f"`{name}` is assigned twice", "keep one of them")
            continue
        seen.add(name)
        target_column = columns.get(name)
        if target_column is None:
            _report_unknown_property(ctx, match.property, target, columns)
            continue
        column, type_ = target_column
        value = _value(ctx, match.value, name, type_)
        if value is not None:
            assignments.append(ir.Assignment(column, value, type_))
    return tuple(assignments)


def _columns(target: NodeType | EdgeType) -> dict[str, tuple[str, PropertyType]]:
    columns = {name: (name, property_.type) for name, property_ in target.properties.items()}
    if isinstance(target, EdgeType):
        # `from` and `to` shadow properties of the same name, which therefore cannot be assigned.
        columns.update({end: (column, ir.ID) for end, column in _ENDS.items()})
    return columns


def _report_unknown_property(
    ctx: Context, name: ast.Name, target: NodeType | EdgeType, properties: Mapping[str, object]
) -> None:
    hint = did_you_mean(name.text, properties)
    if name.text == "id":
        hint = _key_hint(target)
    ctx.report("T11", name.span, f"`{target.name}` has no property `{name.text}`", hint)


def _key_hint(target: NodeType | EdgeType) -> str:
    if isinstance(target, EdgeType):
        return "address an edge by `from`, `to` or one of its properties"
    return f"address the node by its key `{target.key[0]}`" if target.key else "address the node by a property"


def _value(ctx: Context, value: ast.Value, name: str, type_: PropertyType) -> ir.Expr | None:
    if isinstance(value, ast.Variable) and value.name not in ctx.params:
        hint = did_you_mean(
            value.name, ctx.params, prefix="$", otherwise=f"declare it: `query …(${value.name}: {type_})`"
        )
        ctx.report("T14", value.span, f"`${value.name}` is not a parameter of this query", hint)
        return None
    return fit_value(ctx, value, name, type_)


def _predicate(ctx: Context, predicate: ast.Predicate, target: NodeType | EdgeType) -> ir.Predicate | None:
    columns = _columns(target)
    name = predicate.property.text
    target_column = columns.get(name)
    if target_column is None:
        _report_unknown_property(ctx, predicate.property, target, columns)
        return None
    column, type_ = target_column
    if type_.scalar is Scalar.BLOB:
        ctx.report("T11", predicate.property.span, f"`{name}` is a Blob, which cannot be compared")
        return None
    value = _value(ctx, predicate.value, name, type_)
    return None if value is None else ir.Predicate(column, ir.CompareOp(predicate.operator.text), value, type_)


def nullable_properties(node: NodeType) -> tuple[Property, ...]:
    """Return the properties that an update may fill: nullable, not of the key, not embedded."""
    items = node.properties.values()
    return tuple(item for item in items if item.type.nullable and item.name not in node.key and item.embed is None)
