"""The committed rows of one snapshot, as set rules and statements ask for them.

Reads only what a question names, and remembers where it lies for the staging that follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from omnigraph.engine.core import View
from omnigraph.engine.write.predicate import ColumnTest
from omnigraph.lang.catalog import EdgeType, NodeType
from omnigraph.lang.query.ir import CompareOp
from omnigraph.lang.schema.arrow import arrow_schema
from omnigraph.rules.delta import Ids, one_array, without
from omnigraph.rules.kernels import Column, arrays, pc
from omnigraph.store.blobs import blob_columns, without_blob_bytes
from omnigraph.store.dataset import Dataset, lance_errors
from omnigraph.store.lookup import PLACE, find, find_rows


class CommittedRows:
    """The rows of a view. What was read once for a write is not read again for the same write."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.types_read: set[str] = set()
        self._seen: dict[str, list[pa.Table]] = {}
        self._answers: dict[tuple[str, ...], tuple[Mapping[str, Column], pa.Table]] = {}

    def existing(self, table_key: str, ids: Ids) -> Ids:
        """Return those of the ids that exist in a type."""
        return one_array(self.places(table_key, ids).column("id"))

    def places(self, table_key: str, ids: Ids) -> pa.Table:
        """Return id, row id and row address of those of the ids that exist in a type, each once."""
        if table_key in self._seen:
            seen = pa.concat_tables(self._seen[table_key]).combine_chunks()
            # A row that was met by two roads was seen twice.
            met = pc.index_in(pc.unique(ids), value_set=one_array(seen.column("id"))).drop_null()
            known = seen.take(met)
            others = find(self._dataset(table_key), without(ids, one_array(known.column("id"))))
            return pa.concat_tables([known, others])
        return find(self._dataset(table_key), ids)

    def matching(self, table_key: str, columns: Sequence[str], where: Mapping[str, Column]) -> pa.Table:
        """Return columns of the rows in which each column of `where` holds one of its values."""
        question = (table_key, *columns, "where", *where)
        asked, answer = self._answers.get(question, (None, None))
        # A delete looks for edges to take along, and the rules look for those that were forgotten.
        if asked is None or answer is None or not all(asked[name].equals(values) for name, values in where.items()):
            found = find_rows(self._dataset(table_key), list(dict.fromkeys(["id", *columns])), where)
            self._see(table_key, found)
            answer = found.select(list(columns))
            self._answers[question] = (where, answer)
        return answer

    def rows(self, type_: NodeType | EdgeType, test: ColumnTest) -> Iterator[pa.Table]:
        """Stream whole rows that pass a test, in the type's own columns; of a blob only whether there is one."""
        dataset = self._dataset(type_.table_key)
        logical = arrow_schema(type_)
        where = _looked_up(type_, test)
        parts: Iterator[pa.Table]
        if where is not None:
            parts = iter([find_rows(dataset, logical.names, where)])
        else:
            parts = _scan(dataset, logical.names, test.condition())
        for found in parts:
            if found.num_rows:
                self._see(type_.table_key, found)
                yield without_blob_bytes(found.select(logical.names), blob_columns(dataset)).cast(logical)

    def ids_passing(self, type_: NodeType | EdgeType, test: ColumnTest) -> Ids:
        """Return the ids of the rows that pass a test."""
        dataset = self._dataset(type_.table_key)
        where = _looked_up(type_, test)
        if where is not None:
            found = find_rows(dataset, ["id"], where)
        else:
            found = dataset.read(["id"], test.condition(), with_row_id=True, with_row_address=True)
        self._see(type_.table_key, found)
        return one_array(found.column("id"))

    def _dataset(self, table_key: str) -> Dataset:
        self.types_read.add(table_key)
        return self.view.sound_dataset(table_key)

    def _see(self, table_key: str, found: pa.Table) -> None:
        if found.num_rows:
            self._seen.setdefault(table_key, []).append(found.select(list(PLACE)))


def _looked_up(type_: NodeType | EdgeType, test: ColumnTest) -> Mapping[str, Column] | None:
    """Return the one value that a test asks for, if its column is one whose rows are looked up value by value."""
    keys = {"id", *(("src", "dst") if isinstance(type_, EdgeType) else ()), *sum(type_.unique, ())}
    if test.op is not CompareOp.EQ or test.column not in keys:
        return None
    return {test.column: arrays.repeat(test.constant, 1)}


def _scan(dataset: Dataset, columns: Sequence[str], condition: Any) -> Iterator[pa.Table]:
    dataset.store.meter.count("scan", str(dataset.ref))
    with lance_errors(f"reading {dataset.ref}", dataset):
        scanner = dataset.lance.scanner(
            columns=list(columns),
            filter=condition,
            with_row_id=True,
            with_row_address=True,
            # A write may touch few rows, so the other columns are fetched for those alone.
            late_materialization=True,
        )
        for batch in scanner.to_batches():
            yield pa.Table.from_batches([batch])
