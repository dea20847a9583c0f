"""Three states of a graph to one: which types need work, what happens to their rows, and what stands in the way.

Reads only. Row conflicts end it before the rules are asked; either list is complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from omnigraph.engine.changes.rows import AFTER, BEFORE, compare, row_changes
from omnigraph.engine.core import View
from omnigraph.engine.merge.conflict import Conflict, conflict_from, conflict_of, image_of
from omnigraph.engine.merge.rows import RowMerge, as_merge, merge_rows
from omnigraph.engine.merge.settle import Resolutions
from omnigraph.engine.write.committed import CommittedRows
from omnigraph.errors import GraphError
from omnigraph.lang.catalog import EdgeType, NodeType
from omnigraph.manifest.model import Pin
from omnigraph.rules.delta import Changes, Delta
from omnigraph.rules.validate import validate
from omnigraph.rules.violation import Violation
from omnigraph.store.lookup import ROW_ID, find

# A merge tells all that is wrong with it.
_ALL: Final = 2**31

Type = NodeType | EdgeType


@dataclass(frozen=True)
class Three:
    """The base, our side, which is merged into, and their side, which is merged; all of one schema."""

    base: View
    ours: View
    theirs: View

    def __post_init__(self) -> None:
        hashes = {view.catalog.ir_hash for view in (self.base, self.ours, self.theirs)}
        if len(hashes) > 1:
            raise GraphError(
                f"`{self.theirs.snapshot.branch}` and `{self.ours.snapshot.branch}` do not have the same schema, or not"
                " the one they started from; export the change and ingest it instead",
                code="merge.schema_differs",
                source=self.theirs.snapshot.branch,
                target=self.ours.snapshot.branch,
            )

    @property
    def by_key(self) -> dict[str, Type]:
        """All types of the graph by table key."""
        catalog = self.ours.catalog
        types: list[Type] = [*catalog.nodes.values(), *catalog.edges.values()]
        return {one.table_key: one for one in types}

    def types(self) -> Iterator[Type]:
        """Yield the types whose data their side changed, by key."""
        for _, one in sorted(self.by_key.items()):
            theirs = self._pin(self.theirs, one)
            if theirs.ref not in (self._pin(self.base, one).ref, self._pin(self.ours, one).ref):
                yield one

    def is_ours_unchanged(self, type_: Type) -> bool:
        return self._pin(self.ours, type_).ref == self._pin(self.base, type_).ref

    def pin(self, type_: Type) -> Pin:
        """Return where their side of a type lies."""
        return self._pin(self.theirs, type_)

    def merge(self, type_: Type) -> RowMerge:
        """Merge the rows of one type."""
        base, ours, theirs = (view.dataset(type_.table_key) for view in (self.base, self.ours, self.theirs))
        changes = row_changes(base, theirs)
        if self.is_ours_unchanged(type_):
            return as_merge(changes)
        return merge_rows(type_, row_changes(base, ours), changes)

    def row(self, view: View, type_: Type, entity_id: str) -> pa.Table | None:
        """Return one entity of one side as a table of one row."""
        dataset = view.dataset(type_.table_key)
        found = find(dataset, pa.array([entity_id], pa.string()))
        rows = pa.table({"id": found.column("id"), BEFORE: pa.nulls(found.num_rows), AFTER: found.column(ROW_ID)})
        return compare(None, dataset, rows).inserted if found.num_rows else None

    @staticmethod
    def _pin(view: View, type_: Type) -> Pin:
        return view.snapshot.state.pins[type_.table_key]


def merge_all(three: Three, resolutions: Resolutions) -> tuple[dict[str, RowMerge], list[Conflict]]:
    """Return what happens to each type that needs work, and every conflict that no resolution settles."""
    merges = {one.table_key: resolutions.settle(one, three.merge(one)) for one in three.types()}
    clashes = [conflict_of(key, clash) for key, one in merges.items() for clash in one.clashes]
    if clashes:
        return merges, clashes
    violations = violations_of(three, merges)
    if resolutions.has_open and violations:
        merges = resolutions.override(three, merges, violations)
        violations = violations_of(three, merges)
    resolutions.refuse_open()
    return merges, [described(three, one) for one in violations]


def violations_of(three: Three, merges: Mapping[str, RowMerge]) -> list[Violation]:
    """Return everything that is wrong with the merged graph."""
    types = three.by_key
    deltas = {
        key: Delta(types[key], pa.concat_tables([one.updated, one.inserted]).combine_chunks(), deleted=one.deleted)
        for key, one in merges.items()
        if not one.changes_nothing
    }
    return validate(Changes(three.ours.catalog, deltas), CommittedRows(three.ours), _ALL).violations


def described(three: Three, violation: Violation) -> Conflict:
    """Return a broken rule as a conflict, with how its entity stands on all sides."""
    if violation.entity_id is None or violation.type_key is None:
        return conflict_from(violation)
    type_ = three.by_key[violation.type_key]
    views = (three.base, three.ours, three.theirs)
    return conflict_from(violation, *(image_of(three.row(view, type_, violation.entity_id)) for view in views))
