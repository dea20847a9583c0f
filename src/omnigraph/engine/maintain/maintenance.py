"""The `maintenance` of a graph: its public methods, and automatic rounds, run by at most one process at a time.

Methods import what only they need on use: most processes only read. A round finishes links, rolls back crashed
operations, and optimizes types over a threshold. It deletes no version, and only the files of crashed operations.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Self

from omnigraph.engine.arguments import check_type
from omnigraph.engine.authorization import GRAPH
from omnigraph.engine.maintain.optimize import (
    IN_TURN,
    Effort,
    IndexReport,
    IndexStatus,
    OptimizeReport,
    declared_indexes,
    ensure_indices,
    list_indexes,
    optimize,
)
from omnigraph.engine.session import GraphSession, reports_progress
from omnigraph.errors import BranchNotFound, DriftDetected, GraphError, StorageError, UsageError
from omnigraph.lang.catalog import Type, TypeKey
from omnigraph.limits import (
    MAINTAIN_LOCAL_BYTES_MAX,
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

if TYPE_CHECKING:
    from omnigraph.engine.history import AuditEntry
    from omnigraph.engine.maintain.cleanup import CleanupReport
    from omnigraph.engine.maintain.repair import RepairReport
    from omnigraph.engine.maintain.verify import VerifyReport


class Maintenance:
    """The maintenance of an open graph."""

    def __init__(self, session: GraphSession) -> None:
        self._session = session

    def ensure_indices(self, branch: str = MAIN, *, message: str | None = None) -> IndexReport:
        """Build every index that the schema declares and the data lacks, as one commit.

        Args:
            branch: The branch.
            message: What the commit is for, shown in its history.

        Returns:
            The indexes that were built, and those that wait for data.

        Raises:
            BranchNotFound: There is no such branch.

        Example:
            >>> graph.maintenance.ensure_indices().branch
            'main'
        """
        return ensure_indices(self._session.with_message(message), branch)

    def list_indices(self, branch: str = MAIN) -> list[IndexStatus]:
        """Return every index that the schema declares, and whether it is built.

        Args:
            branch: The branch.

        Returns:
            The indexes with their state.

        Raises:
            BranchNotFound: There is no such branch.

        Example:
            >>> {index.property for index in graph.maintenance.list_indices()} >= {"id", "name"}
            True
        """
        return list_indexes(self._session, branch)

    @reports_progress
    def optimize(self, branch: str = MAIN, *, message: str | None = None) -> OptimizeReport:
        """Compact every type of a branch and update its indexes, as one commit; deletes no files.

        Args:
            branch: The branch.
            message: What the commit is for, shown in its history.

        Returns:
            What was compacted by type, and the commit, if there was anything to do.

        Raises:
            BranchNotFound: There is no such branch.
            ConflictError: Concurrent writers won several times; nothing was written, retry later.

        Example:
            >>> len(graph.maintenance.optimize().types)
            2
        """
        session = self._session.with_message(message)
        session.kernel.reject_read_only()
        session.runners.require()
        by_size = session.runners.by_size
        return optimize(session, branch, lambda size: by_size(size, MAINTAIN_LOCAL_BYTES_MAX, IN_TURN))

    def repair(
        self,
        branch: str = MAIN,
        *,
        confirm: bool = False,
        force: bool = False,
        discard: bool = False,
        message: str | None = None,
    ) -> RepairReport:
        """Report versions that other tools wrote directly to the datasets, and with `confirm` resolve them.

        Args:
            branch: The branch to repair.
            confirm: Adopt verified maintenance of other tools, instead of only reporting.
            force: With `confirm`, adopt all foreign versions that the graph can read.
            discard: With `confirm`, discard foreign versions instead.
            message: What the commit is for, shown in its history.

        Returns:
            One row for each type, and the commit, if anything was adopted.

        Raises:
            UsageError: `force` or `discard` without `confirm`, or both.
            BranchNotFound: There is no such branch.

        Example:
            >>> graph.maintenance.repair().is_refused
            False
        """
        from omnigraph.engine.maintain.repair import repair

        session = self._session.with_message(message)
        return repair(session, branch, confirm=confirm, force=force, discard=discard)

    def audit(
        self,
        *,
        kind: str | None = None,
        actor: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> list[AuditEntry]:
        """Return audit entries (recoveries, repairs, discards and upgrades), newest first.

        Args:
            kind: Only `rolled_forward`, `rolled_back`, `branch_discarded`, `repaired`, `discarded` or `upgraded`.
            actor: Only entries about the work of this actor.
            since: Only entries at or after this time.
            until: Only entries before this time.
            limit: The maximum number of entries.

        Returns:
            The entries.

        Raises:
            UsageError: The kind is unknown.
            PolicyDenied: The actor may not administer the graph.

        Example:
            >>> graph.maintenance.audit(limit=10)
            []
        """
        from omnigraph.engine.history import list_audit

        return list_audit(self._session, kind=kind, by=actor, since=since, until=until, limit=limit)

    @reports_progress
    def verify(self, *, data: bool = False) -> VerifyReport:
        """Check that every branch and tag is readable and consistent, without changing anything.

        Args:
            data: Also compare the bytes of all files with the checksums recorded when they were written.

        Returns:
            All findings, and the size of unreferenced files.

        Raises:
            PolicyDenied: The actor may not administer the graph.
            StorageError: The storage cannot be read.

        Example:
            >>> graph.maintenance.verify(data=True).is_sound
            True
        """
        from omnigraph.engine.maintain.verify import verify

        return verify(self._session, data=data)

    def reconcile(self) -> ReconcileReport:
        """Run one maintenance round; a no-op while another process reconciles.

        Finishes pending links, rolls back crashed operations, and optimizes types over their thresholds.

        Returns:
            What was done in this round.

        Raises:
            PolicyDenied: The actor may not administer the graph.

        Example:
            >>> graph.maintenance.reconcile().rolled_back
            0
        """
        return Reconciliation(self._session).run()

    def reconciler(self, every: timedelta) -> Reconciler:
        """Return a background thread that runs `reconcile` at an interval.

        Args:
            every: The interval.

        Returns:
            A `Reconciler`: `start()` it, and `stop()` it before closing the graph.

        Raises:
            UsageError: `every` is not a `timedelta`.

        Example:
            >>> from datetime import timedelta
            >>> reconciler = graph.maintenance.reconciler(timedelta(minutes=5))
        """
        check_type("every", every, timedelta)
        return Reconciler(Reconciliation(self._session).run, every.total_seconds())

    def cleanup(
        self,
        keep: int | None = None,
        older_than: timedelta | None = None,
        *,
        dry_run: bool = False,
        confirm: bool = False,
    ) -> CleanupReport:
        """Delete versions that are neither among the newest `keep` nor were current within `older_than`.

        Tags, branch points, merge bases, running operations and the last few minutes are always retained. What is
        deleted cannot be restored, so a call says which of the two it wants: `dry_run` or `confirm`.

        Args:
            keep: How many of the newest versions of each type to keep.
            older_than: Delete only versions that stopped being current this long ago.
            dry_run: Report what would be deleted, without deleting it.
            confirm: Delete.

        Returns:
            What was deleted by dataset, and the bytes that it took.

        Raises:
            UsageError: Neither `keep` nor `older_than` is set, or not exactly one of `dry_run` and `confirm`.
            PolicyDenied: The actor may not administer the graph.

        Example:
            >>> graph.maintenance.cleanup(keep=10, dry_run=True).bytes_removed
            0
        """
        from omnigraph.engine.maintain.cleanup import cleanup

        check_type("older_than", older_than, timedelta | None)
        seconds = None if older_than is None else older_than.total_seconds()
        return cleanup(self._session, keep, seconds, dry_run=dry_run, confirm=confirm)


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
        self._unreadable: list[str] = []

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
            self._unreadable = []
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
            (*swept.unreadable, *self._unreadable),
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
                except (GraphError, StorageError) as error:
                    if isinstance(error, StorageError) and error.retryable:
                        raise
                    self._unreadable.append(f"{snapshot.branch} {type_.table_key}")
                    continue
                if due is None:
                    self._in_order.add(pin.ref)
                else:
                    yield due
        self._in_order &= checked


def _judge(session: GraphSession, snapshot: Snapshot, type_: Type) -> _Due | None:
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


def _uncovered_rows(dataset: Dataset, type_: Type) -> int:
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
