"""Staging a merge: from what it does to each type to the effects of a plan, or to pins that are taken over as they are.

Rows that a merge leaves alone are not touched, so they keep their row ids and versions.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from omnigraph.engine.changes.blob_values import BlobValues
from omnigraph.engine.core import View
from omnigraph.engine.merge.rows import RowMerge
from omnigraph.engine.write.stage import physical
from omnigraph.manifest.model import Pin, fork_owner
from omnigraph.manifest.plan import Effect
from omnigraph.manifest.publish import drift
from omnigraph.manifest.requirements import HeadIs
from omnigraph.rules.delta import Ids, one_array
from omnigraph.store.change import Change
from omnigraph.store.dataset import Dataset
from omnigraph.store.delete import delete_found
from omnigraph.store.lookup import PLACE, ROW_ID, find
from omnigraph.store.store import Staged, StaleBase
from omnigraph.store.upsert import upsert


def stage(view: View, merges: Mapping[str, RowMerge], blobs: BlobValues) -> tuple[Effect, ...]:
    """Return one effect for each type that a merge changes."""
    return tuple(_effect(view, key, one, blobs) for key, one in sorted(merges.items()) if not one.changes_nothing)


def _effect(view: View, key: str, merge: RowMerge, blobs: BlobValues) -> Effect:
    dataset = view.kernel.writable(view.snapshot, key)
    rows = pa.concat_tables([merge.updated, merge.inserted])
    known = _found(dataset, one_array(merge.updated.column("id")))
    gone = _found(dataset, merge.deleted)
    if not rows.num_rows:
        return Effect(key, dataset, (_changed(delete_found(dataset, gone)),))
    if not gone.num_rows:
        return Effect(key, dataset, (_write(dataset, rows, known, blobs),))
    # Where rows lie is asked at the published version alone: what is staged on top may never come to be.
    begun = _begin(view, dataset, _changed(delete_found(dataset, gone)))
    if known.num_rows:
        known = begun.dataset.take(known.column(ROW_ID).to_numpy().tolist(), PLACE)
    return Effect(key, dataset, (_write(begun.dataset, rows, known, blobs),), begun)


def _found(dataset: Dataset, ids: Ids) -> pa.Table:
    found = find(dataset, ids)
    assert found.num_rows == len(ids), f"{dataset.ref} does not have all rows that a merge changes"
    return found


def _write(dataset: Dataset, rows: pa.Table, known: pa.Table, blobs: BlobValues) -> Change:
    rows, stored = blobs.taken_over(rows, dataset, known)
    return _changed(upsert(dataset, physical(rows, dataset), known, stored))


def _changed(change: Change | None) -> Change:
    assert change is not None, "rows that are there can be changed"
    return change


def _begin(view: View, dataset: Dataset, change: Change) -> Staged:
    try:
        return dataset.store.commit(dataset, [change], {})
    except StaleBase as stale:
        newest = view.kernel.snapshot(view.snapshot.branch)
        HeadIs(view.snapshot.head).check(newest)
        raise drift(stale.ref.directory) from stale


def staged_files(effects: tuple[Effect, ...]) -> list[str]:
    """Return the files that effects have written and that nothing names yet."""
    return [file for effect in effects for file in effect.files]


def forks_of(view: View, pin: Pin, target: View) -> list[str]:
    """Return the forks of other branches that whoever takes over a pin relies on: its own, and those it inherits."""
    bases = view.sound_dataset(pin.table_key).base_directories()
    folder = f"/{pin.path}/tree/"
    inherited = [base.rstrip("/").rpartition(folder)[2] for base in bases if folder in base]
    forks = {*inherited, *([pin.fork] if pin.fork else [])}
    return sorted(fork for fork in forks if fork_owner(fork) != target.snapshot.state.branch_id)
