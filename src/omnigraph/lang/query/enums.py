"""Enum properties in comparisons: a word outside the enum is a mistake, and not an empty or an odd result.

Pure. Literals are checked by the compiler; parameters get the words that they may hold, for whoever binds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Final

from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.context import Context
from omnigraph.lang.query.words import listed, suggestion
from omnigraph.lang.types import PropertyType

# A prefix or a part of a word need not be one.
_BY_PART: Final = (ir.CompareOp.STARTS_WITH, ir.CompareOp.STRING_CONTAINS)


def check_enum_words(ctx: Context, property_: ir.Expr, other: ir.Expr, place: ast.Expression) -> bool:
    """Report T3 for a literal that an enum property can never hold, and return whether there was none."""
    if not isinstance(property_, ir.PropertyRef) or not isinstance(other, ir.Literal):
        return True
    words = property_.type.enum_values
    if words is None:
        return True
    values = other.value if isinstance(other.value, tuple) else (other.value,)
    unknown = next((value for value in values if value not in words), None)
    if unknown is None:
        return True
    name = property_.property
    message = f'`{name}` is never "{unknown}": "{unknown}" is not one of {", ".join(words)}'
    hint = suggestion(str(unknown), words, otherwise=f"`{name}` is {property_.type}")
    ctx.report("T3", place.span, message, hint)
    return False


def restrict_parameters(query: ir.QueryIR) -> tuple[ir.Parameter, ...]:
    """Return the parameters of a query; one that is used with enum properties alone has their words as `words`."""
    words: dict[str, set[str] | None] = {}
    for name, type_ in _uses(query):
        known = words.setdefault(name, set())
        if type_ is None or type_.enum_values is None:
            words[name] = None
        elif known is not None:
            known.update(type_.enum_values)
    # A value may be meant for one of several enums, as the sides of an `or`, so it has to fit one of them.
    return tuple(
        replace(one, words=tuple(sorted(found))) if (found := words.get(one.name)) else one for one in query.params
    )


def refuse_word(value: object, words: tuple[str, ...]) -> str | None:
    """Return why a bound value cannot be one of the words, or None when it is.

    >>> refuse_word("tanker", ("bulk", "tanker")), refuse_word("ferry", ("bulk", "tanker"))
    (None, 'it is compared with an enum, whose values are bulk and tanker')
    """
    values = value if isinstance(value, tuple) else (value,)
    unknown = next((one for one in values if one is not None and one not in words), None)
    if unknown is None:
        return None
    near = suggestion(str(unknown), words)
    told = f"it is compared with an enum, whose values are {listed(words, conjunction='and')}"
    return f"{told}; {near}" if near else told


def _uses(part: object) -> Iterator[tuple[str, PropertyType | None]]:
    """Yield each use of a parameter, with the type of the property that it is compared with, if that is its use."""
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
