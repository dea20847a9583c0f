"""The input of one load, as it was staged: keys of every row, any row again, and lines by their own files.

Stands between the driver and the tasks; decides nothing about right or wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa

from omnigraph.lang.schema.arrow import arrow_schema
from omnigraph.pipeline.checks import Fetched, Rows
from omnigraph.pipeline.job import Job
from omnigraph.pipeline.keyfile import Keys, joined, key_names, keys_of, read_keys
from omnigraph.pipeline.matching import KeyTask, read_fragment_keys
from omnigraph.pipeline.reading import first_line
from omnigraph.pipeline.staging import FetchTask, Rejected, StagedSplit, StageTask, fetch_rows, stage_split
from omnigraph.pipeline.suspects import TypeKeys
from omnigraph.pipeline.tasks import Runner
from omnigraph.rules.kernels import Numbers
from omnigraph.rules.violation import Violation
from omnigraph.store.dataset import Dataset
from omnigraph.store.fragments import fragment_ids


@dataclass
class StagedInput:
    """All splits of a load, staged; a split that was found to hold wrong lines can be staged again without them."""

    job: Job
    runner: Runner
    tasks: list[StageTask]
    named: Sequence[str] = ()
    results: list[StagedSplit] = field(default_factory=list)
    types: Mapping[str, TypeKeys] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.intent = self.job.intent
        self.unit = self.job.unit
        self.seed = self.job.operation_id

    def stage(self) -> None:
        """Stage all splits."""
        self.results = self._stage("reading", self.tasks)
        self.gather()

    def stage_again(self, changed: Mapping[int, StageTask]) -> None:
        """Stage some splits anew; what was staged of them before is left for the cleaning up."""
        for place, result in zip(changed, self._stage("reading again", list(changed.values())), strict=True):
            self.tasks[place] = changed[place]
            self.results[place] = result
        self.gather()

    def _stage(self, stage: str, tasks: list[StageTask]) -> list[StagedSplit]:
        return self.runner.run(stage, partial(stage_split, self.job), tasks, [one.split.size for one in tasks])

    def gather(self) -> None:
        """Read the keys of all that was staged."""
        store = self.job.place.store()
        keys = sorted({*self.named, *(key for result in self.results for key in result.types)})
        types: dict[str, TypeKeys] = {}
        for key in keys:
            counts = [result.types[key].rows if key in result.types else 0 for result in self.results]
            bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
            parts = [
                (int(first), read_keys(store, result.types[key].keys))
                for first, result in zip(bounds, self.results, strict=False)
                if key in result.types
            ]
            type_ = self.job.type_of(key)
            nothing = keys_of(type_, arrow_schema(type_).empty_table(), key_names(type_), self.seed)
            types[key] = TypeKeys(type_, joined([(0, nothing), *parts]), bounds[:-1])
        self.types = types

    # -- rows and keys -----------------------------------------------------------------------------------------

    def fetch(self, rows: Rows) -> Fetched:
        """Return chosen rows in order, with their lines numbered through all files."""
        wanted: dict[int, dict[str, tuple[Numbers, tuple[str, ...]]]] = {}
        for key, (places, columns) in rows.items():
            for split, own in self.types[key].places(places):
                wanted.setdefault(split, {})[key] = (own, columns)
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

    def committed_keys(self, dataset: Dataset, table_key: str, names: Sequence[str]) -> Keys:
        """Return the keys of all committed rows of a type, fragment by fragment."""
        tasks = [KeyTask(dataset.ref, one, table_key, tuple(names)) for one in fragment_ids(dataset)]
        paths = self.runner.run("reading keys", partial(read_fragment_keys, self.job), tasks)
        return joined([(0, read_keys(self.job.place.store(), path)) for path in paths])

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
