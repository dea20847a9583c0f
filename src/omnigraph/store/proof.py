"""Proven files: every staged file is seen to be whole before anything may rely on it, and its checksum is taken.

On a disk the bytes are read back, mostly from the page cache. In an object store, whose puts are atomic, one ranged
request a file returns size, footer and ETag; requests run beside whatever the writer does next.
"""

from __future__ import annotations

import os
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Final

from omnigraph.errors import StorageError, StorageKind
from omnigraph.limits import PROOF_CACHE_MAX, PROOF_THREADS
from omnigraph.store.footers import fault_of

if TYPE_CHECKING:
    from omnigraph.store.backend import Inspected
    from omnigraph.store.objects import Objects

# Files up to this size are read back in less time than a thread takes to start.
_INLINE_BYTES: Final = 262_144


@dataclass(frozen=True, slots=True)
class Proof:
    """A file that was whole when it was looked at.

    `checksum` is the CRC-32 of its bytes on a disk, and of its ETag in an object store.
    """

    path: str
    size_bytes: int
    checksum: int


class PendingProofs:
    """The proofs of some files, which may still be on their way."""

    def __init__(self, *parts: Future[list[Proof]] | list[Proof]) -> None:
        self._parts = parts

    def result(self) -> list[Proof]:
        """Return the proofs; `StorageError` when a file is not whole."""
        found = [part.result() if isinstance(part, Future) else part for part in self._parts]
        return [proof for proofs in found for proof in proofs]


NOTHING_TO_PROVE: Final = PendingProofs()


class Prover:
    """Looks at staged files; remembers what it has proven, because staged files never change."""

    def __init__(self, objects: Objects, is_local: bool) -> None:
        self._objects = objects
        self._is_local = is_local
        self._proven: OrderedDict[str, Proof] = OrderedDict()
        self._noted: OrderedDict[str, None] = OrderedDict()
        self._lock = Lock()

    def begin(self, sizes: Mapping[str, int | None]) -> PendingProofs:
        """Begin to prove files, by path with the size that was recorded for each; a path that ends in `/` is a folder.

        On a disk this raises at once when a file is not whole.
        """
        wanted = {path: size for path, size in sizes.items() if not self._recall(path)}
        known = [proof for path in sizes if (proof := self._recall(path))]
        if not wanted:
            return PendingProofs(known)
        if self._is_local and sum(size or 0 for size in wanted.values()) <= _INLINE_BYTES:
            return PendingProofs(known, [proof for path, size in wanted.items() for proof in self._prove(path, size)])
        futures = [_pool(os.getpid()).submit(self._prove, path, size) for path, size in wanted.items()]
        pending = PendingProofs(known, *futures)
        if self._is_local:
            pending.result()
        return pending

    def accept(self, proof: Proof) -> None:
        """Take over what another process has proven, or what was proven under another name."""
        with self._lock:
            self._proven[proof.path] = proof
            while len(self._proven) > PROOF_CACHE_MAX:
                self._proven.popitem(last=False)

    def note(self, path: str) -> None:
        """Remember that a stored file was read and is what its version says."""
        with self._lock:
            self._noted[path] = None
            while len(self._noted) > PROOF_CACHE_MAX:
                self._noted.popitem(last=False)

    def knows(self, path: str) -> bool:
        """Tell whether a file was staged here, or read and found to be right."""
        with self._lock:
            return path in self._proven or path in self._noted

    def renamed(self, before: str, after: str) -> None:
        """Take over the proof of a file that got another name, if its bytes are what was looked at."""
        if self._is_local and (proof := self._recall(before)) is not None:
            self.accept(replace(proof, path=after))

    def _recall(self, path: str) -> Proof | None:
        with self._lock:
            return self._proven.get(path)

    def _prove(self, path: str, size: int | None) -> list[Proof]:
        found = list(self._folder(path)) if path.endswith("/") else [self._file(path, size)]
        for proof in found:
            self.accept(proof)
        return found

    def _folder(self, path: str) -> Iterator[Proof]:
        for info in self._objects.list(path.rstrip("/")):
            yield self._recall(info.path) or self._file(info.path, info.size_bytes)

    def _file(self, path: str, size: int | None) -> Proof:
        return self.proof_of(path, self._objects.inspect(path), size)

    def proof_of(self, path: str, looked: Inspected | None, size: int | None) -> Proof:
        """Return the proof that a look at a file gives; `StorageError` when the file is not whole."""
        if looked is None:
            raise not_whole(path, "it is not there")
        if size is not None and looked.size_bytes != size:
            raise not_whole(path, f"it has {looked.size_bytes} of {size} bytes")
        if (fault := fault_of(path, looked.size_bytes, looked.tail)) is not None:
            raise not_whole(path, fault)
        return Proof(path, looked.size_bytes, looked.checksum)


def not_whole(path: str, fault: str) -> StorageError:
    """Return the refusal to publish what a write has left incomplete."""
    return StorageError(
        f"`{path}` was not written whole: {fault}. A write to storage was lost, and nothing was published; check free"
        " space, quotas and limits of file sizes, and the disk itself, then run it again",
        kind=StorageKind.UNKNOWN,
        object=path,
    )


def etag_checksum(e_tag: str | None) -> int:
    """Return the checksum that stands for an object of an object store.

    >>> etag_checksum('"9e107d9d372bb6826bd81d3542a419d6"') == etag_checksum("9e107d9d372bb6826bd81d3542a419d6")
    True
    """
    return zlib.crc32((e_tag or "").strip('"').encode())


@cache
def _pool(_process: int) -> ThreadPoolExecutor:
    # Its tasks wait for nothing but storage, so other pools may wait for it. Keyed by process id: a forked child
    # inherits the pool object, but none of its threads.
    return ThreadPoolExecutor(PROOF_THREADS, thread_name_prefix="omnigraph-proof")
