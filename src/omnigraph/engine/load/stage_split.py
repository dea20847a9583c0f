"""The staging task of a load: read a split, embed, check row rules, write data fragments and key segments.

Runs on executors and in threads. A task returns a few kilobytes, however large its split is. A split is read again the
same way to fetch rows of it, so rows keep their numbers.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.embed.cache import EmbedCounts, VectorSpace
from omnigraph.engine.embed.embed_tasks import (
    EmbedSite,
    Mask,
    Target,
    VectorChanges,
    embed_site,
    has_text,
    plan_types,
    replace_vectors,
)
from omnigraph.engine.input.read_split import Chunk, read_split
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
from omnigraph.engine.load.job import UNIT, Job
from omnigraph.engine.query.ranking import default_embedder
from omnigraph.engine.session import View
from omnigraph.engine.tasks import Runner, parse_catalog
from omnigraph.engine.write.staging import physical
from omnigraph.lang.catalog import Catalog, Type, TypeKey
from omnigraph.limits import EMBED_STAGE_BYTES, EMBED_WINDOW_TEXTS
from omnigraph.rules.arrow_typing import Column, Numbers, pc
from omnigraph.rules.delta import (
    Changes,
    Delta,
    Findings,
    Ids,
    Intent,
    Violation,
    first_of_each,
    last_of_each,
    one_array,
)
from omnigraph.rules.validate import ROW_CHECKS, IndexedViolation, run_rules
from omnigraph.store.write import fragments
from omnigraph.store.write.transaction import append, overwrite


@dataclass(frozen=True)
class EmbedJob:
    """Embedding as the tasks of a load see it: access to the provider, and the vector properties by type."""

    site: EmbedSite
    targets: Mapping[TypeKey, tuple[Target, ...]]

    @property
    def spaces(self) -> set[VectorSpace | None]:
        return {target.space for targets in self.targets.values() for target in targets}

    def window(self, table_key: TypeKey) -> int:
        """Return how many rows of a type are embedded at a time."""
        width = sum(4 * target.dimension for target in self.targets[table_key])
        return max(EMBED_WINDOW_TEXTS, EMBED_STAGE_BYTES // max(width, 1))


def input_catalog(job: Job) -> Catalog:
    """Return the catalog for reading the input: vectors that will be embedded are optional in it."""
    return job.catalog if job.embed is None else _with_optional_vectors(job.schema.ir, frozenset(job.embed.targets))


@lru_cache(maxsize=4)
def _with_optional_vectors(ir: str, table_keys: frozenset[TypeKey]) -> Catalog:
    catalog = parse_catalog(ir)
    nodes = dict(catalog.nodes)
    for node in (node for node in catalog.nodes.values() if node.table_key in table_keys):
        vectors = {
            name: replace(property_, type=replace(property_.type, nullable=True))
            for name, property_ in node.properties.items()
            if property_.embed is not None
        }
        nodes[node.name] = replace(node, properties={**node.properties, **vectors})
    return replace(catalog, nodes=nodes)


def plan_embedding(view: View, operation_id: str, runner: Runner) -> EmbedJob:
    """Plan the embedding of a load; a schema without `@embed`, or with another model, is an error."""
    embedder = default_embedder(view)
    plans = plan_types(view.catalog, None, "fill_missing", (), embedder)
    site = embed_site(view.kernel.store, operation_id, runner)
    return EmbedJob(site, {type_plan.type.table_key: type_plan.targets for type_plan in plans})


def embed_rows(
    job: EmbedJob, table_key: TypeKey, rows: pa.Table, tallies: dict[str, EmbedCounts]
) -> tuple[pa.Table, dict[str, Mask]]:
    """Make the vectors of rows that have a text but no vector; return the rows and, by property, a mask of those made.

    Requests are added to the tallies; `filled` is counted later, because some rows may still be dropped.
    """
    filled: dict[str, Mask] = {}
    for target in job.targets[table_key]:
        vectors, texts = one_array(rows.column(target.name)), one_array(rows.column(target.source))
        is_needed = has_text(texts) & ~np.asarray(pc.is_valid(vectors), np.bool_)
        if not is_needed.any():
            continue
        assert target.space is not None, "a load never only clears"
        computed, tally = job.site.fetcher(target.space).vectors(texts.filter(pa.array(is_needed)))
        needs = VectorChanges(is_needed, np.zeros(len(is_needed), np.bool_))
        index = rows.schema.get_field_index(target.name)
        column = replace_vectors(vectors, needs, computed, target.dimension)
        rows = rows.set_column(index, rows.schema.field(index), column)
        name = f"{table_key.name}.{target.name}"
        tallies[name] = tallies.get(name, EmbedCounts()) + replace(tally, filled=0)
        filled[name] = is_needed
    return rows, filled


@dataclass(frozen=True, slots=True)
class RejectedEntity:
    """An entity that breaks a rule, with its text in the input."""

    violation: Violation
    text: str


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
class StagedSplit:
    """The result of one split. Row violations carry the index of their rule; lines count within the split."""

    types: dict[TypeKey, StagedType] = field(default_factory=dict)
    lines: int = 0
    malformed: list[Violation] = field(default_factory=list)
    row_violations: list[IndexedViolation] = field(default_factory=list)
    rejected: list[RejectedEntity] = field(default_factory=list)
    embedded: dict[str, EmbedCounts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StageTask:
    """One split, the violations by line that set checks found in it, and by type the rows that are superseded."""

    split: Split
    violations: Mapping[int, Violation] = field(default_factory=dict)
    superseded: Mapping[TypeKey, tuple[FileSlice, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Rows of one type that a split contributes, in the order of every pass over it.

    `filled` has, by property, a mask of the rows whose vector was made.
    """

    type: Type
    rows: pa.Table
    lines: Numbers
    filled: Mapping[str, Mask] = field(default_factory=dict)

    def only(self, stays: Mask) -> KeptRows:
        filled = {name: mask[stays] for name, mask in self.filled.items()}
        return KeptRows(self.type, self.rows.filter(pa.array(stays)), self.lines[stays], filled)


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
    decoding = Findings(job.violations_max, unit=UNIT)
    rejected_lines = np.array(sorted(task.violations), np.int64)
    superseded = _SupersededFilter(job, task)
    for chunk in read_split(task.split, input_catalog(job), decoding, job.now_ms):
        staged.lines += len(chunk.lines)
        by_line = {violation.line: violation for violation in task.violations.values() if violation.line in chunk.lines}
        for violation in decoding.violations[len(staged.malformed) :]:
            by_line.setdefault(violation.line, violation)
        staged.malformed = list(decoding.violations)
        for kept in _embedded_parts(job, chunk, staged, table_keys):
            violations = _without_vectors_to_make(job, kept, staged, _check_row_rules(job, kept))
            staged.row_violations += violations[: job.violations_max - len(staged.row_violations)]
            if job.is_rejecting and violations:
                kept = _drop_lines(kept, np.array([violation.line for _, violation in violations], np.int64))
                for _, violation in violations:
                    by_line.setdefault(violation.line, violation)
            kept = _drop_lines(superseded.apply(kept), rejected_lines)
            for name, mask in kept.filled.items():
                staged.embedded[name] += EmbedCounts(filled=int(mask.sum()))
            yield kept
        if job.is_rejecting:
            staged.rejected += [
                RejectedEntity(violation, chunk.text(line)) for line, violation in sorted(by_line.items()) if line
            ]
        if decoding.is_full:
            return


def _embedded_parts(
    job: Job, chunk: Chunk, staged: StagedSplit, table_keys: Container[TypeKey] | None
) -> Iterator[KeptRows]:
    """Yield the rows of a chunk, the last of each id, with missing vectors made in windows that fit memory."""
    for loaded in chunk.loaded.values():
        if table_keys is not None and loaded.type.table_key not in table_keys:
            continue
        kept = _keep_one_per_id(job, KeptRows(loaded.type, loaded.rows, loaded.lines))
        key = kept.type.table_key
        # The load fails anyway if a line is malformed, so make no requests for it.
        if job.embed is None or key not in job.embed.targets or (staged.malformed and not job.is_rejecting):
            yield KeptRows(job.catalog.type_of(key), kept.rows, kept.lines)
            continue
        step = job.embed.window(key)
        for start in range(0, max(kept.rows.num_rows, 1), step):
            rows, filled = embed_rows(job.embed, key, kept.rows.slice(start, step), staged.embedded)
            yield KeptRows(job.catalog.type_of(key), rows, kept.lines[start : start + step], filled)


class _SupersededFilter:
    """Drops superseded rows, whose numbers count the rows of the first pass, before other rows were dropped."""

    def __init__(self, job: Job, task: StageTask) -> None:
        self._rows = {
            key: np.sort(np.concatenate([slice_.read_numbers(job.access.store()) for slice_ in slices]))
            for key, slices in task.superseded.items()
        }
        self._row_counts = dict.fromkeys(self._rows, 0)

    def apply(self, kept: KeptRows) -> KeptRows:
        key = kept.type.table_key
        if key not in self._rows:
            return kept
        first, count = self._row_counts[key], kept.rows.num_rows
        self._row_counts[key] += count
        low, high = np.searchsorted(self._rows[key], [first, first + count])
        stays = np.ones(count, bool)
        stays[self._rows[key][low:high] - first] = False
        return kept.only(stays)


def _drop_lines(kept: KeptRows, lines: Numbers) -> KeptRows:
    return kept.only(~np.isin(kept.lines, lines)) if len(lines) else kept


def _keep_one_per_id(job: Job, kept: KeptRows) -> KeptRows:
    """Keep the first or last row of each id if one of them wins; otherwise duplicates are left for the rules."""
    winner = job.winner(kept.type)
    if winner == "error":
        return kept
    ids = one_array(kept.rows.column("id"))
    winners = last_of_each(ids) if winner == "last" else first_of_each(ids)
    if len(winners) == kept.rows.num_rows:
        return kept
    return KeptRows(kept.type, kept.rows.take(winners), kept.lines[winners])


def _without_vectors_to_make(
    job: Job, kept: KeptRows, staged: StagedSplit, violations: list[IndexedViolation]
) -> list[IndexedViolation]:
    """Leave out vectors that are missing only because nothing is embedded for an input with malformed lines."""
    if job.embed is None or job.is_rejecting or not staged.malformed:
        return violations
    vectors = {target.name for target in job.embed.targets.get(kept.type.table_key, ())}
    return [item for item in violations if item[1].property not in vectors]


def _check_row_rules(job: Job, kept: KeptRows) -> list[IndexedViolation]:
    delta = Delta(kept.type, kept.rows, job.intent, lines=kept.lines)
    return run_rules(ROW_CHECKS, Changes(job.catalog, {delta.key: delta}, UNIT), _NO_COMMITTED_ROWS, job.violations_max)


class _NoCommittedRows:
    """Committed rows for rules that never look at them."""

    def existing(self, table_key: TypeKey, ids: Ids) -> Ids:
        raise AssertionError("a row rule reads no committed rows")

    def matching(self, table_key: TypeKey, columns: Sequence[str], where: Mapping[str, Column]) -> pa.Table:
        raise AssertionError("a row rule reads no committed rows")


_NO_COMMITTED_ROWS: Final = _NoCommittedRows()
