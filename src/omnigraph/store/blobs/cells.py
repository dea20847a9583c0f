"""Blob cells: the location of their bytes, and range reads.

Reads one pinned version; a descriptor is looked at without touching the bytes it describes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance.fragment import FragmentMetadata
from numpy.typing import NDArray

from omnigraph.errors import GraphError
from omnigraph.limits import BLOB_READ_BYTES_MAX
from omnigraph.store.lance_schema import BLOB_MARK
from omnigraph.store.read.dataset import Dataset, lance_errors
from omnigraph.store.read.lookup import ID, ROW_ADDRESS
from omnigraph.store.read.ordered_scan import ROW_ID, blob_sizes

# How Lance numbers where bytes lie: in the data file, or in a file beside it, shared or alone. It could also name an
# address outside of the dataset, which this package never writes and never follows.
_MANAGED: Final = (0, 1, 2)
_INLINE: Final = 0


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
    dataset.store.meter.count("scan", str(dataset.ref))
    with lance_errors(f"reading {dataset.ref}", dataset):
        rows = dataset.lance.to_table(
            columns=[column],
            filter=pc.field(ID) == entity_id,
            with_row_id=True,
            with_row_address=True,
            blob_handling="all_descriptions",
        )
    described: Any = rows.column(column).combine_chunks()
    cells = (described.storage if isinstance(described, pa.ExtensionArray) else described).to_pylist()
    if not cells or cells[0] is None:
        return None
    length = _checked_length(dataset, cells[0])
    address = int(rows.column(ROW_ADDRESS)[0].as_py())
    fragment = dataset.lance.get_fragment(address >> 32)
    assert fragment is not None, "a row address names a fragment"
    # Other files of the fragment may change while the blob stays where it is.
    field = dataset.field_ids[column]
    files = tuple(file.path for file in fragment.metadata.files if field in file.fields)
    return BlobCell(int(rows.column(ROW_ID)[0].as_py()), length, files, address & 0xFFFF_FFFF)


def _checked_length(dataset: Dataset, cell: dict[str, Any]) -> int:
    kind, size, uri = cell.get("kind"), cell.get("size"), cell.get("blob_uri")
    if isinstance(size, int) and kind in _MANAGED and not uri:
        return size
    raise GraphError(
        f"a blob of {dataset.ref} is described as {cell}, which no blob of a graph can be; restore it from a backup",
        code="blob.integrity",
        object=str(dataset.ref),
    )


def read_range(dataset: Dataset, column: str, row_id: int, start: int, length: int) -> bytes:
    """Return some bytes of one managed blob; the caller has checked the range."""
    dataset.store.meter.count("take", str(dataset.ref))
    with lance_errors(f"reading a blob of {dataset.ref}", dataset):
        ((_, _, data),) = dataset.lance.read_blob_ranges(column, [(row_id, start, length)], selector="ids")
    return data or b""


def are_outside(descriptors: pa.Array[Any]) -> NDArray[np.bool_]:
    """Return which blobs of a column of descriptors lie in files of their own, or elsewhere: not in the data file."""
    storage = descriptors.storage if isinstance(descriptors, pa.ExtensionArray) else descriptors
    kinds: Any = pc.fill_null(pc.struct_field(storage, "kind"), _INLINE)
    outside: NDArray[np.bool_] = kinds.to_numpy(zero_copy_only=False) != _INLINE
    return outside


def without_blob_bytes(rows: pa.Table, columns: Iterable[str]) -> pa.Table:
    """Return stored rows with an empty blob wherever there is one, and null where there is none."""
    for name in columns:
        valid: Any = rows.column(name).is_valid().combine_chunks()
        empty = pc.if_else(valid, pa.scalar(b"", pa.large_binary()), pa.scalar(None, pa.large_binary()))
        rows = rows.set_column(rows.schema.get_field_index(name), name, empty)
    return rows


def blob_columns(dataset: Dataset) -> list[str]:
    """Return the columns of a dataset that hold blobs."""
    return [field.name for field in dataset.schema if BLOB_MARK in (field.metadata or {})]


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
    field = dataset.field_ids[column]
    fragment_ids, fragment_indices = np.unique(addresses >> np.uint64(32), return_inverse=True)
    files = {
        fragment.id: next((file.path for file in fragment.files if field in file.fields), "")
        for fragment in dataset.fragments
    }
    names = pa.array([files[number] for number in fragment_ids.tolist()], pa.string())
    return names.take(fragment_indices), (addresses & np.uint64(0xFFFF_FFFF)).astype(np.int64)


def have_same_bytes(
    dataset: Dataset, column: str, row_id: int, other: Dataset, other_column: str, other_row_id: int, size: int
) -> bool:
    """Return True if two managed blobs of the same size are equal; so much of them is in memory at a time."""
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
    dataset.store.meter.count("scan", str(dataset.ref))
    with lance_errors(f"reading {dataset.ref}", dataset):
        selected = [fragment for fragment in dataset.lance.get_fragments() if fragment.fragment_id in fragment_ids]
        rows = dataset.lance.scanner(
            columns=columns, fragments=selected, with_row_address=True, blob_handling="all_descriptions"
        ).to_table()
    numbers = (rows.column(ROW_ADDRESS).to_numpy() >> np.uint64(32)).astype(np.int64)
    sizes_by_fragment: dict[int, int] = {}
    for name in columns:
        cells: Any = rows.column(name).combine_chunks()
        outside = are_outside(cells)
        sizes = blob_sizes(cells).to_numpy(zero_copy_only=False)[outside]
        for number, size in zip(numbers[outside].tolist(), sizes.tolist(), strict=True):
            sizes_by_fragment[number] = sizes_by_fragment.get(number, 0) + size
    return sizes_by_fragment
