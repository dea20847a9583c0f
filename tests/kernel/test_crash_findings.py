"""Faults that the crash suite has found, each in its smallest form."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from omnigraph.ids import OperationId, new_ulid
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.source import Source
from omnigraph.manifest.init import init
from omnigraph.manifest.intent import Intent, declared
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.owner import this_process
from omnigraph.manifest.sweep import sweep
from omnigraph.store.store import LostRace, Store
from omnigraph.store.uri import Location
from tests.kernel.graphs import PERSON, SCHEMA, create, ids_of, insert, open_graph


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
