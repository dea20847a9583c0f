"""The reconciler: rounds of reconciliation in the background of a long-lived process.

A daemon thread; it never fails its process. What it did last, and how often, can be asked at any time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from omnigraph.engine.maintain.reconcile import ReconcileReport
from omnigraph.errors import UsageError


class Reconciler:
    """Runs a round, waits, and runs the next; use it as a context manager, or with `start` and `stop`."""

    def __init__(self, run: Callable[[], ReconcileReport], every_seconds: float) -> None:
        if not every_seconds > 0:
            raise UsageError("a reconciler needs a positive pause between its rounds")
        self.every_seconds = every_seconds
        self.rounds = 0
        self.skipped = 0
        self.failures = 0
        self.last: ReconcileReport | None = None
        self.last_error: Exception | None = None
        self._run = run
        self._stop = threading.Event()
        self._told = threading.Condition()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin with a round at once; started already, it stays as it is."""
        if self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._work, name="omnigraph-reconciler", daemon=True)
            self._thread.start()

    def stop(self, timeout_seconds: float | None = None) -> None:
        """End after the round that is running; wait for it no longer than a time, if one is given."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._stop.set()
            thread.join(timeout_seconds)

    def tick(self) -> None:
        """Run one round now; a failure is counted and kept, for the next round to make good."""
        try:
            report = self._run()
            with self._told:
                self.last, self.last_error = report, None
                self.skipped += report.is_claimed
        except Exception as error:  # noqa: BLE001 - the thread would end unheard, and nothing be kept in order any more
            with self._told:
                self.failures, self.last_error = self.failures + 1, error
        with self._told:
            self.rounds += 1
            self._told.notify_all()

    def pause(self) -> None:
        """Wait for the time of the next round, or until it is stopped."""
        self._stop.wait(self.every_seconds)

    def wait_for(self, rounds: int, timeout_seconds: float) -> bool:
        """Wait until so many rounds were run in all; False when the time was over before."""
        with self._told:
            return self._told.wait_for(lambda: self.rounds >= rounds, timeout_seconds)

    def _work(self) -> None:
        while not self._stop.is_set():
            self.tick()
            self.pause()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
