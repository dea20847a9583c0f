"""Lines of a text buffer, by their offsets: split, selected and counted with numpy, never one by one.

Works on bytes and line ends only, without JSON or the schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.lang.catalog import Type
from omnigraph.limits import DECODE_BLOCK_BYTES
from omnigraph.rules.arrow_typing import Numbers

_LINE_END: Final = 0x0A


@dataclass(frozen=True, slots=True)
class Lines:
    """Some lines of a buffer: line `i` is `data[starts[i]:ends[i]]`, without its end, and its number `numbers[i]`."""

    data: Numbers
    starts: Numbers
    ends: Numbers
    numbers: Numbers

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, chosen: Numbers) -> Lines:
        """Return some of the lines, chosen by a mask, by places or by a slice."""
        return Lines(self.data, self.starts[chosen], self.ends[chosen], self.numbers[chosen])

    def each(self) -> Iterator[tuple[int, bytes]]:
        """Yield the number and the text of each line."""
        text = memoryview(self.data)
        for number, start, end in zip(self.numbers.tolist(), self.starts.tolist(), self.ends.tolist(), strict=True):
            yield number, text[start:end].tobytes()


def blocks_of(buffer: bytes | memoryview, first: int) -> Iterator[Lines]:
    """Yield the lines of a buffer, many at a time; the first one has the number `first`.

    >>> [(lines.numbers.tolist(), list(lines.each())[-1]) for lines in blocks_of(b"a\\nbc", 7)]
    [([7, 8], (8, b'bc'))]
    """
    data = np.frombuffer(buffer, np.uint8)
    start = 0
    while start < len(data):
        block = data[start : start + DECODE_BLOCK_BYTES]
        ends = np.flatnonzero(block == _LINE_END)
        if start + len(block) == len(data) and block[-1] != _LINE_END:
            ends = np.append(ends, len(block))
        if not len(ends):
            # One line is longer than a block.
            end = _find_end(data, start + len(block))
            block, ends = data[start : end + 1], np.array([end - start])
        starts = np.concatenate(([0], ends[:-1] + 1))
        yield Lines(block, starts, ends, np.arange(first, first + len(ends)))
        first += len(ends)
        start += int(ends[-1]) + 1


def _find_end(data: Numbers, start: int) -> int:
    """Return the end of the line at an offset, searched block by block: a mask of all bytes would be as large."""
    for position in range(start, len(data), DECODE_BLOCK_BYTES):
        ends = np.flatnonzero(data[position : position + DECODE_BLOCK_BYTES] == _LINE_END)
        if len(ends):
            return position + int(ends[0])
    return len(data)


@dataclass(frozen=True, slots=True)
class Part:
    """Some entities of one type in the order of the input, in the layout of the type, and the line of each."""

    type: Type
    rows: pa.Table
    numbers: Numbers


@dataclass(slots=True)
class Loaded:
    """All entities of one type that an input holds, as at least one part."""

    type: Type
    parts: list[Part] = field(default_factory=list)
    count: int = 0
    size: int = 0

    def add(self, part: Part) -> None:
        """Add entities; parts may be in any order."""
        self.parts.append(part)
        self.count += part.rows.num_rows
        self.size += part.rows.nbytes

    def in_order(self) -> Part:
        """Return all entities as one part, in the order of the input."""
        if len(self.parts) == 1:
            return self.parts[0]
        rows = pa.concat_tables([part.rows for part in self.parts])
        numbers = np.concatenate([part.numbers for part in self.parts])
        if not (numbers[1:] >= numbers[:-1]).all():
            order = np.argsort(numbers, kind="stable")
            rows, numbers = rows.take(order), numbers[order]
        return Part(self.type, rows.combine_chunks(), numbers)
