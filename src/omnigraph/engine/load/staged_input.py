"""The driver's view of a staged input: its rows by type, its line numbers, and the range tasks that compare its keys.

Stands between the driver and the tasks; `set_checks` and the rules decide what is valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from omnigraph.engine.embed.cache import add_retry_counts
from omnigraph.engine.input.read_split import first_line
from omnigraph.engine.input.splits import Split
from omnigraph.engine.key_buckets.files import FileSlice, HashRange, KeySegment
from omnigraph.engine.key_buckets.hashes import Candidates
from omnigraph.engine.load.job import Job
from omnigraph.engine.load.matching import (
    CandidatesByKey,
    ComparedKeys,
    KeySegments,
    KeyTask,
    ReplacedRows,
    find_candidates,
    find_replaced,
    find_superseded,
    look_up_keys,
    read_fragment_keys,
)
from omnigraph.engine.load.stage_split import (
    FetchTask,
    RowRequest,
    StagedSplit,
    StagedType,
    StageTask,
    fetch_rows,
    stage_split,
)
from omnigraph.engine.tasks import Runner, Threads
from omnigraph.lang.catalog import Type, TypeKey
from omnigraph.limits import LOAD_BUCKET_KEYS, LOAD_BUCKETS_MAX
from omnigraph.rules.arrow_typing import Numbers
from omnigraph.rules.delta import Locate, Violation
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.write.fragments import fragment_ids

P = TypeVar("P")
R = TypeVar("R")

# Rows of each type with their global line numbers.
FetchedRows: TypeAlias = Mapping[TypeKey, tuple[pa.Table, Numbers]]


@dataclass(frozen=True, slots=True)
class StagedRows:
    """All staged rows of one type, numbered across splits; `bounds` has the number of each split's first row."""

    type: Type
    bounds: Numbers
    parts: Sequence[StagedType | None]

    @property
    def segments(self) -> list[KeySegment]:
        return [
            replace(segment, first=segment.first + first) for first, part in self._parts() for segment in part.segments
        ]

    def duplicates(self, name: str) -> list[Candidates]:
        """Return the rows that repeat a key within their segment."""
        return [
            rows.shift(first) for first, part in self._parts() for key_name, rows in part.duplicates if key_name == name
        ]

    def incomparable(self, name: str) -> list[Numbers]:
        """Return the rows whose values the uniqueness rule refuses to compare."""
        return [
            rows + first for first, part in self._parts() for key_name, rows in part.incomparable if key_name == name
        ]

    def by_split(self, rows: Numbers) -> list[tuple[int, Numbers]]:
        """Group rows by split, as numbers within the split."""
        splits = np.searchsorted(self.bounds, rows, side="right") - 1
        return [(int(split), rows[splits == split] - self.bounds[split]) for split in np.unique(splits)]

    def _parts(self) -> Iterator[tuple[int, StagedType]]:
        return ((int(first), part) for first, part in zip(self.bounds, self.parts, strict=True) if part)


@dataclass
class StagedInput:
    """All splits of a load, staged. A split that holds wrong or superseded rows can be staged again without them."""

    job: Job
    runner: Runner
    tasks: list[StageTask]
    # Types that the caller named; they count as loaded even if the input has no row of them.
    named: Sequence[TypeKey] = ()
    results: list[StagedSplit] = field(default_factory=list)
    types: Mapping[TypeKey, StagedRows] = field(default_factory=dict)

    def stage(self) -> None:
        self.results = self._run("reading", self.tasks)
        self.number_rows()

    def stage_again(self, changed: Mapping[int, StageTask]) -> None:
        """Stage some splits again; files of their first attempt are removed by the cleanup of the load."""
        for split, result in zip(changed, self._run("reading again", list(changed.values())), strict=True):
            result.embedded = add_retry_counts(self.results[split].embedded, result.embedded)
            self.tasks[split] = changed[split]
            self.results[split] = result
        self.number_rows()

    def _run(self, stage: str, tasks: list[StageTask]) -> list[StagedSplit]:
        return self.runner.run(stage, partial(stage_split, self.job), tasks, [task.split.size for task in tasks])

    def number_rows(self) -> None:
        """Number the rows of each type across all splits."""
        types: dict[TypeKey, StagedRows] = {}
        for key in sorted({*self.named, *(key for result in self.results for key in result.types)}):
            parts = [result.types.get(key) for result in self.results]
            counts = [part.rows if part else 0 for part in parts]
            bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
            types[key] = StagedRows(self.job.catalog.type_of(key), bounds[:-1], parts)
        self.types = types

    @property
    def segments(self) -> dict[TypeKey, KeySegments]:
        return {key: rows.segments for key, rows in self.types.items()}

    @property
    def lines(self) -> LineNumbers:
        return LineNumbers(self.tasks, self.results)

    def fetch(self, requests: Mapping[TypeKey, RowRequest]) -> FetchedRows:
        """Read the requested rows again, in order, with their global line numbers."""
        by_split: dict[int, dict[TypeKey, RowRequest]] = {}
        for key, request in requests.items():
            for split, rows in self.types[key].by_split(request.rows):
                by_split.setdefault(split, {})[key] = replace(request, rows=rows)
        fetches = [FetchTask(self.tasks[split], split_requests) for split, split_requests in sorted(by_split.items())]
        answers = self.runner.run("reading again", partial(fetch_rows, self.job), fetches)
        fetched: dict[TypeKey, list[tuple[pa.Table, Numbers]]] = {}
        line_numbers = self.lines
        for split, answer in zip(sorted(by_split), answers, strict=True):
            for key, (stream, lines) in answer.items():
                table = pa.ipc.open_stream(stream).read_all()
                fetched.setdefault(key, []).append((table, lines + line_numbers.offset(split)))
        return {
            key: (pa.concat_tables([table for table, _ in parts]), np.concatenate([lines for _, lines in parts]))
            for key, parts in fetched.items()
        }


@dataclass(frozen=True, slots=True)
class LineNumbers:
    """Converts between line numbers of a split, of a file, and global ones that count through all files."""

    tasks: Sequence[StageTask]
    results: Sequence[StagedSplit]

    def offset(self, split: int) -> int:
        """Return what to add to a line number of a split to make it global."""
        before = sum(result.lines for result in self.results[:split])
        return before - (first_line(self.tasks[split].split) - 1)

    def globalize(self, split: int, violation: Violation) -> Violation:
        """Return a violation of a split with its global line number."""
        return violation if violation.line is None else replace(violation, line=violation.line + self.offset(split))

    def in_split(self, line: int) -> tuple[int, int]:
        """Return the split that holds a global line, and the line's number in that split."""
        ends = np.cumsum([result.lines for result in self.results])
        split = int(np.searchsorted(ends, line, side="left"))
        return split, line - self.offset(split)

    def in_file(self, line: int) -> tuple[str, int]:
        """Return the name of the file or frame that holds a global line, and the line's number in it."""
        last, _ = self.in_split(line)
        name, first = self.tasks[last].split.shown_name, last
        # A file may be given twice, for two types for example, and a frame is staged in several files.
        while first and self._continues(self.tasks[first].split, self.tasks[first - 1].split):
            first -= 1
        return name, line - sum(result.lines for result in self.results[:first])

    @property
    def locate(self) -> Locate | None:
        """Find the file of a line; None if there is only one, read once."""
        is_one_file = all(self._continues(task.split, before.split) for before, task in pairwise(self.tasks))
        return None if is_one_file else self.in_file

    @staticmethod
    def _continues(split: Split, earlier: Split) -> bool:
        """Return True if the lines of a split are counted on from those of the split before it."""
        is_same_frame = split.name is not None and (split.name, split.table_key) == (earlier.name, earlier.table_key)
        return is_same_frame or not split.is_first


@dataclass
class KeyMatcher:
    """Compares the keys of an input with each other and with committed ones: a partitioned hash join.

    All 64-bit hashes are cut into equal ranges. Equal keys have equal hashes, so a task that holds one range of every
    key segment sees all rows that may clash in it, and the driver never holds hashes at all.
    """

    input: StagedInput
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

    def find_replaced(self, committed: Mapping[TypeKey, KeySegments]) -> list[dict[TypeKey, ReplacedRows]]:
        """Find the committed rows that the input replaces, range by range."""
        work = partial(find_replaced, self.input.job, self.input.segments, committed)
        return self._run("matching", work, self._ranges(committed))

    def find_candidates(self, compared: ComparedKeys) -> list[dict[str, CandidatesByKey]]:
        """Find the rows that may break a set rule, range by range."""
        work = partial(find_candidates, self.input.job, compared)
        return self._run("checking", work, self._ranges(compared.committed))

    def find_superseded(self) -> list[dict[TypeKey, dict[int, FileSlice]]]:
        """Find the rows that another row of the same id supersedes, range by range."""
        types = self.input.types
        keys = [key for key, rows in types.items() if self.input.job.winner(rows.type) != "error"]
        # Within one segment the winner was chosen when it was staged.
        segments = {key: types[key].segments for key in keys if len(types[key].segments) > 1}
        if not segments:
            return []
        bounds = {key: types[key].bounds for key in segments}
        return self._run("matching", partial(find_superseded, self.input.job, segments, bounds), self._ranges({}))

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

    def _ranges(self, committed: Mapping[TypeKey, KeySegments]) -> list[HashRange]:
        """Cut all hashes into ranges that fit one task each; a power of two, so that ranges align with buckets."""
        sides = (self.input.segments, committed)
        total = sum(segment.keys for side in sides for segments in side.values() for segment in segments)
        count = 1
        while total > count * LOAD_BUCKET_KEYS and count < LOAD_BUCKETS_MAX:
            count *= 2
        return [HashRange(number, count) for number in range(count)]

    def _run(self, stage: str, work: Callable[[P], R], payloads: Sequence[P]) -> list[R]:
        # A single task finishes here before executors would have started.
        runner = self.input.runner if len(payloads) > 1 else Threads()
        return runner.run(stage, work, payloads)
