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
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.world import branching, buckets, checks, drops, foreign, pipelines, policies, processes, upkeep
from tests.world.calls import Call
from tests.world.idioms import IDIOMS, Idiom, mutate_on
from tests.world.loads import Load
from tests.world.migrations import Migration
from tests.world.steps import Broken, Step
from tests.world.world import World

Draw = Callable[[World, Random], Step | None]


def mutate(world: World, random: Random) -> Step | None:
    return mutate_on(world.model, random, branching.any_branch(world.model, random))


def load(world: World, random: Random) -> Step | None:
    return Load(world.model, random, branching.any_branch(world.model, random)).draw()


def migrate(world: World, random: Random) -> Step | None:
    return Migration(world.model, random, branching.any_branch(world.model, random)).draw()


def _of_model(draw: Callable[..., Step | None]) -> Draw:
    return lambda world, random: draw(world.model, random)


KINDS: dict[str, tuple[Draw, float]] = {
    "mutate": (mutate, 30),
    "mutate as an actor": (policies.mutate, 8),
    "load": (load, 18),
    "schema": (migrate, 10),
    "branch": (_of_model(branching.create_branch), 8),
    "delete": (_of_model(branching.delete_branch), 4),
    "rename": (_of_model(branching.rename_branch), 1),
    "merge": (_of_model(branching.merge), 16),
    "replay": (_of_model(branching.replay), 5),
    "tag": (_of_model(branching.create_tag), 2),
    "untag": (_of_model(branching.delete_tag), 1),
    "upkeep": (upkeep.optimize, 4),
    "cleanup": (upkeep.cleanup, 1.5),
    "reconcile": (upkeep.reconcile, 0.5),
}
# How often a call is made by another process, and how often the graph is opened anew.
ELSEWHERE_SHARE = 0.06
REOPEN_SHARE = 0.015


@dataclass(frozen=True)
class Flavour:
    """Where a history takes place, and what may happen there beside everything else."""

    operations: int
    idioms: dict[Idiom, float]
    idiom_share: float


LOCAL = Flavour(220, IDIOMS, 0.06)
# Each request costs more in a bucket.
BUCKET = Flavour(60, {**dict.fromkeys(IDIOMS, 0.2), **buckets.IDIOMS}, 0.15)


PIPELINES = Flavour(pipelines.OPERATIONS, {**dict.fromkeys(IDIOMS, 0.2), **pipelines.IDIOMS}, 0.15)
FLAVOURS = {5: BUCKET, 6: PIPELINES}


def flavour_of(seed: int) -> Flavour:
    """Choose by the seed; of the first four, which every change is tested with, all are local."""
    return FLAVOURS.get(seed % 8, LOCAL)


def operate(world: World, random: Random, flavour: Flavour, kinds: dict[str, tuple[Draw, float]]) -> bool:
    """Do one random thing; False if there was nothing to do."""
    if random.random() < REOPEN_SHARE:
        world.note("reopen")
        world.counts["reopen"] += 1
        world.reopen()
    if random.random() < flavour.idiom_share:
        [idiom] = random.choices(list(flavour.idioms), list(flavour.idioms.values()))
        return idiom(world, random)
    [kind] = random.choices(list(kinds), [weight for _, weight in kinds.values()])
    is_elsewhere = random.random() < ELSEWHERE_SHARE
    moment = processes.random_moment(random)
    step = kinds[kind][0](world, random)
    if step is None:
        return False
    if is_elsewhere:
        processes.perform_elsewhere(world, step, moment)
    else:
        world.perform(step)
    return True


# Which checks follow a step, and how often.
CHECKS: dict[Callable[[World, Random], None], float] = {
    checks.check_past: 0.15,
    checks.check_diff: 0.12,
    checks.check_commit_changes: 0.12,
    policies.check_queries: 0.08,
    policies.check_view: 0.05,
    checks.check_schema: 0.1,
    checks.check_blame: 0.04,
    checks.check_log: 0.04,
    checks.check_feed: 0.008,
    checks.check_verify: 0.01,
    checks.check_clone: 0.003,
    foreign.check_foreign: 0.003,
    drops.check_hard_drop: 0.002,
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
    calls: list[tuple[Call, str | None]] = field(default_factory=list)

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
    operations: int | None = None,
    only: Collection[int] | None = None,
    root: Path | None = None,
    kinds: dict[str, tuple[Draw, float]] | None = None,
) -> History:
    """Run a history, or only some of its operations; stop at the first failure."""
    kinds, flavour = kinds or KINDS, flavour_of(seed)
    folder = Path(tempfile.mkdtemp(prefix="world-", dir=root))
    numbers = sorted(only) if only is not None else range(operations or flavour.operations)
    done: list[int] = []
    world: World | None = None
    number = -1
    stack = ExitStack()
    try:
        server = stack.enter_context(buckets.bucket(is_opaque=seed % 16 == 5)) if flavour is BUCKET else None
        world = World(server.uri(f"{folder.name}.omni") if server else str(folder / "graph.omni"), folder, server)
        for number in numbers:
            done.append(number)
            random = Random(f"{seed}:{number}")
            world.number = number
            if operate(world, random, flavour, kinds):
                check_step(world, random, is_last=False)
        number += 1
        check_step(world, Random(f"{seed}:end"), is_last=True)
    except Exception as error:  # noqa: BLE001 - whatever happens is a finding
        log = world.log if world else []
        reason = str(error) if isinstance(error, Broken) else traceback.format_exc()
        calls = world.calls if world else []
        failure = Failure(seed, number, tuple(done), reason, log, not isinstance(error, Broken), calls)
        return History(seed, len(done), world.counts if world else Counter(), failure)
    finally:
        if world is not None:
            world.close()
        stack.close()
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
