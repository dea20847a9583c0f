"""Check mutations against the types that they write; what a pattern matches becomes a read of ids and new values.

Pure. Rules on the data itself are checked when the mutation runs. In a statement with a full condition, its type is the
pattern, and bare names are its properties.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final, TypeAlias

from omnigraph.lang.catalog import INTEGERS, NUMBERS, EdgeType, NodeType, PropertyType, Type
from omnigraph.lang.diagnostic import Span, did_you_mean, join_words
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check_calls import is_null_literal
from omnigraph.lang.query.check_context import Context, Kind, Scope, pattern_reads, statement_writes
from omnigraph.lang.query.check_expressions import Role, check_expression
from omnigraph.lang.query.check_patterns import Block, check_block
from omnigraph.lang.query.check_values import END_NODES, ENDS, describe, fit_value, misfit

Columns: TypeAlias = dict[str, tuple[str, PropertyType]]
# Names that no source can spell: the entity of a condition, and the ends of an edge.
_ROW: Final = "~row"
_FROM, _TO = END_NODES
_END_NAMES: Final = {"from": _FROM, "@src": _FROM, "to": _TO, "@dst": _TO}


def _type_pattern(target: Type, span: Span) -> ast.Clause:
    """Return the clause that binds every entity of a type to `~row`."""
    row = ast.Name(_ROW, span)
    if isinstance(target, NodeType):
        return ast.Binding(row, (ast.Name(target.name, span),), (), span)
    ends = ast.Name(_FROM, span), ast.Name(_TO, span)
    return ast.Traversal(ends[0], (ast.Name(target.word, span),), ends[1], False, row, None, None, span)


def _qualify(part: Any, target: Type) -> Any:
    """Return an expression in which every bare name, but for `null`, is a property of `~row`, or an end of it."""
    if isinstance(part, ast.Alias):
        return _qualify_name(part, target)
    if isinstance(part, tuple):
        return tuple(_qualify(item, target) for item in part)
    if is_dataclass(part) and not isinstance(part, type | Span | ast.Name | ast.Literal | PropertyType):
        return replace(part, **{item.name: _qualify(getattr(part, item.name), target) for item in fields(part)})
    return part


def _qualify_name(alias: ast.Alias, target: Type) -> ast.Expression:
    span = alias.span
    if alias.name == "null":
        return alias
    if isinstance(target, EdgeType) and alias.name in _END_NAMES:
        # The end of an edge is the id of a node, by which the node and its edges are found without reading all others.
        return ast.PropertyAccess(ast.Name(_END_NAMES[alias.name], span), ast.Name("@id", span), span)
    return ast.PropertyAccess(ast.Name(_ROW, span), ast.Name(alias.name, span), span)


class PatternWrites:
    """The pattern of the statements after it, checked once."""

    def __init__(self, ctx: Context, clauses: tuple[ast.Clause, ...]) -> None:
        before = len(ctx.findings)
        block = check_block(ctx, clauses, Scope()) if clauses else Block(Scope())
        self.scope = block.scope
        self.is_valid = len(ctx.findings) == before
        self._ctx = ctx
        self._pipeline = ctx.lowering.block(block, frozenset()) if self.is_valid and clauses else ()

    def update(
        self, target: Type, verb: str, variable: str, assignments: Sequence[ast.Assign]
    ) -> ir.UpdateMatched | None:
        """Return an update or a rename of a variable of the pattern."""
        typed = self._assignments(target, assignments)
        if typed is None:
            return None
        columns, types = typed
        read = self._read([self._id(target, variable), *columns])
        if verb == "rename":
            return ir.RenameMatched(target.kind, target.name, read, types, _edges_at(self._ctx, target))
        return ir.UpdateMatched(target.kind, target.name, read, types)

    def delete(self, target: Type, variable: str) -> ir.DeleteMatched | None:
        """Return a delete of a variable of the pattern."""
        if not self.is_valid:
            return None
        read = replace(self._read([self._id(target, variable)]), is_distinct=True)
        return ir.DeleteMatched(target.kind, target.name, read, _edges_at(self._ctx, target))

    def insert(self, target: Type, verb: ir.Verb, assignments: Sequence[ast.Assign]) -> ir.InsertMatched | None:
        """Return an insert for each row of the pattern."""
        typed = self._assignments(target, assignments)
        if typed is None:
            return None
        return ir.InsertMatched(target.kind, target.name, verb, self._read(typed[0]), typed[1])

    def target_of(self, variable: ast.Name) -> Type | None:
        """Return the type of a variable that is to be written; reports one that cannot be."""
        bound, catalog = self.scope.get(variable.text), self._ctx.catalog
        if bound is None:
            hint = did_you_mean(variable.text, self.scope, prefix="$", otherwise="bind it in the `match` before")
            return self._ctx.report("T26", variable.span, f"`${variable.text}` is not bound by the pattern", hint)
        types: Mapping[str, Type] = catalog.edges if bound.kind is Kind.EDGE else catalog.nodes
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
        self, target: Type, assignments: Sequence[ast.Assign]
    ) -> tuple[list[ir.Column], tuple[PropertyType, ...]] | None:
        """Return the new values as columns, and the types that they are stored as; None if something is wrong."""
        columns = _columns(target)
        typed: list[ir.Column] = []
        for item in assignments:
            column, type_ = columns[item.property.text]
            value = self._value(item, type_, target.name)
            if value is not None:
                typed.append(ir.Column(column, value, value.type or type_))
        if len(typed) < len(assignments) or not self.is_valid:
            return None
        return typed, tuple(columns[item.property.text][1] for item in assignments)

    def _value(self, item: ast.Assign, type_: PropertyType, type_name: str) -> ir.Expr | None:
        if self._reports_bare_name(item.value):
            return None
        value = check_expression(self._ctx, self.scope, item.value, Role.MATCH)
        if value is None or value.type is None:
            return None
        if is_null_literal(value):
            return ir.Literal(None, replace(type_, nullable=True))
        name, span = item.property.text, item.value.span
        if isinstance(value, ir.Literal):
            reason = misfit(value, type_)
            if reason is None:
                return ir.Literal((), type_) if value.value == () else value
            return self._ctx.report("T3", span, f"this value does not fit `{name}`: {reason}", f"`{name}` is {type_}")
        if _fits(value.type, type_):
            return value
        if type_.is_blob:
            message = f"`{type_name}.{name}` is a Blob, which cannot be set for each row of a pattern"
            hint = "set it with `insert` or `upsert`, or with an `update` of nodes that has one comparison"
        else:
            message = f"{describe(value)}, which does not fit `{type_name}.{name}`"
            hint = f"`{name}` is {type_}; convert it with `cast(… as …)`"
        return self._ctx.report("T3", span, message, hint)

    def _reports_bare_name(self, value: ast.Expression) -> bool:
        """Report a name without a variable, which means nothing here."""
        alias = next(
            (part for part in ast.walk_expression(value) if isinstance(part, ast.Alias) and part.name != "null"), None
        )
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

    def _id(self, target: Type, variable: str) -> ir.Column:
        if isinstance(target, NodeType):
            return ir.Column(ir.MATCHED_ID, ir.NodeRef(variable, target.name), ir.ID)
        id_ = ir.PropertyRef(variable, "edge", target.name, "id", ir.ID, is_field=True)
        return ir.Column(ir.MATCHED_ID, id_, ir.ID)

    def _read(self, columns: list[ir.Column]) -> ir.ReadIR:
        params = tuple(self._ctx.params.values())
        counts, self._ctx.counts = self._ctx.counts, []
        pipeline = (*self._pipeline, *self._ctx.lowering.result_counts(counts, self.scope))
        return ir.ReadIR("match", params, pipeline, tuple(columns))


def _fits(value: PropertyType, expected: PropertyType) -> bool:
    """Return True if values of a type can be stored in a property; their range is checked when they are."""
    if value.is_list != expected.is_list or expected.is_blob:
        return False
    if value.scalar in NUMBERS and expected.scalar in NUMBERS:
        return value.scalar in INTEGERS or expected.scalar not in INTEGERS
    return value.scalar is expected.scalar and value.dimension == expected.dimension


_PLAIN_OPERATORS = frozenset({"=", "!=", "<", "<=", ">", ">="})


def check_mutation(ctx: Context, mutation: ast.Mutation) -> tuple[ir.Statement, ...]:
    """Check every statement; without `@mixed`, deletes beside others are E1 at the first one of the second kind."""
    statements: list[ir.Statement] = []
    pattern: PatternWrites | None = None
    before: list[ir.Statement] = []
    for statement in mutation.statements:
        if isinstance(statement, ast.Pattern):
            pattern = PatternWrites(ctx, statement.clauses)
            before = list(statements)
            continue
        typed = _statement(ctx, statement, pattern)
        if typed is not None:
            # Statements of one pattern share its rows, so only what stands before the pattern counts.
            _check_order(ctx, statement, typed, statements if pattern is None else before)
            statements.append(typed)
    if not mutation.is_mixed:
        _check_kinds(ctx, mutation)
    return tuple(statements)


def _check_kinds(ctx: Context, mutation: ast.Mutation) -> None:
    written = [item for item in mutation.statements if not isinstance(item, ast.Pattern)]
    deletes = [isinstance(item, ast.Delete | ast.DeleteMatched) for item in written]
    other = next((item for item, is_delete in zip(written, deletes, strict=True) if is_delete is not deletes[0]), None)
    if other is not None:
        message = "a mutation either inserts and updates, or deletes, but not both"
        hint = "run two mutations, or write `@mixed` before the brace: `query name() @mixed { … }`"
        ctx.report("E1", other.span, message, hint)


def _check_order(ctx: Context, statement: ast.Statement, typed: ir.Statement, before: list[ir.Statement]) -> None:
    """Report a pattern over what an earlier statement writes: patterns read what is committed."""
    if not isinstance(typed, ir.Matched):
        return
    if isinstance(statement, ast.Delete):
        # A condition on the entities to delete holds or not, whichever of them are deleted already.
        before = [item for item in before if not isinstance(item, ir.Delete | ir.DeleteMatched)]
    written = {use.type_name for use in statement_writes(before)}
    # A condition is about the entities of one type, though the ends of edges are bound along with them.
    is_condition = isinstance(statement, ast.Update | ast.Delete)
    reads = () if is_condition else pattern_reads(typed, ctx.catalog)
    # Updates and deletes change committed rows, not pending ones.
    changed = set() if isinstance(typed, ir.InsertMatched) else {typed.type_name}
    clash = sorted(written & ({use.type_name for use in reads} | changed))
    if clash:
        reader = {ast.Update: "this update", ast.Delete: "this delete"}.get(type(statement), "the pattern")
        message = f"an earlier statement writes `{clash[0]}`, but {reader} reads what is committed"
        ctx.report("E1", statement.span, message, "put this statement first, or run two mutations")


def _statement(ctx: Context, statement: ast.Statement, pattern: PatternWrites | None) -> ir.Statement | None:
    if isinstance(statement, ast.UpdateMatched | ast.DeleteMatched):
        if pattern is None:
            hint = "write `match { … }` before it"
            return ctx.report("T26", statement.variable.span, f"`${statement.variable.text}` is not bound here", hint)
        return _write_matched(ctx, statement, pattern)
    assert not isinstance(statement, ast.Pattern)
    target = _target(ctx, statement.type)
    if target is None:
        return None
    if isinstance(statement, ast.Insert):
        return _insert(ctx, statement, target, pattern)
    if isinstance(statement, ast.Update):
        return _update(ctx, statement, target)
    return _delete(ctx, statement, target)


def _target(ctx: Context, name: ast.Name) -> Type | None:
    catalog = ctx.written
    target = catalog.nodes.get(name.text) or catalog.edges.get(name.text)
    if target is None:
        hint = did_you_mean(name.text, [*catalog.nodes, *catalog.edges])
        if name.text in catalog.interfaces:
            hint = "an interface holds no entities; name one of the types that implement it"
        ctx.report("T10", name.span, f"there is no node or edge type `{name.text}`", hint)
    return target


def _edges_at(ctx: Context, target: Type) -> tuple[str, ...]:
    """Return the edge types of which edges go with a deleted or renamed entity."""
    return ctx.catalog.edges_at(target.name) if isinstance(target, NodeType) else ()


def _rows_where(ctx: Context, statement: ast.Update | ast.Delete, target: Type) -> PatternWrites:
    """Return the entities of a type for which the condition of a statement holds, as a pattern."""
    condition = _qualify(statement.condition, target)
    return PatternWrites(ctx, (_type_pattern(target, statement.type.span), condition))


def _write_matched(
    ctx: Context, statement: ast.UpdateMatched | ast.DeleteMatched, pattern: PatternWrites
) -> ir.Statement | None:
    target = pattern.target_of(statement.variable)
    if target is None:
        return None
    if isinstance(statement, ast.DeleteMatched):
        return pattern.delete(target, statement.variable.text)
    known = _known_assignments(ctx, statement.assignments, target, statement.verb)
    if statement.verb == "rename" and _reports_no_key(ctx, statement.variable.span, known, target):
        return None
    return pattern.update(target, statement.verb, statement.variable.text, known)


def _delete(ctx: Context, statement: ast.Delete, target: Type) -> ir.Delete | ir.DeleteMatched | None:
    if _reports_variable(ctx, statement.condition):
        return None
    simple = _simple_condition(statement.condition)
    if simple is None:
        return _rows_where(ctx, statement, target).delete(target, _ROW)
    predicate = _predicate(ctx, simple, target)
    return None if predicate is None else ir.Delete(target.kind, target.name, predicate, _edges_at(ctx, target))


def _simple_condition(condition: ast.Expression) -> ast.Comparison | None:
    """Return a comparison of a property with a constant, which is looked up without running a query."""
    if not isinstance(condition, ast.Comparison) or not isinstance(condition.left, ast.Alias):
        return None
    if condition.left.name == "@type":
        # It is stored nowhere, so there is nothing to look up.
        return None
    is_plain = condition.operator.text in _PLAIN_OPERATORS and _is_constant(condition.right)
    return condition if is_plain else None


def _reports_variable(ctx: Context, expression: ast.Expression) -> bool:
    """Report `$x.name` in a statement over a type, where no pattern binds variables."""
    accesses = (part for part in ast.walk_expression(expression) if isinstance(part, ast.PropertyAccess))
    access = next((part for part in accesses if part.variable.text not in ctx.params), None)
    if access is None:
        return False
    hint = f"write the property alone, `{access.property.text}`, or bind the variable in a `match`"
    ctx.report("T6", access.span, f"`${access.variable.text}` is not bound here", hint)
    return True


def _is_constant(value: ast.Expression) -> bool:
    if isinstance(value, ast.Call):
        return value.function == "now" and not value.arguments
    return isinstance(value, ast.Literal | ast.ListLiteral | ast.Variable)


def _is_constant_or_null(value: ast.Expression) -> bool:
    return _is_constant(value) or _is_null(value)


def _is_null(value: ast.Expression) -> bool:
    return isinstance(value, ast.Alias) and value.name == "null"


def _insert(
    ctx: Context, statement: ast.Insert, target: Type, pattern: PatternWrites | None
) -> ir.Insert | ir.InsertMatched | None:
    before, verb = len(ctx.findings), ir.Verb(statement.verb)
    known = _known_assignments(ctx, statement.assignments, target, verb)
    assigned = {item.property.text for item in statement.assignments}
    if len(ctx.findings) == before:
        # Report a misspelt name once, not again as a missing property.
        _check_required(ctx, statement, target, verb, assigned)
    if pattern is not None or not all(_is_constant_or_null(item.value) for item in known):
        rows = pattern or PatternWrites(ctx, ())
        return rows.insert(target, verb, known) if len(ctx.findings) == before else None
    assignments = _constants(ctx, known, target)
    return ir.Insert(target.kind, target.name, assignments, verb) if len(ctx.findings) == before else None


def _check_required(ctx: Context, statement: ast.Insert, target: Type, verb: ir.Verb, assigned: set[str]) -> None:
    """Report required properties that an insert leaves out; an `upsert` needs the key alone to find the entity."""
    missing = [] if isinstance(target, NodeType) else [end for end in ENDS if end not in assigned]
    if verb is ir.Verb.UPSERT:
        if not target.key:
            message = f"`{target.name}` has no key, so there is nothing to find an existing one by"
            ctx.report("T12", statement.type.span, message, "use `insert`, or declare a `@key`")
            return
        missing += [name for name in target.key if name not in assigned and name not in ENDS.values()]
    for property_ in target.properties.values() if verb is not ir.Verb.UPSERT else ():
        if property_.type.nullable or property_.name in assigned or property_.default is not None:
            continue
        if property_.embed is None or property_.embed.source not in assigned:
            missing.append(property_.name)
    if missing:
        names = join_words([f"`{name}`" for name in missing], conjunction="and")
        noun = "inserting" if verb is ir.Verb.INSERT else f"`{verb}` of"
        ctx.report("T12", statement.type.span, f"{noun} `{target.name}` needs {names}", "set every required property")


def _update(ctx: Context, statement: ast.Update, target: Type) -> ir.Update | ir.UpdateMatched | None:
    before = len(ctx.findings)
    known = _known_assignments(ctx, statement.assignments, target, statement.verb)
    is_rename = statement.verb == "rename"
    if is_rename and len(ctx.findings) == before and _reports_no_key(ctx, statement.type.span, known, target):
        return None
    if any(_reports_variable(ctx, item) for item in (statement.condition, *(item.value for item in known))):
        return None
    simple = _simple_condition(statement.condition)
    if simple is None or not all(_is_constant_or_null(item.value) for item in known) or isinstance(target, EdgeType):
        rows = _rows_where(ctx, statement, target)
        settings = [replace(item, value=_qualify(item.value, target)) for item in known]
        return rows.update(target, statement.verb, _ROW, settings) if len(ctx.findings) == before else None
    assignments = _constants(ctx, known, target)
    predicate = _predicate(ctx, simple, target)
    if predicate is None or len(ctx.findings) != before:
        return None
    if is_rename:
        return ir.Rename(target.name, assignments, predicate, _edges_at(ctx, target))
    return ir.Update(target.name, assignments, predicate)


def _reports_no_key(ctx: Context, span: Span, known: Sequence[ast.Assign], target: Type) -> bool:
    """Report a `rename` that sets no member of a key."""
    members = [name for name in target.key if name in target.properties]
    if any(item.property.text in members for item in known):
        return False
    if members:
        names = join_words([f"`{name}`" for name in members])
        ctx.report("T12", span, f"`rename` of `{target.name}` sets no part of its key", f"set {names}, or use `update`")
    else:
        message = f"`{target.name}` has no key of properties that `rename` could set"
        ctx.report("T12", span, message, "use `update`; its id never changes")
    return True


def _known_assignments(ctx: Context, items: tuple[ast.Assign, ...], target: Type, verb: str) -> tuple[ast.Assign, ...]:
    """Return the assignments to properties that exist; reports unknown, repeated and unchangeable ones."""
    columns = _columns(target)
    fixed = dict.fromkeys(target.key, "part of the key") if verb == "update" else {}
    if verb in ("update", "rename") and isinstance(target, EdgeType):
        fixed |= dict.fromkeys(ENDS, "an end")
    names: set[str] = set()
    known: list[ast.Assign] = []
    for item in items:
        name = item.property.text
        if name in names:
            ctx.report("T13", item.property.span, f"`{name}` is assigned twice", "keep one of them")
        elif name not in columns:
            _report_unknown_property(ctx, item.property, target, columns)
        elif name in fixed:
            message = f"`{name}` is {fixed[name]} of `{target.name}` and cannot be updated"
            if name in ENDS:
                ctx.report("T16", item.property.span, message, "insert a new edge and delete the old one")
            else:
                along = "" if isinstance(target, EdgeType) else ", and takes its edges along"
                hint = f"`rename` instead of `update` gives the {target.kind} another key{along}"
                ctx.report("E3", item.property.span, message, hint)
        else:
            known.append(item)
        names.add(name)
    return tuple(known)


def _constants(ctx: Context, items: tuple[ast.Assign, ...], target: Type) -> tuple[ir.Assignment, ...]:
    columns = _columns(target)
    assignments: list[ir.Assignment] = []
    for item in items:
        column, type_ = columns[item.property.text]
        if _is_null(item.value):
            if column in ENDS.values():
                ctx.report("T3", item.value.span, f"`{item.property.text}` is null, but an edge has both ends")
            assignments.append(ir.Assignment(column, ir.Literal(None, replace(type_, nullable=True)), type_))
            continue
        assert isinstance(item.value, ast.Literal | ast.ListLiteral | ast.Variable | ast.Call)
        value = _value(ctx, item.value, item.property.text, type_)
        if value is not None:
            assignments.append(ir.Assignment(column, value, type_))
    return tuple(assignments)


def _columns(target: Type) -> Columns:
    columns = {name: (name, property_.type) for name, property_ in target.properties.items()}
    if isinstance(target, EdgeType):
        # `from` and `to` shadow properties of the same name, which therefore cannot be assigned.
        columns.update({end: (column, ir.ID) for end, column in ENDS.items()})
    return columns


def _condition_columns(target: Type) -> Columns:
    """Return the columns that a condition may name: those that can be assigned, and the system fields."""
    fields = {"@id": "id"} if isinstance(target, NodeType) else {"@id": "id", "@src": "src", "@dst": "dst"}
    return _columns(target) | {field: (column, ir.ID) for field, column in fields.items()}


def _report_unknown_property(
    ctx: Context, name: ast.Name, target: Type, properties: Mapping[str, object]
) -> ir.Predicate | None:
    if name.text in ast.SYSTEM_FIELDS:
        message = f"`{target.name}` is a node type and has no `{name.text}`"
        return ctx.report("T11", name.span, message, "only edges have ends")
    hint = did_you_mean(name.text, properties)
    if isinstance(target, EdgeType) and name.text in ENDS.values():
        hint = "the ends of an edge are `from` and `to`"
    elif name.text == "id" and isinstance(target, EdgeType):
        hint = "address an edge by `@id`, by `from` and `to`, or by one of its properties"
    elif name.text == "id":
        by = f"its key `{target.key[0]}`" if target.key else "`@id` or a property"
        hint = f"address the node by {by}"
    return ctx.report("T11", name.span, f"`{target.name}` has no property `{name.text}`", hint)


def _value(ctx: Context, value: ast.Value, name: str, type_: PropertyType) -> ir.Expr | None:
    if isinstance(value, ast.Variable) and value.name not in ctx.params:
        return ctx.report_unknown_parameter("T14", value, type_)
    return fit_value(ctx, value, name, type_)


def _predicate(ctx: Context, comparison: ast.Comparison, target: Type) -> ir.Predicate | None:
    columns = _condition_columns(target)
    assert isinstance(comparison.left, ast.Alias)
    name = ast.Name(comparison.left.name, comparison.left.span)
    target_column = columns.get(name.text)
    if target_column is None:
        return _report_unknown_property(ctx, name, target, columns)
    column, type_ = target_column
    if type_.is_blob:
        return ctx.report("T11", name.span, f"`{name.text}` is a Blob, which cannot be compared")
    assert isinstance(comparison.right, ast.Literal | ast.ListLiteral | ast.Variable | ast.Call)
    value = _value(ctx, comparison.right, name.text, type_)
    return None if value is None else ir.Predicate(column, ir.CompareOp(comparison.operator.text), value, type_)
