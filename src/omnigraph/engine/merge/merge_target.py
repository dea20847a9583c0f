"""The dataset of a type that a merge changes: its columns first, then its rows, in one staged change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from omnigraph.engine.merge.range_merge import HeldRows
from omnigraph.engine.merge.three_way import ThreeWayState
from omnigraph.engine.session import View
from omnigraph.engine.write.staging import physical
from omnigraph.lang.catalog import Type, TypeKey
from omnigraph.manifest.plan import Effect
from omnigraph.manifest.publish import drift
from omnigraph.manifest.requirements import HeadIs
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.store import Staged, StaleBase
from omnigraph.store.write.fragments import FragmentText, Marked, upserted
from omnigraph.store.write.transaction import Change
from omnigraph.store.write.upsert import delete_found, upsert


@dataclass(frozen=True, slots=True)
class MergeTarget:
    """A dataset to write to; `begun` is its next version, with the columns of the merged schema, if they change."""

    table_key: TypeKey
    dataset: Dataset
    begun: Staged | None

    @classmethod
    def open(cls, three: ThreeWayState, type_: Type) -> MergeTarget:
        """Open the dataset of a type for writing, and stage the change of its columns below that of its rows."""
        view, key = three.target, three.stored_key(type_)
        assert key is not None, "types that a merge brings are adopted"
        dataset = view.kernel.writable(view.snapshot, key)
        columns = three.column_changes(type_)
        change = None if columns is None else columns.reshape(dataset)
        return cls(key, dataset, None if change is None else _begin(view, dataset, change))

    @property
    def base(self) -> Dataset:
        """The version that rows are staged on."""
        return self.dataset if self.begun is None else self.begun.dataset

    def stage_rows(self, rows: HeldRows | None) -> Effect | None:
        if rows is None or rows.merge.changes_nothing:
            return self._effect(None)
        replaced, written = rows.moves.replaced(rows.merge), rows.merge.written
        if not written.num_rows:
            return self._effect(delete_found(self.base, replaced))
        written, stored = rows.blobs.with_kept_blobs(written, self.base, replaced)
        # Deleted rows leave together with those that are replaced.
        return self._effect(upsert(self.base, physical(written, self.base), replaced, stored))

    def combine(self, texts: Sequence[FragmentText], marked: Sequence[Marked]) -> Effect | None:
        """Return the effect of rows that tasks have staged."""
        return self._effect(upserted(self.base, texts, marked) if texts or marked else None)

    def _effect(self, change: Change | None) -> Effect | None:
        if change is None and self.begun is None:
            return None
        return Effect(self.table_key, self.dataset, () if change is None else (change,), self.begun)


def _begin(view: View, dataset: Dataset, change: Change) -> Staged:
    try:
        return dataset.store.commit(dataset, [change], {})
    except StaleBase as stale:
        newest = view.kernel.snapshot(view.snapshot.branch)
        HeadIs(view.snapshot.head).check(newest)
        raise drift(stale.ref.directory) from stale
