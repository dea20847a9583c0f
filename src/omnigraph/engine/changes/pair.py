"""Pairs: the types of two states, matched by identity and not by name.

Reads no data.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from omnigraph.engine.changes import rows
from omnigraph.engine.changes.rows import RowChanges
from omnigraph.engine.core import View
from omnigraph.lang.catalog import EdgeType, NodeType
from omnigraph.lang.schema.arrow import arrow_schema
from omnigraph.manifest.model import Pin, TypeIdentity
from omnigraph.store.dataset import Dataset


@dataclass(frozen=True, slots=True)
class Side:
    """One type in one state."""

    view: View
    pin: Pin

    @property
    def type_(self) -> NodeType | EdgeType:
        return self.view.catalog.type_of(self.pin.table_key)

    @property
    def dataset(self) -> Dataset:
        return self.view.dataset(self.pin.table_key)


@dataclass(frozen=True, slots=True)
class Pair:
    """One type in both states; None where it does not exist."""

    identity: TypeIdentity
    before: Side | None
    after: Side | None

    @property
    def known(self) -> Side:
        """The side to name things by: the newer one if there is one."""
        side = self.after or self.before
        assert side is not None
        return side

    @property
    def kind(self) -> str:
        return self.known.pin.table_key.partition(":")[0]

    @property
    def is_same_data(self) -> bool:
        return self.before is not None and self.after is not None and self.before.pin.ref == self.after.pin.ref

    @property
    def changed_sides(self) -> list[Side]:
        """The sides whose data is read to tell what changed."""
        return [] if self.is_same_data else [side for side in (self.before, self.after) if side is not None]

    @property
    def is_boundary(self) -> bool:
        """Whether rows before and after cannot be compared: of another shape, or gone with or come with the type."""
        if self.before is None or self.after is None:
            return self.known.pin.row_count > 0
        return _shape(self.before.type_) != _shape(self.after.type_)

    def candidates(self) -> pa.Table:
        """Return the rows that may differ; see `rows.candidates`."""
        return rows.candidates(*self.datasets())

    def compare(self, candidates: pa.Table) -> RowChanges:
        """Return what became of some candidates."""
        return rows.compare(*self.datasets(), candidates)

    def datasets(self) -> tuple[Dataset | None, Dataset | None]:
        """Open what both states hold of the type."""
        return self.before.dataset if self.before else None, self.after.dataset if self.after else None


def pairs(before: View, after: View) -> list[Pair]:
    """Return every type of both states: nodes before edges, then by identity."""
    old = {pin.identity: Side(before, pin) for pin in before.snapshot.state.pins.values()}
    new = {pin.identity: Side(after, pin) for pin in after.snapshot.state.pins.values()}
    found = [Pair(identity, old.get(identity), new.get(identity)) for identity in sorted(old.keys() | new.keys())]
    return sorted(found, key=lambda pair: pair.kind != "node")


def _shape(type_: NodeType | EdgeType) -> tuple[object, ...]:
    """Return what the images of a type depend on; enum values, indexes and descriptions do not matter."""
    ends = (type_.source, type_.target) if isinstance(type_, EdgeType) else ()
    columns = sorted((field.name, str(field.type), (field.metadata or {}).items()) for field in arrow_schema(type_))
    return type_.name, ends, [(name, kind, sorted(metadata)) for name, kind, metadata in columns]
