"""The staging task of a load: write the rows of a split as data fragments, and their keys as segments.

Runs on executors and in threads. A task returns a few kilobytes, however large its split is. A split is read again the
same way to fetch rows of it, so rows keep their numbers.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from omnigraph.engine.input.read_split import read_split
from omnigraph.engine.input.splits import Split
from omnigraph.engine.key_buckets.files import (
    FileSlice,
    KeySegment,
    extract_keys,
    key_names,
    to_arrow_stream,
    write_keys,
)
from omnigraph.engine.key_buckets.hashes import Candidates, hash_column, is_among
from omnigraph.engine.load.job import Job
from omnigraph.engine.load.kept_rows import KeptRows, RowKeeper, RowOutcome
from omnigraph.engine.write.staging import physical
from omnigraph.lang.catalog import TypeKey
from omnigraph.rules.arrow_typing import Numbers
from omnigraph.rules.delta import Findings, Intent, Violation
from omnigraph.store.write import fragments
from omnigraph.store.write.transaction import append, overwrite


@dataclass(slots=True)
class StagedType:
    """What a task staged of one type: the row count, fragments and key segments.

    `duplicates` and `incomparable` are, by key, the rows of the split that break uniqueness within one segment.
    """

    rows: int = 0
    fragments: list[str] = field(default_factory=list)
    segments: list[KeySegment] = field(default_factory=list)
    duplicates: list[tuple[str, Candidates]] = field(default_factory=list)
    incomparable: list[tuple[str, Numbers]] = field(default_factory=list)


@dataclass(slots=True)
class StagedSplit(RowOutcome):
    """The result of one split, whose lines count within the split."""

    types: dict[TypeKey, StagedType] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StageTask:
    """One split, the violations by line that set checks found in it, and by type the rows that are superseded.

    These are None as long as they are not known.
    """

    split: Split
    violations: Mapping[int, Violation] = field(default_factory=dict)
    superseded: Mapping[TypeKey, tuple[FileSlice, ...]] | None = field(default_factory=dict)


def stage_split(job: Job, task: StageTask) -> StagedSplit:
    staged = StagedSplit()
    for kept in read_kept_rows(job, task, staged):
        part = staged.types.setdefault(kept.type.table_key, StagedType())
        _write_keys(job, kept, part)
        part.rows += kept.rows.num_rows
        if kept.rows.num_rows and (job.is_rejecting or not (staged.malformed or staged.row_violations)):
            part.fragments += _write_fragments(job, kept)
    return staged


def _write_keys(job: Job, kept: KeptRows, part: StagedType) -> None:
    # An upsert replaces committed rows by id, so ids get a second hash: 64 bits would not be safe enough.
    # So does the choice between duplicates.
    extra = ("check",) if job.intent is Intent.UPSERT or job.options.on_duplicate != "error" else ()
    keys = extract_keys(kept.type, kept.rows, key_names(kept.type), extra, job.operation_id, job.violations_max)
    part.segments.append(write_keys(job.access.store(), job.scratch, keys.arrays, part.rows))
    part.duplicates += [(name, rows.shift(part.rows)) for name, rows in keys.duplicates.items()]
    part.incomparable += [(name, rows + part.rows) for name, rows in keys.incomparable.items() if len(rows)]


def _write_fragments(job: Job, kept: KeptRows) -> list[str]:
    dataset = job.access.open(job.targets[kept.type.table_key])
    stage = overwrite if job.intent is Intent.REPLACE else append
    return fragments.write_fragments(dataset, physical(kept.rows, dataset), stage, job.operation_id)


@dataclass(frozen=True, slots=True)
class RowRequest:
    """Row numbers to read again, and the columns to return.

    `where` adds all rows of the same splits in which a column has one of some hashes, up to `rows_max` per split.
    """

    rows: Numbers
    columns: tuple[str, ...]
    where: Mapping[str, Numbers] = field(default_factory=dict)
    rows_max: int | None = None


@dataclass(frozen=True, slots=True)
class FetchTask:
    """The requested rows of one split by type, numbered from its first row."""

    task: StageTask
    requests: Mapping[TypeKey, RowRequest]


def fetch_rows(job: Job, fetch: FetchTask) -> dict[TypeKey, tuple[bytes, Numbers]]:
    """Return the requested rows of a split as Arrow streams, with their lines."""
    fetched: dict[TypeKey, list[tuple[pa.Table, Numbers]]] = {key: [] for key in fetch.requests}
    rows_read = dict.fromkeys(fetch.requests, 0)
    rows_left = {key: request.rows_max or len(request.rows) for key, request in fetch.requests.items()}
    for kept_rows in read_kept_rows(job, fetch.task, StagedSplit(), fetch.requests):
        key = kept_rows.type.table_key
        selected = _select_rows(job, kept_rows, fetch.requests[key], rows_read[key])[: rows_left[key]]
        columns = list(fetch.requests[key].columns)
        fetched[key].append((kept_rows.rows.select(columns).take(pa.array(selected)), kept_rows.lines[selected]))
        rows_read[key] += kept_rows.rows.num_rows
        rows_left[key] -= len(selected)
    answers: dict[TypeKey, tuple[bytes, Numbers]] = {}
    for key, parts in fetched.items():
        table = pa.concat_tables([rows for rows, _ in parts])
        answers[key] = (to_arrow_stream(table), np.concatenate([lines for _, lines in parts]))
    return answers


def _select_rows(job: Job, kept: KeptRows, request: RowRequest, first: int) -> Numbers:
    rows = request.rows
    mask = np.zeros(kept.rows.num_rows, bool)
    mask[rows[(rows >= first) & (rows < first + len(mask))] - first] = True
    for column, hashes in request.where.items():
        mask |= is_among(hash_column(kept.rows.column(column), job.operation_id), hashes)
    return np.flatnonzero(mask)


def read_kept_rows(
    job: Job, task: StageTask, staged: StagedSplit, table_keys: Container[TypeKey] | None = None
) -> Iterator[KeptRows]:
    """Yield the rows that a split contributes, of all or some types; add violations to `staged`."""
    store, findings = job.access.store(), Findings(job.violations_max, unit=job.unit)
    superseded: dict[TypeKey, Numbers] | None = None
    if task.superseded is not None:
        superseded = {
            key: np.concatenate([slice_.read_numbers(store) for slice_ in slices])
            for key, slices in task.superseded.items()
        }
    keeper = RowKeeper(job, staged, task.violations, superseded)
    return keeper.keep(read_split(task.split, job.reading(), findings), findings, table_keys)
