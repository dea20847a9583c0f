"""Merge conflicts in their public form, and resolutions applied to the rows and violations that they decide.

Pure. Images are JSON objects with the columns of the entity, formatted as in an export.

A resolution that resolves no conflict is rejected, and so is a stale one, made for another state of the entity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa

from omnigraph.engine.changes.blob_values import BlobValues, literal_values
from omnigraph.engine.exact_conversion import convert_rows
from omnigraph.engine.json_text import value_texts
from omnigraph.engine.merge.row_merge import Clash, RowMerge, ids_of, rows_without
from omnigraph.engine.merge.type_merge import TypeMerge
from omnigraph.errors import DataError, GraphError, MergeConflict, UsageError
from omnigraph.lang.catalog import Type, TypeKey
from omnigraph.lang.schema.arrow_schema import arrow_schema, key_ids
from omnigraph.lang.schema.merge import BOTH_SIDES, Side
from omnigraph.limits import FINDINGS_SHOWN_MAX, MERGE_CONFLICTS_SHOWN
from omnigraph.part_protocols import ResolutionsInput as ResolutionsInput
from omnigraph.public_values import Conflict, ConflictKind, Image
from omnigraph.rules.coerce import decode_column, shown
from omnigraph.rules.delta import Violation, is_among, one_array, without
from omnigraph.rules.validate import IndexedViolation

_KINDS: Final = {
    "E5": ConflictKind.UNIQUE_VIOLATION,
    "E6": ConflictKind.UNIQUE_VIOLATION,
    "E9": ConflictKind.ORPHAN_EDGE,
    "E10": ConflictKind.CARDINALITY_VIOLATION,
}


def conflict_of(type_key: TypeKey, clash: Clash, blobs: BlobValues) -> Conflict:
    """Return a clash as a conflict; `blobs` has the bytes of the blobs in its rows."""
    name = f"`{clash.entity_id}` of `{type_key.name}`"
    if clash.kind is ConflictKind.DELETE_VS_UPDATE:
        did, other = ("we deleted", "they changed") if clash.ours is None else ("they deleted", "we changed")
        message = f"{name}: {did} what {other}"
    elif clash.kind is ConflictKind.VALUE_CONSTRAINT_VIOLATION:
        values = [_describe_unfit(column, clash) for column in clash.columns]
        message = f"{name}: {'; '.join(values)}"
    else:
        did = "inserted" if clash.kind is ConflictKind.DIVERGENT_INSERT else "changed"
        columns = ", ".join(f"`{column}`" for column in clash.columns)
        message = f"{name}: both sides {did} it, with different {columns}"
    images = [image_of(blobs.with_bytes(row)) for row in (clash.base, clash.ours, clash.theirs)]
    return Conflict(type_key, clash.entity_id, clash.kind, message, clash.columns, *images)


def _describe_unfit(column: str, clash: Clash) -> str:
    theirs, ours = (
        None if row is None else one_array(row.column(column))[0].as_py() for row in (clash.theirs, clash.ours)
    )
    return f"their `{column}`, {shown(theirs)}, does not fit the type that it has here, where it is {shown(ours)}"


def conflict_from(violation: Violation, *images: Image | None) -> Conflict:
    kind = _KINDS.get(violation.rule, ConflictKind.VALUE_CONSTRAINT_VIOLATION)
    named = tuple(violation.property.split(", ")) if violation.property else ()
    assert violation.type_key is not None, "only violations of an input lack a type"
    return Conflict(violation.type_key, violation.entity_id, kind, violation.message, named, *images)


def image_of(row: pa.Table | None) -> Image | None:
    if row is None:
        return None
    return {name: orjson.loads(value_texts(one_array(row.column(name)))[0].as_py()) for name in row.column_names}


_RESOLVE: Final = "Resolve them with `resolutions`, or change one of the sides"


def conflict_error(
    conflicts: Sequence[Conflict], subject: str, *, is_cut: bool = False, advice: str = _RESOLVE
) -> MergeConflict:
    """Return the error of a merge with conflicts: a few in the message, all of them in its context."""
    messages = "; ".join(conflict.message for conflict in conflicts[:MERGE_CONFLICTS_SHOWN])
    more = len(conflicts) - MERGE_CONFLICTS_SHOWN
    count = f"{'at least ' if is_cut else ''}{len(conflicts)} conflict{'s' if len(conflicts) > 1 else ''}"
    return MergeConflict(
        f"{subject} has {count}, and nothing was changed: {messages}"
        f"{f'; and {more} more' if more > 0 else ''}. {advice}",
        conflicts=[conflict.to_json() for conflict in conflicts],
    )


_SCHEMA_KINDS: Final = (ConflictKind.DIVERGENT_SCHEMA, ConflictKind.DROP_VS_UPDATE)
_SIDES: Final = ("ours", "theirs", "base")
IMAGES: Final = ("base", "ours", "theirs")
_MEMBERS: Final = frozenset(
    {"type_key", "entity_id", "property", "take", "row", "value", "kind", "message", "properties", *IMAGES}
)


@dataclass(frozen=True, slots=True)
class Resolution:
    """One resolution. `images` are those that the caller saw, if passed back, to detect stale decisions."""

    type_key: TypeKey
    entity_id: str
    property: str | None
    take: str | None
    # What `take`, `row` or `value` holds.
    payload: object
    images: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class SchemaResolution:
    """The side to take for a conflict between schemas: about a property, or else the type itself."""

    type_key: TypeKey
    property_name: str | None
    take: Side

    @property
    def subject(self) -> str:
        name = self.type_key.name
        return name if self.property_name is None else f"{name}.{self.property_name}"


@dataclass(frozen=True, slots=True)
class Decisions:
    """All resolutions of a merge."""

    entities: tuple[Resolution, ...] = ()
    schema: tuple[SchemaResolution, ...] = ()


def read_resolutions(resolutions: ResolutionsInput) -> Decisions:
    """Return resolutions from a file of JSON or NDJSON, its bytes, or dictionaries."""
    parsed = [_parse(item, number) for number, item in enumerate(resolution_objects(resolutions), start=1)]
    return Decisions(
        tuple(item for item in parsed if isinstance(item, Resolution)),
        tuple(item for item in parsed if isinstance(item, SchemaResolution)),
    )


def resolution_objects(resolutions: ResolutionsInput) -> list[Any]:
    if resolutions is None:
        return []
    if isinstance(resolutions, str | Path):
        path = Path(resolutions)
        try:
            resolutions = path.read_bytes()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise UsageError(f"cannot read `{path}`: {reason}; check the path", path=str(path)) from error
    if not isinstance(resolutions, bytes):
        return list(resolutions)
    text = resolutions.strip()
    try:
        if text.startswith(b"["):
            objects: list[Any] = orjson.loads(text)
            return objects
        return [orjson.loads(line) for line in text.splitlines() if line.strip()]
    except orjson.JSONDecodeError as error:
        raise refuse(f"the resolutions are not valid JSON: {error}; expected an array or NDJSON") from error


def _parse_schema(value: Mapping[str, Any], where: str) -> SchemaResolution:
    named: Sequence[Any] = value.get("properties") or ()
    property_ = value.get("property", named[0] if len(named) == 1 else None)
    if value.get("take") not in BOTH_SIDES or "row" in value or "value" in value:
        raise refuse(f"{where} is about the schema, so it needs a `take` of `ours` or `theirs` and nothing else")
    if not isinstance(property_, str | None):
        raise refuse(f"{where} has a `property` that is not a name")
    return SchemaResolution(_type_key(value, where), property_, value["take"])


def _type_key(value: Mapping[str, Any], where: str) -> TypeKey:
    try:
        return TypeKey(value["type_key"])
    except ValueError as error:
        context = {"entity_id": value["entity_id"]} if isinstance(value.get("entity_id"), str) else {}
        raise refuse(f"{where}: {error}", type_key=value["type_key"], **context) from None


def _parse(value: Any, number: int) -> Resolution | SchemaResolution:
    where = f"resolution {number}"
    if not isinstance(value, Mapping):
        raise refuse(f"{where} is not an object")
    unknown = sorted(value.keys() - _MEMBERS)
    if unknown:
        raise refuse(f"{where} has the unknown member `{unknown[0]}`; it takes {', '.join(sorted(_MEMBERS))}")
    is_schema = value.get("entity_id", "") is None or ("entity_id" not in value and value.get("kind") in _SCHEMA_KINDS)
    for name in ("type_key",) if is_schema else ("type_key", "entity_id"):
        if not isinstance(value.get(name), str):
            raise refuse(f"{where} needs a `{name}`, as the conflict has it")
    if is_schema:
        return _parse_schema(value, where)
    key = _type_key(value, where)
    picks = [name for name in ("take", "row", "value") if name in value]
    if len(picks) != 1:
        raise refuse(f"{where} needs exactly one of `take`, `row` and `value`, and has {len(picks)}")
    property_ = value.get("property")
    if picks[0] == "take" and value["take"] not in _SIDES:
        raise refuse(f"{where} takes `{value['take']}`; it can take {', '.join(_SIDES)}")
    if picks[0] == "row" and (property_ is not None or not isinstance(value["row"], Mapping)):
        raise refuse(f"{where} has a `row` that is not an object; a row is the whole entity")
    if (picks[0] == "value") and property_ is None:
        raise refuse(f"{where} gives a `value`, but no `property` that it is for")
    images = {name: value[name] for name in IMAGES if name in value}
    take = value["take"] if picks[0] == "take" else None
    return Resolution(key, value["entity_id"], property_, take, value[picks[0]], images)


def refuse(message: str, **context: str) -> GraphError:
    error = GraphError(message, code="merge.resolution")
    error.context.update(context)
    return error


def reject_without_conflict(entities: Sequence[tuple[str, str]]) -> None:
    """Raise if there are resolutions that settle no conflict, given by type key and entity, and name them."""
    if not entities:
        return
    subjects = ", ".join(f"`{entity_id}` of `{key}`" for key, entity_id in entities[:FINDINGS_SHOWN_MAX])
    more = f" and {len(entities) - FINDINGS_SHOWN_MAX} more" if len(entities) > FINDINGS_SHOWN_MAX else ""
    error = refuse(
        f"there is no conflict about {subjects}{more}; repeat the dry run and leave the resolution out",
        type_key=entities[0][0],
        entity_id=entities[0][1],
    )
    error.context["resolutions"] = [{"type_key": key, "entity_id": entity_id} for key, entity_id in entities]
    raise error


EntityKey = tuple[TypeKey, str]
# How an entity is on our side, and how it shall be; None is absent.
State = tuple[pa.Table | None, pa.Table | None]


class Resolutions:
    """The resolutions of one merge. `open` ones have not resolved anything yet."""

    def __init__(self, resolutions: Sequence[Resolution] = ()) -> None:
        self._open: dict[EntityKey, dict[str | None, Resolution]] = {}
        for resolution in resolutions:
            entity = self._open.setdefault((resolution.type_key, resolution.entity_id), {})
            if resolution.property in entity or (entity and None in (resolution.property, *entity)):
                raise refuse(
                    f"`{resolution.entity_id}` of `{resolution.type_key}` is resolved twice; keep one resolution of it"
                )
            entity[resolution.property] = resolution

    @property
    def open(self) -> tuple[Resolution, ...]:
        """The resolutions that have not been used yet."""
        return tuple(resolution for entity in self._open.values() for resolution in entity.values())

    def reject_unused(self) -> None:
        """Raise if a resolution was not used; the error names all unused ones."""
        reject_without_conflict(list(self._open))

    def reject_irrelevant(
        self,
        exists: Callable[[TypeKey, str], bool],
        is_touched: Callable[[TypeKey, str], bool],
        violations: Sequence[IndexedViolation],
    ) -> None:
        """Raise if an open resolution names an entity that the merge does not change and no rule violation names.

        By type key and id, `exists` returns True if a state has an entity, and `is_touched` if the merge changes it.
        """
        reject_without_conflict([entity for entity in self._open if not exists(*entity)])
        named = {(violation.type_key, violation.entity_id) for _, violation in violations}
        reject_without_conflict([entity for entity in self._open if entity not in named and not is_touched(*entity)])

    def settle(self, type_: Type, merge: RowMerge, blobs: BlobValues) -> RowMerge:
        """Return a merge in which every clash that is decided has become a change, or none."""
        left: list[Clash] = []
        states: dict[str, State] = {}
        for clash in merge.clashes:
            # Popped, so what is left in `_open` resolved nothing, and is refused in the end.
            decided = self._open.pop((type_.table_key, clash.entity_id), None)
            if decided is None:
                left.append(clash)
                continue
            self._reject_stale(type_.table_key, clash, decided, blobs)
            undecided: tuple[str, ...] = ()
            state: pa.Table | None
            if None in decided:
                state = _decided_entity(type_, clash, decided[None])
            else:
                state, undecided = _by_property(type_, clash, decided)
            if undecided:
                left.append(replace(clash, columns=undecided, merged=state))
            else:
                states[clash.entity_id] = (clash.ours, state)
        return put(replace(merge, clashes=tuple(left)), states)

    def override(self, rows: TypeMerge, merge: RowMerge) -> RowMerge:
        """Return a merge with every resolution applied to its entity as a whole, because a rule is broken otherwise."""
        states: dict[str, State] = {}
        for (key, entity_id), decided in self._open.items():
            resolution = decided.get(None)
            if resolution is None:
                raise refuse(f"`{entity_id}` of `{key}` breaks a rule as a whole; leave the `property` out")
            clash = Clash(ConflictKind.DELETE_VS_UPDATE, entity_id, (), *rows.images_of(entity_id))
            self._reject_stale(key, clash, {None: resolution}, rows.blobs)
            states[entity_id] = (clash.ours, _decided_entity(rows.type, clash, resolution))
        return put(merge, states)

    @staticmethod
    def _reject_stale(
        type_key: TypeKey, clash: Clash, decided: Mapping[str | None, Resolution], blobs: BlobValues
    ) -> None:
        # Optimistic check: images that come back with a resolution must be those of the entity now.
        if not any(resolution.images for resolution in decided.values()):
            return
        rows = map(blobs.with_bytes, (clash.base, clash.ours, clash.theirs))
        images = dict(zip(IMAGES, map(image_of, rows), strict=True))
        for resolution in decided.values():
            stale = [name for name, image in resolution.images.items() if image != images[name]]
            if stale:
                raise refuse(
                    f"`{clash.entity_id}` of `{type_key}` has changed since it was resolved: `{stale[0]}` is not"
                    f" what the resolution says; repeat the dry run",
                    type_key=type_key,
                    entity_id=clash.entity_id,
                )


def put(merge: RowMerge, states: Mapping[str, State]) -> RowMerge:
    """Return a merge that leaves entities in the given states, overriding earlier decisions."""
    if not states:
        return merge
    # An upsert into the merge: first take the entities out of all three lists, then put each into the one that fits.
    ids = pa.array(list(states), pa.string())
    inserted, updated = [rows_without(merge.inserted, ids)], [rows_without(merge.updated, ids)]
    deleted = [without(merge.deleted, ids)]
    for entity_id, (ours, row) in states.items():
        if row is None and ours is not None:
            deleted.append(pa.array([entity_id], pa.string()))
        elif row is not None and ours is None:
            inserted.append(_fitting(row, merge.inserted.schema))
        elif row is not None and image_of(row) != image_of(ours):
            updated.append(_fitting(row, merge.updated.schema))
    return RowMerge(
        pa.concat_tables(inserted).combine_chunks(),
        pa.concat_tables(updated).combine_chunks(),
        pa.concat_arrays(deleted),
        merge.clashes,
    )


def _fitting(row: pa.Table, schema: pa.Schema) -> pa.Table:
    entity_id = ids_of(row)[0].as_py()
    try:
        return convert_rows(row, schema, entity_id)
    except DataError as error:
        raise refuse(f"{error.message}; take another side, or give the value", entity_id=entity_id) from error


def touches(merge: RowMerge, entity_id: str) -> bool:
    entity = pa.array([entity_id])
    ids = [ids_of(merge.inserted), ids_of(merge.updated), merge.deleted]
    return any(is_among(entity, changed).any() for changed in ids)


def _decided_entity(type_: Type, clash: Clash, resolution: Resolution) -> pa.Table | None:
    """Return the row that a whole-entity resolution decides on; None means absent."""
    if resolution.take is None:
        assert isinstance(resolution.payload, Mapping)
        return _row(type_, clash.entity_id, resolution.payload)
    side = _side(clash, resolution.take)
    if side is None:
        return None
    if clash.merged is None:
        _reject_undetermined(clash, side, arrow_schema(type_).names)
        return side
    _reject_undetermined(clash, side, clash.columns)
    # Properties without a conflict keep their merged value; the others take the chosen side.
    return _with(clash.merged, {name: one_array(side.column(name)) for name in clash.columns})


def _by_property(
    type_: Type, clash: Clash, decided: Mapping[str | None, Resolution]
) -> tuple[pa.Table, tuple[str, ...]]:
    """Return an entity with the decided properties in it, and the columns that are still undecided."""
    row = clash.merged
    for name, resolution in decided.items():
        if row is None or name not in clash.columns:
            raise refuse(
                f"`{name}` of `{clash.entity_id}` has no conflict; leave the resolution out",
                type_key=type_.table_key,
                entity_id=clash.entity_id,
            )
        columns = ("src", "dst") if name in ("src", "dst") else (name,)
        if resolution.take is None:
            row = _with(row, {name: _decode_value(type_, str(name), resolution.payload)})
            continue
        side = _side(clash, resolution.take)
        if side is None:
            raise refuse(f"`{clash.entity_id}` has no `{resolution.take}` that `{name}` could be taken from")
        _reject_undetermined(clash, side, columns)
        row = _with(row, {column: one_array(side.column(column)) for column in columns})
    assert row is not None
    resolved = {"src", "dst"} if {"src", "dst"} & decided.keys() else set[str]()
    return row, tuple(name for name in clash.columns if name not in {*decided, *resolved})


def _side(clash: Clash, name: str) -> pa.Table | None:
    return {"ours": clash.ours, "theirs": clash.theirs, "base": clash.base}[name]


def _reject_undetermined(clash: Clash, side: pa.Table, columns: Sequence[str]) -> None:
    """Raise if a resolution takes a value from a virtual base whose ancestors disagree about it."""
    missing = sorted(set(columns) - set(side.column_names))
    if missing:
        raise refuse(
            f"`{clash.entity_id}` has no base to take `{missing[0]}` from: the histories cross, and the commits that"
            " both sides have in common disagree about it; take `ours` or `theirs`, or give the value",
            entity_id=clash.entity_id,
            property=missing[0],
        )


def _with(row: pa.Table, columns: Mapping[str, Any]) -> pa.Table:
    for name, column in columns.items():
        index = row.schema.get_field_index(name)
        # Whether the value fits is checked when all are decided.
        row = row.set_column(index, row.schema.field(index).with_type(column.type), column)
    return row


def _row(type_: Type, entity_id: str, property_values: Mapping[str, object]) -> pa.Table:
    schema, entity = arrow_schema(type_), {"type_key": type_.table_key, "entity_id": entity_id}
    unknown = sorted(property_values.keys() - set(schema.names))
    if unknown:
        raise refuse(f"`{type_.name}` has no property `{unknown[0]}`", **entity)
    if property_values.get("id", entity_id) != entity_id:
        raise refuse(f"the `row` for `{entity_id}` has another id", **entity)
    values = {**property_values, "id": entity_id}
    columns = [_decode_value(type_, name, values.get(name)) for name in schema.names]
    row = pa.Table.from_arrays(columns, schema=schema)
    if type_.key and key_ids(type_, row)[0].as_py() != entity_id:
        raise refuse(f"the `row` for `{entity_id}` has another key", **entity)
    return row


def _decode_value(type_: Type, name: str, value: object) -> Any:
    if name not in type_.properties:
        if not isinstance(value, str):
            raise refuse(f"`{name}` of `{type_.name}` is an id, which is a text")
        return pa.array([value], pa.string())
    property_type = type_.properties[name].type
    column, faults = decode_column([value], property_type)
    if faults:
        raise refuse(f"`{type_.name}.{name}` cannot be that: {faults[0].reason}", property=name)
    return literal_values(column) if property_type.is_blob else column
