"""The kernel: the entry to an opened graph. Snapshots to read, `commit` to change it, and the outcome of operations.

Heads, links and the commit loop are separate modules; everything above this layer goes through `Kernel`.

Generated operation ids carry a hint at their branch, so that other branches need not be read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from copy import copy
from functools import partial

import pyarrow as pa
from ulid import ULID

from omnigraph.errors import BranchNotFound, GraphError, StorageError, StorageKind
from omnigraph.ids import BranchId, CommitId, OperationId, hints_at, is_operation_id
from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import CLOCK_SKEW_SECONDS, CONTROL_VERSIONS_MAX
from omnigraph.manifest import encoding, history
from omnigraph.manifest.commit_loop import CommitLoop, Prepare
from omnigraph.manifest.forks import open_or_fork
from omnigraph.manifest.heads import BranchHeads, NameRecord
from omnigraph.manifest.history import CommitSource, unknown_commit, walk_history
from omnigraph.manifest.idempotency import REQUEST_ID, RequestKey, reject_repeated
from omnigraph.manifest.links import Links
from omnigraph.manifest.model import MAIN, MANIFEST_PATH, MESSAGE, BranchNames, Commit, Snapshot
from omnigraph.manifest.plan import CommitPolicy, Plan, Receipt
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.store import Store


class Kernel:
    """One opened graph."""

    def __init__(self, store: Store, *, read_only: bool = False, accepts_old_format: bool = False) -> None:
        self.store = store
        self.read_only = read_only
        self.heads = BranchHeads(store, accepts_old_format=accepts_old_format)
        self.links = Links(store, self.heads, read_only=read_only)
        self.commit_loop = CommitLoop(store, self.heads, self.links)
        self._names = NameRecord(store, self.heads)
        self._request_key: RequestKey | None = None
        self._message: str | None = None

    def with_request_id(self, request_id: str, actor: str | None) -> Kernel:
        """Return this kernel for one write with an idempotency key: the write is applied at most once."""
        other = copy(self)
        other._request_key = RequestKey(request_id, actor)
        return other

    def with_message(self, message: str) -> Kernel:
        """Return this kernel for commits that have a message."""
        other = copy(self)
        other._message = message
        return other

    def reject_repeated(self, branch: str) -> None:
        """Raise if a commit of the branch already has this kernel's idempotency key."""
        if self._request_key is not None:
            reject_repeated(self.snapshot(branch), self._request_key, partial(history.read, self.store))

    def reject_read_only(self) -> None:
        """Raise if the graph was opened read-only."""
        if self.read_only:
            raise GraphError("the graph was opened read-only; open it for writing", code="graph.read_only")

    def close(self) -> None:
        """Wait for background links, then close the store."""
        self.links.wait()
        self.store.close()

    # -- snapshots ---------------------------------------------------------------------------------------------

    def snapshot(self, branch: str = MAIN) -> Snapshot:
        """Return the newest snapshot of a branch: one probe when nothing has changed."""
        return self.heads.refresh(branch, self.resolve(branch)).snapshot

    def recent_snapshot(self, branch: str = MAIN) -> Snapshot | None:
        """Return a snapshot that was the head of a branch seconds ago, if one is cached; no request."""
        head = self.heads.recent(branch)
        return None if head is None else head.named(branch).snapshot

    def resolve(self, branch: str) -> BranchId | None:
        """Return the id of the branch that has a name now; None is main."""
        return self.heads.resolve(branch)

    def live_snapshots(self) -> list[Snapshot]:
        """Return the newest snapshots of main and every branch, by name; omits branches deleted meanwhile."""
        main = self.snapshot(MAIN)
        return [main, *self.snapshots_of(sorted(main.state.branches))]

    def snapshots_of(self, names: Iterable[str]) -> list[Snapshot]:
        """Return the newest snapshots of branches; omits those deleted meanwhile."""
        snapshots = []
        for name in names:
            with suppress(BranchNotFound):
                snapshots.append(self.snapshot(name))
        return snapshots

    def at_version(self, branch: str, version: int) -> Snapshot:
        """Return the snapshot of a branch at one manifest version."""
        return self.heads.read(branch, DatasetRef(MANIFEST_PATH, self.resolve(branch), version))

    def at_ref(self, ref: DatasetRef) -> Snapshot:
        """Return the snapshot at one version of a branch's catalog."""
        return self.heads.read(self.name_of(BranchId(ref.branch) if ref.branch else None), ref)

    def at_commit(self, commit_id: CommitId) -> Snapshot:
        """Return the snapshot that a commit made."""
        return self.snapshot_of(self.find_commit(commit_id))

    def snapshot_of(self, commit: Commit) -> Snapshot:
        """Return the snapshot that a known commit made."""
        ref = DatasetRef(MANIFEST_PATH, commit.branch, commit.manifest_version)
        snapshot = self.heads.read(self.name_of(commit.branch), ref)
        if snapshot.head != commit.commit_id:
            raise GraphError(
                f"the version that commit {commit.commit_id} made now holds commit {snapshot.head}",
                code="graph.version_reclaimed",
                commit_id=commit.commit_id,
            )
        return snapshot

    def name_of(self, branch_id: BranchId | None) -> str:
        """Return the newest name of a branch for display; its id when it was deleted and no name is recorded."""
        return self.names_of([branch_id])[branch_id]

    def names_of(self, branch_ids: Iterable[BranchId | None]) -> dict[BranchId | None, str]:
        """Return the newest names of branches for display; a deleted branch's name may belong to another one now."""
        return {branch_id: names.newest or str(branch_id) for branch_id, names in self.all_names_of(branch_ids).items()}

    def all_names_of(self, branch_ids: Iterable[BranchId | None]) -> dict[BranchId | None, BranchNames]:
        """Return every name that branches ever had; see `NameRecord`."""
        return self._names.look_up(branch_ids)

    # -- datasets ----------------------------------------------------------------------------------------------

    def dataset(self, snapshot: Snapshot, table_key: TypeKey) -> Dataset:
        """Open a type's dataset at the version that a snapshot pins."""
        return self.links.open_pin(snapshot, snapshot.state.pins[table_key])

    def writable(self, snapshot: Snapshot, table_key: TypeKey) -> Dataset:
        """Open a type's dataset for staging; on a branch that inherits or has adopted it, fork it first."""
        self.reject_read_only()
        return open_or_fork(self.store, self.links, snapshot, snapshot.state.pins[table_key])

    def finish_links(self, snapshot: Snapshot) -> int:
        """Link every published version of a snapshot, for readers that open datasets by path; return the number."""
        return self.links.finish(snapshot)

    # -- history -----------------------------------------------------------------------------------------------

    def history(self, branch: str = MAIN) -> Iterator[Commit]:
        """Yield the commits reachable from a branch's head by first parents and merges, newest first."""
        return walk_history(self, self.snapshot(branch))

    def find_commit(self, commit_id: CommitId) -> Commit:
        """Return a commit of any branch; raise if there is none."""
        commit = self.look_for_commit(commit_id)
        if commit is None:
            raise unknown_commit(commit_id)
        return commit

    def look_for_commit(self, commit_id: CommitId) -> Commit | None:
        """Return a commit of any branch; None if there is none."""
        for head in self.heads.all_cached():
            for commit in head.snapshot.state.commits:
                if commit.commit_id == commit_id:
                    return commit
        return CommitSource(self).find(commit_id)

    def all_commits(self) -> dict[CommitId, Commit]:
        """Return every commit of a live branch or the commit log: at least all that existed at the time of the call."""
        recent = self._live_commits()
        return history.read(self.store) | {commit.commit_id: commit for commit in recent}

    def commits_starting_with(self, prefix: str) -> dict[CommitId, Commit]:
        """Return the commits of live branches and of the commit log whose ids begin with a text."""
        recent = self._live_commits()
        log = history.open_log(self.store)
        older = [] if log is None else history.read_prefix(log, prefix)
        return {commit.commit_id: commit for commit in [*older, *recent] if commit.commit_id.startswith(prefix)}

    def _live_commits(self) -> list[Commit]:
        # Commits move from branches to the log, so reading the log first would miss those that move meanwhile.
        return [commit for snapshot in self.live_snapshots() for commit in snapshot.state.commits]

    def keep_history(self, snapshot: Snapshot, after: Collection[CommitId] = (), names: tuple[str, ...] = ()) -> None:
        """Copy the commits that led to a branch, or those after the last of `after`, to the commit log."""
        history.spill_branch(self.store, snapshot, after, names)

    # -- commits -----------------------------------------------------------------------------------------------

    def commit(self, branch: str, prepare: Prepare, policy: CommitPolicy = CommitPolicy.INSERT) -> Receipt | None:
        """Prepare and publish; None when the prepared work turns out to change nothing.

        `prepare` is called again on a newer snapshot after a lost race, if the policy allows it; it may return what it
        staged before.
        """
        self.reject_read_only()
        key = self._request_key
        properties = {} if self._message is None else {MESSAGE: self._message}
        properties |= {} if key is None else {REQUEST_ID: key.request_id}
        if not properties:
            return self.commit_loop.commit(branch, prepare, policy)

        def prepare_with_properties(snapshot: Snapshot) -> Plan | None:
            if key is not None:
                reject_repeated(snapshot, key, partial(history.read, self.store))
            plan = prepare(snapshot)
            return None if plan is None else plan.with_properties(properties)

        receipt = self.commit_loop.commit(branch, prepare_with_properties, policy)
        if receipt is not None and receipt.commit is not None:
            # What follows the commit, such as deleting a merged branch, belongs to the same request.
            self._request_key = None
        return receipt


def find_operation(kernel: Kernel, operation_id: str, actor: str | None = None) -> Commit | None:
    """Return the commit with an operation id, or with a request id that its caller has chosen.

    Searches main, the branches that the id hints at, and the commit log, which has the commits of deleted branches.
    Only for an id that a caller has chosen, every branch is searched. Actors may have chosen the same id: the commit of
    `actor` comes first, then any other.
    """
    others: Commit | None = None
    for commit in _candidates(kernel, operation_id):
        if operation_id == commit.operation_id or RequestKey(operation_id, actor).is_of(commit):
            return commit
        if others is None and commit.properties.get(REQUEST_ID) == operation_id:
            others = commit
    return others


def _candidates(kernel: Kernel, operation_id: str) -> Iterator[Commit]:
    """Yield the commits of the places where an operation may be recorded, the likely ones first."""
    main = kernel.snapshot(MAIN)
    hinted = {branch.name for branch in main.state.branches.values() if hints_at(operation_id, branch.branch_id)}
    # Commits go from catalogs to the log, so reading the log first would miss those that move meanwhile.
    for snapshot in [main, *kernel.snapshots_of(sorted(hinted))]:
        yield from snapshot.state.commits
    yield from history.read_operation(kernel.store, operation_id)
    if is_operation_id(operation_id):
        return
    others = sorted(main.state.branches.keys() - hinted)
    for snapshots in kernel.store.in_parallel([partial(kernel.snapshots_of, [name]) for name in others]):
        for snapshot in snapshots:
            yield from snapshot.state.commits
    yield from history.read_operation(kernel.store, operation_id)


def has_published(kernel: Kernel, branch: str, operation_id: OperationId) -> bool:
    """Return True if a recent version of a branch was made by an operation, which may have left no commit."""
    snapshot = kernel.snapshot(branch)
    if is_operation_id(operation_id) and not hints_at(operation_id, snapshot.state.branch_id):
        return False
    begun_us = ULID.from_str(operation_id).milliseconds * 1_000 - CLOCK_SKEW_SECONDS * 1_000_000
    older = [commit.manifest_version for commit in snapshot.state.commits if commit.created_at_us < begun_us]
    first = max([0, snapshot.version - CONTROL_VERSIONS_MAX, *older])
    schemas = schemas_back_from(kernel.store, snapshot.ref, first)
    return any(encoding.operation_of(schema) == operation_id for schema in schemas)


def schemas_back_from(store: Store, catalog: DatasetRef, first: int = 0) -> Iterator[pa.Schema]:
    """Yield the schema of a catalog version and of those before it, to the one after `first` or the oldest kept."""
    for version in range(catalog.version, first, -1):
        try:
            manifest = store.open(catalog.at(version))
        except StorageError as error:
            if error.storage_kind is not StorageKind.NOT_FOUND:
                raise
            return
        yield manifest.schema
