"""Make a failing history as short as it gets: leave operations out for as long as it fails in the same way."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from tests.world.generator import Failure, run_history

SECONDS_MAX = 120.0


def shrink(
    failure: Failure,
    *,
    root: Path | None = None,
    seconds: float = SECONDS_MAX,
    replay: Callable[[tuple[int, ...]], Failure | None] | None = None,
) -> Failure:
    """Return the shortest failure that is found by leaving out ever smaller parts of a history."""
    rerun = replay or (lambda numbers: run_history(failure.seed, only=numbers, root=root).failure)
    deadline = time.monotonic() + seconds
    best = failure
    size = max(len(best.operations) // 2, 1)
    while time.monotonic() < deadline:
        start, is_shorter = 0, False
        while start < len(best.operations) and time.monotonic() < deadline:
            rest = best.operations[:start] + best.operations[start + size :]
            found = rerun(rest) if rest else None
            if found is not None and signature(found) == signature(failure):
                best, is_shorter = found, True
            else:
                start += size
        if size == 1 and not is_shorter:
            break
        size = max(size // 2, 1)
    return best


def signature(failure: Failure) -> str:
    """Return what stays the same when a history shrinks: the kind of failure without its numbers and names."""
    line = failure.reason.strip().splitlines()[-1 if failure.is_crash else 0]
    return re.sub(r"[0-9]+|'[^']*'|`[^`]*`|\b[a-z]\d\b", "", line)[:40]
