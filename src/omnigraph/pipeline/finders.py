"""Finders: for each set rule, the rows of an input that may break it, in one range of hashes.

Runs wherever tasks run. Two keys that are equal have one hash, so ranges know nothing of each other; each has as many
hashes as a task may hold, and gives back no more suspects than a report can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from omnigraph.engine.write.loaded import Type
from omnigraph.lang.catalog import Cardinality, EdgeType, NodeType
from omnigraph.limits import LOAD_SUSPECTS_MAX
from omnigraph.pipeline.job import Job
from omnigraph.pipeline.keyfile import Range, tuple_names
from omnigraph.pipeline.matching import Piles, read_range
from omnigraph.pipeline.suspects import Found, common, degrees, is_among, later_rows, missing, repeated
from omnigraph.rules.delta import Intent
from omnigraph.rules.kernels import Numbers

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
