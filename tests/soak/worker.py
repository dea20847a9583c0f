"""A member as a process of its own, which works until a file appears.

Imports nothing that reads limits before `preload` has set them.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

# An attempt to publish may take so long; versions are kept ten times as long, leftovers eight times.
DEADLINE_SECONDS = 2
RESIDUE_DEADLINES = 8
RETENTION_DEADLINES = 10
STOP = "stop"


def work(role: str, root: str, folder: str, name: str, seed: int) -> None:
    import omnigraph as og
    from tests.soak.diary import Diary
    from tests.soak.members import careful_step, member_of

    # Half of what cleanup leaves to everybody: a slow machine must not make a reader too late.
    hold_seconds = RETENTION_DEADLINES * DEADLINE_SECONDS / 2
    diary = Diary(Path(folder) / f"{name}.diary")
    stop = Path(folder) / STOP
    with og.open(root) as graph:
        member = member_of(role, graph, diary, Random(seed), name, hold_seconds)
        diary.counts("born")
        while not stop.exists():
            careful_step(member, diary)
