"""Apply resolutions to a merge: conflicting rows and rule violations are replaced by what the caller decided.

A resolution that resolves no conflict is rejected, and so is a stale one, made for another state of the entity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.engine.changes.blob_values import BlobValues, literal_values
from omnigraph.engine.merge.conflicts import IMAGES, Resolution, image_of, refuse, reject_without_conflict
from omnigraph.engine.merge.row_merge import Clash, RowMerge
from omnigraph.lang.catalog import Scalar, Type, TypeKey
from omnigraph.lang.schema.arrow_schema import arrow_schema
from omnigraph.lang.schema.key_ids import key_ids
from omnigraph.public_values import ConflictKind
from omnigraph.rules.coerce import decode_column
from omnigraph.rules.delta import Violation, is_among, one_array, without

if TYPE_CHECKING:
    from omnigraph.engine.merge.three_way import ThreeWayState


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
    def has_open(self) -> bool:
        return bool(self._open)

    @property
    def open(self) -> tuple[Resolution, ...]:
        """The resolutions that have not been used yet."""
        return tuple(resolution for entity in self._open.values() for resolution in entity.values())

    def reject_unused(self) -> None:
        """Raise if a resolution was not used; the error names all unused ones."""
        reject_without_conflict(list(self._open))

    def reject_unknown_entities(self, three: ThreeWayState) -> None:
        """Raise if an open resolution names an entity that neither side has."""
        types = three.by_key
        reject_without_conflict(
            [
                (key, entity_id)
                for key, entity_id in self._open
                if key not in types or all(row is None for row in three.rows(types[key], entity_id))
            ]
        )

    def reject_irrelevant(
        self, three: ThreeWayState, is_touched: Callable[[str, str], bool], violations: Sequence[Violation]
    ) -> None:
        """Raise if an open resolution names an entity that the merge does not change and no rule violation names.

        `is_touched` returns True if a merge changes an entity, by type key and id.
        """
        self.reject_unknown_entities(three)
        named = {(violation.type_key, violation.entity_id) for violation in violations}
        reject_without_conflict(
            [
                (key, entity_id)
                for key, entity_id in self._open
                if (key, entity_id) not in named and not is_touched(key, entity_id)
            ]
        )

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

    def override(
        self, three: ThreeWayState, merges: Mapping[TypeKey, RowMerge], violations: Sequence[Violation]
    ) -> dict[TypeKey, RowMerge]:
        """Return merges with the unused resolutions applied to the entities that they name.

        They may name what a violation names, or any entity that the merge changes: the other end of the trouble.
        """
        named = {(violation.type_key, violation.entity_id) for violation in violations}
        changed = dict(merges)
        types = three.by_key
        # One round: the caller validates again, and reports what an override breaks.
        for (key, entity_id), decided in list(self._open.items()):
            merge = changed.get(key)
            is_touched = merge is not None and touches(merge, entity_id)
            if key not in types or not ((key, entity_id) in named or is_touched):
                continue
            resolution = decided.get(None)
            if resolution is None:
                raise refuse(f"`{entity_id}` of `{key}` breaks a rule as a whole; leave the `property` out")
            type_ = types[key]
            rows = three.rows(type_, entity_id)
            clash = Clash(ConflictKind.DELETE_VS_UPDATE, entity_id, (), *rows)
            self._reject_stale(key, clash, {None: resolution}, three.blobs)
            if merge is None:
                nothing = arrow_schema(type_).empty_table()
                merge = RowMerge(nothing, nothing, one_array(nothing.column("id")))
            changed[key] = put(merge, {entity_id: (rows[1], _decided_entity(type_, clash, resolution))})
            del self._open[key, entity_id]
        return changed

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
    # An upsert into the merge: first take the entities out of all three lists, then put each into the one that fits.
    ids = pa.array(list(states), pa.string())

    def others(rows: pa.Table) -> pa.Table:
        return rows.filter(pa.array(~is_among(one_array(rows.column("id")), ids)))

    inserted, updated, deleted = [others(merge.inserted)], [others(merge.updated)], [without(merge.deleted, ids)]
    for entity_id, (ours, row) in states.items():
        if row is None and ours is not None:
            deleted.append(pa.array([entity_id], pa.string()))
        elif row is not None and ours is None:
            inserted.append(row.cast(merge.inserted.schema))
        elif row is not None and image_of(row) != image_of(ours):
            updated.append(row.cast(merge.updated.schema))
    return RowMerge(
        pa.concat_tables(inserted).combine_chunks(),
        pa.concat_tables(updated).combine_chunks(),
        pa.concat_arrays(deleted),
        merge.clashes,
    )


def touches(merge: RowMerge, entity_id: str) -> bool:
    """Return True if a merge changes an entity of its type."""
    entity = pa.array([entity_id])
    ids = [one_array(merge.inserted.column("id")), one_array(merge.updated.column("id")), merge.deleted]
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
            row = _with(row, {name: _value(type_, str(name), resolution.payload)})
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
        row = row.set_column(row.schema.get_field_index(name), row.schema.field(name), column)
    return row


def _row(type_: Type, entity_id: str, property_values: Mapping[str, object]) -> pa.Table:
    schema = arrow_schema(type_)
    unknown = sorted(property_values.keys() - set(schema.names))
    if unknown:
        raise refuse(f"`{type_.name}` has no property `{unknown[0]}`", type_key=type_.table_key, entity_id=entity_id)
    if property_values.get("id", entity_id) != entity_id:
        raise refuse(f"the `row` for `{entity_id}` has another id", type_key=type_.table_key, entity_id=entity_id)
    values = {**property_values, "id": entity_id}
    columns = [_value(type_, name, values.get(name)) for name in schema.names]
    row = pa.Table.from_arrays(columns, schema=schema)
    if type_.key and key_ids(type_, row)[0].as_py() != entity_id:
        raise refuse(f"the `row` for `{entity_id}` has another key", type_key=type_.table_key, entity_id=entity_id)
    return row


def _value(type_: Type, name: str, value: object) -> Any:
    if name not in type_.properties:
        if not isinstance(value, str):
            raise refuse(f"`{name}` of `{type_.name}` is an id, which is a text")
        return pa.array([value], pa.string())
    property_type = type_.properties[name].type
    column, faults = decode_column([value], property_type)
    if faults:
        raise refuse(f"`{type_.name}.{name}` cannot be that: {faults[0].reason}", property=name)
    return literal_values(column) if property_type.scalar is Scalar.BLOB else column
