"""Shredding: the values of some columns overwritten with zeros in data files that hold other columns too.

A data file keeps its name, its size and its rows; what remains is read exactly as before, by every version and by
readers that have it open. Layout of a Lance file, from its end: the footer, a table of global buffers, a table of
column metadata, the column metadata, and before these the pages. Small blobs lie between pages; only cells know them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc

from omnigraph.errors import StorageError, StorageKind
from omnigraph.store.blobs.cells import ALONE, INLINE, blob_columns, blob_name, file_of_column, read_descriptors
from omnigraph.store.files.manifest_file import Parts, read_message, read_varint, write_message
from omnigraph.store.files.reachability import manifest_ref
from omnigraph.store.lance_schema import NO_FIELD, Field
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.store import Store
from omnigraph.store.write.file_proof import FILE_FOOTER, MAGIC

_ENTRY_BYTES: Final = 16
# Members of the messages of a column and of a page.
_ENCODING: Final = 1
_PAGES: Final = 2
_COLUMN_OFFSETS, _COLUMN_SIZES = 3, 4
_PAGE_OFFSETS, _PAGE_SIZES = 1, 2
# A member that the reader ignores: padding, where a message was longer.
_FILLER: Final = 500

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a file: its field, the bytes of its metadata, and the bytes of its pages."""

    field_id: int
    metadata: Span
    pages: tuple[Span, ...]


def shred_columns(raw: bytes, field_ids: Collection[int], readable: Collection[Span] | None) -> bytes:
    """Return a data file without the values of some fields.

    `readable` are the bytes outside of pages that some version still reads, blobs of other columns; None leaves all
    such bytes alone.
    """
    columns, tables = _layout(raw)
    dropped = [column for column in columns if column.field_id in field_ids]
    data = bytearray(raw)
    for column in dropped:
        for start, end in column.pages:
            data[start:end] = bytes(end - start)
        start, end = column.metadata
        data[start:end] = _without_pages(raw[start:end])
    if readable is not None:
        spans = [span for column in columns for span in (*column.pages, column.metadata)]
        for start, end in _gaps([*spans, *tables, *readable], len(raw)):
            data[start:end] = bytes(end - start)
    return bytes(data)


def fields_in(raw: bytes) -> set[int]:
    """Return the ids of the fields that a data file still holds values of."""
    columns, _ = _layout(raw)
    # A column that was shredded has no pages, and never gets any.
    return {column.field_id for column in columns if column.pages}


def _layout(raw: bytes) -> tuple[list[Column], list[Span]]:
    """Return the columns of a file, and the bytes of everything that is neither a column nor a blob."""
    if len(raw) < FILE_FOOTER.size or not raw.endswith(MAGIC):
        raise _unknown("it does not end as a data file does")
    footer = FILE_FOOTER.unpack(raw[-FILE_FOOTER.size :])
    _, metadata_table, globals_table, globals_count, columns_count, *_ = footer
    buffers = [_entry(raw, globals_table, number) for number in range(globals_count)]
    field_ids = _leaf_fields(raw[slice(*buffers[0])]) if buffers else []
    if len(field_ids) != columns_count:
        raise _unknown(f"it has {columns_count} columns and {len(field_ids)} fields")
    columns = []
    for number, field_id in enumerate(field_ids):
        span = _entry(raw, metadata_table, number)
        columns.append(Column(field_id, span, tuple(_pages(raw[slice(*span)]))))
    return columns, [*buffers, (metadata_table, len(raw))]


def _leaf_fields(descriptor: bytes) -> list[int]:
    """Return the fields that have a column of their own, in the order of columns."""
    schema = next(value for tag, value in read_message(descriptor) if tag == 1)
    assert isinstance(schema, bytes)
    messages = (value for tag, value in read_message(schema) if tag == 1 and isinstance(value, bytes))
    fields = [Field(read_message(message)) for message in messages]
    # What a blob is made of has no identity, and shares the column of the blob.
    identified = [field for field in fields if field.id != NO_FIELD]
    parents = {field.parent for field in identified}
    return [field.id for field in identified if field.id not in parents]


def _pages(column: bytes) -> Iterator[Span]:
    parts = read_message(column)
    yield from _buffers(parts, _COLUMN_OFFSETS, _COLUMN_SIZES)
    for tag, value in parts:
        if tag == _PAGES and isinstance(value, bytes):
            yield from _buffers(read_message(value), _PAGE_OFFSETS, _PAGE_SIZES)


def _buffers(parts: Parts, offsets: int, sizes: int) -> Iterator[Span]:
    for start, length in zip(_numbers(parts, offsets), _numbers(parts, sizes), strict=True):
        if length:
            yield start, start + length


def _numbers(parts: Parts, tag: int) -> list[int]:
    """Return a repeated number, packed or not."""
    numbers: list[int] = []
    for field_number, value in parts:
        if field_number == tag:
            numbers += [value] if isinstance(value, int) else _packed(value)
    return numbers


def _packed(values: bytes) -> Iterator[int]:
    position = 0
    while position < len(values):
        number, position = read_varint(values, position)
        yield number


def _gaps(spans: Iterable[Span], end: int) -> Iterator[Span]:
    """Return what lies between spans.

    >>> list(_gaps([(0, 2), (5, 8), (1, 3)], 10))
    [(3, 5), (8, 10)]
    """
    reached = 0
    for start, stop in sorted(spans):
        if start > reached:
            yield reached, start
        reached = max(reached, stop)
    if reached < end:
        yield reached, end


def _without_pages(column: bytes) -> bytes:
    """Return the message of a column without its pages, whose encodings may hold values; its size stays."""
    kept = write_message(part for part in read_message(column) if part[0] == _ENCODING)
    return kept + _filler(len(column) - len(kept))


def _filler(size: int) -> bytes:
    """Return a message of a given size without content.

    >>> [len(_filler(size)) for size in (0, 3, 130, 131, 132, 300)]
    [0, 3, 130, 131, 132, 300]
    """
    if size == 0:
        return b""
    for length in range(max(0, size - 6), size):
        message = write_message([(_FILLER, bytes(length))])
        if len(message) == size:
            return message
    # No message of one member has this size, because its length gets a digit more; a second one takes three bytes.
    return write_message([(_FILLER, 0)]) + _filler(size - 3)


def _entry(raw: bytes, table: int, number: int) -> Span:
    start = table + _ENTRY_BYTES * number
    position, size = (int.from_bytes(raw[at : at + 8], "little") for at in (start, start + 8))
    return position, position + size


def _unknown(reason: str) -> StorageError:
    return StorageError(
        f"a data file cannot be purged: {reason}; purge it by removing the commits that read it",
        kind=StorageKind.PERMANENT,
    )


_ALL: Final = 1 << 62


def open_versions(store: Store, path: str, paths: Iterable[str]) -> Iterator[Dataset]:
    """Open every version of a dataset and of its forks whose manifest is among some listed files."""
    for file in paths:
        if (ref := manifest_ref(file)) is not None and ref.path == path:
            yield store.open(ref)


class Unread:
    """The blob bytes that versions read; `left_out` returns the columns of a version that do not count."""

    def __init__(self, versions: Iterable[Dataset], left_out: Callable[[Dataset], Collection[str]]) -> None:
        self._inline: dict[str, set[Span]] = defaultdict(set)
        self._beside: dict[str, set[Span]] = defaultdict(set)
        visited: set[tuple[Any, ...]] = set()
        for version in versions:
            for column in sorted(set(blob_columns(version)).difference(left_out(version))):
                for fragment in version.lance.get_fragments():
                    key = (repr(fragment.metadata.files), repr(fragment.metadata.deletion_file), column)
                    if key not in visited:
                        visited.add(key)
                        self._add(version, fragment, column)

    def spans(self, file: str) -> list[Span]:
        """Return the bytes of a data file that hold blobs which are read."""
        return sorted(self._inline[file_stem(file)])

    def blob_spans(self, file: str) -> list[Span]:
        """Return the bytes of a file beside a data file that hold blobs which are read."""
        return sorted(self._beside["/".join(file.split("/")[-2:])])

    def _add(self, version: Dataset, fragment: Any, column: str) -> None:
        file = file_of_column(version, fragment.metadata, column)
        if file is None:
            return
        cells = read_descriptors(version, column, fragment)
        cells = cells.filter(pc.is_valid(cells))
        kinds, starts, sizes, ids = (
            pc.struct_field(cells, name).to_numpy(zero_copy_only=False).astype(np.int64)
            for name in ("kind", "position", "size", "blob_id")
        )
        for kind, start, size, blob_id in zip(
            kinds.tolist(), starts.tolist(), sizes.tolist(), ids.tolist(), strict=True
        ):
            if kind == INLINE:
                self._inline[file_stem(file.path)].add((start, start + size))
            elif kind <= ALONE:
                span = (start, start + size) if kind != ALONE else (0, _ALL)
                self._beside[f"{file_stem(file.path)}/{blob_name(blob_id)}"].add(span)


def file_stem(file: str) -> str:
    """Return the name of a data file, which no other file of the graph has, without its ending."""
    return file.rpartition("/")[2].removesuffix(".lance")
