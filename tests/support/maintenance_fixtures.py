"""What the tests of upkeep and of concurrent writers share: a later hour, and a handle as another process has it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import omnigraph as og
from omnigraph import clock
from omnigraph.graph import Graph, session_of
from omnigraph.manifest.commit_loop import BranchTurn


@contextmanager
def hours_later(hours: float = 2) -> Iterator[None]:
    """Let it be so much later: by our clock, by storage's, and by what has passed since the process began."""
    later_us = int(hours * 3_600_000_000)
    now, elapsed = clock.now_us() + later_us, clock.elapsed() + hours * 3_600
    with clock.replaced(lambda: now, lambda: elapsed, lambda modified_us: modified_us + later_us):
        yield


def elsewhere(graph: Graph) -> Graph:
    """Open the graph as another process would, whose writers do not wait for ours."""
    other = og.open(graph.uri)
    session_of(other).kernel.commit_loop._turns.put(None, BranchTurn())
    return other
