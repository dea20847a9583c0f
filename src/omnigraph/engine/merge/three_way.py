"""The three states of a merge under one schema: which types need work, and which are taken over as they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from omnigraph.engine.changes.row_diff import RowChanges, logical_schema
from omnigraph.engine.exact_conversion import widest_type
from omnigraph.engine.merge.ancestry import MergeBase
from omnigraph.engine.merge.merge_job import MergeStore
from omnigraph.engine.merge.row_merge import Unknown
from omnigraph.engine.merge.schema_merge import MergedSchema, is_tightened
from omnigraph.engine.merge.type_merge import TypeMerge, TypeVersions, merged_columns
from omnigraph.engine.schema_data import TypeChange
from omnigraph.engine.session import View
from omnigraph.engine.tasks import graph_access
from omnigraph.ids import new_ulid
from omnigraph.lang.catalog import Type, TypeKey
from omnigraph.manifest.model import Pin


@dataclass(frozen=True)
class ThreeWayState:
    """The base, our side (merged into) and their side (merged), all under one schema.

    `merged` is set if their schemas differ; the views are then read under the merged one.
    """

    base: MergeBase[View]
    ours: View
    theirs: View
    merged: MergedSchema | None = None

    def __post_init__(self) -> None:
        # Schemas merge before data, so that rows of all states have the same columns and compare column by column.
        hashes = {view.catalog.ir_hash for view in self.views}
        assert len(hashes) == 1, "the states of a merge are read under one schema"

    @classmethod
    def under(cls, merged: MergedSchema) -> ThreeWayState:
        read = merged.read
        return cls(merged.base.map(read), read(merged.ours), read(merged.theirs), merged=merged)

    @property
    def views(self) -> tuple[View, ...]:
        """All states, ours first."""
        return (self.ours, self.theirs, *self.base.states())

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
        return [type_ for type_ in self.by_key.values() if self.column_changes(type_) is not None]

    def new_types(self) -> list[Type]:
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

    def versions(self, type_: Type) -> TypeVersions:
        base = self._base(type_).map(lambda view: self._pin(view, type_).ref)
        ours, theirs = (self._pin(view, type_).ref for view in (self.ours, self.theirs))
        return TypeVersions(base, ours, theirs, None if self.merged is None else self._widest_columns(type_))

    def _widest_columns(self, type_: Type) -> pa.Schema:
        """Return the columns of a type, each in the widest type that a state stores it in."""
        stored = [logical_schema(view.sound_dataset(type_.table_key)) for view in self.views]
        return pa.schema(
            [
                column.with_type(widest_type([column.type, *(schema.field(column.name).type for schema in stored)]))
                for column in merged_columns(type_)
            ]
        )

    def store(self) -> MergeStore:
        access = graph_access(self.ours.kernel.store.root.uri, new_ulid())
        return MergeStore(access, self.ours.snapshot.state.schema.ir, self.views)

    def our_changes(self, type_: Type) -> tuple[RowChanges, Unknown]:
        """Return what our side changed since the base, and what is undetermined there, which counts as changed."""
        return TypeMerge(self.store().open, type_, self.versions(type_)).our_changes()

    def tightened(self) -> list[Type]:
        """Return the types of the target that get rules which its entities may break."""
        if self.merged is None:
            return []
        return [new for old, new in self.merged.reshaping.kept if is_tightened(old, new)]

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
