"""Actors who see a part of the types: whatever they read and match is what a graph without the others would show.

Written from docs/policy.md.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.policy import load_bundle
from tests.world import queries
from tests.world.model import Model
from tests.world.mutations import Mutation
from tests.world.schema_model import Schema, TypeId
from tests.world.steps import Broken, Step
from tests.world.world import World, read_state

ACTOR = "eve"


def draw_names(model: Model, random: Random, branch: str) -> set[str]:
    """Choose types of a branch for an actor, one, two or all but one, by the names that they have there and on main."""
    schema, main = model.schema(branch), model.schema("main")
    types = sorted(schema)
    count = random.choice([1, 2, len(types) - 1, len(types) - 1])
    chosen = set(random.sample(types, min(count, len(types))))
    for id_ in list(chosen):
        if random.random() < 0.7:
            # Without its ends an edge is hidden, too.
            chosen |= set(schema[id_].ends or ())
    return {one[id_].name for id_ in chosen for one in (schema, main) if id_ in one}


def visible_types(model: Model, branch: str, names: set[str]) -> set[TypeId]:
    """Return the types of a branch that an actor sees: by their name there and, if it has them, on main."""
    schema, main = model.schema(branch), model.schema("main")
    allowed = {id_ for id_, one in schema.items() if one.name in names and (id_ not in main or main[id_].name in names)}
    return {id_ for id_ in allowed if all(end in allowed for end in schema[id_].ends or ())}


def policy_text(names: set[str]) -> str:
    rule = {"actors": {"group": "some"}, "actions": ["read", "export", "change"], "types": sorted(names)}
    bundle = {"version": 1, "groups": {"some": [ACTOR]}, "rules": [{"id": "r", "allow": rule}]}
    return json.dumps(bundle)


def mutate(world: World, random: Random) -> Step | None:
    """Let an actor who sees a part of the types write what a pattern finds."""
    model = world.model
    branch = random.choice(sorted(model.branches))
    names = draw_names(model, random, branch)
    visible = visible_types(model, branch, names)
    mutation = Mutation(model, random, branch, visible)
    source = mutation.draw(patterns=0.7)
    if source is None:
        return None
    call: dict[str, Any] = {"call": "mutate", "source": source, "branch": branch, "params": mutation.texts.parameters}
    call |= {"actor": ACTOR, "policy": policy_text(names)}
    errors = mutation.errors
    step = Step("mutate as an actor", call, branch, mutation.state, mutation.schema, errors=errors | mutation.may_fail)
    step.must_fail = bool(errors)
    return step


def check_view(world: World, random: Random) -> None:
    """What an actor reads is what is left without the hidden types."""
    model = world.model
    branch = random.choice(sorted(model.branches))
    names = draw_names(model, random, branch)
    visible = visible_types(model, branch, names)
    head = model.head(branch)
    schema: Schema = {id_: head.schema[id_] for id_ in visible}
    graph = og.open(world.uri, actor=ACTOR, policy=load_bundle(policy_text(names)))
    expected = model.show(head.state, head.schema, schema)
    found = read_state(graph, branch)
    if found != expected:
        surplus, missing = sorted(found.keys() - expected.keys()), sorted(expected.keys() - found.keys())
        raise Broken(f"export of {branch} for types {sorted(names)}: unexpected {surplus[:5]}, missing {missing[:5]}")
    check_answers(graph, random, expected, schema, branch)


def check_answers(graph: Graph, random: Random, shown: Any, schema: Schema, branch: str, **options: Any) -> None:
    """Ask some questions in every mode."""
    if not schema:
        return
    for _ in range(3):
        question = queries.Questions(random, shown, schema).draw()
        if question is not None:
            for mode in queries.MODES:
                queries.ask(graph, question, mode, branch=branch, **options)


def check_queries(world: World, random: Random) -> None:
    """Ask questions about the head of a branch, or about a past state under today's names or its own."""
    model = world.model
    branch = random.choice(sorted(model.branches))
    commit, options = model.head(branch), dict[str, Any]()
    named = commit.schema
    if random.random() < 0.3:
        commit = random.choice(model.commits)
        if commit.number in model.doubtful:
            return
        options = {"at": commit.id, "names": random.choice(["now", "then"])}
        named = commit.schema if options["names"] == "then" else model.schema(branch)
    check_answers(world.graph, random, model.show(commit.state, commit.schema, named), named, branch, **options)
