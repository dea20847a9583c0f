"""Tasks over one range of key hashes: superseded rows, replaced committed rows, and candidates of violations.

The probe side of a partitioned hash join: a task reads its range of every key segment, and equal keys always meet in
the same range. The rules are set operations on sorted hashes: duplicates, semi joins (`intersect`) and anti joins
(`subtract`); what they return is a superset of the violations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from omnigraph.engine.key_buckets.files import (
    Addresses,
    FileSlice,
    HashRange,
    KeySegment,
    build_key_arrays,
    columns_of_keys,
    extract_keys,
    read_keys,
    released_names,
    unique_names,
    write_addresses,
    write_keys,
    write_numbers,
)
from omnigraph.engine.key_buckets.hashes import (
    Candidates,
    duplicate_hashes,
    find_duplicates,
    find_superseded_rows,
    intersect,
    is_among,
    is_known_key,
    subtract,
    sum_degrees,
)
from omnigraph.engine.load.job import Job
from omnigraph.lang.catalog import Cardinality, EdgeType, NodeType, Type, TypeKey
from omnigraph.limits import LOAD_SUSPECTS_MAX
from omnigraph.rules.arrow_typing import Numbers
from omnigraph.rules.delta import Intent
from omnigraph.store.read.dataset import DatasetRef
from omnigraph.store.read.lookup import ROW_ADDRESS
from omnigraph.store.write.fragments import read_fragment

KeySegments = Sequence[KeySegment]


@dataclass(frozen=True, slots=True)
class KeyTask:
    """The keys to read of one committed fragment, and the extra hashes to store beside ids."""

    ref: DatasetRef
    fragment_id: int
    table_key: TypeKey
    names: tuple[str, ...]
    extra: tuple[str, ...]


def read_fragment_keys(job: Job, task: KeyTask) -> KeySegment:
    """Write the keys of one fragment as a segment whose row numbers are row addresses."""
    type_ = job.catalog.type_of(task.table_key)
    names = [*task.names, *(name for name in task.extra if name != "check")]
    rows = read_fragment(job.access.open(task.ref), task.fragment_id, columns_of_keys(type_, names))
    keys = extract_keys(type_, rows, task.names, task.extra, job.operation_id, 0)
    offsets = (rows.column(ROW_ADDRESS).to_numpy() & 0xFFFF_FFFF).astype(np.uint32)
    for arrays in keys.arrays.values():
        arrays["row"] = offsets[arrays["row"]]
    return write_keys(job.access.store(), job.scratch, keys.arrays, task.fragment_id << 32)


def read_hash_range(
    job: Job, segments: KeySegments, name: str, arrays: Sequence[str], within: HashRange
) -> dict[str, Numbers]:
    """Return arrays of one key from many segments, with global row numbers."""
    store = job.access.store()
    values_by_array: dict[str, list[Numbers]] = {array: [np.zeros(0, np.uint64)] for array in arrays}
    if "row" in values_by_array:
        values_by_array["row"] = [np.zeros(0, np.int64)]
    for segment in segments:
        segment_arrays = read_keys(store, segment.path, name, arrays, within)
        for array, values in segment_arrays.items():
            values_by_array[array].append(values.astype(np.int64) + segment.first if array == "row" else values)
    return {array: np.concatenate(parts) for array, parts in values_by_array.items()}


@dataclass(frozen=True, slots=True)
class ReplacedRows:
    """The committed rows of one type in one range that the input replaces.

    `released` is a segment with the unique values and edge sources that these rows held.
    """

    addresses: Addresses
    released: KeySegment | None


def find_replaced(
    job: Job, incoming: Mapping[TypeKey, KeySegments], committed: Mapping[TypeKey, KeySegments], within: HashRange
) -> dict[TypeKey, ReplacedRows]:
    """Find the committed rows whose ids come in, by both hashes of the id: replacing a wrong row would lose data."""
    replaced: dict[TypeKey, ReplacedRows] = {}
    for key in committed:
        names = released_names(job.catalog.type_of(key))
        staged = read_hash_range(job, incoming[key], "id", ("hash", "check"), within)
        stored = read_hash_range(job, committed[key], "id", ("hash", "check", "row", *names), within)
        # Semi join by 128 bits: this match replaces rows and, unlike a candidate, no rule checks it again.
        is_replaced = is_known_key(stored["hash"], stored["check"], staged["hash"], staged["check"])
        if not is_replaced.any():
            continue
        released = {name: stored[name][is_replaced] for name in names}
        arrays = {
            name: build_key_arrays(hashes, np.zeros(len(hashes), np.uint32), {}) for name, hashes in released.items()
        }
        replaced[key] = ReplacedRows(
            write_addresses(job.access, job.scratch, stored["row"][is_replaced]),
            write_keys(job.access.store(), job.scratch, arrays) if arrays else None,
        )
    return replaced


def find_superseded(
    job: Job, incoming: Mapping[TypeKey, KeySegments], bounds: Mapping[TypeKey, Numbers], within: HashRange
) -> dict[TypeKey, dict[int, FileSlice]]:
    """Find the rows of an input whose id occurs in another row that wins; return their numbers by type and split."""
    superseded: dict[TypeKey, dict[int, FileSlice]] = {}
    for key, segments in incoming.items():
        # Most ranges repeat nothing, which the hashes alone show at a fraction of the bytes.
        hashes = np.sort(read_hash_range(job, segments, "id", ("hash",), within)["hash"])
        if not (hashes[1:] == hashes[:-1]).any():
            continue
        staged = read_hash_range(job, segments, "id", ("hash", "check", "row"), within)
        # The last row wins; numbered backwards, that is the first one.
        sign = 1 if job.winner(job.catalog.type_of(key)) == "last" else -1
        rows = np.sort(sign * find_superseded_rows(staged["hash"], staged["check"], sign * staged["row"]))
        if len(rows):
            splits = np.searchsorted(bounds[key], rows, side="right") - 1
            # The task that stages a split again counts rows from the first one of the split.
            superseded[key] = write_numbers(job.access.store(), job.scratch, rows - bounds[key][splits], splits)
    return superseded


# Candidates by type and by key name, such as `src` or `0.taken` for the first `@unique`.
CandidatesByKey = dict[tuple[TypeKey, str], Candidates]

# Row number of a candidate without an incoming row; sorts after all others.
NO_ROW: Final = 2**62


@dataclass(frozen=True)
class ComparedKeys:
    """All key segments of a check by type: incoming, committed, and released by replaced rows."""

    incoming: Mapping[TypeKey, KeySegments]
    committed: Mapping[TypeKey, KeySegments]
    released: Mapping[TypeKey, KeySegments]
    limit: int


@dataclass
class HashBucket:
    """One hash range of all compared keys, read on demand."""

    job: Job
    compared: ComparedKeys
    within: HashRange
    _sorted: dict[tuple[str, TypeKey, str], Numbers] = field(default_factory=dict)

    @property
    def types(self) -> Iterator[tuple[TypeKey, Type]]:
        return ((key, self.job.catalog.type_of(key)) for key in sorted(self.compared.incoming))

    def incoming(self, key: TypeKey, name: str) -> Numbers:
        return self._ordered("incoming", self.compared.incoming, key, name)

    def committed(self, key: TypeKey, name: str) -> Numbers:
        return self._ordered("committed", self.compared.committed, key, name)

    def released(self, key: TypeKey, name: str) -> Numbers:
        """Return the sorted hashes of a key that replaced rows release."""
        return self._ordered("released", self.compared.released, key, name)

    def staying(self, key: TypeKey) -> Numbers:
        """Return the committed ids of a type, none if the input overwrites the type."""
        is_replaced = self.job.intent is Intent.REPLACE and key in self.compared.incoming
        return np.zeros(0, np.uint64) if is_replaced else self.committed(key, "id")

    def entries(self, key: TypeKey, name: str, chosen: Numbers) -> tuple[Numbers, Numbers]:
        """Return hashes and rows of the incoming keys that are among the chosen hashes."""
        staged = read_hash_range(self.job, self.compared.incoming[key], name, ("hash", "row"), self.within)
        # Rows are read in a second pass: hashes decide which ranges need any.
        is_chosen = is_among(staged["hash"], chosen)
        return staged["hash"][is_chosen], staged["row"][is_chosen]

    def counts(self, side: Mapping[TypeKey, KeySegments], key: TypeKey) -> tuple[Numbers, Numbers]:
        """Return the sources of edges and the number of edges of each."""
        arrays = read_hash_range(self.job, side.get(key, ()), "src", ("hash", "count"), self.within)
        return arrays["hash"], arrays["count"]

    def _ordered(self, side_name: str, side: Mapping[TypeKey, KeySegments], key: TypeKey, name: str) -> Numbers:
        cache_key = (side_name, key, name)
        if cache_key not in self._sorted:
            hashes = read_hash_range(self.job, side.get(key, ()), name, ("hash",), self.within)["hash"]
            self._sorted[cache_key] = np.sort(hashes)
        return self._sorted[cache_key]


def find_candidates(job: Job, compared: ComparedKeys, within: HashRange) -> dict[str, CandidatesByKey]:
    """Return the candidates of every set rule in one range."""
    bucket = HashBucket(job, compared, within)
    return {rule: candidates for rule, find in FINDERS.items() if (candidates := find(bucket))}


def look_up_keys(
    job: Job, compared: ComparedKeys, key: TypeKey, name: str, lookup: tuple[Numbers, HashRange]
) -> tuple[Numbers, Numbers]:
    """Return hashes and rows of the incoming keys that are among the looked-up hashes of one range."""
    return HashBucket(job, compared, lookup[1]).entries(key, name, lookup[0])


def _first_candidates(bucket: HashBucket, key: TypeKey, name: str, hashes: Numbers) -> Candidates:
    matched, rows = bucket.entries(key, name, hashes)
    return Candidates.first(rows, matched, bucket.compared.limit)


def _duplicates(bucket: HashBucket, key: TypeKey, name: str) -> Iterator[Candidates]:
    repeated = duplicate_hashes(bucket.incoming(key, name))
    if len(repeated):
        hashes, rows = bucket.entries(key, name, repeated)
        yield find_duplicates(hashes, rows, bucket.compared.limit)


def _duplicate_ids(bucket: HashBucket) -> CandidatesByKey:
    return {(key, "id"): candidates for key, _ in bucket.types for candidates in _duplicates(bucket, key, "id")}


def _existing_ids(bucket: HashBucket) -> CandidatesByKey:
    candidates: CandidatesByKey = {}
    for key, _ in bucket.types if bucket.job.intent is Intent.INSERT else ():
        existing = intersect(bucket.incoming(key, "id"), bucket.committed(key, "id"))
        if len(existing):
            candidates[key, "id"] = _first_candidates(bucket, key, "id", existing)
    return candidates


def _duplicate_tuples(bucket: HashBucket) -> CandidatesByKey:
    candidates: CandidatesByKey = {}
    for key, type_ in bucket.types:
        for name in unique_names(type_):
            candidates |= {(key, f"{name}.again"): duplicates for duplicates in _duplicates(bucket, key, name)}
            existing = intersect(bucket.incoming(key, name), bucket.committed(key, name))
            # A unique value has one committed holder; if that row is replaced, the value is free.
            existing = subtract(existing, [bucket.released(key, name)])
            if len(existing):
                candidates[key, f"{name}.taken"] = _first_candidates(bucket, key, name, existing)
    return candidates


def _missing_endpoints(bucket: HashBucket) -> CandidatesByKey:
    candidates: CandidatesByKey = {}
    for key, type_ in bucket.types:
        for column, end in type_.ends.items():
            node = TypeKey.of("node", end)
            incoming_ids = [bucket.incoming(node, "id")] if node in bucket.compared.incoming else []
            # Anti join: the ends that neither the input nor what stays of the node type has.
            absent = subtract(bucket.incoming(key, column), [*incoming_ids, bucket.staying(node)])
            if len(absent):
                candidates[key, column] = _first_candidates(bucket, key, column, absent)
    return candidates


def _orphaned_endpoints(bucket: HashBucket) -> CandidatesByKey:
    """Find node ids that an overwrite removes although edges of types outside the input refer to them."""
    candidates: CandidatesByKey = {}
    for key, type_ in bucket.types if bucket.job.intent is Intent.REPLACE else ():
        removed = (
            subtract(bucket.committed(key, "id"), [bucket.incoming(key, "id")]) if isinstance(type_, NodeType) else []
        )
        for edge in bucket.job.catalog.edges.values() if len(removed) else ():
            for column, node in edge.ends.items():
                if node == type_.name and edge.table_key not in bucket.compared.incoming:
                    used = intersect(removed, bucket.committed(edge.table_key, column))[:LOAD_SUSPECTS_MAX]
                    if len(used):
                        candidates[key, f"{edge.name}.{column}"] = Candidates(np.full(len(used), NO_ROW), used)
    return candidates


def _cardinality_breaches(bucket: HashBucket) -> CandidatesByKey:
    candidates: CandidatesByKey = {}
    for key, type_ in bucket.types:
        if not isinstance(type_, EdgeType) or type_.cardinality == Cardinality():
            continue
        bounds, compared = type_.cardinality, bucket.compared
        incoming, committed = bucket.counts(compared.incoming, key), bucket.counts(compared.committed, key)
        is_replacing = bucket.job.intent is Intent.REPLACE
        # An overwrite releases every committed edge; these are only read if a source must keep some.
        released = committed if is_replacing else bucket.counts(compared.released, key)
        # Degree after the load = incoming + committed - replaced. Sums of counts, so no edge is fetched for it.
        sources, degrees = sum_degrees([incoming, committed], released)
        is_outside = (degrees < bounds.minimum) | (degrees > (NO_ROW if bounds.maximum is None else bounds.maximum))
        # An edge that moves leaves its former source with one edge less, so that source is checked as well.
        losing, node = released[0], TypeKey.of("node", type_.source)
        if is_replacing and node in compared.incoming:
            # A source that the same overwrite removes has no bounds to keep.
            losing = intersect(losing, bucket.incoming(node, "id"))
        is_touched = is_among(sources, np.concatenate([incoming[0], losing]))
        breaching = sources[is_outside & is_touched]
        if len(breaching):
            candidates[key, "src"] = _first_by_source(bucket, key, breaching)
    return candidates


def _first_by_source(bucket: HashBucket, key: TypeKey, chosen: Numbers) -> Candidates:
    """Return sources in the order of the input, then those that only lose edges."""
    hashes, rows = bucket.entries(key, "src", chosen)
    order = np.argsort(rows)
    named, first = np.unique(hashes[order], return_index=True)
    others = chosen[~is_among(chosen, named)]
    first_rows = np.concatenate([rows[order][first], np.full(len(others), NO_ROW)])
    return Candidates.first(first_rows, np.concatenate([named, others]), bucket.compared.limit)


FINDERS: Final[dict[str, Callable[[HashBucket], CandidatesByKey]]] = {
    "distinct_ids": _duplicate_ids,
    "new_ids": _existing_ids,
    "unique": _duplicate_tuples,
    "endpoints": _missing_endpoints,
    "orphans": _orphaned_endpoints,
    "cardinality": _cardinality_breaches,
}
