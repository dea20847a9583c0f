"""States between commits that share one version of a dataset, read through a manifest that is made in memory.

The manifest lists the fragments of the version before, without what has gone by then, and as much of the fragment of
the commits as they had written by then. Its deletion files lie in a folder of this process; nothing is written to the
graph, so that a reader needs no right to write, and leaves nothing to sweep.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.errors import GraphError
from omnigraph.store.files.manifest_file import read_message, write_message

if TYPE_CHECKING:
    from omnigraph.store.read.dataset import Dataset, DatasetRef

Offsets = NDArray[np.uint64]

# Members of the messages of Lance's manifest.
_FRAGMENTS, _VERSION, _INDEXES, _READER_FLAGS, _WRITER_FLAGS, _BASES = 2, 3, 6, 9, 10, 18
_FRAGMENT_ID, _DELETIONS = 1, 3
_DELETION_VERSION, _DELETION_ID, _DELETION_COUNT, _DELETION_BASE = 2, 3, 4, 7
_BASE_ID, _BASE_IS_ROOT, _BASE_PATH = 1, 3, 4
# Deletion files and base paths.
_FLAGS: Final = 0b10001
# Lance caches what it knows of a version by its number, so each of these has one that no stored version ever has.
_numbers: Final = itertools.count(1 << 52)


class LocalDeletions:
    """The deletion files of one handle, in a folder that goes with it, and the offsets that they hold by fragment."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="omnigraph-"))
        self.offsets: dict[int, Offsets] = {}
        (self.folder / "_deletions").mkdir()
        self._finalizer = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def write(self, fragment_id: int, number: int, offsets: Offsets) -> bytes:
        """Write the deletions of a fragment; return them as its manifest names them, but for the base path."""
        self.offsets[fragment_id] = offsets
        rows = pa.table([offsets.astype(np.uint32)], schema=_ROWS)
        with pa.ipc.new_file(f"{self.folder}/_deletions/{fragment_id}-{number}-{number}.arrow", _ROWS) as writer:
            writer.write_table(rows)
        return write_message(((_DELETION_VERSION, number), (_DELETION_ID, number), (_DELETION_COUNT, len(offsets))))


_ROWS: Final = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])


def pack(numbers: Offsets) -> bytes:
    """Return numbers as the text of bytes that a part holds."""
    return numbers.astype("<u8").tobytes()


def unpack(packed: bytes) -> Offsets:
    """Return the numbers that a part holds."""
    return np.frombuffer(packed, "<u8").astype(np.uint64)


def partial_manifest(ref: DatasetRef, version: Dataset, base: Dataset, deletions: LocalDeletions) -> bytes:
    """Return the manifest of a part of a version, given the handles of the version and of the one before it."""
    number, part = next(_numbers), ref.part
    gone = _by_fragment(unpack(part.gone))
    parts = list(read_message(_manifest_of(base)))
    base_id = 1 + max((_first(value, _BASE_ID) for field, value in parts if field == _BASES), default=0)

    def without(fragment: bytes, offsets: Offsets) -> bytes:
        fragment_id = _first(fragment, _FRAGMENT_ID)
        message = deletions.write(fragment_id, number, offsets) + write_message(((_DELETION_BASE, base_id),))
        kept = [member for member in read_message(fragment) if member[0] != _DELETIONS]
        return write_message([*kept, (_DELETIONS, message)])

    fragments = []
    for fragment in _fragments(parts):
        offsets = gone.pop(_first(fragment, _FRAGMENT_ID), None)
        if offsets is None:
            fragments.append(fragment)
        else:
            deleted = np.union1d(_deleted(base, _first(fragment, _FRAGMENT_ID)), offsets)
            if len(deleted) < _physical_rows(base, _first(fragment, _FRAGMENT_ID)):
                fragments.append(without(fragment, deleted))
    if gone:
        raise _damaged(ref)
    if part.rows:
        shared = list(_fragments(read_message(_manifest_of(version))))[-1:]
        physical_rows = _physical_rows(version, _first(shared[0], _FRAGMENT_ID)) if shared else 0
        if physical_rows < part.rows:
            raise _damaged(ref)
        later = np.arange(part.rows, physical_rows, dtype=np.uint64)
        deleted = np.union1d(unpack(part.superseded), later)
        if len(deleted) < physical_rows:
            bare = write_message(member for member in read_message(shared[0]) if member[0] != _DELETIONS)
            fragments.append(without(bare, deleted) if len(deleted) else bare)
    entry = ((_BASE_ID, base_id), (_BASE_IS_ROOT, 1), (_BASE_PATH, os.fspath(deletions.folder).encode()))
    return write_message(
        [
            *((field, _edited(field, value, number)) for field, value in parts if field not in (_FRAGMENTS, _INDEXES)),
            *((_FRAGMENTS, fragment) for fragment in fragments),
            (_BASES, write_message(entry)),
        ]
    )


def _edited(field: int, value: int | bytes, number: int) -> int | bytes:
    if field == _VERSION:
        return number
    if field in (_READER_FLAGS, _WRITER_FLAGS):
        assert isinstance(value, int)
        return value | _FLAGS
    return value


def _manifest_of(dataset: Dataset) -> bytes:
    manifest: bytes = dataset.lance._ds.serialized_manifest()
    return manifest


def _fragments(parts: Any) -> Iterator[bytes]:
    for field, value in parts:
        if field == _FRAGMENTS:
            yield value


def _first(message: Any, number: int) -> int:
    """Return a number in a message; protobuf leaves out a zero."""
    value = dict(read_message(message)).get(number, 0)
    assert isinstance(value, int)
    return value


def _by_fragment(addresses: Offsets) -> dict[int, Offsets]:
    owners, offsets = addresses >> np.uint64(32), addresses & np.uint64(0xFFFF_FFFF)
    return {int(owner): offsets[owners == owner] for owner in np.unique(owners)}


def _deleted(dataset: Dataset, fragment_id: int) -> Offsets:
    """Return the offsets of the rows of a fragment that are deleted already."""
    from omnigraph.store.read.live_rows import deleted_offsets

    fragment = dataset.fragment(fragment_id)
    offsets = deleted_offsets(dataset, fragment)
    if offsets is not None:
        return offsets
    # Many deletions are kept as a bitmap; which rows are left is cheaper to ask than to decode.
    addresses = fragment.to_table(columns=[], with_row_address=True).column("_rowaddr").to_numpy()
    live = addresses & np.uint64(0xFFFF_FFFF)
    return np.setdiff1d(np.arange(fragment.metadata.physical_rows, dtype=np.uint64), live)


def _physical_rows(dataset: Dataset, fragment_id: int) -> int:
    return int(dataset.fragment(fragment_id).metadata.physical_rows)


def _damaged(ref: DatasetRef) -> GraphError:
    return GraphError(
        f"a state of {ref} between its commits names rows that are not there; check it with `omnigraph verify --data`",
        code="graph.corrupt",
        object=str(ref),
    )
