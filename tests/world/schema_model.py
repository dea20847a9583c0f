"""Schemas by identity: types and properties keep their number through every rename, on every branch.

Written from docs/schema.md; imports nothing of the product.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

# Which number types a property may be widened to.
WIDER: Mapping[str, tuple[str, ...]] = {
    "I32": ("I64", "F64"),
    "U32": ("U64", "I64", "F64"),
    "F32": ("F64",),
    "[I32]": ("[I64]", "[F64]"),
    "[F32]": ("[F64]",),
}
RANGES = {
    "I32": (-(2**31), 2**31 - 1),
    "I64": (-(2**63), 2**63 - 1),
    "U32": (0, 2**32 - 1),
    "U64": (0, 2**64 - 1),
}
# The two ends of an edge are one value, under this name in rows.
ENDS = "ends"
PropertyId = int
TypeId = int


@dataclass(frozen=True)
class Property:
    """A property; `base` is the type without `?`, `enum(a, b)` for enums."""

    id: PropertyId
    name: str
    base: str
    is_required: bool = False
    default: Any = None
    is_indexed: bool = False
    is_unique: bool = False
    merge: str | None = None
    bounds: tuple[int, int] | None = None
    # Declared by the interface: keeps its name.
    is_inherited: bool = False

    @property
    def is_enum(self) -> bool:
        return self.base.startswith("enum")

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(self.base[5:-1].split(", "))


@dataclass(frozen=True)
class Type:
    """A node type, or with ends an edge type; `key` has ids of properties, and -1 for the two ends."""

    id: TypeId
    name: str
    properties: tuple[Property, ...]
    key: tuple[PropertyId, ...] = ()
    ends: tuple[TypeId, TypeId] | None = None
    merge: str | None = None
    card_max: int | None = None
    is_named: bool = False

    @property
    def kind(self) -> str:
        return "edge" if self.ends else "node"

    @property
    def table_key(self) -> str:
        return f"{self.kind}:{self.name}"

    def member(self, id_: PropertyId) -> Property:
        return next(one for one in self.properties if one.id == id_)

    def find(self, id_: PropertyId) -> Property | None:
        return next((one for one in self.properties if one.id == id_), None)

    def with_property(self, new: Property) -> Type:
        others = tuple(one for one in self.properties if one.id != new.id)
        return replace(self, properties=tuple(sorted((*others, new), key=lambda one: one.id)))

    def without_property(self, id_: PropertyId) -> Type:
        return replace(self, properties=tuple(one for one in self.properties if one.id != id_))

    @property
    def free(self) -> tuple[Property, ...]:
        """The properties that are no part of the key."""
        return tuple(one for one in self.properties if one.id not in self.key)


Schema = Mapping[TypeId, Type]


def nodes(schema: Schema) -> list[Type]:
    return [one for one in schema.values() if one.ends is None]


def edges(schema: Schema) -> list[Type]:
    return [one for one in schema.values() if one.ends is not None]


def source_text(schema: Schema, before: Schema | None = None) -> str:
    """Return a schema as `.pg`, with rename hints for what has another name in `before`."""
    parts = ["interface Named { name: String? }"]
    parts += [_type_text(one, schema, (before or {}).get(one.id)) for one in schema.values()]
    return "\n".join(parts) + "\n"


def _type_text(type_: Type, schema: Schema, before: Type | None) -> str:
    hint = f' @rename_from("{before.name}")' if before and before.name != type_.name else ""
    rule = f" @merge({type_.merge})" if type_.merge else ""
    members = list(_members(type_, before))
    if type_.ends is None:
        implements = " implements Named" if type_.is_named else ""
        return f"node {type_.name}{hint}{rule}{implements} {{ {'  '.join(members)} }}"
    source, target = (schema[end].name for end in type_.ends)
    card = f" @card(0..{type_.card_max})" if type_.card_max is not None else ""
    return f"edge {type_.name}: {source} -> {target}{card}{hint}{rule} {{ {'  '.join(members)} }}"


def _members(type_: Type, before: Type | None) -> Iterator[str]:
    for one in type_.properties:
        if one.is_inherited:
            continue
        former = before.find(one.id) if before else None
        marks = f' @rename_from("{former.name}")' if former and former.name != one.name else ""
        marks += " @index" * one.is_indexed + " @unique" * one.is_unique
        marks += f" @merge({one.merge})" if one.merge else ""
        if one.default is not None:
            marks += f" @default({one.default if one.is_enum else json.dumps(one.default, ensure_ascii=False)})"
        yield f"{one.name}: {one.base}{'' if one.is_required else '?'}{marks}"
        if one.bounds:
            yield f"@range({one.name}, {one.bounds[0]}..{one.bounds[1]})"
    if type_.key:
        names = ["@src, @dst" if one == -1 else type_.member(one).name for one in type_.key]
        yield f"@key({', '.join(names)})"


def convert(value: Any, base: str) -> Any:
    """Return a value as a type stores it.

    Raises:
        ValueError: The type cannot hold exactly this value.
    """
    if value is None:
        return None
    if base.startswith("["):
        return [convert(item, base[1:-1]) for item in value]
    if base in RANGES:
        low, high = RANGES[base]
        if value != int(value) or not low <= value <= high:
            raise ValueError(base)
        return int(value)
    if base == "F64":
        if float(value) != value:
            raise ValueError(base)
        return float(value)
    if base == "F32":
        try:
            stored: float = struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:
            raise ValueError(base) from None
        if stored != value:
            raise ValueError(base)
        return stored
    if base.startswith("enum") and value not in base[5:-1].split(", "):
        raise ValueError(base)
    return value


def nearest_single(value: float) -> float:
    """Return the 32-bit float nearest to a number."""
    stored: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return stored
