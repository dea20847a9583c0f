"""Set rules of a load: suspects are found by hash, fetched, and judged by the very rules that every write runs.

So codes, words and order are those of an ingest, and no more rows come to the driver than a report can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from omnigraph.engine.write.committed import CommittedRows
from omnigraph.lang.catalog import Cardinality, EdgeType
from omnigraph.lang.schema.arrow import arrow_schema
from omnigraph.pipeline.hashing import hash_column
from omnigraph.pipeline.keyfile import Keys, columns_of
from omnigraph.pipeline.suspects import (
    TypeKeys,
    common,
    first_repeats,
    is_among,
    missing,
    out_of_bounds,
    repeated,
    rows_of,
)
from omnigraph.rules.committed import Committed
from omnigraph.rules.delta import NO_IDS, Changes, Delta, Ids, Intent, one_array
from omnigraph.rules.kernels import Column, Numbers
from omnigraph.rules.validate import RULES
from omnigraph.rules.violation import Findings
from omnigraph.store.dataset import Dataset

Rows = dict[str, tuple[Numbers, tuple[str, ...]]]
Fetched = Mapping[str, tuple[pa.Table, Numbers]]


class Input(Protocol):
    """What a load has read: keys of everything, and any row again."""

    intent: Intent
    unit: str
    seed: str
    types: Mapping[str, TypeKeys]

    def fetch(self, rows: Rows) -> Fetched:
        """Return chosen rows in order, with their lines."""
        ...

    def committed_keys(self, dataset: Dataset, table_key: str, names: Sequence[str]) -> Keys:
        """Return the keys of all committed rows of a type."""
        ...


@dataclass(frozen=True)
class Suspects:
    """Rows that a rule is to judge, and what it is told about the rows that are committed."""

    rows: Rows
    committed: Committed


@dataclass
class SetCheck:
    """Judges one input against one view."""

    input: Input
    committed: CommittedRows
    violations_max: int
    _keys: dict[tuple[str, str], Numbers] = field(default_factory=dict)

    def run(self, findings: Findings) -> None:
        """Add all that set rules find, in the order in which every write tells it."""
        for rule in RULES:
            find = FINDERS.get(rule.__name__)
            if find is None or findings.is_full:
                continue
            suspects = find(self)
            if suspects is not None:
                rule(self._changes(suspects.rows), suspects.committed, findings)

    def _changes(self, wanted: Rows) -> Changes:
        fetched = self.input.fetch({key: one for key, one in wanted.items() if len(one[0])})
        deltas: dict[str, Delta] = {}
        for key, one in sorted(self.input.types.items()):
            rows, lines = fetched.get(key, (arrow_schema(one.type).empty_table(), np.zeros(0, np.int64)))
            deltas[key] = Delta(one.type, rows, self.input.intent, lines=lines)
        return Changes(self.committed.view.catalog, deltas, self.input.unit)

    def dataset(self, table_key: str) -> Dataset:
        return self.committed.view.dataset(table_key)

    def their_keys(self, table_key: str, *names: str) -> Keys:
        """Return keys of what is committed, read once; nothing of a type that is empty, or that the input replaces."""
        dataset = self.dataset(table_key)
        is_replaced = self.input.intent is Intent.REPLACE and table_key in self.input.types
        if dataset.count() == 0 or is_replaced:
            return {name: np.zeros(0, np.uint64) for name in names}
        return self.all_keys(table_key, *names)

    def all_keys(self, table_key: str, *names: str) -> Keys:
        """Return keys of what is committed, also of a type that the input replaces."""
        asked = [name for name in names if (table_key, name) not in self._keys]
        if asked:
            wanted = list(dict.fromkeys(name.partition(".")[0] for name in asked))
            found = self.input.committed_keys(self.dataset(table_key), table_key, wanted)
            self._keys |= {(table_key, name): values for name, values in found.items()}
        return {name: self._keys[table_key, name] for name in names}

    def texts(self, table_key: str, column: str, hashes: Numbers, columns: Sequence[str]) -> pa.Table:
        """Return columns of the committed rows in which one column has one of these hashes."""
        dataset = self.dataset(table_key)
        parts = [dataset.schema.empty_table().select(list(columns))]
        for batch in dataset.batches(list(dict.fromkeys([*columns, column]))) if len(hashes) else ():
            chosen = is_among(hash_column(batch.column(column), self.input.seed), hashes)
            if chosen.any():
                parts.append(pa.Table.from_batches([batch]).filter(pa.array(chosen)).select(list(columns)))
        return pa.concat_tables([part.cast(parts[0].schema) for part in parts])


# -- the rules, one by one -------------------------------------------------------------------------------------


def _repeated_ids(check: SetCheck) -> Suspects | None:
    rows: Rows = {}
    for key, one in check.input.types.items():
        ids = one.keys["id"]
        again = repeated(ids)
        if len(again):
            rows[key] = (first_repeats(ids, rows_of(ids, again), check.violations_max), ("id",))
    return Suspects(rows, check.committed) if rows else None


def _taken_ids(check: SetCheck) -> Suspects | None:
    rows: Rows = {}
    for key, one in check.input.types.items() if check.input.intent is Intent.INSERT else ():
        ids = one.keys["id"]
        taken = common(ids, check.their_keys(key, "id")["id"])
        if len(taken):
            rows[key] = (rows_of(ids, taken)[: check.violations_max], ("id",))
    return Suspects(rows, check.committed) if rows else None


def _shared_tuples(check: SetCheck) -> Suspects | None:
    rows: Rows = {}
    for key, one in check.input.types.items():
        found = [np.zeros(0, np.int64)]
        for place in map(str, range(len(one.type.unique))):
            hashes, owners = one.keys[f"{place}.hash"], one.keys[f"{place}.row"]
            again = repeated(hashes)
            taken = common(hashes, check.their_keys(key, f"{place}.hash")[f"{place}.hash"])
            found.append(owners[first_repeats(hashes, rows_of(hashes, again), check.violations_max)])
            found.append(owners[rows_of(hashes, taken)[: check.violations_max]])
            found.append(one.keys[f"{place}.odd"][: check.violations_max])
        chosen = np.unique(np.concatenate(found))
        if len(chosen):
            names = map(str, range(len(one.type.unique)))
            rows[key] = (chosen, tuple(columns_of(one.type, ["id", *names])))
    return Suspects(rows, _Surviving(check)) if rows else None


def _loose_ends(check: SetCheck) -> Suspects | None:
    rows: Rows = {}
    nodes: dict[str, list[Numbers]] = {}
    for key, one in check.input.types.items():
        if not isinstance(one.type, EdgeType):
            continue
        ends = (("src", f"node:{one.type.source}"), ("dst", f"node:{one.type.target}"))
        found = [np.zeros(0, np.int64)]
        for column, node in ends:
            ours = check.input.types.get(node)
            loose = missing(one.keys[column], [ours.keys["id"]] if ours else [])
            if len(loose):
                loose = missing(loose, [check.their_keys(node, "id")["id"]])
            found.append(rows_of(one.keys[column], loose)[: check.violations_max])
        chosen = np.unique(np.concatenate(found))
        if len(chosen):
            rows[key] = (chosen, ("id", "src", "dst"))
            for column, node in ends:
                nodes.setdefault(node, []).append(one.keys[column][chosen])
    # The rule must also see the nodes that come in at the other end of such an edge.
    for node, hashes in nodes.items():
        if node in check.input.types:
            rows[node] = (rows_of(check.input.types[node].keys["id"], np.concatenate(hashes)), ("id",))
    return Suspects(rows, check.committed) if rows else None


def _left_behind(check: SetCheck) -> Suspects | None:
    """Find node ids that a replacement takes out although edges of types that it leaves alone still need them."""
    if check.input.intent is not Intent.REPLACE:
        return None
    needed: dict[str, Numbers] = {}
    for key, one in check.input.types.items():
        if isinstance(one.type, EdgeType) or check.dataset(key).count() == 0:
            continue
        vacated = missing(check.all_keys(key, "id")["id"], [one.keys["id"]])
        for edge in check.committed.view.catalog.edges.values() if len(vacated) else ():
            for column, node in (("src", edge.source), ("dst", edge.target)):
                if node == one.type.name and edge.table_key not in check.input.types:
                    used = common(vacated, check.their_keys(edge.table_key, column)[column])
                    needed[key] = np.union1d(needed[key], used) if key in needed else used
    needed = {key: hashes for key, hashes in needed.items() if len(hashes)}
    return Suspects({}, _Vacated(check, needed)) if needed else None


def _wrong_degrees(check: SetCheck) -> Suspects | None:
    rows: Rows = {}
    wrong: dict[str, Numbers] = {}
    for key, one in check.input.types.items():
        if not isinstance(one.type, EdgeType) or one.type.cardinality == Cardinality():
            continue
        bounds, ours = one.type.cardinality, one.keys["src"]
        theirs = check.their_keys(key, "id", "src")
        goes = is_among(theirs["id"], one.keys["id"])
        touched = [ours, theirs["src"][goes]] if check.input.intent is Intent.UPSERT else [ours]
        kept = np.concatenate([ours, theirs["src"][~goes]])
        sources = out_of_bounds(kept, np.concatenate(touched), bounds.minimum, bounds.maximum)
        if len(sources):
            wrong[key] = sources
            rows[key] = (rows_of(ours, sources), ("id", "src"))
    return Suspects(rows, _Degrees(check, wrong)) if wrong else None


FINDERS: Final[dict[str, Callable[[SetCheck], Suspects | None]]] = {
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
        ids = hash_column(one_array(found.column("id")), self.check.input.seed)
        replaced = is_among(ids, self.check.input.types[table_key].keys["id"])
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
        ids = hash_column(one_array(found.column("id")), self.check.input.seed)
        replaced: Any = is_among(ids, self.check.input.types[table_key].keys["id"])
        return found.filter(pa.array(replaced if "id" in where else ~replaced))
