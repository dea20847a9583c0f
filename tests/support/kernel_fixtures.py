"""Small graphs for kernel tests, written straight through `store` and `commit`, and the invariants they must keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from omnigraph.ids import new_ulid
from omnigraph.lang.catalog import TypeKey
from omnigraph.lang.diagnostic import Source
from omnigraph.lang.schema import compile_schema
from omnigraph.manifest.create import init
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, Snapshot
from omnigraph.manifest.plan import CommitPolicy, Effect, Plan, Receipt
from omnigraph.store.objects.backend import NO_METER, Meter
from omnigraph.store.objects.uri import Location
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.store import Store
from omnigraph.store.write.transaction import append

SCHEMA = """
node Person { name: String @key  age: I32? }
node City { name: String @key }
edge Knows: Person -> Person
"""
PERSON, CITY, KNOWS = TypeKey("node:Person"), TypeKey("node:City"), TypeKey("edge:Knows")


def wide_schema(types: int) -> str:
    """Return a schema with this many node types."""
    return "\n".join(f"node T{number} {{ name: String @key }}" for number in range(types))


def create(root: str, schema: str = SCHEMA, meter: Meter = NO_METER) -> Kernel:
    """Create a graph and open it."""
    store = Store(Location.parse(root), meter)
    init(store, compile_schema(Source("schema.pg", schema), domain=new_ulid()))
    return Kernel(store)


def open_graph(root: str, meter: Meter = NO_METER, *, read_only: bool = False) -> Kernel:
    return Kernel(Store(Location.parse(root), meter), read_only=read_only)


def rows_of(dataset: Dataset, ids: Sequence[str]) -> pa.Table:
    """Return rows with these ids for any type: endpoints point at the id itself, other columns are null or the id."""
    filled = {"id", "src", "dst", "name"}
    columns = [pa.array(list(ids) if one.name in filled else [None] * len(ids), one.type) for one in dataset.schema]
    return pa.Table.from_arrays(columns, schema=dataset.schema)


def insert(kernel: Kernel, rows: Mapping[str, Sequence[str]], branch: str = MAIN, actor: str | None = None) -> Receipt:
    """Append rows to one or more types in one commit."""

    def prepare(snapshot: Snapshot) -> Plan:
        effects = []
        for key, ids in rows.items():
            table_key = TypeKey(key)
            dataset = kernel.writable(snapshot, table_key)
            effects.append(Effect(table_key, dataset, (append(dataset, rows_of(dataset, ids)),)))
        return Plan("insert", tuple(effects), actor=actor)

    receipt = kernel.commit(branch, prepare, CommitPolicy.INSERT)
    assert receipt is not None
    return receipt


def ids_of(kernel: Kernel, table_key: str, branch: str = MAIN) -> list[str]:
    """Return the ids of a type, sorted."""
    dataset = kernel.dataset(kernel.snapshot(branch), TypeKey(table_key))
    return sorted(str(one) for one in dataset.read(["id"])["id"].to_pylist())


def check_invariants(kernel: Kernel) -> None:
    """Raise AssertionError unless every branch reads whole: pins open, counts agree, ids unique, history whole."""
    main = kernel.snapshot(MAIN)
    for branch in (MAIN, *main.state.branches):
        snapshot = kernel.snapshot(branch)
        for table_key, pin in snapshot.state.pins.items():
            dataset = kernel.dataset(snapshot, table_key)
            ids = dataset.read(["id"])["id"].to_pylist()
            assert len(ids) == pin.row_count, f"{branch} {table_key}: {len(ids)} rows, {pin.row_count} recorded"
            assert len(set(ids)) == len(ids), f"{branch} {table_key}: duplicate ids"
            dataset.lance.validate()  # type: ignore[no-untyped-call]  # Lance leaves it unannotated
        history = list(kernel.history(branch))
        assert history[0].commit_id == snapshot.head
        known = {one.commit_id: one for one in history}
        assert len(known) == len(history), "a commit comes twice"
        parents = {parent for one in history for parent in (one.parent, one.merged_parent) if parent is not None}
        assert parents <= known.keys(), "history has gaps"
        assert known.keys() - parents == {snapshot.head}, "a commit that nothing leads to"
        assert [one for one in history if one.parent is None] == [history[-1]], "history has not one beginning"
