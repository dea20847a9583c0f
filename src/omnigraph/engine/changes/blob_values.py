"""Blob values: short stand-ins for blobs, so that rows are compared and merged without reading their bytes.

The value of a small blob holds its bytes, that of a larger one its storage location, whose content never changes.
Equal blobs at different locations get the same value by `unified`, which has to read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.engine.changes.row_diff import RowChanges, as_mask, is_blob
from omnigraph.limits import BLOB_VALUE_BYTES_MAX
from omnigraph.rules.arrow_typing import pc
from omnigraph.rules.delta import one_array
from omnigraph.store.blobs.cells import StoredBlobs, blob_locations, have_same_bytes, read_range
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.read.lookup import ROW_ADDRESS, ROW_ID, blob_sizes, read_blobs

# The first byte of a value: literal bytes follow, or a storage location.
_LITERAL: Final = b"\0"


_STORED: Final = b"\1"


@dataclass(frozen=True, slots=True)
class _StoredBlob:
    """The stored row of a blob."""

    dataset: Dataset
    column: str
    row_id: int
    size: int


def literal_values(payloads: Any) -> Any:
    """Return bytes as literal blob values.

    >>> literal_values(pa.array([b"a", None], pa.large_binary())).to_pylist()
    [b'\\x00a', None]
    """
    values = [None if payload is None else _LITERAL + payload for payload in payloads.to_pylist()]
    return pa.array(values, pa.large_binary())


class BlobValues:
    """The blob values of one merge, and the locations they refer to."""

    def __init__(self) -> None:
        self._locations: dict[bytes, _StoredBlob] = {}
        self._compared: dict[tuple[bytes, bytes], bool] = {}

    def column(self, dataset: Dataset, name: str, row_ids: Any, rows: pa.Table) -> Any:
        """Return the values of a blob column, from the descriptors and addresses of stored rows."""
        described = rows.column(name).combine_chunks()
        sizes: Any = blob_sizes(described)
        is_large = sizes.to_numpy(zero_copy_only=False) > BLOB_VALUE_BYTES_MAX
        is_small = as_mask(pc.is_valid(described)) & ~is_large
        ids = one_array(row_ids)
        values = pa.nulls(len(ids), pa.large_binary())
        payloads = read_blobs(dataset, name, ids.filter(pa.array(is_small)))
        literal = literal_values(pa.array([payload or b"" for payload in payloads], pa.large_binary()))
        values = pc.replace_with_mask(values, pa.array(is_small), literal)
        if not is_large.any():
            return values
        large_rows = np.flatnonzero(is_large)
        named = self._named(dataset, name, rows.column(ROW_ADDRESS).to_numpy()[large_rows])
        large = (named.to_pylist(), ids.take(large_rows).to_pylist(), sizes.take(large_rows).to_pylist())
        for value, row_id, size in zip(*large, strict=True):
            self._locations.setdefault(value, _StoredBlob(dataset, name, row_id, size))
        return pc.replace_with_mask(values, pa.array(is_large), named)

    @staticmethod
    def _named(dataset: Dataset, name: str, addresses: NDArray[np.uint64]) -> Any:
        files, offsets = blob_locations(dataset, name, addresses)
        field = f"{dataset.field_ids[name]} in {dataset.ref.path}"
        locations = pc.binary_join_element_wise(files, pa.array(offsets).cast(pa.string()), field, " ")
        texts = pc.binary_join_element_wise(_STORED.decode(), locations, "")
        return texts.cast(pa.large_binary())

    # -- equality ----------------------------------------------------------------------------------------------

    def unified(self, changes: Sequence[RowChanges]) -> list[RowChanges]:
        """Return the changes with equal values for equal blobs of an entity."""
        tables = [table for change in changes for table in change.tables]
        renamed: dict[bytes, bytes] = {}
        for name in [field.name for field in tables[0].schema if is_blob(field)]:
            for values in _several(tables, name):
                first, *others = sorted(values)
                for other in others:
                    same = next(
                        (known for known in (first, *others) if known < other and self._same(known, other)), None
                    )
                    if same is not None:
                        renamed[other] = renamed.get(same, same)
        return [change.map(partial(_renamed, renamed)) for change in changes] if renamed else list(changes)

    def _same(self, a: bytes, b: bytes) -> bool:
        left, right = self._locations[a], self._locations[b]
        if left.size != right.size:
            return False
        if (a, b) not in self._compared:
            self._compared[a, b] = have_same_bytes(
                left.dataset, left.column, left.row_id, right.dataset, right.column, right.row_id, left.size
            )
        return self._compared[a, b]

    # -- bytes -------------------------------------------------------------------------------------------------

    def with_bytes(self, rows: pa.Table | None) -> pa.Table | None:
        """Return rows with the bytes of their blobs instead of blob values."""
        if rows is None:
            return None
        return _map_blobs(rows, lambda column: pa.array(map(self._bytes, column.to_pylist()), pa.large_binary()))

    def _bytes(self, value: bytes | None) -> bytes | None:
        if value is None or value.startswith(_LITERAL):
            return None if value is None else value[1:]
        location = self._locations[value]
        return read_range(location.dataset, location.column, location.row_id, 0, location.size)

    def with_kept_blobs(self, rows: pa.Table, target: Dataset, current: pa.Table) -> tuple[pa.Table, list[StoredBlobs]]:
        """Return rows with blob bytes for a write, and the stored blobs that they keep.

        `current` has the addresses of the replaced target rows, whose own blobs are preferred because they can stay.
        """
        names = [field.name for field in rows.schema if is_blob(field)]
        cells: dict[DatasetRef, tuple[Dataset, dict[int, int], dict[str, set[int]]]] = {}
        for name in names:
            column = rows.column(name).combine_chunks()
            is_stored = as_mask(pc.fill_null(pc.starts_with(column, pattern=_STORED), False))
            for row, source in self._sources(rows, name, np.flatnonzero(is_stored), target, current):
                _, row_ids, columns = cells.setdefault(source.dataset.ref, (source.dataset, {}, {}))
                row_ids[row] = source.row_id
                columns.setdefault(name, set()).add(row)
            payloads = [None if value is None else _payload(value) for value in column.to_pylist()]
            index = rows.schema.get_field_index(name)
            rows = rows.set_column(index, rows.schema.field(index), pa.array(payloads, pa.large_binary()))
        return rows, [_stored_blobs(*cell) for cell in cells.values()]

    def _sources(
        self, rows: pa.Table, name: str, rows_with_blob: NDArray[np.int64], target: Dataset, current: pa.Table
    ) -> Iterator[tuple[int, _StoredBlob]]:
        """Yield the stored row of each blob."""
        if not len(rows_with_blob):
            return
        ids = rows.column("id").combine_chunks().take(rows_with_blob)
        current_rows = pc.index_in(ids, value_set=current.column("id").combine_chunks())
        row_ids = current.take(current_rows.drop_null()).column(ROW_ID)
        described = target.take(row_ids.to_numpy().tolist(), [name, ROW_ADDRESS])
        current_values = iter(self.column(target, name, row_ids, described).to_pylist())
        values: Any = rows.column(name).combine_chunks().take(rows_with_blob)
        for index, value, row in zip(
            rows_with_blob.tolist(), values.to_pylist(), current_rows.to_pylist(), strict=True
        ):
            current_value: Any = next(current_values) if row is not None else None
            is_current = (
                current_value is not None
                and current_value.startswith(_STORED)
                and (current_value == value or self._same(current_value, value))
            )
            yield index, self._locations[current_value if is_current else value]


def _payload(value: bytes) -> bytes:
    """Return the literal bytes of a value; empty if it refers to a location."""
    return value[1:] if value.startswith(_LITERAL) else b""


def _stored_blobs(dataset: Dataset, row_ids: dict[int, int], columns: dict[str, set[int]]) -> StoredBlobs:
    row_numbers = np.array(sorted(row_ids), np.int64)
    masks = {name: np.isin(row_numbers, sorted(rows)) for name, rows in columns.items()}
    return StoredBlobs(dataset, row_numbers, np.array([row_ids[row] for row in row_numbers.tolist()], np.uint64), masks)


def _several(tables: Iterable[pa.Table], name: str) -> Iterator[set[bytes]]:
    """Yield the locations of the blobs of each entity that has more than one."""
    cells = pa.concat_tables([table.select(["id", name]).rename_columns(["id", "value"]) for table in tables])
    cells = cells.filter(pc.fill_null(pc.starts_with(cells.column("value"), pattern=_STORED), False))
    cells = cells.group_by(["id", "value"]).aggregate([])
    counts = cells.group_by("id").aggregate([("value", "count")])
    several = counts.filter(pc.greater(counts.column("value_count"), 1)).column("id")
    for value in several.to_pylist():
        values: Any = cells.filter(pc.equal(cells.column("id"), value)).column("value")
        yield set(values.to_pylist())


def _renamed(renamed: dict[bytes, bytes], rows: pa.Table) -> pa.Table:
    renamed_values = pa.array(list(renamed), pa.large_binary())
    names = pa.array(list(renamed.values()), pa.large_binary())
    return _map_blobs(
        rows, lambda column: pc.coalesce(names.take(pc.index_in(column, value_set=renamed_values)), column)
    )


def _map_blobs(rows: pa.Table, function: Callable[[Any], Any]) -> pa.Table:
    """Return rows with a function applied to every column of blob values."""
    for index, field in enumerate(rows.schema):
        if is_blob(field):
            rows = rows.set_column(index, field, function(rows.column(index).combine_chunks()))
    return rows
