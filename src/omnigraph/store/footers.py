"""Footers: what the end of a file says about where it ought to end. Pure.

A write that failed may leave a file short, and Lance does not always notice when it is the last one.
"""

from __future__ import annotations

import struct
from typing import Final

# How much of the end of a file any of these checks looks at.
FOOTER_BYTES: Final = 64

_MAGIC: Final = b"LANC"
# Three positions, two counts, two version numbers, and the magic.
_FILE_FOOTER: Final = struct.Struct("<QQQIIHH4s")
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
    """Tell whether the file of a transaction says what the manifest that it made says: a copy stands in both."""
    position = int.from_bytes(manifest[-_MANIFEST_FOOTER.size :][:8], "little")
    start = position - len(transaction)
    return manifest[start:position] == transaction and manifest[start - 4 : start] == len(transaction).to_bytes(
        4, "little"
    )


def _file_fault(size_bytes: int, tail: bytes) -> str | None:
    if len(tail) < _FILE_FOOTER.size or not tail.endswith(_MAGIC):
        return "it has no footer"
    _, _, buffers, buffer_count, _, major, _, _ = _FILE_FOOTER.unpack(tail[-_FILE_FOOTER.size :])
    ought = buffers + buffer_count * _BUFFER_ENTRY_BYTES + _FILE_FOOTER.size
    if major == _CURRENT_MAJOR and ought != size_bytes:
        return f"its footer speaks of {ought} bytes, and it has {size_bytes}"
    return None


def _manifest_fault(size_bytes: int, tail: bytes) -> str | None:
    if len(tail) < _MANIFEST_FOOTER.size or not tail.endswith(_MAGIC):
        return "it has no footer"
    position = _MANIFEST_FOOTER.unpack(tail[-_MANIFEST_FOOTER.size :])[0]
    return None if position + _MANIFEST_FOOTER.size < size_bytes else "its footer points past its end"
