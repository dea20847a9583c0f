"""Heads: the newest snapshot of each branch as this process last observed it, and every name that a branch has had.

A head is cheap to confirm: one probe for the version after it. Only a head that has moved is read again.

A live branch has its names in its row of main's catalog, where creating and renaming publish them together with the
name itself. Deleting a branch first writes them to the commit log, with its commits. So a record always exists, and
only main and the log are opened, however many branches there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from omnigraph import clock
from omnigraph.errors import GraphError, StorageError, StorageKind
from omnigraph.ids import BranchId
from omnigraph.limits import BRANCH_NAMES_CACHED_MAX, HEAD_CACHE_MAX, PUBLISH_DEADLINE_SECONDS
from omnigraph.lru import LruCache
from omnigraph.manifest import encoding, history
from omnigraph.manifest.model import MAIN, MAIN_NAMES, MANIFEST_PATH, UNKNOWN_NAMES, Branch, BranchNames, Snapshot
from omnigraph.manifest.plan import CommitPolicy, Plan
from omnigraph.manifest.updates import AddBranch, DropBranch
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.store import Store

if TYPE_CHECKING:
    from omnigraph.manifest.kernel import Kernel


@dataclass(frozen=True, slots=True)
class ObservedHead:
    """A snapshot that was the head of its branch at a time of the monotonic clock."""

    snapshot: Snapshot
    at: float

    @property
    def is_stale(self) -> bool:
        return clock.elapsed() - self.at > PUBLISH_DEADLINE_SECONDS

    def named(self, branch: str) -> ObservedHead:
        """Return the head under the name that the caller used: a renamed branch is still the same branch."""
        if self.snapshot.branch == branch.strip():
            return self
        return ObservedHead(replace(self.snapshot, branch=branch.strip()), self.at)


class BranchHeads:
    """The observed heads of one graph, keyed by branch id; main has the id None."""

    def __init__(self, store: Store, *, accepts_old_format: bool = False) -> None:
        self._store = store
        self._accepts_old_format = accepts_old_format
        self._heads: LruCache[BranchId | None, ObservedHead] = LruCache(HEAD_CACHE_MAX)

    def resolve(self, branch: str) -> BranchId | None:
        """Return the id of the branch that has a name now; None is main."""
        name = branch.strip()
        if name == MAIN:
            return None
        entry = self.refresh(MAIN, None).snapshot.state.branches.get(name)
        if entry is None:
            raise GraphError(
                f"there is no branch `{name}`; list them with `omnigraph branch list`",
                code="branch.not_found",
                branch=name,
            )
        return entry.branch_id

    def refresh(self, branch: str, branch_id: BranchId | None) -> ObservedHead:
        """Return the head of a branch as storage has it now."""
        cached = self._heads.get(branch_id)
        now = clock.elapsed()
        # Cleanup may remove old versions, and with them the version that a probe asks for. It spares heads that are
        # younger than the publish deadline, so only those can be confirmed by a probe.
        is_probed = cached is not None and now - cached.at <= PUBLISH_DEADLINE_SECONDS
        if cached is not None and is_probed and not self._store.has_version(cached.snapshot.ref.successor):
            head = ObservedHead(cached.snapshot, now)
        else:
            head = self._read_newest(branch, branch_id, now)
        head = head.named(branch)
        newest = self._heads.get(branch_id)
        if newest is None or newest.snapshot.version <= head.snapshot.version:
            self._heads.put(branch_id, head)
            return head
        # Another thread published while we probed: its head is newer than the one that was read.
        return newest.named(branch)

    def cached(self, branch_id: BranchId | None) -> ObservedHead | None:
        """Return the head as it was last observed, however long ago; no request."""
        return self._heads.get(branch_id)

    def all_cached(self) -> list[ObservedHead]:
        return self._heads.values()

    def recent(self, branch: str) -> ObservedHead | None:
        """Return the head of a branch as it was last observed, unless that is stale; no request."""
        main = self._heads.get(None)
        name = branch.strip()
        if main is None or (name != MAIN and name not in main.snapshot.state.branches):
            return None
        head = main if name == MAIN else self._heads.get(main.snapshot.state.branches[name].branch_id)
        return None if head is None or head.is_stale else head

    def was_head(self, ref: DatasetRef) -> bool:
        """Return True if a catalog version was observed as a head so recently that cleanup keeps it."""
        head = self._heads.get(BranchId(ref.branch) if ref.branch else None)
        return head is not None and head.snapshot.version == ref.version and not head.is_stale

    def record(self, published: Snapshot) -> None:
        """Record the head that this process has just published."""
        self._heads.put(published.state.branch_id, ObservedHead(published, clock.elapsed()))

    def forget(self, branch_id: BranchId | None) -> None:
        self._heads.remove(branch_id)

    # -- reading `__manifest` ----------------------------------------------------------------------------------

    def read(self, branch: str, ref: DatasetRef) -> Snapshot:
        """Read the snapshot at one version of a branch's catalog."""
        try:
            manifest = self._store.open(ref)
        except StorageError as error:
            if error.storage_kind is not StorageKind.NOT_FOUND:
                raise
            raise GraphError(
                f"version {ref.version} of branch `{branch}` does not exist, or was removed by cleanup",
                code="graph.version_reclaimed",
                branch=branch,
                version=ref.version,
            ) from error
        return self._decode(branch, manifest)

    def _read_newest(self, branch: str, branch_id: BranchId | None, now: float) -> ObservedHead:
        uri = self._store.root.uri
        try:
            manifest = self._store.open_latest(MANIFEST_PATH, branch_id)
        except StorageError as error:
            if error.storage_kind is not StorageKind.NOT_FOUND:
                raise
            raise GraphError(
                f"there is no graph at `{uri}`; create one with `omnigraph init`", code="graph.not_found", uri=uri
            ) from error
        cached = self._heads.get(branch_id)
        if cached is not None and cached.snapshot.version == manifest.version:
            return ObservedHead(cached.snapshot, now)
        if branch_id is None and not self._accepts_old_format:
            # Main decides for all branches: one of them may have been forked from a version in an old format.
            encoding.reject_old(manifest.schema, f"the graph at `{uri}`", uri)
        return ObservedHead(self._decode(branch, self._store.remember(manifest)), now)

    def _decode(self, branch: str, manifest: Dataset) -> Snapshot:
        encoding.check_stamp(manifest.schema, f"the graph at `{self._store.root.uri}`")
        try:
            table = manifest.read()
        except StorageError as error:
            # A transient failure is no evidence of corruption; only wrong or missing bytes are.
            if error.storage_kind not in (StorageKind.UNKNOWN, StorageKind.NOT_FOUND):
                raise
            raise GraphError(
                f"`__manifest` version {manifest.version} cannot be read: {error.message}. Read an older version, or"
                " restore it from a backup",
                code="graph.corrupt",
                object=str(manifest.ref),
            ) from error
        branch_id = BranchId(manifest.ref.branch) if manifest.ref.branch else None
        return encoding.decode(table, branch, branch_id, manifest.version)


class NameRecord:
    """Looks up the names of branches; those of deleted branches never change, and are cached."""

    def __init__(self, store: Store, heads: BranchHeads) -> None:
        self._store = store
        self._heads = heads
        self._deleted: LruCache[BranchId | None, BranchNames] = LruCache(BRANCH_NAMES_CACHED_MAX)

    def look_up(self, branch_ids: Iterable[BranchId | None]) -> dict[BranchId | None, BranchNames]:
        """Return the names of branches; reads main and the log at most once each.

        The caller has looked up the branch or commit, which reads main, so a live branch is cached and costs nothing.
        """
        requested = set(branch_ids)
        names: dict[BranchId | None, BranchNames] = {None: MAIN_NAMES} if None in requested else {}
        deleted = {branch_id: self._deleted.get(branch_id) for branch_id in requested}
        names |= {branch_id: recorded for branch_id, recorded in deleted.items() if recorded is not None}
        if (cached_main := self._heads.cached(None)) is not None:
            names |= _live_names(cached_main, requested)
        if requested - names.keys():
            names |= _live_names(self._heads.refresh(MAIN, None), requested)
        missing = {branch_id for branch_id in requested - names.keys() if branch_id is not None}
        return names | self._read_deleted(missing) if missing else names

    def _read_deleted(self, branch_ids: set[BranchId]) -> dict[BranchId | None, BranchNames]:
        log = history.open_log(self._store)
        recorded = {} if log is None else history.read_branch_names(log, branch_ids)
        names: dict[BranchId | None, BranchNames] = {
            branch_id: recorded.get(branch_id, UNKNOWN_NAMES) for branch_id in branch_ids
        }
        for branch_id in names:
            self._deleted.put(branch_id, names[branch_id])
        return names


def _live_names(main: ObservedHead, requested: set[BranchId | None]) -> dict[BranchId | None, BranchNames]:
    branches = main.snapshot.state.branches.values()
    return {branch.branch_id: branch.names for branch in branches if branch.branch_id in requested}


def recover_names(kernel: Kernel, actor: str | None = None) -> tuple[str, ...]:
    """Record the names of live branches made by an older release, if main's history still has all of them.

    Returns the branches whose names are recorded now. A branch older than the oldest version of main that cleanup has
    kept stays without a record.
    """
    recovered: list[Branch] = []

    def prepare(main: Snapshot) -> Plan | None:
        missing = {branch.branch_id: branch for branch in main.state.branches.values() if branch.recorded_names is None}
        names = _names_in_history(kernel, main, missing) if missing else {}
        recovered[:] = [replace(missing[branch_id], recorded_names=names[branch_id]) for branch_id in names]
        updates = [update for branch in recovered for update in (DropBranch(branch.name), AddBranch(branch))]
        return Plan(None, updates=tuple(updates), actor=actor) if updates else None

    kernel.commit(MAIN, prepare, CommitPolicy.CONTROL)
    return tuple(sorted(branch.name for branch in recovered))


def _names_in_history(
    kernel: Kernel, main: Snapshot, branches: Mapping[BranchId, Branch]
) -> dict[BranchId, tuple[str, ...]]:
    """Walk back over the versions of main to where each branch was created; return the names of those found."""
    names = {branch_id: [branch.name] for branch_id, branch in branches.items()}
    complete: dict[BranchId, tuple[str, ...]] = {}
    version = main.version
    while names and version > 1:
        version -= 1
        try:
            earlier = kernel.at_version(MAIN, version)
        except GraphError as error:
            if error.code != "graph.version_reclaimed":
                raise
            return complete
        then = {entry.branch_id: entry.name for entry in earlier.state.branches.values()}
        for branch_id in list(names):
            if branch_id not in then:
                complete[branch_id] = tuple(names.pop(branch_id))
            elif then[branch_id] not in names[branch_id]:
                names[branch_id].insert(0, then[branch_id])
    return complete
