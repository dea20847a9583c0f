"""Where a merge runs, and into how many parts it is cut: decided by how many rows and bytes may have to be compared.

| What may have moved, on both sides | Where it is merged |
|---|---|
| at most `MERGE_HELD_BYTES_MAX` bytes | in this thread, each type in one piece and in memory |
| rows that take at most `MERGE_LOCAL_SECONDS_MAX` of CPU time | in threads of this process, range by range |
| more | on executors, if there are any |
"""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.engine.changes.row_diff import candidates_estimate
from omnigraph.engine.merge.merge_job import MergeStore
from omnigraph.engine.merge.type_merge import TypeVersions
from omnigraph.engine.runners import Runners
from omnigraph.engine.tasks import Runner, ThisThread, Threads
from omnigraph.limits import (
    MERGE_BUCKET_KEYS,
    MERGE_HELD_BYTES_MAX,
    MERGE_LOCAL_SECONDS_MAX,
    MERGE_RANGE_BYTES,
    MERGE_RANGE_ENTITIES,
    MERGE_RANGES_MAX,
)
from omnigraph.store.read.dataset import DatasetRef
from omnigraph.store.read.version_diff import Moved

# What `make bench` measured a merge to do per second of CPU time.
_ROWS_PER_SECOND = 50_000


@dataclass(frozen=True, slots=True)
class Placement:
    """How a merge is cut, and where it runs; without a `runner`, that follows from its size."""

    runner: Runner | None = None
    range_entities: int = MERGE_RANGE_ENTITIES
    bucket_keys: int = MERGE_BUCKET_KEYS

    def choose_runner(self, moved: Moved, runners: Runners) -> Runner:
        if self.runner is not None:
            return self.runner
        local: Runner = ThisThread() if moved.bytes <= MERGE_HELD_BYTES_MAX else Threads()
        return runners.by_size(moved.rows // _ROWS_PER_SECOND, MERGE_LOCAL_SECONDS_MAX, local)

    def ranges(self, moved: Moved) -> int:
        """Return into how many ranges of ids a type is cut, of which so much may have moved."""
        return _count_parts(max(moved.rows / self.range_entities, moved.bytes / MERGE_RANGE_BYTES))

    def buckets(self, moved: Moved) -> int:
        """Return into how many buckets the keys of all types are cut."""
        return _count_parts(moved.rows / self.bucket_keys)


def _count_parts(parts: float) -> int:
    return min(max(1, -int(-parts // 1)), MERGE_RANGES_MAX)


def split_parts(moved: Moved) -> int:
    return _count_parts(moved.bytes / MERGE_RANGE_BYTES)


def estimate_moves(store: MergeStore, versions: TypeVersions) -> dict[DatasetRef, Moved]:
    """Estimate how much of a type may differ between the base and each other version."""
    first = store.open(versions.base.first)
    return {ref: candidates_estimate(first, store.open(ref)) for ref in versions.moved}
