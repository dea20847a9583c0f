"""Deletion files of fragments that are new: which of their rows are gone from the beginning, written as Lance does."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.fragment import FragmentMetadata

from omnigraph.ids import new_ulid
from omnigraph.store.index.index_build import last_covered
from omnigraph.store.read.dataset import Dataset


def write_deletions(target: Dataset, fragment_id: int, offsets: npt.NDArray[Any]) -> dict[str, Any]:
    """Write down that some rows of a coming fragment are deleted; return the file as the fragment names it."""
    rows = pa.table([offsets.astype(np.uint32)], schema=_ROWS)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(rows)
    number = int.from_bytes(blake2b(new_ulid().encode(), digest_size=8).digest(), "big")
    name = f"_deletions/{fragment_id}-{target.version}-{number}.arrow"
    target.store.objects.write(f"{target.ref.directory}/{name}", sink.getvalue().to_pybytes())
    return {
        "file_type": "array",
        "read_version": target.version,
        "id": number,
        "num_deleted_rows": len(offsets),
        "base_id": None,
    }


_ROWS = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])


def first_free_id(target: Dataset) -> int:
    """Return the first id for new fragments of a version.

    The name of a file of deletions holds the id of its fragment, so Lance must not choose it. An id that an index still
    knows from a fragment that is gone would pass for covered.
    """
    last = max((fragment.id for fragment in target.fragments), default=0)
    return max(last, last_covered(target)) + 1


def with_deletions(target: Dataset, fragment: FragmentMetadata, offsets: npt.NDArray[Any]) -> FragmentMetadata:
    """Return a new fragment, some of whose rows are deleted from the beginning."""
    fragment_id = first_free_id(target)
    members = {**fragment.to_json(), "id": fragment_id}
    members["deletion_file"] = write_deletions(target, fragment_id, offsets)
    return FragmentMetadata.from_json(json.dumps(members))
