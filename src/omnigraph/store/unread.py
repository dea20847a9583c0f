"""Unread bytes: which blobs in the files of a dataset some version still reads; all other blob bytes may go.

Reads descriptors alone, never the bytes of a blob.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.store.blobs import blob_name
from omnigraph.store.dataset import Dataset, DatasetRef, lance_errors
from omnigraph.store.physical import BLOB_MARK
from omnigraph.store.store import Store

Span = tuple[int, int]

# How Lance numbers where bytes lie: in the data file, in a file beside it that is shared, or in one of their own.
_INLINE: Final = 0
_ALONE: Final = 2
_MAX_VERSION: Final = (1 << 64) - 1
_ALL: Final = 1 << 62


def stored_versions(store: Store, path: str, listed: Iterable[str]) -> Iterator[Dataset]:
    """Open every version of a dataset and of its forks whose manifest is among some listed files."""
    for file in listed:
        folder, _, name = file.rpartition("/_versions/")
        if folder and name.endswith(".manifest") and name[:20].isdigit():
            fork = folder.removeprefix(path).removeprefix("/tree/") or None
            yield store.open(DatasetRef(path, fork, _MAX_VERSION - int(name[:20])))


class Unread:
    """The blob bytes that versions read, leaving out some fields."""

    def __init__(self, versions: Iterable[Dataset], left_out: Collection[int]) -> None:
        self._inline: dict[str, set[Span]] = defaultdict(set)
        self._beside: dict[str, set[Span]] = defaultdict(set)
        seen: set[tuple[Any, ...]] = set()
        for version in versions:
            columns = [
                field.name
                for field in version.schema
                if BLOB_MARK in (field.metadata or {}) and version.field_ids[field.name] not in left_out
            ]
            for column in columns:
                for fragment in version.lance.get_fragments():
                    key = (repr(fragment.metadata.files), repr(fragment.metadata.deletion_file), column)
                    if key not in seen:
                        seen.add(key)
                        self._add(version, fragment, column)

    def spans(self, file: str) -> list[Span]:
        """Return the bytes of a data file that hold blobs which are read."""
        return sorted(self._inline[_stem(file)])

    def blob_spans(self, file: str) -> list[Span]:
        """Return the bytes of a file beside a data file that hold blobs which are read."""
        return sorted(self._beside["/".join(file.split("/")[-2:])])

    def _add(self, version: Dataset, fragment: Any, column: str) -> None:
        field = version.field_ids[column]
        file = next((one for one in fragment.metadata.files if field in one.fields), None)
        if file is None:
            return
        with lance_errors(f"reading {version.ref}", version):
            scanner = version.lance.scanner(columns=[column], fragments=[fragment], blob_handling="all_descriptions")
            cells: Any = scanner.to_table().column(column).combine_chunks()
        cells = cells.storage if isinstance(cells, pa.ExtensionArray) else cells
        cells = cells.filter(pc.is_valid(cells))
        kinds, starts, sizes, ids = (
            pc.struct_field(cells, name).to_numpy(zero_copy_only=False).astype(np.int64)
            for name in ("kind", "position", "size", "blob_id")
        )
        for kind, start, size, blob_id in zip(
            kinds.tolist(), starts.tolist(), sizes.tolist(), ids.tolist(), strict=True
        ):
            if kind == _INLINE:
                self._inline[_stem(file.path)].add((start, start + size))
            elif kind <= _ALONE:
                span = (start, start + size) if kind != _ALONE else (0, _ALL)
                self._beside[f"{_stem(file.path)}/{blob_name(blob_id)}"].add(span)


def _stem(file: str) -> str:
    return file.rpartition("/")[2].removesuffix(".lance")
