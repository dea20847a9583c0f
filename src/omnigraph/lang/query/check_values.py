"""Check values: literals, parameters, variables, properties and system fields, resolved and typed.

Pure. Functions report a problem and return None, so that callers do not report it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Final

from omnigraph.lang.catalog import PropertyType
from omnigraph.lang.diagnostic import did_you_mean, join_words
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check_context import Context, Kind, Scope, Variable, with_null
from omnigraph.lang.scalars import INTEGERS, NUMBERS, TIME_FORMS, Scalar


def type_literal(ctx: Context, value: ast.Literal | ast.ListLiteral) -> ir.Literal | None:
    """Give a literal its type; a nested or mixed list is T28."""
    if isinstance(value, ast.Literal):
        return ir.Literal(value.value, PropertyType(value.scalar))
    values: list[ir.LiteralValue] = []
    scalar = Scalar.STRING
    is_unsigned = _is_unsigned(value)
    for position, item in enumerate(value.items):
        if isinstance(item, ast.ListLiteral):
            return ctx.report("T28", item.span, "a list cannot hold lists")
        item_scalar = Scalar.U64 if is_unsigned and item.scalar is Scalar.I64 else item.scalar
        if position == 0:
            scalar = item_scalar
        elif item_scalar is not scalar:
            numbers = {item_scalar, scalar} <= NUMBERS
            hint = "write all of them with a decimal point" if numbers else "keep one type in a list"
            return ctx.report("T28", item.span, f"a list of {scalar.value} cannot hold a {item.scalar.value}", hint)
        values.append(item.value)
    return ir.Literal(tuple(values), PropertyType(scalar, is_list=True))


def _is_unsigned(value: ast.ListLiteral) -> bool:
    """Return True if the integers of a list are all unsigned, because one of them exceeds I64."""
    integers = [item for item in value.items if isinstance(item, ast.Literal) and item.scalar in INTEGERS]
    is_positive = all(isinstance(item.value, int) and item.value >= 0 for item in integers)
    return is_positive and any(item.scalar is Scalar.U64 for item in integers)


def is_compatible(a: PropertyType, b: PropertyType) -> bool:
    """Return True if values of two types can be compared or assigned; nullability does not matter.

    >>> is_compatible(PropertyType(Scalar.I32), PropertyType(Scalar.F64, nullable=True))
    True
    """
    if a.is_list is not b.is_list or a.dimension != b.dimension:
        return False
    return a.scalar is b.scalar or (a.scalar in NUMBERS and b.scalar in NUMBERS)


def element_type(type_: PropertyType) -> PropertyType:
    return PropertyType(type_.scalar, enum_values=type_.enum_values)


def misfit(literal: ir.Literal, type_: PropertyType) -> str | None:
    """Return why a literal does not fit the type of a property, or None if it does."""
    if type_.is_blob:
        return "a Blob has no literal"
    if type_.is_vector and not type_.is_list:
        if not (literal.type.is_list and (literal.type.scalar in NUMBERS or not literal.value)):
            return f"{literal.type} is not a {type_}"
        assert isinstance(literal.value, tuple)
        length = len(literal.value)
        return None if length == type_.dimension else f"it has {length} numbers, not {type_.dimension}"
    if literal.value == () and type_.is_list:
        # An empty list is one of any type.
        return None
    if not is_compatible(literal.type, type_):
        return f"{literal.type} is not {type_}"
    if type_.enum_values is not None:
        unknown = _unknown_word(literal.value, type_.enum_values)
        if unknown is not None:
            return f'"{unknown}" is not one of {", ".join(type_.enum_values)}'
    return None


def _unknown_word(value: object, words: tuple[str, ...]) -> object | None:
    """Return the first of one or several values that is not one of the words of an enum; null is no value."""
    values = value if isinstance(value, tuple) else (value,)
    return next((item for item in values if item is not None and item not in words), None)


def match_value(ctx: Context, scope: Scope, value: ast.Value, name: str, type_: PropertyType) -> ir.Expr | None:
    """Check the value of a property match; a list property takes one item, meaning membership."""
    if type_.is_blob:
        return ctx.report("T3", value.span, f"`{name}` is a Blob, which cannot be matched")
    if isinstance(value, ast.Variable) and value.name not in ctx.params:
        if value.name not in scope:
            return ctx.report_unknown_parameter("T26", value, "…")
        message = f"`${value.name}` is a variable of the pattern, not a value to match on"
        compared = f"… = ${value.name}" if scope[value.name].kind is Kind.VALUE else "$a.p = $b.q"
        return ctx.report("T7", value.span, message, f"compare properties with a filter: `{compared}`")
    if type_.is_list:
        return fit_value(ctx, value, name, element_type(type_), listed_in=type_)
    return fit_value(ctx, value, name, type_)


def fit_value(
    ctx: Context, value: ast.Value, name: str, expected: PropertyType, *, listed_in: PropertyType | None = None
) -> ir.Expr | None:
    """Check a literal (T3), parameter or `now()` (T7) against the type of a property."""
    shown = listed_in or expected
    if isinstance(value, ast.Call):
        if is_compatible(ir.NOW, expected):
            return ir.Now()
        return ctx.report("T7", value.span, f"`now()` is a DateTime, but `{name}` is {shown}")
    if isinstance(value, ast.Variable):
        parameter = ctx.params[value.name]
        if is_compatible(parameter.type, expected) or (expected.is_blob and parameter.type.is_text):
            return ir.ParameterRef(parameter.name, parameter.type)
        message = f"parameter `${value.name}` is {parameter.type}, but `{name}` is {shown}"
        return ctx.report("T7", value.span, message, "change the type of the parameter")
    literal = type_literal(ctx, value)
    reason = None if literal is None else misfit(literal, expected)
    if literal is None or reason is None:
        return literal
    if expected.enum_values is not None and isinstance(literal.value, str):
        hint = did_you_mean(literal.value, expected.enum_values)
    else:
        hint = literal_hint(expected, literal)
    otherwise = f"`{name}` is {shown}"
    if listed_in is not None and literal.type.is_list:
        otherwise += "; match one item of it, or filter with `contains`"
    return ctx.report("T3", value.span, f"this value does not fit `{name}`: {reason}", hint or otherwise)


def literal_hint(expected: PropertyType, other: ir.Expr) -> str | None:
    """Return a hint on how to write a literal of a type whose values are written as text, in place of a text.

    >>> day = PropertyType(Scalar.DATE)
    >>> literal_hint(day, ir.Literal("2026-01-31", ir.ID)), literal_hint(day, ir.Literal("yesterday", ir.ID))
    ('write date("2026-01-31")', 'a Date is written as date("2024-01-31")')
    """
    form, call = TIME_FORMS.get(expected.scalar), expected.scalar.literal_call
    if form is None or not isinstance(other, ir.Literal) or not other.type.is_text:
        return None
    if form.read(str(other.value)) is not None:
        return f'write {call}("{other.value}")'
    return f'a {expected.scalar} is written as {call}("{form.example}")'


# The endpoints of an edge as statements name them, and the columns that hold them.
ENDS: Final = {"from": "src", "to": "dst"}
# The nodes at the ends of an edge that a statement over its type is about, and what their ids are of the edge.
END_NODES: Final = {"~from": "@src", "~to": "@dst"}


def is_unspellable(name: str) -> bool:
    """Return True for a variable that the compiler made up; no source can spell it."""
    return name.startswith("~")


def resolve(ctx: Context, scope: Scope, expression: ast.Expression) -> ir.Expr | None:
    """Resolve anything but an alias or a call other than `now()`; those depend on the clause."""
    if isinstance(expression, ast.PropertyAccess):
        is_field = expression.property.text in ast.SYSTEM_FIELDS
        return (resolve_field if is_field else resolve_property)(ctx, scope, expression, code="T6")
    if isinstance(expression, ast.Variable):
        return resolve_variable(ctx, scope, expression)
    if isinstance(expression, ast.Literal | ast.ListLiteral):
        return type_literal(ctx, expression)
    assert isinstance(expression, ast.Call)
    assert expression.function == "now"
    return ir.Now()


def is_path_call(scope: Scope, call: ast.Call) -> bool:
    """Return True for a function of a path variable that other values have, too: `length`."""
    argument = call.arguments[0] if call.arguments else None
    binding = scope.get(argument.name) if isinstance(argument, ast.Variable) else None
    return call.function == "length" and binding is not None and binding.kind is Kind.PATH


def resolve_entity_call(ctx: Context, scope: Scope, call: ast.Call) -> ir.Expr | None:
    """Resolve a function of a bound variable: `type` of a node or edge, the others of a path."""
    argument, function = call.arguments[0], call.function
    binding = scope.get(argument.name) if isinstance(argument, ast.Variable) else None
    if binding is not None and binding.kind is Kind.BROKEN:
        return None
    kinds = (Kind.NODE, Kind.EDGE) if function == "type" else (Kind.PATH,)
    if binding is None or binding.kind not in kinds:
        is_type = function == "type"
        noun = "a node or an edge of the pattern" if is_type else "a path: `path $p = …`"
        variable = "$v" if is_type else "$p"
        return ctx.report("T33", argument.span, f"`{function}` takes {noun}", f"write `{function}({variable})`")
    if binding.kind is Kind.PATH:
        return path_value(binding, function)
    return ir.TypeRef(binding.name, binding.kind.value, binding.owner, with_null(ir.ID, binding.nullable))


def path_value(binding: Variable, function: str) -> ir.PathRef:
    ids = replace(ir.ID, is_list=True)
    types = {"nodes": ids, "edges": ids, "length": ir.I64, "cost": ir.F64}
    return ir.PathRef(binding.name, function, binding.owner, with_null(types[function], binding.nullable))


def resolve_variable(ctx: Context, scope: Scope, variable: ast.Variable) -> ir.Expr | None:
    """Resolve a bare `$x`: a parameter first, then a node or a number of hops."""
    parameter = ctx.params.get(variable.name)
    if parameter is not None:
        return ir.ParameterRef(parameter.name, parameter.type)
    binding = scope.get(variable.name)
    if binding is None:
        hint = _variable_hint(ctx, scope, variable.name)
        return ctx.report("T26", variable.span, f"`${variable.name}` is neither bound here nor a parameter", hint)
    if binding.kind is Kind.EDGE:
        message = f"`${variable.name}` is an edge and has no value of its own"
        first = next(iter(ctx.properties(binding)), None)
        name = binding.name
        hint = f"use one of its properties, such as `${name}.{first}`" if first else f"its id is `${name}.@id`"
        return ctx.report("T23", variable.span, message, hint)
    if binding.kind is Kind.BROKEN:
        return None
    if binding.kind is Kind.HOPS:
        return ir.HopsRef(binding.name, with_null(ir.I64, binding.nullable))
    if binding.kind is Kind.PATH:
        return path_value(binding, "nodes")
    if binding.kind is Kind.ITEM:
        return ir.ColumnRef(f"${binding.name}", binding.value_type)
    if binding.kind is Kind.VALUE:
        assert binding.value_type is not None
        return ir.ValueRef(binding.name, with_null(binding.value_type, binding.nullable))
    return ir.NodeRef(binding.name, binding.owner, with_null(ir.ID, binding.nullable))


_WITHOUT_PROPERTIES: Final = {
    Kind.HOPS: "a number of hops",
    Kind.PATH: "a path",
    Kind.ITEM: "an item of a list",
    Kind.VALUE: "a value",
}


def _find_owner(ctx: Context, scope: Scope, access: ast.PropertyAccess, code: str) -> Variable | None:
    """Return the node or edge that `$v.p` reads, or report under `code` what is not one."""
    variable, name = access.variable, access.property
    binding = scope.get(variable.text)
    if binding is None:
        if variable.text in ctx.params:
            message = f"`${variable.text}` is a parameter and has no properties"
            ctx.report(code, variable.span, message, "use it without `.`")
        else:
            message = f"`${variable.text}` is not bound here"
            ctx.report(code, variable.span, message, _variable_hint(ctx, scope, variable.text))
        return None
    if binding.kind in _WITHOUT_PROPERTIES:
        noun = _WITHOUT_PROPERTIES[binding.kind]
        return ctx.report(code, name.span, f"`${variable.text}` is {noun} and has no properties")
    return None if binding.kind is Kind.BROKEN else binding


def resolve_property(ctx: Context, scope: Scope, access: ast.PropertyAccess, *, code: str) -> ir.PropertyRef | None:
    """Resolve `$v.p`, reporting an unbound variable or an unknown property under `code`."""
    variable, name = access.variable, access.property
    binding = _find_owner(ctx, scope, access, code)
    if binding is None:
        return None
    properties = ctx.properties(binding)
    property_ = properties.get(name.text)
    if property_ is None:
        hint: str | None = did_you_mean(name.text, properties, otherwise=_known_hint(binding.owner, list(properties)))
        if f"@{name.text}" in _fields_of(binding):
            owner = "" if is_unspellable(variable.text) else f"${variable.text}."
            hint = f"write `{owner}@{name.text}`"
        return ctx.report(code, name.span, f"`{binding.owner}` has no property `{name.text}`", hint)
    type_ = with_null(property_.type, binding.nullable)
    return ir.PropertyRef(variable.text, binding.kind.value, binding.owner, name.text, type_)


def has_property(ctx: Context, binding: Variable, name: str) -> bool:
    """Return True for a node or edge with a property of this name."""
    return binding.kind in (Kind.NODE, Kind.EDGE) and name in ctx.properties(binding)


def resolve_field(ctx: Context, scope: Scope, access: ast.PropertyAccess, *, code: str) -> ir.Expr | None:
    """Resolve a system field: `$v.@id`, `$v.@type`, and of an edge `$e.@src` and `$e.@dst`."""
    variable, name = access.variable, access.property
    binding = _find_owner(ctx, scope, access, code)
    if binding is None:
        return None
    if name.text not in _fields_of(binding):
        is_row = is_unspellable(variable.text)
        owner = f"`{binding.owner}` is a node type" if is_row else f"`${variable.text}` is a node"
        hint = "only edges have ends" if is_row else f"bind an edge, as in `$a $e:edge $b`, and write `$e.{name.text}`"
        return ctx.report(code, name.span, f"{owner} and has no `{name.text}`", hint)
    type_ = with_null(ir.ID, binding.nullable)
    if name.text == "@type":
        return ir.TypeRef(binding.name, binding.kind.value, binding.owner, type_)
    column = name.text.removeprefix("@")
    return ir.PropertyRef(binding.name, binding.kind.value, binding.owner, column, type_, is_field=True)


def _fields_of(binding: Variable) -> tuple[str, ...]:
    """Return the system fields of a bound node or edge."""
    return ast.SYSTEM_FIELDS if binding.kind is Kind.EDGE else ast.SYSTEM_FIELDS[:2]


def describe(expression: ir.Expr) -> str:
    """Name a typed expression in a message."""
    if isinstance(expression, ir.NodeRef):
        return f"`${expression.variable}` is a node"
    if isinstance(expression, ir.PropertyRef):
        # In the `where` and `set` of a statement over a type, the entity has no name of its own.
        is_row = is_unspellable(expression.variable)
        owner = "" if is_row else f"${expression.variable}."
        name = END_NODES.get(expression.variable, expression.written())
        return f"`{owner}{name}` is {expression.type}"
    if isinstance(expression, ir.ParameterRef):
        return f"`${expression.name}` is {expression.type}"
    if isinstance(expression, ir.CountRef):
        return f"`count {{ … }}` is {expression.type}"
    if isinstance(expression, ir.HopsRef | ir.ValueRef):
        return f"`${expression.variable}` is {expression.type}"
    if isinstance(expression, ir.ColumnRef):
        return f"`{expression.name}` is {expression.type}"
    return f"the value is {expression.type}"


def _variable_hint(ctx: Context, scope: Scope, name: str) -> str:
    if name == "_":
        return "`$_` matches anything and binds nothing; give the variable a name"
    if name in ctx.dropped:
        return f"pass it on in the `with` before: `with {{ ${name}, … }}`"
    names = [*scope, *ctx.params]
    otherwise = f"bind it before it is used, as in `${name}: SomeType`"
    return did_you_mean(name, names, prefix="$") or otherwise


def _known_hint(owner: str, names: list[str]) -> str:
    if not names:
        return f"`{owner}` has no properties"
    first_names = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    return f"`{owner}` has {first_names}"


# Their operand may be part of an enum value.
_BY_PART: Final = (
    ir.CompareOp.STARTS_WITH,
    ir.CompareOp.ENDS_WITH,
    ir.CompareOp.MATCHES,
    ir.CompareOp.STRING_CONTAINS,
)


def check_enum_words(ctx: Context, property_: ir.Expr, other: ir.Expr, literal: ast.Expression) -> bool:
    """Report T3 for a literal that an enum property can never hold, and return True if there is none."""
    if not isinstance(property_, ir.PropertyRef) or not isinstance(other, ir.Literal):
        return True
    words = property_.type.enum_values
    if words is None:
        return True
    unknown = _unknown_word(other.value, words)
    if unknown is None:
        return True
    name = property_.property
    message = f'`{name}` is never "{unknown}": "{unknown}" is not one of {", ".join(words)}'
    hint = did_you_mean(str(unknown), words, otherwise=f"`{name}` is {property_.type}")
    ctx.report("T3", literal.span, message, hint)
    return False


def restrict_parameters(query: ir.QueryIR) -> tuple[ir.Parameter, ...]:
    """Return the parameters of a query; one that is compared only with enum properties gets their values as `words`."""
    words: dict[str, set[str] | None] = {}
    for name, type_ in _uses(query):
        known = words.setdefault(name, set())
        if type_ is None or type_.enum_values is None:
            words[name] = None
        elif known is not None:
            known.update(type_.enum_values)
    # With several enums, as on the sides of an `or`, a value has to be in one of them.
    return tuple(
        replace(param, words=tuple(sorted(allowed))) if (allowed := words.get(param.name)) else param
        for param in query.params
    )


def explain_unknown_word(value: object, words: tuple[str, ...]) -> str | None:
    """Return why a parameter value is not one of the enum values, or None if it is.

    >>> explain_unknown_word("tanker", ("bulk", "tanker")), explain_unknown_word("ferry", ("bulk", "tanker"))
    (None, 'it is compared with an enum, whose values are bulk and tanker')
    """
    unknown = _unknown_word(value, words)
    if unknown is None:
        return None
    near = did_you_mean(str(unknown), words)
    reason = f"it is compared with an enum, whose values are {join_words(words, conjunction='and')}"
    return f"{reason}; {near}" if near else reason


def _uses(part: object) -> Iterator[tuple[str, PropertyType | None]]:
    """Yield each use of a parameter, with the type of the property it is compared with, or None for any other use."""
    if isinstance(part, ir.Compare) and part.op not in _BY_PART:
        yield from _pair(part.left, part.right)
        yield from _pair(part.right, part.left)
    elif isinstance(part, ir.In):
        yield from _pair(part.collection, part.operand)
        yield from _pair(part.operand, part.collection)
    elif isinstance(part, ir.Predicate) and part.op not in _BY_PART:
        yield from _use(part.value, part.type)
    elif isinstance(part, ir.IsNull) and isinstance(part.operand, ir.ParameterRef):
        return
    else:
        yield from _use(part, None)


def _pair(side: ir.Expr, other: ir.Expr) -> Iterator[tuple[str, PropertyType | None]]:
    yield from _use(side, other.type if isinstance(other, ir.PropertyRef) else None)


def _use(part: object, type_: PropertyType | None) -> Iterator[tuple[str, PropertyType | None]]:
    if isinstance(part, ir.ParameterRef):
        yield part.name, type_
    elif isinstance(part, tuple):
        for item in part:
            yield from _uses(item)
    elif is_dataclass(part) and not isinstance(part, type | PropertyType | ir.Parameter):
        for member in fields(part):
            yield from _uses(getattr(part, member.name))
