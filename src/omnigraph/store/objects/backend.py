"""The interface of a backend for control objects.

The seam between `Objects`, which checks, counts down to failpoints and names errors, and its two backends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol
from zlib import crc32

from omnigraph.store.write.file_proof import FOOTER_BYTES


@dataclass(frozen=True, slots=True, order=True)
class ObjectInfo:
    """One object in a listing; `path` is relative to the graph's root."""

    path: str
    size_bytes: int
    modified_us: int
    e_tag: str | None = None


@dataclass(frozen=True, slots=True)
class Inspected:
    """The size, last bytes and checksum of an object, from one request.

    That is the CRC-32 of all bytes on a disk; in an object store, which checks its bytes itself, that of the ETag.
    """

    size_bytes: int
    tail: bytes
    checksum: int

    @classmethod
    def of(cls, data: bytes) -> Inspected:
        """Return the inspection of these bytes as a file on a disk."""
        return cls(len(data), data[-FOOTER_BYTES:], crc32(data))


class Backend(Protocol):
    """Raw operations: each counts its requests on the meter and raises `StorageError`; absence is `None`."""

    def get(self, path: str) -> bytes | None: ...
    def info(self, path: str) -> ObjectInfo | None: ...
    def inspect(self, path: str) -> Inspected | None: ...
    def put(self, path: str, data: bytes) -> None: ...
    def open_chunks(self, path: str) -> AbstractContextManager[Iterator[bytes] | None]: ...
    def put_chunks(self, path: str, chunks: Iterator[bytes]) -> None: ...
    def put_if_absent(self, path: str, data: bytes) -> bool: ...
    def link(self, staged: str, final: str) -> bool: ...
    def list(self, prefix: str) -> Iterator[ObjectInfo]: ...
    def delete(self, path: str) -> None: ...
    def delete_many(self, paths: Sequence[str]) -> None: ...
    def delete_prefix(self, prefix: str) -> int: ...
    def drop_empty(self, folder: str, before_us: int) -> None: ...
