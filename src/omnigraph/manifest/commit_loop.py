"""The commit loop: prepare a plan on the head of a branch, publish it, and prepare it again after a lost race.

Optimistic concurrency: the compare-and-swap on `__manifest` in `publish` decides alone. Around it, the writers of one
process take turns (`BranchTurn`), and processes that keep losing queue up by claims (`locks`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from omnigraph import clock, ids
from omnigraph.errors import ConflictError, OmniGraphError, ReadSetChanged, StorageError
from omnigraph.ids import BranchId, OperationId
from omnigraph.limits import HEAD_CACHE_MAX, REPREPARE_MAX, RETRY_WAIT_SECONDS, RETRY_WAIT_SECONDS_MAX, TURN_SECONDS_MAX
from omnigraph.lru import LruCache
from omnigraph.manifest.heads import BranchHeads, ObservedHead
from omnigraph.manifest.links import Links
from omnigraph.manifest.locks import ClaimLine
from omnigraph.manifest.model import Snapshot
from omnigraph.manifest.plan import CommitPolicy, Plan, Receipt
from omnigraph.manifest.publish import Moved, publish
from omnigraph.store.store import Store


class BranchTurn:
    """The FIFO queue of this process's writers of a branch, and the process's claim among other processes."""

    def __init__(self, branch_id: BranchId | None = None) -> None:
        self.line = ClaimLine(branch_id)
        # The newest version that this process has published, through any handle.
        self.last_version = 0
        self._last_operation_id: OperationId | None = None
        self._mutex = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._is_taken = False

    @contextmanager
    def hold(self) -> Iterator[BranchTurn]:
        """Hold the turn. Unlike a plain lock it is fair: a busy thread cannot overtake waiting ones."""
        self._take()
        try:
            yield self
        finally:
            self._pass_on()

    def note_win(self, published: Snapshot, attempt_seconds: float) -> None:
        """Record a publish of this process."""
        self.last_version, self._last_operation_id = published.version, published.operation_id
        self.line.contention.note_win()
        self.line.contention.note_attempt(attempt_seconds)

    def note_head(self, head: Snapshot) -> bool:
        """Record a newer head; return True if another process published it."""
        is_foreign = head.operation_id != self._last_operation_id
        if is_foreign:
            self.line.contention.note_contention(clock.elapsed())
        return is_foreign

    def may_skip_probe(self, head: Snapshot) -> bool:
        """Return True if a cached head is most probably still the newest."""
        return head.operation_id == self._last_operation_id and self.line.contention.may_skip_probe(clock.elapsed())

    def _take(self) -> None:
        gate = threading.Lock()
        with self._mutex:
            if not self._is_taken:
                self._is_taken = True
                return
            gate.acquire()
            self._waiting.append(gate)
        try:
            if not gate.acquire(timeout=TURN_SECONDS_MAX):
                raise ConflictError(
                    f"other writers of this process held the branch for {TURN_SECONDS_MAX} seconds; nothing was"
                    " written, retry later"
                )
        except BaseException:
            # An interrupted thread leaves the queue, or passes on the turn if it got it at the same time.
            with self._mutex:
                if gate in self._waiting:
                    self._waiting.remove(gate)
                    raise
            self._pass_on()
            raise

    def _pass_on(self) -> None:
        with self._mutex:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._is_taken = False


_turns: WeakValueDictionary[tuple[str, BranchId | None], BranchTurn] = WeakValueDictionary()
_turns_lock = threading.Lock()


def shared_turn(uri: str, branch_id: BranchId | None) -> BranchTurn:
    """Return the turn of a branch that all handles of a graph in this process share."""
    with _turns_lock:
        return _turns.setdefault((uri, branch_id), BranchTurn(branch_id))


Prepare = Callable[[Snapshot], Plan | None]
T = TypeVar("T")

# Kinds of commits that change no query result.
UPKEEP: Final = frozenset({"optimize", "ensure_indices"})


@dataclass
class Attempt:
    """One write in flight: the plan, the head it was prepared on, and how often it lost."""

    branch: str
    branch_id: BranchId | None
    prepare: Prepare
    policy: CommitPolicy
    begun: float
    has_claims: bool | None = None
    prepared: tuple[ObservedHead, Plan] | None = None
    lost: int = 0
    tried_at: float = 0.0
    is_caught_up: bool = False

    def __post_init__(self) -> None:
        self.tried_at = self.begun

    def prepare_on(self, head: ObservedHead) -> tuple[ObservedHead, Plan] | None:
        """Prepare on a head; return None if there is nothing to do."""
        self.tried_at = clock.elapsed()
        plan = self.prepare(head.snapshot)
        self.prepared = (head, plan) if plan is not None else None
        return self.prepared

    def count_loss(self, before: Snapshot, after: Snapshot, plan: Plan) -> None:
        """Count one more lost race; raise if the policy does not allow the work to be prepared again."""
        # A change is validated against what it read: while that is unchanged, it may be prepared on the new head.
        is_unaffected = plan.reads_same(before, after) or (
            self.policy is CommitPolicy.CHANGE and has_only_upkeep(before.version, after)
        )
        attempts = REPREPARE_MAX if is_unaffected else self.policy.attempts
        if attempts == 0:
            raise ReadSetChanged(
                f"branch `{before.branch}` moved from commit {before.head} to {after.head} while the write was being"
                " prepared; nothing was written, retry",
                member=f"graph_head:{before.branch}",
                expected=before.head,
                actual=after.head,
            )
        if self.lost >= attempts:
            raise ConflictError(
                f"commit conflict on branch `{before.branch}`: lost to concurrent writers {self.lost} times; nothing"
                " was written, retry later",
                branch=before.branch,
            )
        self.lost += 1


class CommitLoop:
    """Turns prepared plans into published commits, for all branches of one opened graph."""

    def __init__(self, store: Store, heads: BranchHeads, links: Links) -> None:
        self._store = store
        self._heads = heads
        self._links = links
        self._turns: LruCache[BranchId | None, BranchTurn] = LruCache(HEAD_CACHE_MAX)

    def commit(self, branch: str, prepare: Prepare, policy: CommitPolicy) -> Receipt | None:
        """Prepare and publish; None when the prepared work turns out to change nothing."""
        begun = clock.elapsed()
        if policy.queued:
            branch_id = self._heads.resolve(branch)
            with self.turn(branch_id).hold() as turn:
                return self._publish_loop(Attempt(branch, branch_id, prepare, policy, begun), turn)
        # Work that may be prepared again is first prepared outside the turn, so that writers stage in parallel.
        base, read_newest = self._capture(branch, policy)
        base, plan = prepare_first(base, prepare, policy, lambda: self._refresh(branch))
        if plan is None:
            return None
        head, has_claims = read_newest()
        branch_id = head.snapshot.state.branch_id
        attempt = Attempt(branch, branch_id, prepare, policy, begun, has_claims)
        turn = self.turn(branch_id)
        if head.snapshot.ref == base.snapshot.ref:
            attempt.prepared = (base, plan)
        else:
            turn.note_head(head.snapshot)
        with turn.hold():
            return self._publish_loop(attempt, turn)

    def turn(self, branch_id: BranchId | None) -> BranchTurn:
        """Return the queue of this process's writers of a branch."""
        return self._turns.get_or_create(branch_id, partial(shared_turn, self._store.root.uri, branch_id))

    def _publish_loop(self, attempt: Attempt, turn: BranchTurn) -> Receipt | None:
        """Publish while holding the turn: prepare on the newest head, and again after each lost race.

        Bounded by `count_loss`, which raises when the policy allows no further attempt.
        """
        line = turn.line
        try:
            head = self._join_claims(attempt, line)
            while True:
                if self._wait_for_claims(attempt, line):
                    head = None
                head = head or self._newest_known(attempt, turn)
                prepared = self._prepare_on(head, attempt, turn)
                if prepared is None:
                    return None
                # Invariant: the plan was prepared on `base`, and `publish` wins only if `base` is still the newest
                # version. So a published plan was validated against exactly the state that it replaces.
                base, plan = prepared
                try:
                    receipt = publish(self._store, base, plan, self._links.unfinished(base.snapshot), attempt.begun)
                except Moved:
                    head = self._lose(attempt, base, plan, line)
                    continue
                turn.note_win(receipt.snapshot, clock.elapsed() - attempt.tried_at)
                self._heads.record(receipt.snapshot)
                self._links.link_published(receipt)
                return receipt
        finally:
            # Also after an error: a claim left behind would delay others until it expires.
            line.leave(self._store)

    def _join_claims(self, attempt: Attempt, line: ClaimLine) -> ObservedHead | None:
        """Queue up behind other processes where necessary; return the head if it was read on the way.

        Work that fails when it loses queues up as soon as other processes are known to write.
        """
        now = clock.elapsed()
        head: ObservedHead | None = None
        if attempt.has_claims is None and line.contention.joins_at_once(now):
            attempt.has_claims = True
        elif attempt.has_claims is None and line.contention.must_look(now):
            has_claims = self._start(lambda: line.look(self._store))
            head = self._heads.refresh(attempt.branch, attempt.branch_id)
            attempt.has_claims = has_claims()
        fails_on_loss = attempt.policy.attempts == 0 and line.contention.is_contended(now)
        if attempt.has_claims or fails_on_loss:
            line.join(self._store, now - attempt.begun)
            return None
        return head

    def _wait_for_claims(self, attempt: Attempt, line: ClaimLine) -> bool:
        """Wait for earlier claims on the branch; return True if there were any.

        The next in the queue prepares on what the one before it has published, while that one deletes its claim.
        """
        cached = self._heads.cached(attempt.branch_id)
        versions = [cached.snapshot.version if cached is not None else 0]

        def has_moved() -> bool:
            versions.append(self._heads.refresh(attempt.branch, attempt.branch_id).snapshot.version)
            return versions[-2] < versions[-1]

        def prepare() -> None:
            head = self._heads.cached(attempt.branch_id)
            # Preparing ahead of the turn is speculation: it is checked against the head again before it is published.
            is_prepared = attempt.prepared is not None and attempt.prepared[0].snapshot.version == versions[-1]
            if head is not None and not is_prepared and attempt.policy.attempts:
                attempt.is_caught_up = attempt.prepare_on(head) is not None

        return line.wait(self._store, has_moved, prepare)

    def _newest_known(self, attempt: Attempt, turn: BranchTurn) -> ObservedHead:
        # For an insert that was just prepared, the head was read meanwhile. Longer work checks again before it stages a
        # catalog for nothing. Another handle of this process may have published what this one has not observed.
        is_recent = attempt.is_caught_up or not (attempt.policy.is_costly or turn.line.has_claim)
        head = self._heads.cached(attempt.branch_id)
        if attempt.prepared is None or not is_recent or head is None or head.snapshot.version < turn.last_version:
            return self._heads.refresh(attempt.branch, attempt.branch_id)
        return head

    def _prepare_on(self, head: ObservedHead, attempt: Attempt, turn: BranchTurn) -> tuple[ObservedHead, Plan] | None:
        """Return a plan prepared on the head; None when there is nothing to do."""
        if attempt.prepared is not None:
            base, plan = attempt.prepared
            if base.snapshot.version == head.snapshot.version:
                return attempt.prepared
            attempt.count_loss(base.snapshot, head.snapshot, plan)
            is_foreign = turn.note_head(head.snapshot)
            if is_foreign and turn.line.contention.must_claim(attempt.lost, attempt.policy.is_costly):
                attempt.prepared, head = None, self._claim(attempt, turn.line)
                if self._wait_for_claims(attempt, turn.line):
                    return self._prepare_on(self._newest_known(attempt, turn), attempt, turn)
        return attempt.prepare_on(head)

    def _lose(self, attempt: Attempt, base: ObservedHead, plan: Plan, line: ClaimLine) -> ObservedHead:
        """After a lost race: claim the branch if that happened too often; return the new head."""
        self._heads.forget(attempt.branch_id)
        seconds = clock.elapsed() - attempt.tried_at
        attempt.prepared, attempt.is_caught_up = None, False
        line.contention.note_attempt(seconds)
        line.contention.note_contention(clock.elapsed())
        # Against starvation: after a fixed number of losses a writer joins the queue, and the others let it publish
        # first.
        must_claim = not line.has_claim and line.contention.must_claim(attempt.lost + 1, attempt.policy.is_costly)
        if must_claim and attempt.policy.attempts:
            head = self._claim(attempt, line)
        else:
            line.renew(self._store, seconds)
            head = self._heads.refresh(attempt.branch, attempt.branch_id)
        attempt.count_loss(base.snapshot, head.snapshot, plan)
        if must_claim and not line.has_claim:
            head = self._claim(attempt, line)
        elif not line.has_claim:
            # Random backoff, so that two writers do not keep colliding.
            clock.pause(ids.fraction() * min(attempt.lost * RETRY_WAIT_SECONDS, RETRY_WAIT_SECONDS_MAX))
        return head

    def _claim(self, attempt: Attempt, line: ClaimLine) -> ObservedHead:
        """Claim the branch, and return its head."""
        seconds = clock.elapsed() - attempt.tried_at
        joined = self._start(lambda: line.join(self._store, seconds))
        head = self._heads.refresh(attempt.branch, attempt.branch_id)
        joined()
        return head

    def _capture(
        self, branch: str, policy: CommitPolicy
    ) -> tuple[ObservedHead, Callable[[], tuple[ObservedHead, bool | None]]]:
        """Return a head to prepare on, and a function that returns the newest head and whether others claim the branch.

        On remote storage the requests run while the caller prepares, so that their round trips cost no time.
        """
        recent = self._heads.recent(branch)
        base = recent if self._store.root.kind.has_round_trips else None
        if policy.is_costly:
            # Preparing takes so long that a head read now would be stale by then.
            base = base or self._refresh(branch)
            return base, lambda: (base, None)
        resolved = self._start(lambda: self._heads.resolve(branch))
        branch_id = base.snapshot.state.branch_id if base else resolved()
        skips_probe = recent is not None and self.turn(branch_id).may_skip_probe(recent.snapshot)
        line = self.turn(branch_id).line
        has_claims: Callable[[], bool] | None = None
        if line.contention.joins_at_once(clock.elapsed()):
            has_claims = partial(_identity, True)
        elif line.contention.must_look(clock.elapsed()):
            has_claims = self._start(lambda: line.look(self._store))
        if skips_probe and recent is not None:
            # The last commits were made here, so checking for claims replaces the probe; a stale head loses the race.
            base = recent
            newest: Callable[[], ObservedHead] = partial(_identity, recent)
        else:
            newest = self._start(lambda: self._heads.refresh(branch, branch_id))

        def read_newest() -> tuple[ObservedHead, bool | None]:
            head = newest() if resolved() == branch_id else self._heads.refresh(branch, resolved())
            return head, has_claims() if has_claims is not None else None

        return base or newest(), read_newest

    def _refresh(self, branch: str) -> ObservedHead:
        return self._heads.refresh(branch, self._heads.resolve(branch))

    def _start(self, task: Callable[[], T]) -> Callable[[], T]:
        """Start a task in the background on remote storage, run it at once on a disk; return a getter of its result."""
        if self._store.root.kind.has_round_trips:
            return self._store.pool.submit(task).result
        return partial(_identity, task())


def has_only_upkeep(since: int, after: Snapshot) -> bool:
    """Return True if every commit since a version is upkeep, which changes no query result."""
    kinds = [commit.kind for commit in after.state.commits if commit.manifest_version > since]
    return len(kinds) == after.version - since and UPKEEP.issuperset(kinds)


def prepare_first(
    base: ObservedHead, prepare: Prepare, policy: CommitPolicy, read_newest: Callable[[], ObservedHead]
) -> tuple[ObservedHead, Plan | None]:
    """Prepare on a head that may be seconds old; a no-op or an error counts only if the newest head agrees."""
    failure: OmniGraphError | None = None
    plan: Plan | None = None
    try:
        plan = prepare(base.snapshot)
    except StorageError:
        raise
    except OmniGraphError as error:
        failure = error
    if plan is None and not policy.is_costly:
        newest = read_newest()
        if newest.snapshot.ref != base.snapshot.ref:
            return newest, prepare(newest.snapshot)
    if failure is not None:
        raise failure
    return base, plan


def _identity(value: T) -> T:
    return value
