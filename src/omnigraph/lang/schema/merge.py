"""Three-way merge of schemas by identity: which types, properties and constraints the merged schema has.

Pure. A schema is taken apart into records that refer to each other by identity, so a rename changes one field of one
record. Records are merged field by field, as a data merge does it with entities and properties.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from omnigraph.lang.catalog import Embed, PropertyType
from omnigraph.lang.schema.ast import KINDS, Kind
from omnigraph.lang.schema.ir import SchemaIR, later_identity, unused_identity
from omnigraph.lang.schema.shape import (
    MARKS,
    ConstraintShape,
    EdgeShape,
    Identities,
    InterfaceShape,
    NodeShape,
    PropertyShape,
    SchemaShape,
    TypeIds,
    TypeShape,
)

Part = Literal["type", "property", "constraint"]
# What a record is about: the part, its type, and within that the property, or the kind and columns of a constraint.
Key: TypeAlias = tuple[Any, ...]
Record: TypeAlias = Mapping[str, Any]
Records: TypeAlias = Mapping[Key, Record]

Side = Literal["ours", "theirs"]
BOTH_SIDES: Final[tuple[Side, ...]] = ("ours", "theirs")

# The fields of a constraint besides its kind and columns, in order.
_BOUNDS: Final = ("minimum", "maximum", "pattern")
_SHAPES: Final[Mapping[Kind, type[Any]]] = {"interface": InterfaceShape, "node": NodeShape, "edge": EdgeShape}


@dataclass(frozen=True, slots=True)
class SchemaConflict:
    """A difference between two schemas that a person has to settle: where it is, and what the sides did.

    `sides` may be taken to settle it; a side that would restore what the other dropped, without its data, may not.
    """

    key: Key
    kind: Kind
    type_name: str
    property_name: str | None
    message: str
    sides: tuple[Side, ...] = BOTH_SIDES


@dataclass(frozen=True, slots=True)
class SchemaMerge:
    """The merged schema; without one there are conflicts."""

    ir: SchemaIR | None
    conflicts: tuple[SchemaConflict, ...] = ()


def is_same_schema(left: SchemaIR, right: SchemaIR) -> bool:
    """Return True if two schemas have the same content and identities; they may number new ones differently."""
    return left.shape == right.shape and left.identities == right.identities


def join_bases(below: Records, left: Records, right: Records) -> Records:
    """Return the virtual base of a merge that has several: what they contest differs from everything."""
    return _Merge(below, left, right, is_base=True).run()


def merge_schemas(
    base: Records, ours: SchemaIR, theirs: SchemaIR, takes: Mapping[Key, Side] = MappingProxyType({})
) -> SchemaMerge:
    """Merge what two schemas changed since their base; new identities are numbered as ours are.

    `takes` has the side that settles a conflict, by the key of the conflict.
    """
    if is_same_schema(ours, theirs):
        return SchemaMerge(ours)
    merge = _Merge(base, records_of(ours), records_of(theirs), takes)
    merged = merge.run()
    if merge.conflicts:
        return SchemaMerge(None, tuple(merge.conflicts))
    shape, identities = _assemble(merged)
    next_identity_id = unused_identity(later_identity(ours.next_identity_id, theirs.next_identity_id), identities)
    return SchemaMerge(SchemaIR(ours.domain, next_identity_id, shape, identities))


class _Unknown:
    """A value that is not known, and so equals no other."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return False


class _Merge:
    """Merges records; in a base, what both sides changed becomes unknown instead of a conflict."""

    def __init__(
        self,
        base: Records,
        ours: Records,
        theirs: Records,
        takes: Mapping[Key, Side] = MappingProxyType({}),
        *,
        is_base: bool = False,
    ) -> None:
        self._ours, self._theirs = ours, theirs
        self._sides = (base, ours, theirs)
        self._takes = takes
        self._is_base = is_base
        self.conflicts: list[SchemaConflict] = []

    def run(self) -> dict[Key, Record]:
        """Return the merged records; anything that could not be merged is among the conflicts."""
        merged: dict[Key, Record] = {}
        for type_id in sorted({key[1] for side in self._sides for key in side}):
            merged |= self._merge_type(type_id)
        if self._is_base:
            return merged
        for conflict in list(_find_clashes(merged)) if self._takes else ():
            self._settle_clash(conflict, merged)
        for check in _CHECKS:
            self.conflicts += check(merged)
        return merged

    def _settle_clash(self, conflict: SchemaConflict, merged: dict[Key, Record]) -> None:
        """Leave out what the other side calls by the same name, with the constraints on it."""
        side = self._takes.get(conflict.key)
        if side is None:
            return
        kept = self._ours if side == "ours" else self._theirs
        name, part = merged[conflict.key]["name"], conflict.key[0]
        for key in [key for key, record in merged.items() if key[0] == part and record["name"] == name]:
            if key in kept or (part == "property" and key[1] != conflict.key[1]):
                continue
            for other in list(merged):
                is_of_type = part == "type" and other[1] == key[1]
                is_constraint = other[0] == "constraint" and other[1] == key[1] and key[-1] in other[3]
                if other == key or is_of_type or (part == "property" and is_constraint):
                    del merged[other]

    def _merge_type(self, type_id: int) -> dict[Key, Record]:
        base, ours, theirs = (
            {key: record for key, record in side.items() if key[1] == type_id} for side in self._sides
        )
        if base and not (ours and theirs):
            # One side, or both, dropped the type: the other must not have touched any part of it.
            dropper: Side
            kept, dropper, who = (ours, "theirs", ("they", "we")) if ours else (theirs, "ours", ("we", "they"))
            if not kept or kept == base or self._takes.get(_type_key(type_id)) == dropper:
                return {}
            self._report(kept, _type_key(type_id), f"{who[0]} dropped the type, {who[1]} changed it", (dropper,))
            return {key: {"": _Unknown()} for key in kept} if self._is_base else {}
        merged: dict[Key, Record] = {}
        for key in sorted({*base, *ours, *theirs}, key=repr):
            record = self._merge_record(key, base.get(key), ours.get(key), theirs.get(key))
            if record is not None:
                merged[key] = record
        return merged

    def _merge_record(self, key: Key, base: Record | None, ours: Record | None, theirs: Record | None) -> Record | None:
        if ours == theirs or theirs == base:
            return ours
        if ours == base:
            return theirs
        if ours is None or theirs is None:
            who = ("we", "they") if ours is None else ("they", "we")
            dropper: Side = "ours" if ours is None else "theirs"
            sides = (dropper,) if key[0] == "property" else BOTH_SIDES
            if (side := self._takes.get(key)) in sides:
                return ours if side == "ours" else theirs
            self._report_key(key, f"{who[0]} dropped it, {who[1]} changed it", sides)
            return {"": _Unknown()} if self._is_base else None
        merged: dict[str, Any] = {}
        for name in ours:
            before = None if base is None else base.get(name)
            merged[name] = self._merge_field(key, name, before, ours[name], theirs.get(name), base is not None)
        return merged

    def _merge_field(self, key: Key, name: str, base: Any, ours: Any, theirs: Any, has_base: bool) -> Any:
        if ours == theirs or (has_base and theirs == base):
            return ours
        if has_base and ours == base:
            return theirs
        if name == "type.enum_values" and has_base and None not in (base, ours, theirs):
            return _merge_enums(base, ours, theirs)
        if key in self._takes:
            return ours if self._takes[key] == "ours" else theirs
        label = _FIELD_LABELS.get(name, name.removeprefix("type."))
        self._report_key(key, f"both sides changed its {label}, to `{_text(ours)}` and `{_text(theirs)}`")
        return _Unknown() if self._is_base else ours

    def _report_key(self, key: Key, what: str, sides: tuple[Side, ...] = BOTH_SIDES) -> None:
        self._report(self._ours if key in self._ours else self._theirs, key, what, sides)

    def _report(self, records: Records, key: Key, what: str, sides: tuple[Side, ...]) -> None:
        if not self._is_base:
            self.conflicts.append(_conflict(records, key, what, sides))


_FIELD_LABELS: Final = {"type.enum_values": "values", "type.scalar": "type", "is_injected": "place of declaration"}


def _merge_enums(base: Sequence[str], ours: Sequence[str], theirs: Sequence[str]) -> tuple[str, ...]:
    removed = (set(base) - set(ours)) | (set(base) - set(theirs))
    return tuple(sorted((set(ours) | set(theirs)) - removed))


def _conflict(records: Records, key: Key, what: str, sides: tuple[Side, ...] = BOTH_SIDES) -> SchemaConflict:
    type_record = records[_type_key(key[1])]
    kind, name = type_record["kind"], type_record["name"]
    if key[0] == "property":
        property_name = records[key]["name"]
        return SchemaConflict(key, kind, name, property_name, f"`{name}.{property_name}`: {what}", sides)
    subject = f"`{name}`" if key[0] == "type" else f"`@{key[2]}` of `{name}`"
    return SchemaConflict(key, kind, name, None, f"{subject}: {what}", sides)


def _text(value: Any) -> str:
    if isinstance(value, frozenset):
        return ", ".join(sorted(map(_text, value)))
    return "nothing" if value is None else str(value)


def _type_key(type_id: int) -> Key:
    return ("type", type_id)


# -- checks of the merged records --------------------------------------------------------------------------------------


def _find_clashes(merged: Records) -> Iterator[SchemaConflict]:
    """Yield types and properties that are different things under one name, such as additions by both sides."""
    named: dict[tuple[Any, ...], Key] = {}
    for key, record in sorted(merged.items(), key=lambda item: repr(item[0])):
        if key[0] == "constraint":
            continue
        owner_and_name = (record["kind"], record["name"]) if key[0] == "type" else (key[1], record["name"])
        if owner_and_name in named:
            noun = "type" if key[0] == "type" else "property"
            yield _conflict(merged, key, f"each side has a {noun} of this name, and they are not the same; rename one")
        named[owner_and_name] = key


def _find_dangling(merged: Records) -> Iterator[SchemaConflict]:
    """Yield parts that refer to what the other side dropped."""
    for key, record in merged.items():
        missing = [target for target in _references(key, record) if target not in merged]
        if missing and _type_key(key[1]) in merged:
            what = "type" if missing[0][0] == "type" else "property"
            yield _conflict(merged, key, f"one side refers to a {what} that the other side dropped", ())


def _references(key: Key, record: Record) -> Iterator[Key]:
    if key[0] == "type":
        yield from (_type_key(type_id) for type_id in record.get("implements", ()))
        yield from (_type_key(record[end]) for end in ("source", "target") if end in record)
        return
    yield _type_key(key[1])
    columns = key[3] if key[0] == "constraint" else () if record["embed"] is None else record["embed"][:1]
    yield from (("property", key[1], column) for column in columns if isinstance(column, int))


_CHECKS: Final = (_find_clashes, _find_dangling)


# -- taking a schema apart ---------------------------------------------------------------------------------------------


def records_of(ir: SchemaIR) -> Records:
    """Return a schema as records, which is how the base of a merge is given."""
    records: dict[Key, Any] = {}
    for kind in KINDS:
        for name, shape in ir.types(kind).items():
            ids = ir.ids(kind)[name]
            records[_type_key(ids.type_id)] = _type_record(ir, kind, shape, ids)
            for item in shape.properties:
                records["property", ids.type_id, ids.property_ids[item.name]] = _property_record(item, ids)
            for constraint in shape.constraints:
                columns = frozenset(ids.property_ids.get(column, column) for column in constraint.columns)
                key = ("constraint", ids.type_id, constraint.kind, columns)
                others = records.get(key, {"bounds": frozenset()})["bounds"]
                records[key] = {"bounds": others | {tuple(getattr(constraint, name) for name in _BOUNDS)}}
    return records


def _type_record(ir: SchemaIR, kind: Kind, shape: TypeShape, ids: TypeIds) -> Record:
    record = {item.name: getattr(shape, item.name) for item in fields(shape)}
    del record["properties"]
    record.pop("constraints", None)
    record |= {"kind": kind, "incarnation_id": ids.incarnation_id}
    if isinstance(shape, NodeShape):
        record["implements"] = frozenset(ir.identities.interfaces[name].type_id for name in shape.implements)
    if isinstance(shape, EdgeShape):
        record |= {end: ir.identities.nodes[getattr(shape, end)].type_id for end in ("source", "target")}
    return record


def _property_record(item: PropertyShape, ids: TypeIds) -> Record:
    record = {field.name: getattr(item, field.name) for field in fields(item)}
    del record["type"], record["marks"]
    record |= {f"type.{field.name}": getattr(item.type, field.name) for field in fields(item.type)}
    # Each mark is there or not, so two sides that add different ones agree.
    record |= {f"@{mark}": mark in item.marks for mark in MARKS}
    if item.embed is not None:
        # An interface may embed a property that only its nodes have; there the name must do.
        record["embed"] = (ids.property_ids.get(item.embed.source, item.embed.source), item.embed.model)
    return record


# -- putting it together again -----------------------------------------------------------------------------------------


def _assemble(merged: Records) -> tuple[SchemaShape, Identities]:
    names = {key: record["name"] for key, record in merged.items() if key[0] != "constraint"}
    shapes: dict[Kind, list[Any]] = {kind: [] for kind in KINDS}
    ids: dict[Kind, dict[str, TypeIds]] = {kind: {} for kind in KINDS}
    for key, record in merged.items():
        if key[0] != "type":
            continue
        parts = {part: value for part, value in merged.items() if part[1] == key[1]}
        properties = {names[part]: part[2] for part in parts if part[0] == "property"}
        kind: Kind = record["kind"]
        shapes[kind].append(_type_shape(kind, record, parts, names))
        ids[kind][record["name"]] = TypeIds(key[1], record["incarnation_id"], dict(sorted(properties.items())))
    shape: Any = (tuple(sorted(shapes[kind], key=lambda item: item.name)) for kind in KINDS)
    return SchemaShape(*shape), Identities(*(dict(sorted(ids[kind].items())) for kind in KINDS))


def _type_shape(kind: Kind, record: Record, parts: Records, names: Mapping[Key, str]) -> Any:
    values = {name: value for name, value in record.items() if name not in ("kind", "incarnation_id")}
    if kind == "node":
        values["implements"] = tuple(sorted(names[_type_key(type_id)] for type_id in record["implements"]))
    if kind == "edge":
        values |= {end: names[_type_key(record[end])] for end in ("source", "target")}
    items = [_property_shape(key, part, names) for key, part in parts.items() if key[0] == "property"]
    values["properties"] = tuple(sorted(items, key=lambda item: item.name))
    if kind != "interface":
        values["constraints"] = tuple(sorted(_constraints(parts, names), key=lambda item: item.sort_key))
    return _SHAPES[kind](**values)


def _property_shape(key: Key, record: Record, names: Mapping[Key, str]) -> PropertyShape:
    plain = {name: value for name, value in record.items() if not name.startswith(("type.", "@"))}
    type_ = {name.removeprefix("type."): value for name, value in record.items() if name.startswith("type.")}
    marks = tuple(mark for mark in MARKS if record[f"@{mark}"])
    shape = PropertyShape(**{**plain, "embed": None}, type=PropertyType(**type_), marks=marks)
    if record["embed"] is None:
        return shape
    source, model = record["embed"]
    return replace(shape, embed=Embed(_column_name(key[1], source, names), model))


def _constraints(parts: Records, names: Mapping[Key, str]) -> Iterator[ConstraintShape]:
    for key, record in parts.items():
        if key[0] == "constraint":
            columns = tuple(sorted(_column_name(key[1], column, names) for column in key[3]))
            for bounds in record["bounds"]:
                yield ConstraintShape(key[2], columns, *bounds)


def _column_name(type_id: int, column: int | str, names: Mapping[Key, str]) -> str:
    # The ends of an edge have no identity.
    return names["property", type_id, column] if isinstance(column, int) else column
