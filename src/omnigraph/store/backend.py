"""What a home of control objects must be able to do.

The seam between `Objects`, which checks, counts down to failpoints and names errors, and its two backends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, order=True)
class ObjectInfo:
    """One object in a listing; `path` is relative to the graph's root."""

    path: str
    size_bytes: int
    modified_us: int


class Backend(Protocol):
    """Raw operations: each counts its requests on the meter and raises `StorageError`; absence is `None`."""

    def get(self, path: str) -> bytes | None: ...
    def info(self, path: str) -> ObjectInfo | None: ...
    def put(self, path: str, data: bytes) -> None: ...
    def put_if_absent(self, path: str, data: bytes) -> bool: ...
    def link(self, staged: str, final: str) -> bool: ...
    def list(self, prefix: str) -> Iterator[ObjectInfo]: ...
    def delete(self, path: str) -> None: ...
    def delete_many(self, paths: Sequence[str]) -> None: ...
    def delete_prefix(self, prefix: str) -> int: ...
    def drop_empty(self, folder: str, before_us: int) -> None: ...
