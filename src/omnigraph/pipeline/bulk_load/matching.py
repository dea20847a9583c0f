"""Matching: which committed rows an input replaces, found range by range of the hashes of ids, marked by fragment.

A fragment is one task's alone when rows are marked, so no two of them ever mark rows of the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.write.ndjson.blocks import Type
from omnigraph.lang.catalog import Cardinality, EdgeType, NodeType
from omnigraph.limits import LOAD_SUSPECTS_MAX
from omnigraph.pipeline.bulk_load.job import Job, Place
from omnigraph.pipeline.bulk_load.key_files import (
    Pile,
    Range,
    Slice,
    columns_of,
    freed_names,
    keys_of,
    make_run,
    read_keys,
    tuple_names,
    write_keys,
    write_numbers,
)
from omnigraph.pipeline.bulk_load.key_hashes import (
    Found,
    common,
    degrees,
    is_among,
    is_matched,
    later_rows,
    missing,
    repeated,
    superseded,
)
from omnigraph.rules.arrow_typing import Numbers
from omnigraph.rules.delta import Intent
from omnigraph.store.read.dataset import DatasetRef
from omnigraph.store.read.lookup import ROW_ADDRESS
from omnigraph.store.write.fragments import Marked, mark_rows, read_fragment

Piles = Sequence[Pile]


@dataclass(frozen=True, slots=True)
class KeyTask:
    """Which keys of which fragment are asked for, and what is to go along with ids."""

    ref: DatasetRef
    fragment_id: int
    table_key: str
    names: tuple[str, ...]
    along: tuple[str, ...]


def read_fragment_keys(job: Job, task: KeyTask) -> Pile:
    """Write the keys of one fragment; its rows are counted by their addresses."""
    type_ = job.catalog.type_of(task.table_key)
    names = [*task.names, *(name for name in task.along if name != "check")]
    rows = read_fragment(job.place.open(task.ref), task.fragment_id, columns_of(type_, names))
    keys = keys_of(type_, rows, task.names, task.along, job.operation_id, 0)
    offsets = (rows.column(ROW_ADDRESS).to_numpy() & 0xFFFF_FFFF).astype(np.uint32)
    for run in keys.runs.values():
        run["row"] = offsets[run["row"]]
    return write_keys(job.place.store(), job.side, keys.runs, task.fragment_id << 32)


def read_range(job: Job, piles: Piles, name: str, arrays: Sequence[str], within: Range) -> dict[str, Numbers]:
    """Return arrays of one key from many files; rows are numbered through all of them."""
    store = job.place.store()
    found: dict[str, list[Numbers]] = {array: [np.zeros(0, np.uint64)] for array in arrays}
    if "row" in found:
        found["row"] = [np.zeros(0, np.int64)]
    for pile in piles:
        run = read_keys(store, pile.path, name, arrays, within)
        for array, values in run.items():
            found[array].append(values.astype(np.int64) + pile.first if array == "row" else values)
    return {array: np.concatenate(parts) for array, parts in found.items()}


@dataclass(frozen=True, slots=True)
class Matched:
    """The committed rows of one type in one range that are replaced: their addresses, and the keys they give free."""

    hits: str
    fragments: Mapping[int, tuple[int, int]]
    freed: Pile | None


def match_range(job: Job, ours: Mapping[str, Piles], theirs: Mapping[str, Piles], within: Range) -> dict[str, Matched]:
    """Find the committed rows whose ids come in, by both hashes, as far as these are in a range."""
    found: dict[str, Matched] = {}
    for key in theirs:
        free = freed_names(job.catalog.type_of(key))
        own = read_range(job, ours[key], "id", ("hash", "check"), within)
        there = read_range(job, theirs[key], "id", ("hash", "check", "row", *free), within)
        hit = is_matched(there["hash"], there["check"], own["hash"], own["check"])
        if not hit.any():
            continue
        addresses = np.sort(there["row"][hit])
        store = job.place.store()
        freed = {name: there[name][hit] for name in free}
        runs = {name: make_run(hashes, np.zeros(len(hashes), np.uint32), {}) for name, hashes in freed.items()}
        found[key] = Matched(
            write_numbers(store, job.side, addresses),
            slices_of(addresses >> 32),
            write_keys(store, job.side, runs) if runs else None,
        )
    return found


def slices_of(ordered: Numbers) -> dict[int, tuple[int, int]]:
    """Return where each number begins and ends in a sorted array."""
    numbers, starts = np.unique(ordered, return_index=True)
    stops = [*starts[1:].tolist(), len(ordered)]
    return dict(zip(numbers.tolist(), zip(starts.tolist(), stops, strict=True), strict=True))


@dataclass(frozen=True, slots=True)
class MarkTask:
    """One fragment, and where the addresses of its rows that go are written."""

    ref: DatasetRef
    fragment_id: int
    hits: tuple[Slice, ...]


def mark_fragment(place: Place, task: MarkTask) -> Marked:
    """Mark the rows of one fragment that are replaced or deleted."""
    store = place.store()
    addresses = np.concatenate([one.read(store, "<i8") for one in task.hits])
    return mark_rows(place.open(task.ref), task.fragment_id, pa.table({ROW_ADDRESS: addresses}))


@dataclass(frozen=True, slots=True)
class Dropped:
    """Rows of one type that later ones of the same id replace, in one range: their numbers, cut by split."""

    path: str
    splits: Mapping[int, tuple[int, int]] = field(default_factory=dict)


def drop_range(job: Job, ours: Mapping[str, Piles], bounds: Mapping[str, Numbers], within: Range) -> dict[str, Dropped]:
    """Find the rows of an input whose id comes again in it, as far as their hashes are in a range."""
    found: dict[str, Dropped] = {}
    for key, piles in ours.items():
        hashes = np.sort(read_range(job, piles, "id", ("hash",), within)["hash"])
        if not (hashes[1:] == hashes[:-1]).any():
            continue
        own = read_range(job, piles, "id", ("hash", "check", "row"), within)
        rows = superseded(own["hash"], own["check"], own["row"])
        if len(rows):
            splits = np.searchsorted(bounds[key], rows, side="right") - 1
            # Whoever stages a split again counts its rows from its own first one.
            path = write_numbers(job.place.store(), job.side, rows - bounds[key][splits])
            found[key] = Dropped(path, slices_of(splits))
    return found


# What a finder found, by type and by what it looked at.
FoundByKey = dict[tuple[str, str], Found]

# The number of a row that the input does not have, after all that it has.
NO_ROW: Final = 2**62


@dataclass(frozen=True)
class Piled:
    """All key files of a check: of the input, of what is committed, and of what the input takes the place of."""

    ours: Mapping[str, Piles]
    theirs: Mapping[str, Piles]
    freed: Mapping[str, Piles]
    limit: int


@dataclass
class Bucket:
    """One range of hashes of everything that is compared."""

    job: Job
    piled: Piled
    within: Range
    _sorted: dict[tuple[str, str, str], Numbers] = field(default_factory=dict)

    @property
    def types(self) -> Iterator[tuple[str, Type]]:
        return ((key, self.job.catalog.type_of(key)) for key in sorted(self.piled.ours))

    @property
    def intent(self) -> Intent:
        return self.job.intent

    def ours(self, key: str, name: str) -> Numbers:
        """Return the hashes of a key that come in, sorted."""
        return self._ordered("ours", self.piled.ours, key, name)

    def theirs(self, key: str, name: str) -> Numbers:
        """Return the hashes of a key that are committed, sorted."""
        return self._ordered("theirs", self.piled.theirs, key, name)

    def freed(self, key: str, name: str) -> Numbers:
        """Return the hashes of a key that committed rows give free, sorted."""
        return self._ordered("freed", self.piled.freed, key, name)

    def staying(self, key: str) -> Numbers:
        """Return the ids that are committed and that the input does not replace as a whole."""
        is_replaced = self.intent is Intent.REPLACE and key in self.piled.ours
        return np.zeros(0, np.uint64) if is_replaced else self.theirs(key, "id")

    def entries(self, key: str, name: str, chosen: Numbers) -> tuple[Numbers, Numbers]:
        """Return hashes and rows of the chosen keys that come in."""
        own = read_range(self.job, self.piled.ours[key], name, ("hash", "row"), self.within)
        mask = is_among(own["hash"], chosen)
        return own["hash"][mask], own["row"][mask]

    def counts(self, side: Mapping[str, Piles], key: str) -> tuple[Numbers, Numbers]:
        """Return the sources of edges with how many each has."""
        found = read_range(self.job, side.get(key, ()), "src", ("hash", "count"), self.within)
        return found["hash"], found["count"]

    def _ordered(self, word: str, side: Mapping[str, Piles], key: str, name: str) -> Numbers:
        place = (word, key, name)
        if place not in self._sorted:
            hashes = read_range(self.job, side.get(key, ()), name, ("hash",), self.within)["hash"]
            self._sorted[place] = np.sort(hashes)
        return self._sorted[place]


def find_suspects(job: Job, piled: Piled, within: Range) -> dict[str, FoundByKey]:
    """Return the suspects of every set rule in one range."""
    bucket = Bucket(job, piled, within)
    return {rule: found for rule, find in FINDERS.items() if (found := find(bucket))}


def look_up(job: Job, piled: Piled, key: str, name: str, asked: tuple[Numbers, Range]) -> tuple[Numbers, Numbers]:
    """Return hashes and rows of those of the asked keys that come in, in one range."""
    return Bucket(job, piled, asked[1]).entries(key, name, asked[0])


def _first(bucket: Bucket, key: str, name: str, hashes: Numbers) -> Found:
    found, rows = bucket.entries(key, name, hashes)
    return Found.first(rows, found, bucket.piled.limit)


def _repeats(bucket: Bucket, key: str, name: str) -> Iterator[Found]:
    again = repeated(bucket.ours(key, name))
    if len(again):
        hashes, rows = bucket.entries(key, name, again)
        yield later_rows(hashes, rows, bucket.piled.limit)


def _repeated_ids(bucket: Bucket) -> FoundByKey:
    return {(key, "id"): found for key, _ in bucket.types for found in _repeats(bucket, key, "id")}


def _taken_ids(bucket: Bucket) -> FoundByKey:
    found: FoundByKey = {}
    for key, _ in bucket.types if bucket.intent is Intent.INSERT else ():
        taken = common(bucket.ours(key, "id"), bucket.theirs(key, "id"))
        if len(taken):
            found[key, "id"] = _first(bucket, key, "id", taken)
    return found


def _shared_tuples(bucket: Bucket) -> FoundByKey:
    found: FoundByKey = {}
    for key, type_ in bucket.types:
        for name in tuple_names(type_):
            found |= {(key, f"{name}.again"): one for one in _repeats(bucket, key, name)}
            taken = common(bucket.ours(key, name), bucket.theirs(key, name))
            # A value has one holder, so if that one is replaced the value is free.
            taken = missing(taken, [bucket.freed(key, name)])
            if len(taken):
                found[key, f"{name}.taken"] = _first(bucket, key, name, taken)
    return found


def _loose_ends(bucket: Bucket) -> FoundByKey:
    found: FoundByKey = {}
    for key, type_ in bucket.types:
        if not isinstance(type_, EdgeType):
            continue
        for column, node in (("src", f"node:{type_.source}"), ("dst", f"node:{type_.target}")):
            known = [bucket.ours(node, "id")] if node in bucket.piled.ours else []
            loose = missing(bucket.ours(key, column), [*known, bucket.staying(node)])
            if len(loose):
                found[key, column] = _first(bucket, key, column, loose)
    return found


def _left_behind(bucket: Bucket) -> FoundByKey:
    """Find node ids that a replacement takes out although edges of types that it leaves alone still need them."""
    found: FoundByKey = {}
    for key, type_ in bucket.types if bucket.intent is Intent.REPLACE else ():
        vacated = missing(bucket.theirs(key, "id"), [bucket.ours(key, "id")]) if isinstance(type_, NodeType) else []
        for edge in bucket.job.catalog.edges.values() if len(vacated) else ():
            for column, node in (("src", edge.source), ("dst", edge.target)):
                if node == type_.name and edge.table_key not in bucket.piled.ours:
                    used = common(vacated, bucket.theirs(edge.table_key, column))[:LOAD_SUSPECTS_MAX]
                    if len(used):
                        found[key, f"{edge.name}.{column}"] = Found(np.full(len(used), NO_ROW), used)
    return found


def _wrong_degrees(bucket: Bucket) -> FoundByKey:
    found: FoundByKey = {}
    for key, type_ in bucket.types:
        if not isinstance(type_, EdgeType) or type_.cardinality == Cardinality():
            continue
        bounds, piled = type_.cardinality, bucket.piled
        freed = bucket.counts(piled.freed, key)
        sides = [bucket.counts(piled.ours, key)]
        if bucket.intent is not Intent.REPLACE:
            sides.append(bucket.counts(piled.theirs, key))
        sources, held = degrees(sides, freed)
        wrong = (held < bounds.minimum) | (held > (NO_ROW if bounds.maximum is None else bounds.maximum))
        # An edge that moves leaves its former source with one less, so that one is looked at as well.
        touched = is_among(sources, np.concatenate([sides[0][0], freed[0]]))
        chosen = sources[wrong & touched]
        if len(chosen):
            found[key, "src"] = _first_of_sources(bucket, key, chosen)
    return found


def _first_of_sources(bucket: Bucket, key: str, chosen: Numbers) -> Found:
    """Return the sources in the order in which the input names them, then those that it only takes edges from."""
    hashes, rows = bucket.entries(key, "src", chosen)
    order = np.argsort(rows)
    named, first = np.unique(hashes[order], return_index=True)
    others = chosen[~is_among(chosen, named)]
    places = np.concatenate([rows[order][first], np.full(len(others), NO_ROW)])
    return Found.first(places, np.concatenate([named, others]), bucket.piled.limit)


FINDERS: Final[dict[str, Callable[[Bucket], FoundByKey]]] = {
    "distinct_ids": _repeated_ids,
    "new_ids": _taken_ids,
    "unique": _shared_tuples,
    "endpoints": _loose_ends,
    "orphans": _left_behind,
    "cardinality": _wrong_degrees,
}
