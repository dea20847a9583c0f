"""Cleanup: old versions removed, oldest first, once everything that must stay is known to be readable.

The only maintenance that destroys. It removes versions of the catalog before the versions of types that they name, and
files last, so that a crash leaves nothing that names what is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from omnigraph import clock, failpoints
from omnigraph.engine.core import Core
from omnigraph.engine.maintain import progress
from omnigraph.engine.maintain.drift import drifted_head
from omnigraph.engine.maintain.purge import Purged, purge
from omnigraph.engine.maintain.retention import DEADLINE_US, Policy, fixed_versions, kept_versions
from omnigraph.engine.scope import GRAPH
from omnigraph.engine.write.gate import admit
from omnigraph.errors import ConflictError, GraphError, OmniGraphError, StorageError, StorageKind, UsageError
from omnigraph.failpoints import Point
from omnigraph.limits import REPREPARE_MAX
from omnigraph.manifest.audit import AUDIT_PATH
from omnigraph.manifest.commit_log import LOG_PATH
from omnigraph.manifest.intent import CLEANUP, Intent, alone, pending
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, MANIFEST_PATH, Snapshot, fork_owner
from omnigraph.manifest.sweep import SweepReport, preview, sweep
from omnigraph.store.dataset import DatasetRef
from omnigraph.store.residue import fork_of
from omnigraph.store.versions import Version, versions_of

Place = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class TypeCleaned:
    """What went, or would go, of one dataset and its forks."""

    type_key: str
    versions_removed: int = 0
    files_removed: int = 0
    bytes_removed: int = 0
    error: str | None = None

    def to_json(self) -> dict[str, object]:
        return {
            "type_key": self.type_key,
            "old_versions_removed": self.versions_removed,
            "files_removed": self.files_removed,
            "bytes_removed": self.bytes_removed,
            "error": self.error,
        }


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
        return sum(one.bytes_removed for one in self.datasets) + self.swept.bytes_removed

    def to_json(self) -> dict[str, object]:
        return {
            "keep_versions": self.keep,
            "older_than_secs": self.older_than_seconds,
            "dry_run": self.dry_run,
            "datasets": [one.to_json() for one in self.datasets],
            "intents_rolled_forward": self.swept.rolled_forward,
            "intents_rolled_back": self.swept.rolled_back,
            "residue_files_removed": self.swept.files_removed,
            "residue_bytes_removed": self.swept.bytes_removed,
            "purged": [one.to_json() for one in self.purged],
        }


def cleanup(
    core: Core, keep: int | None, older_than_seconds: float | None, *, dry_run: bool, actor: str | None
) -> CleanupReport:
    """Remove versions that are neither among the newest `keep` nor were current within `older_than_seconds`."""
    if keep is None and older_than_seconds is None:
        raise UsageError("cleanup needs to know what stays; give `keep`, `older_than` or both")
    if (keep is not None and keep < 0) or (older_than_seconds is not None and older_than_seconds < 0):
        raise UsageError("`keep` and `older_than` cannot be negative")
    core = admit(core, "admin", GRAPH, actor)
    policy = Policy(keep, older_than_seconds, clock.now_us())
    if dry_run:
        found = _looked(core.kernel, policy)
        rows = tuple(found.plan(path).row for path in found.paths())
        return CleanupReport(
            keep, older_than_seconds, dry_run, rows, preview(core.kernel), purge(core.kernel, dry_run=True)
        )
    core.kernel.refuse_read_only()
    swept = sweep(core.kernel)
    # Said before anything is looked at, so that whoever names an old commit meanwhile hears of it.
    with alone(core.kernel.store, CLEANUP, core.kernel.snapshot(MAIN), core.actor) as held:
        if held is None:
            raise ConflictError("another cleanup of this graph is running; try again when it is done")
        found = _looked(core.kernel, policy)
        failpoints.hit(Point.CLEANUP_DECIDED)
        paths = found.paths()
        rows = tuple(_told(found.clean(path), done, len(paths)) for done, path in enumerate(paths, start=1))
        purged = purge(core.kernel)
    return CleanupReport(keep, older_than_seconds, dry_run, rows, swept, purged)


def _told(row: TypeCleaned, done: int, total: int) -> TypeCleaned:
    progress.tell("datasets cleaned", done, total)
    return row


def _looked(kernel: Kernel, policy: Policy) -> _Cleanup:
    """Return what was found; when a branch is deleted meanwhile, everything is looked at anew."""
    for _ in range(REPREPARE_MAX):
        found = _Cleanup(kernel, policy)
        try:
            found.look()
        except GraphError as error:
            if error.code != "branch.not_found":
                raise
        else:
            return found
    raise ConflictError("branches were deleted faster than they could be looked at; no version was removed, try again")


@dataclass(frozen=True, slots=True)
class _Going:
    """What is told of a dataset, the versions that may go, and their files: what names comes first."""

    row: TypeCleaned
    gone: Sequence[DatasetRef] = ()
    files: Sequence[str] = ()


@dataclass
class _Cleanup:
    """One run: all that is in storage, and all of it that stays."""

    kernel: Kernel
    policy: Policy
    sizes: dict[str, int] = field(default_factory=dict)
    versions: dict[Place, dict[int, Version]] = field(default_factory=dict)
    kept: dict[Place, set[int]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    drifted: set[str] = field(default_factory=set)
    needed: set[str] = field(default_factory=set)
    abandoned: list[str] = field(default_factory=list)

    def look(self) -> None:
        """Find out what stays, and that all of it can be read; the first thing that cannot ends the cleanup."""
        kernel = self.kernel
        intents, unreadable = pending(kernel.store)
        if unreadable:
            raise GraphError(
                f"`{unreadable[0]}` cannot be read, so nobody knows what its owner still needs; no version was removed",
                code="graph.corrupt",
                object=unreadable[0],
            )
        self.snapshots = kernel.live_snapshots()
        modified = {}
        for info in kernel.store.objects.list(""):
            self.sizes[info.path] = info.size_bytes
            modified[info.path] = info.modified_us
        alive = [one for one in intents if not one.is_dead and one.kind != CLEANUP]
        self.since_us = min([self.policy.now_us, *(one.started_at_us for one in alive)])
        self._keep_catalogs(modified, alive)
        self._keep_types(modified)
        for place, numbers in self.kept.items():
            for number in numbers:
                self.needed |= self.versions[place][number].files
        self._list_newer()
        # A file that stays under another name than storage lists it would be taken for one that may go.
        # Forks that a deleted branch left and nothing reads are the sweep's, which may be taking them away right now.
        abandoned = tuple(self.abandoned)
        unknown = sorted(path for path in self.needed - self.sizes.keys() if not path.startswith(abandoned))
        if unknown:
            raise GraphError(
                f"`{unknown[0]}` must stay, but is not where storage lists files; no version was removed. Try again"
                " once writers are done, and run `omnigraph verify` if it stays so",
                code="graph.corrupt",
                object=unknown[0],
            )

    def _list_newer(self) -> None:
        """List what came while storage was listed, folder by folder: a version may be listed, and its files not."""
        unknown = self.needed - self.sizes.keys()
        for folder in sorted({path.rpartition("/")[0] for path in unknown}):
            found = self.kernel.store.objects.list(folder)
            self.sizes |= {info.path: info.size_bytes for info in found if info.path in unknown}

    def _keep_catalogs(self, modified: dict[str, int], alive: list[Intent]) -> None:
        commits = self.kernel.all_commits()
        fixed = fixed_versions(commits, self.snapshots, alive)
        for snapshot in self.snapshots:
            place = (MANIFEST_PATH, snapshot.state.branch_id)
            found = versions_of(self.kernel.store, *place, modified)
            own = {one.manifest_version for one in commits.values() if one.branch == snapshot.state.branch_id}
            kept = kept_versions(found, own, self.policy, self.since_us)
            kept |= {version for branch, version in fixed if branch == snapshot.state.branch_id}
            kept |= {number for number in found if number >= snapshot.version}
            self.versions[place], self.kept[place] = found, kept & found.keys()
        # A state is found by its commit, so the version that its commit made stays with it.
        for snapshot in self._kept_snapshots():
            commit = commits[snapshot.head] if snapshot.head else None
            place = (MANIFEST_PATH, commit.branch if commit else None)
            if commit and commit.manifest_version in self.versions.get(place, ()):
                self.kept[place].add(commit.manifest_version)
        for path in (LOG_PATH, AUDIT_PATH):
            self._keep_log((path, None), modified)
        self.names |= {MANIFEST_PATH: MANIFEST_PATH, LOG_PATH: LOG_PATH, AUDIT_PATH: AUDIT_PATH}

    def _keep_log(self, place: Place, modified: dict[str, int]) -> None:
        try:
            found = versions_of(self.kernel.store, *place, modified)
        except StorageError as error:
            if error.storage_kind is not StorageKind.NOT_FOUND:
                raise
            return
        # One that was made after storage was listed has no version that may go.
        if found:
            young = self._young(found)
            # What was newest before the young ones may still be read by somebody, and they may have folded its files.
            newest = sorted(found.keys() - young)[-1:]
            self.versions[place], self.kept[place] = found, young.union(newest)

    def _keep_types(self, modified: dict[str, int]) -> None:
        pinned: dict[Place, set[int]] = {}
        for snapshot in self._kept_snapshots():
            for pin in snapshot.state.pins.values():
                pinned.setdefault((pin.path, pin.fork), set()).add(pin.version)
                self.names.setdefault(pin.path, pin.table_key)
        for one in self.snapshots[0].state.tombstones:
            self.names.setdefault(one.path, one.table_key)
        for path in sorted(path for path in self.names if path.startswith(("nodes/", "edges/"))):
            inside = {fork_of(file, path) for file in self.sizes if file.startswith(f"{path}/")}
            for fork in sorted(inside):
                self._keep_type((path, fork or None), pinned.get((path, fork or None), set()), modified)
        for snapshot in self.snapshots:
            for pin in snapshot.state.pins.values():
                if drifted_head(self.kernel, snapshot, pin) is not None:
                    self.drifted.add(pin.path)

    def _keep_type(self, place: Place, wanted: set[int], modified: dict[str, int]) -> None:
        has_versions = self.kernel.store.has_versions(*place)
        found = versions_of(self.kernel.store, *place, modified) if has_versions else {}
        lost = sorted(wanted - found.keys())
        # Another process may have published and not linked yet; then it is newer than anything that is there.
        if lost and lost[0] <= max(found, default=lost[0]):
            key = self.names[place[0]]
            raise GraphError(
                f"version {lost[0]} of `{key}` must stay, but is not there; no version was removed",
                code="graph.corrupt",
                type_key=key,
            )
        live = {snapshot.state.branch_id for snapshot in self.snapshots}
        if place[1] is not None and not wanted and fork_owner(place[1]) not in live:
            self.abandoned.append(f"{DatasetRef(*place, 0).directory}/")
        newer = {number for number in found if wanted and number >= max(wanted)}
        self.versions[place] = found
        self.kept[place] = (wanted & found.keys()) | newer | self._young(found)

    def _young(self, found: dict[int, Version]) -> set[int]:
        cutoff = min(self.policy.now_us - DEADLINE_US, self.since_us)
        return {number for number, one in found.items() if one.modified_us >= cutoff}

    def _kept_snapshots(self) -> list[Snapshot]:
        wanted = [
            partial(self.kernel.at_version, snapshot.branch, version)
            for snapshot in self.snapshots
            for version in sorted(self.kept[MANIFEST_PATH, snapshot.state.branch_id])
        ]
        # Main's window and every branch at its head are among them, so an unreadable branch ends the cleanup here.
        return [*self.snapshots, *self.kernel.store.in_parallel(wanted)]

    def paths(self) -> list[str]:
        """Return the datasets in the order in which they are cleaned: what names comes before what is named."""
        paths = {path for path, _ in self.versions}
        return sorted(paths, key=lambda path: (path != MANIFEST_PATH, path))

    def clean(self, path: str) -> TypeCleaned:
        """Remove what may go of one dataset and its forks; a failure stays with this dataset."""
        plan = self.plan(path)
        try:
            for file in plan.files:
                self.kernel.store.objects.delete(file)
        except OmniGraphError as error:
            return TypeCleaned(plan.row.type_key, error=error.message)
        self.kernel.store.forget(plan.gone)
        return plan.row

    def plan(self, path: str) -> _Going:
        """Return what may go of one dataset and its forks."""
        name = self.names[path]
        if path in self.drifted:
            error = "a foreign tool has written to it by path; run `omnigraph repair` first"
            return _Going(TypeCleaned(name, error=error))
        gone = [
            version
            for fork in sorted(fork or "" for own, fork in self.versions if own == path)
            for number, version in sorted(self.versions[path, fork or None].items())
            if number not in self.kept[path, fork or None]
        ]
        manifests = [version.ref.manifest_path for version in gone]
        others = sorted({file for version in gone for file in version.files} - self.needed - set(manifests))
        files = [file for file in (*manifests, *others) if file in self.sizes]
        row = TypeCleaned(name, len(gone), len(files), sum(self.sizes[file] for file in files))
        return _Going(row, [version.ref for version in gone], files)
