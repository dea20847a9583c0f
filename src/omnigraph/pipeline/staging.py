"""Staging: the task of a load that reads one split, checks each row, writes what is right and the keys of all of it.

Runs on executors and in threads alike. It returns a few kilobytes, whatever the split holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.embed.filler import Tally
from omnigraph.engine.write.loaded import Type
from omnigraph.engine.write.stage import physical
from omnigraph.lang.catalog import NodeType
from omnigraph.pipeline.embedding import fill_rows, reading_catalog, windows
from omnigraph.pipeline.job import Job
from omnigraph.pipeline.keyfile import Keys, joined, key_names, keys_of, write_keys
from omnigraph.pipeline.reading import Chunk, read_split
from omnigraph.pipeline.sources import Split
from omnigraph.rules.delta import Changes, Delta, Ids, Intent, last_of_each, one_array
from omnigraph.rules.kernels import Column, Numbers
from omnigraph.rules.rows import ROW_RULES
from omnigraph.rules.validate import RULES, Rule
from omnigraph.rules.violation import Findings, Violation
from omnigraph.store import fragments
from omnigraph.store.change import append, overwrite

_ROW_RULE_NAMES: Final = frozenset(rule.__name__ for rule in ROW_RULES)
ROW_CHECKS: Final[tuple[Rule, ...]] = tuple(rule for rule in RULES if rule.__name__ in _ROW_RULE_NAMES)
SET_CHECKS: Final[tuple[Rule, ...]] = tuple(rule for rule in RULES if rule.__name__ not in _ROW_RULE_NAMES)


@dataclass(frozen=True, slots=True)
class Rejected:
    """One line that breaks a rule, as it stood in the input."""

    violation: Violation
    text: str


@dataclass(slots=True)
class StagedType:
    """What a task staged of one type: rows, the fragments that hold them, and where their keys lie."""

    rows: int = 0
    fragments: list[str] = field(default_factory=list)
    keys: str = ""


@dataclass(slots=True)
class StagedSplit:
    """What became of one split. Violations come with the place of their rule, lines count from the split's first."""

    types: dict[str, StagedType] = field(default_factory=dict)
    lines: int = 0
    refused: list[Violation] = field(default_factory=list)
    broken: list[tuple[int, Violation]] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    embedded: dict[str, Tally] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StageTask:
    """One split, and the lines of it that are known to be wrong from checks across splits."""

    split: Split
    known: Mapping[int, Violation] = field(default_factory=dict)
    dropped: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Kept:
    """Rows of one type that a split contributes, in the order in which all passes over it see them."""

    type: Type
    rows: pa.Table
    lines: Numbers


def stage_split(job: Job, task: StageTask) -> StagedSplit:
    """Read, check and stage one split."""
    staged = StagedSplit()
    keys: dict[str, list[tuple[int, Keys]]] = {}
    texts: dict[str, list[Column]] = {}
    for kept in kept_rows(job, task, staged):
        key = kept.type.table_key
        part = staged.types.setdefault(key, StagedType())
        hashes = keys_of(kept.type, kept.rows, key_names(kept.type), job.operation_id)
        keys.setdefault(key, []).append((part.rows, hashes))
        texts.setdefault(key, []).append(one_array(kept.rows.column("id")))
        part.rows += kept.rows.num_rows
        if kept.rows.num_rows and (job.is_rejecting or not (staged.refused or staged.broken)):
            part.fragments += _write(job, kept)
    store = job.place.store()
    for key, part in staged.types.items():
        # Only rows that may replace others are looked for among those that are there, text by text.
        ids = pa.concat_arrays(texts[key]) if job.intent is Intent.UPSERT else None
        part.keys = write_keys(store, job.side, joined(keys[key]), ids)
    return staged


def _write(job: Job, kept: Kept) -> list[str]:
    dataset = job.place.open(job.targets[kept.type.table_key])
    stage = overwrite if job.intent is Intent.REPLACE else append
    return fragments.write_fragments(dataset, physical(kept.rows, dataset), stage, job.operation_id)


@dataclass(frozen=True, slots=True)
class FetchTask:
    """Rows that are to be looked at again: by type their numbers within the split, and the columns to bring."""

    task: StageTask
    wanted: Mapping[str, tuple[Numbers, tuple[str, ...]]]


def fetch_rows(job: Job, fetch: FetchTask) -> dict[str, tuple[bytes, Numbers]]:
    """Return chosen rows of a split as Arrow streams, with their lines."""
    found: dict[str, list[tuple[pa.Table, Numbers]]] = {key: [] for key in fetch.wanted}
    seen = dict.fromkeys(fetch.wanted, 0)
    for kept in kept_rows(job, fetch.task, StagedSplit()):
        key = kept.type.table_key
        if key in fetch.wanted:
            rows, columns = fetch.wanted[key]
            own = rows[(rows >= seen[key]) & (rows < seen[key] + kept.rows.num_rows)] - seen[key]
            found[key].append((kept.rows.select(list(columns)).take(pa.array(own)), kept.lines[own]))
            seen[key] += kept.rows.num_rows
    answers: dict[str, tuple[bytes, Numbers]] = {}
    for key, parts in found.items():
        table = pa.concat_tables([rows for rows, _ in parts])
        answers[key] = (_stream(table), np.concatenate([lines for _, lines in parts]))
    return answers


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def kept_rows(job: Job, task: StageTask, staged: StagedSplit) -> Iterator[Kept]:
    """Yield the rows that a split contributes; what is wrong with it goes to `staged`."""
    decoding = Findings(job.violations_max, unit=job.unit)
    left_out = np.array(sorted({*task.dropped, *task.known}), np.int64)
    for chunk in read_split(task.split, reading_catalog(job), decoding):
        staged.lines += len(chunk.lines)
        told = {one.line: one for one in task.known.values() if one.line in chunk.lines}
        for one in decoding.violations[len(staged.refused) :]:
            told.setdefault(one.line, one)
        staged.refused = list(decoding.violations)
        for kept in _parts(job, chunk, staged, left_out):
            broken = _broken(job, kept)
            staged.broken += broken[: job.violations_max - len(staged.broken)]
            if job.is_rejecting and broken:
                kept = _without(kept, np.array([one.line for _, one in broken], np.int64))
                for _, one in broken:
                    told.setdefault(one.line, one)
            yield kept
        if job.is_rejecting:
            staged.rejected += [Rejected(one, chunk.text(line)) for line, one in sorted(told.items()) if line]
        if decoding.is_full:
            return


def _parts(job: Job, chunk: Chunk, staged: StagedSplit, left_out: Numbers) -> Iterator[Kept]:
    """Yield the rows of a chunk that count, with vectors where they are to be made, in parts that memory can hold."""
    for loaded in chunk.loaded.values():
        kept = _last_ones(job, _without(Kept(loaded.type, loaded.rows, loaded.lines), left_out))
        key = kept.type.table_key
        # An input that is refused anyway is not worth a question to the provider.
        if job.embed is None or key not in job.embed.targets or (staged.refused and not job.is_rejecting):
            yield Kept(job.type_of(key), kept.rows, kept.lines)
            continue
        for part in windows(job.embed, key, kept.rows.num_rows):
            rows = kept.rows.slice(part.start, part.stop - part.start)
            yield Kept(job.type_of(key), fill_rows(job.embed, key, rows, staged.embedded), kept.lines[part])


def _without(kept: Kept, lines: Numbers) -> Kept:
    if len(lines) == 0:
        return kept
    stays = ~np.isin(kept.lines, lines)
    return Kept(kept.type, kept.rows.filter(pa.array(stays)), kept.lines[stays])


def _last_ones(job: Job, kept: Kept) -> Kept:
    """Leave the last row of each id, where the last wins; a key that comes twice is for the rules to refuse."""
    if not is_last_winning(job.intent, kept.type):
        return kept
    last = last_of_each(one_array(kept.rows.column("id")))
    return kept if len(last) == kept.rows.num_rows else Kept(kept.type, kept.rows.take(last), kept.lines[last])


def is_last_winning(intent: Intent, type_: Type) -> bool:
    """Tell whether of two entities with one id the later one replaces the other, as in an ingest that merges."""
    return intent is Intent.UPSERT and not (isinstance(type_, NodeType) and type_.key)


def _broken(job: Job, kept: Kept) -> list[tuple[int, Violation]]:
    """Return the row rules that rows break, with the place of each rule among all."""
    delta = Delta(kept.type, kept.rows, job.intent, lines=kept.lines)
    changes = Changes(job.catalog, {delta.key: delta}, job.unit)
    broken: list[tuple[int, Violation]] = []
    for place, rule in enumerate(ROW_CHECKS):
        findings = Findings(job.violations_max, unit=job.unit)
        rule(changes, _NOTHING, findings)
        broken += [(place, one) for one in findings.violations]
    return broken


class _Nothing:
    """What is committed, to rules that do not ask."""

    def existing(self, table_key: str, ids: Ids) -> Ids:
        raise AssertionError("a row rule looks at rows alone")

    def matching(self, table_key: str, columns: Sequence[str], where: Mapping[str, Column]) -> pa.Table:
        raise AssertionError("a row rule looks at rows alone")


_NOTHING: Final = _Nothing()
