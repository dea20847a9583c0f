"""Three-way merge of whole graphs: which types need work, their row merges, and all conflicts.

Reads only. Row conflicts are reported before rules are checked; each list is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pyarrow as pa

from omnigraph.engine.changes.blob_values import BlobValues
from omnigraph.engine.changes.row_diff import AFTER, BEFORE, compare, row_changes
from omnigraph.engine.merge.ancestry import MergeBase, build_image, images, merge_from_virtual
from omnigraph.engine.merge.apply_resolutions import Resolutions, touches
from omnigraph.engine.merge.conflicts import conflict_from, conflict_of, image_of
from omnigraph.engine.merge.row_merge import RowMerge, as_merge, merge_rows
from omnigraph.engine.session import View
from omnigraph.engine.write.committed_rows import CommittedRows
from omnigraph.errors import GraphError
from omnigraph.lang.catalog import EdgeType, NodeType
from omnigraph.manifest.model import Pin
from omnigraph.public_values import Conflict
from omnigraph.rules.delta import Changes, Delta, Violation
from omnigraph.rules.validate import validate
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.read.lookup import ROW_ID, find

# A merge reports all violations.
_ALL: Final = 2**31

Type = NodeType | EdgeType


@dataclass(frozen=True)
class ThreeWayState:
    """The base, our side (merged into) and their side (merged), all of one schema."""

    base: MergeBase[View]
    ours: View
    theirs: View
    # Placeholders that rows hold instead of blob bytes.
    blobs: BlobValues = field(default_factory=BlobValues)

    def __post_init__(self) -> None:
        hashes = {view.catalog.ir_hash for view in (*self.base.states(), self.ours, self.theirs)}
        if len(hashes) > 1:
            theirs, ours = self.theirs.snapshot.branch, self.ours.snapshot.branch
            what = f"`{theirs}` and `{ours}` do not have the same schema, or not the one they started from"
            if theirs == ours:
                what = f"the schema of `{ours}` has changed since that commit"
            raise GraphError(
                f"{what}; nothing was changed. Export the change and ingest it instead",
                code="merge.schema_differs",
                source=theirs,
                target=ours,
            )

    @property
    def by_key(self) -> dict[str, Type]:
        """All types of the graph by table key."""
        catalog = self.ours.catalog
        types: list[Type] = [*catalog.nodes.values(), *catalog.edges.values()]
        return {type_.table_key: type_ for type_ in types}

    def types(self) -> Iterator[Type]:
        """Yield the types whose data their side changed, by key."""
        for _, type_ in sorted(self.by_key.items()):
            # Versions are immutable, so an equal pin proves equal content: theirs is unchanged if it is pinned like the
            # base, and merged already if it is pinned like ours.
            known = [pin.ref for pin in (self.base_pin(type_), self._pin(self.ours, type_)) if pin is not None]
            if self._pin(self.theirs, type_).ref not in known:
                yield type_

    def touched_types(self) -> list[Type]:
        """Return the types that differ between base and their side, whatever our side holds."""
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
        """Return where their side of a type lies."""
        return self._pin(self.theirs, type_)

    def base_pin(self, type_: Type) -> Pin | None:
        """Return where a type lies before either side; None: only a virtual base has it."""
        base = self._base(type_)
        return None if base.is_virtual else self._pin(base.first, type_)

    def base_of(self, type_: Type) -> MergeBase[Dataset]:
        """Return a type before either side; it is virtual only where states of the type have to be merged."""
        return self._base(type_).map(lambda view: view.sound_dataset(type_.table_key))

    def merge(self, type_: Type) -> RowMerge:
        """Merge the rows of one type."""
        base, ours, theirs = (
            self.base_of(type_),
            *(view.sound_dataset(type_.table_key) for view in (self.ours, self.theirs)),
        )
        if base.is_virtual:
            return _merge_from_virtual(type_, base, ours, theirs, self.blobs)
        changes = row_changes(base.first, theirs, self.blobs)
        # Our side has nothing that could conflict, so their change is the merge.
        if self.is_ours_unchanged(type_):
            return as_merge(*self.blobs.unified([changes]))
        ours_changes, changes = self.blobs.unified([row_changes(base.first, ours, self.blobs), changes])
        return merge_rows(type_, ours_changes, changes)

    def rows(self, type_: Type, entity_id: str) -> tuple[pa.Table | None, pa.Table | None, pa.Table | None]:
        """Return an entity in the base, on our side and on theirs, as one-row tables."""
        image = build_image(type_, self.base_of(type_), lambda dataset: _row(dataset, entity_id, self.blobs))
        sides = [_row(view.sound_dataset(type_.table_key), entity_id, self.blobs) for view in (self.ours, self.theirs)]
        base, ours, theirs = (rows if rows.num_rows else None for rows in (image.unknown.known_of(image.rows), *sides))
        return base, ours, theirs

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
    names = (
        {type_.name, type_.source, type_.target} if isinstance(type_, EdgeType) else {type_.name} for type_ in types
    )
    return set().union(*names)


def _merge_from_virtual(
    type_: Type, base: MergeBase[Dataset], ours: Dataset, theirs: Dataset, blobs: BlobValues
) -> RowMerge:
    """Merge a type whose base is virtual: the cost follows what differs between all states of it."""
    reference, *others = {dataset.ref: dataset for dataset in base.states()}.values()
    deltas = {dataset.ref: row_changes(reference, dataset, blobs) for dataset in (*others, ours, theirs)}
    old, rows = images(dict(zip(deltas, blobs.unified(list(deltas.values())), strict=True)))
    image = build_image(type_, base, lambda dataset: rows.get(dataset.ref, old))
    return merge_from_virtual(type_, image, rows.get(ours.ref, old), rows.get(theirs.ref, old))


def _row(dataset: Dataset, entity_id: str, blobs: BlobValues) -> pa.Table:
    """Return an entity as a table of one row or none."""
    matches = find(dataset, pa.array([entity_id], pa.string()))
    rows = pa.table({"id": matches.column("id"), BEFORE: pa.nulls(matches.num_rows), AFTER: matches.column(ROW_ID)})
    return compare(None, dataset, rows, blobs).inserted


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

    merges: Mapping[str, RowMerge]
    conflicts: Sequence[Conflict] = ()
    overruled: frozenset[str] = frozenset()

    @property
    def counts(self) -> dict[str, Counted]:
        return {key: Counted.of(merge) for key, merge in self.merges.items() if not merge.changes_nothing}

    def adopted(self, adoptable: Mapping[str, Pin]) -> dict[str, Pin]:
        """Return which datasets can be taken over as they are."""
        return {key: pin for key, pin in adoptable.items() if key not in self.overruled}


def merge_all(three: ThreeWayState, resolutions: Resolutions) -> GraphMerge:
    """Merge all types, apply the resolutions, and validate the result against every rule."""
    merges = {type_.table_key: resolutions.settle(type_, three.merge(type_), three.blobs) for type_ in three.types()}
    clashes = [conflict_of(key, clash, three.blobs) for key, merge in merges.items() for clash in merge.clashes]
    if clashes:
        if resolutions.has_open:
            # What is still open may be about a rule that breaks once the clashes are settled.
            resolutions.reject_irrelevant(three, partial(_is_touched, merges), violations_of(three, merges))
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


def _is_touched(merges: Mapping[str, RowMerge], table_key: str, entity_id: str) -> bool:
    return table_key in merges and touches(merges[table_key], entity_id)


def violations_of(three: ThreeWayState, merges: Mapping[str, RowMerge]) -> list[Violation]:
    """Return everything that is wrong with the merged graph."""
    types = three.by_key
    deltas = {
        key: Delta(
            types[key], pa.concat_tables([merge.updated, merge.inserted]).combine_chunks(), deleted=merge.deleted
        )
        for key, merge in merges.items()
        if not merge.changes_nothing
    }
    return validate(Changes(three.ours.catalog, deltas), CommittedRows(three.ours), _ALL).violations


def violation_conflict(three: ThreeWayState, violation: Violation) -> Conflict:
    """Return a rule violation as a conflict, with the entity on all sides."""
    if violation.entity_id is None or violation.type_key is None:
        return conflict_from(violation)
    type_ = three.by_key[violation.type_key]
    rows = map(three.blobs.with_bytes, three.rows(type_, violation.entity_id))
    return conflict_from(violation, *map(image_of, rows))
