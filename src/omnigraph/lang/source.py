"""Source texts, and spans and positions in them.

Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of character offsets."""

    start: int
    end: int

    def to(self, other: Span) -> Span:
        """Return the span from the start of this one to the end of the other."""
        return Span(self.start, other.end)


@dataclass(frozen=True, slots=True)
class Position:
    """Line and column, both from 1; columns count characters."""

    line: int
    column: int


@dataclass(frozen=True)
class Source:
    """A named text with conversion of offsets to lines and columns.

    >>> Source("s.pg", "node A {\\n}").position(9)
    Position(line=2, column=1)
    """

    name: str
    text: str
    _starts: list[int] = field(default_factory=list, repr=False, compare=False)

    def position(self, offset: int) -> Position:
        starts = self._line_starts()
        line = bisect_right(starts, min(offset, len(self.text)))
        return Position(line, min(offset, len(self.text)) - starts[line - 1] + 1)

    def line_text(self, line: int) -> str:
        starts = self._line_starts()
        end = starts[line] if line < len(starts) else len(self.text)
        return self.text[starts[line - 1] : end].rstrip("\r\n")

    def _line_starts(self) -> list[int]:
        # Most sources compile without errors and need no positions, so the table is built on demand.
        if not self._starts:
            self._starts.append(0)
            self._starts.extend(i + 1 for i, char in enumerate(self.text) if char == "\n")
        return self._starts
