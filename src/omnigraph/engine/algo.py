"""Graph analytics: degrees, components, PageRank and communities of one snapshot, as numpy arrays.

May import `engine.session`, `engine.write` and everything below the engine; knows nothing of Spark. The same rounds run
in one process and on Spark executors.

Numbers follow the scan order of the pinned versions, type by type in name order, and are valid for that view only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engine.authorization import on_branch
from omnigraph.engine.entity_lookup import blob_properties
from omnigraph.engine.session import GraphSession, View
from omnigraph.engine.write.committed_rows import ColumnTest, CommittedRows
from omnigraph.engine.write.staging import Stager
from omnigraph.engine.write.write_authorization import write_permissions
from omnigraph.errors import UsageError
from omnigraph.lang.catalog import NUMBERS, Catalog, EdgeType, NodeType, TypeKey
from omnigraph.lang.diagnostic import did_you_mean
from omnigraph.lang.query.ir import Direction
from omnigraph.lang.schema.arrow_schema import arrow_schema, arrow_type
from omnigraph.limits import ALGO_ROUNDS_MAX
from omnigraph.manifest.model import Snapshot
from omnigraph.manifest.plan import CommitPolicy, Plan
from omnigraph.manifest.requirements import PinIs, Requirement, SchemaIs
from omnigraph.public_values import Commit
from omnigraph.rules.arrow_typing import pc
from omnigraph.rules.delta import Changes, Delta, Intent, one_array
from omnigraph.rules.validate import validate

Numbers: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class AdjacencyBlock:
    """Nodes from `first` on; the neighbours of the n-th are `neighbours[starts[n]:starts[n + 1]]`, one per edge."""

    first: int
    starts: npt.NDArray[np.int64]
    neighbours: Numbers

    @property
    def size(self) -> int:
        return len(self.starts) - 1

    @property
    def filled(self) -> Numbers:
        """The indexes of nodes that have neighbours."""
        return np.flatnonzero(np.diff(self.starts))

    def slice_of(self, state: Numbers) -> Numbers:
        return state[self.first : self.first + self.size]


# From a block and the values of all nodes to new values of the block's nodes.
Kernel: TypeAlias = Callable[[AdjacencyBlock, Numbers], Numbers]


def build_block(owners: Numbers, neighbours: Numbers, first: int, size: int) -> AdjacencyBlock:
    """Return pairs of a node and its neighbour as a block of the nodes `first` to `first + size`."""
    near = owners - first
    starts = np.zeros(size + 1, np.int64)
    np.cumsum(np.bincount(near, minlength=size), out=starts[1:])
    return AdjacencyBlock(first, starts, neighbours[np.argsort(near, kind="stable")])


def sum_neighbours(block: AdjacencyBlock, state: Numbers) -> Numbers:
    sums = np.zeros(block.size, state.dtype)
    filled = block.filled
    if len(filled):
        sums[filled] = np.add.reduceat(state[block.neighbours], block.starts[filled])
    return sums


def propagate_min_labels(block: AdjacencyBlock, state: Numbers) -> Numbers:
    """Return the lowest label of each node and its neighbours."""
    labels = block.slice_of(state).copy()
    filled = block.filled
    if len(filled):
        neighbour_minimum = np.minimum.reduceat(state[block.neighbours], block.starts[filled])
        labels[filled] = np.minimum(labels[filled], neighbour_minimum)
    return labels


def vote_labels(block: AdjacencyBlock, state: Numbers) -> Numbers:
    """Return the most frequent label among a node and its neighbours, ties to the lowest."""
    if block.size == 0:
        return block.slice_of(state).copy()
    width = int(state.max()) + 1
    nodes = np.arange(block.size, dtype=np.int64)
    # A node votes for its own label too; otherwise two isolated neighbours would swap labels forever.
    votes = np.concatenate([
        np.repeat(nodes, np.diff(block.starts)) * width + state[block.neighbours],
        nodes * width + block.slice_of(state),
    ])  # fmt: skip
    pairs, counts = np.unique(votes, return_counts=True)
    voters, labels = np.divmod(pairs, width)
    # By voter, then most votes, then lowest label: the first of each voter wins.
    order = np.lexsort((labels, -counts, voters))
    ordered = voters[order]
    firsts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    return labels[order[firsts]].astype(state.dtype)


class BlockGraph(Protocol):
    """A graph in adjacency blocks, in memory or distributed, over which a kernel can run."""

    @property
    def size(self) -> int: ...

    def degrees(self) -> tuple[Numbers, Numbers]: ...  # out and in, of every node

    def sweep(self, kernel: Kernel, direction: Direction, state: Numbers) -> Numbers:
        """Return new values of all nodes; the direction decides which nodes are neighbours."""
        ...


@dataclass
class LocalGraph:
    """A graph in the memory of this process: the ends of all edges, as numbers below `size`."""

    size: int
    source: Numbers
    target: Numbers

    def degrees(self) -> tuple[Numbers, Numbers]:
        return np.bincount(self.source, minlength=self.size), np.bincount(self.target, minlength=self.size)

    def sweep(self, kernel: Kernel, direction: Direction, state: Numbers) -> Numbers:
        return kernel(self._incoming if direction is Direction.IN else self._around, state)

    @cached_property
    def _incoming(self) -> AdjacencyBlock:
        return build_block(self.target, self.source, 0, self.size)

    @cached_property
    def _around(self) -> AdjacencyBlock:
        return build_block(*symmetrize_edges(self.source, self.target), 0, self.size)


def symmetrize_edges(source: Numbers, target: Numbers) -> tuple[Numbers, Numbers]:
    """Return edges in both directions; a self-loop stays one edge."""
    not_loops = source != target
    return np.concatenate([source, target[not_loops]]), np.concatenate([target, source[not_loops]])


def degrees(graph: BlockGraph) -> dict[str, Numbers]:
    """Return total, in- and out-degree of every node; a self-loop counts twice."""
    out_degrees, in_degrees = graph.degrees()
    return {"degree": out_degrees + in_degrees, "in_degree": in_degrees, "out_degree": out_degrees}


def components(graph: BlockGraph) -> Numbers:
    """Return the number of each node's connected component, ignoring the direction of edges; 0 is the largest."""
    labels = np.arange(graph.size, dtype=np.int64)
    for _ in range(ALGO_ROUNDS_MAX):
        minimums = graph.sweep(propagate_min_labels, Direction.BOTH, labels)
        if np.array_equal(minimums, labels):
            break
        # Hook: pass the smaller label on to the current representative (union-find style).
        hooked = minimums.copy()
        np.minimum.at(hooked, labels, minimums)
        labels = _compress_paths(hooked)
    return renumber_by_size(labels)


def _compress_paths(labels: Numbers) -> Numbers:
    """Pointer jumping: replace each label by its label until stable; labels only decrease, so it terminates."""
    while True:
        further = labels[labels]
        if np.array_equal(further, labels):
            return labels
        labels = further


def pagerank(
    graph: BlockGraph, *, damping: float = 0.85, iterations: int = 100, tolerance: float = 1e-8
) -> npt.NDArray[np.float64]:
    """Return the PageRank of every node; all of them add up to 1. Parallel edges count as often as they are there.

    Ends when an iteration changes the ranks by less than the tolerance in total, or at the maximum number of
    iterations.
    """
    _check("damping", damping, 0 <= damping < 1, "at least 0 and below 1")
    _check_iterations(iterations)
    size = graph.size
    if size == 0:
        return np.zeros(0)
    out_degrees, _ = graph.degrees()
    is_dangling = out_degrees == 0
    ranks = np.full(size, 1 / size)
    for _ in range(iterations):
        shares = np.divide(ranks, out_degrees, out=np.zeros(size), where=~is_dangling)
        # Dangling nodes spread their rank over all nodes.
        dangling_rank = float(ranks[is_dangling].sum())
        incoming = graph.sweep(sum_neighbours, Direction.IN, shares)
        new_ranks = damping * (incoming + dangling_rank / size) + (1 - damping) / size
        change = float(np.abs(new_ranks - ranks).sum())
        ranks = new_ranks
        if change < tolerance:
            break
    return ranks


def label_propagation(graph: BlockGraph, *, iterations: int = 20) -> Numbers:
    """Return the number of each node's community; 0 is the largest.

    In each round all nodes at once take the label that is most frequent around them, the lowest of equally many.
    """
    _check_iterations(iterations)
    labels = np.arange(graph.size, dtype=np.int64)
    for _ in range(iterations):
        new_labels = graph.sweep(vote_labels, Direction.BOTH, labels)
        if np.array_equal(new_labels, labels):
            break
        labels = new_labels
    return renumber_by_size(labels)


def renumber_by_size(labels: Numbers) -> Numbers:
    """Return labels as numbers from 0 on, by how many have them, then by the label.

    >>> renumber_by_size(np.array([7, 3, 7, 9])).tolist()
    [0, 1, 0, 2]
    """
    distinct, label_of_node, counts = np.unique(labels, return_inverse=True, return_counts=True)
    numbers = np.empty(len(distinct), np.int64)
    numbers[np.lexsort((distinct, -counts))] = np.arange(len(distinct))
    return numbers[label_of_node]


def _check_iterations(iterations: int) -> None:
    _check("iterations", iterations, 1 <= iterations <= ALGO_ROUNDS_MAX, f"between 1 and {ALGO_ROUNDS_MAX}")


def _check(name: str, value: float, is_right: bool, allowed: str) -> None:
    if not is_right:
        raise UsageError(f"`{name}` is {value}; it must be {allowed}", option=name, value=value)


@dataclass(frozen=True, slots=True)
class NodeNumbering:
    """The edge types that are looked at, and the node types at their ends, with how many nodes each has."""

    edges: tuple[EdgeType, ...]
    types: tuple[str, ...]
    counts: tuple[int, ...]

    @property
    def size(self) -> int:
        return sum(self.counts)

    def first(self, node_type: str) -> int:
        """Return the number of the first node of a type."""
        return sum(self.counts[: self.types.index(node_type)])

    def of(self, node_type: str, values: Numbers) -> Numbers:
        """Return the values of the nodes of a type."""
        first = self.first(node_type)
        return values[first : first + self.counts[self.types.index(node_type)]]


def select_nodes(view: View, edges: Sequence[str] | None) -> NodeNumbering:
    """Return the nodes of the endpoint types of edge types; by default of all edge types."""
    edge_types = _resolve_edge_types(view.catalog, edges)
    types = sorted({end for edge in edge_types for end in edge.ends.values()})
    pins = view.snapshot.state.pins
    return NodeNumbering(edge_types, tuple(types), tuple(pins[TypeKey.of("node", name)].row_count for name in types))


def _resolve_edge_types(catalog: Catalog, names: Sequence[str] | None) -> tuple[EdgeType, ...]:
    if not catalog.edges:
        raise UsageError("the schema has no edge types, so there is nothing to measure")
    if names is None:
        return tuple(catalog.edges[name] for name in sorted(catalog.edges))
    if isinstance(names, str):
        names = [names]
    resolved: dict[str, EdgeType] = {}
    for name in names:
        edge = catalog.edge_by_word(name)
        if edge is None:
            hint = did_you_mean(name, catalog.edges) or f"the schema has {', '.join(sorted(catalog.edges)[:8])}"
            raise UsageError(f"there is no edge type `{name}`; {hint}", type=name)
        resolved[edge.name] = edge
    if not resolved:
        raise UsageError("name at least one edge type, or leave `edges` out for all of them")
    return tuple(resolved[name] for name in sorted(resolved))


def read_edges(view: View, nodes: NodeNumbering) -> LocalGraph:
    """Read all edges into memory, their ends as numbers."""
    ids = {name: one_array(view.dataset(TypeKey.of("node", name)).read(["id"]).column("id")) for name in nodes.types}
    parts: list[tuple[Numbers, Numbers]] = []
    for edge in nodes.edges:
        table = view.dataset(edge.table_key).read(["src", "dst"])
        endpoints = []
        for column, type_ in edge.ends.items():
            positions = pc.index_in(one_array(table.column(column)), value_set=ids[type_]).fill_null(-1)
            indices = positions.to_numpy(zero_copy_only=False).astype(np.int64)
            endpoints.append(np.where(indices < 0, -1, indices + nodes.first(type_)))
        # Writes check endpoints; skip an edge whose endpoint is missing nevertheless.
        joined = (endpoints[0] >= 0) & (endpoints[1] >= 0)
        parts.append((endpoints[0][joined], endpoints[1][joined]))
    small = np.int32 if nodes.size < 2**31 else np.int64
    source, target = (
        np.concatenate([np.empty(0, np.int64), *(part[end] for part in parts)]).astype(small) for end in (0, 1)
    )
    return LocalGraph(nodes.size, source, target)


_ALL_ROWS = ColumnTest("id", pa.string(), None, True)


@dataclass(frozen=True)
class NodeValues:
    """The computed values of every node of a view; the first column can be written back."""

    view: View
    nodes: NodeNumbering
    columns: Mapping[str, Numbers]

    def to_arrow(self) -> pa.Table:
        """Return one row per node: its type, its id and what was measured."""
        parts = []
        for node_type in self.nodes.types:
            ids = self.view.dataset(TypeKey.of("node", node_type)).read(["id"]).column("id")
            columns: dict[str, Any] = {"type": pa.repeat(pa.scalar(node_type), len(ids)), "id": ids}
            columns |= {name: self.nodes.of(node_type, column) for name, column in self.columns.items()}
            parts.append(pa.table(columns))
        return pa.concat_tables(parts).combine_chunks()


def write_values(session: GraphSession, values: NodeValues, property_name: str, branch: str) -> Commit | None:
    """Write the first column to a property of all types that have it; None when every node has its value already.

    The nodes must still be as they were measured, else it is a conflict.
    """
    types = check_writable(session, values.view, values.nodes, property_name, branch)
    measured = values.view.snapshot.state.pins
    schema = SchemaIs(session.full_view(branch).catalog.ir_hash)

    def prepare(snapshot: Snapshot) -> Plan | None:
        view = session.full_view_of(snapshot)
        requirements: list[Requirement] = [schema]
        requirements += [PinIs(type_.table_key, measured[type_.table_key].ref.version) for type_ in types]
        for requirement in requirements:
            requirement.check(snapshot)
        committed = CommittedRows(view)
        deltas = {type_.table_key: _changed_rows(type_, values, property_name, committed) for type_ in types}
        deltas = {key: delta for key, delta in deltas.items() if delta.rows.num_rows}
        if not deltas:
            return None
        validate(Changes(view.catalog, deltas), committed).raise_if_any()
        effects = Stager().stage(view, deltas, committed)
        reads = frozenset(committed.types_read | deltas.keys())
        return Plan("mutation", effects, (), tuple(requirements), session.actor, reads=reads)

    receipt = session.kernel.commit(branch, prepare, CommitPolicy.LONG_CHANGE)
    return receipt.public_commit if receipt is not None else None


def check_writable(
    session: GraphSession, view: View, nodes: NodeNumbering, property_name: str, branch: str
) -> list[NodeType]:
    """Return the types that a measure of a view is written to; raises if it cannot be written."""
    session.require("change", on_branch(branch))
    session.kernel.reject_read_only()
    types = _types_with_property([view.catalog.nodes[name] for name in nodes.types], property_name)
    write_permissions(session, view.snapshot).check(type_.name for type_ in types)
    return types


def _types_with_property(all_types: Sequence[NodeType], name: str) -> list[NodeType]:
    types = [type_ for type_ in all_types if name in type_.properties]
    if not types:
        names = sorted({names for type_ in all_types for names in type_.properties})
        hint = did_you_mean(name, names) or f"add it to {' or '.join(f'`{type_.name}`' for type_ in all_types[:4])}"
        raise UsageError(f"no node type that was measured has a property `{name}`; {hint}", property=name)
    for type_ in types:
        property_type = type_.properties[name].type
        if property_type.scalar not in NUMBERS or property_type.is_list or name in type_.key:
            raise UsageError(
                f"`{type_.name}.{name}` cannot store the measure; it must be a number and not part of a key",
                property=f"{type_.name}.{name}",
            )
    return types


def _changed_rows(type_: NodeType, values: NodeValues, name: str, committed: CommittedRows) -> Delta:
    """Return the rows of a type whose value differs, with the new one."""
    measured = next(iter(values.columns.values()))
    target_type = arrow_type(type_.properties[name].type)
    try:
        new_values = pa.array(values.nodes.of(type_.name, measured)).cast(
            target_type, safe=not pa.types.is_floating(target_type)
        )
    except pa.ArrowInvalid as error:
        raise UsageError(f"`{type_.name}.{name}` is too narrow for the measure: {error}", property=name) from None
    schema, changed = arrow_schema(type_), []
    ids = one_array(values.view.dataset(type_.table_key).read(["id"]).column("id"))
    for rows in committed.rows(type_, _ALL_ROWS):
        row_values = new_values.take(pc.index_in(one_array(rows.column("id")), value_set=ids))
        stored = one_array(rows.column(name))
        differs = pc.fill_null(pc.not_equal(stored, row_values), True).to_numpy(zero_copy_only=False)
        rows = rows.set_column(rows.schema.get_field_index(name), schema.field(name), row_values)
        changed.append(rows.filter(pa.array(np.asarray(differs))))
    table = pa.concat_tables(changed).combine_chunks() if changed else schema.empty_table()
    kept = dict.fromkeys(blob_properties(type_), one_array(table.column("id")))
    return Delta(type_, table, Intent.UPSERT, kept=kept)
