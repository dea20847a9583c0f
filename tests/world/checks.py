"""What must hold after a step: states, past states, diffs, feeds, log and blame, queries, verify, clones."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import omnigraph as og
from omnigraph.errors import OmniGraphError
from omnigraph.graph import Graph
from tests.world.branching import GONE
from tests.world.known import KNOWN
from tests.world.model import Commit, Shown
from tests.world.schema_model import Schema, source_text
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
    must, may = expected_changes(world, before, head, head.schema)
    if not must <= found <= may:
        raise Broken(f"diff {start} {target}: missing {sorted(must - found)}, unexpected {sorted(found - may)}")


def expected_changes(
    world: World, before: Commit, after: Commit, named: Schema
) -> tuple[set[tuple[str, str, str]], set[tuple[str, str, str]]]:
    """Return the changes between two states: those that there must be, and those that there may be."""
    shown = [_compared(world, one, named) for one in (before, after)]
    sides, loose = [side for side, _ in shown], shown[0][1] | shown[1][1]
    must, may = set[tuple[str, str, str]](), set[tuple[str, str, str]]()
    for key, entity in {*sides[0], *sides[1]}:
        old, new = (side.get((key, entity)) for side in sides)
        if old == new:
            continue
        change = (key, entity, "insert" if old is None else "delete" if new is None else "update")
        may.add(change)
        if old is None or new is None or any(old[name] != new[name] for name in old if (key, name) not in loose):
            must.add(change)
    return must, may


def _compared(world: World, commit: Commit, named: Schema) -> tuple[Shown, set[tuple[str, str]]]:
    """Return a state as comparisons see it, and the properties of types whose values there may be others.

    A required property that the state does not have yet holds its constant default, so that filling it is no change. If
    its default is another one by now, or gone, it may be null or the one that it was.
    """
    model, loose = world.model, set[tuple[str, str]]()
    shown = model.show(commit.state, commit.schema, named)
    for id_, type_ in named.items():
        stored = commit.schema.get(id_)
        for one in type_.properties:
            if one.id in model.fills and (stored is None or stored.find(one.id) is None):
                if not one.is_required or one.default != model.fills[one.id]:
                    loose.add((type_.table_key, one.name))
                for (key, _), values in shown.items():
                    if key == type_.table_key:
                        values[one.name] = model.fills[one.id]
    return shown, loose


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
    must, may = expected_changes(world, parent, commit, named)
    changes = [(f"{one['kind']}:{one['type']['name']}", one["id"], one["op"]) for one in page["changes"]]
    found = set(changes)
    if len(found) != len(changes) or not must <= found <= may:
        raise Broken(f"changes of {commit.number}: missing {sorted(must - found)}, unexpected {sorted(found - may)}")
    after, loose = _compared(world, commit, named)
    for one in page["changes"]:
        if "after" in one:
            key = (f"{one['kind']}:{one['type']['name']}", one["id"])
            images = (
                {name: value for name, value in image.items() if (key[0], name) not in loose}
                for image in (_image(one["after"]), after[key])
            )
            compare(f"image of {key}", {key: next(images)}, {key: next(images)})


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


def check_blame(world: World, random: Random) -> None:
    """Each property is attributed to the commit that set its value."""
    model = world.model
    branch = random.choice(sorted(model.branches))
    found = any_entity(model, random, branch)
    if found is None:
        return
    type_, entity = found
    past = model.past(model.head(branch).number)
    is_late = any(type_.id not in model.commits[one].schema for one in past)
    if (is_late and "V4" in KNOWN) or past & model.doubtful or any(one.id in model.fills for one in type_.properties):
        return
    key: Any = entity
    if type_.key and not type_.ends:
        key = model.value(model.state(branch)[type_.id][entity], type_.key[0])
    elif type_.ends and type_.key:
        ends = model.state(branch)[type_.id][entity]["ends"]
        key = {"from": ends[0], "to": ends[1]}
    for line in world.graph.blame(type_.name, key, branch=branch).properties:
        one = next((one for one in type_.properties if one.name == line.name), None)
        if one is None:
            continue
        expected = _setter(world, branch, type_.id, entity, one.id)
        named = line.commit.commit_id if line.commit else ""
        if named not in expected:
            numbers = [(known := model.by_id(commit)) and known.number for commit in (named, *expected)]
            raise Broken(
                f"{type_.name} {entity} {one.name} on {branch} is blamed on {numbers[0]}, expected {numbers[1:]}"
            )


def _setter(world: World, branch: str, type_id: int, entity: str, property_id: int) -> list[str]:
    """Return the commit that set a value: the walk follows the first parent that has it already."""
    model = world.model
    commit = model.head(branch)
    value = model.value(commit.state[type_id][entity], property_id)
    while True:
        parents = [model.commits[one] for one in commit.parents]
        having = [
            one
            for one in parents
            if entity in one.state.get(type_id, {}) and model.value(one.state[type_id][entity], property_id) == value
        ]
        if not having:
            return [commit.id]
        commit = having[0]


def check_log(world: World, random: Random) -> None:
    """The log of an entity names every commit that changed it along first parents, if no merge is in between."""
    model = world.model
    branch = random.choice(sorted(model.branches))
    found = any_entity(model, random, branch)
    if found is None or found[0].ends or not found[0].key:
        return
    type_, entity = found
    line = list(model.first_parents(model.head(branch).number))
    if any(len(one.parents) > 1 or one.number in model.doubtful for one in line):
        return
    is_late = any(type_.id not in one.schema for one in line)
    if (is_late and "V4" in KNOWN) or any(one.id in model.fills for one in type_.properties):
        return
    key = model.value(model.state(branch)[type_.id][entity], type_.key[0])
    log = world.graph.log(type_.name, key, branch=branch)
    expected = []
    known = {one.id for one in type_.properties}
    for commit in line:
        states = [commit, *(model.commits[one] for one in commit.parents)]
        rows = [one.state.get(type_.id, {}).get(entity) for one in states]
        rows = [row and {key: value for key, value in row.items() if key in known} for row in rows]
        before = rows[1] if len(rows) > 1 else None
        if rows[0] != before:
            op = "insert" if before is None else "delete" if rows[0] is None else "update"
            expected.append((commit.id, op))
    entries = [(one.commit.commit_id, one.op) for one in log.changes]
    if entries != expected:
        raise Broken(f"log of {type_.name} {entity} on {branch}: {entries}, expected {expected}")


# -- the whole graph -----------------------------------------------------------------------------------------------


def check_verify(world: World, random: Random) -> None:
    try:
        report = world.graph.maintenance.verify(data=True)
    except ValueError:
        if "V5" in KNOWN and world.counts["killed"]:
            return
        raise
    if not report.is_sound:
        raise Broken(f"verify: {report.findings}")


def check_clone(world: World, random: Random) -> None:
    """Clone the graph, or bring its clone up to date: all branches and a past state are the same there."""
    target = world.scratch / "clone.omni"
    if target.exists() and random.random() < 0.3:
        shutil.rmtree(target)
    report = world.graph.clone(str(target), update=target.exists())
    del report
    with og.open(target) as clone:
        for branch in sorted(world.model.branches):
            check_branch(world, clone, branch)
        if not clone.maintenance.verify().is_sound:
            raise Broken("the clone is not sound")
