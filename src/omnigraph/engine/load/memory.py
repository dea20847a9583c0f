"""An input that is held in memory, checked and staged as the changes of a mutation are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa

from omnigraph.engine.embed.cache import add_retry_counts
from omnigraph.engine.input.ndjson.blocks import Loaded
from omnigraph.engine.input.ndjson.reader import add_part
from omnigraph.engine.input.read_split import Chunk, read_split
from omnigraph.engine.input.reading import Reading
from omnigraph.engine.input.splits import Split
from omnigraph.engine.load.job import RowJob
from omnigraph.engine.load.kept_rows import KeptRows, RowKeeper, RowOutcome
from omnigraph.engine.load.line_numbers import LineNumbers
from omnigraph.engine.session import View
from omnigraph.engine.tasks import ThisThread
from omnigraph.engine.write.committed_rows import CommittedRows
from omnigraph.engine.write.staging import Stager, check_size, too_large
from omnigraph.lang.catalog import TypeKey
from omnigraph.lang.schema.arrow_schema import arrow_schema
from omnigraph.manifest.plan import Effect
from omnigraph.rules.delta import Changes, Committed, Delta, Findings, Violation, is_among


@dataclass
class InMemory:
    """A `StagedInput` of tables: each split is read once, and the rows of a type are one delta."""

    job: RowJob
    splits: Sequence[Split]
    named: Sequence[TypeKey]
    outcome: RowOutcome = field(default_factory=RowOutcome)
    # What was read, with global lines: entities, violations, the lines of each split, and lookups of their texts.
    _loaded: dict[TypeKey, Loaded] = field(default_factory=dict)
    _malformed: list[Violation] = field(default_factory=list)
    _counts: list[int] = field(default_factory=list)
    _texts: list[tuple[range, int, Callable[[int], str]]] = field(default_factory=list)
    _deltas: dict[TypeKey, Delta] = field(default_factory=dict)
    _rejected_lines: dict[int, Violation] = field(default_factory=dict)
    _stager: Stager = field(default_factory=Stager)

    @property
    def lines(self) -> LineNumbers:
        return LineNumbers(self.splits, self._counts)

    def stage(self) -> None:
        """Read all splits, and check their rows."""
        read = partial(self._read, self.job.reading())
        ThisThread().run("reading", read, self.splits, [split.size for split in self.splits])
        self._malformed.sort(key=lambda violation: violation.line or 0)
        if self.job.options.bounds is not None and not self._malformed:
            _check_sizes(self.job, self._loaded)
        self._keep_rows()

    def _read(self, reading: Reading, split: Split) -> None:
        """Read the next split to its end, or until it is certain to be rejected."""
        number, line_count = len(self._counts), 0
        offset = self.lines.offset(number)
        findings = Findings(self.job.violations_max, unit=self.job.unit)
        for chunk in read_split(split, reading, findings):
            line_count += len(chunk.lines)
            for part in (part for rows in chunk.loaded.values() for part in rows.parts):
                add_part(self._loaded, replace(part, numbers=part.numbers + offset) if offset else part)
            if self.job.is_rejecting:
                self._texts.append((chunk.lines, offset, chunk.text))
            if findings.is_full or (reading.bounds is not None and reading.bounds.are_exceeded(self._loaded)):
                break
        self._malformed += [self.lines.globalize(number, violation) for violation in findings.violations]
        self._counts.append(line_count)

    def _text(self, line: int) -> str:
        return next(text(line - offset) for lines, offset, text in self._texts if line - offset in lines)

    def reject(self, violations: Mapping[int, Violation]) -> None:
        self._rejected_lines |= violations
        self._keep_rows()

    def _keep_rows(self) -> None:
        job, embedded = self.job, self.outcome.embedded
        self.outcome = RowOutcome()
        decoding = Findings(job.violations_max, unit=job.unit)
        decoding.violations = self._malformed
        chunk = Chunk(dict(sorted(self._loaded.items())), range(1, sum(self._counts) + 1), self._text)
        keeper = RowKeeper(job, self.outcome, self._rejected_lines)
        parts: dict[TypeKey, list[KeptRows]] = {key: [] for key in self.named}
        for kept in keeper.keep([chunk], decoding):
            parts.setdefault(kept.type.table_key, []).append(kept)
        self.outcome.embedded = add_retry_counts(embedded, self.outcome.embedded)
        self._deltas = {key: _delta(job, key, parts[key]) for key in sorted(parts)}

    @property
    def counts(self) -> dict[TypeKey, int]:
        return {key: delta.rows.num_rows for key, delta in self._deltas.items()}

    def compare(self, view: View, violations_max: int) -> None:
        self._changes = Changes(view.catalog, self._deltas, self.job.unit, self.lines.locate)
        self._committed = CommittedRows(view)

    def rule_input(self, rule: str) -> tuple[Changes, Committed]:
        return self._changes, self._committed

    def lines_of_source(self, table_key: TypeKey, source: str) -> list[int]:
        delta = self._deltas[table_key]
        assert delta.lines is not None
        return list(delta.lines[is_among(delta.column("src"), pa.array([source]))].tolist())

    def effects(self) -> tuple[Effect, ...]:
        return self._stager.stage(self._committed.view, self._deltas, self._committed)

    def publishing(self) -> AbstractContextManager[None]:
        return nullcontext()


def _delta(job: RowJob, key: TypeKey, parts: Sequence[KeptRows]) -> Delta:
    type_ = job.catalog.type_of(key)
    if not parts:
        return Delta(type_, arrow_schema(type_).empty_table(), job.intent, lines=np.zeros(0, np.int64))
    rows = parts[0].rows if len(parts) == 1 else pa.concat_tables([part.rows for part in parts]).combine_chunks()
    return Delta(type_, rows, job.intent, lines=np.concatenate([part.lines for part in parts]))


def _check_sizes(job: RowJob, loaded: Mapping[TypeKey, Loaded]) -> None:
    """Raise if there is more of a type than one small write may hold."""
    bounds = job.options.bounds
    assert bounds is not None
    for rows in loaded.values():
        is_few = rows.count <= bounds.entities_max
        if is_few and not job.options.is_compatible and rows.size > bounds.bytes_max:
            raise too_large("strict_input_arrow_bytes", bounds.bytes_max, rows.size, rows.type.name, "bytes", "N11")
        check_size(rows.type, rows.count, rows.size, bounds.entities_max, bounds.bytes_max)
