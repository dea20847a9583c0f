"""Pending rows: what the statements of one write have done so far, in memory, shadowing what is committed by id.

Reads see committed rows and pending ones as one; nothing here is durable.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa

from omnigraph.engine.write.committed_rows import ColumnTest, CommittedRows
from omnigraph.engine.write.staging import check_size
from omnigraph.lang.catalog import EdgeType, NodeType, PropertyType, Scalar
from omnigraph.lang.schema.arrow_schema import arrow_schema
from omnigraph.rules.coerce_column import from_fitted
from omnigraph.rules.delta import NO_IDS, Delta, Ids, Intent, is_among, last_of_each, one_array, without

_TEXT = PropertyType(Scalar.STRING)


class PendingType:
    """The pending rows of one type, and the ids that are taken out of it."""

    def __init__(self, type_: NodeType | EdgeType, committed: CommittedRows) -> None:
        self.type = type_
        self.deleted: Ids = NO_IDS
        self.has_updates = False
        # By column, the ids of pending rows that keep the blob of the committed row.
        self._kept: dict[str, Ids] = dict.fromkeys(_blob_names(type_), NO_IDS)
        self._committed = committed
        self._schema = arrow_schema(type_)
        self._rows = self._schema.empty_table()
        self._inserted: list[dict[str, Any]] = []

    @property
    def is_touched(self) -> bool:
        return bool(self._inserted) or self._rows.num_rows > 0 or len(self.deleted) > 0

    def insert(self, values: dict[str, Any]) -> None:
        """Add one row of fitted values; a later row of the same id takes its place."""
        self._inserted.append(values)

    def rows(self) -> pa.Table:
        """Return the pending rows, the last of each id."""
        if self._inserted:
            added = self._table(self._inserted)
            self._inserted = []
            ids = one_array(added.column("id"))
            self._kept = {name: without(kept, ids) for name, kept in self._kept.items()}
            self._put(added)
        return self._rows

    def matching(self, test: ColumnTest, lookup: ColumnTest) -> pa.Table:
        """Return whole rows of the type as it stands: committed ones that nothing shadows, and pending ones.

        The bytes of committed blobs are not read: rows hold empty ones in their place.

        `lookup` is a test that committed rows pass when they pass `test`, and by which they are found faster.
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

    def update(self, rows: pa.Table, values: dict[str, Any]) -> None:
        """Put constants into columns of rows that `matching` gave, and keep the result."""
        for name, value in values.items():
            index = rows.schema.get_field_index(name)
            column = from_fitted([value] * rows.num_rows, self.type.properties[name].type)
            rows = rows.set_column(index, self._schema.field(name), column)
        self.has_updates = True
        self._keep_blobs(one_array(rows.column("id")), values)
        self._put(rows)

    def _keep_blobs(self, ids: Ids, changed: Collection[str]) -> None:
        """Take note that updated rows keep the blobs that are not changed; those of pending rows are in these."""
        committed = without(ids, one_array(self._rows.column("id")))
        for name, kept in self._kept.items():
            self._kept[name] = without(kept, ids) if name in changed else pa.concat_arrays([kept, committed])

    def ids_matching(self, lookup: ColumnTest) -> Ids:
        """Return the ids of the rows that a delete takes out; pending rows cannot be among them, by the D2 rule."""
        if lookup.is_never:
            return NO_IDS
        return without(self._committed.ids_passing(self.type, lookup), self.deleted)

    def delete(self, ids: Ids) -> int:
        """Take ids out; return how many of them were still there."""
        ids = without(ids, self.deleted)
        self.deleted = pa.concat_arrays([self.deleted, ids])
        return len(ids)

    def delta(self) -> Delta:
        """Return what is pending, as the rules see it."""
        rows = self.rows()
        check_size(self.type, rows.num_rows, rows.nbytes)
        is_keyed = isinstance(self.type, NodeType) and bool(self.type.key)
        is_strict = not is_keyed and not self.has_updates and len(self.deleted) == 0
        intent = Intent.INSERT if is_strict else Intent.UPSERT
        return Delta(
            self.type, rows, intent, self.deleted, kept={name: ids for name, ids in self._kept.items() if len(ids)}
        )

    def _put(self, rows: pa.Table) -> None:
        both = pa.concat_tables([self._rows, rows]).combine_chunks()
        last = last_of_each(one_array(both.column("id")))
        self._rows = both if len(last) == both.num_rows else both.take(last)

    def _table(self, rows: list[dict[str, Any]]) -> pa.Table:
        columns = []
        for field in self._schema:
            item = self.type.properties.get(field.name)
            values = [row.get(field.name) for row in rows]
            columns.append(from_fitted(values, item.type if item else _TEXT))
        # Nulls in required columns are for the rules to find, so the schema is not enforced here.
        return pa.Table.from_arrays(columns, schema=self._schema)


def _blob_names(type_: NodeType | EdgeType) -> list[str]:
    return [name for name, item in type_.properties.items() if item.type.scalar is Scalar.BLOB]


def incident_ids(committed: CommittedRows, edge: EdgeType, column: str, nodes: Ids) -> Ids:
    """Return the ids of committed edges that have one of the nodes at one end."""
    edges = committed.matching(edge.table_key, ("id", column), {column: nodes})
    return one_array(edges.column("id"))
