"""The `maintenance` of a graph: indexes, compaction, repair, verification, cleanup and the audit log.

Methods import their part of the engine on use: most processes only read.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from omnigraph.engine.arguments import check_type
from omnigraph.engine.session import GraphSession
from omnigraph.manifest.model import MAIN

if TYPE_CHECKING:
    from omnigraph.engine.history import AuditEntry
    from omnigraph.engine.maintain.cleanup import CleanupReport
    from omnigraph.engine.maintain.optimize import IndexReport, IndexStatus, OptimizeReport
    from omnigraph.engine.maintain.reconcile import Reconciler, ReconcileReport
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
        from omnigraph.engine.maintain.optimize import ensure_indices

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
        from omnigraph.engine.maintain.optimize import list_indexes

        return list_indexes(self._session, branch)

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
        from omnigraph.engine.maintain.optimize import optimize

        return optimize(self._session.with_message(message), branch)

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
        from omnigraph.engine.maintain.reconcile import Reconciliation

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
        from omnigraph.engine.maintain.reconcile import Reconciler, Reconciliation

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
