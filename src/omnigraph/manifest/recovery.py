"""Recovery: finish links of published versions, resolve dead intents, and find orphan files; and the audit of it.

Mark and sweep, idempotent and safe beside live writers of any process: a file is an orphan if no version of a live
branch names it, no live intent claims it, and it is older than anything that a writer may still be staging.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Final

import pyarrow as pa

from omnigraph import clock, failpoints
from omnigraph.errors import DriftDetected, OmniGraphError, StorageError, StorageKind
from omnigraph.failpoints import Point
from omnigraph.ids import BranchId, CommitId, OperationId
from omnigraph.limits import CLOCK_SKEW_SECONDS, RESIDUE_AGE_SECONDS
from omnigraph.manifest.create import CLAIM_PREFIX
from omnigraph.manifest.file_removal import KeptVersions, Listing, Planner, RemovalPlan, delete_in_bulk
from omnigraph.manifest.history import LOG_PATH
from omnigraph.manifest.intents import CLEANUP, Intent, path_of, pending
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.locks import CLAIMS_FOLDER
from omnigraph.manifest.model import MAIN, MANIFEST_PATH, Snapshot, fork_owner
from omnigraph.store import append_log
from omnigraph.store.files.reachability import StoredManifest, dataset_of
from omnigraph.store.objects.backend import ObjectInfo
from omnigraph.store.objects.local_objects import TEMPORARY_PREFIX
from omnigraph.store.store import Store

AUDIT_PATH = "_graph_commit_recoveries.lance"

_AUDIT_FIELDS: list[pa.Field[pa.DataType]] = [
    pa.field("graph_commit_id", pa.string()),
    pa.field("recovery_kind", pa.string(), nullable=False),
    pa.field("recovery_for_actor", pa.string()),
    pa.field("operation_id", pa.string(), nullable=False),
    pa.field("writer_kind", pa.string(), nullable=False),
    pa.field("created_at", pa.int64(), nullable=False),
]
_AUDIT_SCHEMA = pa.schema(_AUDIT_FIELDS)


class Outcome(StrEnum):
    ROLLED_FORWARD = "RolledForward"
    ROLLED_BACK = "RolledBack"
    ORPHANED_BRANCH_DISCARDED = "OrphanedBranchDiscarded"
    REPAIRED = "Repaired"
    UPGRADED = "Upgraded"


@dataclass(frozen=True, slots=True)
class AuditRow:
    operation_id: str
    outcome: Outcome
    commit_id: str | None
    actor: str | None
    kind: str
    created_at_us: int = field(default_factory=clock.now_us)


def record_outcome(store: Store, row: AuditRow) -> None:
    """Write a row, unless its operation has one: an earlier sweep may have died right after writing it."""
    if any(earlier.operation_id == row.operation_id for earlier in read_audit(store)):
        return
    values = [row.commit_id, row.outcome.value, row.actor, row.operation_id, row.kind, row.created_at_us]
    arrays = [pa.array([value], column.type) for value, column in zip(values, _AUDIT_SCHEMA, strict=True)]
    append_log.append(store, AUDIT_PATH, pa.Table.from_arrays(arrays, schema=_AUDIT_SCHEMA))


def read_audit(store: Store) -> list[AuditRow]:
    """Return the whole audit, oldest first."""
    table = append_log.read(store, AUDIT_PATH)
    if table is None:
        return []
    return [
        AuditRow(
            row["operation_id"],
            Outcome(row["recovery_kind"]),
            row["graph_commit_id"],
            row["recovery_for_actor"],
            row["writer_kind"],
            row["created_at"],
        )
        for row in table.to_pylist()
    ]


# Later than any time that storage knows.
NEVER_US: Final = 1 << 62


@dataclass
class SweepReport:
    """What a sweep did, and what it skipped because it could not be judged."""

    links_finished: int = 0
    rolled_forward: int = 0
    rolled_back: int = 0
    files_removed: int = 0
    bytes_removed: int = 0
    unreadable: list[str] = field(default_factory=list)
    drifted: list[str] = field(default_factory=list)
    disputed: list[str] = field(default_factory=list)
    # What could not be finished because the disk is full; it can be as soon as there is room.
    postponed: list[AuditRow] = field(default_factory=list)

    def add(self, removed: Collection[ObjectInfo]) -> None:
        self.files_removed += len(removed)
        self.bytes_removed += sum(info.size_bytes for info in removed)

    def count(self, outcome: Outcome) -> None:
        if outcome is Outcome.ROLLED_FORWARD:
            self.rolled_forward += 1
        else:
            self.rolled_back += 1


def settle(kernel: Kernel, report: SweepReport) -> Claims:
    """Finish links and resolve the intents of dead owners; return what live ones claim."""
    finish_links(kernel, report)
    return resolve_intents(kernel, report)


def preview(kernel: Kernel, older_than_seconds: float = RESIDUE_AGE_SECONDS) -> SweepReport:
    """Report what a sweep would do about intents and orphan files, without changing anything."""
    intents, report, staged = preview_intents(kernel)
    removed = {info.path: info for info in staged}
    if not report.unreadable:
        age = Age.of(kernel, Claims.of(intents), older_than_seconds)
        plans, strays = plan_residue(kernel, kernel.live_snapshots(), age)
        removed |= {info.path: info for info in (*strays, *(info for plan in plans for info in plan.objects))}
    report.add(removed.values())
    return report


def preview_intents(kernel: Kernel) -> tuple[list[Intent], SweepReport, list[ObjectInfo]]:
    """Return all intents, the outcomes of the dead ones, and the files that would be removed with them."""
    intents, unreadable = pending(kernel.store)
    report = SweepReport(unreadable=unreadable)
    claims, staged = Claims.of(intents), list[ObjectInfo]()
    for intent in intents:
        if intent.is_dead:
            outcome, _ = _judge(kernel, intent)
            report.count(outcome)
            staged += _staged_by(kernel, intent, outcome, claims)
    return intents, report, staged


def read_time(kernel: Kernel) -> int:
    """Return storage's time for a preview.

    Reading it needs a write. Where that is not possible, the clock of this machine has to do, unless storage holds a
    file that is newer: a preview deletes nothing.
    """
    if not kernel.read_only:
        try:
            return kernel.store.objects.read_time()
        except StorageError as error:
            if error.storage_kind in (StorageKind.TRANSIENT, StorageKind.CONFIGURATION):
                raise
    newest_us = max((info.modified_us for info in kernel.store.objects.list("")), default=0)
    return max(clock.now_us(), clock.storage_us(newest_us))


@dataclass(frozen=True, slots=True)
class Claims:
    """What live work may still need: the files it names, and all files written since the oldest of it began."""

    paths: tuple[str, ...] = ()
    since_us: int | None = None

    @classmethod
    def of(cls, intents: list[Intent]) -> Claims:
        alive = [intent for intent in intents if not intent.is_dead]
        paths = tuple(path for intent in alive for path in intent.paths)
        return cls(paths, min((intent.began_us for intent in alive), default=None))

    @property
    def young_us(self) -> float:
        """Files modified since then might belong to live work; storage's timestamps are coarse and may be late."""
        # An owner writes its intent before its first file, so all its files are at least as young as the oldest live
        # intent.
        return inf if self.since_us is None else self.since_us - CLOCK_SKEW_SECONDS * 1_000_000

    def spares(self, info: ObjectInfo) -> bool:
        """Return True if a file might belong to live work."""
        return info.modified_us >= self.young_us or info.path.startswith(self.paths)


@dataclass(frozen=True, slots=True)
class Age:
    """Which orphan files are old enough to be removed, and unclaimed: all by storage's clock."""

    claims: Claims
    before_us: int

    @classmethod
    def of(cls, kernel: Kernel, claims: Claims, seconds: float) -> Age:
        # Every file is older than zero seconds, so storage's time is not needed.
        return cls(claims, NEVER_US) if seconds <= 0 else cls.at(read_time(kernel), claims, seconds)

    @classmethod
    def at(cls, now_us: int, claims: Claims, seconds: float) -> Age:
        return cls(claims, now_us - int(seconds * 1_000_000))

    def may_go(self, info: ObjectInfo) -> bool:
        return info.modified_us <= self.before_us and not self.claims.spares(info)


def finish_links(kernel: Kernel, report: SweepReport) -> None:
    """Link what every branch has published."""
    for snapshot in kernel.live_snapshots():
        try:
            report.links_finished += kernel.finish_links(snapshot)
        except DriftDetected as error:
            # Another tool wrote to the path of a published version; `repair` resolves that.
            report.drifted.append(str(error.context["object"]))
        except StorageError as error:
            # A published version is complete without its link, and a link can need a block of the disk.
            if error.storage_kind is not StorageKind.FULL:
                raise


def resolve_intents(kernel: Kernel, report: SweepReport, *, spared: Collection[str] = ()) -> Claims:
    """Resolve every dead intent but those of the spared kinds; return what live ones claim."""
    intents, report.unreadable = pending(kernel.store)
    failpoints.hit(Point.SWEEP_LISTED, str(len(intents)))
    claims = Claims.of(intents)
    for intent in intents:
        if intent.is_dead and intent.kind not in spared:
            _resolve(kernel, intent, claims, report)
    return claims


def sweep_dead_intents(kernel: Kernel) -> None:
    """Resolve what dead operations left, when a graph is opened; a failure is left to the next open or cleanup."""
    # A dead cleanup has staged nothing. On a full disk only the next cleanup can make room to record its outcome.
    with suppress(OmniGraphError):
        resolve_intents(kernel, SweepReport(), spared={CLEANUP})


def drop_empty_folders(kernel: Kernel, snapshots: list[Snapshot], age: Age) -> None:
    """Remove the empty folders of deleted branches, types and indexes on a disk."""
    pins = [pin for snapshot in snapshots for pin in snapshot.state.pins.values()]
    folders = {"nodes", "edges", CLAIMS_FOLDER, f"{MANIFEST_PATH}/tree", *(f"{pin.path}/tree" for pin in pins)}
    # Indexes and larger blobs have their own folders.
    directories = {directory for pin in pins for directory in (pin.path, pin.ref.directory)}
    folders |= {f"{directory}/{inside}" for directory in directories for inside in ("_indices", "data")}
    for folder in sorted(folders):
        kernel.store.objects.drop_empty(folder, int(min(age.before_us, age.claims.young_us)))


def _resolve(kernel: Kernel, intent: Intent, claims: Claims, report: SweepReport) -> None:
    outcome, commit_id = _judge(kernel, intent)
    report.count(outcome)
    staged = _staged_by(kernel, intent, outcome, claims)
    delete_in_bulk(kernel.store, staged)
    report.add(staged)
    # Order of undo: files first, then the audit row, then the intent. A crash at any step leaves the intent, and the
    # next sweep repeats the steps, each of which is idempotent.
    row = AuditRow(intent.operation_id, outcome, commit_id, intent.actor, intent.kind)
    try:
        record_outcome(kernel.store, row)
    except StorageError as error:
        if error.storage_kind is not StorageKind.FULL:
            raise
        report.postponed.append(row)
        if intent.kind != CLEANUP:
            # The intent stays until its outcome is recorded; meanwhile it blocks nothing.
            return
        # Its reserve is needed by the next cleanup.
    kernel.store.objects.delete_into_reserve(intent.object_path)


def finish_postponed(kernel: Kernel, report: SweepReport) -> None:
    """Record postponed outcomes of dead intents, now that there may be space for them."""
    for row in report.postponed:
        with suppress(StorageError):
            record_outcome(kernel.store, row)
            kernel.store.objects.delete_into_reserve(path_of(OperationId(row.operation_id)))
    report.postponed.clear()


def _judge(kernel: Kernel, intent: Intent) -> tuple[Outcome, CommitId | None]:
    live = {None, *(branch.branch_id for branch in kernel.snapshot(MAIN).state.branches.values())}
    if intent.branch_id not in live:
        # What was published stays as long as merges need it, though its branch was deleted: cleanup decides.
        commits = (commit for commit in kernel.all_commits().values() if commit.operation_id == intent.operation_id)
        published = next((commit.commit_id for commit in commits if commit.branch == intent.branch_id), None)
        return (Outcome.ORPHANED_BRANCH_DISCARDED if published is None else Outcome.ROLLED_FORWARD), published
    # The commit point decides as in any redo/undo recovery: a commit with this operation id means roll forward (only
    # links are missing), none means roll back.
    commit_id = _published_as(kernel, intent)
    return (Outcome.ROLLED_BACK if commit_id is None else Outcome.ROLLED_FORWARD), commit_id


def _staged_by(kernel: Kernel, intent: Intent, outcome: Outcome, claims: Claims) -> list[ObjectInfo]:
    """Return the files to remove with a dead intent: those it names that are neither published nor claimed.

    The same work may have been done again at the same paths.
    """
    if outcome is Outcome.ROLLED_FORWARD or not intent.paths:
        return []
    # Its files need no minimum age: their owner is known to be dead.
    snapshots, of_intent = kernel.live_snapshots(), Age(Claims(claims.paths), NEVER_US)
    plans, strays = plan_residue(kernel, snapshots, of_intent, {dataset_of(path) for path in intent.paths})
    orphans = [*strays, *(info for plan in plans for info in plan.objects)]
    return [info for info in orphans if info.path.startswith(intent.paths)]


def _published_as(kernel: Kernel, intent: Intent) -> CommitId | None:
    for commit in kernel.history(kernel.name_of(intent.branch_id)):
        if commit.operation_id == intent.operation_id:
            return commit.commit_id
        # The operation started on this version, so it cannot have published before it.
        if commit.branch == intent.branch_id and commit.manifest_version <= intent.base_version:
            return None
    return None


def plan_residue(
    kernel: Kernel, snapshots: list[Snapshot], age: Age, only: Collection[str] | None = None
) -> tuple[list[RemovalPlan], list[ObjectInfo]]:
    """Return the orphan files, which no version of a live branch names: by dataset, and those outside of datasets."""
    listing = Listing.read(kernel.store)
    datasets = known_datasets(snapshots)
    # Mark: everything that a version of a live branch reaches. What is left, old enough and unclaimed, is swept.
    adopted = _adopted_forks(kernel, {snapshot.state.branch_id for snapshot in snapshots})
    kept_versions = {path: _every_version(listing, path, snapshots, adopted) for path in sorted(datasets)}
    if only is not None:
        kept_versions = {path: versions for path, versions in kept_versions.items() if path in only}
    planner = Planner(kernel.store, listing, age.may_go, waiting_manifests(kernel, snapshots, listing))
    return planner.plan(kept_versions), find_strays(listing, datasets, age)


def known_datasets(snapshots: Iterable[Snapshot]) -> set[str]:
    """Return the datasets that live branches know: the catalog, the logs, their types, and types that they dropped."""
    paths = {MANIFEST_PATH, LOG_PATH, AUDIT_PATH}
    for snapshot in snapshots:
        paths |= {pin.path for pin in snapshot.state.pins.values()}
        paths |= {tombstone.path for tombstone in snapshot.state.tombstones}
    return paths


def find_strays(listing: Listing, datasets: Collection[str], age: Age) -> list[ObjectInfo]:
    """Return the orphans outside of known datasets: types that no branch knows, and leftover control objects."""
    # A graph that can be opened was created, so a leftover claim of an init has no use.
    leftovers = (TEMPORARY_PREFIX, CLAIM_PREFIX)
    strays = []
    for dataset, objects in listing.objects.items():
        if dataset in datasets:
            continue
        is_whole = dataset.startswith(("nodes/", "edges/", CLAIMS_FOLDER))
        strays += [info for info in objects if is_whole or info.path.rpartition("/")[2].startswith(leftovers)]
    return [info for info in strays if age.may_go(info)]


def waiting_manifests(kernel: Kernel, snapshots: Iterable[Snapshot], listing: Listing) -> list[StoredManifest]:
    """Return the manifests of published versions that are not linked yet, or displaced by another tool."""
    links = {link for snapshot in snapshots for link in snapshot.links if link.manifest in listing.names}
    return [StoredManifest(link.ref.directory, link.manifest) for link in links if not kernel.links.is_linked(link)]


def _every_version(listing: Listing, path: str, snapshots: list[Snapshot], adopted: Collection[str]) -> KeptVersions:
    """Return all versions of a dataset and of its forks that live branches use."""
    if path == MANIFEST_PATH:
        forks: set[str | None] = {snapshot.state.branch_id for snapshot in snapshots}
    else:
        forks = _live_forks(listing, path, snapshots) | {None} | listing.forks(path).intersection(adopted)
    return {fork: list(listing.versions.get((path, fork), ())) for fork in forks}


def _live_forks(listing: Listing, path: str, snapshots: list[Snapshot]) -> set[str | None]:
    """Return the forks of a dataset that a live branch reads, or has ever published to."""
    forks = {pin.fork for snapshot in snapshots for pin in snapshot.state.pins.values() if pin.path == path}
    live = {snapshot.state.branch_id for snapshot in snapshots}
    for fork in listing.forks(path):
        # The version that a fork starts at was not published to it.
        versions = listing.versions.get((path, fork), {}).keys()
        if fork is not None and fork_owner(fork) in live and versions - {_base_version(fork)}:
            forks.add(fork)
    return forks


def _base_version(fork: str) -> int:
    return int((fork.split("-") + ["0"])[1] or 0)


def _adopted_forks(kernel: Kernel, live: Collection[BranchId | None]) -> set[str]:
    """Return the forks that merges into live branches adopted: they outlive the branches they were made for."""
    commits = (commit for commit in kernel.all_commits().values() if commit.branch in live)
    return {fork for commit in commits for fork in commit.adopted_forks}
