"""Three-way merge of whole graphs: which types need work, the task that merges each, and all conflicts.

Reads only. Row conflicts are reported before rules are checked; each list is complete.

It writes files that no version refers to yet; publishing stays with `apply`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.engine.changes.blob_values import BlobValues
from omnigraph.engine.changes.row_diff import (
    AFTER,
    BEFORE,
    RowChanges,
    compare,
    logical_form,
    logical_schema,
    row_changes,
)
from omnigraph.engine.exact_conversion import convert_rows, find_inexact, widest_type
from omnigraph.engine.merge.ancestry import Image, MergeBase, build_image, difference, images, merge_from_virtual
from omnigraph.engine.merge.conflicts import (
    Resolution,
    Resolutions,
    conflict_from,
    conflict_of,
    image_of,
    refuse,
    touches,
)
from omnigraph.engine.merge.row_merge import (
    NOTHING_UNKNOWN,
    Clash,
    RowMerge,
    Unknown,
    as_merge,
    ids_of,
    merge_rows,
    rows_among,
    rows_without,
)
from omnigraph.engine.merge.schema_merge import MergedSchema, adopted_types, is_tightened
from omnigraph.engine.schema_data import TypeChange
from omnigraph.engine.session import View
from omnigraph.engine.write.committed_rows import CommittedRows
from omnigraph.engine.write.staging import physical
from omnigraph.lang.catalog import Type, TypeKey
from omnigraph.lang.schema.arrow_schema import arrow_schema
from omnigraph.manifest.intents import Declared
from omnigraph.manifest.model import Pin, fork_owner
from omnigraph.manifest.plan import Effect
from omnigraph.manifest.publish import drift
from omnigraph.manifest.requirements import HeadIs
from omnigraph.public_values import Conflict, ConflictKind
from omnigraph.rules.arrow_typing import pc
from omnigraph.rules.delta import Changes, Delta, Ids, Intent, Violation
from omnigraph.rules.validate import validate
from omnigraph.store.lance_schema import physical_schema
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.read.lookup import PLACE, ROW_ID, find
from omnigraph.store.store import Staged, StaleBase
from omnigraph.store.write.transaction import Change
from omnigraph.store.write.upsert import delete_found, upsert

# A merge reports all violations.
_ALL: Final = 2**31


@dataclass(frozen=True)
class ThreeWayState:
    """The base, our side (merged into) and their side (merged), all under one schema.

    `merged` is set if their schemas differ; the views are then read under the merged one.
    """

    base: MergeBase[View]
    ours: View
    theirs: View
    # Placeholders that rows hold instead of blob bytes.
    blobs: BlobValues = field(default_factory=BlobValues)
    merged: MergedSchema | None = None

    def __post_init__(self) -> None:
        # Schemas merge before data, so that rows of all states have the same columns and compare column by column.
        hashes = {view.catalog.ir_hash for view in (*self.base.states(), self.ours, self.theirs)}
        assert len(hashes) == 1, "the states of a merge are read under one schema"

    @classmethod
    def under(cls, merged: MergedSchema) -> ThreeWayState:
        """Return the states of a merge under the merged schema."""
        read = merged.read
        return cls(merged.base.map(read), read(merged.ours), read(merged.theirs), merged=merged)

    @property
    def target(self) -> View:
        """Our side under its own schema, as it is stored."""
        return self.ours if self.merged is None else self.merged.ours

    @property
    def changes_schema(self) -> bool:
        """True if the target gets another schema."""
        return self.merged is not None and self.merged.changes_target

    def stored_key(self, type_: Type) -> TypeKey | None:
        """Return the key that a type has on the target before the merge; None if the merge brings the type."""
        return type_.table_key if self.merged is None else self.merged.key_in(self.merged.ours, type_)

    def column_changes(self, type_: Type) -> TypeChange | None:
        """Return how the columns of a type on the target change with the schema; None if they stay."""
        key = self.stored_key(type_)
        if self.merged is None or key is None:
            return None
        change = TypeChange(self.target.catalog.type_of(key), type_)
        return change if change.columns.changed or change.relaxed else None

    @property
    def by_key(self) -> dict[TypeKey, Type]:
        """All types of the graph by table key."""
        return {type_.table_key: type_ for type_ in self.ours.catalog.types}

    def types(self) -> Iterator[Type]:
        """Yield the types whose data their side changed, by key."""
        for _, type_ in sorted(self.by_key.items()):
            # Versions are immutable, so an equal pin proves equal content: theirs is unchanged if it is pinned like the
            # base, and merged already if it is pinned like ours.
            unchanged_refs = [pin.ref for pin in (self.base_pin(type_), self._pin(self.ours, type_)) if pin is not None]
            if self._pin(self.theirs, type_).ref not in unchanged_refs:
                yield type_

    def reshaped_types(self) -> list[Type]:
        """Return the types of the target whose columns change with the schema."""
        return [type_ for type_ in self.by_key.values() if self.column_changes(type_) is not None]

    def taken_over(self) -> set[TypeKey]:
        """Return the types whose datasets have to be taken over: new ones, and those that the target cannot rewrite."""
        adopted = [] if self.merged is None else adopted_types(self.merged)
        return {type_.table_key for type_ in (*self.new_types(), *adopted)}

    def new_types(self) -> list[Type]:
        """Return the types that the merge brings to the target."""
        return [type_ for type_ in self.by_key.values() if self.stored_key(type_) is None]

    def touched_types(self) -> list[Type]:
        """Return the types that differ between base and their side, regardless of our side."""
        return [type_ for type_ in self.by_key.values() if not self._is_unchanged(self.theirs, type_)]

    def compared_types(self) -> set[str]:
        """Return the types that both sides changed, so that our side decides what becomes of them.

        Whether an edge can be kept depends on the nodes at its ends, so a change of edges counts as one of those.
        """
        ours = (type_ for type_ in self.by_key.values() if not self.is_ours_unchanged(type_))
        return _with_ends(self.types()) & _with_ends(ours)

    def is_ours_unchanged(self, type_: Type) -> bool:
        return self._is_unchanged(self.ours, type_)

    def pin(self, type_: Type) -> Pin:
        """Return the dataset of a type on their side."""
        return self._pin(self.theirs, type_)

    def base_pin(self, type_: Type) -> Pin | None:
        """Return the dataset of a type in the base; None if only a virtual base has it."""
        base = self._base(type_)
        return None if base.is_virtual else self._pin(base.first, type_)

    def base_of(self, type_: Type) -> MergeBase[Dataset]:
        """Return a type before either side; it is virtual only where states of the type have to be merged."""
        return self._base(type_).map(lambda view: view.sound_dataset(type_.table_key))

    def merge(self, type_: Type) -> RowMerge:
        """Merge the rows of one type; the result has the types of the merged schema."""
        merge = self._merge_widened(type_)
        return merge if self.merged is None else self._narrow(type_, merge)

    def _merge_widened(self, type_: Type) -> RowMerge:
        """Merge the rows of one type in the widest types that a state has, so that any two values can be compared."""
        base = self.base_of(type_)
        ours, theirs = (view.sound_dataset(type_.table_key) for view in (self.ours, self.theirs))
        if base.is_virtual:
            return self._merge_from_virtual(type_, base, ours, theirs)
        changes = self._row_changes(type_, base.first, theirs)
        # Our side has nothing that could conflict, so their change is the merge.
        if self.is_ours_unchanged(type_):
            return as_merge(*self.blobs.unified([changes]))
        # What our side alone has changed stays as it is, so it need not fit any other type either.
        theirs_ids = pa.concat_arrays([ids_of(rows) for rows in changes.tables])
        ours_changes = self._row_changes(type_, base.first, ours, theirs_ids)
        ours_changes, changes = self.blobs.unified([ours_changes, changes])
        return merge_rows(type_, ours_changes, changes)

    def _row_changes(self, type_: Type, before: Dataset, after: Dataset, among: Ids | None = None) -> RowChanges:
        """Return what changed, of all entities or those `among` some, in the widest types."""
        changes = row_changes(before, after, self.blobs)
        if among is not None:
            changes = changes.map(lambda rows: rows_among(rows, among))
        return changes if self.merged is None else self._widen(type_, changes)

    def _widen(self, type_: Type, changes: RowChanges) -> RowChanges:
        schema = self._widest_columns(type_)
        return changes.map(lambda rows: convert_rows(rows, schema, type_.name))

    def _narrow(self, type_: Type, merge: RowMerge) -> RowMerge:
        """Return a merge with the types of the merged schema; a row with a value that does not fit is a conflict."""
        schema = self._columns(type_)
        unfit: dict[str, list[str]] = {}
        for rows in (merge.inserted, merge.updated):
            for column in schema:
                for row in np.flatnonzero(find_inexact(rows.column(column.name), column.type)).tolist():
                    unfit.setdefault(str(rows.column("id")[row]), []).append(column.name)
        unfit_ids = pa.array(list(unfit), pa.string())
        inserted, updated = (
            convert_rows(rows_without(rows, unfit_ids), schema, type_.name) for rows in (merge.inserted, merge.updated)
        )
        clashes = [self._unfit(type_, merge, entity_id, tuple(names)) for entity_id, names in sorted(unfit.items())]
        return RowMerge(inserted, updated, merge.deleted, (*merge.clashes, *clashes))

    def _unfit(self, type_: Type, merge: RowMerge, entity_id: str, columns: tuple[str, ...]) -> Clash:
        """Return the conflict of an entity with values that the merged schema cannot hold exactly."""
        base, ours, theirs = self.rows(type_, entity_id)
        schema, merged = self._columns(type_), None
        if ours is not None:
            ours = convert_rows(ours, schema, type_.name)
            # An entity that our side has is updated, never inserted.
            row = merge.updated.filter(pc.equal(merge.updated.column("id"), entity_id))
            values = [(ours if name in columns else row).column(name) for name in schema.names]
            merged = convert_rows(pa.Table.from_arrays(values, names=schema.names), schema, type_.name)
        return Clash(ConflictKind.VALUE_CONSTRAINT_VIOLATION, entity_id, columns, base, ours, theirs, merged)

    def _widest_columns(self, type_: Type) -> pa.Schema:
        """Return the columns of a type, each in the widest type that a state stores it in."""
        states = [view.sound_dataset(type_.table_key) for view in (*self.base.states(), self.ours, self.theirs)]
        return pa.schema(
            [
                item.with_type(
                    widest_type([item.type, *(logical_schema(state).field(item.name).type for state in states)])
                )
                for item in self._columns(type_)
            ]
        )

    def _columns(self, type_: Type) -> pa.Schema:
        """Return the columns of a type as the merged schema has them; states of other schemas store others."""
        stored = logical_form(physical_schema(arrow_schema(type_)))
        return pa.schema([field.with_nullable(True) for field in stored])

    def _merge_from_virtual(self, type_: Type, base: MergeBase[Dataset], ours: Dataset, theirs: Dataset) -> RowMerge:
        """Merge a type whose base is virtual: the cost follows what differs between all states of it."""
        image, sides = self._images(type_, base, [ours, theirs])
        return merge_from_virtual(type_, image, *sides)

    def our_changes(self, type_: Type) -> tuple[RowChanges, Unknown]:
        """Return what our side changed since the base, and what is undetermined there, which counts as changed."""
        base, ours = self.base_of(type_), self.ours.sound_dataset(type_.table_key)
        if not base.is_virtual:
            return self._row_changes(type_, base.first, ours), NOTHING_UNKNOWN
        image, [rows] = self._images(type_, base, [ours])
        return difference(type_, image, Image(rows)), image.unknown

    def _images(
        self, type_: Type, base: MergeBase[Dataset], sides: Sequence[Dataset]
    ) -> tuple[Image, Iterator[pa.Table]]:
        """Return a virtual base, and the rows of each side, of the entities that are not equal everywhere."""
        # Differences against one reference are enough: an entity that none of them names is equal in all states.
        reference, *others = {dataset.ref: dataset for dataset in base.states()}.values()
        deltas = {dataset.ref: self._row_changes(type_, reference, dataset) for dataset in (*others, *sides)}
        old, rows = images(dict(zip(deltas, self.blobs.unified(list(deltas.values())), strict=True)))
        image = build_image(type_, base, lambda dataset: rows.get(dataset.ref, old))
        return image, (rows.get(side.ref, old) for side in sides)

    def rows(self, type_: Type, entity_id: str) -> tuple[pa.Table | None, pa.Table | None, pa.Table | None]:
        """Return an entity in the base, on our side and on theirs, as one-row tables."""
        image = build_image(type_, self.base_of(type_), lambda dataset: self._row(type_, dataset, entity_id))
        sides = [self._row(type_, view.sound_dataset(type_.table_key), entity_id) for view in (self.ours, self.theirs)]
        base, ours, theirs = (rows if rows.num_rows else None for rows in (image.unknown.known_of(image.rows), *sides))
        return base, ours, theirs

    def _row(self, type_: Type, dataset: Dataset, entity_id: str) -> pa.Table:
        """Return an entity as a table of one row or none."""
        matches = find(dataset, pa.array([entity_id], pa.string()))
        rows = pa.table({"id": matches.column("id"), BEFORE: pa.nulls(matches.num_rows), AFTER: matches.column(ROW_ID)})
        row = compare(None, dataset, rows, self.blobs).inserted
        return row if self.merged is None else convert_rows(row, self._widest_columns(type_), type_.name)

    def tightened(self) -> list[Type]:
        """Return the types of the target that get rules which its entities may break."""
        if self.merged is None:
            return []
        return [new for old, new in self.merged.reshaping.kept if is_tightened(old, new)]

    def whole_delta(self, type_: Type, merge: RowMerge | None) -> Delta:
        """Return all entities of a type as they are after the merge."""
        rows = row_changes(None, self.ours.sound_dataset(type_.table_key), self.blobs)
        kept = convert_rows(rows.inserted, self._columns(type_), type_.name)
        if merge is not None:
            kept = rows_without(kept, pa.concat_arrays([ids_of(merge.updated), merge.deleted]))
            kept = pa.concat_tables([kept, merge.updated, merge.inserted]).combine_chunks()
        return Delta(type_, kept, Intent.REPLACE)

    def _is_unchanged(self, side: View, type_: Type) -> bool:
        base = self.base_pin(type_)
        return base is not None and self._pin(side, type_).ref == base.ref

    def _base(self, type_: Type) -> MergeBase[View]:
        return self.base.reduced(lambda view: self._pin(view, type_).ref)

    @staticmethod
    def _pin(view: View, type_: Type) -> Pin:
        return view.snapshot.state.pins[type_.table_key]


def _with_ends(types: Iterable[Type]) -> set[str]:
    """Return the names of types and of the node types at the ends of edges among them."""
    return {name for type_ in types for name in (type_.name, *type_.ends.values())}


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts of inserted, updated and deleted entities of one type."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @classmethod
    def of(cls, merge: RowMerge) -> Counted:
        return cls(merge.inserted.num_rows, merge.updated.num_rows, len(merge.deleted))


@dataclass(frozen=True, slots=True)
class GraphMerge:
    """What happens to each type that needs work, and every conflict that no resolution settles.

    Types in `overruled` are not as their side has them, because a resolution decided about an entity of theirs.
    """

    merges: Mapping[TypeKey, RowMerge]
    conflicts: Sequence[Conflict] = ()
    overruled: frozenset[TypeKey] = frozenset()

    @property
    def counts(self) -> dict[TypeKey, Counted]:
        return {key: Counted.of(merge) for key, merge in self.merges.items() if not merge.changes_nothing}

    def adopted(self, adoptable: Mapping[TypeKey, Pin]) -> dict[TypeKey, Pin]:
        """Return the datasets that can be adopted unchanged."""
        return {key: pin for key, pin in adoptable.items() if key not in self.overruled}


def merge_all(three: ThreeWayState, resolutions: Resolutions) -> GraphMerge:
    """Merge all types, apply the resolutions, and validate the result against every rule."""
    merges = {type_.table_key: resolutions.settle(type_, three.merge(type_), three.blobs) for type_ in three.types()}
    clashes = [conflict_of(key, clash, three.blobs) for key, merge in merges.items() for clash in merge.clashes]
    if clashes:
        if resolutions.has_open:
            # What is still open may be about a rule that breaks once the clashes are settled.
            resolutions.reject_irrelevant(
                three,
                lambda key, entity_id: key in merges and touches(merges[key], entity_id),
                violations_of(three, merges),
            )
        return GraphMerge(merges, clashes)
    # Two valid sides can merge into an invalid graph (both take one unique value, one deletes a node that the other
    # links), so the result is validated like any write, with our side as what is committed.
    decided, violations = merges, violations_of(three, merges)
    if resolutions.has_open and violations:
        decided = resolutions.override(three, merges, violations)
        violations = violations_of(three, decided)
    resolutions.reject_unused()
    overruled = frozenset(key for key, merge in decided.items() if merge is not merges.get(key))
    return GraphMerge(decided, [violation_conflict(three, violation) for violation in violations], overruled)


def violations_of(three: ThreeWayState, merges: Mapping[TypeKey, RowMerge]) -> list[Violation]:
    """Return everything that is wrong with the merged graph."""
    types = three.by_key
    deltas = {
        key: Delta(
            types[key], pa.concat_tables([merge.updated, merge.inserted]).combine_chunks(), deleted=merge.deleted
        )
        for key, merge in merges.items()
        if not merge.changes_nothing
    }
    # Rules that come with the schema of their side hold for all entities, not only for those that change.
    deltas |= {type_.table_key: three.whole_delta(type_, merges.get(type_.table_key)) for type_ in three.tightened()}
    return validate(Changes(three.ours.catalog, deltas), CommittedRows(three.ours), _ALL).violations


def violation_conflict(three: ThreeWayState, violation: Violation) -> Conflict:
    """Return a rule violation as a conflict, with the entity on all sides."""
    if violation.entity_id is None or violation.type_key is None:
        return conflict_from(violation)
    type_ = three.by_key[violation.type_key]
    rows = map(three.blobs.with_bytes, three.rows(type_, violation.entity_id))
    return conflict_from(violation, *map(image_of, rows))


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
    columns = three.column_changes(type_)
    change = None if columns is None else columns.reshape(dataset)
    if change is not None:
        if merge is None or merge.changes_nothing:
            return Effect(key, dataset, (change,))
        begun = _begin(view, dataset, change)
    if merge is None:
        return None
    rows = pa.concat_tables([merge.updated, merge.inserted])
    # Row addresses are looked up at the published version only: staged versions may never be published.
    updated_rows = _find_rows(dataset, ids_of(merge.updated))
    deleted_rows = _find_rows(dataset, merge.deleted)
    if deleted_rows.num_rows:
        deletion = _changed(delete_found(_on_top(dataset, begun), deleted_rows))
        if not rows.num_rows:
            return Effect(key, dataset, (deletion,), begun)
        begun = _begin(view, dataset, deletion, begun)
        if updated_rows.num_rows:
            updated_rows = begun.dataset.take(updated_rows.column(ROW_ID).to_numpy().tolist(), PLACE)
    return Effect(key, dataset, (_write(_on_top(dataset, begun), rows, updated_rows, blobs),), begun)


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
