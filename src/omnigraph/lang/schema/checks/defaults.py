"""Checks defaults (S33): one for a property, with one value that the property can hold.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.lang.diagnostic import Diagnostic, Source
from omnigraph.lang.schema.ast import Item, PropertyDeclaration
from omnigraph.lang.schema.defaults import DefaultFault, read_default
from omnigraph.lang.schema.expand import Draft


def check_defaults(draft: Draft) -> Iterator[Diagnostic]:
    """Yield S14 and S33; an inherited property is checked where it is written."""
    for owner in draft.owners:
        for item in owner.declaration.annotated("default"):
            message = "`@default` belongs to a property, not to a type"
            yield Diagnostic("S14", message, draft.source, item.span, "put it behind the property's type")
        for property_ in owner.declaration.properties:
            for index, item in enumerate(property_.annotated("default")):
                yield from _check_default(property_, item, index, draft.source)


def _check_default(property_: PropertyDeclaration, item: Item, index: int, source: Source) -> Iterator[Diagnostic]:
    name = property_.name.text
    if index > 0:
        yield Diagnostic("S33", f"`@default` is given twice for `{name}`", source, item.span, "keep one of them")
    elif not item.arguments:
        hint = "write `@default(0)`, `@default(now())` or `@default(uuid())`"
        yield Diagnostic("S33", f"`@default` of `{name}` needs a value", source, item.span, hint)
    elif item.keywords:
        message = "`@default` takes no keyword arguments"
        yield Diagnostic("S33", message, source, item.keywords[0].span, "keep the value alone")
    elif property_.annotated("embed"):
        message = f"`{name}` is embedded from a text, so it has no default"
        yield Diagnostic("S33", message, source, item.span, "remove one of the two annotations")
    else:
        try:
            read_default(item.arguments[0], property_.type.type)
        except DefaultFault as fault:
            yield Diagnostic("S33", f"default of `{name}`: {fault.reason}", source, item.arguments[0].span, fault.hint)
