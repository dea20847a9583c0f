"""Compare the rows of one type between two versions of its dataset.

Columns are matched by property id, so a rename changes no row. A property that only `after` has is null before, or has
its default if it is required; one that only `before` has is not compared, because the schema dropped it.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.engine.past_schemas import ADDED_VALUE
from omnigraph.lang.schema.arrow_schema import PROPERTY_ID
from omnigraph.limits import BLOB_READ_BYTES_MAX
from omnigraph.rules.arrow_typing import pc
from omnigraph.rules.delta import one_array
from omnigraph.store.blobs.cells import blob_locations, have_same_bytes
from omnigraph.store.lance_schema import BLOB_MARK
from omnigraph.store.read import version_diff
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.read.lookup import ROW_ADDRESS, ROW_ID, RowIds, blob_sizes, read_blobs
from omnigraph.store.read.version_diff import Moved, moved_estimate, moved_rows, stored_size

Mask = NDArray[np.bool_]


def equal_values(left: pa.Array[Any], right: pa.Array[Any]) -> Mask:
    """Return a mask of the positions at which two arrays of one type are equal.

    >>> equal_values(pa.array([[1.0], [], None]), pa.array([[1.0], None, None])).tolist()
    [True, False, True]
    """
    if not _may_hold_floats(left.type) and left.equals(right):
        return np.ones(len(left), np.bool_)
    valid_one, valid_two = as_mask(pc.is_valid(left)), as_mask(pc.is_valid(right))
    equal = ~valid_one & ~valid_two
    both = np.flatnonzero(valid_one & valid_two)
    if len(both):
        equal[both] = _equal_valid(left.take(both), right.take(both))
    return equal


def _may_hold_floats(type_: Any) -> bool:
    """Return True if Arrow's equality may differ from ours: it treats both zeros as equal, and NaN as unequal."""
    if pa.types.is_list(type_) or pa.types.is_fixed_size_list(type_):
        return _may_hold_floats(type_.value_type)
    is_opaque = pa.types.is_nested(type_) or isinstance(type_, pa.BaseExtensionType)
    return is_opaque or bool(pa.types.is_floating(type_))


def _equal_valid(left: Any, right: Any) -> Mask:
    if pa.types.is_floating(left.type):
        return _equal_floats(left.to_numpy(zero_copy_only=False), right.to_numpy(zero_copy_only=False))
    if pa.types.is_fixed_size_list(left.type) or pa.types.is_list(left.type):
        return _equal_lists(left, right)
    return as_mask(pc.equal(left, right))


def _equal_floats(left: NDArray[Any], right: NDArray[Any]) -> Mask:
    same: Mask = ((left == right) & (np.signbit(left) == np.signbit(right))) | (np.isnan(left) & np.isnan(right))
    return same


def _equal_lists(left: Any, right: Any) -> Mask:
    lengths = pc.list_value_length(left)
    equal = as_mask(pc.equal(lengths, pc.list_value_length(right)))
    comparable = np.flatnonzero(equal)
    counts = lengths.take(comparable).to_numpy(zero_copy_only=False)
    items = equal_values(left.take(comparable).flatten(), right.take(comparable).flatten())
    # A list differs if any item differs; empty lists have no items.
    wrong = np.repeat(np.arange(len(comparable)), counts)[~items]
    equal[comparable[wrong]] = False
    return equal


BEFORE: Final = "before"
AFTER: Final = "after"
_PLACE: Final = (pa.field(ROW_ADDRESS, pa.uint64()), pa.field(ROW_ID, pa.uint64()))
_NOTHING: Final = pa.table({"id": pa.array([], pa.string()), ROW_ID: pa.array([], pa.uint64())})


@dataclass(frozen=True, slots=True)
class RowChanges:
    """The changed rows of one type between two versions, by id; both images of an update are aligned.

    Columns are those of the version a row is from, with blobs as bytes or blob values; tables are sorted by id.
    """

    inserted: pa.Table
    deleted: pa.Table
    before: pa.Table
    after: pa.Table

    @property
    def count(self) -> int:
        return self.inserted.num_rows + self.deleted.num_rows + self.after.num_rows

    @property
    def tables(self) -> tuple[pa.Table, ...]:
        return self.inserted, self.deleted, self.before, self.after

    def map(self, function: Callable[[pa.Table], pa.Table]) -> RowChanges:
        """Return the changes with a function applied to every table."""
        return RowChanges(*map(function, self.tables))


class BlobColumns(Protocol):
    """The form of blobs in row images."""

    def column(self, dataset: Dataset, name: str, row_ids: Any, rows: pa.Table) -> Any:
        """Return a blob column, from the descriptors and addresses of stored rows."""


class _Bytes:
    """As bytes."""

    def column(self, dataset: Dataset, name: str, row_ids: Any, rows: pa.Table) -> Any:
        valid = pc.is_valid(rows.column(name).combine_chunks())
        payloads = read_blobs(dataset, name, row_ids.filter(valid))
        values = pa.array([payload or b"" for payload in payloads], pa.large_binary())
        return pc.replace_with_mask(pa.nulls(len(row_ids), pa.large_binary()), valid, values)


AS_BYTES: Final = _Bytes()


def row_changes(before: Dataset | None, after: Dataset | None, blobs: BlobColumns = AS_BYTES) -> RowChanges:
    """Return what changed, at a cost proportional to the change; None stands for a version without the type."""
    return compare(*read_moved_rows(before, after), blobs)


def read_moved_rows(before: Dataset | None, after: Dataset | None) -> tuple[StoredRows, StoredRows]:
    """Read the rows of each version that may differ from the other."""
    known = after or before
    assert known is not None, "a type that never existed cannot change"
    old, new = moved_row_ids(before, after)
    return read_rows(before or known, old), read_rows(known, new)


def moved_row_ids(before: Dataset | None, after: Dataset | None) -> tuple[RowIds, RowIds]:
    """Return the rows of each version that may differ from the other, by row id in ascending order."""
    if before is None or after is None or _regains(before, after):
        old, new = (all_rows(dataset).column(ROW_ID).to_numpy() for dataset in (before, after))
    else:
        old, new = version_diff.moved_row_ids(before, after)
    return np.sort(old), np.sort(new)


def candidates(before: Dataset | None, after: Dataset | None) -> pa.Table:
    """Return the rows that may differ: `id` in ascending order, and row ids `before` and `after`, null where absent."""
    if before is None or after is None or _regains(before, after):
        return paired_rows(all_rows(before), all_rows(after))
    return paired_rows(*((_NOTHING, _NOTHING) if before.ref == after.ref else moved_rows(before, after)))


def candidates_estimate(before: Dataset, after: Dataset) -> Moved:
    """Return about how much `candidates` would look at."""
    return stored_size(before) + stored_size(after) if _regains(before, after) else moved_estimate(before, after)


def _regains(before: Dataset, after: Dataset) -> bool:
    """Return True if rows that neither version rewrote may differ, because only one version stores a property.

    Forward on one line of versions, an added property is null until a new row version sets it. Backward, or on another
    fork, it reappears with values although no row version changed. The same holds for a property that `after` reads as
    null without storing it.
    """
    old, new = _stored_properties(before), _stored_properties(after)
    lost = (old - new) & {_property(field) for field in after.schema}
    is_forward = before.ref.branch == after.ref.branch and before.version <= after.version
    return bool(lost) if is_forward else bool(lost or new - old)


def _stored_properties(dataset: Dataset) -> set[bytes]:
    """Return the properties that a version has columns for; those that its shape adds are null and not stored."""
    added = {_property(field) for field in dataset.ref.shape.added_fields}
    return {_property(field) for field in dataset.schema} - added


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows of one version as they are stored: with blob descriptors, row ids and row addresses."""

    dataset: Dataset
    rows: pa.Table

    def __len__(self) -> int:
        return self.rows.num_rows

    @property
    def ids(self) -> Any:
        return one_array(self.rows.column("id"))

    @property
    def row_ids(self) -> Any:
        return one_array(self.rows.column(ROW_ID))

    def take(self, rows: Any) -> StoredRows:
        return StoredRows(self.dataset, self.rows.take(rows))


def read_rows(dataset: Dataset, row_ids: RowIds) -> StoredRows:
    """Read rows of a version by row id."""
    ids = pa.array(row_ids, pa.uint64())
    if not len(ids):
        return StoredRows(dataset, pa.schema([*dataset.schema, *_PLACE]).empty_table())
    rows = stored(dataset, ids)
    return StoredRows(dataset, rows.select([*dataset.schema.names, ROW_ADDRESS]).append_column(ROW_ID, ids))


def compare(old: StoredRows, new: StoredRows, blobs: BlobColumns = AS_BYTES) -> RowChanges:
    """Return how the rows of two versions differ, by their ids."""
    matches = pc.index_in(old.ids, value_set=new.ids)
    is_paired, partners = as_mask(pc.is_valid(matches)), matches.drop_null()
    left, right = old.take(np.flatnonzero(is_paired)), new.take(partners)
    changed = np.flatnonzero(~_equal_rows(left, right))
    is_new = np.ones(len(new), np.bool_)
    is_new[partners.to_numpy()] = False
    return RowChanges(
        inserted=_images(new, np.flatnonzero(is_new), blobs),
        deleted=_images(old, np.flatnonzero(~is_paired), blobs),
        before=_images(left, changed, blobs),
        after=_images(right, changed, blobs),
    )


def compare_candidates(before: Dataset | None, after: Dataset | None, rows: pa.Table) -> RowChanges:
    """Return how candidate rows changed."""
    known = after or before
    assert known is not None, "a type that never existed cannot change"
    old, new = (rows.column(name).drop_null().to_numpy() for name in (BEFORE, AFTER))
    return compare(read_rows(before or known, old), read_rows(known, new))


def differing(before: Dataset | None, after: Dataset | None, rows: pa.Table) -> pa.Table:
    """Return the candidates that really differ."""
    if before is None or after is None:
        return rows
    both = as_mask(pc.is_valid(rows.column(BEFORE))) & as_mask(pc.is_valid(rows.column(AFTER)))
    if not both.any():
        return rows
    pairs = rows.filter(pa.array(both))
    left, right = (
        read_rows(dataset, pairs.column(name).to_numpy()) for dataset, name in ((before, BEFORE), (after, AFTER))
    )
    both[both] = _equal_rows(left, right)
    return rows.filter(pa.array(~both))


def changed_columns(before: Dataset, old_row_id: int, after: Dataset, new_row_id: int) -> list[str]:
    """Return the columns of `after` in which two rows differ."""
    old, new = read_rows(before, np.array([old_row_id])), read_rows(after, np.array([new_row_id]))
    return [name for name, equal in _equal_columns(old, new) if not equal.all()]


def row_image(dataset: Dataset, row_id: int) -> pa.Table:
    """Return one row, with blobs left out as nulls."""
    rows = read_rows(dataset, np.array([row_id])).rows
    columns = [
        pa.nulls(1, pa.large_binary()) if is_blob(field) else rows.column(field.name) for field in dataset.schema
    ]
    return pa.Table.from_arrays(columns, schema=logical_schema(dataset))


def _equal_rows(old: StoredRows, new: StoredRows) -> Mask:
    equal = np.ones(len(old), np.bool_)
    for _, is_equal in _equal_columns(old, new) if len(old) else ():
        equal &= is_equal
    return equal


def _equal_columns(old: StoredRows, new: StoredRows) -> Iterator[tuple[str, Mask]]:
    """Yield each column of `new`, and in which rows it equals the same property of `old`."""
    names = {_property(field): field.name for field in old.dataset.schema}
    for field in new.dataset.schema:
        values = new.rows.column(field.name).combine_chunks()
        name = names.get(_property(field))
        if name is None:
            yield field.name, as_mask(pc.is_null(values))
        elif is_blob(field):
            yield field.name, _equal_blobs(old, name, new, field.name)
        else:
            yield field.name, equal_values(old.rows.column(name).combine_chunks(), values)


def _equal_blobs(old: StoredRows, name: str, new: StoredRows, renamed: str) -> Mask:
    """Compare blobs by location and descriptor, and by bytes where that is inconclusive."""
    left, right = old.rows.column(name).combine_chunks(), new.rows.column(renamed).combine_chunks()
    was, is_ = as_mask(pc.is_valid(left)), as_mask(pc.is_valid(right))
    sizes = blob_sizes(left).to_numpy(zero_copy_only=False)
    equal: Mask = (was == is_) & equal_values(blob_sizes(left), blob_sizes(right))
    alike = np.flatnonzero(equal & was & ~_are_same_locations(old, name, new, renamed))
    large = alike[sizes[alike] > BLOB_READ_BYTES_MAX]
    for row in large.tolist():
        row_ids = old.row_ids[row].as_py(), new.row_ids[row].as_py()
        equal[row] = have_same_bytes(old.dataset, name, row_ids[0], new.dataset, renamed, row_ids[1], int(sizes[row]))
    alike = np.setdiff1d(alike, large)
    # A bounded number of bytes of either side is in memory at a time.
    chunks = np.cumsum(sizes[alike]) // BLOB_READ_BYTES_MAX
    for positions in np.split(alike, np.flatnonzero(np.diff(chunks)) + 1):
        pairs = zip(
            read_blobs(old.dataset, name, old.row_ids.take(positions)),
            read_blobs(new.dataset, renamed, new.row_ids.take(positions)),
            strict=True,
        )
        equal[positions] = np.fromiter((a == b for a, b in pairs), np.bool_, len(positions))
    return equal


def _are_same_locations(old: StoredRows, name: str, new: StoredRows, renamed: str) -> Mask:
    """Return which rows have their blobs at the same location, hence equal without reading them."""
    (files, offsets), (other_files, other_offsets) = (
        blob_locations(read.dataset, column, read.rows.column(ROW_ADDRESS).to_numpy())
        for read, column in ((old, name), (new, renamed))
    )
    before, after = old.dataset, new.dataset
    is_one_dataset = before.ref.path == after.ref.path and before.field_ids[name] == after.field_ids[renamed]
    same: Mask = equal_values(files, other_files) & (offsets == other_offsets) & is_one_dataset
    return same


def _images(stored_rows: StoredRows, positions: Any, blobs: BlobColumns) -> pa.Table:
    """Return some of the stored rows in the order of their ids, with their blobs in the requested form."""
    schema = logical_schema(stored_rows.dataset)
    if not len(positions):
        return schema.empty_table()
    order = pc.sort_indices(stored_rows.ids.take(pa.array(positions))).to_numpy()
    selected = stored_rows.take(np.asarray(positions)[order])
    columns = [
        blobs.column(selected.dataset, field.name, selected.row_ids, selected.rows)
        if is_blob(field)
        else selected.rows.column(field.name)
        for field in selected.dataset.schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def logical_schema(dataset: Dataset) -> pa.Schema:
    """Return the columns of a dataset with blobs as bytes."""
    return logical_form(dataset.schema)


def logical_form(schema: pa.Schema) -> pa.Schema:
    """Return stored columns with blobs as bytes."""
    return pa.schema([field.with_type(pa.large_binary()) if is_blob(field) else field for field in schema])


def stored(dataset: Dataset, row_ids: Any, columns: Sequence[str] | None = None) -> pa.Table:
    """Return rows by row id in the requested order, with blob descriptors and row addresses."""
    # If most rows are needed, one sequential scan is cheaper than random access.
    if 2 * len(row_ids) < dataset.count():
        names = [*dataset.schema.names, ROW_ADDRESS] if columns is None else columns
        return fill_added(dataset, dataset.take(row_ids.to_pylist(), names))
    rows = dataset.read(columns, with_row_id=True, with_row_address=columns is None)
    order = pc.index_in(row_ids, value_set=one_array(rows.column(ROW_ID)))
    return fill_added(dataset, rows.take(order))


def fill_added(dataset: Dataset, rows: pa.Table) -> pa.Table:
    """Return rows with the values of properties that the schema added after they were stored; see `shape_under`."""
    for field in dataset.ref.shape.added_fields:
        raw = (field.metadata or {}).get(ADDED_VALUE)
        if raw is not None and field.name in rows.column_names:
            value = pa.ipc.open_stream(b64decode(raw)).read_all().column(0)
            column: Any = value.take(np.zeros(rows.num_rows, np.int64))
            rows = rows.set_column(rows.schema.get_field_index(field.name), field.name, column)
    return rows


def all_rows(dataset: Dataset | None) -> pa.Table:
    return _NOTHING if dataset is None else dataset.read(["id"], with_row_id=True)


def paired_rows(before: pa.Table, after: pa.Table) -> pa.Table:
    left = before.select(["id", ROW_ID]).rename_columns(["id", BEFORE])
    right = after.select(["id", ROW_ID]).rename_columns(["id", AFTER])
    return left.join(right, keys="id", join_type="full outer").sort_by("id")


def _property(field: pa.Field[Any]) -> bytes:
    """Return the identity of a column, which survives renames; for `id` and edge endpoints it is the name."""
    return (field.metadata or {}).get(PROPERTY_ID.encode(), b"") or b"=" + field.name.encode()


def is_blob(field: pa.Field[Any]) -> bool:
    return BLOB_MARK in (field.metadata or {})


def as_mask(values: Any) -> Mask:
    """Return a column of booleans as a writable numpy array."""
    mask: Mask = np.array(values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else values, np.bool_)
    return mask
