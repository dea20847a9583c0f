"""The rows of an input that are loaded: one of each id where one wins, with missing vectors, checked by row rules.

The same wherever rows are read: in memory, in threads, and on executors.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    updated_vectors,
)
from omnigraph.engine.input.read_split import Chunk
from omnigraph.engine.load.job import RowJob
from omnigraph.engine.query.ranking import default_embedder
from omnigraph.engine.session import View
from omnigraph.engine.tasks import Runner
from omnigraph.engine.write.staging import put_column
from omnigraph.lang.catalog import Catalog, Type, TypeKey
from omnigraph.limits import EMBED_STAGE_BYTES, EMBED_WINDOW_TEXTS
from omnigraph.rules.arrow_typing import Column, Numbers, pc
from omnigraph.rules.delta import (
    Changes,
    Delta,
    Findings,
    Ids,
    Violation,
    first_of_each,
    last_of_each,
    one_array,
)
from omnigraph.rules.validate import ROW_CHECKS, IndexedViolation, run_rules


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


@dataclass(frozen=True, slots=True)
class RejectedEntity:
    """An entity that breaks a rule, with its text in the input."""

    violation: Violation
    text: str


@dataclass(slots=True)
class RowOutcome:
    """What was found in some rows. Row violations carry the index of their rule."""

    lines: int = 0
    malformed: list[Violation] = field(default_factory=list)
    row_violations: list[IndexedViolation] = field(default_factory=list)
    rejected: list[RejectedEntity] = field(default_factory=list)
    embedded: dict[str, EmbedCounts] = field(default_factory=dict)


@dataclass
class RowKeeper:
    """Keeps the rows of one task that are loaded.

    `violations` are those by line that set rules found earlier. `superseded` are the rows of each type that another one
    of the same id replaces, counted before any is dropped. As long as they are not known (None), no invalid row of a
    type where one wins is dropped: a superseded row breaks no rule.
    """

    job: RowJob
    outcome: RowOutcome
    violations: Mapping[int, Violation] = field(default_factory=dict)
    superseded: Mapping[TypeKey, Numbers] | None = field(default_factory=dict)
    _rows_read: dict[TypeKey, int] = field(default_factory=dict)

    def keep(
        self, chunks: Iterable[Chunk], decoding: Findings, table_keys: Container[TypeKey] | None = None
    ) -> Iterator[KeptRows]:
        """Yield the rows of chunks, of all or some types; `decoding` are the findings of those who read them."""
        outcome = self.outcome
        for chunk in chunks:
            outcome.lines += len(chunk.lines)
            rejected = {line: item for line, item in self.violations.items() if line in chunk.lines}
            for violation in decoding.violations[len(outcome.malformed) :]:
                rejected.setdefault(violation.line or 0, violation)
            outcome.malformed = list(decoding.violations)
            for kept in self._with_vectors(chunk, table_keys):
                yield self._check(kept, rejected)
            if self.job.is_rejecting:
                outcome.rejected += [
                    RejectedEntity(violation, chunk.text(line)) for line, violation in sorted(rejected.items()) if line
                ]
            if decoding.is_full:
                return

    def _check(self, kept: KeptRows, rejected: dict[int, Violation]) -> KeptRows:
        """Check row rules; return the rows without rejected ones, which are added to `rejected`."""
        job, outcome = self.job, self.outcome
        kept = self._without_superseded(kept)
        violations = self._without_vectors_to_make(kept, _check_row_rules(job, kept))
        outcome.row_violations += violations[: job.violations_max - len(outcome.row_violations)]
        is_undecided = self.superseded is None and job.winner(kept.type) != "error"
        if job.is_rejecting and violations and not is_undecided:
            kept = _drop_lines(kept, [violation.line or 0 for _, violation in violations])
            for _, violation in violations:
                rejected.setdefault(violation.line or 0, violation)
        kept = _drop_lines(kept, self.violations)
        for name, mask in kept.filled.items():
            outcome.embedded[name] += EmbedCounts(filled=int(mask.sum()))
        return kept

    def _with_vectors(self, chunk: Chunk, table_keys: Container[TypeKey] | None) -> Iterator[KeptRows]:
        """Yield the rows of a chunk, one of each id, with missing vectors made in windows that fit memory."""
        job = self.job
        for loaded in chunk.loaded.values():
            key = loaded.type.table_key
            if table_keys is not None and key not in table_keys:
                continue
            part = loaded.in_order()
            kept = _keep_one_per_id(job, KeptRows(job.catalog.type_of(key), part.rows, part.numbers))
            # The load fails anyway if a line is malformed, so make no requests for it.
            if job.embed is None or key not in job.embed.targets or (self.outcome.malformed and not job.is_rejecting):
                yield kept
                continue
            step = job.embed.window(key)
            for start in range(0, max(kept.rows.num_rows, 1), step):
                rows, filled = embed_rows(job.embed, key, kept.rows.slice(start, step), self.outcome.embedded)
                yield KeptRows(kept.type, rows, kept.lines[start : start + step], filled)

    def _without_superseded(self, kept: KeptRows) -> KeptRows:
        key, count = kept.type.table_key, kept.rows.num_rows
        if not self.superseded or key not in self.superseded:
            return kept
        first = self._rows_read.get(key, 0)
        self._rows_read[key] = first + count
        rows = self.superseded[key]
        stays = np.ones(count, bool)
        stays[rows[(rows >= first) & (rows < first + count)] - first] = False
        return kept.only(stays)

    def _without_vectors_to_make(self, kept: KeptRows, violations: list[IndexedViolation]) -> list[IndexedViolation]:
        """Leave out vectors that are missing only because nothing is embedded for an input with malformed lines."""
        if self.job.embed is None or self.job.is_rejecting or not self.outcome.malformed:
            return violations
        vectors = {target.name for target in self.job.embed.targets.get(kept.type.table_key, ())}
        return [item for item in violations if item[1].property not in vectors]


def _drop_lines(kept: KeptRows, lines: Collection[int]) -> KeptRows:
    return kept.only(~np.isin(kept.lines, list(lines))) if lines else kept


def _keep_one_per_id(job: RowJob, kept: KeptRows) -> KeptRows:
    """Keep the first or last row of each id if one of them wins; otherwise duplicates are left for the rules."""
    winner = job.winner(kept.type)
    if winner == "error":
        return kept
    ids = one_array(kept.rows.column("id"))
    winners = last_of_each(ids) if winner == "last" else first_of_each(ids)
    if len(winners) == kept.rows.num_rows:
        return kept
    return KeptRows(kept.type, kept.rows.take(winners), kept.lines[winners])


def _check_row_rules(job: RowJob, kept: KeptRows) -> list[IndexedViolation]:
    delta = Delta(kept.type, kept.rows, job.intent, lines=kept.lines)
    changes = Changes(job.catalog, {delta.key: delta}, job.unit)
    return run_rules(ROW_CHECKS, changes, NO_COMMITTED_ROWS, job.violations_max)


class _NoCommittedRows:
    """Committed rows for rules that never look at them."""

    def existing(self, table_key: TypeKey, ids: Ids) -> Ids:
        raise AssertionError("a row rule reads no committed rows")

    def matching(self, table_key: TypeKey, columns: Sequence[str], where: Mapping[str, Column]) -> pa.Table:
        raise AssertionError("a row rule reads no committed rows")


NO_COMMITTED_ROWS: Final = _NoCommittedRows()


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

    def with_optional_vectors(self, catalog: Catalog) -> Catalog:
        """Return a catalog in which the vectors that will be made are optional."""
        nodes = dict(catalog.nodes)
        for node in (node for node in catalog.nodes.values() if node.table_key in self.targets):
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
        changes = VectorChanges(is_needed, np.zeros(len(is_needed), np.bool_))
        column, counts = updated_vectors(job.site, target, rows, changes)
        rows = put_column(rows, target.name, column)
        name = f"{table_key.name}.{target.name}"
        tallies[name] = tallies.get(name, EmbedCounts()) + replace(counts, filled=0)
        filled[name] = is_needed
    return rows, filled
