"""The kernel: snapshots of a graph, and the loop that turns prepared work into published commits.

Everything above it reads through `snapshot` and `dataset`, and changes the graph through `commit`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import dropwhile
from typing import TypeVar

from omnigraph import clock, ids
from omnigraph.errors import GraphError, OmniGraphError, StorageError, StorageKind
from omnigraph.ids import BranchId, CommitId
from omnigraph.limits import (
    PUBLISH_DEADLINE_SECONDS,
    RETRY_WAIT_SECONDS,
    RETRY_WAIT_SECONDS_MAX,
)
from omnigraph.manifest import encoding, history
from omnigraph.manifest.branch_names import NameRecord
from omnigraph.manifest.claims import ClaimLine
from omnigraph.manifest.commit_attempt import Attempt, Prepare, prepare_first
from omnigraph.manifest.commit_queue import BranchTurn, shared_turn
from omnigraph.manifest.history import CommitSource, unknown_commit, walk_history
from omnigraph.manifest.idempotency import reject_repeated, tag_with_request_id
from omnigraph.manifest.model import MAIN, MANIFEST_PATH, BranchNames, Commit, Link, Pin, Snapshot, fork_names
from omnigraph.manifest.plan import Plan, Receipt, CommitPolicy
from omnigraph.manifest.publish import Moved, ObservedHead, publish
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.read.live_rows import check_deletions
from omnigraph.store.store import Store

T = TypeVar("T")


class Kernel:
    """One opened graph."""

    def __init__(self, store: Store, *, read_only: bool = False) -> None:
        self.store = store
        self.read_only = read_only
        self._heads: dict[BranchId | None, ObservedHead] = {}
        self._linked: set[DatasetRef] = set()
        self._turns: dict[BranchId | None, BranchTurn] = {}
        self._linking: list[Future[None]] = []
        self._request_id: str | None = None
        self._names = NameRecord(store, lambda: self._verify(MAIN, None))

    def once(self, request_id: str) -> Kernel:
        """Return this kernel for one write under an id of its caller's choice, which is done at most once."""
        other = copy(self)
        other._request_id = request_id
        return other

    def refuse_repeated(self, branch: str) -> None:
        """Refuse a write under an id that a commit of the branch bears already."""
        if self._request_id is not None:
            reject_repeated(self.snapshot(branch), self._request_id, partial(history.read, self.store))

    # -- snapshots ---------------------------------------------------------------------------------------------

    def snapshot(self, branch: str = MAIN) -> Snapshot:
        """Return the newest state of a branch: one probe when nothing has changed."""
        return self._verify(branch, self.resolve(branch)).snapshot

    def recent_snapshot(self, branch: str = MAIN) -> Snapshot | None:
        """Return a branch as this handle saw it some seconds ago at most, without asking storage."""
        known = self._recent(branch)
        return None if known is None else _called(known, branch).snapshot

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
        return [main, *self.snapshots_of(sorted(main.state.branches))]

    def snapshots_of(self, names: Iterable[str]) -> list[Snapshot]:
        """Return the newest states of branches; one that is deleted meanwhile is left out."""
        found = []
        for name in names:
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
        """Return the newest name of an incarnation, to show; the id itself when it is gone and no name is recorded."""
        return self.names_of([branch_id])[branch_id]

    def names_of(self, branch_ids: Iterable[BranchId | None]) -> dict[BranchId | None, str]:
        """Return the newest names of incarnations, to show; another branch may have the name of one that is gone."""
        found = self.all_names_of(branch_ids)
        return {one: names.newest or str(one) for one, names in found.items()}

    def all_names_of(self, branch_ids: Iterable[BranchId | None]) -> dict[BranchId | None, BranchNames]:
        """Return every name that incarnations had; see `NameRecord`."""
        return self._names.look_up(branch_ids, self._heads.get(None))

    def dataset(self, snapshot: Snapshot, table_key: str) -> Dataset:
        """Open a type's dataset at the version that a snapshot pins."""
        return self._open_pin(snapshot, snapshot.state.pins[table_key])

    def writable(self, snapshot: Snapshot, table_key: str) -> Dataset:
        """Open a type's dataset for staging; on a branch that inherits it or has adopted it, fork it first.

        The fork is reachable by no reader until a publish names it, so an abandoned one is only residue.
        """
        self.refuse_read_only()
        pin = snapshot.state.pins[table_key]
        dataset = check_deletions(self._open_pin(snapshot, pin))
        owner = snapshot.state.branch_id
        if pin.owner == owner:
            return dataset
        # Pins of older graphs do not say when they were adopted, so their names can be met again.
        unused = dropwhile(partial(self._is_published, snapshot, pin), fork_names(owner, pin))
        return self.store.fork(dataset, *unused)

    def _is_published(self, snapshot: Snapshot, pin: Pin, name: str) -> bool:
        """Tell whether a fork of a pin has a version after its first, by path or waiting to be linked."""
        fork = DatasetRef(pin.path, name, pin.version)
        waiting = [link.ref for link in self._unfinished(snapshot)]
        is_waiting = any((ref.path, ref.branch) == (fork.path, fork.branch) for ref in waiting)
        return is_waiting or self.store.has_version(fork.at(fork.version + 1))

    # -- history -----------------------------------------------------------------------------------------------

    def history(self, branch: str = MAIN) -> Iterator[Commit]:
        """Yield the commits reachable from a branch's head by first parents and merges, newest first."""
        return walk_history(self, self.snapshot(branch))

    def find_commit(self, commit_id: CommitId) -> Commit:
        """Return one commit of any branch."""
        found = self.look_for_commit(commit_id)
        if found is None:
            raise unknown_commit(commit_id)
        return found

    def look_for_commit(self, commit_id: CommitId) -> Commit | None:
        """Return one commit of any branch; None if there is none."""
        for verified in list(self._heads.values()):
            for commit in verified.snapshot.state.commits:
                if commit.commit_id == commit_id:
                    return commit
        return CommitSource(self).find(commit_id)

    def all_commits(self) -> dict[CommitId, Commit]:
        """Return every commit that a live branch or the commit log knows: at least all that were there at the call."""
        # Commits go from branches to the log, so whoever looks there first misses those that move meanwhile.
        recent = [commit for snapshot in self.live_snapshots() for commit in snapshot.state.commits]
        return history.read(self.store) | {commit.commit_id: commit for commit in recent}

    def keep_history(self, snapshot: Snapshot, after: Collection[CommitId] = (), names: tuple[str, ...] = ()) -> None:
        """Put the commits that led to a branch, or those after the last of some, where all can find them."""
        history.spill_branch(self.store, snapshot, after, names)

    # -- commits -----------------------------------------------------------------------------------------------

    def commit(self, branch: str, prepare: Prepare, work: CommitPolicy = CommitPolicy.INSERT) -> Receipt | None:
        """Prepare and publish; None when the prepared work turns out to change nothing.

        `prepare` is called again on a newer state when another writer was faster and the kind of work allows it; it
        may hand out again what it staged before.
        """
        self.refuse_read_only()
        request_id = self._request_id
        if request_id is None:
            return self._commit(branch, prepare, work)

        def prepare_once(snapshot: Snapshot) -> Plan | None:
            reject_repeated(snapshot, request_id, partial(history.read, self.store))
            return tag_with_request_id(prepare(snapshot), request_id)

        receipt = self._commit(branch, prepare_once, work)
        if receipt is not None and receipt.commit is not None:
            # What follows a commit, as the deletion of a merged branch, belongs to the same request.
            self._request_id = None
        return receipt

    def _commit(self, branch: str, prepare: Prepare, work: CommitPolicy) -> Receipt | None:
        begun = clock.elapsed()
        if work.queued:
            branch_id = self.resolve(branch)
            with self._turn(branch_id).held() as turn:
                return self._run(Attempt(branch, branch_id, prepare, work, begun), turn)
        # Work that may be prepared anew is prepared before its turn comes, so that writers stage side by side.
        captured, fresh = self._capture(branch, work)
        base, plan = prepare_first(captured, prepare, work, lambda: self._verify(branch, self.resolve(branch)))
        if plan is None:
            return None
        verified, has_claims = fresh()
        branch_id = verified.snapshot.state.branch_id
        attempt = Attempt(branch, branch_id, prepare, work, begun, has_claims)
        turn = self._turn(branch_id)
        if verified.snapshot.ref == base.snapshot.ref:
            attempt.prepared = (base, plan)
        else:
            turn.note_head(verified.snapshot)
        with turn.held():
            return self._run(attempt, turn)

    def _run(self, attempt: Attempt, turn: BranchTurn) -> Receipt | None:
        """Publish in the turn of the branch: prepare what is not prepared on the head, again after every loss."""
        line = turn.line
        try:
            head = self._join_claims(attempt, line)
            while True:
                if self._wait_for_claims(attempt, line):
                    head = None
                head = head or self._newest_known(attempt, turn)
                prepared = self._prepared_on(head, attempt, turn)
                if prepared is None:
                    return None
                base, plan = prepared
                try:
                    receipt = publish(self.store, base, plan, self._unfinished(base.snapshot), attempt.begun)
                except Moved:
                    head = self._lose(attempt, base, plan, line)
                    continue
                turn.note_win(receipt.snapshot, clock.elapsed() - attempt.tried_at)
                self._heads[attempt.branch_id] = ObservedHead(receipt.snapshot, clock.elapsed())
                self._link(receipt)
                return receipt
        finally:
            line.leave(self.store)

    def _join_claims(self, attempt: Attempt, line: ClaimLine) -> ObservedHead | None:
        """Queue up with other processes where that is due; return the head if it was read on the way.

        Work that is refused when it loses queues up as soon as other processes are known to write.
        """
        now = clock.elapsed()
        head: ObservedHead | None = None
        if attempt.has_claims is None and line.contention.must_look(now):
            look = self._beside(lambda: line.look(self.store))
            head = self._verify(attempt.branch, attempt.branch_id)
            attempt.has_claims = look()
        is_refused = attempt.work.attempts == 0 and line.contention.is_contended(now)
        if attempt.has_claims or is_refused:
            line.join(self.store, now - attempt.begun)
            return None
        return head

    def _wait_for_claims(self, attempt: Attempt, line: ClaimLine) -> bool:
        """Wait for those that claimed the branch before us; return whether there were any.

        The next in the queue prepares on what the one before has published, while that one clears its claim.
        """
        seen: list[int] = []

        def catch_up() -> None:
            head = self._verify(attempt.branch, attempt.branch_id)
            seen.append(head.snapshot.version)
            is_prepared = attempt.prepared is not None and attempt.prepared[0].snapshot.version == seen[-1]
            if seen[0] < seen[-1] and not is_prepared and attempt.work.attempts:
                attempt.tried_at = clock.elapsed()
                plan = attempt.prepare(head.snapshot)
                attempt.prepared = (head, plan) if plan is not None else None
                attempt.is_caught_up = plan is not None

        return line.wait(self.store, catch_up)

    def _newest_known(self, attempt: Attempt, turn: BranchTurn) -> ObservedHead:
        # Of an insert that was just prepared the head was asked meanwhile; what took longer asks again before it stages
        # a catalog in vain. Another handle of this process may have published what this one has not seen.
        is_recent = attempt.is_caught_up or not (attempt.work.is_costly or turn.line.has_claim)
        known = self._heads.get(attempt.branch_id)
        if attempt.prepared is None or not is_recent or known is None or known.snapshot.version < turn.last_version:
            return self._verify(attempt.branch, attempt.branch_id)
        return known

    def _prepared_on(self, head: ObservedHead, attempt: Attempt, turn: BranchTurn) -> tuple[ObservedHead, Plan] | None:
        """Return a plan on the head; None when there is nothing to do."""
        if attempt.prepared is not None:
            base, plan = attempt.prepared
            if base.snapshot.version == head.snapshot.version:
                return attempt.prepared
            attempt.count_loss(base.snapshot, head.snapshot, plan)
            if turn.note_head(head.snapshot) and turn.line.contention.must_claim(attempt.lost, attempt.work.is_costly):
                attempt.prepared, head = None, self._claim(attempt, turn.line)
                if self._wait_for_claims(attempt, turn.line):
                    return self._prepared_on(self._newest_known(attempt, turn), attempt, turn)
        attempt.tried_at = clock.elapsed()
        new = attempt.prepare(head.snapshot)
        attempt.prepared = (head, new) if new is not None else None
        return attempt.prepared

    def _lose(self, attempt: Attempt, base: ObservedHead, plan: Plan, line: ClaimLine) -> ObservedHead:
        """After another process was faster: claim the branch if that happened too often; return the new head."""
        self._heads.pop(attempt.branch_id, None)
        seconds = clock.elapsed() - attempt.tried_at
        attempt.prepared, attempt.is_caught_up = None, False
        line.contention.note_attempt(seconds)
        line.contention.note_contention(clock.elapsed())
        must_claim = not line.has_claim and line.contention.must_claim(attempt.lost + 1, attempt.work.is_costly)
        if must_claim and attempt.work.attempts:
            head = self._claim(attempt, line)
        else:
            line.renew(self.store, seconds)
            head = self._verify(attempt.branch, attempt.branch_id)
        attempt.count_loss(base.snapshot, head.snapshot, plan)
        if must_claim and not line.has_claim:
            head = self._claim(attempt, line)
        elif not line.has_claim:
            # An uneven wait keeps two writers from losing to each other in step.
            clock.pause(ids.fraction() * min(attempt.lost * RETRY_WAIT_SECONDS, RETRY_WAIT_SECONDS_MAX))
        return head

    def _claim(self, attempt: Attempt, line: ClaimLine) -> ObservedHead:
        """Claim the branch, and return its head."""
        seconds = clock.elapsed() - attempt.tried_at
        joined = self._beside(lambda: line.join(self.store, seconds))
        head = self._verify(attempt.branch, attempt.branch_id)
        joined()
        return head

    def _turn(self, branch_id: BranchId | None) -> BranchTurn:
        if branch_id not in self._turns:
            self._turns[branch_id] = shared_turn(self.store.root.uri, branch_id)
        return self._turns[branch_id]

    # -- heads -------------------------------------------------------------------------------------------------

    def _capture(self, branch: str, work: CommitPolicy) -> tuple[ObservedHead, Callable[[], tuple[ObservedHead, bool | None]]]:
        """Return a state to prepare on, and a way to learn what the newest is and whether others claim the branch.

        On remote storage the requests run while the caller prepares: they are round trips that need not be waited for.
        """
        recent = self._recent(branch)
        known = None if self.store.root.is_local else recent
        if work.is_costly:
            # By the time that such work is prepared, nothing of this would be news.
            known = known or self._verify(branch, self.resolve(branch))
            return known, lambda: (known, None)
        name = self._beside(lambda: self.resolve(branch))
        branch_id = known.snapshot.state.branch_id if known else name()
        skips_probe = recent is not None and self._turn(branch_id).may_skip_probe(recent.snapshot)
        look = self._look_if_due(branch_id)
        if skips_probe and recent is not None:
            # The last commits were ours, so the look for claims takes the place of the probe: the publish will tell.
            known = recent
            newest: Callable[[], ObservedHead] = partial(_returned, recent)
        else:
            newest = self._beside(lambda: self._verify(branch, branch_id))

        def fresh() -> tuple[ObservedHead, bool | None]:
            verified = newest() if name() == branch_id else self._verify(branch, name())
            return verified, look() if look is not None else None

        return known or newest(), fresh

    def _look_if_due(self, branch_id: BranchId | None) -> Callable[[], bool] | None:
        line = self._turn(branch_id).line
        return self._beside(lambda: line.look(self.store)) if line.contention.must_look(clock.elapsed()) else None

    def _beside(self, task: Callable[[], T]) -> Callable[[], T]:
        """Begin a task on remote storage, do it on a disk; return a way to its result."""
        if not self.store.root.is_local:
            return self.store.pool.submit(task).result
        return partial(_returned, task())

    def _recent(self, branch: str) -> ObservedHead | None:
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

    def _verify(self, branch: str, branch_id: BranchId | None) -> ObservedHead:
        known = self._heads.get(branch_id)
        now = clock.elapsed()
        # Cleanup may remove the very version that a probe asks for, so only a recent head is probed; see `is_late`.
        if known is not None and now - known.at <= PUBLISH_DEADLINE_SECONDS:
            ref = known.snapshot.ref
            if not self.store.has_version(ref.at(ref.version + 1)):
                verified = ObservedHead(known.snapshot, now)
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

    def _load_newest(self, branch: str, branch_id: BranchId | None, now: float) -> ObservedHead:
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
            return ObservedHead(known.snapshot, now)
        if branch_id is None:
            self._refuse_old(manifest)
        return ObservedHead(self._decode(branch, self.store.remember(manifest)), now)

    def _refuse_old(self, manifest: Dataset) -> None:
        # Main decides for all branches: one of them may have been made of an old version.
        encoding.refuse_old(manifest.schema, f"the graph at `{self.store.root.uri}`", self.store.root.uri)

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
        encoding.check_stamp(manifest.schema, f"the graph at `{self.store.root.uri}`")
        try:
            table = manifest.read()
        except StorageError as error:
            # Only bytes that were read, or that storage does not have, can contradict the catalog.
            if error.storage_kind not in (StorageKind.UNKNOWN, StorageKind.NOT_FOUND):
                raise
            raise GraphError(
                f"`__manifest` version {manifest.version} cannot be read: {error.message}. Read an older version, or"
                " restore it from a backup",
                code="graph.corrupt",
                object=str(manifest.ref),
            ) from error
        return encoding.decode(
            table, branch, BranchId(manifest.ref.branch) if manifest.ref.branch else None, manifest.version
        )

    # -- links -------------------------------------------------------------------------------------------------

    def _open_pin(self, snapshot: Snapshot, pin: Pin) -> Dataset:
        if (cached := self.store.cached(pin.ref)) is not None:
            return cached
        link = next((one for one in self._unfinished(snapshot) if one.ref == pin.ref.stored), None)
        if link is not None and self.read_only and not self.is_linked(link):
            return self.store.reshaped(self.store.open_unlinked(link.ref, link.manifest), pin.shape)
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
        return link is not None and self.store.has_version(link.ref) and not self.is_linked(link)

    def finish_links(self, snapshot: Snapshot) -> int:
        """Put every published version of a snapshot in its place by path; return how many were not there."""
        return sum([self._finish(link) for link in self._unfinished(snapshot)])

    def _finish(self, link: Link) -> bool:
        is_missing = not self.is_linked(link)
        if is_missing:
            self.store.link(link.ref, link.manifest)
        self._linked.add(link.ref)
        return is_missing

    def is_linked(self, link: Link) -> bool:
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
                self.store.objects.keep_reserve()
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


def _returned(value: T) -> T:
    return value


def _called(verified: ObservedHead, name: str) -> ObservedHead:
    """Return a head under the name it was asked for by: a branch that was renamed is still the same branch."""
    if verified.snapshot.branch == name.strip():
        return verified
    return ObservedHead(replace(verified.snapshot, branch=name.strip()), verified.at)
