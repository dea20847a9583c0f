"""Checksums of many files in little room: which file, and what its bytes are.

A file is known by a hash of its path, so that a record costs sixteen characters whatever its name.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, Final
from zlib import crc32

import numpy as np

from omnigraph.ids import new_ulid
from omnigraph.store.proof import Proof

if TYPE_CHECKING:
    from omnigraph.store.store import Store

# Files never change, except where a hard drop overwrites bytes; their new checksums are kept here.
OVERWRITTEN_PATH: Final = "__checksums"


class ChecksumKind(StrEnum):
    """What a checksum is the CRC-32 of: the bytes of a file, or the ETag that an object store gave them."""

    CONTENT = "crc32"
    ETAG = "etag"


_ENTRY: Final = np.dtype([("path", "<u8"), ("checksum", "<u4")])


def pack(kind: ChecksumKind, proofs: Iterable[Proof]) -> str:
    """Return what was proven as one text.

    >>> text = pack(ChecksumKind.CONTENT, [Proof("nodes/a/data/b.lance", 10, 7)])
    >>> text.startswith("crc32:"), unpack(text)[1][path_key("nodes/a/data/b.lance")]
    (True, 7)
    """
    return _packed(kind, {path_key(one.path): one.checksum for one in proofs})


def _packed(kind: ChecksumKind, known: Mapping[int, int]) -> str:
    entries = np.array(sorted(known.items()), _ENTRY)
    return f"{kind}:{b64encode(entries.tobytes()).decode()}" if known else ""


def extend(kind: ChecksumKind, earlier: str, proofs: Iterable[Proof]) -> str:
    """Return a record that adds proofs to an earlier one; another kind of checksums is not carried on."""
    before, known = unpack(earlier) if earlier else (kind, {})
    known = {**(known if before is kind else {}), **{path_key(one.path): one.checksum for one in proofs}}
    return _packed(kind, known)


def unpack(text: str) -> tuple[ChecksumKind, dict[int, int]]:
    """Return the checksums that a text holds, by the key of their path."""
    kind, _, packed = text.partition(":")
    entries = np.frombuffer(b64decode(packed, validate=True), _ENTRY)
    return ChecksumKind(kind), dict(zip(entries["path"].tolist(), entries["checksum"].tolist(), strict=True))


def record_overwritten(store: Store, files: Mapping[str, bytes]) -> None:
    """Record the checksums of files that are about to be overwritten in place, beside the graph's datasets."""
    proofs = [Proof(path, len(data), crc32(data)) for path, data in files.items()]
    store.objects.write(f"{OVERWRITTEN_PATH}/{new_ulid()}", pack(ChecksumKind.CONTENT, proofs).encode())


def read_overwritten_checksums(store: Store) -> dict[int, set[int]]:
    """Return the checksums that overwritten files may have, by the key of their path."""
    known: dict[int, set[int]] = {}
    for info in store.objects.list(OVERWRITTEN_PATH):
        for key, checksum in unpack(store.objects.read(info.path).decode())[1].items():
            known.setdefault(key, set()).add(checksum)
    return known


def checksum_text(kind: ChecksumKind, proof: Proof) -> str:
    """Return the checksum of one file as text.

    >>> checksum_text(ChecksumKind.CONTENT, Proof("a", 10, 255))
    'crc32:000000ff'
    """
    return f"{kind}:{proof.checksum:08x}"


def path_key(path: str) -> int:
    """Return the number that stands for a path, relative to the graph's root."""
    return int.from_bytes(blake2b(path.encode(), digest_size=8).digest(), "little")
