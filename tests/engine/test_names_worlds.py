"""Random histories of renames, drops and re-creations, each past commit held against a model of the rule."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.engine import past_schemas as names_module
from omnigraph.engine import session as session_module
from omnigraph.engine.past_schemas import THEN
from omnigraph.engine.session import GraphSession
from omnigraph.lang.catalog import Catalog, Type
from omnigraph.manifest.model import Snapshot
from tests.engine.names_model import World

STEPS = 14


def played(path: Path, seed: int) -> str | None:
    """Play a world and return what it shows wrong, or None."""
    with og.init(path / f"{seed}.omni", schema=World.first_schema()) as graph:
        world = World(graph, seed)
        for _ in range(STEPS):
            world.step()
        return world.mismatch()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_past_read_shows_what_identities_say(tmp_path: Path, seed: int) -> None:
    assert played(tmp_path, seed) is None


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3, 120))
def test_past_read_shows_what_identities_say_in_many_worlds(tmp_path: Path, seed: int) -> None:
    assert played(tmp_path, seed) is None


def _is_caught(path: Path) -> bool:
    for seed in range(6):
        try:
            if played(path, seed) is not None:
                return True
        except Exception:  # noqa: BLE001 - a mutant may fail in any way
            return True
    return False


@pytest.mark.slow
def test_world_catches_names_of_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    past_view = GraphSession.past_view
    monkeypatch.setattr(
        GraphSession,
        "past_view",
        lambda self, snapshot, today, names, *more: past_view(self, snapshot, today, THEN, *more),
    )
    assert _is_caught(tmp_path)


@pytest.mark.slow
def test_world_catches_types_matched_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = names_module.read_with

    def by_name(snapshot: Snapshot, then: Catalog, today: Snapshot, now: Catalog) -> Snapshot:
        stored = snapshot.state.pins
        pins = {
            key: replace(pin, identity=stored[key].identity if key in stored else pin.identity)
            for key, pin in today.state.pins.items()
        }
        return real(snapshot, then, replace(today, state=replace(today.state, pins=pins)), now)

    monkeypatch.setattr(session_module, "read_with", by_name)
    assert _is_caught(tmp_path)


@pytest.mark.slow
def test_world_catches_properties_matched_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from omnigraph.engine import past_schemas

    real = past_schemas.compare_columns

    def by_name(old: Type, new: Type) -> past_schemas.Columns:
        ids = {one.name: one.property_id for one in new.properties.values()}
        renumbered = {
            name: replace(one, property_id=ids.get(name, -one.property_id)) for name, one in old.properties.items()
        }
        return real(replace(old, properties=renumbered), new)

    monkeypatch.setattr(past_schemas, "compare_columns", by_name)
    assert _is_caught(tmp_path)


@pytest.mark.slow
def test_world_catches_hard_drops_that_stay_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "without_purged", lambda snapshot, catalog, purges: snapshot)
    assert _is_caught(tmp_path)
