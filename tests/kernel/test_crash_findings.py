"""Faults that the crash suite has found, each in its smallest form."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import orjson
import pyarrow as pa
import pytest

from omnigraph.errors import GraphError
from omnigraph.ids import OperationId, new_ulid
from omnigraph.lang.diagnostic import Source
from omnigraph.lang.schema import compile_schema
from omnigraph.manifest import branches
from omnigraph.manifest.create import init
from omnigraph.manifest.intents import Intent, declared, this_process
from omnigraph.manifest.kernel import Kernel
from omnigraph.store import append_log
from omnigraph.store.objects import durability
from omnigraph.store.objects.uri import Location
from omnigraph.store.store import LostRace, Store
from tests.support.kernel_fixtures import PERSON, SCHEMA, create, ids_of, insert, open_graph
from tests.support.orphan_sweep import sweep

pytestmark = pytest.mark.slow


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "graph.omni")


def leave_dead_intent(kernel: Kernel, *paths: str) -> None:
    dead = replace(this_process(), started="0")
    intent = Intent(OperationId(new_ulid()), "load", None, "main", None, 1, dead, 0, 0, paths)
    kernel.store.objects.write(intent.object_path, intent.to_bytes())


def test_create_over_an_existing_dataset_is_a_lost_race(root: str) -> None:
    store = create(root).store
    schema = store.open_latest("__manifest", None).schema
    store.create("nodes/new", schema)
    with pytest.raises(LostRace):
        store.create("nodes/new", schema)


def test_sweep_keeps_what_was_published_where_a_dead_intent_had_staged(root: str) -> None:
    kernel = create(root)
    insert(kernel, {PERSON: ["a"]})
    leave_dead_intent(kernel, f"{kernel.snapshot().state.pins[PERSON].path}/")
    kernel.close()
    assert sweep(open_graph(root), 0.0).rolled_back == 1
    assert ids_of(open_graph(root), PERSON) == ["a"]


def test_sweep_keeps_what_live_work_stages_where_a_dead_intent_had_staged(root: str) -> None:
    kernel = create(root)
    schema = kernel.dataset(kernel.snapshot(), PERSON).schema
    leave_dead_intent(kernel, "nodes/new/")
    with declared(kernel.store, "load", kernel.snapshot()) as held:
        held.staging("nodes/new/")
        kernel.store.create("nodes/new", schema)
        assert sweep(open_graph(root), 0.0).rolled_back == 1
        assert kernel.store.open_latest("nodes/new", None).count() == 0


def test_sweep_removes_what_only_a_dead_intent_had_staged(root: str) -> None:
    kernel = create(root)
    kernel.store.create("nodes/new", kernel.dataset(kernel.snapshot(), PERSON).schema)
    leave_dead_intent(kernel, "nodes/new/")
    assert sweep(open_graph(root), 1_000_000.0).files_removed > 0
    assert kernel.store.objects.list("nodes/new") == []


def leave_claim(store: Store, number: int) -> None:
    dead = replace(this_process(), started="0")
    body = {"operation_id": new_ulid(), "owner": dead.to_json(), "started_at": 0}
    store.objects.write(f"__init_claim.{number:06d}.json", orjson.dumps(body))


def init_at(store: Store) -> None:
    init(store, compile_schema(Source("schema.pg", SCHEMA), domain=new_ulid()))


def test_init_follows_a_dead_one_that_had_written_its_schema(root: str) -> None:
    store = Store(Location.parse(root))
    leave_claim(store, 1)
    store.objects.write("_schema.pg", b"node Half { }")
    init_at(store)
    assert store.objects.read("_schema.pg") == SCHEMA.encode()
    assert ids_of(open_graph(root), PERSON) == []


def test_init_follows_the_last_claim_when_older_ones_are_gone(root: str) -> None:
    store = Store(Location.parse(root))
    leave_claim(store, 2)
    init_at(store)
    assert ids_of(open_graph(root), PERSON) == []


def test_init_refuses_an_address_that_holds_somebody_elses_nodes(root: str) -> None:
    store = Store(Location.parse(root))
    store.objects.write("nodes/mine.txt", b"precious")
    with pytest.raises(GraphError) as caught:
        init_at(store)
    assert caught.value.code == "graph.already_initialized"
    assert [info.path for info in store.objects.list("")] == ["nodes/mine.txt"]


def test_sweep_removes_a_claim_that_outlived_its_init(root: str) -> None:
    leave_claim(create(root).store, 1)
    assert sweep(open_graph(root), 0.0).files_removed == 1
    assert not list(Path(root).glob("__init_claim*"))


@pytest.mark.parametrize("damage", ["unlisted", "without bytes"])
def test_first_write_on_a_branch_passes_by_a_fork_that_was_never_finished(root: str, damage: str) -> None:
    kernel = create(root)
    insert(kernel, {PERSON: ["a"]})
    branches.create_branch(kernel, "x", kernel.snapshot())
    begun = kernel.writable(kernel.snapshot("x"), PERSON).ref
    if damage == "unlisted":
        kernel.store.objects.delete(f"{begun.path}/_refs/branches/{begun.branch}.json")
    else:
        kernel.store.objects.write(begun.manifest_path, b"")
    other = open_graph(root)
    insert(other, {PERSON: ["b"]}, "x")
    fork = other.snapshot("x").state.pins[PERSON].fork
    assert fork != begun.branch
    assert other.store.objects.exists(f"{begun.path}/_refs/branches/{fork}.json")
    sweep(other, 0.0)
    assert other.store.objects.list(begun.directory) == []
    assert ids_of(open_graph(root), PERSON, "x") == ["a", "b"]


@pytest.mark.usefixtures("power_durability")
def test_log_syncs_its_rows_before_a_version_names_them(root: str) -> None:
    store = create(root).store
    rows = pa.table({"a": ["x"]})
    moments: list[int] = []

    def versions_at_sync(path: str) -> None:
        if path.endswith("/__log/data"):
            moments.append(len(list(Path(root, "__log").glob("_versions/*.manifest"))))

    with durability.replaced(versions_at_sync):
        append_log.append(store, "__log", rows)
        append_log.append(store, "__log", rows)
    # Each append syncs its rows before its own version is there.
    assert moments == [0, 1]
