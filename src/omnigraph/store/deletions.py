"""Deletions: which rows of a fragment are gone, read from its small files instead of from all of its rows.

Answers None where the stored form is one of the larger ones; whoever asks then looks at the rows themselves.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import orjson
import pyarrow as pa
from lance import LanceFragment
from lance.fragment import FragmentMetadata
from numpy.typing import NDArray

from omnigraph.store.dataset import Dataset, miscounted
from omnigraph.store.protobuf import read_message

Offsets = NDArray[np.uint64]

# A list of row ids is a message of segments; the first kind of segment is a range with a start and an end.
_SEGMENT: Final = 1
_RANGE: Final = 1
_START: Final = 1


def deletion_path(fragment: FragmentMetadata) -> str | None:
    """Return the file that says which rows of a fragment are gone; None: all of them are there."""
    return None if fragment.deletion_file is None else str(fragment.deletion_file.path(fragment.id))


def deleted_offsets(dataset: Dataset, fragment: LanceFragment) -> Offsets | None:
    """Return the offsets of the deleted rows of a fragment, if they are few enough to be stored as a plain list."""
    file = fragment.metadata.deletion_file
    if file is None:
        return np.array([], np.uint64)
    directory = directory_of(dataset, file.base_id)
    if file.file_type != "array" or directory is None:
        return None
    raw = dataset.store.objects.read(f"{directory}/{file.path(fragment.fragment_id)}")
    offsets = np.sort(pa.ipc.open_file(raw).read_all().column(0).to_numpy()).astype(np.uint64)
    if len(offsets) != file.num_deleted_rows:
        left = dataset.count() + int(file.num_deleted_rows or 0) - len(offsets)
        raise miscounted(dataset, left)
    return offsets


def first_row_id(fragment: LanceFragment) -> int | None:
    """Return the row id of the first row of a fragment, if those of the others just follow it."""
    kept = fragment.metadata.row_id_meta
    inline = orjson.loads(kept.json()).get("Inline") if kept is not None else None
    segments = read_message(bytes(inline)) if inline else ()
    if len(segments) != 1 or segments[0][0] != _SEGMENT:
        return None
    assert isinstance(segments[0][1], bytes)
    ranges = read_message(segments[0][1])
    if len(ranges) != 1 or ranges[0][0] != _RANGE:
        return None
    assert isinstance(ranges[0][1], bytes)
    start = dict(read_message(ranges[0][1])).get(_START, 0)
    return start if isinstance(start, int) else None


def directory_of(dataset: Dataset, base_id: int | None) -> str | None:
    """Return where a file lies, relative to the graph's root: a fork inherits files from where it was forked."""
    if base_id is None:
        return dataset.ref.directory
    base, here = dataset.lance.base_paths()[base_id].path.strip("/"), dataset.store.root.uri.strip("/")
    return base.removeprefix(f"{here}/") if base.startswith(f"{here}/") else None
