"""Delete old versions and orphan files, purge hard-dropped values, and first check that what is retained can be read.

The only destructive maintenance. Catalog versions are deleted before the dataset versions they refer to, and files
last, so that a crash never leaves a reference to a deleted object. All ages are measured by storage's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from omnigraph import failpoints
from omnigraph.display import count_of, summarize
from omnigraph.engine.arguments import check_type
from omnigraph.engine.authorization import GRAPH
from omnigraph.engine.maintain import at_once
from omnigraph.engine.maintain.purge import Purged, preview_purges, purge
from omnigraph.engine.maintain.retention import KeptStates, Policy, find_kept
from omnigraph.engine.session import GraphSession
from omnigraph.engine.tasks import report_progress
from omnigraph.errors import DriftDetected, GraphError, OmniGraphError, UsageError
from omnigraph.failpoints import Point
from omnigraph.limits import RESIDUE_AGE_SECONDS
from omnigraph.manifest.file_removal import Planner, RemovalPlan, delete_in_bulk, remove
from omnigraph.manifest.intents import CLEANUP, Declared, exclusive_intent
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, MANIFEST_PATH
from omnigraph.manifest.recovery import (
    Age,
    SweepReport,
    drop_empty_folders,
    find_strays,
    finish_postponed,
    preview_intents,
    read_time,
    settle,
    waiting_manifests,
)
from omnigraph.public_values import PublicValue, named
from omnigraph.store.objects.backend import ObjectInfo


@dataclass(frozen=True, slots=True)
class TypeCleaned(PublicValue):
    """The files of one dataset and its forks that were, or would be, deleted."""

    type_key: str
    versions_removed: int = field(default=0, metadata=named("old_versions_removed"))
    files_removed: int = 0
    bytes_removed: int = 0
    error: str | None = None
    error_code: str | None = None


@dataclass(frozen=True, slots=True)
class CleanupReport:
    """One row for each dataset; `swept` is what went, or would go, because nothing names it.

    `purged` is what was, or would be, overwritten because it was dropped for good.
    """

    keep: int | None
    older_than_seconds: float | None
    dry_run: bool
    datasets: tuple[TypeCleaned, ...]
    swept: SweepReport
    purged: tuple[Purged, ...] = ()

    @property
    def bytes_removed(self) -> int:
        return sum(dataset.bytes_removed for dataset in self.datasets) + self.swept.bytes_removed

    def __repr__(self) -> str:
        verb = "would be removed" if self.dry_run else "removed"
        files = self.swept.files_removed + sum(dataset.files_removed for dataset in self.datasets)
        errors = sum(dataset.error is not None for dataset in self.datasets)
        return summarize(
            self,
            f"{count_of(files, 'file')} of {self.bytes_removed:,} bytes {verb}",
            f"{count_of(errors, 'dataset')} with errors" if errors else None,
        )

    def to_json(self) -> dict[str, object]:
        return {
            "keep_versions": self.keep,
            "older_than_secs": self.older_than_seconds,
            "dry_run": self.dry_run,
            "datasets": [dataset.to_json() for dataset in self.datasets],
            "intents_rolled_forward": self.swept.rolled_forward,
            "intents_rolled_back": self.swept.rolled_back,
            "residue_files_removed": self.swept.files_removed,
            "residue_bytes_removed": self.swept.bytes_removed,
            "purged": [purged.to_json() for purged in self.purged],
        }


def cleanup(
    session: GraphSession, keep: int | None, older_than_seconds: float | None, *, dry_run: bool, confirm: bool
) -> CleanupReport:
    """Remove versions that are neither among the newest `keep` nor were current within `older_than_seconds`."""
    check_type("keep", keep, int | None)
    if keep is None and older_than_seconds is None:
        raise UsageError("cleanup needs a retention rule; pass `keep`, `older_than` or both")
    if keep == 0:
        raise UsageError("`keep` is 0, and the newest commit of each branch always stays; keep 1 or more", keep=keep)
    if (keep is not None and keep < 0) or (older_than_seconds is not None and older_than_seconds < 0):
        raise UsageError("`keep` and `older_than` cannot be negative")
    if dry_run and confirm:
        raise UsageError("`dry_run` and `confirm` contradict each other; pass one of them")
    if not dry_run and not confirm:
        raise UsageError(
            "cleanup deletes old versions for good, so it needs a confirmation. Nothing was deleted; pass"
            " `dry_run=True` to see what would go, or `confirm=True` to delete it"
        )
    session.require("admin", GRAPH)
    kernel = session.kernel
    if dry_run:
        _, swept, staged = preview_intents(kernel)
        planned = _plan(kernel, Policy(keep, older_than_seconds, read_time(kernel)))
        swept.add({info.path: info for info in (*staged, *planned.residue)}.values())
        rows = tuple(map(planned.row, planned.plans))
        return CleanupReport(keep, older_than_seconds, dry_run, rows, swept, preview_purges(kernel))
    kernel.reject_read_only()
    swept = SweepReport()
    settle(kernel, swept)
    # The intent is declared before reading, so that a concurrent tag or branch on an old commit detects this cleanup.
    with exclusive_intent(kernel.store, CLEANUP, kernel.snapshot(MAIN), session.actor) as intent:
        # Everything is read and checked before the first deletion; an error up to here has removed nothing.
        planned = _plan(kernel, Policy(keep, older_than_seconds, intent.now_us))
        failpoints.hit(Point.CLEANUP_DECIDED)
        rows = planned.remove(swept, intent)
        finish_postponed(kernel, swept)
        purged = purge(kernel, intent.now_us)
    kernel.store.objects.keep_reserve()
    return CleanupReport(keep, older_than_seconds, dry_run, rows, swept, purged)


def _plan(kernel: Kernel, policy: Policy) -> _Cleanup:
    """Plan the deletions, dataset by dataset; one of which something is missing keeps everything that it has."""
    # Mark and sweep over storage. The roots are the catalogs that the policy, tags, branch heads and live work keep;
    # the mark phase is `find_kept` and the planner. What no root reaches goes: versions at once, and files of no
    # version when they are older than any writer can stage.
    retained = find_kept(kernel, policy)
    age = Age.at(policy.now_us, retained.claims, RESIDUE_AGE_SECONDS)
    waiting = waiting_manifests(kernel, retained.snapshots, retained.listing)
    planner = Planner(kernel.store, retained.listing, age.may_go, waiting, {MANIFEST_PATH: retained.catalog_files})
    # Referrers are deleted before what they refer to.
    paths = sorted(retained.versions, key=lambda path: (path != MANIFEST_PATH, path))
    plans = planner.plan({path: retained.versions[path] for path in paths})
    return _Cleanup(kernel, retained, age, plans, find_strays(retained.listing, retained.versions, age))


@dataclass(frozen=True)
class _Cleanup:
    """The findings and decisions of one run."""

    kernel: Kernel
    kept: KeptStates
    age: Age
    plans: Sequence[RemovalPlan]
    strays: Sequence[ObjectInfo]

    @property
    def residue(self) -> list[ObjectInfo]:
        sound = [plan for plan in self.plans if self._refusal(plan) is None]
        return [*self.strays, *(info for plan in sound for info in plan.residue)]

    def remove(self, swept: SweepReport, intent: Declared) -> tuple[TypeCleaned, ...]:
        """Delete the planned files: the catalog's first, then those of all datasets in parallel."""
        catalog, *others = self.plans
        rows = [self._remove_one(catalog, intent)]
        finished = count(1)

        def report() -> None:
            report_progress("datasets cleaned", next(finished), len(self.plans))

        report()
        # Invariant: at every point in time, each catalog in storage finds all that it names. So catalogs go first, and
        # if they cannot, nothing else does.
        if rows[0].error is None:
            rows += self.kernel.store.in_parallel(
                [partial(self._remove_one, plan, intent, report) for plan in others], at_once()
            )
            delete_in_bulk(self.kernel.store, self.strays)
            swept.add(self.strays)
        else:
            # Files that an old catalog references are kept as long as the catalog.
            error = "the catalog comes first, and could not be cleaned"
            rows += [
                TypeCleaned(self.kept.names[plan.path], error=error, error_code=rows[0].error_code) for plan in others
            ]
        for plan, row in zip(self.plans, rows, strict=True):
            if row.error is None:
                swept.add(plan.residue)
        drop_empty_folders(self.kernel, self.kept.snapshots, self.age)
        return tuple(rows)

    def _remove_one(self, plan: RemovalPlan, intent: Declared, report: Callable[[], None] | None = None) -> TypeCleaned:
        """Delete the planned versions of one dataset and its forks; a failure affects this dataset only."""
        # If the lease expired, another process may have treated this cleanup as dead and referenced planned files.
        intent.reject_lost()
        row = self.row(plan)
        if row.error is None:
            try:
                remove(self.kernel.store, plan)
            except OmniGraphError as error:
                row = TypeCleaned(row.type_key, error=error.message, error_code=error.code)
        if report is not None:
            report()
        return row

    def row(self, plan: RemovalPlan) -> TypeCleaned:
        """Return the planned deletions of one dataset, or why there are none."""
        name, refusal = self.kept.names[plan.path], self._refusal(plan)
        if refusal is not None:
            return TypeCleaned(name, error=refusal.message, error_code=refusal.code)
        size = sum(info.size_bytes for info in plan.of_versions)
        return TypeCleaned(name, len(plan.gone), len(plan.of_versions), size)

    def _refusal(self, plan: RemovalPlan) -> OmniGraphError | None:
        if plan.path in self.kept.drifted:
            return DriftDetected("another tool wrote to it directly; run `omnigraph repair` first")
        if plan.path in self.kept.damaged:
            return self.kept.damaged[plan.path]
        if plan.missing is not None:
            return GraphError(
                f"`{plan.missing}` must stay, but is not where storage lists files; nothing of this dataset was"
                " removed. Try again once writers are done, and run `omnigraph verify` if it stays so",
                code="graph.corrupt",
                object=plan.missing,
            )
        return plan.error
