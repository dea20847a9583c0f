"""Fragments that share stored blobs: they reference the data file that already holds the bytes.

A fragment consists of data files of equally many rows. One for rows that keep their blobs has a new file for all other
columns, and for the blobs the file that had them before, under the same row numbers; all rows but the kept ones are
marked as deleted. So no byte of a blob is read or written, and the version itself names all that it needs: the folder
with larger blobs goes with the data file of its name. Stages only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import pyarrow as pa
from lance.fragment import DataFile, FragmentMetadata
from numpy.typing import NDArray

from omnigraph.ids import new_ulid
from omnigraph.store.index.index_build import last_covered
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.write.transaction import write_stream

Offsets = NDArray[np.int64]
Members = dict[str, Any]

# What Lance writes in place of a field whose values in a file no longer count.
_TOMBSTONE: Final = -2
# Rows that only exist to be deleted are written in runs of this length: a run of nulls takes almost no space.
_FILLER_ROWS: Final = 8_192
# About what a deleted row takes in a column of variable width.
_FILLER_BYTES: Final = 2


@dataclass(frozen=True, slots=True)
class Donor:
    """A fragment of a stored version, and the files of it that hold the blobs of some columns."""

    source: Dataset
    fragment: FragmentMetadata
    columns: tuple[str, ...]

    @property
    def fields(self) -> frozenset[int]:
        return frozenset(self.source.field_ids[name] for name in self.columns)

    def files_in(self, target: Dataset) -> list[Members] | None:
        """Return the files with the blobs as a version of the target names them, or None if it does not name all.

        What the target itself names cannot be removed by a cleanup before the target has another version.
        """
        if any(target.field_ids.get(name) != self.source.field_ids[name] for name in self.columns):
            return None
        needed = {file.path for file in self._files_of(self.fragment)}
        named = {file["path"]: file for fragment in target.fragments for file in fragment.to_json()["files"]}
        if not needed <= named.keys():
            return None
        files_by_path = {file["path"]: file for file in self.fragment.to_json()["files"]}
        # The target says where the file is, the source says what is in it.
        return [
            {
                **files_by_path[path],
                "base_id": named[path]["base_id"],
                "fields": [field if field in self.fields else _TOMBSTONE for field in files_by_path[path]["fields"]],
            }
            for path in sorted(needed)
        ]

    def shares(self, fragment: FragmentMetadata) -> bool:
        """Return True if another fragment takes just these blobs from the same files."""
        others = self._files_of(fragment)
        is_same = sorted(file.path for file in self._files_of(self.fragment)) == sorted(file.path for file in others)
        return is_same and all({*self.fields, _TOMBSTONE}.issuperset(file.fields) for file in others)

    def _files_of(self, fragment: FragmentMetadata) -> list[DataFile]:
        return [file for file in fragment.files if self.fields.intersection(file.fields)]


@dataclass(frozen=True, slots=True)
class Sharing:
    """What makes a staged fragment one that shares files: those files, the fields that are in them, and its rows.

    `offsets` are the rows that count; all others are to be marked as deleted. Can be sent to another process as JSON.
    """

    files: Sequence[Members]
    fields: Sequence[int]
    offsets: Sequence[int]

    @property
    def paths(self) -> set[str]:
        """The files that were there before, relative to the dataset's directory, and the folders beside them."""
        names = [f"data/{file['path']}" for file in self.files]
        return {*names, *(f"{name.removesuffix('.lance')}/" for name in names)}


@dataclass(frozen=True, slots=True)
class StagedFragment:
    """A fragment as Lance wrote it, and what it shares with others."""

    metadata: FragmentMetadata
    sharing: Sharing | None = None

    @property
    def num_rows(self) -> int:
        return len(self.sharing.offsets) if self.sharing else int(self.metadata.num_rows)


def filler_bytes(target: Dataset, physical_rows: int) -> int:
    """Return about how many bytes the deleted rows of a fragment that shares files take."""
    return physical_rows * sum(_width(field.type) for field in target.schema)


def _width(stored: Any) -> int:
    if pa.types.is_fixed_size_list(stored):
        return int(stored.list_size) * _width(stored.value_type)
    try:
        return max(1, int(stored.bit_width) // 8)
    except ValueError:
        return _FILLER_BYTES


def write_sharing(
    target: Dataset, rows: pa.Table, donor: Donor, files: list[Members], offsets: Offsets
) -> StagedFragment:
    """Write rows to a fragment that takes its blobs from a donor, each from the row at its offset there."""
    order = np.argsort(offsets)
    rows, offsets = rows.take(order), offsets[order]
    physical_rows = donor.fragment.physical_rows
    reader = pa.RecordBatchReader.from_batches(rows.schema, _padded(rows, offsets, physical_rows))
    [fragment] = write_stream(target, reader, max_rows_per_file=physical_rows, max_rows_per_group=physical_rows)
    assert fragment.physical_rows == physical_rows, "all files of a fragment have the same rows"
    return StagedFragment(fragment, Sharing(files, sorted(donor.fields), offsets.tolist()))


def _padded(rows: pa.Table, offsets: Offsets, physical_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield rows at their offsets, with empty rows in between."""
    filler = blank_rows(rows.schema, min(_FILLER_ROWS, physical_rows))
    ends = [*(np.flatnonzero(np.diff(offsets) != 1) + 1).tolist(), len(offsets)]
    reached = start = 0
    for end in ends:
        yield from _runs(filler, int(offsets[start]) - reached)
        yield from rows.slice(start, end - start).combine_chunks().to_batches()
        reached, start = int(offsets[end - 1]) + 1, end
    yield from _runs(filler, physical_rows - reached)


def _runs(filler: pa.Table, count: int) -> Iterator[pa.RecordBatch]:
    while count > 0:
        run = filler.slice(0, min(count, filler.num_rows))
        yield from run.to_batches()
        count -= run.num_rows


def blank_rows(schema: pa.Schema, count: int) -> pa.Table:
    """Return rows that take as little space as their columns allow."""
    row = pa.Table.from_arrays([_least(field) for field in schema], schema=schema)
    return row.take(np.zeros(count, np.int64)).combine_chunks()


def _least(field: pa.Field[Any]) -> Any:
    if field.nullable:
        return pa.nulls(1, field.type)
    stored: Any = field.type
    if isinstance(stored, pa.ExtensionType):
        # An empty blob.
        storage: Any = stored.storage_type
        cell = {field.name: b"" if field.name == "data" else None for field in storage}
        array: Any = pa.ExtensionArray
        return array.from_storage(stored, pa.array([cell], storage))
    if pa.types.is_fixed_size_list(stored):
        return pa.array([[0] * stored.list_size], stored)
    if pa.types.is_list(stored):
        return pa.array([[]], stored)
    return pa.array([""]) if pa.types.is_string(stored) else pa.array([0], pa.int32()).cast(stored)


def assembled(target: Dataset, staged: Sequence[StagedFragment]) -> list[FragmentMetadata]:
    """Return fragments as an operation on the target names them, with the deletions of those that share in place."""
    if not any(fragment.sharing for fragment in staged):
        return [fragment.metadata for fragment in staged]
    # The name of a file of deletions holds the id of its fragment, so Lance must not choose it. An id that an index
    # still knows from a fragment that is gone would pass for covered.
    last = max((fragment.id for fragment in target.fragments), default=0)
    first = max(last, last_covered(target)) + 1
    return [_assembled(target, staged_fragment, number) for number, staged_fragment in enumerate(staged, start=first)]


def _assembled(target: Dataset, staged: StagedFragment, fragment_id: int) -> FragmentMetadata:
    members = {**staged.metadata.to_json(), "id": fragment_id}
    if staged.sharing is not None:
        [written] = members["files"]
        written["fields"] = [
            _TOMBSTONE if field_id in staged.sharing.fields else field_id for field_id in written["fields"]
        ]
        deletions = _write_deletions(target, fragment_id, staged.metadata.physical_rows, staged.sharing)
        members |= {"files": [written, *staged.sharing.files], "deletion_file": deletions}
    return FragmentMetadata.from_json(json.dumps(members))


def _write_deletions(target: Dataset, fragment_id: int, physical_rows: int, sharing: Sharing) -> Members | None:
    """Write down, as Lance does, that all rows of a fragment but some are deleted."""
    others = np.setdiff1d(np.arange(physical_rows), sharing.offsets).astype(np.uint32)
    if not len(others):
        return None
    rows = pa.table([others], schema=pa.schema([pa.field("row_id", pa.uint32(), nullable=False)]))
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
        "num_deleted_rows": len(others),
        "base_id": None,
    }


def shared_paths(staged: Sequence[StagedFragment]) -> set[str]:
    """Return the files that staged fragments name and that were there before."""
    return {path for fragment in staged if fragment.sharing for path in fragment.sharing.paths}
