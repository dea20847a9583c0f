"""The lines of a split: those that start in its range of bytes, or all of a compressed file, in bounded blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from omnigraph.engine.input.filesystems import open_stream
from omnigraph.engine.input.formats import reject_other_format
from omnigraph.engine.input.ndjson.reader import line_too_long, read_blocks
from omnigraph.engine.input.splits import Split
from omnigraph.errors import UsageError
from omnigraph.limits import LOAD_LINE_BYTES_MAX, LOAD_REJECTED_CHARACTERS, LOAD_SPLIT_BYTES
from omnigraph.rules.delta import Findings

_STEP_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LineBlock:
    """Lines one after the other, the first of which has the number `first`; the last may be cut, as it is too long."""

    text: bytes
    first: int
    is_cut: bool

    @property
    def complete(self) -> bytes:
        """The lines that are whole."""
        return self.text[: self.text.rfind(b"\n") + 1] if self.is_cut else self.text

    @property
    def numbers(self) -> range:
        """The numbers of all lines."""
        count = self.text.count(b"\n") + (not self.text.endswith(b"\n") and bool(self.text))
        return range(self.first, self.first + count)

    def text_of(self, line: int) -> str:
        """Return the beginning of a line; it is searched for, so call it for few."""
        raw = self.text.split(b"\n", line - self.first + 1)[line - self.first]
        # A character takes at most four bytes.
        return raw[: 4 * LOAD_REJECTED_CHARACTERS].decode(errors="replace").rstrip("\r")[:LOAD_REJECTED_CHARACTERS]


def read_lines(split: Split, findings: Findings) -> Iterator[LineBlock]:
    """Yield the lines of a split of NDJSON; add those that are too long to the findings."""
    line = split.first_line
    for text, is_cut in read_line_bytes(split):
        if line == 1:
            reject_other_format(text, split.shown_name)
        block = LineBlock(text, line, is_cut)
        line = block.numbers.stop
        if is_cut:
            findings.add(line_too_long(line - 1, LOAD_LINE_BYTES_MAX))
        yield block


def line_offset(split: Split) -> int:
    """Return what to add to the number of a line in a split to have its number in the file."""
    # The line that starts at the first byte of the split belongs to it.
    stop = max(split.start - 1, 0)
    with split.open() as file:
        return sum(file.read_at(min(_STEP_BYTES, stop - at), at).count(b"\n") for at in range(0, stop, _STEP_BYTES))


def read_line_bytes(split: Split) -> Iterator[tuple[bytes, bool]]:
    """Yield blocks of complete lines, and whether the last line is too long and was truncated."""
    if split.content is not None:
        yield from ((block, False) for block in read_blocks(split.content))
        return
    if split.compression is None:
        yield _read_byte_range(split)
        return
    if not split.size:
        raise UsageError(f"`{split.file}` is empty, so it is not a compressed file; check it", path=split.file)
    with open_stream(split.file, split.compression) as stream:
        unfinished: list[bytes] = []
        size = 0
        while piece := stream.read(LOAD_SPLIT_BYTES):
            head, end, tail = piece.rpartition(b"\n")
            if end and size > LOAD_LINE_BYTES_MAX:
                yield _truncate_line(unfinished), True
                unfinished, size = [], 0
                _, has_more, head = head.partition(b"\n")
                end = end if has_more else b""
            if end:
                yield b"".join((*unfinished, head, end)), False
                unfinished, size = [], 0
            if size <= LOAD_LINE_BYTES_MAX:
                unfinished.append(tail)
            size += len(tail)
        if size > LOAD_LINE_BYTES_MAX:
            yield _truncate_line(unfinished), True
        elif size:
            yield b"".join(unfinished), False


def _truncate_line(pieces: Sequence[bytes]) -> bytes:
    """Return as much of an oversized line as a report shows."""
    return b"".join(piece[: 4 * LOAD_REJECTED_CHARACTERS] for piece in pieces[:1])


def _read_byte_range(split: Split) -> tuple[bytes, bool]:
    """Return the lines that start within the split, the last one up to its end, and whether that was truncated."""
    with split.open() as file:
        # The byte before the split says whether a line starts at its first byte.
        begin = max(split.start - 1, 0)
        data: bytes = file.read_at(split.stop - begin, begin)
        if split.start:
            data = data.partition(b"\n")[2]
        if not data or data.endswith(b"\n"):
            return data, False
        end = _find_line_end(file, split.stop)
        if end is None:
            last = data.rfind(b"\n") + 1
            return data[:last] + _truncate_line([data[last:]]), True
        return b"".join((data, file.read_at(end - split.stop, split.stop))), False


def _find_line_end(file: Any, start: int) -> int | None:
    """Return the end of the line that continues at `start`; None if the line is too long."""
    for position in range(start, start + LOAD_LINE_BYTES_MAX + 2, _STEP_BYTES):
        piece: bytes = file.read_at(_STEP_BYTES, position)
        newline = piece.find(b"\n")
        if newline >= 0 or len(piece) < _STEP_BYTES:
            return position + (newline + 1 if newline >= 0 else len(piece))
    return None
