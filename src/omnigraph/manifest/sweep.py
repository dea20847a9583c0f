"""The sweep: finish what was published, remove what never was.

Idempotent, safe beside live writers of any process, and never in anybody's way: it removes only files that nothing
names, that no live intent claims, and that are older than any attempt could be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from math import inf

from omnigraph import clock, failpoints
from omnigraph.errors import DriftDetected
from omnigraph.failpoints import Point
from omnigraph.ids import BranchId, CommitId
from omnigraph.limits import CLOCK_SKEW_SECONDS, RESIDUE_AGE_SECONDS
from omnigraph.manifest import audit
from omnigraph.manifest.audit import AUDIT_PATH, AuditRow, Outcome
from omnigraph.manifest.commit_log import LOG_PATH
from omnigraph.manifest.init import CLAIM_PREFIX
from omnigraph.manifest.intent import Intent, pending
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, MANIFEST_PATH, Snapshot, fork_owner
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

    def count(self, outcome: Outcome) -> None:
        if outcome is Outcome.ROLLED_FORWARD:
            self.rolled_forward += 1
        else:
            self.rolled_back += 1


def sweep(kernel: Kernel, older_than_seconds: float = RESIDUE_AGE_SECONDS) -> SweepReport:
    """Finish links, resolve the intents of dead owners, and remove residue older than the given age."""
    report = SweepReport()
    finish_links(kernel, report)
    claims = resolve_intents(kernel, report)
    if report.unreadable:
        # What an unreadable intent claims is unknown, so everything might be claimed.
        return report
    snapshots, before_us = kernel.live_snapshots(), _before(older_than_seconds)
    for residue in _old_residue(kernel, snapshots, claims, before_us):
        _remove(kernel, residue, report)
    _drop_empty_folders(kernel, snapshots, claims, before_us)
    return report


def preview(kernel: Kernel, older_than_seconds: float = RESIDUE_AGE_SECONDS) -> SweepReport:
    """Tell what a sweep would do about intents and residue, without touching anything."""
    intents, unreadable = pending(kernel.store)
    report = SweepReport(unreadable=unreadable)
    claims = Claims.of(intents)
    gone: dict[str, ObjectInfo] = {}
    for intent in intents:
        if intent.is_dead:
            outcome, _ = _judge(kernel, intent)
            report.count(outcome)
            gone |= {one.path: one for one in _staged_by(kernel, intent, outcome, claims)}
    if not unreadable:
        old = _old_residue(kernel, kernel.live_snapshots(), claims, _before(older_than_seconds))
        gone |= {one.path: one for one in old}
    report.files_removed, report.bytes_removed = len(gone), sum(one.size_bytes for one in gone.values())
    return report


@dataclass(frozen=True, slots=True)
class Claims:
    """What live work may still need: the files it names, and all that was written since the oldest of it began."""

    paths: tuple[str, ...] = ()
    since_us: int | None = None

    @classmethod
    def of(cls, intents: list[Intent]) -> Claims:
        alive = [one for one in intents if not one.is_dead]
        paths = tuple(path for one in alive for path in one.paths)
        return cls(paths, min((one.started_at_us for one in alive), default=None))

    @property
    def young_us(self) -> float:
        """From when on anything might belong to live work; storage may have dated it by another clock."""
        return inf if self.since_us is None else self.since_us - CLOCK_SKEW_SECONDS * 1_000_000

    def spares(self, info: ObjectInfo) -> bool:
        """Tell whether a file might belong to live work."""
        return info.modified_us >= self.young_us or info.path.startswith(self.paths)


def finish_links(kernel: Kernel, report: SweepReport) -> None:
    """Put what every branch has published in its place by path."""
    for snapshot in kernel.live_snapshots():
        try:
            report.links_finished += kernel.finish_links(snapshot)
        except DriftDetected as error:
            # A foreign tool stands where a published version belongs; that is for repair to settle, not for us.
            report.drifted.append(str(error.context["object"]))


def resolve_intents(kernel: Kernel, report: SweepReport) -> Claims:
    """Settle every dead intent, and return what live ones claim."""
    intents, report.unreadable = pending(kernel.store)
    failpoints.hit(Point.SWEEP_LISTED, str(len(intents)))
    claims = Claims.of(intents)
    for intent in intents:
        if intent.is_dead:
            _resolve(kernel, intent, claims, report)
    return claims


def _before(seconds: float) -> int:
    return clock.now_us() - int(seconds * 1_000_000)


def _old_residue(kernel: Kernel, snapshots: list[Snapshot], claims: Claims, before_us: int) -> Iterator[ObjectInfo]:
    for residue in _residue(kernel, snapshots):
        if residue.modified_us <= before_us and not claims.spares(residue):
            yield residue


def _drop_empty_folders(kernel: Kernel, snapshots: list[Snapshot], claims: Claims, before_us: int) -> None:
    """Remove what branches, types and indexes leave on a disk when all of their files are gone."""
    pins = [pin for snapshot in snapshots for pin in snapshot.state.pins.values()]
    folders = {"nodes", "edges", f"{MANIFEST_PATH}/tree", *(f"{pin.path}/tree" for pin in pins)}
    folders |= {f"{directory}/_indices" for pin in pins for directory in (pin.path, pin.ref.directory)}
    for folder in sorted(folders):
        kernel.store.objects.drop_empty(folder, int(min(before_us, claims.young_us)))


def _remove(kernel: Kernel, info: ObjectInfo, report: SweepReport) -> None:
    kernel.store.objects.delete(info.path)
    report.files_removed += 1
    report.bytes_removed += info.size_bytes


def _resolve(kernel: Kernel, intent: Intent, claims: Claims, report: SweepReport) -> None:
    outcome, commit_id = _judge(kernel, intent)
    report.count(outcome)
    for info in _staged_by(kernel, intent, outcome, claims):
        _remove(kernel, info, report)
    audit.record(kernel.store, AuditRow(intent.operation_id, outcome, commit_id, intent.actor, intent.kind))
    kernel.store.objects.delete(intent.object_path)


def _judge(kernel: Kernel, intent: Intent) -> tuple[Outcome, CommitId | None]:
    live = {None, *(one.branch_id for one in kernel.snapshot(MAIN).state.branches.values())}
    if intent.branch_id not in live:
        return Outcome.ORPHANED_BRANCH_DISCARDED, None
    commit_id = _published_as(kernel, intent)
    return (Outcome.ROLLED_BACK if commit_id is None else Outcome.ROLLED_FORWARD), commit_id


def _staged_by(kernel: Kernel, intent: Intent, outcome: Outcome, claims: Claims) -> list[ObjectInfo]:
    """Return what goes with a dead intent: only what it named, and of that only what nobody publishes or claims.

    The same work may have been done again in the same place.
    """
    if outcome is Outcome.ROLLED_FORWARD or not intent.paths:
        return []
    found = [one for one in _residue(kernel, kernel.live_snapshots()) if one.path.startswith(intent.paths)]
    return [one for one in found if not one.path.startswith(claims.paths)]


def _published_as(kernel: Kernel, intent: Intent) -> CommitId | None:
    for commit in kernel.history(kernel.name_of(intent.branch_id)):
        if commit.operation_id == intent.operation_id:
            return commit.commit_id
        if commit.branch == intent.branch_id and commit.manifest_version <= intent.base_version:
            return None
    return None


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
    commits = (one for one in kernel.all_commits().values() if one.branch in live)
    return {fork for one in commits for fork in one.adopted_forks}


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
