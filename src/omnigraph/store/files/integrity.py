"""Integrity of the indexes and blobs of a version: indexes can be read, and blobs have all their bytes.

Read-only. Handles that are in use answer from their caches, so open new ones to check what storage holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from omnigraph.errors import StorageError
from omnigraph.store.blobs.cells import blob_columns, blob_name
from omnigraph.store.read.dataset import Dataset, lance_errors
from omnigraph.store.read.live_rows import directory_of

# How descriptors number bytes in files beside the data file: in a shared file, or in a separate one.
_BESIDE = (1, 2)
# What Lance says when a part of a text index left the cache while the rest was read.
_EVICTED: Final = "FTS prewarm completed without publishing"


def index_faults(dataset: Dataset) -> Iterator[tuple[str, str]]:
    """Yield the indexes of which some file cannot be read, with the reason; each is read completely."""
    with lance_errors(f"listing the indexes of {dataset.ref}", dataset):
        names = sorted(index.name for index in dataset.lance.describe_indices())
    for name in names:
        fault = _read_index(dataset, name)
        if fault is not None and _EVICTED in fault:
            # Concurrent reads share the cache, so read it once more with a cache of its own. A text index that is
            # larger than the cache ends like this again, after all of its files have been read.
            separate_store = dataset.store.opened_once()
            try:
                fault = _read_index(separate_store.open(dataset.ref), name)
            finally:
                separate_store.close()
        if fault is not None and _EVICTED not in fault:
            yield name, fault


def _read_index(dataset: Dataset, name: str) -> str | None:
    """Read all files of an index; return what went wrong, if anything."""
    try:
        with lance_errors(f"reading an index of {dataset.ref}", dataset):
            dataset.lance.prewarm_index(name)
    except StorageError as error:
        return error.message
    return None


def blob_faults(dataset: Dataset) -> Iterator[str]:
    """Yield what is missing of the files that hold the larger blobs of a version."""
    columns = blob_columns(dataset)
    # By the folder beside a data file, how far into each of its files blobs reach; fragments may share data files.
    needed: dict[str, dict[str, int]] = {}
    for fragment in dataset.lance.get_fragments() if columns else ():
        for column in columns:
            folder = _folder(dataset, fragment.metadata, column)
            if folder is None:
                continue
            with lance_errors(f"reading {dataset.ref}", dataset):
                table = dataset.lance.scanner(
                    columns=[column], fragments=[fragment], blob_handling="all_descriptions"
                ).to_table()
            ends = needed.setdefault(folder, {})
            for number, end in _ends(table.column(column).combine_chunks()):
                name = blob_name(number)
                ends[name] = max(ends.get(name, 0), end)
    for folder, ends in sorted(needed.items()):
        if ends:
            yield from _short(dataset, folder, ends)


def _folder(dataset: Dataset, fragment: Any, column: str) -> str | None:
    """Return where the larger blobs of a column of a fragment lie; None when it has none, or they are not ours."""
    field = dataset.field_ids[column]
    file = next((candidate for candidate in fragment.files if field in candidate.fields), None)
    directory = directory_of(dataset, file.base_id) if file is not None else None
    return f"{directory}/data/{file.path.removesuffix('.lance')}" if file is not None and directory else None


def _ends(described: Any) -> Iterator[tuple[int, int]]:
    """Yield the number of each file that blobs lie in, and how far into it they reach."""
    storage = described.storage if isinstance(described, pa.ExtensionArray) else described
    members = {name: storage.field(name).to_numpy(zero_copy_only=False) for name in ("kind", "position", "size")}
    numbers = storage.field("blob_id").to_numpy(zero_copy_only=False)
    beside = np.isin(members["kind"], _BESIDE) & np.asarray(storage.is_valid())
    ends = (members["position"] + members["size"])[beside]
    for number in np.unique(numbers[beside]):
        yield int(number), int(ends[numbers[beside] == number].max())


def _short(dataset: Dataset, folder: str, needed: dict[str, int]) -> Iterator[str]:
    """Compare how far blobs reach with the files that are there."""
    sizes = {info.path.rpartition("/")[2]: info.size_bytes for info in dataset.store.objects.list(folder)}
    missing = sorted(needed.keys() - sizes.keys())
    if missing:
        yield f"{len(missing)} files of blobs are missing in `{folder}`: {missing[0]}"
    for name in sorted(needed.keys() & sizes.keys()):
        if sizes[name] < needed[name]:
            yield f"the file of blobs `{folder}/{name}` lacks its end"
