"""Workers: who works out what a merge does to each type, holds it against the rules, and stages it.

The seam for executors. Workers write files that nothing names; what is merged and its publishing stay with `apply`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from omnigraph.engine.merge.conflict import Conflict
from omnigraph.engine.merge.resolution import Resolution
from omnigraph.engine.merge.settle import Resolutions
from omnigraph.engine.merge.stage import stage, staged_files
from omnigraph.engine.merge.three import Counted, GraphMerge, Three, merge_all
from omnigraph.manifest.intent import Declared
from omnigraph.manifest.model import Pin
from omnigraph.manifest.plan import Effect


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be merged; a fast forward (`is_forward`) obeys all rules already.

    Types in `adoptable` need not be staged, as long as no resolution decides about an entity of theirs.

    `hold` declares the intent under which files are staged: call it before the first one, and only then.
    """

    three: Three
    resolutions: Sequence[Resolution]
    adoptable: Mapping[str, Pin]
    is_forward: bool
    hold: Callable[[], Declared]


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of it: counts of all types that change, and either conflicts, or what was staged and what is adopted.

    `is_cut` says that there are more conflicts than these.
    """

    counts: Mapping[str, Counted]
    conflicts: Sequence[Conflict] = ()
    effects: tuple[Effect, ...] = ()
    adopted: Mapping[str, Pin] = field(default_factory=dict)
    is_cut: bool = False


class Workers(Protocol):
    """Whoever does it."""

    def merge(self, task: Task) -> Settled: ...


class ThisProcess:
    """Does it here and now, with all that changes in memory."""

    def merge(self, task: Task) -> Settled:
        merged = self._merged(task)
        counts, adopted = merged.counts, merged.adopted(task.adoptable)
        staged = {key: one for key, one in merged.merges.items() if key in counts and key not in adopted}
        if merged.conflicts or not staged:
            return Settled(counts, merged.conflicts, adopted=adopted)
        # Only now is there something to leave behind, if this process dies.
        held = task.hold()
        effects = stage(task.three.ours, staged, task.three.blobs)
        held.staging(*staged_files(effects))
        return Settled(counts, effects=effects, adopted=adopted)

    @staticmethod
    def _merged(task: Task) -> GraphMerge:
        three, resolutions = task.three, Resolutions(task.resolutions)
        if not task.is_forward:
            return merge_all(three, resolutions)
        resolutions.refuse_open()
        types = [one for one in three.types() if one.table_key not in task.adoptable]
        return GraphMerge({one.table_key: three.merge(one) for one in types})
