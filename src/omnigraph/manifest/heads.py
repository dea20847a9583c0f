"""Heads: the newest snapshot of each branch as this process last observed it, and snapshots read from `__manifest`.

A head is cheap to confirm: one probe for the version after it. Only a head that has moved is read again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from omnigraph import clock
from omnigraph.errors import GraphError, StorageError, StorageKind
from omnigraph.ids import BranchId
from omnigraph.limits import HEAD_CACHE_MAX, PUBLISH_DEADLINE_SECONDS
from omnigraph.lru import LruCache
from omnigraph.manifest import encoding
from omnigraph.manifest.model import MAIN, MANIFEST_PATH, Snapshot
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.store import Store


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
        if cached is not None and is_probed and not self._has_successor(cached.snapshot.ref):
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

    def _has_successor(self, ref: DatasetRef) -> bool:
        return self._store.has_version(ref.at(ref.version + 1))

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
