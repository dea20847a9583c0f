"""Formats of the catalog: the steps that lead from an older one to the one that this release writes.

Pure: rows in, rows out. A step must be true for every version there ever was, because history is read through it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    # `omnigraph version` reads the format without loading Arrow.
    import pyarrow as pa

# The format that this release writes; 1 to 6 belong to another system.
FORMAT_STAMP: Final = 7


@dataclass(frozen=True, slots=True)
class Step:
    """How the rows of one format are said in the next one that we know."""

    before: int
    after: int
    rewrite: Callable[[pa.Table], pa.Table]


# The formats before the first of ours belong to another system, whose graphs come by export and load.
STEPS: tuple[Step, ...] = ()


def steps(before: int, after: int) -> tuple[Step, ...] | None:
    """Return the steps from one format to another; None when they do not lead there.

    >>> steps(7, 7), steps(3, 7)
    ((), None)
    """
    way: list[Step] = []
    while before != after:
        step = next((candidate for candidate in STEPS if candidate.before == before and candidate.after <= after), None)
        if step is None:
            return None
        way.append(step)
        before = step.after
    return tuple(way)
