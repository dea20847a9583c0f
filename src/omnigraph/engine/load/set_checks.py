"""Rules across rows (unique ids and values, endpoints, orphans, cardinality) for an input of any size.

Range tasks find candidates by hash; the driver fetches those rows and runs the ordinary rules on them. A different hash
proves that values differ, so no violation is missed; an equal hash may be a collision, which the rule then clears. So
error codes, messages and order are those of an ingest, and the driver holds no more rows than a report shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.key_buckets.files import KeySegment, columns_of_keys, released_names, unique_names
from omnigraph.engine.key_buckets.hashes import NO_CANDIDATES, hash_column, is_among, merge_candidates
from omnigraph.engine.load.key_matcher import KeyMatcher
from omnigraph.engine.load.matching import (
    CandidatesByKey,
    ComparedKeys,
    KeySegments,
    ReplacedRows,
    find_candidates,
    find_replaced,
)
from omnigraph.engine.load.stage_split import RowRequest
from omnigraph.engine.write.committed_rows import CommittedRows
from omnigraph.lang.catalog import Cardinality, EdgeType, TypeKey
from omnigraph.lang.schema.arrow_schema import arrow_schema
from omnigraph.limits import LOAD_SUSPECTS_MAX
from omnigraph.rules.arrow_typing import Column, Numbers
from omnigraph.rules.delta import NO_IDS, Changes, Committed, Delta, Ids, Intent, one_array
from omnigraph.store.read.dataset import Dataset

if TYPE_CHECKING:
    from omnigraph.engine.load.buckets import InBuckets


@dataclass(frozen=True)
class RuleInput:
    """The rows that a rule checks, and the committed rows that it sees."""

    rows: Mapping[TypeKey, RowRequest]
    committed: Committed


@dataclass
class SetCheck:
    """Checks one input against one view; `replaced` are the committed rows that the input replaces, by range.

    Filter and refine: hashes select a superset of the violations, and the exact rules of every write decide.
    """

    input: InBuckets
    keys: KeyMatcher
    committed: CommittedRows
    limit: int
    replaced: Sequence[Mapping[TypeKey, ReplacedRows]] = field(default_factory=list)
    _candidates: dict[str, CandidatesByKey] = field(default_factory=dict)

    def rule_input(self, rule: str) -> tuple[Changes, Committed] | None:
        """Return the rows that may break a rule, and what it sees of the committed ones; None if no row may."""
        rule_input = ASSEMBLERS[rule](self)
        return None if rule_input is None else (self._changes(rule_input.rows), rule_input.committed)

    # -- candidates --------------------------------------------------------------------------------------------

    def find_candidates(self) -> None:
        """Find the rows that may break a rule, by their hashes."""
        # Committed rows that the input replaces go first: their unique values and edge counts are free for others.
        committed = self._committed_segments()
        if self.input.job.intent is Intent.UPSERT:
            loaded = {key: segments for key, segments in committed.items() if key in self.input.types}
            if loaded:
                match = partial(find_replaced, self.input.job, self.keys.segments, loaded)
                self.replaced = self.keys.run("matching", match, loaded)
        released: dict[TypeKey, list[KeySegment]] = {key: [] for key in self.input.types}
        for part in self.replaced:
            for key, replaced in part.items():
                released[key] += [replaced.released] if replaced.released else []
        self.compared = ComparedKeys(self.keys.segments, committed, released, self.limit)
        parts = self.keys.run("checking", partial(find_candidates, self.input.job, self.compared), committed)
        # Ranges are disjoint, so the first rows of all of them are among the first rows of each.
        for rule in {rule for part in parts for rule in part}:
            merged = self._candidates.setdefault(rule, {})
            limit = LOAD_SUSPECTS_MAX if rule == "orphans" else self.limit
            for name in {name for part in parts for name in part.get(rule, {})}:
                of_ranges = [part[rule][name] for part in parts if name in part.get(rule, {})]
                merged[name] = merge_candidates(of_ranges, limit)

    def _committed_segments(self) -> dict[TypeKey, KeySegments]:
        """Return segments of all committed keys that the rules compare."""
        names_by_type: dict[TypeKey, dict[str, None]] = {}
        for key, name in self._compared_keys():
            names_by_type.setdefault(key, {})[name] = None
        segments: dict[TypeKey, KeySegments] = {}
        for key, names in names_by_type.items():
            dataset = self.dataset(key)
            if dataset.count():
                is_upserted = self.input.job.intent is Intent.UPSERT and key in self.input.types
                extra = ("check", *released_names(self.input.job.catalog.type_of(key))) if is_upserted else ()
                segments[key] = self.keys.committed_keys(dataset, key, tuple(names), extra)
        return segments

    def _compared_keys(self) -> Iterator[tuple[TypeKey, str]]:
        """Yield (type, key name) of the committed keys that this input has to be compared with."""
        # What is not compared is not read: an overwrite looks at its own types only for the nodes that it removes.
        is_replacing = self.input.job.intent is Intent.REPLACE
        for key, rows in self.input.types.items():
            if not is_replacing:
                yield from ((key, name) for name in ("id", *unique_names(rows.type)))
            if isinstance(rows.type, EdgeType):
                ends = (TypeKey.of("node", end) for end in rows.type.ends.values())
                yield from ((node, "id") for node in ends if not (is_replacing and node in self.input.types))
                bounds = rows.type.cardinality
                if bounds.minimum if is_replacing else bounds != Cardinality():
                    yield key, "src"
            elif is_replacing:
                yield key, "id"
                for edge in self.committed.view.catalog.edges.values():
                    if edge.table_key not in self.input.types:
                        yield from (
                            (edge.table_key, name) for name, node in edge.ends.items() if node == rows.type.name
                        )

    # -- lookups for the assemblers ----------------------------------------------------------------------------

    def candidates(self, rule: str) -> CandidatesByKey:
        return self._candidates.get(rule, {})

    def look_up(self, table_key: TypeKey, name: str, hashes: Numbers) -> tuple[Numbers, Numbers]:
        """Return hashes and rows of the incoming keys that are among the hashes."""
        return self.keys.look_up(self.compared, table_key, name, hashes)

    def is_incoming(self, table_key: TypeKey, ids: Ids) -> Numbers:
        """Return a mask of the ids that the input holds."""
        hashes = hash_column(ids, self.input.job.operation_id)
        incoming, _ = self.look_up(table_key, "id", np.unique(hashes))
        return np.asarray(is_among(hashes, incoming))

    def duplicates(self, rule: str, table_key: TypeKey, name: str, candidate_name: str) -> Numbers:
        """Return the first rows that repeat a key, within a segment or across segments, and the rows they repeat."""
        # A segment holds each key once, so repeats within it are known from staging, and those across from the ranges.
        across = self.candidates(rule).get((table_key, candidate_name), NO_CANDIDATES)
        first = merge_candidates([across, *self.input.types[table_key].duplicates(name)], self.limit)
        return np.unique(np.concatenate([first.rows, first.marks.astype(np.int64)]))

    def with_duplicates(self, table_key: TypeKey, name: str, rows: Numbers) -> Numbers:
        """Return rows together with those that repeat one of them within its segment."""
        repeats = [
            duplicates.rows[np.isin(duplicates.marks, rows)]
            for duplicates in self.input.types[table_key].duplicates(name)
        ]
        return np.unique(np.concatenate([rows, *repeats]))[: self.limit]

    def _changes(self, requests: Mapping[TypeKey, RowRequest]) -> Changes:
        fetched = self.input.fetch({key: request for key, request in requests.items() if len(request.rows)})
        deltas: dict[TypeKey, Delta] = {}
        for key, staged in sorted(self.input.types.items()):
            rows, lines = fetched.get(key, (arrow_schema(staged.type).empty_table(), np.zeros(0, np.int64)))
            deltas[key] = Delta(staged.type, rows, self.input.job.intent, lines=lines)
        return Changes(self.committed.view.catalog, deltas, self.input.job.unit, self.input.lines.locate)

    def dataset(self, table_key: TypeKey) -> Dataset:
        return self.committed.view.sound_dataset(table_key)

    def committed_where(self, table_key: TypeKey, column: str, hashes: Numbers, columns: Sequence[str]) -> pa.Table:
        """Return columns of the committed rows whose `column` has one of the hashes."""
        # A scan of one column: no index knows the hashes of this load. It runs only for a load that breaks a rule.
        dataset = self.dataset(table_key)
        parts = [dataset.schema.empty_table().select(list(columns))]
        for batch in dataset.batches(list(dict.fromkeys([*columns, column]))) if len(hashes) else ():
            chosen = is_among(hash_column(batch.column(column), self.input.job.operation_id), hashes)
            if chosen.any():
                parts.append(pa.Table.from_batches([batch]).filter(pa.array(chosen)).select(list(columns)))
        return pa.concat_tables([part.cast(parts[0].schema) for part in parts])


# -- assemblers: what each rule needs to see -------------------------------------------------------------------


def _duplicate_ids(check: SetCheck) -> RuleInput | None:
    requests: dict[TypeKey, RowRequest] = {}
    for key in check.input.types:
        repeated = check.duplicates("distinct_ids", key, "id", "id")
        if len(repeated):
            requests[key] = RowRequest(repeated, ("id",))
    return RuleInput(requests, check.committed) if requests else None


def _existing_ids(check: SetCheck) -> RuleInput | None:
    requests = {
        key: RowRequest(check.with_duplicates(key, "id", candidates.rows), ("id",))
        for (key, _), candidates in check.candidates("new_ids").items()
    }
    return RuleInput(requests, check.committed) if requests else None


def _duplicate_tuples(check: SetCheck) -> RuleInput | None:
    requests: dict[TypeKey, RowRequest] = {}
    for key, staged in check.input.types.items():
        names = unique_names(staged.type)
        parts = [np.zeros(0, np.int64)]
        for name in names:
            # A holder that is committed, one earlier in the input, and values that are refused: each breaks the rule
            # alone.
            existing = check.candidates("unique").get((key, f"{name}.taken"), NO_CANDIDATES)
            parts += [
                check.duplicates("unique", key, name, f"{name}.again"),
                check.with_duplicates(key, name, existing.rows),
                *(rows[: check.limit] for rows in staged.incomparable(name)),
            ]
        chosen = np.unique(np.concatenate(parts))
        if len(chosen):
            requests[key] = RowRequest(chosen, tuple(columns_of_keys(staged.type, ["id", *names])))
    return RuleInput(requests, _SurvivingRows(check)) if requests else None


def _missing_endpoints(check: SetCheck) -> RuleInput | None:
    requests: dict[TypeKey, RowRequest] = {}
    for (key, column), candidates in check.candidates("endpoints").items():
        request = requests.get(key, RowRequest(NO_CANDIDATES.rows, ("id", "src", "dst"), {}, check.limit))
        row_numbers = np.union1d(request.rows, candidates.rows)
        requests[key] = RowRequest(
            row_numbers, request.columns, {**request.where, column: np.unique(candidates.marks)}, check.limit
        )
    if not requests:
        return None
    # The rule must also see incoming nodes at the other endpoint of such an edge.
    nodes: dict[TypeKey, list[Numbers]] = {}
    for key, (edges, _) in check.input.fetch(requests).items():
        for column, end in check.input.types[key].type.ends.items():
            nodes.setdefault(TypeKey.of("node", end), []).append(
                hash_column(one_array(edges.column(column)), check.input.job.operation_id)
            )
    for node, hashes in nodes.items():
        if node in check.input.types:
            _, row_numbers = check.look_up(node, "id", np.unique(np.concatenate(hashes)))
            requests[node] = RowRequest(np.sort(row_numbers), ("id",))
    return RuleInput(requests, check.committed)


def _orphaned_endpoints(check: SetCheck) -> RuleInput | None:
    needed: dict[TypeKey, Numbers] = {}
    for (key, _), candidates in check.candidates("orphans").items():
        needed[key] = np.union1d(needed.get(key, np.zeros(0, np.uint64)), candidates.marks)
    return RuleInput({}, _VacatedNodes(check, needed)) if needed else None


def _cardinality_breaches(check: SetCheck) -> RuleInput | None:
    requests: dict[TypeKey, RowRequest] = {}
    breaching: dict[TypeKey, Numbers] = {}
    for key, staged in check.input.types.items():
        if not isinstance(staged.type, EdgeType) or staged.type.cardinality == Cardinality():
            continue
        hashes = check.candidates("cardinality").get((key, "src"), NO_CANDIDATES).marks
        # The counts by hash are exact but for ids that come twice, so the sources of those are looked at as well.
        sources = np.union1d(hashes, _sources_of_duplicates(check, key))
        if len(sources):
            breaching[key] = sources
            _, row_numbers = check.look_up(key, "src", sources)
            # The rule counts the edges that are fetched; a source may have any number of them.
            requests[key] = RowRequest(np.sort(row_numbers), ("id", "src"), {"src": sources}, LOAD_SUSPECTS_MAX)
            node = TypeKey.of("node", staged.type.source)
            if check.input.job.intent is Intent.REPLACE and node in check.input.types:
                # Which of the sources the overwrite keeps.
                _, kept = check.look_up(node, "id", sources)
                earlier = requests[node].rows if node in requests else kept
                requests[node] = RowRequest(np.union1d(earlier, kept), ("id",))
    return RuleInput(requests, _BreachingSources(check, breaching)) if breaching else None


def _sources_of_duplicates(check: SetCheck, table_key: TypeKey) -> Numbers:
    """Return the sources of edges with a duplicate id: counts by hash include both, the rule counts the last."""
    repeated = check.duplicates("distinct_ids", table_key, "id", "id")
    if len(repeated) == 0:
        return np.zeros(0, np.uint64)
    edges, _ = check.input.fetch({table_key: RowRequest(repeated, ("src",))})[table_key]
    return hash_column(one_array(edges.column("src")), check.input.job.operation_id)


ASSEMBLERS: Final[dict[str, Callable[[SetCheck], RuleInput | None]]] = {
    "distinct_ids": _duplicate_ids,
    "new_ids": _existing_ids,
    "unique": _duplicate_tuples,
    "endpoints": _missing_endpoints,
    "orphans": _orphaned_endpoints,
    "cardinality": _cardinality_breaches,
}


# -- committed rows as the rules see them ----------------------------------------------------------------------


@dataclass(frozen=True)
class _CommittedRows:
    check: SetCheck

    def existing(self, table_key: TypeKey, ids: Ids) -> Ids:
        return self.check.committed.existing(table_key, ids)


class _SurvivingRows(_CommittedRows):
    """Committed rows that the input does not replace; the rule itself sees only some of the incoming ids."""

    def matching(self, table_key: TypeKey, columns: Sequence[str], where: Mapping[str, Column]) -> pa.Table:
        # Replaced rows are recognised by hash. A collision could hide a committed holder of the value, with odds of
        # 2^-64 for each pair; the upsert itself is decided by 128 bits.
        rows = self.check.committed.matching(table_key, columns, where)
        replaced = self.check.is_incoming(table_key, one_array(rows.column("id")))
        return rows.filter(pa.array(~replaced))


@dataclass(frozen=True)
class _VacatedNodes(_CommittedRows):
    """A graph whose replaced node types hold only the ids that edges still refer to."""

    needed: Mapping[TypeKey, Numbers]

    def matching(self, table_key: TypeKey, columns: Sequence[str], where: Mapping[str, Column]) -> pa.Table:
        if where:
            return self.check.committed.matching(table_key, columns, where)
        if table_key not in self.needed:
            return pa.table({"id": NO_IDS})
        return self.check.committed_where(table_key, "id", self.needed[table_key], columns)


@dataclass(frozen=True)
class _BreachingSources(_CommittedRows):
    """A graph in which only sources that may breach a cardinality have edges."""

    sources: Mapping[TypeKey, Numbers]

    def matching(self, table_key: TypeKey, columns: Sequence[str], where: Mapping[str, Column]) -> pa.Table:
        """Return edges of these sources: the replaced ones for a lookup by id, otherwise the surviving ones."""
        sources = self.sources.get(table_key, np.zeros(0, np.uint64))
        rows = self.check.committed_where(table_key, "src", sources, columns)
        if not where:  # an overwrite, which asks for all edges that it replaces
            return rows
        replaced: Any = self.check.is_incoming(table_key, one_array(rows.column("id")))
        return rows.filter(pa.array(replaced if "id" in where else ~replaced))
