"""The kernel: snapshots of a graph, and the loop that turns prepared work into published commits.

Everything above it reads through `snapshot` and `dataset`, and changes the graph through `commit`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import replace
from typing import Final
from weakref import WeakValueDictionary

from omnigraph import clock, ids
from omnigraph.errors import ConflictError, GraphError, OmniGraphError, ReadSetChanged, StorageError, StorageKind
from omnigraph.ids import BranchId, CommitId
from omnigraph.limits import PUBLISH_DEADLINE_SECONDS, REPREPARE_MAX, RETRY_WAIT_SECONDS, RETRY_WAIT_SECONDS_MAX
from omnigraph.manifest import commit_log, rows
from omnigraph.manifest.model import MAIN, MANIFEST_PATH, Commit, Link, Pin, Snapshot, fork_name
from omnigraph.manifest.once import refuse_repeated, under
from omnigraph.manifest.plan import Plan, Receipt, Work
from omnigraph.manifest.publish import Moved, Verified, publish
from omnigraph.store.dataset import Dataset, DatasetRef
from omnigraph.store.store import Store

Prepare = Callable[[Snapshot], Plan | None]

# Kinds of commits after which every query answers as before.
UPKEEP: Final = frozenset({"optimize", "ensure_indices"})


class _Queue:
    """The turn of one branch in this process: shared by every handle of the same graph."""

    def __init__(self) -> None:
        self.turn = threading.Lock()


_queues: WeakValueDictionary[tuple[str, BranchId | None], _Queue] = WeakValueDictionary()
_queues_lock = threading.Lock()


class Kernel:
    """One opened graph."""

    def __init__(self, store: Store, *, read_only: bool = False) -> None:
        self.store = store
        self.read_only = read_only
        self._heads: dict[BranchId | None, Verified] = {}
        self._linked: set[DatasetRef] = set()
        self._my_queues: dict[BranchId | None, _Queue] = {}
        self._linking: list[Future[None]] = []
        self._request_id: str | None = None

    def once(self, request_id: str) -> Kernel:
        """Return this kernel for one write under an id of its caller's choice, which is done at most once."""
        other = copy(self)
        other._request_id = request_id
        return other

    def refuse_repeated(self, branch: str) -> None:
        """Refuse a write under an id that a commit of the branch bears already."""
        if self._request_id is not None:
            refuse_repeated(self.snapshot(branch), self._request_id, self.all_commits)

    # -- snapshots ---------------------------------------------------------------------------------------------

    def snapshot(self, branch: str = MAIN) -> Snapshot:
        """Return the newest state of a branch: one probe when nothing has changed."""
        return self._verify(branch, self.resolve(branch)).snapshot

    def resolve(self, branch: str) -> BranchId | None:
        """Return the incarnation behind a name; None is main."""
        name = branch.strip()
        if name == MAIN:
            return None
        entry = self._verify(MAIN, None).snapshot.state.branches.get(name)
        if entry is None:
            raise GraphError(
                f"there is no branch `{name}`; list them with `omnigraph branch list`",
                code="branch.not_found",
                branch=name,
            )
        return entry.branch_id

    def live_snapshots(self) -> list[Snapshot]:
        """Return main and every branch, by name; one that is deleted meanwhile is left out."""
        main = self.snapshot(MAIN)
        found = [main]
        for name in sorted(main.state.branches):
            try:
                found.append(self.snapshot(name))
            except GraphError as error:
                if error.code != "branch.not_found":
                    raise
        return found

    def at_version(self, branch: str, version: int) -> Snapshot:
        """Return a branch as it was at one manifest version."""
        return self._load(branch, DatasetRef(MANIFEST_PATH, self.resolve(branch), version))

    def at_ref(self, ref: DatasetRef) -> Snapshot:
        """Return the graph as one version of a branch's catalog says it is."""
        return self._load(self.name_of(BranchId(ref.branch) if ref.branch else None), ref)

    def at_commit(self, commit_id: CommitId) -> Snapshot:
        """Return the graph as one commit left it."""
        return self.snapshot_of(self.find_commit(commit_id))

    def snapshot_of(self, commit: Commit) -> Snapshot:
        """Return the graph as a commit left it, without looking for the commit."""
        snapshot = self._load(
            self.name_of(commit.branch), DatasetRef(MANIFEST_PATH, commit.branch, commit.manifest_version)
        )
        if snapshot.head != commit.commit_id:
            raise GraphError(
                f"the version that commit {commit.commit_id} made now holds commit {snapshot.head}",
                code="graph.version_reclaimed",
                commit_id=commit.commit_id,
            )
        return snapshot

    def name_of(self, branch_id: BranchId | None) -> str:
        """Return the readable name of an incarnation; the id itself when it has none any more."""
        return self.names_of([branch_id])[branch_id]

    def names_of(self, branch_ids: Iterable[BranchId | None]) -> dict[BranchId | None, str]:
        """Return the readable names of incarnations; storage is asked at most once."""
        wanted = set(branch_ids)
        names: dict[BranchId | None, str] = {one: MAIN if one is None else one for one in wanted}
        if wanted - {None}:
            live = self._verify(MAIN, None).snapshot.state.branches.values()
            names |= {one.branch_id: one.name for one in live if one.branch_id in wanted}
        return names

    def dataset(self, snapshot: Snapshot, table_key: str) -> Dataset:
        """Open a type's dataset at the version that a snapshot pins."""
        return self._open_pin(snapshot, snapshot.state.pins[table_key])

    def writable(self, snapshot: Snapshot, table_key: str) -> Dataset:
        """Open a type's dataset for staging; on a branch that inherits it or has adopted it, fork it first.

        The fork is reachable by no reader until a publish names it, so an abandoned one is only residue.
        """
        self.refuse_read_only()
        pin = snapshot.state.pins[table_key]
        dataset = self._open_pin(snapshot, pin)
        owner = snapshot.state.branch_id
        if pin.owner == owner:
            return dataset
        return self.store.fork(dataset, fork_name(owner, dataset.ref))

    # -- history -----------------------------------------------------------------------------------------------

    def history(self, branch: str = MAIN) -> Iterator[Commit]:
        """Yield the commits reachable from a branch's head by first parents and merges, newest first."""
        snapshot = self.snapshot(branch)
        known = {commit.commit_id: commit for commit in snapshot.state.commits}
        is_complete = False
        pending, seen = [snapshot.head] if snapshot.head else [], set[CommitId]()
        while pending:
            commit_id = pending.pop(0)
            if commit_id in seen:
                continue
            seen.add(commit_id)
            if commit_id not in known and not is_complete:
                known, is_complete = self.all_commits() | known, True
            commit = known[commit_id]
            yield commit
            parents = [parent for parent in (commit.parent, commit.merged_parent) if parent is not None]
            waiting = {*pending, *parents}
            # Where several lines go on, their next commits must be known to tell which is newer.
            if len(waiting) > 1 and not is_complete and not waiting <= known.keys():
                known, is_complete = self.all_commits() | known, True
            pending = sorted(waiting, key=lambda one: _age(known.get(one)), reverse=True)

    def find_commit(self, commit_id: CommitId) -> Commit:
        """Return one commit of any branch."""
        for verified in self._heads.values():
            for commit in verified.snapshot.state.commits:
                if commit.commit_id == commit_id:
                    return commit
        found = self.all_commits().get(commit_id)
        if found is None:
            raise GraphError(
                f"there is no commit {commit_id}; list them with `omnigraph commit list`",
                code="commit.not_found",
                commit_id=commit_id,
            )
        return found

    def all_commits(self) -> dict[CommitId, Commit]:
        """Return every commit that a live branch or the commit log knows: at least all that were there at the call."""
        # Commits go from branches to the log, so whoever looks there first misses those that move meanwhile.
        recent = [commit for snapshot in self.live_snapshots() for commit in snapshot.state.commits]
        known = {CommitId(commit_id): commit for commit_id, commit in commit_log.read(self.store).items()}
        return known | {commit.commit_id: commit for commit in recent}

    def keep_history(self, snapshot: Snapshot, after: CommitId | None = None) -> None:
        """Put the commits that a branch made, or those after one of them, where they outlive the branch."""
        if snapshot.state.branch_id is None:
            # Main cannot be deleted.
            return
        own = [commit for commit in snapshot.state.commits if commit.branch == snapshot.state.branch_id]
        known = next((number for number, commit in enumerate(own, 1) if commit.commit_id == after), 0)
        if own[known:]:
            commit_log.spill(self.store, own[known:])

    # -- commits -----------------------------------------------------------------------------------------------

    def commit(self, branch: str, prepare: Prepare, work: Work = Work.INSERT) -> Receipt | None:
        """Prepare and publish; None when the prepared work turns out to change nothing.

        `prepare` is called again on a newer state when another writer was faster and the kind of work allows it; it
        may hand out again what it staged before.
        """
        self.refuse_read_only()
        request_id = self._request_id
        if request_id is None:
            return self._commit(branch, prepare, work)

        def prepare_once(snapshot: Snapshot) -> Plan | None:
            refuse_repeated(snapshot, request_id, self.all_commits)
            return under(prepare(snapshot), request_id)

        receipt = self._commit(branch, prepare_once, work)
        if receipt is not None and receipt.commit is not None:
            # What follows a commit, as the deletion of a merged branch, belongs to the same request.
            self._request_id = None
        return receipt

    def _commit(self, branch: str, prepare: Prepare, work: Work) -> Receipt | None:
        if work.queued:
            branch_id = self.resolve(branch)
            with self._turn(branch_id):
                return self._run(branch, branch_id, prepare, work, None, clock.elapsed())
        begun = clock.elapsed()
        # Work that may be prepared anew is prepared before its turn comes, so that writers stage side by side.
        base, fresh = self._capture(branch)
        plan = prepare(base.snapshot)
        if plan is None:
            return None
        verified = fresh()
        branch_id = verified.snapshot.state.branch_id
        prepared = (base, plan) if verified.snapshot.ref == base.snapshot.ref else None
        with self._turn(branch_id):
            return self._run(branch, branch_id, prepare, work, prepared, begun)

    def _run(
        self,
        branch: str,
        branch_id: BranchId | None,
        prepare: Prepare,
        work: Work,
        prepared: tuple[Verified, Plan] | None,
        begun: float,
    ) -> Receipt | None:
        lost = 0
        while True:
            head = self._known(branch, branch_id) if prepared is not None else self._verify(branch, branch_id)
            if prepared is None or prepared[0].snapshot.version != head.snapshot.version:
                if prepared is not None:
                    lost = self._count_loss(prepared[0].snapshot, head.snapshot, lost, work)
                plan = prepare(head.snapshot)
                if plan is None:
                    return None
                prepared = (head, plan)
            base, plan = prepared
            try:
                receipt = publish(self.store, base, plan, self._unfinished(base.snapshot), begun)
            except Moved:
                self._heads.pop(branch_id, None)
                head = self._verify(branch, branch_id)
                lost = self._count_loss(base.snapshot, head.snapshot, lost, work)
                prepared = None
                # Writers of other processes hold no turn of ours; an uneven wait keeps any of them from always losing.
                clock.pause(ids.fraction() * min(lost * RETRY_WAIT_SECONDS, RETRY_WAIT_SECONDS_MAX))
                continue
            self._heads[branch_id] = Verified(receipt.snapshot, clock.elapsed())
            self._link(receipt)
            return receipt

    def _count_loss(self, before: Snapshot, after: Snapshot, lost: int, work: Work) -> int:
        # A change answers for what it read. Upkeep leaves that as it was, so it may be prepared anew on top of it.
        attempts = REPREPARE_MAX if work is Work.CHANGE and _is_kept_up(before, after) else work.attempts
        if attempts == 0:
            raise ReadSetChanged(
                f"branch `{before.branch}` moved from commit {before.head} to {after.head} while the write was being"
                " prepared; nothing was written, run it again",
                member=f"graph_head:{before.branch}",
                expected=before.head,
                actual=after.head,
            )
        if lost >= attempts:
            raise ConflictError(
                f"other writers of branch `{before.branch}` were faster {lost} times; nothing was written, run it"
                " again later",
                branch=before.branch,
            )
        return lost + 1

    @contextmanager
    def _turn(self, branch_id: BranchId | None) -> Iterator[None]:
        with _queues_lock:
            key = (self.store.root.uri, branch_id)
            queue = self._my_queues.setdefault(branch_id, _queues.setdefault(key, _Queue()))
        with queue.turn:
            yield

    # -- heads -------------------------------------------------------------------------------------------------

    def _capture(self, branch: str) -> tuple[Verified, Callable[[], Verified]]:
        """Return a state to prepare on, and a way to learn whether it is the newest.

        On remote storage the probes run while the caller prepares: they cost round trips that need not be waited for.
        """
        known = None if self.store.root.is_local else self._recent(branch)
        if known is None:
            verified = self._verify(branch, self.resolve(branch))
            return verified, lambda: verified
        name = self.store.pool.submit(self.resolve, branch)
        head = self.store.pool.submit(self._verify, branch, known.snapshot.state.branch_id)

        def fresh() -> Verified:
            verified, branch_id = head.result(), name.result()
            is_same = branch_id == verified.snapshot.state.branch_id
            return verified if is_same else self._verify(branch, branch_id)

        return known, fresh

    def _recent(self, branch: str) -> Verified | None:
        """Return the head of a branch as this handle last saw it, unless that is too long ago."""
        main = self._heads.get(None)
        name = branch.strip()
        if main is None or (name != MAIN and name not in main.snapshot.state.branches):
            return None
        known = main if name == MAIN else self._heads.get(main.snapshot.state.branches[name].branch_id)
        return None if known is None or known.is_late else known

    def was_head(self, ref: DatasetRef) -> bool:
        """Tell whether a version of the catalog was seen to be a head so recently that cleanup surely keeps it."""
        known = self._heads.get(BranchId(ref.branch) if ref.branch else None)
        return known is not None and known.snapshot.version == ref.version and not known.is_late

    def _known(self, branch: str, branch_id: BranchId | None) -> Verified:
        return self._heads.get(branch_id) or self._verify(branch, branch_id)

    def _verify(self, branch: str, branch_id: BranchId | None) -> Verified:
        known = self._heads.get(branch_id)
        now = clock.elapsed()
        # Cleanup may remove the very version that a probe asks for, so only a recent head is probed; see `is_late`.
        if known is not None and now - known.at <= PUBLISH_DEADLINE_SECONDS:
            ref = known.snapshot.ref
            if not self.store.has_version(ref.at(ref.version + 1)):
                verified = Verified(known.snapshot, now)
            else:
                verified = self._load_newest(branch, branch_id, now)
        else:
            verified = self._load_newest(branch, branch_id, now)
        verified = _called(verified, branch)
        newest = self._heads.get(branch_id)
        if newest is None or newest.snapshot.version <= verified.snapshot.version:
            self._heads[branch_id] = verified
            return verified
        # A publish of this process overtook the probe; what it made is newer than what was read.
        return _called(newest, branch)

    def _load_newest(self, branch: str, branch_id: BranchId | None, now: float) -> Verified:
        try:
            manifest = self.store.open_latest(MANIFEST_PATH, branch_id)
        except StorageError as error:
            if error.storage_kind is not StorageKind.NOT_FOUND:
                raise
            raise GraphError(
                f"there is no graph at `{self.store.root.uri}`; create one with `omnigraph init`",
                code="graph.not_found",
                uri=self.store.root.uri,
            ) from error
        known = self._heads.get(branch_id)
        if known is not None and known.snapshot.version == manifest.version:
            return Verified(known.snapshot, now)
        if branch_id is None:
            self._refuse_old(manifest)
        return Verified(self._decode(branch, self.store.remember(manifest)), now)

    def _refuse_old(self, manifest: Dataset) -> None:
        # Main decides for all branches: one of them may have been made of an old version.
        rows.refuse_old(manifest.schema, f"the graph at `{self.store.root.uri}`", self.store.root.uri)

    def _load(self, branch: str, ref: DatasetRef) -> Snapshot:
        try:
            manifest = self.store.open(ref)
        except StorageError as error:
            if error.storage_kind is not StorageKind.NOT_FOUND:
                raise
            raise GraphError(
                f"version {ref.version} of branch `{branch}` is not there, or was removed by cleanup",
                code="graph.version_reclaimed",
                branch=branch,
                version=ref.version,
            ) from error
        return self._decode(branch, manifest)

    def _decode(self, branch: str, manifest: Dataset) -> Snapshot:
        rows.check_stamp(manifest.schema, f"the graph at `{self.store.root.uri}`")
        try:
            table = manifest.read()
        except OmniGraphError as error:
            if error.code == "graph.version_reclaimed":
                raise
            raise GraphError(
                f"`__manifest` version {manifest.version} cannot be read: {error.message}. Read an older version, or"
                " restore it from a backup",
                code="graph.corrupt",
                object=str(manifest.ref),
            ) from error
        return rows.decode(
            table, branch, BranchId(manifest.ref.branch) if manifest.ref.branch else None, manifest.version
        )

    # -- links -------------------------------------------------------------------------------------------------

    def _open_pin(self, snapshot: Snapshot, pin: Pin) -> Dataset:
        if (cached := self.store.cached(pin.ref)) is not None:
            return cached
        link = next((one for one in self._unfinished(snapshot) if one.ref == pin.ref), None)
        if link is not None and self.read_only and not self._is_linked(link):
            return self.store.open_unlinked(link.ref, link.manifest)
        if link is not None and not self.read_only:
            self._finish(link)
        try:
            return self.store.open(pin.ref)
        except StorageError as error:
            if error.storage_kind is not StorageKind.NOT_FOUND:
                raise
            raise GraphError(
                f"version {pin.version} of `{pin.table_key}` was removed by cleanup; read a newer commit",
                code="graph.version_reclaimed",
                type_key=pin.table_key,
                version=pin.version,
            ) from error

    def _unfinished(self, snapshot: Snapshot) -> tuple[Link, ...]:
        return tuple(link for link in snapshot.links if link.ref not in self._linked)

    def displaced(self, snapshot: Snapshot, pin: Pin) -> bool:
        """Tell whether a foreign tool wrote where a published version of a type still has to be linked."""
        link = next((one for one in self._unfinished(snapshot) if one.ref == pin.ref), None)
        return link is not None and self.store.has_version(link.ref) and not self._is_linked(link)

    def finish_links(self, snapshot: Snapshot) -> int:
        """Put every published version of a snapshot in its place by path; return how many were not there."""
        return sum([self._finish(link) for link in self._unfinished(snapshot)])

    def _finish(self, link: Link) -> bool:
        is_missing = not self._is_linked(link)
        if is_missing:
            self.store.link(link.ref, link.manifest)
        self._linked.add(link.ref)
        return is_missing

    def _is_linked(self, link: Link) -> bool:
        """Tell whether a version's own manifest is in its place; a foreign tool may have written there first."""
        staged = self.store.objects.read_if_exists(link.manifest)
        # The staged name is taken away only after the version was linked.
        return staged is None or staged == self.store.objects.read_if_exists(link.ref.manifest_path)

    def _link(self, receipt: Receipt) -> None:
        """Link what was just published; on remote storage behind the caller's back, since anyone may finish it."""
        if self.store.root.is_local:
            # The publish stands; a link that failed now is finished by whoever comes next.
            with suppress(OmniGraphError):
                self._link_now(receipt)
        else:
            self._linking[:] = [task for task in self._linking if not task.done()]
            self._linking.append(self.store.pool.submit(self._link_now, receipt))

    def _link_now(self, receipt: Receipt) -> None:
        own = {one.ref: one for one in receipt.staged}
        for link in receipt.snapshot.links:
            if (staged := own.get(link.ref)) is not None:
                self.store.link(staged.ref, staged.manifest, staged.passed)
                self._linked.add(link.ref)
            elif link.ref not in self._linked:
                self._finish(link)

    # -- lifetime ----------------------------------------------------------------------------------------------

    def refuse_read_only(self) -> None:
        """Refuse what changes storage, when the graph was opened to be read."""
        if self.read_only:
            raise GraphError("the graph was opened read-only; open it for writing", code="graph.read_only")

    def close(self) -> None:
        """Wait for links in the background; their failures are not ours to raise, since anyone may finish them."""
        for task in self._linking:
            task.exception()
        self._linking.clear()
        self.store.close()


def _called(verified: Verified, name: str) -> Verified:
    """Return a head under the name it was asked for by: a branch that was renamed is still the same branch."""
    if verified.snapshot.branch == name.strip():
        return verified
    return Verified(replace(verified.snapshot, branch=name.strip()), verified.at)


def _is_kept_up(before: Snapshot, after: Snapshot) -> bool:
    """Tell whether nothing but upkeep, which changes no result, lies between two states of a branch."""
    kinds = [one.kind for one in after.state.commits if one.manifest_version > before.version]
    return len(kinds) == after.version - before.version and UPKEEP.issuperset(kinds)


def _age(commit: Commit | None) -> tuple[int, int, str]:
    return (commit.manifest_version, commit.created_at_us, commit.commit_id) if commit else (0, 0, "")
