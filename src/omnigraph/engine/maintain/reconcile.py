"""One round of automatic maintenance, run by at most one process at a time.

Finishes links, rolls back crashed operations, and optimizes types over a threshold. Deletes no version, and no files
except those of crashed operations.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Self

from omnigraph.engine.authorization import GRAPH
from omnigraph.engine.maintain.optimize import Effort, declared_indexes, optimize
from omnigraph.engine.session import GraphSession
from omnigraph.errors import BranchNotFound, DriftDetected, UsageError
from omnigraph.lang.catalog import EdgeType, NodeType, TypeKey
from omnigraph.limits import (
    RECONCILE_FRAGMENTS_MAX,
    RECONCILE_ROWS_MAX,
    RECONCILE_TYPES_MAX,
    RECONCILE_UNCOVERED_ROWS_MAX,
)
from omnigraph.manifest.intents import Busy, exclusive_intent
from omnigraph.manifest.model import MAIN, Snapshot
from omnigraph.manifest.recovery import SweepReport, finish_links, resolve_intents
from omnigraph.store.index import index_build
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.write.transaction import ROWS_PER_FILE

RECONCILE = "reconcile"


@dataclass(frozen=True, slots=True)
class ReconcileReport:
    """The outcome of one round; types are listed as `branch type`.

    `deferred` ones are due in the next round, `left` ones are too large and wait for `optimize`.
    """

    is_claimed: bool = False
    links_finished: int = 0
    rolled_forward: int = 0
    rolled_back: int = 0
    compacted: tuple[str, ...] = ()
    folded: tuple[str, ...] = ()
    deferred: int = 0
    left: tuple[str, ...] = ()
    drifted: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        names = ("links_finished", "rolled_forward", "rolled_back", "deferred")
        lists = ("compacted", "folded", "left", "drifted", "unreadable")
        return {
            "skipped": "claimed" if self.is_claimed else None,
            **{name: getattr(self, name) for name in names},
            **{name: list(getattr(self, name)) for name in lists},
        }


@dataclass(frozen=True, slots=True)
class _Due:
    """A type that is past a threshold; `effort` is None when it is too large to be dealt with here."""

    branch: str
    type_key: TypeKey
    effort: Effort | None

    def __str__(self) -> str:
        return f"{self.branch} {self.type_key}"


class Reconciliation:
    """Reconciles one graph repeatedly; types found in order are skipped until they change."""

    def __init__(self, session: GraphSession) -> None:
        session.require("admin", GRAPH)
        self._session = session
        self._in_order: set[DatasetRef] = set()

    def run(self) -> ReconcileReport:
        """Run one round; a no-op while another process runs one."""
        session, kernel = self._session, self._session.kernel
        # A policy may have changed since the last round.
        session.require("admin", GRAPH)
        kernel.reject_read_only()
        with ExitStack() as stack:
            try:
                stack.enter_context(exclusive_intent(kernel.store, RECONCILE, kernel.snapshot(MAIN), session.actor))
            except Busy as busy:
                return ReconcileReport(is_claimed=True, unreadable=busy.unreadable)
            swept = SweepReport()
            finish_links(kernel, swept)
            resolve_intents(kernel, swept)
            checked = list(self._due(session))
            due = [type_due for type_due in checked if type_due.effort is not None]
            selected = list(islice(due, RECONCILE_TYPES_MAX))
            compacted, folded = _optimize(session, selected)
        return ReconcileReport(
            False,
            swept.links_finished,
            swept.rolled_forward,
            swept.rolled_back,
            compacted,
            folded,
            len(due) - len(selected),
            tuple(str(type_due) for type_due in checked if type_due.effort is None),
            tuple(swept.drifted),
            tuple(swept.unreadable),
        )

    def _due(self, session: GraphSession) -> Iterator[_Due]:
        checked: set[DatasetRef] = set()
        for snapshot in session.kernel.live_snapshots():
            for type_ in session.catalog(snapshot).types:
                pin = snapshot.state.pins[type_.table_key]
                # Inherited data is maintained on the branch that owns it.
                if pin.owner != snapshot.state.branch_id and snapshot.branch != MAIN:
                    continue
                checked.add(pin.ref)
                if pin.ref in self._in_order:
                    continue
                try:
                    due = _judge(session, snapshot, type_)
                except DriftDetected:
                    # Reported with the links. Repair may settle it without another version, so it is not in order yet.
                    continue
                if due is None:
                    self._in_order.add(pin.ref)
                else:
                    yield due
        self._in_order &= checked


def _judge(session: GraphSession, snapshot: Snapshot, type_: NodeType | EdgeType) -> _Due | None:
    dataset = session.kernel.dataset(snapshot, type_.table_key)
    small = [rows for rows in dataset.fragment_rows if rows < ROWS_PER_FILE]
    uncovered = _uncovered_rows(dataset, type_)
    if len(small) > RECONCILE_FRAGMENTS_MAX:
        effort, rows = Effort.WHOLE, max(sum(small), uncovered)
    elif uncovered > RECONCILE_UNCOVERED_ROWS_MAX:
        effort, rows = Effort.INDEXES, uncovered
    else:
        return None
    return _Due(snapshot.branch, type_.table_key, effort if rows <= RECONCILE_ROWS_MAX else None)


def _uncovered_rows(dataset: Dataset, type_: NodeType | EdgeType) -> int:
    """Return the number of rows that the least complete index misses; indexes that cannot be built yet miss none."""
    specs = declared_indexes(type_)
    _, pending = index_build.missing(dataset, specs)
    waiting = {late.spec for late in pending}
    rows = (index_build.unindexed_rows(dataset, spec.column, spec.kind) for spec in specs if spec not in waiting)
    return max(rows, default=0)


def _optimize(session: GraphSession, due: list[_Due]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    optimized: dict[Effort, list[str]] = {Effort.WHOLE: [], Effort.INDEXES: []}
    for branch in dict.fromkeys(type_due.branch for type_due in due):
        efforts = {
            type_due.type_key: type_due.effort
            for type_due in due
            if type_due.branch == branch and type_due.effort is not None
        }
        try:
            report = optimize(session, branch, only=efforts)
        except BranchNotFound:
            # A branch that was deleted meanwhile needs no maintenance.
            continue
        for row in report.types:
            if row.committed:
                optimized[efforts[row.type_key]].append(f"{branch} {row.type_key}")
    return tuple(optimized[Effort.WHOLE]), tuple(optimized[Effort.INDEXES])


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
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start, beginning with a round; does nothing if started already."""
        if self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._work, name="omnigraph-reconciler", daemon=True)
            self._thread.start()

    def stop(self, timeout_seconds: float | None = None) -> None:
        """Stop after the current round; wait for it at most `timeout`, if given."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._stop.set()
            thread.join(timeout_seconds)

    def tick(self) -> None:
        """Run one round; a failure is counted and kept, and the next round retries."""
        try:
            report = self._run()
            with self._changed:
                self.last, self.last_error = report, None
                self.skipped += report.is_claimed
        except Exception as error:  # noqa: BLE001 - the thread would end unheard, and nothing be kept in order any more
            with self._changed:
                self.failures, self.last_error = self.failures + 1, error
        with self._changed:
            self.rounds += 1
            self._changed.notify_all()

    def pause(self) -> None:
        """Wait for the time of the next round, or until it is stopped."""
        self._stop.wait(self.every_seconds)

    def wait_for(self, rounds: int, timeout_seconds: float) -> bool:
        """Wait until `rounds` rounds have run; return False on timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: self.rounds >= rounds, timeout_seconds)

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
