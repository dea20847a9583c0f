"""Short sequences that people often do, which chance alone would rarely make: hotfixes, crossing merges, widened
types whose changes are picked, orphans. Each is one operation of a history."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.world import branching, checks, processes, upkeep
from tests.world.loads import Load
from tests.world.migrations import Migration
from tests.world.model import Model
from tests.world.mutations import Mutation, broken_rules
from tests.world.schema_model import Type, nodes
from tests.world.steps import Step
from tests.world.values import random_value
from tests.world.world import World


def do(world: World, step: Step | None) -> bool:
    """Make a step; False if there was none."""
    if step is not None:
        world.perform(step)
    return step is not None


def write(world: World, random: Random, branch: str) -> bool:
    """Change something on a branch."""
    for _ in range(3):
        if random.random() < 0.5:
            step = Load(world.model, random, branch).draw()
        else:
            step = mutate_on(world.model, random, branch)
        if step is not None and not step.must_fail:
            return do(world, step)
    return False


def mutate_on(model: Model, random: Random, branch: str) -> Step | None:
    mutation = Mutation(model, random, branch, None)
    source = mutation.draw()
    if source is None:
        return None
    call = {"call": "mutate", "source": source, "branch": branch, "params": mutation.texts.parameters}
    errors = mutation.errors
    step = Step("mutate", call, branch, mutation.state, mutation.schema, errors=errors | mutation.may_fail)
    step.must_fail = bool(errors)
    return step


def two_branches(world: World, random: Random) -> tuple[str, str] | None:
    names = sorted(world.model.branches)
    if len(names) < 2 or len(names) >= branching.BRANCHES_MAX:
        return None
    one, two = random.sample(names, 2)
    return one, two


def hotfix(world: World, random: Random) -> bool:
    """Merge a branch into two others, delete it, clean up, and merge the two."""
    pair = two_branches(world, random)
    if pair is None:
        return False
    step = branching.create_named(world.model, random, pair[0])
    if step is None or not do(world, step):
        return False
    name = str(step.call["name"])
    write(world, random, name)
    for branch in pair:
        do(world, branching.merge_branches(world.model, random, name, branch))
    if world.model.may_delete(name):
        do(world, branching.delete_named(world.model, name))
    for branch in pair:
        write(world, random, branch)
    if random.random() < 0.7:
        do(world, upkeep.cleanup(world, random))
    return do(world, branching.merge_branches(world.model, random, *random.sample(pair, 2)))


def cross(world: World, random: Random) -> bool:
    """Let two branches change, and merge each into the other as it was before its own merge."""
    pair = two_branches(world, random)
    if pair is None:
        return False
    one, two = pair
    for branch in (one, two, one, two):
        write(world, random, branch)
    step = branching.create_named(world.model, random, one)
    if step is None or not do(world, step):
        return False
    before = str(step.call["name"])
    do(world, branching.merge_branches(world.model, random, two, one))
    do(world, branching.merge_branches(world.model, random, before, two))
    do(world, branching.delete_named(world.model, before))
    write(world, random, one)
    return do(world, branching.merge_branches(world.model, random, one, two))


def widen_and_pick(world: World, random: Random) -> bool:
    """Widen a property on one branch, write a value there that others cannot hold, and pick it."""
    model = world.model
    pair = two_branches(world, random)
    if pair is None:
        return False
    migration = Migration(model, random, pair[0])
    if not any(migration.widen() for _ in range(6)):
        return False
    do(world, migration.step())
    changed = [one for one in model.schema(pair[0]).values() if migration.before.get(one.id) != one]
    for _ in range(2):
        do(world, write_type(world, random, pair[0], changed[0]))
        head = model.head(pair[0])
        if head.parents:
            do(world, branching.replay_commit(model, random, "cherry_pick", head, pair[1]))
    return True


def write_type(world: World, random: Random, branch: str, type_: Type) -> Step | None:
    """Return a load of entities of one type, unless there is none that succeeds."""
    load = Load(world.model, random, branch, types=[type_])
    load.mode = "merge"
    step = load.draw()
    return None if step is None or step.must_fail else step


def empty(world: World, random: Random) -> bool:
    """Replace all entities of a type by none, as a table without rows."""
    branch = branching.any_branch(world.model, random)
    type_ = random.choice(list(world.model.schema(branch).values()))
    return do(world, Load(world.model, random, branch, types=[type_]).draw_empty(type_))


def add_and_trace(world: World, random: Random) -> bool:
    """Add a type, write entities of it, and change them, so that they have a history of their own."""
    branch = branching.any_branch(world.model, random)
    migration = Migration(world.model, random, branch)
    if not migration.add_type() or not do(world, migration.step()):
        return False
    added = [one for one in nodes(world.model.schema(branch)) if one.id not in migration.before]
    for _ in range(2):
        if added:
            do(world, write_type(world, random, branch, added[0]))
    return True


def clash(world: World, random: Random) -> bool:
    """Set one property of one entity on two branches, often one that has a rule for merges, and merge them."""
    model, pair = world.model, two_branches(world, random)
    if pair is None:
        return False
    schemas, states = [model.schema(one) for one in pair], [model.state(one) for one in pair]
    shared = [
        (type_.id, one.id, entity)
        for type_ in nodes(schemas[0])
        if type_.key and type_.id in schemas[1]
        for one in type_.free
        if one.base != "Blob" and schemas[1][type_.id].find(one.id) is not None
        for entity in states[0].get(type_.id, {}).keys() & states[1].get(type_.id, {}).keys()
    ]
    ruled = [place for place in shared if schemas[0][place[0]].member(place[1]).merge]
    if not shared:
        return False
    place = random.choice(sorted(ruled if ruled and random.random() < 0.7 else shared))
    for branch in pair:
        do(world, _set_one(model, random, branch, *place))
    return do(world, branching.merge_branches(model, random, *pair))


def _set_one(model: Model, random: Random, branch: str, type_id: int, property_id: int, entity: str) -> Step:
    """Set a property of an entity to any value."""
    mutation = Mutation(model, random, branch, None)
    type_ = mutation.schema[type_id]
    key, one = type_.member(type_.key[0]), type_.member(property_id)
    changes = {one: random_value(random, one)}
    named = mutation.texts.write(model.value(mutation.state[type_id][entity], key.id), key.base)
    body = f"update {type_.name} set {{ {mutation.set_text(changes)} }} where {key.name} = {named}"
    mutation.set_all(type_, changes, [entity])
    errors = broken_rules(model, mutation.schema, mutation.state)
    call: dict[str, Any] = {"call": "mutate", "source": mutation.texts.query(body), "branch": branch}
    call["params"] = mutation.texts.parameters
    step = Step("mutate", call, branch, mutation.state, mutation.schema, errors=errors)
    step.must_fail = bool(errors)
    return step


def kill_upkeep(world: World, random: Random) -> bool:
    """Kill a process while it compacts or indexes; what it leaves behind is no damage."""
    step = upkeep.optimize(world, random)
    killed = world.counts["killed"]
    processes.perform_elsewhere(world, step, random.randrange(processes.MOMENTS_MAX))
    if world.counts["killed"] > killed:
        checks.check_verify(world, random)
    return True


def flood(world: World, random: Random) -> bool:
    """Load more rows than one batch has to a branch of its own, change some, and leave the branch."""
    model = world.model
    source = branching.any_branch(model, random)
    among = [one for one in nodes(model.schema(source)) if not one.key]
    step = branching.create_named(model, random, source) if among else None
    if step is None or len(model.branches) >= branching.BRANCHES_MAX or not do(world, step):
        return False
    name = str(step.call["name"])
    if do(world, Load(model, random, name).draw_many(random.choice(among), FLOOD_ROWS)):
        checks.check_branch(world, world.graph, name)
        step = mutate_on(model, random, name)
        if step is not None:
            # One mutation writes no more than a batch.
            step.errors.add("limit.exceeded")
            do(world, step)
            checks.check_branch(world, world.graph, name)
    return do(world, branching.delete_named(model, name))


Idiom = Callable[[World, Random], bool]
IDIOMS: dict[Idiom, float] = {
    hotfix: 1.2,
    cross: 1.2,
    widen_and_pick: 1.5,
    empty: 1,
    add_and_trace: 1,
    clash: 2,
    kill_upkeep: 1,
    flood: 0.4,
}
# Readers and writers work in batches of 8,192 rows.
FLOOD_ROWS = 8_200
