"""How two schemas merge: three ways, by identity, attribute by attribute.

Written from "Schemas of branches" in docs/schema.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

from tests.world.schema_model import Property, Schema, Type, TypeId

_MISSING = object()


@dataclass
class MergedSchema:
    """The merged schema; with conflicts, it is not one."""

    schema: dict[TypeId, Type] = field(default_factory=dict)
    conflicts: set[str] = field(default_factory=set)


def merge_schemas(base: Schema, ours: Schema, theirs: Schema) -> MergedSchema:
    merged = MergedSchema()
    for id_ in sorted({*base, *ours, *theirs}):
        type_ = _merge_type(merged, base.get(id_), ours.get(id_), theirs.get(id_))
        if type_ is not None:
            merged.schema[id_] = type_
    names = [(one.kind, one.name.lower() if one.ends else one.name) for one in merged.schema.values()]
    names += [(str(type_.id), one.name) for type_ in merged.schema.values() for one in type_.properties]
    if len(set(names)) < len(names):
        merged.conflicts.add("DivergentSchema")
    for type_ in merged.schema.values():
        if type_.ends and any(end not in merged.schema for end in type_.ends):
            merged.conflicts.add("DivergentSchema")
    return merged


def _merge_type(merged: MergedSchema, base: Type | None, ours: Type | None, theirs: Type | None) -> Type | None:
    if ours == theirs or theirs == base:
        return ours
    if ours == base:
        return theirs
    if ours is None or theirs is None:
        # One side dropped what the other changed.
        merged.conflicts.add("DivergentSchema")
        return ours
    properties = []
    for id_ in sorted({one.id for side in (base, ours, theirs) if side for one in side.properties}):
        one = _merge_property(merged, *(side.find(id_) if side else None for side in (base, ours, theirs)))
        if one is not None:
            properties.append(one)
    values = _merge_attributes(merged, base, ours, theirs, skip=("properties",))
    return replace(ours, properties=tuple(properties), **values)


def _merge_property(
    merged: MergedSchema, base: Property | None, ours: Property | None, theirs: Property | None
) -> Property | None:
    if ours == theirs or theirs == base:
        return ours
    if ours == base:
        return theirs
    if ours is None or theirs is None:
        merged.conflicts.add("DivergentSchema")
        return ours
    values = _merge_attributes(merged, base, ours, theirs, skip=("base",))
    words = _merge_base(merged, base, ours, theirs)
    return replace(ours, base=words, **values)


def _merge_base(merged: MergedSchema, base: Property | None, ours: Property, theirs: Property) -> str:
    """Merge the types of a property; values that both sides added to an enum go together."""
    former = base.base if base else None
    if ours.base == theirs.base or theirs.base == former:
        return ours.base
    if ours.base == former:
        return theirs.base
    if ours.is_enum and theirs.is_enum:
        words = dict.fromkeys([*ours.words, *theirs.words])
        return f"enum({', '.join(words)})"
    merged.conflicts.add("DivergentSchema")
    return ours.base


def _merge_attributes(merged: MergedSchema, base: Any, ours: Any, theirs: Any, skip: tuple[str, ...]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for attribute in fields(ours):
        name = attribute.name
        if name in skip:
            continue
        former = _MISSING if base is None else getattr(base, name)
        mine, yours = getattr(ours, name), getattr(theirs, name)
        if mine == yours or yours == former:
            values[name] = mine
        elif mine == former:
            values[name] = yours
        else:
            merged.conflicts.add("DivergentSchema")
            values[name] = mine
    return values


def is_rewritten(before: Type | None, after: Type | None) -> bool:
    """Tell whether a change of a type wrote its entities again: wider numbers, a required property, another key."""
    if before is None or after is None:
        return False
    if before.key != after.key:
        return True
    for one in after.properties:
        former = before.find(one.id)
        if former is None and one.is_required:
            return True
        if former is not None and former.base != one.base and not former.is_enum:
            return True
    return False
