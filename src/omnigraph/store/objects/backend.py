"""The interface of a backend for control objects, and the meter that counts its requests by kind.

The seam between `Objects`, which checks, counts down to failpoints and names errors, and its two backends: files,
and buckets of object stores.

A meter is handed down when a graph is opened, so a test installs its own before that.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import md5
from typing import Final, Protocol
from zlib import crc32

from omnigraph.store.write.file_proof import FOOTER_BYTES


class Meter:
    """Counts requests by operation and kind of target; threads may share one.

    The kind is the target's first path segment without its version, so counts stay few however many objects there are.

    >>> meter = Meter()
    >>> meter.count("get", "__recovery/a.json"); before = meter.snapshot()
    >>> meter.count("get", "__recovery/b.json"); meter.count("put", "_schema.pg")
    >>> meter.since(before)
    {'get __recovery': 1, 'put _schema.pg': 1}
    """

    def __init__(self, log: list[tuple[str, str]] | None = None) -> None:
        self._counts: Counter[str] = Counter()
        self._log = log
        self._lock = threading.Lock()

    def count(self, operation: str, target: str) -> None:
        """Count one request, and append it to the log if there is one."""
        self._add(operation, target)
        local = _request_meter.get()
        if local is not None:
            local._add(operation, target)

    def _add(self, operation: str, target: str) -> None:
        key = f"{operation} {target.partition('/')[0].partition('@')[0]}"
        with self._lock:
            self._counts[key] += 1
            if self._log is not None:
                self._log.append((operation, target))

    def snapshot(self) -> dict[str, int]:
        """Return all counts so far, by `operation kind`, in name order."""
        with self._lock:
            return dict(sorted(self._counts.items()))

    def since(self, before: Mapping[str, int]) -> dict[str, int]:
        """Return what was counted after the snapshot `before`; what did not change is left out."""
        now = self.snapshot()
        return {key: count - before.get(key, 0) for key, count in now.items() if count != before.get(key, 0)}


class _NoMeter(Meter):
    """A meter that counts nothing itself."""

    def count(self, operation: str, target: str) -> None:
        local = _request_meter.get()
        if local is not None:
            local._add(operation, target)


NO_METER: Meter = _NoMeter()
_request_meter: Final[ContextVar[Meter | None]] = ContextVar("request_meter", default=None)


@contextmanager
def own_requests() -> Iterator[Meter]:
    """Also count the requests made within the block, apart from those of other threads.

    >>> with own_requests() as meter:
    ...     NO_METER.count("get", "a")
    >>> meter.snapshot()
    {'get a': 1}
    """
    meter = Meter()
    token = _request_meter.set(meter)
    try:
        yield meter
    finally:
        _request_meter.reset(token)


@dataclass(frozen=True, slots=True, order=True)
class ObjectInfo:
    """One object in a listing; `path` is relative to the graph's root."""

    path: str
    size_bytes: int
    modified_us: int
    e_tag: str | None = None
    version: str | None = None


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


class ContentDigests:
    """The CRC-32 and the MD5 of bytes that pass in chunks.

    >>> digests = ContentDigests(); b"".join(digests.passing(iter([b"a", b"b"])))
    b'ab'
    >>> digests.crc32 == crc32(b"ab"), digests.md5
    (True, '187ef4436122d1cc2f40dc2b92f0eba0')
    """

    def __init__(self) -> None:
        self.crc32 = 0
        self._md5 = md5(usedforsecurity=False)

    @property
    def md5(self) -> str:
        return self._md5.hexdigest()

    def passing(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the chunks, and take them into account."""
        for chunk in chunks:
            self.crc32 = crc32(chunk, self.crc32)
            self._md5.update(chunk)
            yield chunk


class Backend(Protocol):
    """Raw operations: each counts its requests on the meter and raises `StorageError`; absence is `None`.

    `create` is one conditional put, and False when storage refuses it. `put_if_absent` also finds out who won.
    """

    def get(self, path: str) -> bytes | None: ...
    def info(self, path: str) -> ObjectInfo | None: ...
    def inspect(self, path: str) -> Inspected | None: ...
    def put(self, path: str, data: bytes) -> None: ...
    def open_chunks(self, path: str) -> AbstractContextManager[Iterator[bytes] | None]: ...
    def put_chunks(self, path: str, chunks: Iterator[bytes]) -> None: ...
    def create(self, path: str, data: bytes) -> bool: ...
    def put_if_absent(self, path: str, data: bytes) -> bool: ...
    def put_if_match(self, path: str, data: bytes, expected: ObjectInfo) -> bool: ...
    def link(self, staged: str, final: str) -> bool: ...
    def list(self, prefix: str) -> Iterator[ObjectInfo]: ...
    def delete(self, path: str) -> None: ...
    def delete_many(self, paths: Sequence[str]) -> None: ...
    def delete_prefix(self, prefix: str) -> int: ...
    def drop_empty(self, folder: str, before_us: int) -> None: ...
