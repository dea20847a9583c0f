"""Blobs: where one cell keeps its bytes, and any range of them.

Reads one pinned version; a descriptor is looked at without touching the bytes it describes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import GraphError
from omnigraph.store.dataset import Dataset, lance_errors
from omnigraph.store.lookup import ID, ROW_ADDRESS
from omnigraph.store.ordered import ROW_ID

# How Lance numbers where bytes lie: in the data file, or in a file beside it, shared or alone. It could also name an
# address outside of the dataset, which no write of ours does and no read of ours follows.
_MANAGED: Final = (0, 1, 2)


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
        found = dataset.lance.to_table(
            columns=[column],
            filter=pc.field(ID) == entity_id,
            with_row_id=True,
            with_row_address=True,
            blob_handling="all_descriptions",
        )
    described: Any = found.column(column).combine_chunks()
    cells = (described.storage if isinstance(described, pa.ExtensionArray) else described).to_pylist()
    if not cells or cells[0] is None:
        return None
    length = _checked_length(dataset, cells[0])
    address = int(found.column(ROW_ADDRESS)[0].as_py())
    fragment = dataset.lance.get_fragment(address >> 32)
    assert fragment is not None, "a row address names a fragment"
    files = tuple(file.path for file in fragment.metadata.files)
    return BlobCell(int(found.column(ROW_ID)[0].as_py()), length, files, address & 0xFFFF_FFFF)


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
        ((_, _, found),) = dataset.lance.read_blob_ranges(column, [(row_id, start, length)], selector="ids")
    return found or b""
