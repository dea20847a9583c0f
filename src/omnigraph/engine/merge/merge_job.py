"""A merge as its tasks see it: the versions to merge, the rows to check against, and how tables pass between tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from omnigraph.engine.key_buckets.files import HeldTable, TableSlice, columns_of_keys, key_names, write_tables
from omnigraph.engine.merge.type_merge import TypeVersions
from omnigraph.engine.session import View
from omnigraph.engine.tasks import GraphAccess, parse_catalog
from omnigraph.lang.catalog import Catalog, Type, TypeKey
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.store import Store


class MergeStore:
    """Opens the versions of a merge: in this process as its views do, in another one by address.

    The first view is our side, under the merged schema, of which `ir` is the text. `staged` are versions that nothing
    names yet, with their manifests.
    """

    def __init__(
        self, access: GraphAccess, ir: str, views: Sequence[View] = (), staged: Mapping[DatasetRef, str] | None = None
    ) -> None:
        self.access = access
        self.catalog: Catalog = views[0].catalog if views else parse_catalog(ir)
        self._ir, self._views, self._staged = ir, views, staged or {}
        self._store = views[0].kernel.store if views else None
        # Only views open versions whose links a crash has left unfinished.
        self._pinned = {pin.ref: (view, key) for view in views for key, pin in view.snapshot.state.pins.items()}

    def __reduce__(self) -> tuple[object, ...]:
        return MergeStore, (self.access, self._ir, (), self._staged)

    def with_access(self, access: GraphAccess) -> MergeStore:
        return MergeStore(access, self._ir, self._views, self._staged)

    def with_staged(self, staged: Mapping[DatasetRef, str]) -> MergeStore:
        return MergeStore(self.access, self._ir, self._views, staged)

    def store(self) -> Store:
        return self._store or self.access.store()

    def open(self, ref: DatasetRef) -> Dataset:
        if ref in self._pinned:
            view, key = self._pinned[ref]
            return view.sound_dataset(key)
        return self.store().open_unlinked(ref, self._staged[ref]) if ref in self._staged else self.store().open(ref)


@dataclass(frozen=True, slots=True)
class MergeJob:
    """What all tasks of a merge know.

    `versions` are those of every type that is merged, `committed` our side of every type, `targets` the datasets that
    tasks write to. The rows of a type in `rechecked` all have to satisfy rules that are new to them. With 0 `buckets`
    nothing is checked. Without `scratch`, a folder, tables stay in the memory of this process; if `is_held`, merged
    rows do so as well, until it is known whether the merge succeeds. `is_decided` if there are resolutions.
    """

    store: MergeStore
    versions: Mapping[TypeKey, TypeVersions]
    committed: Mapping[TypeKey, DatasetRef]
    targets: Mapping[TypeKey, DatasetRef] = field(default_factory=dict)
    rechecked: frozenset[TypeKey] = frozenset()
    buckets: int = 0
    scratch: str | None = None
    is_held: bool = False
    is_decided: bool = False

    @property
    def catalog(self) -> Catalog:
        return self.store.catalog

    @property
    def operation_id(self) -> str:
        """The id of the operation, which also seeds the hashes that split rows."""
        return self.store.access.operation_id

    def open(self, ref: DatasetRef) -> Dataset:
        return self.store.open(ref)

    def old_columns(self, type_: Type) -> list[str]:
        """Return the columns by which replaced rows are split into buckets; a single bucket needs none."""
        columns = columns_of_keys(type_, key_names(type_)) if self.buckets > 1 else []
        return [name for name in columns if name != "id"]

    def hand_on(self, tables: Iterable[pa.Table]) -> list[TableSlice]:
        if self.scratch is None:
            return [HeldTable(table) for table in tables]
        return [*write_tables(self.store.store(), self.scratch, tables)]

    def receive(self, slice_: TableSlice) -> pa.Table:
        return slice_.read_table(self.store.store())
