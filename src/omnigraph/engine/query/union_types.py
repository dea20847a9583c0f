"""Unions of types: nodes or edges of several types under one range of dense ids, and adjacency between them.

The types of a union are in name order; the dense ids of each follow those of the one before. So a variable of several
types is an ordinary column of ids, and everything behind the pattern reads it like any other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engine.query.adjacency import Adjacency, Endpoints, Topology, build_adjacency, orient_endpoints
from omnigraph.engine.query.entities import Column, Entities
from omnigraph.engine.query.vectors import Ids, Mask, Strings
from omnigraph.lang.query.ir import REVERSED, Direction, Leg

T = TypeVar("T")


class UnionEntities(Entities):
    """The entities of several types, with the columns that all of them have."""

    def __init__(self, names: Sequence[str], members: Sequence[Entities], grow: Callable[[], None]) -> None:
        self.names = tuple(names)
        self.members = tuple(members)
        self.offsets = np.concatenate([[0], np.cumsum([member.count for member in members])]).astype(np.int64)
        self.count = int(self.offsets[-1])
        self.dtype = np.int32 if self.count < 2**31 else np.int64
        self._grow = grow
        self._columns: dict[str, Column] = {}
        self._nulls: dict[str, Mask] = {}
        self._live = None
        self._all: Ids | None = None
        self._ranks: Ids | None = None
        self._positions = None
        self._lock = threading.RLock()

    def column(self, name: str) -> Column:
        """Return a whole column, type after type."""
        column = self._columns.get(name)
        if column is None:
            arrays = [member.column(name).array for member in self.members]
            is_large = any(pa.types.is_large_string(array.type) for array in arrays)
            type_ = pa.large_string() if is_large else arrays[0].type
            column = self._columns[name] = Column(pa.concat_arrays([array.cast(type_) for array in arrays]))
            self._grow()
        return column

    def _is_selective(self, name: str, count: int) -> bool:
        return False

    def null_mask(self, name: str) -> Mask:
        """Return which entities lack a property."""
        if name not in self._nulls:
            self._nulls[name] = np.concatenate([member.null_mask(name) for member in self.members])
        return self._nulls[name]

    @property
    def id_ranks(self) -> Ids:
        """The rank of every entity by type, then id."""
        if self._ranks is None:
            ranks = [member.id_ranks + offset for member, offset in zip(self.members, self.offsets, strict=False)]
            self._ranks = np.concatenate(ranks).astype(self.dtype)
        return self._ranks

    def type_index(self, ids: Ids) -> npt.NDArray[np.int64]:
        """Return the place in `names` of each entity's type; -1 for a negative id."""
        return np.searchsorted(self.offsets, ids, "right") - 1


def member_offset(entities: Entities, name: str) -> int | None:
    """Return where the dense ids of a type begin in a union; 0 in the type itself, None when it is no member."""
    if not isinstance(entities, UnionEntities):
        return 0
    return int(entities.offsets[entities.names.index(name)]) if name in entities.names else None


def convert_ids(ids: Ids, source: Entities, source_type: str, target: Entities, target_type: str) -> Ids:
    """Return the dense ids of one type or union as those of another one; -1 where the type is not in it."""
    if source_type == target_type:
        return ids
    names = source.names if isinstance(source, UnionEntities) else (source_type,)
    members = target.names if isinstance(target, UnionEntities) else (target_type,)
    starts = source.offsets if isinstance(source, UnionEntities) else np.array([0, source.count])
    # What to add to an id of each type; the types that the target lacks, and null, become -1.
    shifts = [(member_offset(target, name) or 0) - int(start) for name, start in zip(names, starts, strict=False)]
    is_member = np.array([*(name in members for name in names), False])
    member = np.searchsorted(starts, ids, "right") - 1
    converted = ids.astype(np.int64) + np.array([*shifts, 0])[member]
    return np.where(is_member[member], converted, -1).astype(target.dtype)


def type_names(entities: Entities, type_name: str, ids: Ids) -> Strings:
    """Return the name of the type of each entity; null for a negative id."""
    names = entities.names if isinstance(entities, UnionEntities) else (type_name,)
    type_indices = entities.type_index(ids) if isinstance(entities, UnionEntities) else np.minimum(ids, 0)
    indices: Any = pa.array(type_indices, mask=np.asarray(ids) < 0)
    encoded: Any = pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string()))
    return Strings(encoded.cast(pa.string()))


class UnionTopology:
    """The adjacency of several edge types between two types or unions, from the endpoints that each has in memory."""

    def __init__(
        self,
        legs: tuple[Leg, ...],
        topologies: Mapping[str, Topology],
        edges: Entities,
        near: Entities,
        far: Entities,
        grow: Callable[[], None],
    ) -> None:
        self._legs, self._topologies, self._edges = legs, topologies, edges
        self._near, self._far, self._grow = near, far, grow
        self._adjacencies: dict[tuple[Direction, bool], Adjacency] = {}
        self._derived: dict[object, Any] = {}
        self._lock = threading.RLock()

    def derived(self, key: object, make: Callable[[Adjacency], T]) -> T:
        """Return what is computed from the edges along the legs, once; it has a size, `nbytes`."""
        with self._lock:
            if key not in self._derived:
                self._derived[key] = make(self.adjacency(Direction.OUT, per_edge=True))
                self._grow()
            value: T = self._derived[key]
        return value

    def adjacency(self, direction: Direction, *, per_edge: bool) -> Adjacency:
        """Return the neighbours along the legs, or against them when the direction is IN."""
        key = (direction, per_edge)
        with self._lock:
            adjacency = self._adjacencies.get(key)
            if adjacency is None:
                adjacency = self._adjacencies[key] = self._make(direction, per_edge)
                self._grow()
        return adjacency

    def backwards(self, direction: Direction) -> Adjacency:
        return self.adjacency(REVERSED[direction], per_edge=False)

    def _make(self, direction: Direction, per_edge: bool) -> Adjacency:
        parts = [self._orient_leg(leg) for leg in self._legs]
        source, target, edge = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        near, far = self._near, self._far
        if direction is Direction.IN:
            source, target, near, far = target, source, far, near
        return build_adjacency(source, target, edge if per_edge else None, near.count, far.count)

    def _orient_leg(self, leg: Leg) -> Endpoints:
        ends = self._topologies[leg.edge].endpoints()
        return place_endpoints(leg, ends, self._near, self._far, self._edges)

    @property
    def nbytes(self) -> int:
        kept = [*self._adjacencies.values(), *self._derived.values()]
        return sum(int(item.nbytes) for item in kept)


def place_endpoints(leg: Leg, ends: Endpoints, near: Entities, far: Entities, edges: Entities) -> Endpoints:
    """Return the edges of a leg, oriented along it, with the dense ids of unions."""
    edge = ends.edge.astype(np.int64) + (member_offset(edges, leg.edge) or 0)
    if leg.source == leg.target or leg.direction is not Direction.BOTH:
        source, target, edge = orient_endpoints(Endpoints(ends.source, ends.target, edge), leg.direction)
        near_type, far_type = leg.ends[0]
        return Endpoints(_shift_ids(source, near, near_type), _shift_ids(target, far, far_type), edge)
    out, back = (leg.source, ends.source), (leg.target, ends.target)
    sources = [_shift_ids(ids, near, name) for name, ids in (out, back)]
    targets = [_shift_ids(ids, far, name) for name, ids in (back, out)]
    return Endpoints(np.concatenate(sources), np.concatenate(targets), np.concatenate([edge, edge]))


def _shift_ids(ids: Ids, entities: Entities, name: str) -> Ids:
    offset = member_offset(entities, name)
    assert offset is not None, "the checker keeps only legs that fit both ends"
    return ids.astype(np.int64) + offset
