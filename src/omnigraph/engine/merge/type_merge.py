"""The rows of one type in the states of a merge, and their three-way merge: all of them, or those of a range of ids.

Reads versions by their refs alone, so that it runs in tasks. States of different schemas are read under the merged one,
compared in the widest types that any of them stores, and narrowed to those of the merged schema.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.engine.changes.blob_values import BlobValues
from omnigraph.engine.changes.row_diff import RowChanges, StoredRows, compare, logical_form, read_moved_rows, read_rows
from omnigraph.engine.exact_conversion import convert_rows, find_inexact
from omnigraph.engine.merge.ancestry import Image, MergeBase, build_image, difference, images, merge_from_virtual
from omnigraph.engine.merge.row_merge import (
    NOTHING_UNKNOWN,
    Clash,
    RowMerge,
    Unknown,
    as_merge,
    ids_of,
    merge_rows,
    rows_without,
)
from omnigraph.lang.catalog import Type
from omnigraph.lang.schema.arrow_schema import arrow_schema
from omnigraph.public_values import ConflictKind
from omnigraph.rules.arrow_typing import pc
from omnigraph.store.lance_schema import physical_schema
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.read.lookup import ROW_ID, find

if TYPE_CHECKING:
    from omnigraph.engine.merge.moves import TaskMoves

OpenDataset: TypeAlias = Callable[[DatasetRef], Dataset]
# Rows of the base and of another version that may differ.
MovedRows: TypeAlias = tuple[StoredRows, StoredRows]
# An entity in the base, on our side and on theirs, as one-row tables; None where it is absent.
Images: TypeAlias = tuple[pa.Table | None, pa.Table | None, pa.Table | None]


@dataclass(frozen=True, slots=True)
class TypeVersions:
    """The versions of one type in a merge. `widest` are the columns to compare; None if all have one schema."""

    base: MergeBase[DatasetRef]
    ours: DatasetRef
    theirs: DatasetRef
    widest: pa.Schema | None = None

    @property
    def is_ours_unchanged(self) -> bool:
        return not self.base.is_virtual and self.ours == self.base.first

    @property
    def moved(self) -> list[DatasetRef]:
        """The versions that rows may have moved to from the first one of the base, each once."""
        versions = dict.fromkeys([self.theirs, self.ours, *self.base.states()])
        return [ref for ref in versions if ref != self.base.first]


@dataclass(slots=True)
class TypeMerge:
    """Merges rows of one type; `blobs` has the bytes of the blobs in its results."""

    open: OpenDataset
    type: Type
    versions: TypeVersions
    blobs: BlobValues = field(default_factory=BlobValues)

    def merge(self, moves: TaskMoves) -> RowMerge:
        """Merge the rows that may have moved; the result has the types of the merged schema."""
        merge = self._merge_from_virtual(moves) if self.versions.base.is_virtual else self._merge_from_state(moves)
        return merge if self.versions.widest is None else self._narrow(merge)

    def _merge_from_state(self, moves: TaskMoves) -> RowMerge:
        old, new = moves.rows(self.versions.theirs)
        theirs = self._changes(old, new)
        # Our side has nothing that could conflict, so their change is the merge.
        if self.versions.is_ours_unchanged:
            return as_merge(*self.blobs.unified([theirs]))
        # What our side alone has changed stays as it is, so it is not read, and need not fit any other type either.
        touched = pa.concat_arrays([ids_of(rows) for rows in (theirs.inserted, theirs.deleted, theirs.before)])
        ours = self._changes(*moves.rows_among(self.versions.ours, old, touched))
        ours, theirs = self.blobs.unified([ours, theirs])
        return merge_rows(self.type, ours, theirs)

    def _merge_from_virtual(self, moves: TaskMoves) -> RowMerge:
        """Merge from a virtual base: the cost follows what differs between all states of it."""
        image, rows_of = self._virtual_base(moves.rows)
        return merge_from_virtual(self.type, image, rows_of(self.versions.ours), rows_of(self.versions.theirs))

    def our_changes(self) -> tuple[RowChanges, Unknown]:
        """Return what our side changed since the base, and what is undetermined there, which counts as changed."""
        base, ours = self.versions.base, self.versions.ours
        if not base.is_virtual:
            return self._changes(*self._read_moved_rows(ours)), NOTHING_UNKNOWN
        image, rows_of = self._virtual_base(self._read_moved_rows)
        return difference(self.type, image, Image(rows_of(ours))), image.unknown

    def _read_moved_rows(self, ref: DatasetRef) -> MovedRows:
        return read_moved_rows(self.open(self.versions.base.first), self.open(ref))

    def _virtual_base(self, read: Callable[[DatasetRef], MovedRows]) -> tuple[Image, Callable[[DatasetRef], pa.Table]]:
        """Return a virtual base, and the rows of each version, of the entities that are not equal everywhere."""
        # Differences against one reference are enough: an entity that none of them names is equal in all states.
        deltas = {ref: self._changes(*read(ref)) for ref in self.versions.moved}
        old, rows = images(dict(zip(deltas, self.blobs.unified(list(deltas.values())), strict=True)))

        def rows_of(ref: DatasetRef) -> pa.Table:
            return rows.get(ref, old)

        return build_image(self.type, self.versions.base, rows_of), rows_of

    def _changes(self, old: StoredRows, new: StoredRows) -> RowChanges:
        changes, widest = compare(old, new, self.blobs), self.versions.widest
        return changes if widest is None else changes.map(lambda rows: convert_rows(rows, widest, self.type.name))

    def images_of(self, entity_id: str) -> Images:
        image = build_image(self.type, self.versions.base, lambda ref: self._row(ref, entity_id))
        sides = [self._row(ref, entity_id) for ref in (self.versions.ours, self.versions.theirs)]
        base, ours, theirs = (rows if rows.num_rows else None for rows in (image.unknown.known_of(image.rows), *sides))
        return base, ours, theirs

    def _row(self, ref: DatasetRef, entity_id: str) -> pa.Table:
        """Return an entity as a table of one row or none."""
        dataset, widest = self.open(ref), self.versions.widest
        row = self._images(read_rows(dataset, find(dataset, pa.array([entity_id])).column(ROW_ID).to_numpy()))
        return row if widest is None else convert_rows(row, widest, self.type.name)

    def our_rows(self, rows: StoredRows) -> pa.Table:
        """Return whole rows of our side, with the types of the merged schema."""
        return convert_rows(self._images(rows), merged_columns(self.type), self.type.name)

    def _images(self, rows: StoredRows) -> pa.Table:
        return compare(read_rows(rows.dataset, np.zeros(0, np.uint64)), rows, self.blobs).inserted

    def _narrow(self, merge: RowMerge) -> RowMerge:
        """Return a merge with the types of the merged schema; a row with a value that does not fit is a conflict."""
        schema = merged_columns(self.type)
        unfit: dict[str, list[str]] = {}
        for rows in (merge.inserted, merge.updated):
            for column in schema:
                for row in np.flatnonzero(find_inexact(rows.column(column.name), column.type)).tolist():
                    unfit.setdefault(str(rows.column("id")[row]), []).append(column.name)
        unfit_ids = pa.array(list(unfit), pa.string())
        inserted, updated = (
            convert_rows(rows_without(rows, unfit_ids), schema, self.type.name)
            for rows in (merge.inserted, merge.updated)
        )
        clashes = [*merge.clashes, *(self._unfit(merge, entity_id, tuple(unfit[entity_id])) for entity_id in unfit)]
        clashes.sort(key=lambda clash: clash.entity_id)
        return RowMerge(inserted, updated, merge.deleted, tuple(clashes))

    def _unfit(self, merge: RowMerge, entity_id: str, columns: tuple[str, ...]) -> Clash:
        """Return the conflict of an entity with values that the merged schema cannot hold exactly."""
        base, ours, theirs = self.images_of(entity_id)
        schema, merged = merged_columns(self.type), None
        if ours is not None:
            ours = convert_rows(ours, schema, self.type.name)
            # An entity that our side has is updated, never inserted.
            row = merge.updated.filter(pc.equal(merge.updated.column("id"), entity_id))
            values = [(ours if name in columns else row).column(name) for name in schema.names]
            merged = convert_rows(pa.Table.from_arrays(values, names=schema.names), schema, self.type.name)
        return Clash(ConflictKind.VALUE_CONSTRAINT_VIOLATION, entity_id, columns, base, ours, theirs, merged)


def merged_columns(type_: Type) -> pa.Schema:
    """Return the columns of a type as the merged schema has them; states of other schemas store others."""
    stored = logical_form(physical_schema(arrow_schema(type_)))
    return pa.schema([column.with_nullable(True) for column in stored])
