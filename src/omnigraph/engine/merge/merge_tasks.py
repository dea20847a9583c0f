"""The work of a merge on each type, in memory: merge rows, validate, and stage files.

It writes files that no version refers to yet; publishing stays with `apply`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from omnigraph.engine.changes.blob_values import BlobValues
from omnigraph.engine.merge.apply_resolutions import Resolutions
from omnigraph.engine.merge.conflicts import Resolution, refuse
from omnigraph.engine.merge.row_merge import RowMerge
from omnigraph.engine.merge.three_way import Counted, GraphMerge, ThreeWayState, merge_all
from omnigraph.engine.schema_data import TypeChange
from omnigraph.engine.session import View
from omnigraph.engine.write.staging import physical
from omnigraph.lang.catalog import TypeKey
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
from omnigraph.store.write.schema_change import reshape
from omnigraph.store.write.transaction import Change
from omnigraph.store.write.upsert import delete_found, upsert


def stage(
    three: ThreeWayState, merges: Mapping[TypeKey, RowMerge], reshaped: Collection[TypeKey]
) -> tuple[Effect, ...]:
    """Return one effect for each type whose rows a merge changes, or whose columns, which are those in `reshaped`."""
    changed = {key for key, merge in merges.items() if not merge.changes_nothing}
    effects = (_effect(three, key, merges.get(key)) for key in sorted(changed.union(reshaped)))
    return tuple(effect for effect in effects if effect is not None)


def _effect(three: ThreeWayState, merged_key: TypeKey, merge: RowMerge | None) -> Effect | None:
    view, type_, blobs = three.target, three.by_key[merged_key], three.blobs
    key = three.stored_key(type_)
    assert key is not None, "types that a merge brings are adopted"
    dataset = view.kernel.writable(view.snapshot, key)
    # Up to three versions on one base: columns, then deletes, then rows; no single Lance transaction holds all of them.
    # Only the last is published, and the others are staged below it.
    begun: Staged | None = None
    change = _reshape(dataset, three.column_changes(type_))
    if change is not None:
        if merge is None or merge.changes_nothing:
            return Effect(key, dataset, (change,))
        begun = _begin(view, dataset, change)
    if merge is None:
        return None
    rows = pa.concat_tables([merge.updated, merge.inserted])
    # Row addresses are looked up at the published version only: staged versions may never be published.
    updated_rows = _find_rows(dataset, one_array(merge.updated.column("id")))
    deleted_rows = _find_rows(dataset, merge.deleted)
    if deleted_rows.num_rows:
        deletion = _changed(delete_found(_on_top(dataset, begun), deleted_rows))
        if not rows.num_rows:
            return Effect(key, dataset, (deletion,), begun)
        begun = _begin(view, dataset, deletion, begun)
        if updated_rows.num_rows:
            updated_rows = begun.dataset.take(updated_rows.column(ROW_ID).to_numpy().tolist(), PLACE)
    return Effect(key, dataset, (_write(_on_top(dataset, begun), rows, updated_rows, blobs),), begun)


def _reshape(dataset: Dataset, change: TypeChange | None) -> Change | None:
    if change is None:
        return None
    columns = change.columns
    return reshape(dataset, add=columns.added, drop=columns.dropped, rename=columns.renamed, relax=change.relaxed)


def _on_top(dataset: Dataset, begun: Staged | None) -> Dataset:
    return dataset if begun is None else begun.dataset


def _find_rows(dataset: Dataset, ids: Ids) -> pa.Table:
    rows = find(dataset, ids)
    assert rows.num_rows == len(ids), f"{dataset.ref} does not have all rows that a merge changes"
    return rows


def _write(dataset: Dataset, rows: pa.Table, replaced: pa.Table, blobs: BlobValues) -> Change:
    rows, stored = blobs.with_kept_blobs(rows, dataset, replaced)
    return _changed(upsert(dataset, physical(rows, dataset), replaced, stored))


def _changed(change: Change | None) -> Change:
    assert change is not None, "only existing rows can be updated"
    return change


def _begin(view: View, dataset: Dataset, change: Change, begun: Staged | None = None) -> Staged:
    try:
        return dataset.store.commit(dataset, [change], {}, begun)
    except StaleBase as stale:
        newest = view.kernel.snapshot(view.snapshot.branch)
        HeadIs(view.snapshot.head).check(newest)
        raise drift(stale.ref.directory) from stale


def reject_new_types(three: ThreeWayState, keys: Iterable[TypeKey]) -> None:
    """Raise if a resolution changes entities of a type whose dataset has to be taken over whole."""
    adopted = three.taken_over()
    for key in keys:
        if key in adopted:
            raise refuse(
                f"`{key.name}` is taken over as the other side has it; change its entities there instead, and merge"
                " again",
                type_key=key,
            )


def staged_files(effects: tuple[Effect, ...]) -> list[str]:
    """Return the files that effects have written and that no catalog references yet."""
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
    adoptable: Mapping[TypeKey, Pin]
    is_forward: bool
    hold: Callable[[], Declared]


@dataclass(frozen=True, slots=True)
class Settled:
    """The result of a merge: counts of changed types, and either conflicts, or the staged effects and adopted types.

    `is_cut`: there are more conflicts than these.
    """

    counts: Mapping[TypeKey, Counted]
    conflicts: Sequence[Conflict] = ()
    effects: tuple[Effect, ...] = ()
    adopted: Mapping[TypeKey, Pin] = field(default_factory=dict)
    is_cut: bool = False


# Executes a merge; the other implementation than `merge_in_memory` is `pipeline.range_merge`.
ExecuteMerge: TypeAlias = Callable[[Task], Settled]


def merge_in_memory(task: Task) -> Settled:
    """Merge in this process, with all that changes in memory."""
    merged = _merge_types(task)
    counts, adopted = merged.counts, merged.adopted(task.adoptable)
    staged = {key: merge for key, merge in merged.merges.items() if key in counts and key not in adopted}
    three = task.three
    reshaped = [type_.table_key for type_ in three.reshaped_types() if type_.table_key not in adopted]
    if merged.conflicts or not (staged or reshaped):
        return Settled(counts, merged.conflicts, adopted=adopted)
    reject_new_types(three, staged)
    # From here on a crash leaves files behind, so the intent must be declared first.
    intent = task.hold()
    effects = stage(three, staged, reshaped)
    intent.staging(*staged_files(effects))
    return Settled(counts, effects=effects, adopted=adopted)


def _merge_types(task: Task) -> GraphMerge:
    three, resolutions = task.three, Resolutions(task.resolutions)
    if not task.is_forward:
        return merge_all(three, resolutions)
    resolutions.reject_unused()
    types = [type_ for type_ in three.types() if type_.table_key not in task.adoptable]
    return GraphMerge({type_.table_key: three.merge(type_) for type_ in types})
