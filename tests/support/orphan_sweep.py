"""Recovery and the removal of orphan files in one call, as a cleanup does it around the removal of old versions."""

from __future__ import annotations

from omnigraph.limits import RESIDUE_AGE_SECONDS
from omnigraph.manifest import recovery
from omnigraph.manifest.file_removal import delete_in_bulk, remove
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.recovery import Age, SweepReport


def sweep(kernel: Kernel, older_than_seconds: float = RESIDUE_AGE_SECONDS) -> SweepReport:
    """Finish links, resolve the intents of dead owners, and remove orphan files older than an age."""
    report = SweepReport()
    claims = recovery.settle(kernel, report)
    if report.unreadable:
        # What an unreadable intent claims is unknown, so any file might be claimed.
        return report
    # Claims were read before the snapshots, so long work that publishes in between is claimed or named by then; short
    # work declares no intent and is protected by its age.
    snapshots, age = kernel.live_snapshots(), Age.of(kernel, claims, older_than_seconds)
    plans, strays = recovery.plan_residue(kernel, snapshots, age)
    for plan in plans:
        if plan.error is not None or plan.missing is not None:
            report.disputed.append(plan.path)
            continue
        remove(kernel.store, plan)
        report.add([*plan.of_versions, *plan.residue])
    delete_in_bulk(kernel.store, strays)
    report.add(strays)
    recovery.drop_empty_folders(kernel, snapshots, age)
    return report
