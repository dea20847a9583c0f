"""What must hold after a step: states, past states, diffs, feeds, log and blame, queries, verify, clones."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import omnigraph as og
from omnigraph.errors import OmniGraphError
from omnigraph.graph import Graph
from tests.world.branching import GONE
from tests.world.model import Commit, Shown
from tests.world.schema_model import ENDS, Schema, Type, source_text
from tests.world.steps import Broken
from tests.world.world import World, any_entity, read_state

Check = Callable[[World, Random], None]


def check_branches(world: World) -> None:
    """Hold the names, heads and contents of all branches and tags against the model."""
    model, graph = world.model, world.graph
    if graph.branches.list() != sorted(model.branches):
        raise Broken(f"branches are {graph.branches.list()}, expected {sorted(model.branches)}")
    tags = {one.name: one.commit_id for one in graph.tags.list()}
    if tags != {name: model.commits[one].id for name, one in model.tags.items()}:
        raise Broken(f"tags are {tags}")
    for branch in sorted(model.branches):
        check_branch(world, graph, branch)


def check_branch(world: World, graph: Graph, branch: str) -> None:
    head = world.model.head(branch)
    if graph.snapshot(branch).head != head.id:
        raise Broken(f"the head of {branch} is {graph.snapshot(branch).head}, expected {head.id}")
    expected = world.model.show(head.state, head.schema, head.schema)
    compare(f"branch {branch}", read_state(graph, branch), expected)


def compare(what: str, found: Shown, expected: Shown) -> None:
    """Compare two contents, and say what is missing, unexpected and different."""
    if found == expected:
        return
    lines = [f"{what}:"]
    lines += [f"  missing {key} {expected[key]}" for key in sorted(expected.keys() - found.keys())]
    lines += [f"  unexpected {key} {found[key]}" for key in sorted(found.keys() - expected.keys())]
    for key in sorted(found.keys() & expected.keys()):
        if found[key] != expected[key]:
            names = sorted({*found[key], *expected[key]})
            differing = [
                f"{name}: {found[key].get(name, 'none')!r} instead of {expected[key].get(name, 'none')!r}"
                for name in names
                if found[key].get(name, "none") != expected[key].get(name, "none")
            ]
            lines.append(f"  {key}: {'; '.join(differing)}")
    raise Broken("\n".join(lines[:12])[:3_000])


def check_schema(world: World, random: Random) -> None:
    """A branch has the schema of the model: to apply that changes nothing."""
    branch = random.choice(sorted(world.model.branches))
    plan = world.graph.schema.plan(source_text(world.model.schema(branch)), branch=branch)
    if plan.steps:
        raise Broken(f"the schema of {branch} differs: {plan}")


# -- the past ------------------------------------------------------------------------------------------------------


def check_past(world: World, random: Random) -> None:
    """Read a past state, by its id or another name of it, under today's names or its own."""
    model = world.model
    commit = random.choice(model.commits[-30:] if random.random() < 0.5 else model.commits)
    branch = random.choice(sorted(model.branches))
    at: Any = commit.id
    tagged = [name for name, number in model.tags.items() if number == commit.number]
    if tagged and random.random() < 0.7:
        at = tagged[0]
    elif random.random() < 0.3:
        line = list(model.first_parents(model.head(branch).number))[:8]
        steps = random.randrange(len(line))
        commit, at = line[steps], f"HEAD~{steps}"
    names = random.choice(["now", "then"])
    named = commit.schema if names == "then" else model.schema(branch)
    found = _unless_gone(world, [commit], lambda: read_state(world.graph, branch, at=at, names=names))
    if found is not None:
        expected = model.show(commit.state, commit.schema, named)
        compare(f"{at} ({commit.kind}, number {commit.number}) on {branch}, names {names}", found, expected)


def _unless_gone(world: World, commits: list[Commit], read: Callable[[], Any]) -> Any:
    """Read something; None if a cleanup may have removed it and did."""
    try:
        return read()
    except OmniGraphError as error:
        if error.code in {*GONE, "changes.gap"} and any(one.number in world.model.doubtful for one in commits):
            return None
        raise Broken(f"cannot read {[one.number for one in commits]}: {error.code} {error}") from error


def check_diff(world: World, random: Random) -> None:
    """Compare two states by a diff, under the names that the second has today."""
    model = world.model
    target = random.choice(sorted(model.branches))
    head = model.head(target)
    if random.random() < 0.5:
        other = random.choice(sorted(model.branches))
        before, start = model.head(other), other
    else:
        before = random.choice(model.commits)
        start = before.id
    result = _unless_gone(world, [before], lambda: world.graph.diff(start, target).to_json())
    if result is None:
        return
    found = {(f"{one['kind']}:{one['type_name']}", one["id"], one["op"]) for one in result["changes"]}
    expected = expected_changes(world, before, head, head.schema)
    if found != expected:
        missing, surplus = sorted(expected - found), sorted(found - expected)
        raise Broken(f"diff {start} {target}: missing {missing}, unexpected {surplus}")


def expected_changes(world: World, before: Commit, after: Commit, named: Schema) -> set[tuple[str, str, str]]:
    """Return the changes between two states under the names and types of a schema."""
    sides = [_compared(world, one, named) for one in (before, after)]
    changes = set[tuple[str, str, str]]()
    for key, entity in {*sides[0], *sides[1]}:
        old, new = (side.get((key, entity)) for side in sides)
        if old != new:
            changes.add((key, entity, "insert" if old is None else "delete" if new is None else "update"))
    return changes


def _compared(world: World, commit: Commit, named: Schema) -> Shown:
    """Return a state as comparisons see it: a required property that it lacks holds its constant default."""
    shown = world.model.show(commit.state, commit.schema, named)
    for id_, type_ in named.items():
        stored = commit.schema.get(id_)
        for one in type_.properties if stored else ():
            if one.is_required and stored and stored.find(one.id) is None:
                for (key, _), values in shown.items():
                    if key == type_.table_key:
                        values[one.name] = one.default
    return shown


def check_commit_changes(world: World, random: Random) -> None:
    """The changes of a commit are those from its first parent, under the names of main, images included."""
    model = world.model
    commit = random.choice(model.commits[-30:])
    if not commit.parents:
        return
    parent = model.commits[commit.parents[0]]
    page = _unless_gone(world, [commit, parent], lambda: world.graph.commit_changes(commit.id).to_json())
    if page is None or page.get("next_page_token"):
        return
    named = model.schema("main")
    expected = expected_changes(world, parent, commit, named)
    changes = [(f"{one['kind']}:{one['type']['name']}", one["id"], one["op"]) for one in page["changes"]]
    found = set(changes)
    if len(found) != len(changes) or found != expected:
        missing, surplus = sorted(expected - found), sorted(found - expected)
        raise Broken(f"changes of {commit.number}: missing {missing}, unexpected {surplus}")
    after = _compared(world, commit, named)
    for one in page["changes"]:
        if "after" in one:
            key = (f"{one['kind']}:{one['type']['name']}", one["id"])
            compare(f"image of {key}", {key: _image(one["after"])}, {key: after[key]})


def _image(image: dict[str, Any]) -> dict[str, Any]:
    return {**image["properties"], **image.get("endpoints", {})}


def check_feed(world: World, random: Random) -> None:
    """A reader that follows a branch from the beginning has in the end what an export has."""
    model = world.model
    branch = random.choice(sorted(model.branches))
    head = model.head(branch)
    line = list(model.first_parents(head.number))
    replayed: Shown = {}
    token: dict[str, Any] = {"start": "beginning"}
    number = 0
    while True:
        page = _unless_gone(world, line, partial(world.graph.changes, branch, **token))
        if page is None:
            return
        for block in page.blocks:
            number += 1
            for one in block.to_json()["changes"]:
                key = (f"{one['kind']}:{one['type']['name']}", one["id"])
                if one["op"] == "delete":
                    if key not in replayed:
                        raise Broken(f"the feed of {branch} deletes {key}, which was not there")
                    del replayed[key]
                else:
                    replayed[key] = _image(one["after"])
        if page.next_page_token is not None:
            token = {"page_token": page.next_page_token}
        elif page.caught_up:
            break
        else:
            token = {"cursor": page.cursor}
    _fill(world, head.schema, replayed)
    compare(f"feed of {branch}", replayed, model.show(head.state, head.schema, head.schema))


def _fill(world: World, schema: Schema, replayed: Shown) -> None:
    """Apply what schema steps gave to all entities."""
    for type_ in schema.values():
        for one in type_.properties:
            if one.id in world.model.fills:
                for (key, _), values in replayed.items():
                    if key == type_.table_key and values.get(one.name) is None and one.is_required:
                        values[one.name] = world.model.fills[one.id]


# -- log and blame -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Traced:
    """An entity whose history is followed, as the head of a branch has it."""

    world: World
    branch: str
    type: Type
    entity: str

    @property
    def head(self) -> Commit:
        return self.world.model.head(self.branch)

    @property
    def key(self) -> Any:
        """The entity as a user names it."""
        row = self.head.state[self.type.id][self.entity]
        if not self.type.key:
            return self.entity
        if self.type.ends:
            return {"from": row[ENDS][0], "to": row[ENDS][1]}
        return self.world.model.value(row, self.type.key[0])

    def row(self, commit: Commit) -> dict[Any, Any] | None:
        """Return the entity at a commit as comparisons see it: see `_compared`."""
        row, stored = commit.state.get(self.type.id, {}).get(self.entity), commit.schema.get(self.type.id)
        if row is None or stored is None:
            return None
        values = {
            one.id: self.world.model.value(row, one.id)
            if stored.find(one.id)
            else one.default
            if one.is_required
            else None
            for one in self.type.properties
        }
        return {**values, ENDS: row.get(ENDS)}

    def parents(self, commit: Commit) -> list[Commit]:
        return [self.world.model.commits[one] for one in commit.parents]

    def setter(self, part: Any) -> tuple[Commit, bool]:
        """Return the commit that set a value, and whether the way to it is certain to be readable.

        The walk follows the first parent that has the value already.
        """
        commit, is_certain = self.head, True
        value = (self.row(commit) or {})[part]
        while True:
            is_certain = is_certain and not {commit.number, *commit.parents} & self.world.model.doubtful
            having = [one for one in self.parents(commit) if (row := self.row(one)) and row[part] == value]
            if not having:
                return commit, is_certain
            commit = having[0]

    def changes(self) -> tuple[list[tuple[str, str]], bool]:
        """Return the commits that changed the entity, newest first, and whether all of it is certain to be readable.

        A commit that has the entity from one of its parents is passed over, and only that side is followed.
        """
        waiting, found, is_certain = {self.head.number}, [], True
        visited = set[int]()
        while waiting:
            commit = self.world.model.commits[max(waiting)]
            waiting.discard(commit.number)
            visited.add(commit.number)
            is_certain = is_certain and not {commit.number, *commit.parents} & self.world.model.doubtful
            parents, row = self.parents(commit), self.row(commit)
            same = [one for one in parents if self.row(one) == row]
            if parents and not same:
                before = self.row(parents[0])
                found.append((commit.id, "insert" if before is None else "delete" if row is None else "update"))
            waiting |= {one.number for one in (same[:1] or parents)} - visited
        return found, is_certain


def draw_traced(world: World, random: Random) -> Traced | None:
    branch = random.choice(sorted(world.model.branches))
    found = any_entity(world.model, random, branch)
    return None if found is None else Traced(world, branch, *found)


def check_blame(world: World, random: Random) -> None:
    """Each property is attributed to the commit that set its value."""
    traced = draw_traced(world, random)
    if traced is None:
        return
    type_, branch = traced.type, traced.branch
    for line in world.graph.blame(type_.name, traced.key, branch=branch).properties:
        one = next((one for one in type_.properties if one.name == line.name), None)
        if one is None:
            continue
        expected, is_certain = traced.setter(one.id)
        named = line.commit.commit_id if line.commit else None
        if named != expected.id and (is_certain or named is not None):
            known = named and world.model.by_id(named)
            raise Broken(
                f"{type_.name} {traced.entity} {one.name} on {branch} is blamed on {known and known.number},"
                f" expected {expected.number}"
            )


def check_log(world: World, random: Random) -> None:
    """The log of an entity names every commit that changed it."""
    traced = draw_traced(world, random)
    if traced is None:
        return
    log = world.graph.log(traced.type.name, traced.key, branch=traced.branch)
    entries = [(one.commit.commit_id, one.op) for one in log.changes]
    expected, is_certain = traced.changes()
    if (is_certain or log.is_complete) and entries != expected:
        numbers = [
            [(known.number, op) for one, op in part if (known := world.model.by_id(one))]
            for part in (entries, expected)
        ]
        raise Broken(
            f"log of {traced.type.name} {traced.entity} on {traced.branch}: {numbers[0]}, expected {numbers[1]}"
        )
    if not set(entries) <= set(expected):
        raise Broken(f"log of {traced.type.name} {traced.entity} on {traced.branch}: {entries}, expected {expected}")


# -- the whole graph -----------------------------------------------------------------------------------------------


def check_verify(world: World, random: Random) -> None:
    report = world.graph.maintenance.verify(data=True)
    if not report.is_sound:
        raise Broken(f"verify: {report.findings}")


def check_clone(world: World, random: Random) -> None:
    """Clone the graph, or bring its clone up to date: all branches and a past state are the same there."""
    folder = world.scratch / "clone.omni"
    if world.server is not None and random.random() < 0.8:
        # Another place in the bucket, which no earlier clone has.
        target, is_update = f"{world.uri}.{world.number}.clone", False
    else:
        if folder.exists() and random.random() < 0.3:
            shutil.rmtree(folder)
        target, is_update = str(folder), folder.exists()
    world.graph.clone(target, update=is_update)
    with og.open(target) as clone:
        for branch in sorted(world.model.branches):
            check_branch(world, clone, branch)
        report = clone.maintenance.verify(data=True)
        if not report.is_sound:
            raise Broken(f"the clone is not sound: {report.findings}")
