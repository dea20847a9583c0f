"""Integrity of what a version consists of beside its rows: its indexes can be read, and its blobs have all their bytes.

Only looks. Handles that were used before answer from memory, so whoever wants to know what lies in storage opens anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.errors import StorageError
from omnigraph.store.dataset import Dataset, lance_errors
from omnigraph.store.deletions import directory_of
from omnigraph.store.physical import BLOB_MARK

# How descriptors number the places of bytes that lie in files beside the data file: shared with others, or alone.
_BESIDE = (1, 2)


def index_faults(dataset: Dataset) -> Iterator[tuple[str, str]]:
    """Yield the indexes of which some file cannot be read, with the reason; each is read whole."""
    with lance_errors(f"listing the indexes of {dataset.ref}", dataset):
        names = sorted(one.name for one in dataset.lance.describe_indices())
    for name in names:
        try:
            with lance_errors(f"reading an index of {dataset.ref}", dataset):
                dataset.lance.prewarm_index(name)
        except StorageError as error:
            yield name, error.message


def blob_faults(dataset: Dataset) -> Iterator[str]:
    """Yield what is missing of the files in which the larger blobs of a version lie."""
    columns = [field.name for field in dataset.schema if BLOB_MARK in (field.metadata or {})]
    if not columns:
        return
    for fragment in dataset.lance.get_fragments():
        needed: dict[tuple[str, int], int] = {}
        for column in columns:
            with lance_errors(f"reading {dataset.ref}", dataset):
                table = dataset.lance.scanner(
                    columns=[column], fragments=[fragment], blob_handling="all_descriptions"
                ).to_table()
            for number, end in _ends(table.column(column).combine_chunks()):
                needed[column, number] = max(needed.get((column, number), 0), end)
        if needed:
            yield from _short(dataset, fragment.metadata, sorted(needed.values()))


def _ends(described: Any) -> Iterator[tuple[int, int]]:
    """Yield the number of each file that blobs lie in, and how far into it they reach."""
    storage = described.storage if isinstance(described, pa.ExtensionArray) else described
    members = {name: storage.field(name).to_numpy(zero_copy_only=False) for name in ("kind", "position", "size")}
    numbers = storage.field("blob_id").to_numpy(zero_copy_only=False)
    beside = np.isin(members["kind"], _BESIDE) & np.asarray(storage.is_valid())
    ends = (members["position"] + members["size"])[beside]
    for number in np.unique(numbers[beside]):
        yield int(number), int(ends[numbers[beside] == number].max())


def _short(dataset: Dataset, fragment: Any, needed: list[int]) -> Iterator[str]:
    """Compare how far blobs reach with the files that are there; the largest need belongs to the largest file."""
    sizes: list[int] = []
    for file in fragment.files:
        directory = directory_of(dataset, file.base_id)
        if directory is None:
            return
        folder = f"{directory}/data/{file.path.removesuffix('.lance')}"
        sizes += [info.size_bytes for info in dataset.store.objects.list(folder)]
    if len(sizes) < len(needed):
        yield f"{len(needed) - len(sizes)} files of blobs are missing beside `{fragment.files[0].path}`"
    elif any(size < need for size, need in zip(sorted(sizes)[-len(needed) :], needed, strict=True)):
        yield f"a file of blobs beside `{fragment.files[0].path}` lacks its end"
