"""Verification of staged files: each is checked to be complete, and its checksum taken, before it is published.

Checksums are packed into one text, which commits and logs record and `verify` compares with what is stored.

On a disk the bytes are read back, mostly from the page cache. In an object store, whose puts are atomic, one ranged
request a file returns size, footer and ETag; requests run concurrently with the next steps of the writer.
"""

from __future__ import annotations

import os
import struct
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final
from zlib import crc32

import numpy as np

from omnigraph.errors import StorageError, StorageKind
from omnigraph.ids import new_ulid
from omnigraph.limits import PROOF_CACHE_MAX, PROOF_THREADS
from omnigraph.lru import LruCache

if TYPE_CHECKING:
    from omnigraph.store.objects.backend import Inspected
    from omnigraph.store.objects.control_objects import Objects
    from omnigraph.store.objects.schemes import StoreKind
    from omnigraph.store.store import Store


# How much of the end of a file any of these checks looks at.
FOOTER_BYTES: Final = 64

MAGIC: Final = b"LANC"
# Three positions, two counts, two version numbers, and the magic.
FILE_FOOTER: Final = struct.Struct("<QQQIIHH4s")
# An entry of the table that ends right before the footer.
_BUFFER_ENTRY_BYTES: Final = 16
# The position of the manifest, two version numbers, and the magic.
_MANIFEST_FOOTER: Final = struct.Struct("<QHH4s")
_ARROW_MAGIC: Final = b"ARROW1"
_CURRENT_MAJOR: Final = 2


def fault_of(path: str, size_bytes: int, tail: bytes) -> str | None:
    """Return why a file with this end cannot be whole, or None; the name says what kind of file it is.

    >>> fault_of("data/a.lance", 9, b"too short")
    'it has no footer'
    """
    name = path.rpartition("/")[2]
    if ".manifest" in name:
        return _manifest_fault(size_bytes, tail)
    if name.endswith((".lance", ".idx")):
        return _file_fault(size_bytes, tail)
    if name.endswith(".arrow") and not tail.endswith(_ARROW_MAGIC):
        return "it has no footer"
    return None


def is_inlined(transaction: bytes, manifest: bytes) -> bool:
    """Return True if the file of a transaction agrees with the copy in the manifest that it made."""
    position = int.from_bytes(manifest[-_MANIFEST_FOOTER.size :][:8], "little")
    start = position - len(transaction)
    return manifest[start:position] == transaction and manifest[start - 4 : start] == len(transaction).to_bytes(
        4, "little"
    )


def _file_fault(size_bytes: int, tail: bytes) -> str | None:
    if len(tail) < FILE_FOOTER.size or not tail.endswith(MAGIC):
        return "it has no footer"
    _, _, buffers, buffer_count, _, major, _, _ = FILE_FOOTER.unpack(tail[-FILE_FOOTER.size :])
    ought = buffers + buffer_count * _BUFFER_ENTRY_BYTES + FILE_FOOTER.size
    if major == _CURRENT_MAJOR and ought != size_bytes:
        return f"its footer says {ought} bytes, but it has {size_bytes}"
    return None


def _manifest_fault(size_bytes: int, tail: bytes) -> str | None:
    if len(tail) < _MANIFEST_FOOTER.size or not tail.endswith(MAGIC):
        return "it has no footer"
    position = _MANIFEST_FOOTER.unpack(tail[-_MANIFEST_FOOTER.size :])[0]
    return None if position + _MANIFEST_FOOTER.size < size_bytes else "its footer points past its end"


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
        parts = [part.result() if isinstance(part, Future) else part for part in self._parts]
        return [proof for proofs in parts for proof in proofs]


NOTHING_TO_PROVE: Final = PendingProofs()


class Prover:
    """Looks at staged files; remembers what it has proven, because staged files never change."""

    def __init__(self, objects: Objects, kind: StoreKind) -> None:
        self._objects = objects
        self._kind = kind
        self._proven: LruCache[str, Proof] = LruCache(PROOF_CACHE_MAX)
        self._verified: LruCache[str, bool] = LruCache(PROOF_CACHE_MAX)

    def begin(self, sizes: Mapping[str, int | None]) -> PendingProofs:
        """Begin to prove files, by path with the size that was recorded for each; a path that ends in `/` is a folder.

        On a disk this raises at once when a file is not whole.
        """
        unproven = {path: size for path, size in sizes.items() if not self._proven.get(path)}
        proven = [proof for path in sizes if (proof := self._proven.get(path))]
        if not unproven:
            return PendingProofs(proven)
        if not self._kind.has_round_trips and sum(size or 0 for size in unproven.values()) <= _INLINE_BYTES:
            return PendingProofs(
                proven, [proof for path, size in unproven.items() for proof in self._prove(path, size)]
            )
        futures = [_pool(os.getpid()).submit(self._prove, path, size) for path, size in unproven.items()]
        pending = PendingProofs(proven, *futures)
        if not self._kind.has_round_trips:
            pending.result()
        return pending

    def accept(self, proof: Proof) -> None:
        """Take over what another process has proven, or what was proven under another name."""
        self._proven.put(proof.path, proof)

    def note(self, path: str) -> None:
        """Record that a stored file was read and has the checksum that its version records."""
        self._verified.put(path, True)

    def knows(self, path: str) -> bool:
        """Return True if a file was staged here, or read and verified."""
        return self._proven.get(path) is not None or self._verified.get(path) is not None

    def renamed(self, before: str, after: str) -> None:
        """Take over the proof of a file that got another name, if its bytes are what was looked at."""
        if not self._kind.keeps_objects_whole and (proof := self._proven.get(before)) is not None:
            self.accept(replace(proof, path=after))

    def _prove(self, path: str, size: int | None) -> list[Proof]:
        sizes = {path: size}
        if path.endswith("/"):
            sizes = {info.path: info.size_bytes for info in self._objects.list(path.rstrip("/"))}
        proofs = []
        for file, file_size in sizes.items():
            proof = self._proven.get(file) or self.proof_of(file, self._objects.inspect(file), file_size)
            self.accept(proof)
            proofs.append(proof)
        return proofs

    def proof_of(self, path: str, inspected: Inspected | None, size: int | None) -> Proof:
        """Return the proof that a look at a file gives; `StorageError` when the file is not whole."""
        if inspected is None:
            raise not_whole(path, "it is not there")
        if size is not None and inspected.size_bytes != size:
            raise not_whole(path, f"it has {inspected.size_bytes} of {size} bytes")
        if (fault := fault_of(path, inspected.size_bytes, inspected.tail)) is not None:
            raise not_whole(path, fault)
        return Proof(path, inspected.size_bytes, inspected.checksum)


def not_whole(path: str, fault: str) -> StorageError:
    """Return the refusal to publish what a write has left incomplete."""
    return StorageError(
        f"`{path}` was not written whole: {fault}. A write to storage was lost, and nothing was published; check free"
        " space, quotas and limits of file sizes, and the disk itself, then run it again",
        kind=StorageKind.UNKNOWN,
        object=path,
    )


def etag_checksum(e_tag: str | None) -> int:
    """Return the checksum of an object of an object store.

    >>> etag_checksum('"9e107d9d372bb6826bd81d3542a419d6"') == etag_checksum("9e107d9d372bb6826bd81d3542a419d6")
    True
    """
    return crc32((e_tag or "").strip('"').encode())


@cache
def _pool(_process: int) -> ThreadPoolExecutor:
    # Its tasks wait for nothing but storage, so other pools may wait for it. Keyed by process id: a forked child
    # inherits the pool object, but none of its threads.
    return ThreadPoolExecutor(PROOF_THREADS, thread_name_prefix="omnigraph-proof")


# Checksums of bytes that the record of a commit does not know: of files that a hard drop overwrites, and of copies from
# an object store, whose ETags depend on how an object was uploaded.
OVERWRITTEN_PATH: Final = "__checksums"


class ChecksumKind(StrEnum):
    """What a checksum is the CRC-32 of: the bytes of a file, or the ETag that an object store gave them."""

    CONTENT = "crc32"
    ETAG = "etag"


_ENTRY: Final = np.dtype([("path", "<u8"), ("checksum", "<u4")])


def pack(kind: ChecksumKind, proofs: Iterable[Proof], earlier: str = "") -> str:
    """Return what was proven as one text, together with an earlier one if that has the same kind of checksums.

    >>> text = pack(ChecksumKind.CONTENT, [Proof("nodes/a/data/b.lance", 10, 7)])
    >>> text.startswith("crc32:"), unpack(text)[1][path_key("nodes/a/data/b.lance")]
    (True, 7)
    """
    before, checksums = unpack(earlier) if earlier else (kind, {})
    checksums = (checksums if before is kind else {}) | {path_key(proof.path): proof.checksum for proof in proofs}
    entries = np.array(sorted(checksums.items()), _ENTRY)
    return f"{kind}:{b64encode(entries.tobytes()).decode()}" if checksums else ""


def unpack(text: str) -> tuple[ChecksumKind, dict[int, int]]:
    """Return the checksums that a text holds, by the key of their path."""
    kind, _, packed = text.partition(":")
    entries = np.frombuffer(b64decode(packed, validate=True), _ENTRY)
    return ChecksumKind(kind), dict(zip(entries["path"].tolist(), entries["checksum"].tolist(), strict=True))


def record_overwritten(store: Store, files: Mapping[str, bytes]) -> None:
    """Record the checksums of files that are about to be overwritten in place, beside the graph's datasets."""
    proofs = [Proof(path, len(data), crc32(data)) for path, data in files.items()]
    store.objects.write(f"{OVERWRITTEN_PATH}/{new_ulid()}", pack(ChecksumKind.CONTENT, proofs).encode())


def record_copied(store: Store, checksums: Mapping[str, int]) -> None:
    """Record the CRC-32 of the bytes of files that were copied to a graph, by path."""
    proofs = [Proof(path, 0, checksum) for path, checksum in checksums.items()]
    store.objects.write(f"{OVERWRITTEN_PATH}/{new_ulid()}", pack(ChecksumKind.CONTENT, proofs).encode())


def read_overwritten_checksums(store: Store) -> dict[int, set[int]]:
    """Return the checksums that overwritten and copied files may have, by the key of their path."""
    checksums: dict[int, set[int]] = {}
    for info in store.objects.list(OVERWRITTEN_PATH):
        for key, checksum in unpack(store.objects.read(info.path).decode())[1].items():
            checksums.setdefault(key, set()).add(checksum)
    return checksums


def checksum_text(kind: ChecksumKind, proof: Proof) -> str:
    """Return the checksum of one file as text.

    >>> checksum_text(ChecksumKind.CONTENT, Proof("a", 10, 255))
    'crc32:000000ff'
    """
    return f"{kind}:{proof.checksum:08x}"


def path_key(path: str) -> int:
    """Return the hash of a path, relative to the graph's root."""
    return int.from_bytes(blake2b(path.encode(), digest_size=8).digest(), "little")
