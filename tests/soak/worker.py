"""A member as a process of its own: `python -m tests.soak.worker ROLE ROOT FOLDER NAME SEED DEADLINE`.

It works until its input ends. Limits are set before anything that reads them is imported.
"""

from __future__ import annotations

import select
import sys
from pathlib import Path
from random import Random

from omnigraph import limits

# A leftover may be this many deadlines old before a sweep takes it; nobody may publish after one.
RESIDUE_DEADLINES = 8


def set_deadline(seconds: float) -> None:
    """Let versions and leftovers be old enough for removal after seconds instead of minutes."""
    changed = {"PUBLISH_DEADLINE_SECONDS": seconds, "RESIDUE_AGE_SECONDS": RESIDUE_DEADLINES * seconds}
    for name, value in changed.items():
        setattr(limits, name, value)


def main(role: str, root: str, folder: str, name: str, seed: str, deadline: str) -> None:
    set_deadline(float(deadline))
    import omnigraph as og
    from omnigraph.limits import CLEANUP_DEADLINES_MIN
    from tests.soak.diary import Diary
    from tests.soak.members import careful_step, member_of

    # Half of what cleanup leaves to everybody: a slow machine must not make a reader too late.
    hold_seconds = CLEANUP_DEADLINES_MIN * float(deadline) / 2
    diary = Diary(Path(folder) / f"{name}.diary")
    with og.open(root) as graph:
        member = member_of(role, graph, diary, Random(int(seed)), name, hold_seconds)
        while not select.select([sys.stdin], [], [], 0.01)[0]:
            careful_step(member, diary)


if __name__ == "__main__":
    main(*sys.argv[1:])
