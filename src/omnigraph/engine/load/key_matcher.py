"""Compare the keys of an input with each other and with committed ones, by one task per range of hashes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from omnigraph.engine.key_buckets.files import FileSlice, HashRange
from omnigraph.engine.load.matching import (
    ComparedKeys,
    KeySegments,
    KeyTask,
    find_superseded,
    look_up_keys,
    read_fragment_keys,
)
from omnigraph.engine.tasks import ThisThread
from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import LOAD_BUCKET_KEYS, LOAD_BUCKETS_MAX
from omnigraph.rules.arrow_typing import Numbers
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.write.fragments import fragment_ids

if TYPE_CHECKING:
    from omnigraph.engine.load.buckets import InBuckets

P = TypeVar("P")
R = TypeVar("R")


@dataclass
class KeyMatcher:
    """Compares the keys of an input with each other and with committed ones: a partitioned hash join.

    All 64-bit hashes are cut into equal ranges. Equal keys have equal hashes, so a task that holds one range of every
    key segment sees all rows that may clash in it, and the driver never holds hashes at all.
    """

    input: InBuckets
    _committed: dict[tuple[object, ...], KeySegments] = field(default_factory=dict)

    def committed_keys(
        self, dataset: Dataset, table_key: TypeKey, names: Sequence[str], extra: Sequence[str]
    ) -> KeySegments:
        """Return segments with the keys of all committed rows of a type, one per fragment; built once per version."""
        signature = (dataset.ref, table_key, tuple(names), tuple(extra))
        if signature not in self._committed:
            tasks = [KeyTask(dataset.ref, fragment, *signature[1:]) for fragment in fragment_ids(dataset)]
            run = self.input.runner.run
            self._committed[signature] = run("reading keys", partial(read_fragment_keys, self.input.job), tasks)
        return self._committed[signature]

    def run(self, stage: str, work: Callable[[HashRange], R], committed: Mapping[TypeKey, KeySegments]) -> list[R]:
        """Run work over the keys of the input and some committed ones, range by range."""
        return self._run(stage, work, self._ranges(committed))

    def find_superseded(self) -> list[dict[TypeKey, dict[int, FileSlice]]]:
        """Find the rows that another row of the same id supersedes, range by range."""
        types = self.input.types
        keys = [key for key, rows in types.items() if self.input.job.winner(rows.type) != "error"]
        # Within one segment the winner was chosen when it was staged.
        segments = {key: types[key].segments for key in keys if len(types[key].segments) > 1}
        if not segments:
            return []
        bounds = {key: types[key].bounds for key in segments}
        return self.run("matching", partial(find_superseded, self.input.job, segments, bounds), {})

    def look_up(
        self, compared: ComparedKeys, table_key: TypeKey, name: str, hashes: Numbers
    ) -> tuple[Numbers, Numbers]:
        """Return hashes and rows of the incoming keys that are among a few hashes."""
        lookups = [
            (selected, within) for within in self._ranges(compared.committed) if len(selected := within.select(hashes))
        ]
        parts = self._run("looking up", partial(look_up_keys, self.input.job, compared, table_key, name), lookups)
        empty = (np.zeros(0, np.uint64), np.zeros(0, np.int64))
        found_hashes, rows = zip(*[empty, *parts], strict=True)
        return np.concatenate(found_hashes), np.concatenate(rows)

    @property
    def segments(self) -> dict[TypeKey, KeySegments]:
        return {key: rows.segments for key, rows in self.input.types.items()}

    def _ranges(self, committed: Mapping[TypeKey, KeySegments]) -> list[HashRange]:
        """Cut all hashes into ranges that fit one task each; a power of two, so that ranges align with buckets."""
        sides = (self.segments, committed)
        total = sum(segment.keys for side in sides for segments in side.values() for segment in segments)
        count = 1
        while total > count * LOAD_BUCKET_KEYS and count < LOAD_BUCKETS_MAX:
            count *= 2
        return [HashRange(number, count) for number in range(count)]

    def _run(self, stage: str, work: Callable[[P], R], payloads: Sequence[P]) -> list[R]:
        # A single task finishes here before executors would have started.
        runner = self.input.runner if len(payloads) > 1 else ThisThread()
        return runner.run(stage, work, payloads)
