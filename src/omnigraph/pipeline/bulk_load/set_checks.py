"""Set rules of a load: suspects are found by hash, fetched, and judged by the very rules that every write runs.

So codes, words and order are those of an ingest, and no more rows come to the driver than a report can tell. The
hashes never come: they are compared range by range, where tasks run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.write.committed_rows import CommittedRows
from omnigraph.lang.catalog import Cardinality, EdgeType
from omnigraph.lang.schema.arrow_schema import arrow_schema
from omnigraph.limits import LOAD_SUSPECTS_MAX
from omnigraph.pipeline.bulk_load.key_files import Pile, Slice, columns_of, freed_names, tuple_names
from omnigraph.pipeline.bulk_load.key_hashes import NOTHING, gathered, hash_column, is_among
from omnigraph.pipeline.bulk_load.matching import FoundByKey, Matched, Piled, Piles
from omnigraph.pipeline.bulk_load.stage_split import Wanted
from omnigraph.pipeline.bulk_load.staged_input import StagedInput
from omnigraph.rules.arrow_typing import Column, Numbers
from omnigraph.rules.delta import NO_IDS, Changes, Committed, Delta, Ids, Intent, one_array
from omnigraph.rules.validate import RULES
from omnigraph.rules.violations import Findings
from omnigraph.store.read.dataset import Dataset


@dataclass(frozen=True)
class Suspects:
    """Rows that a rule is to judge, and what it is told about the rows that are committed."""

    rows: Mapping[str, Wanted]
    committed: Committed


@dataclass
class SetCheck:
    """Judges one input against one view; `matched` are the committed rows that the input replaces, range by range."""

    input: StagedInput
    committed: CommittedRows
    limit: int
    matched: Sequence[Mapping[str, Matched]] = field(default_factory=list)
    _found: dict[str, FoundByKey] = field(default_factory=dict)

    def run(self, findings: Findings) -> None:
        """Add all that set rules find, in the order in which every write tells it."""
        self._find()
        for rule in RULES:
            assemble = ASSEMBLERS.get(rule.__name__)
            if assemble is None or findings.is_full:
                continue
            suspects = assemble(self)
            if suspects is not None:
                rule(self._changes(suspects.rows), suspects.committed, findings)

    def hits(self, table_key: str) -> dict[int, tuple[Slice, ...]]:
        """Return by fragment where the addresses of the rows that are replaced are written."""
        found: dict[int, tuple[Slice, ...]] = {}
        for one in (part[table_key] for part in self.matched if table_key in part):
            for fragment, (start, stop) in one.fragments.items():
                found[fragment] = (*found.get(fragment, ()), Slice(one.hits, start, stop))
        return found

    # -- finding -----------------------------------------------------------------------------------------------

    def _find(self) -> None:
        theirs = self._committed_piles()
        if self.input.job.intent is Intent.UPSERT:
            own = {key: piles for key, piles in theirs.items() if key in self.input.types}
            self.matched = self.input.match(own) if own else []
        freed: dict[str, list[Pile]] = {key: [] for key in self.input.types}
        for part in self.matched:
            for key, one in part.items():
                freed[key] += [one.freed] if one.freed else []
        self.piled = Piled(self.input.piles, theirs, freed, self.limit)
        parts = self.input.find(self.piled)
        for rule in {rule for part in parts for rule in part}:
            together = self._found.setdefault(rule, {})
            limit = LOAD_SUSPECTS_MAX if rule == "orphans" else self.limit
            for place in {place for part in parts for place in part.get(rule, {})}:
                together[place] = gathered([part[rule][place] for part in parts if place in part.get(rule, {})], limit)

    def _committed_piles(self) -> dict[str, Piles]:
        """Return the key files of all that is committed and compared."""
        asked: dict[str, dict[str, None]] = {}
        for key, name in self._asked():
            asked.setdefault(key, {})[name] = None
        found: dict[str, Piles] = {}
        for key, names in asked.items():
            dataset = self.dataset(key)
            if dataset.count():
                is_matched = self.input.job.intent is Intent.UPSERT and key in self.input.types
                along = ("check", *freed_names(self.input.job.catalog.type_of(key))) if is_matched else ()
                found[key] = self.input.committed_keys(dataset, key, tuple(names), along)
        return found

    def _asked(self) -> Iterator[tuple[str, str]]:
        is_replacing = self.input.job.intent is Intent.REPLACE
        for key, one in self.input.types.items():
            if not is_replacing:
                yield from ((key, name) for name in ("id", *tuple_names(one.type)))
            if isinstance(one.type, EdgeType):
                ends = (f"node:{one.type.source}", f"node:{one.type.target}")
                yield from ((node, "id") for node in ends if not (is_replacing and node in self.input.types))
                if one.type.cardinality != Cardinality() and not is_replacing:
                    yield key, "src"
            elif is_replacing:
                yield key, "id"
                for edge in self.committed.view.catalog.edges.values():
                    if edge.table_key not in self.input.types:
                        sides = (("src", edge.source), ("dst", edge.target))
                        yield from ((edge.table_key, name) for name, node in sides if node == one.type.name)

    # -- what assemblers ask -----------------------------------------------------------------------------------

    def found(self, rule: str) -> FoundByKey:
        return self._found.get(rule, {})

    def entries(self, table_key: str, name: str, hashes: Numbers) -> tuple[Numbers, Numbers]:
        """Return hashes and rows of those of the keys that come in."""
        return self.input.look_up(self.piled, table_key, name, hashes)

    def comes_in(self, table_key: str, ids: Ids) -> Numbers:
        """Return for each id whether the input holds it."""
        hashes = hash_column(ids, self.input.job.operation_id)
        known, _ = self.entries(table_key, "id", np.unique(hashes))
        return np.asarray(is_among(hashes, known))

    def repeats(self, rule: str, table_key: str, name: str, found: str) -> Numbers:
        """Return the first rows that repeat an earlier one, within a file or over several, and those earlier ones."""
        across = self.found(rule).get((table_key, found), NOTHING)
        first = gathered([across, *self.input.types[table_key].repeats(name)], self.limit)
        return np.unique(np.concatenate([first.rows, first.marks.astype(np.int64)]))

    def with_repeats(self, table_key: str, name: str, rows: Numbers) -> Numbers:
        """Return rows together with those that repeat one of them within its file."""
        again = [one.rows[np.isin(one.marks, rows)] for one in self.input.types[table_key].repeats(name)]
        return np.unique(np.concatenate([rows, *again]))[: self.limit]

    def _changes(self, wanted: Mapping[str, Wanted]) -> Changes:
        fetched = self.input.fetch({key: one for key, one in wanted.items() if len(one.rows)})
        deltas: dict[str, Delta] = {}
        for key, one in sorted(self.input.types.items()):
            rows, lines = fetched.get(key, (arrow_schema(one.type).empty_table(), np.zeros(0, np.int64)))
            deltas[key] = Delta(one.type, rows, self.input.job.intent, lines=lines)
        return Changes(self.committed.view.catalog, deltas, self.input.job.unit)

    def dataset(self, table_key: str) -> Dataset:
        return self.committed.view.sound_dataset(table_key)

    def texts(self, table_key: str, column: str, hashes: Numbers, columns: Sequence[str]) -> pa.Table:
        """Return columns of the committed rows in which one column has one of these hashes."""
        dataset = self.dataset(table_key)
        parts = [dataset.schema.empty_table().select(list(columns))]
        for batch in dataset.batches(list(dict.fromkeys([*columns, column]))) if len(hashes) else ():
            chosen = is_among(hash_column(batch.column(column), self.input.job.operation_id), hashes)
            if chosen.any():
                parts.append(pa.Table.from_batches([batch]).filter(pa.array(chosen)).select(list(columns)))
        return pa.concat_tables([part.cast(parts[0].schema) for part in parts])


# -- the rules, one by one -------------------------------------------------------------------------------------


def _repeated_ids(check: SetCheck) -> Suspects | None:
    rows: dict[str, Wanted] = {}
    for key in check.input.types:
        again = check.repeats("distinct_ids", key, "id", "id")
        if len(again):
            rows[key] = Wanted(again, ("id",))
    return Suspects(rows, check.committed) if rows else None


def _taken_ids(check: SetCheck) -> Suspects | None:
    rows = {
        key: Wanted(check.with_repeats(key, "id", found.rows), ("id",))
        for (key, _), found in check.found("new_ids").items()
    }
    return Suspects(rows, check.committed) if rows else None


def _shared_tuples(check: SetCheck) -> Suspects | None:
    rows: dict[str, Wanted] = {}
    for key, one in check.input.types.items():
        names = tuple_names(one.type)
        parts = [np.zeros(0, np.int64)]
        for name in names:
            taken = check.found("unique").get((key, f"{name}.taken"), NOTHING)
            parts += [
                check.repeats("unique", key, name, f"{name}.again"),
                check.with_repeats(key, name, taken.rows),
                *(rows[: check.limit] for rows in one.odd(name)),
            ]
        chosen = np.unique(np.concatenate(parts))
        if len(chosen):
            rows[key] = Wanted(chosen, tuple(columns_of(one.type, ["id", *names])))
    return Suspects(rows, _Surviving(check)) if rows else None


def _loose_ends(check: SetCheck) -> Suspects | None:
    rows: dict[str, Wanted] = {}
    for (key, column), found in check.found("endpoints").items():
        before = rows.get(key, Wanted(NOTHING.rows, ("id", "src", "dst"), {}, check.limit))
        places = np.union1d(before.rows, found.rows)
        rows[key] = Wanted(places, before.columns, {**before.where, column: np.unique(found.marks)}, check.limit)
    if not rows:
        return None
    # The rule must also see the nodes that come in at the other end of such an edge.
    nodes: dict[str, list[Numbers]] = {}
    for key, (edges, _) in check.input.fetch(rows).items():
        type_ = check.input.types[key].type
        assert isinstance(type_, EdgeType)
        for column, node in (("src", f"node:{type_.source}"), ("dst", f"node:{type_.target}")):
            nodes.setdefault(node, []).append(
                hash_column(one_array(edges.column(column)), check.input.job.operation_id)
            )
    for node, hashes in nodes.items():
        if node in check.input.types:
            _, places = check.entries(node, "id", np.unique(np.concatenate(hashes)))
            rows[node] = Wanted(np.sort(places), ("id",))
    return Suspects(rows, check.committed)


def _left_behind(check: SetCheck) -> Suspects | None:
    needed: dict[str, Numbers] = {}
    for (key, _), found in check.found("orphans").items():
        needed[key] = np.union1d(needed.get(key, np.zeros(0, np.uint64)), found.marks)
    return Suspects({}, _Vacated(check, needed)) if needed else None


def _wrong_degrees(check: SetCheck) -> Suspects | None:
    rows: dict[str, Wanted] = {}
    wrong: dict[str, Numbers] = {}
    for key, one in check.input.types.items():
        if not isinstance(one.type, EdgeType) or one.type.cardinality == Cardinality():
            continue
        found = check.found("cardinality").get((key, "src"), NOTHING).marks
        sources = np.union1d(found, _sources_of_repeats(check, key))
        if len(sources):
            wrong[key] = sources
            _, places = check.entries(key, "src", sources)
            # One source may have any number of edges; the rule counts those that are fetched.
            rows[key] = Wanted(np.sort(places), ("id", "src"), {"src": sources}, LOAD_SUSPECTS_MAX)
    return Suspects(rows, _Degrees(check, wrong)) if wrong else None


def _sources_of_repeats(check: SetCheck, table_key: str) -> Numbers:
    """Return the sources of edges whose id comes twice: counts by hash have both, the rule counts the last."""
    again = check.repeats("distinct_ids", table_key, "id", "id")
    if len(again) == 0:
        return np.zeros(0, np.uint64)
    edges, _ = check.input.fetch({table_key: Wanted(again, ("src",))})[table_key]
    return hash_column(one_array(edges.column("src")), check.input.job.operation_id)


ASSEMBLERS: Final[dict[str, Callable[[SetCheck], Suspects | None]]] = {
    "distinct_ids": _repeated_ids,
    "new_ids": _taken_ids,
    "unique": _shared_tuples,
    "endpoints": _loose_ends,
    "orphans": _left_behind,
    "cardinality": _wrong_degrees,
}


# -- what rules are told about committed rows ------------------------------------------------------------------


@dataclass(frozen=True)
class _Surviving:
    """The committed rows that the input does not replace; a rule sees only some of the ids that come in."""

    check: SetCheck

    def existing(self, table_key: str, ids: Ids) -> Ids:
        return self.check.committed.existing(table_key, ids)

    def matching(self, table_key: str, columns: Sequence[str], where: Mapping[str, Column]) -> pa.Table:
        found = self.check.committed.matching(table_key, columns, where)
        replaced = self.check.comes_in(table_key, one_array(found.column("id")))
        return found.filter(pa.array(~replaced))


@dataclass(frozen=True)
class _Vacated:
    """A graph whose replaced types hold nothing but the ids that are still needed."""

    check: SetCheck
    needed: Mapping[str, Numbers]

    def existing(self, table_key: str, ids: Ids) -> Ids:
        return self.check.committed.existing(table_key, ids)

    def matching(self, table_key: str, columns: Sequence[str], where: Mapping[str, Column]) -> pa.Table:
        if where:
            return self.check.committed.matching(table_key, columns, where)
        if table_key not in self.needed:
            return pa.table({"id": NO_IDS})
        return self.check.texts(table_key, "id", self.needed[table_key], columns)


@dataclass(frozen=True)
class _Degrees:
    """A graph in which only sources of the wrong degree have edges."""

    check: SetCheck
    wrong: Mapping[str, Numbers]

    def existing(self, table_key: str, ids: Ids) -> Ids:
        return self.check.committed.existing(table_key, ids)

    def matching(self, table_key: str, columns: Sequence[str], where: Mapping[str, Column]) -> pa.Table:
        """Return edges of these sources: those that the input replaces when asked by id, else those that stay."""
        wrong = self.wrong.get(table_key, np.zeros(0, np.uint64))
        found = self.check.texts(table_key, "src", wrong, columns)
        replaced: Any = self.check.comes_in(table_key, one_array(found.column("id")))
        return found.filter(pa.array(replaced if "id" in where else ~replaced))
