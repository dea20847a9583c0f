"""Matching: tasks that look at one fragment of what is committed: for its keys, or for rows that an input replaces.

A fragment is one task's alone, so no two of them ever mark rows of the same one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from omnigraph.pipeline.hashing import hash_column
from omnigraph.pipeline.job import Job, Place
from omnigraph.pipeline.keyfile import columns_of, keys_of, read_keys, texts_of, write_keys
from omnigraph.rules.delta import one_array
from omnigraph.rules.kernels import Column, Numbers, pc
from omnigraph.store.dataset import DatasetRef
from omnigraph.store.fragments import Marked, mark_rows, read_fragment


@dataclass(frozen=True, slots=True)
class KeyTask:
    """Which keys of which fragment are asked for."""

    ref: DatasetRef
    fragment_id: int
    table_key: str
    names: tuple[str, ...]


def read_fragment_keys(job: Job, task: KeyTask) -> str:
    """Write the keys of one fragment and return where."""
    type_ = job.type_of(task.table_key)
    rows = read_fragment(job.place.open(task.ref), task.fragment_id, columns_of(type_, task.names))
    return write_keys(job.place.store(), job.side, keys_of(type_, rows, task.names, job.operation_id))


@dataclass(frozen=True, slots=True)
class MatchTask:
    """One fragment, and the key files of all rows that come in."""

    ref: DatasetRef
    fragment_id: int
    keys: tuple[str, ...]


def match_fragment(job: Job, task: MatchTask) -> Marked:
    """Mark the rows of one fragment whose ids come in."""
    dataset = job.place.open(task.ref)
    rows = read_fragment(dataset, task.fragment_id, ["id"])
    ids = one_array(rows.column("id"))
    hashes, texts = _incoming(job.place, task.keys)
    found = _found(hash_column(ids, job.operation_id), ids, hashes, texts)
    return mark_rows(dataset, task.fragment_id, rows.filter(pa.array(found)))


def _found(own: Numbers, ids: Column, hashes: Numbers, texts: Column) -> Numbers:
    """Return which ids are among the texts: those with a known hash, compared text by text."""
    found = np.zeros(len(ids), bool)
    if len(hashes) == 0 or len(ids) == 0:
        return found
    order = np.argsort(own)
    places = np.minimum(np.searchsorted(hashes, own[order]), len(hashes) - 1)
    is_candidate = hashes[places] == own[order]
    candidates, places = order[is_candidate], places[is_candidate]
    equal = pc.equal(ids.take(pa.array(candidates)), texts.take(pa.array(places)))
    found[candidates] = np.asarray(equal.to_numpy(zero_copy_only=False), bool)
    if (hashes[1:] == hashes[:-1]).any():
        # Two ids with one hash: the search above compared with only one of them.
        found[order] |= np.asarray(pc.is_in(ids.take(pa.array(order)), value_set=texts).to_numpy(False), bool)
    return found


@lru_cache(maxsize=2)
def _incoming(place: Place, paths: tuple[str, ...]) -> tuple[Numbers, Column]:
    """Return hashes and texts of all ids that come in, by hash; tasks of one process share them."""
    store = place.store()
    files = [read_keys(store, path) for path in paths]
    hashes = np.concatenate([one["id"] for one in files])
    order = np.argsort(hashes)
    return hashes[order], pa.concat_arrays([texts_of(one) for one in files]).take(pa.array(order))
