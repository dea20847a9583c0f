"""Workers: who works out what a merge does to each type, holds it against the rules, and stages it.

The seam for executors. Workers write files that nothing names; what is merged and its publishing stay with `apply`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from omnigraph.engine.merge.conflict import Conflict
from omnigraph.engine.merge.resolution import Resolution
from omnigraph.engine.merge.rows import RowMerge
from omnigraph.engine.merge.settle import Resolutions
from omnigraph.engine.merge.stage import stage, staged_files
from omnigraph.engine.merge.three import Three, merge_all
from omnigraph.manifest.intent import Declared
from omnigraph.manifest.model import Pin
from omnigraph.manifest.plan import Effect


@dataclass(frozen=True, slots=True)
class Counted:
    """How many entities of one type a merge inserts, updates and deletes."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @classmethod
    def of(cls, merge: RowMerge) -> Counted:
        return cls(merge.inserted.num_rows, merge.updated.num_rows, len(merge.deleted))


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be merged. Of adopted types nothing is staged; a fast forward (`is_forward`) obeys all rules already.

    `hold` declares the intent under which files are staged: call it before the first one, and only then.
    """

    three: Three
    resolutions: Sequence[Resolution]
    adopted: Mapping[str, Pin]
    is_forward: bool
    hold: Callable[[], Declared]


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of it: counts of all types that change, and either conflicts or what was staged.

    `is_cut` says that there are more conflicts than these.
    """

    counts: Mapping[str, Counted]
    conflicts: Sequence[Conflict] = ()
    effects: tuple[Effect, ...] = ()
    is_cut: bool = False


class Workers(Protocol):
    """Whoever does it."""

    def merge(self, task: Task) -> Settled: ...


class ThisProcess:
    """Does it here and now, with all that changes in memory."""

    def merge(self, task: Task) -> Settled:
        merges, conflicts = self._merges(task)
        counts = {key: Counted.of(one) for key, one in merges.items() if not one.changes_nothing}
        staged = {key: one for key, one in merges.items() if key in counts and key not in task.adopted}
        if conflicts or not staged:
            return Settled(counts, conflicts)
        # Only now is there something to leave behind, if this process dies.
        held = task.hold()
        effects = stage(task.three.ours, staged)
        held.staging(*staged_files(effects))
        return Settled(counts, effects=effects)

    @staticmethod
    def _merges(task: Task) -> tuple[Mapping[str, RowMerge], Sequence[Conflict]]:
        three, resolutions = task.three, Resolutions(task.resolutions)
        if not task.is_forward:
            return merge_all(three, resolutions)
        resolutions.refuse_open()
        return {one.table_key: three.merge(one) for one in three.types() if one.table_key not in task.adopted}, ()
