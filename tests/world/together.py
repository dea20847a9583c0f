"""Mutations of several writers that wait for one branch and are published together.

They queue up in a known order, so the model makes them one after the other.
"""

from __future__ import annotations

from functools import partial
from random import Random

from tests.support.grouped_writes import write_together
from tests.world import branching
from tests.world.calls import run
from tests.world.checks import compare
from tests.world.model import Commit, Model
from tests.world.mutations import PLACEHOLDER, Mutation
from tests.world.steps import Step
from tests.world.world import World, read_state, shown_call

WRITERS_MAX = 7


def write_at_once(world: World, random: Random) -> bool:
    """Let several writers change a branch at once, and read the state after each of them."""
    branch = branching.any_branch(world.model, random)
    steps = _drawn(world.model, random, branch)
    if len(steps) < 2:
        return False
    answers = write_together(world.graph, [partial(run, world.graph, step.call) for step in steps], branch)
    commits: list[Commit] = []
    for step, answer in zip(steps, answers, strict=True):
        if isinstance(answer, BaseException):
            raise answer
        world.note(f"{step.kind}, at once: {shown_call(step.call)}")
        world.calls.append((step.call, None))
        world.follow(step, answer)
        if answer.get("commit") is not None:
            commits.append(world.model.head(branch))
    world.counts["published together"] += len(commits)
    for commit in commits:
        expected = world.model.show(commit.state, commit.schema, commit.schema)
        compare(f"{commit.id} of a group", read_state(world.graph, branch, at=commit.id), expected)
    return True


def _drawn(model: Model, random: Random, branch: str) -> list[Step]:
    """Return mutations without patterns, each drawn on the state that those before it leave."""
    steps: list[Step] = []
    known, head = len(model.commits), model.branches[branch].head
    for _ in range(random.randint(2, WRITERS_MAX)):
        mutation = Mutation(model, random, branch, None)
        source = mutation.draw(patterns=0)
        # What follows must be known.
        if source is None or mutation.may_fail:
            continue
        call = {"call": "mutate", "source": source, "branch": branch, "params": mutation.texts.parameters}
        step = Step("mutate", call, branch, mutation.state, mutation.schema, errors=mutation.errors)
        step.must_fail = bool(mutation.errors)
        steps.append(step)
        if step.must_fail:
            continue
        if any(entity.startswith(PLACEHOLDER) for rows in mutation.state.values() for entity in rows):
            # The graph chooses the ids of what is new; they are learned from its newest state.
            break
        model.publish(branch, f"the group of {known}", mutation.state, mutation.schema, "mutate")
    del model.commits[known:]
    model.branches[branch].head = head
    return steps
