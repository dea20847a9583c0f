"""The work of a merge on each type, in memory: merge rows, validate, and stage files.

It writes files that no version refers to yet; publishing stays with `apply`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from omnigraph.engine.changes.blob_values import BlobValues
from omnigraph.engine.merge.apply_resolutions import Resolutions
from omnigraph.engine.merge.conflicts import Resolution
from omnigraph.engine.merge.row_merge import RowMerge
from omnigraph.engine.merge.three_way import Counted, GraphMerge, ThreeWayState, merge_all
from omnigraph.engine.session import View
from omnigraph.engine.write.staging import physical
from omnigraph.manifest.intents import Declared
from omnigraph.manifest.model import Pin, fork_owner
from omnigraph.manifest.plan import Effect
from omnigraph.manifest.publish import drift
from omnigraph.manifest.requirements import HeadIs
from omnigraph.public_values import Conflict
from omnigraph.rules.delta import Ids, one_array
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.read.lookup import PLACE, ROW_ID, find
from omnigraph.store.store import Staged, StaleBase
from omnigraph.store.write.transaction import Change
from omnigraph.store.write.upsert import delete_found, upsert


def stage(view: View, merges: Mapping[str, RowMerge], blobs: BlobValues) -> tuple[Effect, ...]:
    """Return one effect for each type that a merge changes."""
    return tuple(_effect(view, key, merge, blobs) for key, merge in sorted(merges.items()) if not merge.changes_nothing)


def _effect(view: View, key: str, merge: RowMerge, blobs: BlobValues) -> Effect:
    dataset = view.kernel.writable(view.snapshot, key)
    rows = pa.concat_tables([merge.updated, merge.inserted])
    known = _find_rows(dataset, one_array(merge.updated.column("id")))
    gone = _find_rows(dataset, merge.deleted)
    if not rows.num_rows:
        return Effect(key, dataset, (_changed(delete_found(dataset, gone)),))
    if not gone.num_rows:
        return Effect(key, dataset, (_write(dataset, rows, known, blobs),))
    # Row addresses are looked up at the published version only: staged versions may never be published.
    begun = _begin(view, dataset, _changed(delete_found(dataset, gone)))
    if known.num_rows:
        known = begun.dataset.take(known.column(ROW_ID).to_numpy().tolist(), PLACE)
    return Effect(key, dataset, (_write(begun.dataset, rows, known, blobs),), begun)


def _find_rows(dataset: Dataset, ids: Ids) -> pa.Table:
    rows = find(dataset, ids)
    assert rows.num_rows == len(ids), f"{dataset.ref} does not have all rows that a merge changes"
    return rows


def _write(dataset: Dataset, rows: pa.Table, known: pa.Table, blobs: BlobValues) -> Change:
    rows, stored = blobs.with_kept_blobs(rows, dataset, known)
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
    """Return the forks of other branches that an adopted pin depends on: its own and those it inherits."""
    bases = view.sound_dataset(pin.table_key).base_directories()
    folder = f"/{pin.path}/tree/"
    inherited = [base.rstrip("/").rpartition(folder)[2] for base in bases if folder in base]
    forks = {*inherited, *([pin.fork] if pin.fork else [])}
    return sorted(fork for fork in forks if fork_owner(fork) != target.snapshot.state.branch_id)


@dataclass(frozen=True, slots=True)
class Task:
    """A merge to be executed. A fast-forward (`is_forward`) is valid already.

    Types in `adoptable` are not staged unless a resolution changes one of their entities. `hold` declares the intent
    of the staged files: call it right before writing the first one.
    """

    three: ThreeWayState
    resolutions: Sequence[Resolution]
    adoptable: Mapping[str, Pin]
    is_forward: bool
    hold: Callable[[], Declared]


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of it: counts of all types that change, and either conflicts, or what was staged and what is adopted.

    `is_cut` says that there are more conflicts than these.
    """

    counts: Mapping[str, Counted]
    conflicts: Sequence[Conflict] = ()
    effects: tuple[Effect, ...] = ()
    adopted: Mapping[str, Pin] = field(default_factory=dict)
    is_cut: bool = False


# Executes a merge; the other implementation than `merge_in_memory` is `pipeline.range_merge`.
ExecuteMerge: TypeAlias = Callable[[Task], Settled]


def merge_in_memory(task: Task) -> Settled:
    """Merge in this process, with all that changes in memory."""
    merged = _merge_types(task)
    counts, adopted = merged.counts, merged.adopted(task.adoptable)
    staged = {key: merge for key, merge in merged.merges.items() if key in counts and key not in adopted}
    if merged.conflicts or not staged:
        return Settled(counts, merged.conflicts, adopted=adopted)
    # From here on a crash leaves files behind, so the intent must be declared first.
    held = task.hold()
    effects = stage(task.three.ours, staged, task.three.blobs)
    held.staging(*staged_files(effects))
    return Settled(counts, effects=effects, adopted=adopted)


def _merge_types(task: Task) -> GraphMerge:
    three, resolutions = task.three, Resolutions(task.resolutions)
    if not task.is_forward:
        return merge_all(three, resolutions)
    resolutions.reject_unused()
    types = [type_ for type_ in three.types() if type_.table_key not in task.adoptable]
    return GraphMerge({type_.table_key: three.merge(type_) for type_ in types})
