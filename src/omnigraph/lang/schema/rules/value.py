"""Checks what can be seen in one declaration alone: names, types, bounds and arguments (S2 to S7).

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from omnigraph.lang.diagnostic import Diagnostic
from omnigraph.lang.schema.expand import Draft
from omnigraph.lang.schema.number import COUNT_MAX, parse_bound, parse_count
from omnigraph.lang.schema.syntax import Item, PropertyDeclaration
from omnigraph.lang.source import Source
from omnigraph.lang.types import Scalar
from omnigraph.limits import VECTOR_DIMENSION_MAX

RESERVED_NAMES: Final = frozenset(
    {"_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"}
)


def check_values(draft: Draft) -> Iterator[Diagnostic]:
    """Yield S2 to S7."""
    for owner in draft.owners:
        declaration = owner.declaration
        for property_ in declaration.properties:
            yield from _check_property(property_, draft.source)
        if declaration.cardinality is not None:
            yield from _check_cardinality(declaration.cardinality, draft.source)
        for item in declaration.constraints:
            yield from _check_arguments(item, draft.source)


def _check_property(property_: PropertyDeclaration, source: Source) -> Iterator[Diagnostic]:
    name, type_ = property_.name, property_.type
    if name.text in RESERVED_NAMES:
        hint = "the storage format uses this name for a column of its own; choose another"
        yield Diagnostic("S2", f"property name `{name.text}` is reserved", source, name.span, hint)
    if type_.dimension is not None and not 1 <= (type_.type.dimension or 0) <= VECTOR_DIMENSION_MAX:
        message = f"vector dimension `{type_.dimension.text[:20]}` is not between 1 and {VECTOR_DIMENSION_MAX}"
        yield Diagnostic("S3", message, source, type_.dimension.span)
    if type_.type.is_list and type_.type.scalar is Scalar.BLOB:
        hint = "give each blob a node of its own and an edge to it"
        yield Diagnostic("S4", "a list cannot hold `Blob`", source, type_.span, hint)
    seen: set[str] = set()
    for value in type_.values:
        if value.text in seen:
            yield Diagnostic(
                "S5", f"enum value `{value.text}` is listed twice", source, value.span, "remove one of them"
            )
        seen.add(value.text)


def _check_cardinality(item: Item, source: Source) -> Iterator[Diagnostic]:
    assert item.arguments is not None
    bounds = item.arguments[0]
    low = parse_count(bounds.low or "0")
    high = parse_count(bounds.high) if bounds.high is not None else COUNT_MAX
    if low is None or high is None:
        yield Diagnostic("S6", f"a cardinality bound is at most {COUNT_MAX}", source, bounds.span)
    elif low > high:
        message = f"the minimum {low} is greater than the maximum {high}"
        yield Diagnostic("S6", message, source, bounds.span, f"did you mean `@card({high}..{low})`?")


def _check_arguments(item: Item, source: Source) -> Iterator[Diagnostic]:
    assert item.arguments is not None
    if item.word in ("key", "unique", "index"):
        for argument in item.arguments:
            if argument.kind != "name":
                message = f"`@{item.word}(…)` takes bare property names"
                hint = f"write `{argument.text}` without quotes" if argument.kind == "string" else None
                yield Diagnostic("S7", message, source, argument.span, hint)
        return
    form = "`@range(property, low..high)`" if item.word == "range" else '`@check(property, "pattern")`'
    wanted = "range" if item.word == "range" else "string"
    kinds = [argument.kind for argument in item.arguments]
    if kinds != ["name", wanted]:
        wrong = next((a for a, kind in zip(item.arguments, ("name", wanted), strict=False) if a.kind != kind), None)
        span = wrong.span if wrong is not None else item.span
        yield Diagnostic("S7", f"`@{item.word}` takes a property name and a {wanted}", source, span, f"write {form}")
        return
    bounds = item.arguments[1]
    if any(text is not None and parse_bound(text) is None for text in (bounds.low, bounds.high)):
        yield Diagnostic("S7", "a bound of `@range` is too large for a 64-bit float", source, bounds.span)
