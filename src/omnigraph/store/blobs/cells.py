"""Blob cells: where their bytes lie, range reads, and rows that are written with blobs of stored versions.

Descriptors are read without the bytes that they describe. Stages only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance.fragment import FragmentMetadata, LanceFragment
from numpy.typing import NDArray

from omnigraph.errors import GraphError
from omnigraph.limits import BLOB_COPY_BYTES, BLOB_READ_BYTES_MAX
from omnigraph.store.blobs.shared import Donor, StagedFragment, blank_rows, filler_bytes, write_sharing
from omnigraph.store.lance_schema import blob_fields
from omnigraph.store.read.dataset import Dataset, lance_errors
from omnigraph.store.read.lookup import ID, ROW_ADDRESS, ROW_ID, as_structs, blob_sizes, read_blobs, split_addresses
from omnigraph.store.write.transaction import write_stream

# How Lance numbers where bytes lie: in the data file, or in a file beside it, shared or alone. It could also name an
# address outside of the dataset, which this package never writes and never follows.
INLINE, SHARED, ALONE = MANAGED = (0, 1, 2)

# The type stubs accept fewer argument types than the kernels.
arrays: Any = pa

Indices = NDArray[np.int64]
RowIds = NDArray[np.uint64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class BlobCell:
    """What is stored about one blob: its length, and where it is.

    `files` and `offset` name the place where it was written, which holds these bytes and never others.
    """

    row_id: int
    length: int
    files: tuple[str, ...]
    offset: int


def locate(dataset: Dataset, column: str, entity_id: str) -> BlobCell | None:
    """Return what is stored about the blob of an entity; None when there is no such entity, or no blob in it."""
    with dataset.reading():
        rows = dataset.lance.to_table(
            columns=[column],
            filter=pc.field(ID) == entity_id,
            with_row_id=True,
            with_row_address=True,
            blob_handling="all_descriptions",
        )
    cells = as_structs(rows.column(column).combine_chunks()).to_pylist()
    if not cells or cells[0] is None:
        return None
    length = _checked_length(dataset, cells[0])
    address = int(rows.column(ROW_ADDRESS)[0].as_py())
    # Other files of the fragment may change while the blob stays where it is.
    field = dataset.field_ids[column]
    files = tuple(file.path for file in dataset.fragment(address >> 32).metadata.files if field in file.fields)
    return BlobCell(int(rows.column(ROW_ID)[0].as_py()), length, files, address & 0xFFFF_FFFF)


def _checked_length(dataset: Dataset, cell: dict[str, Any]) -> int:
    kind, size, uri = cell.get("kind"), cell.get("size"), cell.get("blob_uri")
    if isinstance(size, int) and kind in MANAGED and not uri:
        return size
    raise GraphError(
        f"a blob of {dataset.ref} is described as {cell}, which no blob of a graph can be; restore it from a backup",
        code="blob.integrity",
        object=str(dataset.ref),
    )


def read_range(dataset: Dataset, column: str, row_id: int, start: int, length: int) -> bytes:
    """Return some bytes of one managed blob; the caller has checked the range."""
    with dataset.reading(f"reading a blob of {dataset.ref}", counted_as="take"):
        ((_, _, data),) = dataset.lance.read_blob_ranges(column, [(row_id, start, length)], selector="ids")
    return data or b""


def are_outside(descriptors: pa.Array[Any]) -> NDArray[np.bool_]:
    """Return which blobs of a column of descriptors lie in files of their own, or elsewhere: not in the data file."""
    kinds: Any = pc.fill_null(pc.struct_field(as_structs(descriptors), "kind"), INLINE)
    outside: NDArray[np.bool_] = kinds.to_numpy(zero_copy_only=False) != INLINE
    return outside


def without_blob_bytes(rows: pa.Table, columns: Iterable[str]) -> pa.Table:
    """Return stored rows with an empty blob where there is one, and null where there is none."""
    for name in columns:
        valid: Any = rows.column(name).is_valid().combine_chunks()
        empty = pc.if_else(valid, pa.scalar(b"", pa.large_binary()), pa.scalar(None, pa.large_binary()))
        rows = rows.set_column(rows.schema.get_field_index(name), name, empty)
    return rows


def blob_columns(dataset: Dataset) -> list[str]:
    return blob_fields(dataset.schema)


def file_of_column(dataset: Dataset, fragment: FragmentMetadata, column: str) -> Any:
    field = dataset.field_ids[column]
    return next((file for file in fragment.files if field in file.fields), None)


def read_descriptors(dataset: Dataset, column: str, fragment: LanceFragment) -> Any:
    """Return what is stored about the blobs of a column in one fragment."""
    with lance_errors(f"reading {dataset.ref}", dataset):
        scanner = dataset.lance.scanner(columns=[column], fragments=[fragment], blob_handling="all_descriptions")
        return as_structs(scanner.to_table().column(column).combine_chunks())


def blob_name(number: int) -> str:
    """Return the name of a file of blobs: its number in binary, lowest digit first.

    >>> blob_name(2)
    '01000000000000000000000000000000.blob'
    """
    return f"{number:032b}"[::-1] + ".blob"


def blob_locations(
    dataset: Dataset, column: str, addresses: NDArray[np.uint64]
) -> tuple[pa.Array[Any], NDArray[np.int64]]:
    """Return by row address the data file that holds what is stored of a blob, and the number of its row there.

    Lance names files at random, and fragments that share one have the same rows in it, so a place never has other
    bytes.
    """
    owners, offsets = split_addresses(addresses)
    fragment_ids, fragment_indices = np.unique(owners, return_inverse=True)
    files = {fragment.id: file_of_column(dataset, fragment, column) for fragment in dataset.fragments}
    paths = [file.path if (file := files[number]) else "" for number in fragment_ids.tolist()]
    return pa.array(paths, pa.string()).take(fragment_indices), offsets


def have_same_bytes(
    dataset: Dataset, column: str, row_id: int, other: Dataset, other_column: str, other_row_id: int, size: int
) -> bool:
    """Return True if two managed blobs of the same size are equal; only a part of them is in memory at a time."""
    for start in range(0, size, BLOB_READ_BYTES_MAX):
        length = min(BLOB_READ_BYTES_MAX, size - start)
        left = read_range(dataset, column, row_id, start, length)
        if left != read_range(other, other_column, other_row_id, start, length):
            return False
    return True


def blob_bytes_outside(dataset: Dataset, fragments: Sequence[FragmentMetadata]) -> dict[int, int]:
    """Return by fragment how many bytes of blobs lie outside of its data files, for those that have any."""
    columns = blob_columns(dataset)
    fragment_ids = {fragment.id for fragment in fragments}
    if not columns or not fragment_ids:
        return {}
    with dataset.reading():
        scanner = dataset.scanner(columns, fragment_ids, with_row_address=True, blob_handling="all_descriptions")
        rows = scanner.to_table()
    numbers, _ = split_addresses(rows.column(ROW_ADDRESS).to_numpy())
    sizes_by_fragment: dict[int, int] = {}
    for name in columns:
        cells: Any = rows.column(name).combine_chunks()
        outside = are_outside(cells)
        sizes = blob_sizes(cells).to_numpy(zero_copy_only=False)[outside]
        for number, size in zip(numbers[outside].tolist(), sizes.tolist(), strict=True):
            sizes_by_fragment[number] = sizes_by_fragment.get(number, 0) + size
    return sizes_by_fragment


@dataclass(frozen=True, slots=True)
class StoredBlobs:
    """Blobs of a stored version that rows of a table take over.

    Row `row_indices[n]` of the table takes over those of `row_ids[n]`, in each column whose mask is true at `n`.
    """

    source: Dataset
    row_indices: Indices
    row_ids: RowIds
    columns: Mapping[str, Mask]


@dataclass(frozen=True, slots=True)
class _Cells:
    """The same with the descriptors of the blobs by column, and the locations of their rows."""

    blobs: StoredBlobs
    described: pa.Table
    addresses: RowIds

    @classmethod
    def read(cls, blobs: StoredBlobs) -> _Cells:
        stored = blobs.source.take(blobs.row_ids.tolist(), [*blobs.columns, ROW_ADDRESS])
        assert stored.num_rows == len(blobs.row_ids), f"{blobs.source.ref} has all rows that blobs are taken from"
        return cls(blobs, stored, stored.column(ROW_ADDRESS).to_numpy())

    def cells(self, column: str) -> Any:
        return self.described.column(column).combine_chunks()

    def sizes(self) -> Indices:
        """Return how many bytes each row takes over that do not lie in a data file itself."""
        total = np.zeros(len(self.addresses), np.int64)
        for name, mask in self.blobs.columns.items():
            cells = self.cells(name)
            total += np.where(mask & are_outside(cells), blob_sizes(cells).to_numpy(zero_copy_only=False), 0)
        return total


@dataclass(frozen=True, slots=True)
class _Group:
    """Rows that keep blobs of the same columns in the same fragment."""

    donor: Donor
    files: list[dict[str, Any]]
    row_indices: Indices
    offsets: Indices


@dataclass(frozen=True, slots=True)
class Written:
    """What was written for rows, and the addresses of other rows that were written again along with them."""

    staged: list[StagedFragment]
    rewritten: RowIds


def write_with_blobs(
    target: Dataset, rows: pa.Table, blobs: Sequence[StoredBlobs], leaving: RowIds | None = None
) -> Written:
    """Write rows to new fragments; cells that are taken over from stored versions are ignored in the table.

    `leaving` are the addresses of rows of the target that these replace. Who knows them also takes out others that are
    written again, so that a fragment is not left behind for every row that is updated.
    """
    cells = [_Cells.read(blob) for blob in blobs if len(blob.row_indices)]
    is_shared = np.zeros(rows.num_rows, np.bool_)
    kept: dict[str, Mask] = {name: np.zeros(rows.num_rows, np.bool_) for blob in blobs for name in blob.columns}
    groups: list[_Group] = []
    for cell in cells:
        for group in _worthwhile(target, cell, is_shared):
            groups.append(group)
            is_shared[group.row_indices] = True
            for name in group.donor.columns:
                kept[name][group.row_indices] = True
    copied = _Copied(rows, cells, kept)
    staged, rewritten = list[StagedFragment](), [np.empty(0, np.uint64)]
    if not is_shared.all():
        batches = copied.batches(np.flatnonzero(~is_shared))
        fragments = write_stream(target, pa.RecordBatchReader.from_batches(rows.schema, batches))
        target.store.positions.foresee(target, rows.filter(pa.array(~is_shared)), fragments)
        staged += [StagedFragment(fragment) for fragment in fragments]
    for group in groups:
        shared_rows, offsets = pa.Table.from_batches(copied.batches(group.row_indices), rows.schema), group.offsets
        if leaving is not None:
            others, addresses = _neighbours(target, group, np.concatenate([leaving, *rewritten]))
            shared_rows = pa.concat_tables([shared_rows, others])
            offsets = np.concatenate([offsets, split_addresses(addresses)[1]])
            rewritten.append(addresses)
        staged.append(write_sharing(target, shared_rows, group.donor, group.files, offsets))
    return Written(staged, np.concatenate(rewritten))


def _neighbours(target: Dataset, group: _Group, leaving: RowIds) -> tuple[pa.Table, RowIds]:
    """Return rows of other fragments that share the same files, and their addresses, if they are about as many.

    As in a logarithmic method: what is joined is no larger than all before it, so that a row is written again only a
    few times, and few fragments are left.
    """
    nothing = target.schema.empty_table(), np.empty(0, np.uint64)
    names = blob_columns(target)
    if set(group.donor.columns) != set(names):
        return nothing
    chosen, count = [], len(group.row_indices)
    gone, _ = split_addresses(leaving)
    sizes = {
        fragment.id: fragment.num_rows - int((gone == fragment.id).sum())
        for fragment in target.fragments
        if group.donor.shares(fragment)
    }
    for number, size in sorted(sizes.items(), key=lambda item: item[1]):
        if 0 < size <= count:
            chosen.append(number)
            count += size
    if not chosen:
        return nothing
    others = [name for name in target.schema.names if name not in names]
    with lance_errors(f"reading {target.ref}", target):
        rows = target.scanner(others, chosen, with_row_address=True).to_table()
    rows = rows.filter(pa.array(~np.isin(rows.column(ROW_ADDRESS).to_numpy(), leaving)))
    blank = blank_rows(target.schema, rows.num_rows)
    columns = [(blank if name in names else rows).column(name) for name in target.schema.names]
    return pa.Table.from_arrays(columns, schema=target.schema), rows.column(ROW_ADDRESS).to_numpy()


def _worthwhile(target: Dataset, cells: _Cells, is_taken: Mask) -> Iterator[_Group]:
    """Yield rows whose blobs are better left where they are, unless they are shared already."""
    blobs, sizes = cells.blobs, cells.sizes()
    candidates = np.flatnonzero((sizes > 0) & ~is_taken[blobs.row_indices])
    if not len(candidates):
        return
    names = sorted(blobs.columns)
    pattern = sum((blobs.columns[name].astype(np.int64) << bit for bit, name in enumerate(names)), start=np.int64(0))
    fragments = {fragment.id: fragment for fragment in blobs.source.fragments}
    owners, offsets = split_addresses(cells.addresses)
    keys = np.stack([owners, pattern])[:, candidates]
    distinct, inverse = np.unique(keys, axis=1, return_inverse=True)
    for number, (fragment_id, bits) in enumerate(distinct.T.tolist()):
        members = candidates[inverse.ravel() == number]
        columns = tuple(name for bit, name in enumerate(names) if bits >> bit & 1)
        donor = Donor(blobs.source, fragments[fragment_id], columns)
        is_worth = sizes[members].sum() >= filler_bytes(target, donor.fragment.physical_rows)
        files = donor.files_in(target) if is_worth else None
        if files is not None:
            yield _Group(donor, files, blobs.row_indices[members], offsets[members])


@dataclass(frozen=True, slots=True)
class _Copied:
    """A table with the cells that are taken over, but for those that stay where they lie."""

    rows: pa.Table
    cells: Sequence[_Cells]
    kept: Mapping[str, Mask]

    def batches(self, row_indices: Indices) -> Iterator[pa.RecordBatch]:
        """Yield some rows in their order, with a limited number of blob bytes at a time, or one row that has more."""
        sizes = np.zeros(self.rows.num_rows, np.int64)
        for cell in self.cells:
            for name in cell.blobs.columns:
                copied = self._copied(cell, name)
                sizes[cell.blobs.row_indices[copied]] += blob_sizes(cell.cells(name)).to_numpy(zero_copy_only=False)[
                    copied
                ]
        chunks = np.cumsum(sizes[row_indices]) // BLOB_COPY_BYTES
        for part in np.split(row_indices, np.flatnonzero(np.diff(chunks)) + 1):
            yield from self._filled(part).combine_chunks().to_batches()

    def _copied(self, cells: _Cells, name: str) -> Indices:
        """Return which of the cells of a column are to be copied."""
        blobs = cells.blobs
        return np.flatnonzero(blobs.columns[name] & ~self.kept[name][blobs.row_indices])

    def _filled(self, row_indices: Indices) -> pa.Table:
        rows = self.rows.take(row_indices)
        for cell in self.cells:
            for name in cell.blobs.columns:
                copied = self._copied(cell, name)
                copied = copied[np.isin(cell.blobs.row_indices[copied], row_indices)]
                if len(copied):
                    order = np.argsort(row_indices)
                    targets = order[np.searchsorted(row_indices[order], cell.blobs.row_indices[copied])]
                    column = rows.schema.get_field_index(name)
                    cells = _with_cells(rows.column(name).combine_chunks(), targets, cell, name, copied)
                    rows = rows.set_column(column, rows.schema.field(column), cells)
        return rows


def _with_cells(column: Any, targets: Indices, cells: _Cells, name: str, copied: Indices) -> Any:
    """Return a column of blobs with the stored ones at some rows."""
    described = cells.cells(name).take(pa.array(copied))
    valid = _mask(pc.is_valid(described))
    payloads: list[bytes | None] = [None] * len(copied)
    row_ids = pa.array(cells.blobs.row_ids[copied])
    for position, payload in zip(
        np.flatnonzero(valid), read_blobs(cells.blobs.source, name, row_ids.filter(pa.array(valid))), strict=True
    ):
        payloads[position] = payload or b""
    storage = column.storage
    members = {field.name: storage.field(field.name) for field in storage.type}
    new_columns = {"data": pa.array(payloads, pa.large_binary())}
    where = np.zeros(len(column), np.bool_)
    where[targets] = True
    order = pa.array(np.argsort(targets, kind="stable"))
    children = [
        pc.replace_with_mask(
            values,
            pa.array(where),
            new_columns.get(key, pa.nulls(len(copied), values.type)).cast(values.type).take(order),
        )
        for key, values in members.items()
    ]
    is_null = _mask(pc.is_null(column))
    is_null[targets] = ~valid
    struct = arrays.StructArray.from_arrays(children, fields=list(storage.type), mask=pa.array(is_null))
    return arrays.ExtensionArray.from_storage(column.type, struct)


def _mask(values: Any) -> Mask:
    return np.array(values.to_numpy(zero_copy_only=False), np.bool_)
