"""Faults that the crash suite has found, each in its smallest form."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from omnigraph.ids import OperationId, new_ulid
from omnigraph.manifest.intent import Intent, declared
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.owner import this_process
from omnigraph.manifest.sweep import sweep
from omnigraph.store.store import LostRace
from tests.kernel.graphs import PERSON, create, ids_of, insert, open_graph


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
