"""Streams of bytes as the CSV reader of Arrow needs them: UTF-8 that marks what is not, and line ends in one piece."""

from __future__ import annotations

import codecs
import io
import re
from typing import Any, Final

import pyarrow as pa


class MarkedBytes:
    """A stream of UTF-8 in which every byte that is not UTF-8 became a mark.

    Arrow decodes a row with too many or too few fields before it reports it, and fails if it cannot.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")(_MARK_ERRORS)

    def read(self, size: int) -> bytes:
        text = ""
        # The decoder keeps the beginning of a character, and an empty answer would be the end.
        while not text:
            piece = bytes(self._stream.read(size))
            text = self._decoder.decode(piece, final=not piece)
            if not piece:
                break
        return text.encode()


class UnsplitLineEnds(io.RawIOBase):
    """A stream whose chunks never end between `\\r` and `\\n`.

    Arrow drops a `\\n` that begins a block after a `\\r`, also inside quotes, where both belong to the value.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._carriage_return = b""

    def read(self, size: int = -1) -> bytes:
        piece = self._carriage_return + bytes(self._stream.read(max(size - len(self._carriage_return), 1)))
        self._carriage_return = b""
        if piece.endswith(b"\r") and len(piece) > 1:
            piece, self._carriage_return = piece[:-1], b"\r"
        return piece

    def readable(self) -> bool:
        return True


# Bytes that are not UTF-8 are marked by characters of the last private plane, which no text has a use for.
_MARK: Final = 0x10FF00
_MARKED: Final = re.compile(rb"\xf4\x8f[\xbe\xbf]")
_MARKED_TEXT: Final = re.compile("[\U0010ff80-\U0010ffff]")
_MARK_ERRORS: Final = "omnigraph-mark"


def _mark_bytes(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "".join(chr(_MARK + byte) for byte in error.object[error.start : error.end]), error.end


codecs.register_error(_MARK_ERRORS, _mark_bytes)


def find_marked(column: Any) -> list[int]:
    """Return the rows of a column of bytes that hold a mark; looks at each value only if there are any."""
    data = [chunk.buffers()[2] for chunk in (column.chunks if isinstance(column, pa.ChunkedArray) else [column])]
    if not any(buffer is not None and _MARKED.search(buffer) for buffer in data):
        return []
    return [row for row, value in enumerate(column.to_pylist()) if value is not None and _MARKED.search(value)]


def without_marks(text: str) -> str:
    """Return a text with the usual replacement character for each mark."""
    return _MARKED_TEXT.sub("\ufffd", text)
