"""Random histories: which operations happen, and what is checked after each of them.

Each operation of a history has a source of randomness of its own, made of the seed and its number, so a history can be
replayed without some of its operations.
"""

from __future__ import annotations

import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.world import branching, checks, upkeep
from tests.world.loads import Load
from tests.world.migrations import Migration
from tests.world.mutations import Mutation
from tests.world.steps import Broken, Step
from tests.world.world import World

OPERATIONS = 220


def mutate(world: World, random: Random) -> None:
    branch = branching.any_branch(world.model, random)
    step = draw_mutation(world, random, branch)
    if step is not None:
        world.perform(step)


def draw_mutation(world: World, random: Random, branch: str) -> Step | None:
    mutation = Mutation(world.model, random, branch, None)
    source = mutation.draw()
    if source is None:
        return None
    call = {"call": "mutate", "source": source, "branch": branch, "params": mutation.texts.parameters}
    errors = mutation.errors
    return Step("mutate", call, branch, mutation.state, mutation.schema, errors=errors, must_fail=bool(errors))


def load(world: World, random: Random) -> None:
    _perform(world, Load(world.model, random, branching.any_branch(world.model, random)).draw())


def migrate(world: World, random: Random) -> None:
    _perform(world, Migration(world.model, random, branching.any_branch(world.model, random)).draw())


def _perform(world: World, step: Step | None) -> None:
    if step is not None:
        world.perform(step)


def _branching(draw: Callable[..., Step | None]) -> Callable[[World, Random], None]:
    return lambda world, random: _perform(world, draw(world.model, random))


Operation = Callable[[World, Random], None]
KINDS: dict[str, tuple[Operation, float]] = {
    "mutate": (mutate, 30),
    "load": (load, 18),
    "schema": (migrate, 10),
    "branch": (_branching(branching.create_branch), 8),
    "delete": (_branching(branching.delete_branch), 4),
    "rename": (_branching(branching.rename_branch), 1),
    "merge": (_branching(branching.merge), 16),
    "replay": (_branching(branching.replay), 5),
    "tag": (_branching(branching.create_tag), 2),
    "untag": (_branching(branching.delete_tag), 1),
    **upkeep.KINDS,
}
# Which checks follow a step, and how often.
CHECKS: dict[Callable[[World, Random], None], float] = {
    checks.check_past: 0.15,
    checks.check_diff: 0.12,
    checks.check_commit_changes: 0.12,
    checks.check_schema: 0.1,
    checks.check_blame: 0.02,
    checks.check_log: 0.02,
    checks.check_feed: 0.008,
    checks.check_verify: 0.01,
    checks.check_clone: 0.003,
}
ALL_BRANCHES_SHARE = 0.1


@dataclass
class Failure:
    """A history that failed: at which operation, and why."""

    seed: int
    number: int
    operations: tuple[int, ...]
    reason: str
    log: list[str]
    is_crash: bool = False

    def script(self) -> str:
        numbers = ",".join(str(one) for one in self.operations)
        lines = "\n".join(f"  {line}" for line in self.log)
        return (
            f"python -m tests.world --seed {self.seed} --only {numbers}\n{lines}\n"
            f"fails after operation {self.number}:\n{self.reason}"
        )


@dataclass
class History:
    """The result of one history."""

    seed: int
    operations: int
    counts: Counter[str] = field(default_factory=Counter)
    failure: Failure | None = None


def run_history(
    seed: int,
    *,
    operations: int = OPERATIONS,
    only: Collection[int] | None = None,
    root: Path | None = None,
    kinds: dict[str, tuple[Operation, float]] | None = None,
) -> History:
    """Run a history, or only some of its operations; stop at the first failure."""
    kinds = kinds or KINDS
    folder = Path(tempfile.mkdtemp(prefix="world-", dir=root))
    numbers = sorted(only) if only is not None else range(operations)
    done: list[int] = []
    world: World | None = None
    number = -1
    try:
        world = World(str(folder / "graph.omni"))
        for number in numbers:
            done.append(number)
            random = Random(f"{seed}:{number}")
            [kind] = random.choices(list(kinds), [weight for _, weight in kinds.values()])
            world.number = number
            mark = len(world.log)
            kinds[kind][0](world, random)
            if len(world.log) > mark:
                check_step(world, random, is_last=False)
        number += 1
        check_step(world, Random(f"{seed}:end"), is_last=True)
    except Exception as error:  # noqa: BLE001 - whatever happens is a finding
        log = world.log if world else []
        reason = str(error) if isinstance(error, Broken) else traceback.format_exc()
        failure = Failure(seed, number, tuple(done), reason, log, not isinstance(error, Broken))
        return History(seed, len(done), world.counts if world else Counter(), failure)
    finally:
        if world is not None:
            world.close()
        shutil.rmtree(folder, ignore_errors=True)
    return History(seed, len(done), world.counts)


def check_step(world: World, random: Random, *, is_last: bool) -> None:
    """Check the branch that changed and a sample of everything else; at the end everything."""
    if is_last or random.random() < ALL_BRANCHES_SHARE:
        checks.check_branches(world)
    else:
        commit = world.model.commits[-1]
        homes = {one.incarnation: name for name, one in world.model.branches.items()}
        if commit.home in homes:
            checks.check_branch(world, world.graph, homes[commit.home])
    for check, share in CHECKS.items():
        if is_last or random.random() < share:
            world.counts[check.__name__] += 1
            check(world, random)
