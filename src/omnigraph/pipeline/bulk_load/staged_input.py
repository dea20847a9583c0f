"""The input of one load, as it was staged: keys of every row, any row again, and lines by their own files.

Stands between the driver and the tasks; decides nothing about right or wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from omnigraph.engine.embed.fetch import add_retry_counts
from omnigraph.engine.tasks import Runner, Threads
from omnigraph.engine.write.ndjson.blocks import Type
from omnigraph.limits import LOAD_BUCKET_KEYS, LOAD_BUCKETS_MAX
from omnigraph.pipeline.bulk_load.job import Job
from omnigraph.pipeline.bulk_load.key_files import Pile, Range
from omnigraph.pipeline.bulk_load.key_hashes import Found
from omnigraph.pipeline.bulk_load.matching import (
    Dropped,
    FoundByKey,
    KeyTask,
    Matched,
    Piled,
    Piles,
    drop_range,
    find_suspects,
    look_up,
    match_range,
    read_fragment_keys,
)
from omnigraph.pipeline.bulk_load.read_split import first_line
from omnigraph.pipeline.bulk_load.stage_split import (
    FetchTask,
    Rejected,
    StagedSplit,
    StagedType,
    StageTask,
    Wanted,
    fetch_rows,
    is_last_winning,
    stage_split,
)
from omnigraph.rules.arrow_typing import Numbers
from omnigraph.rules.violations import Violation
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.write.fragments import fragment_ids

P = TypeVar("P")
R = TypeVar("R")

# Rows of each type, and the lines that they stood in.
Fetched: TypeAlias = Mapping[str, tuple[pa.Table, Numbers]]


@dataclass(frozen=True, slots=True)
class StagedRows:
    """All rows of one type. They are numbered through all splits; `bounds` are where each split begins."""

    type: Type
    bounds: Numbers
    parts: Sequence[StagedType | None]

    @property
    def piles(self) -> list[Pile]:
        return [replace(pile, first=pile.first + first) for first, part in self._held() for pile in part.keys]

    def repeats(self, name: str) -> list[Found]:
        """Return the rows that repeat another one of their own file."""
        return [one.moved(first) for first, part in self._held() for own, one in part.repeats if own == name]

    def odd(self, name: str) -> list[Numbers]:
        """Return the rows whose values cannot be compared."""
        return [rows + first for first, part in self._held() for own, rows in part.odd if own == name]

    def places(self, rows: Numbers) -> list[tuple[int, Numbers]]:
        """Return for each split that holds some of the rows their numbers within it."""
        splits = np.searchsorted(self.bounds, rows, side="right") - 1
        return [(int(one), rows[splits == one] - self.bounds[one]) for one in np.unique(splits)]

    def _held(self) -> Iterator[tuple[int, StagedType]]:
        return ((int(first), part) for first, part in zip(self.bounds, self.parts, strict=True) if part)


@dataclass
class StagedInput:
    """All splits of a load, staged; a split that was found to hold wrong lines can be staged again without them."""

    job: Job
    runner: Runner
    tasks: list[StageTask]
    named: Sequence[str] = ()
    results: list[StagedSplit] = field(default_factory=list)
    types: Mapping[str, StagedRows] = field(default_factory=dict)
    _committed: dict[tuple[object, ...], Piles] = field(default_factory=dict)

    def stage(self) -> None:
        """Stage all splits."""
        self.results = self._stage("reading", self.tasks)
        self.gather()

    def stage_again(self, changed: Mapping[int, StageTask]) -> None:
        """Stage some splits anew; what was staged of them before is left for the cleaning up."""
        for place, result in zip(changed, self._stage("reading again", list(changed.values())), strict=True):
            result.embedded = add_retry_counts(self.results[place].embedded, result.embedded)
            self.tasks[place] = changed[place]
            self.results[place] = result
        self.gather()

    def _stage(self, stage: str, tasks: list[StageTask]) -> list[StagedSplit]:
        return self.runner.run(stage, partial(stage_split, self.job), tasks, [one.split.size for one in tasks])

    def gather(self) -> None:
        """Number the rows of all that was staged."""
        keys = sorted({*self.named, *(key for result in self.results for key in result.types)})
        types: dict[str, StagedRows] = {}
        for key in keys:
            parts = [result.types.get(key) for result in self.results]
            counts = [part.rows if part else 0 for part in parts]
            bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
            types[key] = StagedRows(self.job.catalog.type_of(key), bounds[:-1], parts)
        self.types = types
        self.piles = {key: one.piles for key, one in types.items()}

    # -- rows --------------------------------------------------------------------------------------------------

    def fetch(self, rows: Mapping[str, Wanted]) -> Fetched:
        """Return chosen rows in order, with their lines numbered through all files."""
        wanted: dict[int, dict[str, Wanted]] = {}
        for key, one in rows.items():
            for split, own in self.types[key].places(one.rows):
                wanted.setdefault(split, {})[key] = replace(one, rows=own)
        fetches = [FetchTask(self.tasks[split], one) for split, one in sorted(wanted.items())]
        answers = self.runner.run("looking again", partial(fetch_rows, self.job), fetches)
        found: dict[str, list[tuple[pa.Table, Numbers]]] = {}
        for split, answer in zip(sorted(wanted), answers, strict=True):
            for key, (stream, lines) in answer.items():
                table = pa.ipc.open_stream(stream).read_all()
                found.setdefault(key, []).append((table, lines + self.offset(split)))
        return {
            key: (pa.concat_tables([one for one, _ in parts]), np.concatenate([lines for _, lines in parts]))
            for key, parts in found.items()
        }

    # -- keys --------------------------------------------------------------------------------------------------

    def committed_keys(self, dataset: Dataset, table_key: str, names: Sequence[str], along: Sequence[str]) -> Piles:
        """Return files with the keys of all committed rows of a type, one for each fragment; made once a version."""
        known = (dataset.ref, table_key, tuple(names), tuple(along))
        if known not in self._committed:
            tasks = [KeyTask(dataset.ref, one, *known[1:]) for one in fragment_ids(dataset)]
            self._committed[known] = self.runner.run("reading keys", partial(read_fragment_keys, self.job), tasks)
        return self._committed[known]

    def match(self, theirs: Mapping[str, Piles]) -> list[dict[str, Matched]]:
        """Find the committed rows that the input replaces, range by range."""
        work = partial(match_range, self.job, self.piles, theirs)
        return self._by_range("matching", work, self._ranges(theirs))

    def find(self, piled: Piled) -> list[dict[str, FoundByKey]]:
        """Find what may break a set rule, range by range."""
        return self._by_range("checking", partial(find_suspects, self.job, piled), self._ranges(piled.theirs))

    def find_superseded(self) -> list[dict[str, Dropped]]:
        """Find the rows that later ones of their id replace, range by range."""
        keys = [key for key, one in self.types.items() if is_last_winning(self.job.intent, one.type)]
        piles = {key: self.piles[key] for key in keys if len(self.piles[key]) > 1}
        bounds = {key: self.types[key].bounds for key in piles}
        if not piles:
            return []
        return self._by_range("matching", partial(drop_range, self.job, piles, bounds), self._ranges({}))

    def look_up(self, piled: Piled, table_key: str, name: str, hashes: Numbers) -> tuple[Numbers, Numbers]:
        """Return hashes and rows of those of a few keys that come in."""
        ranges = [one for one in self._ranges(piled.theirs) if len(one.chosen(hashes))]
        asked = [(one.chosen(hashes), one) for one in ranges]
        parts = self._by_range("looking up", partial(look_up, self.job, piled, table_key, name), asked)
        nothing = (np.zeros(0, np.uint64), np.zeros(0, np.int64))
        found, rows = zip(*[nothing, *parts], strict=True)
        return np.concatenate(found), np.concatenate(rows)

    def _ranges(self, theirs: Mapping[str, Piles]) -> list[Range]:
        """Cut all hashes into ranges of which a task can hold one."""
        total = sum(pile.keys for side in (self.piles, theirs) for piles in side.values() for pile in piles)
        count = 1
        while total > count * LOAD_BUCKET_KEYS and count < LOAD_BUCKETS_MAX:
            count *= 2
        return [Range(number, count) for number in range(count)]

    def _by_range(self, stage: str, work: Callable[[P], R], payloads: Sequence[P]) -> list[R]:
        # What one task can hold is done before executors would have begun.
        runner = self.runner if len(payloads) > 1 else Threads()
        return runner.run(stage, work, payloads)

    # -- lines -------------------------------------------------------------------------------------------------

    def offset(self, split: int) -> int:
        """Return what to add to a line of a split to number it through all files."""
        before = sum(result.lines for result in self.results[:split])
        return before - (first_line(self.tasks[split].split) - 1)

    def through(self, split: int, violation: Violation) -> Violation:
        """Return a violation of a split with its line numbered through all files."""
        return violation if violation.line is None else replace(violation, line=violation.line + self.offset(split))

    def split_of(self, line: int) -> tuple[int, int]:
        """Return the split that holds a line, and the number by which its tasks know the line."""
        ends = np.cumsum([result.lines for result in self.results])
        split = int(np.searchsorted(ends, line, side="left"))
        return split, line - self.offset(split)

    def file_line(self, line: int) -> tuple[str, int]:
        """Return the file that holds a line, and the line's number in it."""
        split, _ = self.split_of(line)
        file = self.tasks[split].split.file
        first = next(place for place, one in enumerate(self.tasks) if one.split.file == file)
        return file, line - sum(result.lines for result in self.results[:first])

    @property
    def rejected(self) -> list[Rejected]:
        """All lines that were rejected, numbered through all files."""
        return [
            replace(one, violation=self.through(split, one.violation))
            for split, result in enumerate(self.results)
            for one in result.rejected
        ]
