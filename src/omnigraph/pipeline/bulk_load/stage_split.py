"""Staging: the task of a load that reads one split, checks each row, writes what is right and the keys of all of it.

Runs on executors and in threads alike. It returns a few kilobytes, whatever the split holds.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.embed.cache import VectorSpace
from omnigraph.engine.embed.fetch import EmbedCounts
from omnigraph.engine.embed.plan import Mask, Target, VectorChanges, has_text, plan_types
from omnigraph.engine.embed.tasks import replace_vectors
from omnigraph.engine.query.search import default_embedder
from omnigraph.engine.session import View
from omnigraph.engine.tasks import Runner
from omnigraph.engine.write.ndjson.blocks import Type
from omnigraph.engine.write.staging import physical
from omnigraph.lang.catalog import Catalog, NodeType, Property
from omnigraph.limits import EMBED_STAGE_BYTES, EMBED_WINDOW_TEXTS
from omnigraph.pipeline.bulk_load.embed_site import Elsewhere, site_of, slots
from omnigraph.pipeline.bulk_load.job import Job, catalog_from
from omnigraph.pipeline.bulk_load.key_files import Pile, Slice, key_names, keys_of, write_keys
from omnigraph.pipeline.bulk_load.key_hashes import Found, hash_column, is_among
from omnigraph.pipeline.bulk_load.read_split import Chunk, read_split
from omnigraph.pipeline.bulk_load.splits import Split
from omnigraph.rules.arrow_typing import Column, Numbers, pc
from omnigraph.rules.delta import Changes, Delta, Ids, Intent, last_of_each, one_array
from omnigraph.rules.row_rules import ROW_RULES
from omnigraph.rules.validate import RULES, Rule
from omnigraph.rules.violations import Findings, Violation
from omnigraph.store.write import fragments
from omnigraph.store.write.transaction import append, overwrite


@dataclass(frozen=True)
class EmbedJob:
    """What the tasks of a load have to know to embed: how to reach the provider, and by type the properties."""

    site: Elsewhere
    targets: Mapping[str, tuple[Target, ...]]

    @property
    def spaces(self) -> set[VectorSpace | None]:
        return {one.space for targets in self.targets.values() for one in targets}

    def window(self, table_key: str) -> int:
        """Return how many rows of a type get their vectors at a time."""
        width = sum(4 * one.dimension for one in self.targets[table_key])
        return max(EMBED_WINDOW_TEXTS, EMBED_STAGE_BYTES // max(width, 1))


def reading_catalog(job: Job) -> Catalog:
    """Return the catalog by which input is read: what will be made from a text need not be given."""
    return job.catalog if job.embed is None else _relaxed(job.ir, frozenset(job.embed.targets))


@lru_cache(maxsize=4)
def _relaxed(ir: str, table_keys: frozenset[str]) -> Catalog:
    catalog = catalog_from(ir)
    nodes = {
        name: replace(one, properties={key: _optional(property_) for key, property_ in one.properties.items()})
        if one.table_key in table_keys
        else one
        for name, one in catalog.nodes.items()
    }
    return replace(catalog, nodes=nodes)


def _optional(property_: Property) -> Property:
    return property_ if property_.embed is None else replace(property_, type=replace(property_.type, nullable=True))


def plan_embedding(view: View, operation_id: str, runner: Runner) -> EmbedJob:
    """Return how a load embeds; refuses a schema without `@embed`, and models that do not agree."""
    embedder = default_embedder(view)
    plans = plan_types(view.catalog, None, "fill_missing", (), embedder)
    site = site_of(view.kernel.store.root.uri, operation_id, slots(runner))
    return EmbedJob(site, {one.type.table_key: one.targets for one in plans})


def windows(job: EmbedJob, table_key: str, count: int) -> Iterator[slice]:
    """Yield the rows that are embedded together."""
    step = job.window(table_key)
    yield from (slice(start, min(start + step, count)) for start in range(0, max(count, 1), step))


def fill_rows(
    job: EmbedJob, table_key: str, rows: pa.Table, tallies: dict[str, EmbedCounts]
) -> tuple[pa.Table, dict[str, Mask]]:
    """Return rows with vectors where they had a text and none, and by property which these are.

    What that took is added to the tallies; how many were filled is not known before some rows are left out.
    """
    filled: dict[str, Mask] = {}
    for target in job.targets[table_key]:
        vectors, texts = one_array(rows.column(target.name)), one_array(rows.column(target.source))
        needed = has_text(texts) & ~np.asarray(pc.is_valid(vectors), np.bool_)
        if not needed.any():
            continue
        assert target.space is not None, "a load never only clears"
        fresh, tally = job.site.filler(target.space).vectors(texts.filter(pa.array(needed)))
        needs = VectorChanges(needed, np.zeros(len(needed), np.bool_))
        place = rows.schema.get_field_index(target.name)
        column = replace_vectors(vectors, needs, fresh, target.dimension)
        rows = rows.set_column(place, rows.schema.field(place), column)
        name = f"{table_key.partition(':')[2]}.{target.name}"
        tallies[name] = tallies.get(name, EmbedCounts()) + replace(tally, filled=0)
        filled[name] = needed
    return rows, filled


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
    """What a task staged of one type: rows, the fragments that hold them, and the files of their keys.

    `repeats` and `odd` tell for each key what is wrong within one file already, by rows of the split.
    """

    rows: int = 0
    fragments: list[str] = field(default_factory=list)
    keys: list[Pile] = field(default_factory=list)
    repeats: list[tuple[str, Found]] = field(default_factory=list)
    odd: list[tuple[str, Numbers]] = field(default_factory=list)


@dataclass(slots=True)
class StagedSplit:
    """What became of one split. Violations come with the place of their rule, lines count from the split's first."""

    types: dict[str, StagedType] = field(default_factory=dict)
    lines: int = 0
    refused: list[Violation] = field(default_factory=list)
    broken: list[tuple[int, Violation]] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    embedded: dict[str, EmbedCounts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StageTask:
    """One split, and what is known of it from checks across splits: wrong lines, and by type rows that are replaced."""

    split: Split
    known: Mapping[int, Violation] = field(default_factory=dict)
    dropped: Mapping[str, tuple[Slice, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Kept:
    """Rows of one type that a split contributes, in the order in which all passes over it see them.

    `filled` tells by property which of them got a vector.
    """

    type: Type
    rows: pa.Table
    lines: Numbers
    filled: Mapping[str, Mask] = field(default_factory=dict)

    def only(self, stays: Mask) -> Kept:
        filled = {name: mask[stays] for name, mask in self.filled.items()}
        return Kept(self.type, self.rows.filter(pa.array(stays)), self.lines[stays], filled)


def stage_split(job: Job, task: StageTask) -> StagedSplit:
    """Read, check and stage one split."""
    staged = StagedSplit()
    for kept in kept_rows(job, task, staged):
        part = staged.types.setdefault(kept.type.table_key, StagedType())
        _write_keys(job, kept, part)
        part.rows += kept.rows.num_rows
        if kept.rows.num_rows and (job.is_rejecting or not (staged.refused or staged.broken)):
            part.fragments += _write(job, kept)
    return staged


def _write_keys(job: Job, kept: Kept, part: StagedType) -> None:
    # Only rows that may replace others are looked for among those that are there, and then very surely.
    along = ("check",) if job.intent is Intent.UPSERT else ()
    keys = keys_of(kept.type, kept.rows, key_names(kept.type), along, job.operation_id, job.violations_max)
    part.keys.append(write_keys(job.place.store(), job.side, keys.runs, part.rows))
    part.repeats += [(name, one.moved(part.rows)) for name, one in keys.repeats.items()]
    part.odd += [(name, rows + part.rows) for name, rows in keys.odd.items() if len(rows)]


def _write(job: Job, kept: Kept) -> list[str]:
    dataset = job.place.open(job.targets[kept.type.table_key])
    stage = overwrite if job.intent is Intent.REPLACE else append
    return fragments.write_fragments(dataset, physical(kept.rows, dataset), stage, job.operation_id)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Rows that are to be looked at again, by their numbers, and the columns to bring.

    With `where`, also all rows near them in which a column has one of some hashes; no more than `rows_max` of a split.
    """

    rows: Numbers
    columns: tuple[str, ...]
    where: Mapping[str, Numbers] = field(default_factory=dict)
    rows_max: int | None = None


@dataclass(frozen=True, slots=True)
class FetchTask:
    """What is wanted of one split, by type; rows are counted from its first."""

    task: StageTask
    wanted: Mapping[str, Wanted]


def fetch_rows(job: Job, fetch: FetchTask) -> dict[str, tuple[bytes, Numbers]]:
    """Return chosen rows of a split as Arrow streams, with their lines."""
    found: dict[str, list[tuple[pa.Table, Numbers]]] = {key: [] for key in fetch.wanted}
    seen = dict.fromkeys(fetch.wanted, 0)
    left = {key: one.rows_max or len(one.rows) for key, one in fetch.wanted.items()}
    for kept in kept_rows(job, fetch.task, StagedSplit(), fetch.wanted):
        key = kept.type.table_key
        own = _chosen(job, kept, fetch.wanted[key], seen[key])[: left[key]]
        columns = list(fetch.wanted[key].columns)
        found[key].append((kept.rows.select(columns).take(pa.array(own)), kept.lines[own]))
        seen[key] += kept.rows.num_rows
        left[key] -= len(own)
    answers: dict[str, tuple[bytes, Numbers]] = {}
    for key, parts in found.items():
        table = pa.concat_tables([rows for rows, _ in parts])
        answers[key] = (_stream(table), np.concatenate([lines for _, lines in parts]))
    return answers


def _chosen(job: Job, kept: Kept, wanted: Wanted, first: int) -> Numbers:
    rows = wanted.rows
    mask = np.zeros(kept.rows.num_rows, bool)
    mask[rows[(rows >= first) & (rows < first + len(mask))] - first] = True
    for column, hashes in wanted.where.items():
        mask |= is_among(hash_column(kept.rows.column(column), job.operation_id), hashes)
    return np.flatnonzero(mask)


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def kept_rows(job: Job, task: StageTask, staged: StagedSplit, wanted: Container[str] | None = None) -> Iterator[Kept]:
    """Yield the rows that a split contributes, of all types or of those wanted; what is wrong goes to `staged`."""
    decoding = Findings(job.violations_max, unit=job.unit)
    known = np.array(sorted(task.known), np.int64)
    dropped = _Dropping(job, task)
    for chunk in read_split(task.split, reading_catalog(job), decoding):
        staged.lines += len(chunk.lines)
        told = {one.line: one for one in task.known.values() if one.line in chunk.lines}
        for one in decoding.violations[len(staged.refused) :]:
            told.setdefault(one.line, one)
        staged.refused = list(decoding.violations)
        for kept in _parts(job, chunk, staged, wanted):
            broken = _broken(job, kept)
            staged.broken += broken[: job.violations_max - len(staged.broken)]
            if job.is_rejecting and broken:
                kept = _without(kept, np.array([one.line for _, one in broken], np.int64))
                for _, one in broken:
                    told.setdefault(one.line, one)
            kept = _without(dropped.apply(kept), known)
            for name, mask in kept.filled.items():
                staged.embedded[name] += EmbedCounts(filled=int(mask.sum()))
            yield kept
        if job.is_rejecting:
            staged.rejected += [Rejected(one, chunk.text(line)) for line, one in sorted(told.items()) if line]
        if decoding.is_full:
            return


def _parts(job: Job, chunk: Chunk, staged: StagedSplit, wanted: Container[str] | None) -> Iterator[Kept]:
    """Yield the rows of a chunk that count, with vectors where they are to be made, in parts that memory can hold."""
    for loaded in chunk.loaded.values():
        if wanted is not None and loaded.type.table_key not in wanted:
            continue
        kept = _last_ones(job, Kept(loaded.type, loaded.rows, loaded.lines))
        key = kept.type.table_key
        # An input that is refused anyway is not worth a question to the provider.
        if job.embed is None or key not in job.embed.targets or (staged.refused and not job.is_rejecting):
            yield Kept(job.catalog.type_of(key), kept.rows, kept.lines)
            continue
        for part in windows(job.embed, key, kept.rows.num_rows):
            rows = kept.rows.slice(part.start, part.stop - part.start)
            rows, filled = fill_rows(job.embed, key, rows, staged.embedded)
            yield Kept(job.catalog.type_of(key), rows, kept.lines[part], filled)


class _Dropping:
    """Leaves out rows that later ones replace; they are counted as they came, before anything else was left out."""

    def __init__(self, job: Job, task: StageTask) -> None:
        store = job.place.store() if task.dropped else None
        self._rows = {
            key: np.sort(np.concatenate([one.read(store, "<i8") for one in slices]))
            for key, slices in task.dropped.items()
            if store is not None
        }
        self._seen = dict.fromkeys(self._rows, 0)

    def apply(self, kept: Kept) -> Kept:
        key = kept.type.table_key
        if key not in self._rows:
            return kept
        first, count = self._seen[key], kept.rows.num_rows
        self._seen[key] += count
        low, high = np.searchsorted(self._rows[key], [first, first + count])
        stays = np.ones(count, bool)
        stays[self._rows[key][low:high] - first] = False
        return kept.only(stays)


def _without(kept: Kept, lines: Numbers) -> Kept:
    if len(lines) == 0:
        return kept
    return kept.only(~np.isin(kept.lines, lines))


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
