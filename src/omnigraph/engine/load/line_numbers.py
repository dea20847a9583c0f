"""Line numbers of an input: within a split, within a file or frame, and global ones that count through all files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from omnigraph.engine.input.splits import Split
from omnigraph.rules.delta import Locate, Violation


@dataclass(frozen=True, slots=True)
class LineNumbers:
    """Converts between them; `counts` are the lines of each split."""

    splits: Sequence[Split]
    counts: Sequence[int]

    def offset(self, split: int) -> int:
        """Return what to add to a line number of a split to make it global."""
        return sum(self.counts[:split]) - (self.splits[split].first_line - 1)

    def globalize(self, split: int, violation: Violation) -> Violation:
        """Return a violation of a split with its global line number."""
        return violation if violation.line is None else replace(violation, line=violation.line + self.offset(split))

    def in_split(self, line: int) -> tuple[int, int]:
        """Return the split that holds a global line, and the line's number in that split."""
        split = int(np.searchsorted(np.cumsum(self.counts), line, side="left"))
        return split, line - self.offset(split)

    def in_file(self, line: int) -> tuple[str, int]:
        """Return the name of the file or frame that holds a global line, and the line's number in it."""
        last, _ = self.in_split(line)
        name, first = self.splits[last].shown_name, last
        # A file may be given twice, for two types for example, and a frame is staged in several files.
        while first and self._continues(self.splits[first], self.splits[first - 1]):
            first -= 1
        return name, line - sum(self.counts[:first])

    @property
    def locate(self) -> Locate | None:
        """Find the file of a line; None if there is only one, read once."""
        is_one_file = all(self._continues(split, before) for before, split in pairwise(self.splits))
        return None if is_one_file else self.in_file

    @staticmethod
    def _continues(split: Split, earlier: Split) -> bool:
        """Return True if the lines of a split are counted on from those of the split before it."""
        is_same_frame = split.name is not None and (split.name, split.table_key) == (earlier.name, earlier.table_key)
        return is_same_frame or not split.is_first
