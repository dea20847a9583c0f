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
    from omnigraph.engine.indexes import IndexReport, IndexStatus
    from omnigraph.engine.maintain.cleanup import CleanupReport
    from omnigraph.engine.maintain.optimize import OptimizeReport
    from omnigraph.engine.maintain.reconcile import Reconciler, ReconcileReport
    from omnigraph.engine.maintain.repair import RepairReport
    from omnigraph.engine.maintain.verify import VerifyReport


class Maintenance:
    """The maintenance of an open graph."""

    def __init__(self, session: GraphSession) -> None:
        self._session = session

    def ensure_indices(self, branch: str = MAIN) -> IndexReport:
        """Build every index that the schema declares and the data lacks, as one commit."""
        from omnigraph.engine.indexes import ensure_indices

        return ensure_indices(self._session, branch)

    def list_indices(self, branch: str = MAIN) -> list[IndexStatus]:
        """Return every index that the schema declares, and whether it is built."""
        from omnigraph.engine.indexes import list_indexes

        return list_indexes(self._session, branch)

    def optimize(self, branch: str = MAIN) -> OptimizeReport:
        """Compact every type of a branch and update its indexes, as one commit; deletes no files."""
        from omnigraph.engine.maintain.optimize import optimize

        return optimize(self._session, branch)

    def repair(
        self, branch: str = MAIN, *, confirm: bool = False, force: bool = False, discard: bool = False
    ) -> RepairReport:
        """Report versions that other tools wrote directly to the datasets, and with `confirm` resolve them.

        Args:
            branch: The branch to repair.
            confirm: Adopt verified maintenance of other tools, instead of only reporting.
            force: With `confirm`, adopt all foreign versions that the graph can read.
            discard: With `confirm`, discard foreign versions instead.
        """
        from omnigraph.engine.maintain.repair import repair

        return repair(self._session, branch, confirm=confirm, force=force, discard=discard)

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
        """
        from omnigraph.engine.history import list_audit

        return list_audit(self._session, kind=kind, by=actor, since=since, until=until, limit=limit)

    def verify(self, *, data: bool = False) -> VerifyReport:
        """Check that every branch and tag is readable and consistent, without changing anything.

        Args:
            data: Also compare the bytes of all files with the checksums recorded when they were written.
        """
        from omnigraph.engine.maintain.verify import verify

        return verify(self._session, data=data)

    def reconcile(self) -> ReconcileReport:
        """Run one maintenance round; a no-op while another process reconciles.

        Finishes pending links, rolls back crashed operations, and optimizes types over their thresholds.
        """
        from omnigraph.engine.maintain.reconcile import Reconciliation

        return Reconciliation(self._session).run()

    def reconciler(self, every: timedelta) -> Reconciler:
        """Return a background thread that runs `reconcile` at an interval; see `Reconciler`."""
        from omnigraph.engine.maintain.reconcile import Reconciler, Reconciliation

        check_type("every", every, timedelta)
        return Reconciler(Reconciliation(self._session).run, every.total_seconds())

    def cleanup(
        self, keep: int | None = None, older_than: timedelta | None = None, *, dry_run: bool = False
    ) -> CleanupReport:
        """Delete versions that are neither among the newest `keep` nor were current within `older_than`.

        Tags, branch points, merge bases, running operations and the last few minutes are always retained.
        """
        from omnigraph.engine.maintain.cleanup import cleanup

        check_type("older_than", older_than, timedelta | None)
        seconds = None if older_than is None else older_than.total_seconds()
        return cleanup(self._session, keep, seconds, dry_run=dry_run)
