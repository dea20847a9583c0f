"""Other tools that write to the datasets of a graph by their path, and `repair`, which settles it.

Written from "When another tool writes" in docs/operations.md. It happens to a clone, so the history goes on without it.
"""

from __future__ import annotations

import shutil
from datetime import timedelta
from random import Random
from typing import Any

import lance

import omnigraph as og
from omnigraph.errors import OmniGraphError
from omnigraph.graph import Graph
from omnigraph.lang.catalog import TypeKey
from tests.world.model import Shown
from tests.world.schema_model import Type
from tests.world.steps import Broken
from tests.world.world import World, read_state

KINDS = ("compact", "delete", "compact and remove", "delete and remove", "delete and remove")
# How repair is asked to settle it.
WAYS: tuple[dict[str, bool], ...] = ({}, {"force": True}, {"force": True}, {"discard": True})


def check_foreign(world: World, random: Random) -> None:
    """Let another tool rewrite a dataset of a clone, delete from it, or remove its versions, and repair it."""
    model, target = world.model, world.scratch / "foreign.omni"
    shutil.rmtree(target, ignore_errors=True)
    world.graph.clone(str(target))
    try:
        with og.open(target) as graph:
            leave_main(graph)
        head = model.head("main")
        shown = model.show(head.state, head.schema, head.schema)
        _Foreign(str(target), random, list(head.schema.values()), shown).check()
    finally:
        shutil.rmtree(target)


def leave_main(graph: Graph) -> None:
    """Delete all tags and other branches, so that one branch alone has the datasets."""
    for tag in graph.tags.list():
        graph.tags.delete(tag.name)
    while len(names := [one for one in graph.branches.list() if one != "main"]):
        for name in names:
            try:
                graph.branches.delete(name)
            except OmniGraphError as error:
                if error.code != "branch.in_use":
                    raise


class _Foreign:
    """One act of another tool, and what becomes of it."""

    def __init__(self, uri: str, random: Random, types: list[Type], shown: Shown) -> None:
        self.uri, self.random, self.types = uri, random, types
        self.before = self.after = shown
        self.kind = random.choice(KINDS)

    def check(self) -> None:
        key = self._act()
        if key is None:
            return
        self._check_read()
        options = self.random.choice(WAYS)
        with og.open(self.uri) as graph:
            preview = graph.maintenance.repair()
            force, discard = options.get("force", False), options.get("discard", False)
            report = graph.maintenance.repair(confirm=True, force=force, discard=discard)
        seen, done = ([_finding(one) for one in rows.types] for rows in (preview, report))
        if seen != done:
            raise Broken(f"repair found {done}, its preview {seen}")
        [row] = [one for one in report.types if one.type_key == key]
        expected = self._expected(options)
        if (row.classification, row.action) != expected:
            found = (str(row.classification), str(row.action), row.error)
            raise Broken(f"repair {options} after {self.kind} of {key}: {found}, expected {expected}")
        if row.action in ("healed", "forced", "discarded"):
            self._check_settled(key, self.before if row.action == "discarded" else self.after)

    def _act(self) -> str | None:
        """Do it to a dataset that main alone has; None if there is none."""
        with og.open(self.uri) as graph:
            pins = graph.snapshot("main").state.pins
            main_id = graph.snapshot("main").state.branch_id
        usable = [
            one
            for one in self.types
            if (pin := pins[TypeKey(one.table_key)]).fork is None
            and pin.owner == main_id
            and any(key == one.table_key for key, _ in self.before)
        ]
        if not usable:
            return None
        type_ = self.random.choice(usable)
        pin = pins[TypeKey(type_.table_key)]
        path = f"{self.uri}/{pin.path}"
        dataset = lance.dataset(path)
        if self.kind.startswith("compact"):
            dataset.optimize.compact_files()
        else:
            entity = self.random.choice(sorted(one for key, one in self.before if key == type_.table_key))
            dataset.delete(f"id = '{entity}'")
            self.after = {one: row for one, row in self.before.items() if one != (type_.table_key, entity)}
        if self.kind.endswith("remove"):
            lance.dataset(path).cleanup_old_versions(older_than=timedelta(0))
        versions = {one["version"] for one in lance.dataset(path).versions()}
        self.is_lost = pin.version not in versions
        return type_.table_key if max(versions) > pin.version else None

    def _check_read(self) -> None:
        """Reads see what is published, or say that it is gone."""
        try:
            with og.open(self.uri) as graph:
                found = read_state(graph)
        except OmniGraphError as error:
            if not self.is_lost or error.code != "graph.version_lost":
                raise Broken(f"after {self.kind} of a dataset reads fail: {error.code} {error}") from error
            return
        if self.is_lost or found != self.before:
            raise Broken(f"after {self.kind} of a dataset, which is {self.is_lost and 'lost'}, reads go on: {found}")

    def _expected(self, options: dict[str, bool]) -> tuple[str, str]:
        if self.is_lost:
            return "unverifiable", "forced" if "force" in options else "refused"
        if "discard" in options:
            return "verified_maintenance" if self.kind == "compact" else "suspicious", "discarded"
        if self.kind == "compact":
            return "verified_maintenance", "healed"
        return "suspicious", "forced" if "force" in options else "refused"

    def _check_settled(self, key: str, expected: Shown) -> None:
        with og.open(self.uri) as graph:
            if (found := read_state(graph)) != expected:
                raise Broken(f"after {self.kind} of {key} and repair, main has {found}, expected {expected}")
            [row] = [one for one in graph.maintenance.repair().types if one.type_key == key]
        if row.classification != "no_drift":
            raise Broken(f"{key} is repaired, and still {row}")


def _finding(row: Any) -> list[Any]:
    return [str(row.type_key), row.published_version, row.head_version, str(row.classification), list(row.operations)]
