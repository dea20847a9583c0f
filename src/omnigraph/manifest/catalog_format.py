"""Catalog formats: the version that this release writes, and the upgrade steps that lead to it.

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
class FormatUpgrade:
    """Rewrites the rows of one format as rows of a later one."""

    before: int
    after: int
    rewrite: Callable[[pa.Table], pa.Table]


# Graphs in the formats of the other system are imported by export and load.
UPGRADES: tuple[FormatUpgrade, ...] = ()


def upgrade_path(before: int, after: int) -> tuple[FormatUpgrade, ...] | None:
    """Return the upgrades that lead from one format to another; None if there is no such path.

    >>> upgrade_path(7, 7), upgrade_path(3, 7)
    ((), None)
    """
    path: list[FormatUpgrade] = []
    while before != after:
        upgrade = next(
            (candidate for candidate in UPGRADES if candidate.before == before and candidate.after <= after), None
        )
        if upgrade is None:
            return None
        path.append(upgrade)
        before = upgrade.after
    return tuple(path)
