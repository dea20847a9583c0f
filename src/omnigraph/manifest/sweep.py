"""The sweep: finish what was published, remove what never was.

Idempotent, safe beside live writers of any process, and never in anybody's way: it removes only files that nothing
names, that no live intent claims, and that are older than any attempt could be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from omnigraph import clock, failpoints
from omnigraph.errors import DriftDetected
from omnigraph.failpoints import Point
from omnigraph.ids import BranchId
from omnigraph.limits import RESIDUE_AGE_SECONDS
from omnigraph.manifest import audit
from omnigraph.manifest.audit import AUDIT_PATH, Outcome
from omnigraph.manifest.commit_log import LOG_PATH
from omnigraph.manifest.init import CLAIM_PREFIX
from omnigraph.manifest.intent import Intent, pending
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import ADOPTED, MAIN, MANIFEST_PATH, Snapshot, fork_owner
from omnigraph.store.dataset import DatasetRef
from omnigraph.store.localobjects import TEMPORARY_PREFIX
from omnigraph.store.objects import ObjectInfo
from omnigraph.store.residue import fork_of, is_kept_by_lance, named_files


@dataclass
class SweepReport:
    """What a sweep did, and what it left alone because it could not judge it."""

    links_finished: int = 0
    rolled_forward: int = 0
    rolled_back: int = 0
    files_removed: int = 0
    bytes_removed: int = 0
    unreadable: list[str] = field(default_factory=list)
    drifted: list[str] = field(default_factory=list)


def sweep(kernel: Kernel, older_than_seconds: float = RESIDUE_AGE_SECONDS) -> SweepReport:
    """Finish links, resolve the intents of dead owners, and remove residue older than the given age."""
    report = SweepReport()
    snapshots = _snapshots(kernel)
    for snapshot in snapshots:
        try:
            report.links_finished += kernel.finish_links(snapshot)
        except DriftDetected as error:
            # A foreign tool stands where a published version belongs; that is for repair to settle, not for us.
            report.drifted.append(str(error.context["object"]))
    claimed = resolve_intents(kernel, report)
    if report.unreadable:
        # What an unreadable intent claims is unknown, so everything might be claimed.
        return report
    for residue in _old_residue(kernel, claimed, older_than_seconds):
        kernel.store.objects.delete(residue.path)
        report.files_removed += 1
        report.bytes_removed += residue.size_bytes
    return report


def preview(kernel: Kernel, older_than_seconds: float = RESIDUE_AGE_SECONDS) -> SweepReport:
    """Tell what a sweep would remove by age, without touching anything; the intents of the dead are left out."""
    intents, unreadable = pending(kernel.store)
    report = SweepReport(unreadable=unreadable)
    if not unreadable:
        claimed = [path for intent in intents for path in intent.paths]
        found = list(_old_residue(kernel, claimed, older_than_seconds))
        report.files_removed, report.bytes_removed = len(found), sum(one.size_bytes for one in found)
    return report


def _old_residue(kernel: Kernel, claimed: list[str], older_than_seconds: float) -> Iterator[ObjectInfo]:
    before_us = clock.now_us() - int(older_than_seconds * 1_000_000)
    for residue in _residue(kernel, _snapshots(kernel)):
        if residue.modified_us <= before_us and not residue.path.startswith(tuple(claimed)):
            yield residue


def resolve_intents(kernel: Kernel, report: SweepReport) -> list[str]:
    """Settle every dead intent and return the paths that live or unreadable ones claim."""
    intents, report.unreadable = pending(kernel.store)
    failpoints.hit(Point.SWEEP_LISTED, str(len(intents)))
    alive = [intent for intent in intents if not intent.is_dead]
    claimed = [path for intent in alive for path in intent.paths]
    for intent in intents:
        if intent not in alive:
            _resolve(kernel, intent, claimed, report)
    return claimed


def _resolve(kernel: Kernel, intent: Intent, claimed: list[str], report: SweepReport) -> None:
    live = {None, *(one.branch_id for one in kernel.snapshot(MAIN).state.branches.values())}
    commit_id = _published_as(kernel, intent) if intent.branch_id in live else None
    if commit_id is not None:
        outcome = Outcome.ROLLED_FORWARD
        report.rolled_forward += 1
    else:
        # Only what the intent itself named goes, and of that only what nobody has published or claimed since: the
        # same work may have been done again in the same place.
        for info in _residue(kernel, _snapshots(kernel)) if intent.paths else ():
            if info.path.startswith(intent.paths) and not info.path.startswith(tuple(claimed)):
                kernel.store.objects.delete(info.path)
                report.files_removed += 1
                report.bytes_removed += info.size_bytes
        outcome = Outcome.ROLLED_BACK if intent.branch_id in live else Outcome.ORPHANED_BRANCH_DISCARDED
        report.rolled_back += 1
    audit.record(kernel.store, intent, outcome, commit_id)
    kernel.store.objects.delete(intent.object_path)


def _published_as(kernel: Kernel, intent: Intent) -> str | None:
    for commit in kernel.history(kernel.name_of(intent.branch_id)):
        if commit.operation_id == intent.operation_id:
            return commit.commit_id
        if commit.branch == intent.branch_id and commit.manifest_version <= intent.base_version:
            return None
    return None


def _snapshots(kernel: Kernel) -> list[Snapshot]:
    main = kernel.snapshot(MAIN)
    return [main, *(kernel.snapshot(name) for name in sorted(main.state.branches))]


def _residue(kernel: Kernel, snapshots: list[Snapshot]) -> Iterator[ObjectInfo]:
    """Yield every file of the graph that no version of any live branch names, and half-written control objects."""
    files = kernel.store.objects.list("")
    # A graph that can be opened is born; whoever claimed its birth and died has nothing left to do.
    leftovers = (TEMPORARY_PREFIX, CLAIM_PREFIX)
    branch_ids = {snapshot.state.branch_id for snapshot in snapshots}
    links = {link for snapshot in snapshots for link in snapshot.links}
    waiting = {link.manifest for link in links if not kernel.store.has_version(link.ref)}
    known = {pin.path for snapshot in snapshots for pin in snapshot.state.pins.values()}
    known |= {one.path for snapshot in snapshots for one in snapshot.state.tombstones}
    adopted = _adopted_forks(kernel, branch_ids)
    owned: dict[str, list[ObjectInfo]] = {path: [] for path in (MANIFEST_PATH, LOG_PATH, AUDIT_PATH, *known)}
    for info in files:
        parts = info.path.split("/")
        dataset = "/".join(parts[:2]) if parts[0] in ("nodes", "edges") else parts[0]
        if dataset in owned:
            owned[dataset].append(info)
        elif parts[0] in ("nodes", "edges") or parts[-1].startswith(leftovers):
            yield info
    for path, inside in sorted(owned.items()):
        forks = {one for one in branch_ids if one} if path == MANIFEST_PATH else _live_forks(path, inside, snapshots)
        forks |= adopted & {fork_of(info.path, path) for info in inside}
        yield from _unnamed(kernel, path, inside, forks, waiting)


def _live_forks(path: str, files: list[ObjectInfo], snapshots: list[Snapshot]) -> set[str]:
    """Return the forks of a dataset that a live branch reads, or has ever published to."""
    pinned = {pin.fork for snapshot in snapshots for pin in snapshot.state.pins.values() if pin.path == path}
    live = {snapshot.state.branch_id for snapshot in snapshots}
    published: set[str] = set()
    for info in files:
        fork = fork_of(info.path, path)
        base = DatasetRef(path, fork, int((fork.split("-") + ["0"])[1] or 0))
        is_version = info.path.startswith(f"{base.directory}/_versions/") and info.path.endswith(".manifest")
        if fork_owner(fork) in live and is_version and info.path != base.manifest_path:
            published.add(fork)
    return {fork for fork in pinned | published if fork}


def _adopted_forks(kernel: Kernel, live: Collection[BranchId | None]) -> set[str]:
    """Return the forks that merges into live branches took over: they outlive the branches they were made for."""
    commits = (one for one in kernel.all_commits().values() if one.branch in live and ADOPTED in one.properties)
    return {fork for one in commits for fork in one.properties[ADOPTED].split(",")}


def _unnamed(
    kernel: Kernel, path: str, files: list[ObjectInfo], live_forks: Collection[str], waiting: set[str]
) -> Iterator[ObjectInfo]:
    named = waiting | named_files(kernel.store, path, None)
    for fork in live_forks:
        named |= named_files(kernel.store, path, fork)
    for info in files:
        fork = fork_of(info.path, path)
        is_dropped = bool(fork) and fork not in live_forks
        # A fork may read files of one that is no longer alive itself, so what is named stays wherever it lies.
        if info.path not in named and (is_dropped or not is_kept_by_lance(info.path, live_forks)):
            yield info
