"""Selections of entities to embed: `field=value`, or `Type:field=value` for one type alone.

Pure. All selections of a type must hold; where any are given, types that none speaks of are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import orjson

from omnigraph.engine.params import decode_params
from omnigraph.engine.write.predicate import ColumnTest, comparison
from omnigraph.errors import UsageError
from omnigraph.lang.catalog import NodeType
from omnigraph.lang.query.ir import CompareOp, Parameter
from omnigraph.lang.query.words import suggestion
from omnigraph.lang.types import NUMBERS, PropertyType, Scalar

Selected: TypeAlias = tuple[ColumnTest, ...]


def parse_selects(types: Sequence[NodeType], select: Sequence[str]) -> Mapping[str, Selected | None]:
    """Return the tests of each type by its name; None for a type that is left out."""
    found: dict[str, list[ColumnTest]] = {}
    for text in select:
        head, sign, value = text.partition("=")
        type_name, _, field = head.rpartition(":")
        meant = [one for one in types if not type_name or one.name == type_name]
        if not sign or not field or not meant:
            names = ", ".join(one.name for one in types)
            raise UsageError(
                f"`{text}` selects nothing; write `field=value`, or `Type:field=value` with one of {names}", select=text
            )
        for type_ in meant:
            found.setdefault(type_.name, []).append(_test(type_, field, value, text))
    left_out: Selected | None = None if select else ()
    return {one.name: tuple(found[one.name]) if one.name in found else left_out for one in types}


def _test(type_: NodeType, field: str, value: str, text: str) -> ColumnTest:
    known = {"id": PropertyType(Scalar.STRING)} | {name: one.type for name, one in type_.properties.items()}
    wanted = known.get(field)
    if wanted is None or wanted.is_list or wanted.scalar in (Scalar.VECTOR, Scalar.BLOB):
        hint = suggestion(field, known) or f"it has {', '.join(sorted(known))}"
        raise UsageError(f"`{type_.name}` has no property `{field}` to select by; {hint}", select=text)
    [decoded] = decode_params([Parameter(field, wanted, "")], {field: _plain(value, wanted)}).values()
    return comparison(field, wanted, CompareOp.EQ, decoded)


def _plain(text: str, type_: PropertyType) -> Any:
    """Return a value as JSON would give it: numbers and booleans are written without quotes."""
    if type_.scalar not in NUMBERS and type_.scalar is not Scalar.BOOL:
        return text
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
