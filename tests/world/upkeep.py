"""Random maintenance: optimize, indexes, cleanup of aged files, reconcile, reopen. None of it changes a result."""

from __future__ import annotations

from random import Random

from tests.world.branching import any_branch
from tests.world.calls import Answer
from tests.world.steps import Broken, Step
from tests.world.world import World


def optimize(world: World, random: Random) -> Step:
    branch = any_branch(world.model, random)
    head = world.model.head(branch)
    call = random.choice(["optimize", "index"])
    return Step(call, {"call": call, "branch": branch}, branch, head.state, head.schema)


def cleanup(world: World, random: Random) -> Step:
    """Let files be of any age, and remove what nobody needs."""
    keep = random.choice([1, 1, 2, 5, 20])
    # None is as old as the bounds of cleanup: a preview some milliseconds earlier would be right to differ.
    ages = [[random.choice([0, 1.5, 5, 10, 10, 10])] for _ in range(random.choice([1, 7]))]
    if random.random() < 0.5:
        ages = [[10]]

    def then(answer: Answer) -> None:
        world.model.forget_states(keep)
        if answer["errors"]:
            raise Broken(f"cleanup left out {answer['errors']}")

    preview = random.choice(["api", "read_only", "command"])
    return Step("cleanup", {"call": "cleanup", "keep": keep, "ages": ages, "preview": preview}, then=then)


def reconcile(world: World, random: Random) -> Step:
    """Run a round of the reconciler; it may publish commits that change nothing."""

    def then(_: Answer) -> None:
        for branch in sorted(world.model.branches):
            head = world.model.head(branch)
            newest = world.graph.snapshot(branch).head
            if newest is not None and newest != head.id:
                world.model.publish(branch, newest, head.state, head.schema, "reconcile")

    return Step("reconcile", {"call": "reconcile"}, then=then)
