"""Background maintenance of the graphs of a server; follows a cluster, whose graphs come and go while it serves."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from omnigraph.engine.maintain.maintenance import Maintenance
from omnigraph.engine.maintain.reconcile import Reconciler
from omnigraph.graph import Graph, session_of
from omnigraph.limits import SERVER_CANCEL_SECONDS_MAX


class Reconcilers:
    """A reconciler for each served graph; none without an interval."""

    def __init__(self, every: timedelta | None = None) -> None:
        self._every = every
        self._running: dict[Graph, Reconciler] = {}
        # Of graphs that are no longer served.
        self._ended_rounds = 0
        self._ended_failures = 0

    @property
    def rounds(self) -> int:
        """The rounds of all graphs so far."""
        return self._ended_rounds + sum(item.rounds for item in self._running.values())

    @property
    def failures(self) -> int:
        """The rounds that failed."""
        return self._ended_failures + sum(item.failures for item in self._running.values())

    def follow(self, graphs: Iterable[Graph]) -> None:
        """Maintain these graphs and no others."""
        if self._every is None:
            return
        served = set(graphs)
        for graph in self._running.keys() - served:
            reconciler = self._running.pop(graph)
            reconciler.stop(SERVER_CANCEL_SECONDS_MAX)
            self._ended_rounds += reconciler.rounds
            self._ended_failures += reconciler.failures
        for graph in served - self._running.keys():
            # It has no actor, so no policy applies.
            reconciler = Maintenance(session_of(graph).without_policy()).reconciler(self._every)
            self._running[graph] = reconciler
            reconciler.start()

    def stop(self) -> None:
        """Stop all of them, and wait a moment for the rounds that run."""
        for reconciler in self._running.values():
            reconciler.stop(SERVER_CANCEL_SECONDS_MAX)
