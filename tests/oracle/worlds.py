"""Small graphs that hold every type, null and shape of edges, as plain values and as a real graph on disk."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import omnigraph as og
from omnigraph.graph import session_of
from omnigraph.lang.catalog import Catalog, EdgeType, NodeType, PropertyType, Scalar, TypeKey
from omnigraph.manifest.model import Snapshot
from omnigraph.manifest.plan import CommitPolicy, Effect, Plan
from omnigraph.store.write.transaction import append
from tests.oracle.model import Edge, Graph, Node
from tests.oracle.truth import narrowed

# Names that are also words of the language, ids that several types share, and one edge called like an operator.
SCHEMA = """
interface Named { name: String }
node Person implements Named {
  name: String @key
  age: I32?
  big: I64?
  few: U32?
  huge: U64?
  score: F64?
  ratio: F32?
  nick: String?
  bio: String? @index
  kind: enum(red, green, blue)?
  active: Bool?
  born: Date?
  seen: DateTime?
  pause: Duration?
  tags: [String]?
  nums: [I32]?
  marks: [F32]?
  vec: Vector(3)?
}
node City implements Named {
  name: String @key
  country: String?
  limit: I64?
  match: Bool
}
node Lone implements Named { name: String @key  order: I32 }
edge Knows: Person -> Person { weight: F64?  since: Date?  note: String?  toll: U32? }
edge Likes: Person -> Person { weight: F64?  rent: I32?  toll: U32? }
edge LivesIn: Person -> City { rent: I32?  toll: U32? }
edge Contains: City -> City
edge Visits: City -> Person { at: DateTime?  stay: Duration? }
"""

# Neighbours at the edge of what floats and integers can tell apart.
EXACT = 2**53
POOLS: Mapping[Scalar, Sequence[Any]] = {
    Scalar.STRING: ("", "a", "ab", "b", "Z", "é", "zebra", "north", "😀", "a\nb", 'q"t'),
    Scalar.BOOL: (True, False),
    Scalar.I32: (-(2**31), -2, 0, 1, 2, 3, 2**31 - 1),
    Scalar.I64: (-(2**63), -1, 0, 1, 2, EXACT, EXACT + 1, 2**63 - 1),
    Scalar.U32: (0, 1, 2, 2**32 - 1),
    Scalar.U64: (0, 1, 2, EXACT + 1, 2**63 - 1, 2**63, 2**64 - 1),
    Scalar.F64: (-1.5, 0.0, 0.1, 0.5, 1.0, 2.0, 2.5, float(EXACT), 1e300),
    Scalar.F32: tuple(narrowed(one) for one in (-1.5, 0.0, 0.1, 0.5, 1.0, 2.0, 16777216.0)),
    Scalar.DATE: (dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2020, 2, 29), dt.date(2024, 1, 31)),
    Scalar.DATETIME: tuple(
        dt.datetime.fromisoformat(one)
        for one in ("1969-12-31T23:59:59.999Z", "2020-02-29T12:00:00Z", "2024-01-31T00:00:00.001Z")
    ),
    Scalar.DURATION: tuple(
        dt.timedelta(milliseconds=one) for one in (-90_061_001, -1, 0, 1, 1_500, 5_400_000, 86_400_000, 2_592_000_500)
    ),
}
TEXTS = ("north star", "North", "the STAR", "wind, sea and star", "sea-wind", "", "of the")
WORDS = ("north", "star", "wind", "sea", "the", "STAR", "nrth", "staar", "absent", "north sea", "")
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
IDS = ("x", "y", "z", "a b", "é", "1", "10", "2", "w", "v")


@dataclass(frozen=True)
class World:
    """One graph twice: as the evaluator reads it, and on disk."""

    data: Graph
    graph: og.Graph
    catalog: Catalog


def create(path: Path, seed: int) -> World:
    """Write the graph of a seed to disk."""
    graph = og.init(path / f"world{seed}.omni", SCHEMA)
    view = session_of(graph).view()
    data = generate(view.catalog, random.Random(seed))
    _write(graph, view.catalog, data, random.Random(seed))
    if seed % 2:
        graph.maintenance.ensure_indices()
    return World(data, graph, view.catalog)


def generate(catalog: Catalog, chance: random.Random) -> Graph:
    """Return random data: sparse or dense, with nulls, parallel edges, loops and cycles."""
    nullness = chance.choice((0.1, 0.35, 0.6))
    nodes = {
        name: {id_: Node(name, id_, _values(node, id_, nullness, chance)) for id_ in _ids(chance)}
        for name, node in catalog.nodes.items()
    }
    edges = {}
    for name, edge in catalog.edges.items():
        ends = [(s, t) for s in nodes[edge.source] for t in nodes[edge.target]]
        density = chance.choice((0.0, 0.8, 1.2, 1.6, 2.5))
        count = int(density * len(nodes[edge.source])) if ends else 0
        picked = chance.choices(ends, k=count) if ends else []
        # Some parallel edges and loops for certain, since chance would rarely make them.
        picked += picked[: count // 4]
        if edge.source == edge.target and count:
            picked += [(one, one) for one in chance.sample(sorted(nodes[edge.source]), 1)]
        edges[name] = tuple(
            Edge(name, f"e{number:02}", *ends, _values(edge, "", nullness, chance))
            for number, ends in enumerate(chance.sample(picked, len(picked)))
        )
    return Graph(nodes, edges)


def _ids(chance: random.Random) -> list[str]:
    return sorted(chance.sample(IDS, *chance.choices((0, 3, 5, 7), (1, 4, 6, 6))))


def _values(owner: NodeType | EdgeType, id_: str, nullness: float, chance: random.Random) -> dict[str, object]:
    key = owner.key if isinstance(owner, NodeType) else ()
    return {
        name: id_ if name in key else _value(name, one.type, nullness, chance) for name, one in owner.properties.items()
    }


def _value(name: str, type_: PropertyType, nullness: float, chance: random.Random) -> object:
    if type_.nullable and chance.random() < nullness:
        return None
    if name == "bio":
        return chance.choice(TEXTS)
    if type_.enum_values is not None:
        return chance.choice(type_.enum_values)
    if type_.dimension is not None:
        return tuple(narrowed(chance.choice((-1.0, 0.0, 0.5, 1.0, 2.0, 3.3))) for _ in range(type_.dimension))
    pool = POOLS[type_.scalar]
    if type_.is_list:
        return tuple(chance.choice(pool) for _ in range(chance.randrange(4)))
    return chance.choice(pool)


def _write(graph: og.Graph, catalog: Catalog, data: Graph, chance: random.Random) -> None:
    """Write the data in two commits and in no particular order, so that neither files nor rows are in id order."""
    columns: dict[TypeKey, tuple[int, Callable[[str], list[Any]]]] = {}
    for name, nodes in data.nodes.items():
        shuffled = chance.sample(list(nodes.values()), len(nodes))
        columns[catalog.nodes[name].table_key] = len(nodes), _node_column(shuffled)
    for name, edges in data.edges.items():
        columns[catalog.edges[name].table_key] = len(edges), _edge_column(chance.sample(edges, len(edges)))
    for half in (0, 1):
        _commit(graph, {key: (count, half, column) for key, (count, column) in columns.items()})


def _commit(graph: og.Graph, columns: Mapping[TypeKey, tuple[int, int, Callable[[str], list[Any]]]]) -> None:
    kernel = session_of(graph).kernel

    def prepare(snapshot: Snapshot) -> Plan:
        effects = []
        for table_key, (count, half, column) in columns.items():
            dataset = kernel.writable(snapshot, table_key)
            arrays = [_array(column(one.name), one.type) for one in dataset.schema]
            table = pa.Table.from_arrays(arrays, schema=dataset.schema)
            table = table.slice(0, count // 2) if half == 0 else table.slice(count // 2)
            if table.num_rows:
                effects.append(Effect(table_key, dataset, (append(dataset, table),)))
        return Plan("load", tuple(effects))

    kernel.commit("main", prepare, CommitPolicy.INSERT)


def _node_column(nodes: list[Node]) -> Callable[[str], list[Any]]:
    return lambda name: [node.id if name == "id" else _stored(node.values[name]) for node in nodes]


def _edge_column(edges: Sequence[Edge]) -> Callable[[str], list[Any]]:
    ends = {"id": lambda edge: edge.id, "src": lambda edge: edge.source, "dst": lambda edge: edge.target}
    return lambda name: [ends[name](edge) if name in ends else _stored(edge.values[name]) for edge in edges]


def _stored(value: object) -> object:
    if isinstance(value, dt.datetime):
        return (value - EPOCH) // dt.timedelta(milliseconds=1)
    return list(value) if isinstance(value, tuple) else value


def _array(values: list[Any], type_: pa.DataType) -> pa.Array[Any]:
    # Arrow takes the day alone of an instant, so instants go in as milliseconds.
    return pa.array(values, pa.int64()).cast(type_) if pa.types.is_date64(type_) else pa.array(values, type_)
