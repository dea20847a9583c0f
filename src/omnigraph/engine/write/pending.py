"""Uncommitted rows of a mutation, in memory; they shadow committed rows by id.

Statements see committed and pending rows as one table. Nothing here is durable.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa

from omnigraph.engine.entity_lookup import blob_properties
from omnigraph.engine.write.committed_rows import ColumnTest, CommittedRows
from omnigraph.engine.write.staging import check_size
from omnigraph.lang.catalog import EdgeType, NodeType, PropertyType, Scalar
from omnigraph.lang.schema.arrow_schema import arrow_schema
from omnigraph.rules.coerce import from_fitted
from omnigraph.rules.delta import NO_IDS, Delta, Ids, Intent, is_among, last_of_each, one_array, without

_TEXT = PropertyType(Scalar.STRING)


class PendingType:
    """The pending rows and deleted ids of one type."""

    def __init__(self, type_: NodeType | EdgeType, committed: CommittedRows) -> None:
        self.type = type_
        self.deleted: Ids = NO_IDS
        self.has_updates = False
        # By column, the ids of pending rows that keep the blob of the committed row.
        self._kept_blob_ids: dict[str, Ids] = dict.fromkeys(blob_properties(type_), NO_IDS)
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
            added = self._table(self._inserted)
            self._inserted = []
            ids = one_array(added.column("id"))
            self._kept_blob_ids = {name: without(blob_ids, ids) for name, blob_ids in self._kept_blob_ids.items()}
            self._put(added)
        return self._rows

    def matching(self, test: ColumnTest, lookup: ColumnTest) -> pa.Table:
        """Return the current rows that pass a test: pending ones, and committed ones that are not shadowed.

        Bytes of committed blobs are not read; the rows hold empty ones. `lookup` is a test implied by `test` for
        committed rows that can use an index.
        """
        pending = self.rows()
        tables = [pending.filter(pa.array(test.mask(pending)))]
        if not test.is_never:
            shadowed = pa.concat_arrays([one_array(pending.column("id")), self.deleted])
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
        shadowed = pa.concat_arrays([one_array(pending.column("id")), self.deleted])
        committed = self._committed.rows_of(self.type, without(ids, shadowed))
        check_size(self.type, committed.num_rows, committed.nbytes)
        uncommitted = pending.filter(pa.array(is_among(one_array(pending.column("id")), ids)))
        return pa.concat_tables([uncommitted, committed]).combine_chunks()

    def insert_rows(self, ids: Ids, columns: Mapping[str, Any]) -> None:
        """Add rows by column; columns that are missing are null."""
        check_size(self.type, len(ids), sum(column.nbytes for column in columns.values()))
        arrays = [
            ids if field.name == "id" else columns.get(field.name, pa.nulls(len(ids), field.type))
            for field in self._schema
        ]
        self.rows()
        self._kept_blob_ids = {name: without(blob_ids, ids) for name, blob_ids in self._kept_blob_ids.items()}
        self._put(pa.Table.from_arrays(arrays, schema=self._schema))

    def update(self, rows: pa.Table, values: dict[str, Any]) -> None:
        """Put constants into columns of rows that `matching` gave, and keep the result."""
        constants = {name: from_fitted([value] * rows.num_rows, self._type_of(name)) for name, value in values.items()}
        self.update_columns(rows, constants)

    def update_columns(self, rows: pa.Table, values: Mapping[str, Any]) -> None:
        """Replace columns of rows that `matching` or `current` gave, and keep the result."""
        for name, column in values.items():
            rows = rows.set_column(rows.schema.get_field_index(name), self._schema.field(name), column)
        self.has_updates = True
        self._keep_blobs(one_array(rows.column("id")), values)
        self._put(rows)

    def _keep_blobs(self, ids: Ids, changed: Collection[str]) -> None:
        """Record that updated rows keep their unchanged blobs; blobs of pending rows are part of the rows."""
        committed = without(ids, one_array(self._rows.column("id")))
        for name, blob_ids in self._kept_blob_ids.items():
            self._kept_blob_ids[name] = (
                without(blob_ids, ids) if name in changed else pa.concat_arrays([blob_ids, committed])
            )

    def ids_matching(self, lookup: ColumnTest) -> Ids:
        """Return the ids to delete; rule D2 excludes pending rows."""
        if lookup.is_never:
            return NO_IDS
        return without(self._committed.ids_passing(self.type, lookup), self.deleted)

    def delete(self, ids: Ids) -> int:
        """Delete ids; return how many were still present."""
        ids = without(ids, self.deleted)
        self.deleted = pa.concat_arrays([self.deleted, ids])
        return len(ids)

    def delta(self) -> Delta:
        """Return the pending changes as a delta for the rules."""
        rows = self.rows()
        check_size(self.type, rows.num_rows, rows.nbytes)
        is_keyed = bool(self.type.key)
        is_strict = not is_keyed and not self.has_updates and len(self.deleted) == 0
        intent = Intent.INSERT if is_strict else Intent.UPSERT
        return Delta(
            self.type,
            rows,
            intent,
            self.deleted,
            kept={name: ids for name, ids in self._kept_blob_ids.items() if len(ids)},
        )

    def _put(self, rows: pa.Table) -> None:
        both = pa.concat_tables([self._rows, rows]).combine_chunks()
        last = last_of_each(one_array(both.column("id")))
        self._rows = both if len(last) == both.num_rows else both.take(last)

    def _table(self, rows: list[dict[str, Any]]) -> pa.Table:
        columns = []
        for field in self._schema:
            values = [row.get(field.name) for row in rows]
            columns.append(from_fitted(values, self._type_of(field.name)))
        # Nulls in required columns are for the rules to find, so the schema is not enforced here.
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _type_of(self, column: str) -> PropertyType:
        item = self.type.properties.get(column)
        return item.type if item else _TEXT


def incident_ids(committed: CommittedRows, edge: EdgeType, column: str, nodes: Ids) -> Ids:
    """Return the ids of committed edges with one of the nodes at one endpoint."""
    edges = committed.matching(edge.table_key, ("id", column), {column: nodes})
    return one_array(edges.column("id"))
