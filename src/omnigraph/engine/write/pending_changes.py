"""The pending rows and deleted ids of a write, by type, over the committed rows of a snapshot.

Vectorised; nothing here is durable. The rules check what `PendingChanges.changes` returns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa

from omnigraph.engine.entity_lookup import blob_properties
from omnigraph.engine.session import View
from omnigraph.engine.write.committed_rows import ColumnTest, CommittedRows
from omnigraph.engine.write.staging import check_size
from omnigraph.lang.catalog import TEXT, EdgeType, PropertyType, Type, TypeKey
from omnigraph.lang.schema.arrow_schema import arrow_schema
from omnigraph.limits import RENAMED_EDGE_BYTES_MAX, RENAMED_EDGES_MAX
from omnigraph.rules.arrow_typing import Column
from omnigraph.rules.coerce import from_fitted
from omnigraph.rules.delta import (
    NO_IDS,
    Changes,
    Delta,
    Ids,
    Intent,
    is_among,
    last_of_each,
    one_array,
    translate,
    without,
)


class PendingType:
    """The pending rows and deleted ids of one type."""

    def __init__(self, type_: Type, committed: CommittedRows) -> None:
        self.type = type_
        self.deleted: Ids = NO_IDS
        self.has_updates = False
        self._is_repointed = False
        # By column, the ids of pending rows that keep the blob of the committed row.
        self._kept_blob_ids: dict[str, Ids] = dict.fromkeys(blob_properties(type_), NO_IDS)
        # Ids of renamed pending rows, beside the committed ids of the rows whose blobs they keep.
        self._renamed: tuple[Ids, Ids] = (NO_IDS, NO_IDS)
        self._committed = committed
        self._schema = arrow_schema(type_)
        self._rows = self._schema.empty_table()
        self._inserted: list[dict[str, Any]] = []

    @property
    def is_touched(self) -> bool:
        return bool(self._inserted) or self._rows.num_rows > 0 or len(self.deleted) > 0

    def insert(self, values: dict[str, Any]) -> None:
        """Add a row of converted values; a later row with the same id replaces it."""
        self._inserted.append(values)

    def rows(self) -> pa.Table:
        """Return the pending rows, the last of each id."""
        if self._inserted:
            added, self._inserted = self._table(self._inserted), []
            self._put_with_blobs(added)
        return self._rows

    def matching(self, test: ColumnTest, lookup: ColumnTest) -> pa.Table:
        """Return the current rows that pass a test: pending ones, and committed ones that are not shadowed.

        Bytes of committed blobs are not read; the rows hold empty ones. `lookup` is a test implied by `test` for
        committed rows that can use an index.
        """
        pending = self.rows()
        tables = [pending.filter(pa.array(test.mask(pending)))]
        if not test.is_never:
            shadowed = self._shadowed()
            count, size = tables[0].num_rows, tables[0].nbytes
            for rows in self._committed.rows(self.type, lookup):
                rows = rows.filter(pa.array(~is_among(one_array(rows.column("id")), shadowed)))
                count, size = count + rows.num_rows, size + rows.nbytes
                check_size(self.type, count, size)
                tables.append(rows)
        return pa.concat_tables(tables).combine_chunks()

    def current(self, ids: Ids) -> pa.Table:
        """Return the current rows of ids: pending ones, and committed ones that are not shadowed."""
        pending = self.rows()
        committed = self._committed.rows_of(self.type, without(ids, self._shadowed()))
        check_size(self.type, committed.num_rows, committed.nbytes)
        uncommitted = pending.filter(pa.array(is_among(one_array(pending.column("id")), ids)))
        return pa.concat_tables([uncommitted, committed]).combine_chunks()

    def _shadowed(self) -> Ids:
        """Return the ids whose committed rows are replaced or deleted."""
        return pa.concat_arrays([one_array(self.rows().column("id")), self.deleted])

    def insert_rows(self, ids: Ids, columns: Mapping[str, Any]) -> None:
        """Add rows by column; columns that are missing are null."""
        check_size(self.type, len(ids), sum(column.nbytes for column in columns.values()))
        arrays = [
            ids if field.name == "id" else columns.get(field.name, pa.nulls(len(ids), field.type))
            for field in self._schema
        ]
        self.rows()
        self._put_with_blobs(pa.Table.from_arrays(arrays, schema=self._schema))

    def update(self, rows: pa.Table, values: dict[str, Any]) -> None:
        """Put constants into columns of rows that `matching` gave, and keep the result."""
        self.update_columns(rows, self.constant_columns(rows, values))

    def constant_columns(self, rows: pa.Table, values: Mapping[str, Any]) -> dict[str, Column]:
        """Return a column for each constant, as long as the rows."""
        return {name: from_fitted([value] * rows.num_rows, self._type_of(name)) for name, value in values.items()}

    def update_columns(self, rows: pa.Table, values: Mapping[str, Any]) -> None:
        """Replace columns of rows that `matching` or `current` gave, and keep the result."""
        self.has_updates = True
        self._keep_blobs(one_array(rows.column("id")), values)
        self._put(self.with_columns(rows, values))

    def with_columns(self, rows: pa.Table, values: Mapping[str, Any]) -> pa.Table:
        """Return rows with other values in columns."""
        for name, column in values.items():
            rows = rows.set_column(rows.schema.get_field_index(name), self._schema.field(name), column)
        return rows

    def rename(self, rows: pa.Table, old: Ids, changed: Collection[str]) -> None:
        """Put rows with other ids in the place of the current rows of `old`; all ids of either kind are distinct.

        They keep the blobs of columns that are not `changed`.
        """
        new = one_array(rows.column("id"))
        uncommitted = is_among(old, one_array(self.rows().column("id")))
        kept: dict[str, Ids] = {}
        for name, blob_ids in self._kept_blob_ids.items():
            keeps = (is_among(old, blob_ids) | ~uncommitted) & (name not in changed)
            kept[name] = pa.concat_arrays([without(blob_ids, old), new.filter(pa.array(keeps))])
        origins = translate(old, *self._renamed)
        is_other = pa.array(~is_among(self._renamed[0], pa.concat_arrays([old, new])))
        self._renamed = (
            pa.concat_arrays([self._renamed[0].filter(is_other), new]),
            pa.concat_arrays([self._renamed[1].filter(is_other), origins]),
        )
        self.has_updates = True
        self.delete(old)
        self._put(rows)
        self._kept_blob_ids = kept

    def incident(self, columns: Collection[str], nodes: Ids) -> pa.Table:
        """Return the current edges that have one of the nodes at an end, each once, and allow for many of them."""
        self._is_repointed = True
        pending, shadowed = self.rows(), self._shadowed()
        tables = []
        for column in columns:
            tables.append(pending.filter(pa.array(is_among(one_array(pending.column(column)), nodes))))
            rows = self._committed.rows_where(self.type, {column: nodes})
            tables.append(rows.filter(pa.array(~is_among(one_array(rows.column("id")), shadowed))))
        edges = pa.concat_tables(tables).combine_chunks()
        self._check_size(edges)
        # An edge from a node to itself is found at both ends.
        return edges.take(last_of_each(one_array(edges.column("id"))))

    def _check_size(self, rows: pa.Table) -> None:
        if self._is_repointed:
            check_size(self.type, rows.num_rows, rows.nbytes, RENAMED_EDGES_MAX, RENAMED_EDGE_BYTES_MAX)
        else:
            check_size(self.type, rows.num_rows, rows.nbytes)

    def _keep_blobs(self, ids: Ids, changed: Collection[str]) -> None:
        """Record that updated rows keep their unchanged blobs; blobs of pending rows are part of the rows."""
        committed = without(ids, one_array(self._rows.column("id")))
        for name, blob_ids in self._kept_blob_ids.items():
            self._kept_blob_ids[name] = (
                without(blob_ids, ids) if name in changed else pa.concat_arrays([blob_ids, committed])
            )

    def ids_matching(self, lookup: ColumnTest) -> Ids:
        """Return the ids of the current rows that pass a test, pending and committed ones."""
        if lookup.is_never:
            return NO_IDS
        pending = self.rows()
        passing = one_array(pending.filter(pa.array(lookup.mask(pending))).column("id"))
        committed = self.unshadowed(self._committed.ids_passing(self.type, lookup))
        return pa.concat_arrays([passing, committed])

    def unshadowed(self, ids: Ids) -> Ids:
        """Return the ids whose committed rows are current: neither replaced nor deleted."""
        return without(ids, self._shadowed())

    def pending_where(self, column: str, values: Ids) -> Ids:
        """Return the ids of pending rows with one of the values."""
        pending = self.rows()
        return one_array(pending.filter(pa.array(is_among(one_array(pending.column(column)), values))).column("id"))

    def delete(self, ids: Ids) -> int:
        """Delete ids of current rows; return how many were still present."""
        ids = without(ids, self.deleted)
        pending = self.rows()
        is_deleted = is_among(one_array(pending.column("id")), ids)
        if is_deleted.any():
            # What was inserted by this write is gone without a trace; only committed rows have to be deleted.
            dropped = one_array(pending.column("id")).filter(pa.array(is_deleted))
            self._rows = pending.filter(pa.array(~is_deleted)).combine_chunks()
            self._kept_blob_ids = {name: without(kept, dropped) for name, kept in self._kept_blob_ids.items()}
            existing = self._committed.existing(self.type.table_key, dropped)
            self.deleted = pa.concat_arrays([self.deleted, without(ids, dropped), existing])
        else:
            self.deleted = pa.concat_arrays([self.deleted, ids])
        return len(ids)

    def delta(self) -> Delta:
        """Return the pending changes as a delta for the rules."""
        rows = self.rows()
        self._check_size(rows)
        is_strict = not self.type.key and not self.has_updates and len(self.deleted) == 0
        kept = {name: ids for name, ids in self._kept_blob_ids.items() if len(ids)}
        intent = Intent.INSERT if is_strict else Intent.UPSERT
        return Delta(self.type, rows, intent, self.deleted, kept=kept, renamed=self._renamed)

    def _put_with_blobs(self, rows: pa.Table) -> None:
        """Put rows that bring their own blobs, instead of keeping committed ones."""
        ids = one_array(rows.column("id"))
        self._kept_blob_ids = {name: without(blob_ids, ids) for name, blob_ids in self._kept_blob_ids.items()}
        self._put(rows)

    def _put(self, rows: pa.Table) -> None:
        # A row that comes again after it was deleted replaces the committed one.
        self.deleted = without(self.deleted, one_array(rows.column("id")))
        both = pa.concat_tables([self._rows, rows]).combine_chunks()
        last = last_of_each(one_array(both.column("id")))
        self._rows = both if len(last) == both.num_rows else both.take(last)

    def _table(self, rows: list[dict[str, Any]]) -> pa.Table:
        names = self._schema.names
        columns = [from_fitted([row.get(name) for row in rows], self._type_of(name)) for name in names]
        # Nulls in required columns are for the rules to find, so the schema is not enforced here.
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _type_of(self, column: str) -> PropertyType:
        item = self.type.properties.get(column)
        return item.type if item else TEXT


class PendingChanges:
    """The pending rows and deleted ids of a write, by type."""

    def __init__(self, view: View) -> None:
        self.committed = CommittedRows(view)
        self._by_type: dict[TypeKey, PendingType] = {}

    def of(self, type_: Type) -> PendingType:
        """Return what is pending of a type."""
        if type_.table_key not in self._by_type:
            self._by_type[type_.table_key] = PendingType(type_, self.committed)
        return self._by_type[type_.table_key]

    def delete_incident(self, edge: EdgeType, node: str, ids: Ids) -> int:
        """Delete the edges of a type that have one of the nodes at an end; return how many there were."""
        deleted = 0
        for column, end in edge.ends.items():
            if end == node:
                edges = self.committed.matching(edge.table_key, ("id", column), {column: ids})
                pending = self.of(edge)
                current = [pending.unshadowed(one_array(edges.column("id"))), pending.pending_where(column, ids)]
                deleted += pending.delete(pa.concat_arrays(current))
        return deleted

    def changes(self) -> Changes:
        """Return the changes of all types that are touched, as the rules check them."""
        touched = sorted((key, pending) for key, pending in self._by_type.items() if pending.is_touched)
        return Changes(self.committed.view.catalog, {key: pending.delta() for key, pending in touched})
