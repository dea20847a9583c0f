"""A member of the fleet as a process: `python -m tests.support.fleet_worker ROLE ROOT FOLDER NAME SEED COUNT`.

A writer commits and keeps its diary; the sweeper and the rewriter work until their input ends.
"""

from __future__ import annotations

import select
import sys
from pathlib import Path
from random import Random

from omnigraph.engine.maintain.optimize import Effort, optimize
from omnigraph.engine.session import GraphSession
from omnigraph.errors import ConflictError, Effect, StorageError
from omnigraph.lang.catalog import TypeKey
from omnigraph.manifest import publish
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN
from tests.support.fleet import TYPES, Diary, carry_out, choose_write
from tests.support.kernel_fixtures import open_graph
from tests.support.orphan_sweep import sweep

# As in production, a write that was held up for half as long as a sweep waits publishes nothing.
SWEEP_AGE_SECONDS = 10.0
STAGED_SECONDS_MAX = SWEEP_AGE_SECONDS / 2


def write(kernel: Kernel, folder: Path, name: str, seed: int, count: int) -> None:
    diary = Diary(folder / f"{name}.diary")
    random = Random(seed)
    branches = (MAIN, *kernel.snapshot().state.branches)
    for number in range(count):
        one = choose_write(random, branches, f"{name}-{number:05d}")
        diary.note(one, acknowledged=False)
        try:
            carry_out(kernel, one)
        except StorageError as error:
            # Faulty storage may refuse a write or leave it open; the oracle accepts both for what was not acknowledged.
            if not error.retryable and error.effect is not Effect.NONE:
                raise
            continue
        diary.note(one, acknowledged=True)


def rewrite(kernel: Kernel, table_key: TypeKey) -> None:
    try:
        optimize(GraphSession(kernel), only={table_key: Effort.WHOLE})
    except ConflictError:
        # The writers were faster each time; there will be another round.
        return


def until_input_ends(round_seconds: float) -> bool:
    """Wait between two rounds; False when the parent has closed our input."""
    return not select.select([sys.stdin], [], [], round_seconds)[0]


def main(role: str, root: str, folder: str, name: str, seed: str, count: str) -> None:
    kernel = open_graph(root)
    print("ready", flush=True)
    setattr(publish, "STAGED_SECONDS_MAX", STAGED_SECONDS_MAX)  # noqa: B010 - a constant: a shorter hour
    if role == "write":
        write(kernel, Path(folder), name, int(seed), int(count))
    elif role == "sweep":
        while until_input_ends(0.5):
            sweep(kernel, SWEEP_AGE_SECONDS)
    else:
        random = Random(int(seed))
        while until_input_ends(0.3):
            rewrite(kernel, random.choice(TYPES))
    kernel.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
