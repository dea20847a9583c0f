"""Faults of earlier releases, put back one by one: the world must find each of them.

`python -m tests.world.mutants` runs all of them and prints after how many operations each was found.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

from omnigraph.engine import exact_conversion
from omnigraph.engine.maintain import retention
from omnigraph.engine.merge import row_merge, three_way
from omnigraph.engine.write import ingest, write_authorization
from omnigraph.pipeline.bulk_load import column_mapping
from tests.world.generator import Failure, run_history
from tests.world.known import KNOWN

# A module or class, the name of what is replaced, and by what.
Patch = tuple[Any, str, Any]
HISTORIES_MAX = 20


def _convert_anything(column: Any, type_: Any) -> Any:
    return np.zeros(len(column), bool)


def _divide_decimals(decimals: Any) -> Any:
    return decimals.cast(pa.float64())


def _see_everything(session: Any, snapshot: Any, _: Any) -> Any:
    return session.full_view_of(snapshot)


def _loses_nothing(decimals: Any, floats: Any) -> Any:
    return np.zeros(len(decimals), bool)


MUTANTS: dict[str, list[Patch]] = {
    # A cherry-pick narrows values unchecked.
    "V1": [(module, "find_inexact", _convert_anything) for module in (exact_conversion, three_way)],
    # Cleanup forgets merge bases that lie on deleted branches.
    "V2": [
        (retention.KeptStates, "_keep_deleted_branches", lambda *_: {}),
        (retention, "check_mergeable", lambda *_: None),
    ],
    # Patterns of mutations match types that the actor does not see.
    "F1": [(write_authorization, "readable_view", _see_everything)],
    # Decimals become floats that are not the nearest.
    "P1": [
        patch
        for module in (ingest, column_mapping)
        for patch in ((module, "floats_of_decimals", _divide_decimals), (module, "loses_digits", _loses_nothing))
    ],
    # A merge of two lists loses what the other side added.
    "union": [(row_merge, "union_lists", lambda base, ours, theirs: ours)],
}
# Faults that this code still has: without their entry in KNOWN the world finds them.
LIVE = ("V3", "V4", "V5", "V7", "W1", "X-2", "X-3")


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """Put a fault back, or stop making allowance for one that is there."""
    if name in KNOWN:
        KNOWN.discard(name)
        try:
            yield
        finally:
            KNOWN.add(name)
        return
    patches = [mock.patch.object(target, attribute, new) for target, attribute, new in MUTANTS[name]]
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in patches:
            one.stop()


def hunt(
    name: str, *, root: Path | None = None, histories: int = HISTORIES_MAX, report: Callable[[str], None] = print
) -> Failure | None:
    """Run histories until one finds the mutant."""
    operations, started = 0, time.process_time()
    with mutated(name):
        for seed in range(1, histories + 1):
            result = run_history(seed, root=root)
            operations += result.operations
            if result.failure is not None:
                reason = result.failure.reason.strip().splitlines()
                seconds = time.process_time() - started
                report(f"{name}: found after {operations} operations, {seconds:.0f} s (seed {seed}): {reason[0][:150]}")
                report(f"    {reason[-1][:200]}")
                return result.failure
    report(f"{name}: not found in {operations} operations")
    return None


def main() -> int:
    names = sys.argv[1:] or [*MUTANTS, *(one for one in LIVE if one in KNOWN)]
    return sum(hunt(name) is None for name in names)


if __name__ == "__main__":
    sys.exit(main())
