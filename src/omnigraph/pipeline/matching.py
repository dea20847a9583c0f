"""Matching: which committed rows an input replaces, found range by range of the hashes of ids, marked by fragment.

A fragment is one task's alone when rows are marked, so no two of them ever mark rows of the same one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from omnigraph.pipeline.job import Job, Place
from omnigraph.pipeline.keyfile import (
    Pile,
    Range,
    Slice,
    columns_of,
    freed_names,
    keys_of,
    make_run,
    read_keys,
    write_keys,
    write_numbers,
)
from omnigraph.pipeline.suspects import is_matched, superseded
from omnigraph.rules.kernels import Numbers
from omnigraph.store.dataset import DatasetRef
from omnigraph.store.fragments import Marked, mark_rows, read_fragment
from omnigraph.store.lookup import ROW_ADDRESS

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
