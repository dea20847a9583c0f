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
FORMAT_STAMP: Final = 8


@dataclass(frozen=True, slots=True)
class FormatUpgrade:
    """Rewrites the rows of one format as rows of a later one; without `rewrite`, they are the same in both.

    A graph that needs no rows rewritten is opened as it is, and its next commit is in the new format.
    """

    before: int
    after: int
    rewrite: Callable[[pa.Table], pa.Table] | None


# Graphs in the formats of the other system are imported by export and load. Format 8 has commits that were published
# together; a commit of format 7 is one by itself.
UPGRADES: tuple[FormatUpgrade, ...] = (FormatUpgrade(7, 8, None),)


def needs_rewrite(stamp: int) -> bool:
    """Return True if a graph of a readable format must be upgraded before this release may write to it."""
    return any(upgrade.rewrite is not None for upgrade in upgrade_path(stamp, FORMAT_STAMP) or ())


def upgrade_path(before: int, after: int) -> tuple[FormatUpgrade, ...] | None:
    """Return the upgrades that lead from one format to another; None if there is no such path.

    >>> upgrade_path(7, 7), upgrade_path(3, 7), len(upgrade_path(7, 8))
    ((), None, 1)
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
