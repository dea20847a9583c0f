"""Adjacency lists (CSR) over dense ids, of one edge type or of a union of types, built from stored edges.

Invariant: neighbours are sorted within each node, and a self-loop is one entry even in direction BOTH.

The types of a union are in name order; the dense ids of each follow those of the one before. So a variable of several
types is an ordinary column of ids, and everything behind the pattern reads it like any other.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeVar
from weakref import ref

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engine.query.budget import reserve_for_read
from omnigraph.engine.query.entities import Column, Entities
from omnigraph.engine.query.vectors import Ids, Mask, Strings, group_offsets, range_indices, sort_distinct
from omnigraph.lang.query.ir import REVERSED, Direction, Leg
from omnigraph.store.read.version_diff import read_after, shared_beginning


@dataclass(frozen=True)
class Adjacency:
    """Neighbours of every node in one direction: those of node n are `neighbours[starts[n]:starts[n + 1]]`, sorted.

    With `edges`, one entry per stored edge and that edge's dense id; without, each neighbour once.
    """

    starts: npt.NDArray[np.int64]
    neighbours: Ids
    edges: Ids | None
    target_count: int
    nodes: Ids | None = None
    """The `Entities.all` array of the source type; passing this very array means all nodes."""

    @cached_property
    def degrees(self) -> npt.NDArray[np.int64]:
        return np.diff(self.starts)

    @cached_property
    def pairs(self) -> npt.NDArray[np.int64]:
        """Source and neighbour of every entry packed into one ascending number, for membership tests."""
        sources = np.repeat(np.arange(len(self.starts) - 1, dtype=np.int64), self.degrees)
        return sources * max(self.target_count, 1) + self.neighbours

    @property
    def nbytes(self) -> int:
        arrays = [self.starts, self.neighbours, self.edges]
        arrays += [self.__dict__.get(name) for name in ("degrees", "pairs")]
        return sum(int(array.nbytes) for array in arrays if array is not None)


def extend_adjacency(
    previous: Adjacency, source: Ids, target: Ids, edge: Ids | None, source_count: int, target_count: int
) -> Adjacency:
    """Return an adjacency with more pairs, equal to one built from all pairs at once."""
    added = build_adjacency(source, target, edge, source_count, target_count)
    old_starts = np.append(previous.starts, np.full(source_count + 1 - len(previous.starts), previous.starts[-1]))
    nodes = np.flatnonzero(added.degrees)
    # Merge insert: only the nodes with new pairs are searched, the rest is copied.
    degrees = old_starts[nodes + 1] - old_starts[nodes]
    firsts = np.cumsum(degrees) - degrees
    entries = range_indices(old_starts[nodes], degrees)
    width = max(target_count, 1)
    old = np.repeat(np.arange(len(nodes)), degrees) * width + previous.neighbours[entries]
    owners = np.repeat(np.arange(len(nodes)), added.degrees[nodes])
    new = owners * width + added.neighbours
    insert_at = np.searchsorted(old, new, "right")
    if edge is None and len(old):
        new_entries = np.flatnonzero((insert_at == 0) | (old[insert_at - 1] != new))
        owners, insert_at, neighbours = owners[new_entries], insert_at[new_entries], added.neighbours[new_entries]
    else:
        neighbours = added.neighbours
    insert_at = insert_at - firsts[owners] + old_starts[nodes[owners]]
    edges = None
    if added.edges is not None:
        assert previous.edges is not None, "only a per-edge adjacency can be extended per edge"
        edges = np.insert(previous.edges, insert_at, added.edges)
    starts = old_starts + group_offsets(nodes[owners], source_count)
    return Adjacency(starts, np.insert(previous.neighbours, insert_at, neighbours), edges, target_count)


def build_adjacency(source: Ids, target: Ids, edge: Ids | None, source_count: int, target_count: int) -> Adjacency:
    """Return the adjacency of pairs; without edges, equal pairs count once."""
    width = max(target_count, 1)
    packed = source.astype(np.int64) * width + target
    if edge is None:
        packed = sort_distinct(packed)
        owners, neighbours = np.divmod(packed, width)
    else:
        order = _stable_order(packed, source_count * width, len(edge))
        owners, neighbours, edge = source[order], target[order], edge[order]
    small = np.int32 if target_count < 2**31 else np.int64
    starts = group_offsets(owners, source_count)
    return Adjacency(starts, neighbours.astype(small, copy=False), edge, target_count)


def _stable_order(packed: npt.NDArray[np.int64], bound: int, count: int) -> npt.NDArray[Any]:
    """Return the order that sorts the pairs, ties by position."""
    if bound <= 2**63 // max(count, 1) - 1:
        # Sorting numbers that carry their own position is several times faster than sorting positions.
        order: npt.NDArray[Any] = np.sort(packed * count + np.arange(count)) % max(count, 1)
        return order
    return np.argsort(packed, kind="stable")


_ENDPOINT_COLUMNS: Final = ("src", "dst")
# Memory per edge while adjacency is built: two id strings and their dense ids.
_EDGE_BYTES: Final = 64


class Endpoints(NamedTuple):
    """Source, target and edge of edges, as dense ids."""

    source: Ids
    target: Ids
    edge: Ids

    @property
    def size(self) -> int:
        return len(self.edge)


class AdjacencyCache(ABC):
    """Adjacencies of the same edges, built on demand per direction and form (per neighbour or per edge)."""

    def __init__(self, grow: Callable[[], None]) -> None:
        self._grow = grow
        self._adjacencies: dict[tuple[Direction, bool], Adjacency] = {}
        self._lock = threading.RLock()

    def adjacency(self, direction: Direction, *, per_edge: bool) -> Adjacency:
        """Return the neighbours in a direction, each once or once per stored edge."""
        key = (direction, per_edge)
        adjacency = self._adjacencies.get(key)
        if adjacency is None:
            with self._lock:
                adjacency = self._adjacencies.get(key) or self._make(direction, per_edge)
                self._adjacencies[key] = adjacency
                self._grow()
        return adjacency

    def backwards(self, direction: Direction) -> Adjacency:
        return self.adjacency(REVERSED[direction], per_edge=False)

    @abstractmethod
    def _make(self, direction: Direction, per_edge: bool) -> Adjacency: ...

    @property
    def nbytes(self) -> int:
        return sum(adjacency.nbytes for adjacency in list(self._adjacencies.values()))


class Topology(AdjacencyCache):
    """The adjacency of one edge type."""

    def __init__(
        self,
        edges: Entities,
        sources: Entities,
        targets: Entities,
        grow: Callable[[], None],
        previous: Topology | None = None,
    ) -> None:
        super().__init__(grow)
        self._entities = (edges, sources, targets)
        self._previous = None if previous is None else ref(previous)
        self._ends: Endpoints | None = None
        self.probes = 0

    def endpoints(self) -> Endpoints:
        with self._lock:
            return self._read_ends()

    def _make(self, direction: Direction, per_edge: bool) -> Adjacency:
        _, sources, targets = self._entities
        near, far = (targets, sources) if direction is Direction.IN else (sources, targets)
        previous = self._appended_to()
        base = None if previous is None else previous._adjacencies.get((direction, per_edge))
        if previous is None or base is None or base.neighbours.dtype != far.dtype:
            source, target, edge = orient_endpoints(self._read_ends(), direction)
            adjacency = build_adjacency(source, target, edge if per_edge else None, near.count, far.count)
        else:
            added = Endpoints(*(array[previous._read_ends().size :] for array in self._read_ends()))
            source, target, edge = orient_endpoints(added, direction)
            adjacency = extend_adjacency(base, source, target, edge if per_edge else None, near.count, far.count)
        return replace(adjacency, nodes=near.all)

    def _read_ends(self) -> Endpoints:
        """Return the endpoints of every stored edge; after an append, read only the new edges."""
        if self._ends is None:
            edges, sources, targets = self._entities
            previous = self._appended_to()
            base = Endpoints(*(entities.all[:0] for entities in (sources, targets, edges)))
            if previous is not None:
                base = previous._read_ends()
            with reserve_for_read(edges.count - base.size, _EDGE_BYTES, "reading adjacency"):
                if previous is None:
                    table = edges.dataset.read(_ENDPOINT_COLUMNS)
                else:
                    table = read_after(
                        edges.dataset, shared_beginning(edges.dataset, previous.edges.dataset), _ENDPOINT_COLUMNS
                    )
                source, target = sources.find_all(table.column("src")), targets.find_all(table.column("dst"))
            ends = Endpoints(source.astype(sources.dtype), target.astype(targets.dtype), edges.all[base.size :])
            # Writes check endpoints; skip an edge whose endpoint is missing nevertheless.
            joined = (source >= 0) & (target >= 0)
            if not bool(joined.all()):
                ends = Endpoints(*(array[joined] for array in ends))
            self._ends = Endpoints(*map(np.concatenate, zip(base, ends, strict=True))) if base.size else ends
        return self._ends

    def _appended_to(self) -> Topology | None:
        """Return the previous version's topology if this version only appends to it and it is in memory."""
        previous = self._previous() if self._previous is not None else None
        if previous is None or previous._ends is None or previous._ends.size < previous.edges.count:
            # A dangling edge may have got its node since, so the old edges must be read again.
            return None
        is_added_to = all(
            current is known or shared_beginning(current.dataset, known.dataset).rows == known.count
            for current, known in zip(self._entities, previous._entities, strict=True)
        )
        return previous if is_added_to else None

    @property
    def edges(self) -> Entities:
        return self._entities[0]

    @property
    def is_loaded(self) -> bool:
        """True if the edges were read, so that no direction needs a storage request."""
        return self._ends is not None

    @property
    def is_nearly_loaded(self) -> bool:
        """True if only the edges of the last appends are still unread."""
        return self._appended_to() is not None

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum(int(array.nbytes) for array in self._ends or ())


def orient_endpoints(endpoints: Endpoints, direction: Direction) -> Endpoints:
    source, target, edge = endpoints
    if direction is Direction.OUT:
        return endpoints
    if direction is Direction.IN:
        return Endpoints(target, source, edge)
    # A self-loop is one edge, so it is one entry even when walked both ways.
    not_loops = source != target
    return Endpoints(
        np.concatenate([source, target[not_loops]]),
        np.concatenate([target, source[not_loops]]),
        np.concatenate([edge, edge[not_loops]]),
    )


T = TypeVar("T")


class UnionEntities(Entities):
    """The entities of several types, with the columns that all of them have."""

    def __init__(self, names: Sequence[str], members: Sequence[Entities], grow: Callable[[], None]) -> None:
        self.names = tuple(names)
        self.members = tuple(members)
        self.offsets = np.concatenate([[0], np.cumsum([member.count for member in members])]).astype(np.int64)
        self._start_empty(int(self.offsets[-1]), grow)

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


def member_offset(entities: Entities, name: str) -> int:
    """Return where the dense ids of a type begin in a union that it is a member of; 0 in the type itself."""
    return int(entities.offsets[entities.names.index(name)]) if isinstance(entities, UnionEntities) else 0


def convert_ids(ids: Ids, source: Entities, source_type: str, target: Entities, target_type: str) -> Ids:
    """Return the dense ids of one type or union as those of another one; -1 where the type is not in it."""
    names = source.names if isinstance(source, UnionEntities) else (source_type,)
    members = target.names if isinstance(target, UnionEntities) else (target_type,)
    starts = source.offsets if isinstance(source, UnionEntities) else np.array([0, source.count])
    # What to add to an id of each type; the types that the target lacks, and null, become -1.
    shifts = [
        member_offset(target, name) - int(start) if name in members else 0
        for name, start in zip(names, starts, strict=False)
    ]
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


class UnionTopology(AdjacencyCache):
    """The adjacency of several edge types between two types or unions, from the endpoints that each has in memory.

    Direction OUT is along the legs, IN against them.
    """

    def __init__(
        self,
        legs: tuple[Leg, ...],
        topologies: Mapping[str, Topology],
        edges: Entities,
        near: Entities,
        far: Entities,
        grow: Callable[[], None],
    ) -> None:
        super().__init__(grow)
        self._legs, self._topologies, self._edges = legs, topologies, edges
        self._near, self._far = near, far
        self._derived: dict[object, Any] = {}

    def derived(self, key: object, make: Callable[[Adjacency], T]) -> T:
        """Return what is computed from the edges along the legs, once; it has a size, `nbytes`."""
        with self._lock:
            if key not in self._derived:
                self._derived[key] = make(self.adjacency(Direction.OUT, per_edge=True))
                self._grow()
            value: T = self._derived[key]
        return value

    def _make(self, direction: Direction, per_edge: bool) -> Adjacency:
        parts = [
            place_endpoints(leg, self._topologies[leg.edge].endpoints(), self._near, self._far, self._edges)
            for leg in self._legs
        ]
        source, target, edge = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        near, far = self._near, self._far
        if direction is Direction.IN:
            source, target, near, far = target, source, far, near
        return build_adjacency(source, target, edge if per_edge else None, near.count, far.count)

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum(int(item.nbytes) for item in list(self._derived.values()))


def place_endpoints(leg: Leg, ends: Endpoints, near: Entities, far: Entities, edges: Entities) -> Endpoints:
    """Return the edges of a leg, oriented along it, with the dense ids of unions."""
    edge = ends.edge.astype(np.int64) + member_offset(edges, leg.edge)
    if leg.source == leg.target or leg.direction is not Direction.BOTH:
        source, target, edge = orient_endpoints(Endpoints(ends.source, ends.target, edge), leg.direction)
        near_type, far_type = leg.ends[0]
        return Endpoints(_shift_ids(source, near, near_type), _shift_ids(target, far, far_type), edge)
    out, back = (leg.source, ends.source), (leg.target, ends.target)
    sources = [_shift_ids(ids, near, name) for name, ids in (out, back)]
    targets = [_shift_ids(ids, far, name) for name, ids in (back, out)]
    return Endpoints(np.concatenate(sources), np.concatenate(targets), np.concatenate([edge, edge]))


def _shift_ids(ids: Ids, entities: Entities, name: str) -> Ids:
    # The checker keeps only legs that fit both ends.
    return ids.astype(np.int64) + member_offset(entities, name)
