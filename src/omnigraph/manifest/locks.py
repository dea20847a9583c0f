"""Locks between processes: claims, a queue for writers of one branch that keep losing, and numbered locks with a lease.

A claim is a small object that asks the other writers of a branch to let its owner publish first. It is advice: the
compare-and-swap on `__manifest` alone decides who wins, and a claim stops counting at a deadline. Everything that
decides is pure (`Contention`, `ClaimQueue`); the simulation of the tests runs the same code.

Locks of a folder are numbered and the newest number is the lock: taking over a dead holder's lock, or removing it by
force, means creating the next number, so of any number of racers one succeeds, and the old holder can see that it has
lost. A lock only spares useless work; correctness rests on compare-and-swap and on atomic commits.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from omnigraph import clock
from omnigraph.errors import OmniGraphError, StorageError
from omnigraph.ids import BranchId, new_ulid
from omnigraph.limits import (
    CLAIM_HOLD_SECONDS_MIN,
    CLAIM_LOOK_COMMITS,
    CLAIM_LOSSES,
    CLAIM_POLL_SECONDS,
    CLAIM_POLL_SECONDS_MAX,
    CLAIM_SECONDS_MAX,
    CLAIM_WATCH_SECONDS,
    HEARTBEAT_SECONDS,
    LOCK_ATTEMPTS,
)
from omnigraph.manifest.intents import Owner, this_process
from omnigraph.manifest.model import MAIN
from omnigraph.store.objects.control_objects import ObjectInfo, Objects
from omnigraph.store.store import Store

CLAIMS_FOLDER = "__claims"
_HOLD_FACTOR = 3
# Doublings of a pause; all of them exceed its bound.
_UNCHANGED_MAX = 16


@dataclass(frozen=True, slots=True, order=True)
class Claim:
    """A claim in a listing: its position in the queue, and how long it may stay first."""

    written_us: int
    name: str


def claim_name(hold_seconds: float) -> str:
    """Return the name of a new claim; it carries the time that its owner needs, so that a listing says everything.

    >>> claim_name(2.5).rpartition("-")[2]
    '2500'
    """
    bounded = min(max(hold_seconds, CLAIM_HOLD_SECONDS_MIN), CLAIM_SECONDS_MAX)
    # Storage may date objects to the second only. Chance decides ties: the writer's own clock would favour slow clocks.
    return f"{new_ulid()[::-1]}-{round(bounded * 1_000)}"


def hold_seconds(name: str) -> float:
    """Return how long a claim may stay first, by its name."""
    return int(name.rpartition("-")[2]) / 1_000


@dataclass
class Contention:
    """What this process observed of other writers of a branch: decides when to check for claims and when to make one.

    Without contention a check adds no waiting, and is made once in `CLAIM_LOOK_COMMITS` commits.
    """

    # No observation exists for a branch that this process has not checked.
    _wins: int = CLAIM_LOOK_COMMITS + 1
    _watched_until: float = float("-inf")
    _attempt_seconds: float = 0.0
    _turn_seconds: float = 0.0
    _has_queue: bool = False

    def is_contended(self, now: float) -> bool:
        """Return True if other processes were recently seen writing or claiming."""
        return now < self._watched_until

    def must_look(self, now: float) -> bool:
        return self._wins >= CLAIM_LOOK_COMMITS or self.is_contended(now)

    def may_skip_probe(self, now: float) -> bool:
        """Return True if the last commits were probably made here, so that a check for claims can replace the probe."""
        return self._wins == CLAIM_LOOK_COMMITS and not self.is_contended(now)

    def joins_at_once(self, now: float) -> bool:
        """Return True if others were in the queue the last time: a listing before the claim would tell nothing new."""
        return self._has_queue and self.is_contended(now)

    def note_look(self, has_others: bool, now: float) -> None:
        self._wins = 0
        self._has_queue = has_others
        if has_others:
            self.note_contention(now)

    def note_win(self) -> None:
        self._wins += 1

    def note_contention(self, now: float) -> None:
        """Record a commit or a claim of another process."""
        self._watched_until = now + CLAIM_WATCH_SECONDS

    def must_claim(self, lost: int, is_costly: bool) -> bool:
        """Return True if a writer that lost this often must claim the branch; costly work claims after one loss."""
        return lost >= (1 if is_costly else CLAIM_LOSSES)

    def note_attempt(self, seconds: float) -> None:
        self._attempt_seconds = seconds

    def note_turn(self, seconds: float) -> None:
        """Record how long a claim of another process was first."""
        self._turn_seconds = (self._turn_seconds + seconds) / 2 if self._turn_seconds else seconds

    @property
    def turn_seconds(self) -> float:
        """How long a turn probably takes: as those that were watched, or else as the latest attempt of this process."""
        return self._turn_seconds or self._attempt_seconds

    def hold_seconds(self, attempt_seconds: float) -> float:
        """Return how long a claim asks others to wait: the duration of the latest attempts, with a margin."""
        # A claimant's attempt may take longer than its last one did.
        return _HOLD_FACTOR * max(attempt_seconds, self._attempt_seconds)


@dataclass(slots=True)
class ClaimQueue:
    """Decides from successive listings which claims are ahead of our own, and which have expired.

    No clocks are compared. A claim's age is the difference of two modification times in one listing; how long it has
    been first is measured by our own clock, from when we first saw it there.
    """

    name: str
    claimed_at: float
    expired: set[str] = field(default_factory=set)
    _first: str | None = None
    _first_since: float = 0.0

    def ahead(self, listing: Iterable[Claim], now: float) -> list[Claim]:
        """Return the claims ahead of this one, in order."""
        claims = sorted(listing)
        # A ticket lock without a lock: tickets are ordered by storage's timestamp and then by name, which every process
        # lists alike, so all agree on who is first.
        own_claim = next((claim for claim in claims if claim.name == self.name), None)
        if own_claim is not None:
            # Storage's time now is about the time of our claim plus what has passed since; only differences of the same
            # clock are used, so wrong clocks neither expire live claims nor keep dead ones.
            oldest_us = own_claim.written_us + (now - self.claimed_at - CLAIM_SECONDS_MAX) * 1_000_000
            self.expired.update(claim.name for claim in claims if claim.written_us < oldest_us)
            claims = claims[: claims.index(own_claim)]
        live = [claim for claim in claims if claim.name not in self.expired]
        # A lease: a crashed or stuck owner holds up the others no longer than the time it asked for.
        while live and self._held_too_long(live[0], now):
            self.expired.add(live.pop(0).name)
        return live

    def drop(self, name: str) -> None:
        """Ignore a claim from now on: its owner is dead."""
        self.expired.add(name)

    def _held_too_long(self, first: Claim, now: float) -> bool:
        if first.name != self._first:
            self._first, self._first_since = first.name, now
        return now - self._first_since > hold_seconds(first.name)


@dataclass(slots=True)
class QueueWait:
    """Decides how long a claimant pauses, and whether it lists the queue again or only probes for a new commit.

    Requests follow turns, not time: behind others, a listing when most of their turns must be over; as the next in
    line, probes more and more often towards the end of the turn, and a listing when a commit was published.
    """

    contention: Contention
    ahead: int
    changed_at: float
    _listed_at: float = 0.0
    _unchanged: int = 0
    _has_moved: bool = False

    def __post_init__(self) -> None:
        self._listed_at = self.changed_at

    @property
    def is_next(self) -> bool:
        return self.ahead == 1

    def pause_seconds(self, now: float) -> float:
        """Return how long to wait before the next request."""
        turn, passed = self.contention.turn_seconds, now - self.changed_at
        if self._has_moved:
            # The one ahead has probably published, and its claim is being deleted.
            seconds = CLAIM_POLL_SECONDS * (1 << self._unchanged)
        elif self.is_next:
            # What takes longer than expected may take much longer.
            seconds = max((turn - passed) / 4, (passed - turn) / 8)
        else:
            # Half of the first turn is over, on average. Who wakes up too late lets the branch stand idle.
            seconds = max((self.ahead - 1.5) * turn * 0.9, passed / 4)
        return min(max(seconds, CLAIM_POLL_SECONDS), CLAIM_POLL_SECONDS_MAX)

    def note_move(self) -> None:
        """Record that a commit was published."""
        if not self._has_moved:
            self._has_moved, self._unchanged = True, 0

    def must_list(self, now: float) -> bool:
        """Return True if the queue may have changed: after a commit, or once a claim must have left without one."""
        if not self.is_next or self._has_moved:
            return True
        seconds = max(self.contention.turn_seconds, CLAIM_POLL_SECONDS) * (1 << self._unchanged)
        return now - self._listed_at >= min(seconds, CLAIM_POLL_SECONDS_MAX)

    def note_listing(self, ahead: int, now: float) -> None:
        """Record how many claims are ahead now."""
        self._listed_at = now
        if ahead < self.ahead:
            self.contention.note_turn((now - self.changed_at) / (self.ahead - ahead))
            self.changed_at, self._unchanged, self._has_moved = now, 0, False
        else:
            self._unchanged = min(self._unchanged + 1, _UNCHANGED_MAX)
        self.ahead = ahead


class ClaimLine:
    """The claim of this process on a branch; used by the thread that holds the process's turn."""

    def __init__(self, branch_id: BranchId | None) -> None:
        self.contention = Contention()
        self._folder = f"{CLAIMS_FOLDER}/{branch_id or MAIN}"
        self._queue: ClaimQueue | None = None
        self._first_at: float | None = None

    @property
    def has_claim(self) -> bool:
        return self._queue is not None

    def look(self, store: Store) -> bool:
        """Return True if other processes claim the branch; one request, which may run concurrently with others."""
        queue = self._queue
        has_others = any(queue is None or claim.name != queue.name for claim in self._list(store))
        self.contention.note_look(has_others, clock.elapsed())
        return has_others

    def join(self, store: Store, attempt_seconds: float = 0.0) -> None:
        """Join the queue behind the existing claims."""
        if self._queue is not None:
            return
        name = claim_name(self.contention.hold_seconds(attempt_seconds))
        body = orjson.dumps({"format": 1, "owner": this_process().to_json()})
        store.objects.write(self._path(name), body)
        self._queue, self._first_at = ClaimQueue(name, clock.elapsed()), None
        self.contention.note_contention(clock.elapsed())

    def wait(self, store: Store, has_moved: Callable[[], bool], prepare: Callable[[], None]) -> bool:
        """Wait until no claim is ahead of this one, but never longer than a claim counts; return True if there was one.

        Once there is one more ahead, `has_moved` asks for a newly published commit, and `prepare` prepares on it while
        that one deletes its claim.
        """
        if self._queue is None or self._first_at is not None:
            return False
        begun, ahead = clock.elapsed(), self._ahead(store)
        queue_wait = QueueWait(self.contention, len(ahead), clock.elapsed())
        while queue_wait.ahead and clock.elapsed() < begun + CLAIM_SECONDS_MAX:
            clock.pause(queue_wait.pause_seconds(clock.elapsed()))
            is_moved = queue_wait.is_next and has_moved()
            if is_moved:
                queue_wait.note_move()
            # On a disk a listing costs no more than a probe, and tells of owners that have exited.
            if store.root.kind.lists_cheaply or queue_wait.must_list(clock.elapsed()):
                count = self._count_ahead(store, prepare if is_moved else None)
                queue_wait.note_listing(count, clock.elapsed())
        self._first_at = clock.elapsed()
        return bool(ahead)

    def _count_ahead(self, store: Store, prepare: Callable[[], None] | None) -> int:
        """Return how many claims are ahead, and prepare meanwhile: on remote storage the round trips overlap."""
        if prepare is None:
            return len(self._ahead(store))
        if not store.root.kind.has_round_trips:
            prepare()
            return len(self._ahead(store))
        listed = store.pool.submit(self._ahead, store)
        prepare()
        return len(listed.result())

    def renew(self, store: Store, attempt_seconds: float) -> None:
        """After a lost race: replace a claim that has expired by a new one at the end of the queue."""
        if self._queue is None or self._first_at is None:
            return
        if clock.elapsed() - self._first_at > hold_seconds(self._queue.name):
            self.leave(store)
            self.join(store, attempt_seconds)

    def leave(self, store: Store) -> None:
        """Delete our claim, so that the next in the queue can go; in the background on remote storage."""
        queue, self._queue = self._queue, None
        if queue is not None:
            names = [queue.name, *queue.expired]
            if store.root.kind.has_round_trips:
                store.pool.submit(self._remove, store, names)
            else:
                self._remove(store, names)

    def _ahead(self, store: Store) -> Sequence[Claim]:
        assert self._queue is not None
        claims, now = self._list(store), clock.elapsed()
        self.contention.note_look(any(claim.name != self._queue.name for claim in claims), now)
        ahead = self._queue.ahead(claims, now)
        if ahead and self._is_gone(store, ahead[0]):
            self._queue.drop(ahead[0].name)
            return ahead[1:]
        return ahead

    def _is_gone(self, store: Store, claim: Claim) -> bool:
        """Return True if the owner of a claim was a process of this machine that has exited."""
        if store.root.kind.has_round_trips:
            return False
        try:
            body = store.objects.read_if_exists(self._path(claim.name))
            return body is None or Owner.from_json(orjson.loads(body)["owner"]).is_proven_dead
        except (OmniGraphError, ValueError, KeyError, TypeError):
            return False

    def _list(self, store: Store) -> list[Claim]:
        claims = []
        for info in store.objects.list(self._folder):
            name = info.path.rpartition("/")[2].removesuffix(".json")
            if name.rpartition("-")[2].isdigit():
                claims.append(Claim(info.modified_us, name))
        return claims

    def _remove(self, store: Store, names: Iterable[str]) -> None:
        for name in names:
            # What stays behind expires.
            with suppress(OmniGraphError):
                store.objects.delete(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}.json"


_LOCK_MEMBERS: Final = frozenset({"lock_id", "operation", "actor", "owner", "created_at", "released"})
# The ids of the locks that this process holds.
_held_here: Final[set[str]] = set()
_LOCK_NAME: Final = re.compile(r"[0-9]{12}\.json")


class LockHeld(Exception):
    """Another process holds the lock; `holder` is None if others took it first each time."""

    def __init__(self, holder: LockInfo | None) -> None:
        super().__init__("the lock is held")
        self.holder = holder


class LockUnreadable(Exception):
    """The newest lock cannot be decoded."""

    def __init__(self, path: str) -> None:
        super().__init__(f"the lock `{path}` cannot be decoded")
        self.path = path


@dataclass(frozen=True, slots=True)
class LockInfo:
    """The newest lock; `silent_us` is the time since its last heartbeat by storage's clock, None if that is unknown."""

    path: str
    body: dict[str, Any]
    silent_us: int | None

    @property
    def lock_id(self) -> str:
        return str(self.body["lock_id"])

    @property
    def is_held(self) -> bool:
        return not self.body["released"]

    @property
    def is_dead(self) -> bool:
        """Return True if the holder has certainly stopped."""
        owner = Owner.from_json(self.body["owner"])
        # This process lives, but could not release the lock when its storage failed.
        is_left_behind = owner == this_process() and self.lock_id not in _held_here
        return is_left_behind or owner.is_dead(self.silent_us or 0)

    def to_json(self) -> dict[str, Any]:
        """Return what is shown of a holder."""
        shown = {name: self.body[name] for name in ("lock_id", "operation", "actor", "created_at")}
        silent_seconds = None if self.silent_us is None else round(self.silent_us / 1e6, 1)
        return {**shown, "pid": self.body["owner"]["pid"], "silent_seconds": silent_seconds}


class NumberedLocks:
    """The locks of one folder."""

    def __init__(self, objects: Objects, folder: str) -> None:
        self.folder = folder
        self._objects = objects

    def read(self) -> LockInfo | None:
        """Return the newest lock, held or released, or None if there never was one; raises `LockUnreadable`."""
        infos = _numbered(self._objects, self.folder)
        if not infos:
            return None
        newest = infos[-1]
        data = self._objects.read_if_exists(newest.path)
        if data is None:
            # A later holder discarded it after the listing, so a larger number exists by now.
            return self.read()
        try:
            body = orjson.loads(data)
            Owner.from_json(body["owner"])
            assert body.keys() >= _LOCK_MEMBERS
        except (ValueError, KeyError, TypeError, AssertionError):
            raise LockUnreadable(newest.path) from None
        return LockInfo(newest.path, body, None if body["released"] else self._silence(newest))

    def _silence(self, lock: ObjectInfo) -> int | None:
        """Return the time since a lock was renewed; None for those who may only read, since asking for it writes."""
        try:
            return self._objects.read_time() - clock.storage_us(lock.modified_us)
        except StorageError:
            return None

    def acquire(self, operation: str, actor: str | None) -> HeldLock:
        """Take the lock, also from a holder that has certainly stopped; raises `LockHeld`."""
        for _ in range(LOCK_ATTEMPTS):
            current = self.read()
            if current is not None and current.is_held and not current.is_dead:
                raise LockHeld(current)
            lock_id, path = new_ulid(), self._next_path(current)
            # Noted before it is written: another thread of this process must not take the lock for one left behind.
            _held_here.add(lock_id)
            is_taken = False
            try:
                is_taken = self._take(path, _lock_body(lock_id, operation, actor, released=False))
            finally:
                if not is_taken:
                    _held_here.discard(lock_id)
            if is_taken:
                dead = current if current is not None and current.is_held else None
                return HeldLock(self._objects, path, lock_id, operation, actor, dead)
        raise LockHeld(None)

    def _take(self, path: str, body: bytes) -> bool:
        """Create a lock, and return True if it is the newest."""
        # Compare-and-swap by name: of all that saw the same newest number, put-if-absent lets one create the next.
        if not self._objects.write_if_absent(path, body):
            return False
        paths = [info.path for info in _numbered(self._objects, self.folder)]
        # A number can be absent because its holder is done and a later holder discarded it: only the newest counts.
        for stale in [other for other in paths if other < paths[-1]]:
            self._objects.discard(stale)
        return path == paths[-1]

    def release_by_force(self, current: LockInfo, actor: str | None) -> bool:
        """Release the lock of another process; False if it has just changed hands."""
        body = _lock_body(new_ulid(), "force-unlock", actor, released=True)
        return self._objects.write_if_absent(self._next_path(current), body)

    def _next_path(self, current: LockInfo | None) -> str:
        number = int(current.path.rpartition("/")[2].removesuffix(".json")) + 1 if current is not None else 1
        return f"{self.folder}/{number:012d}.json"


def _numbered(objects: Objects, folder: str) -> list[ObjectInfo]:
    """Return the locks, oldest first, without the temporary files of writers that run or have crashed."""
    return [info for info in objects.list(folder) if _LOCK_NAME.fullmatch(info.path.rpartition("/")[2])]


def _lock_body(lock_id: str, operation: str, actor: str | None, *, released: bool) -> bytes:
    owner = this_process().to_json()
    members = {"version": 1, "lock_id": lock_id, "operation": operation, "actor": actor, "owner": owner}
    return orjson.dumps({**members, "created_at": clock.now_us(), "released": released})


class HeldLock:
    """A held lock; a thread renews it until it is released. `taken_from` is the dead holder that had it, if any."""

    def __init__(
        self, objects: Objects, path: str, lock_id: str, operation: str, actor: str | None, taken_from: LockInfo | None
    ) -> None:
        self.lock_id = lock_id
        self.taken_from = taken_from
        self._objects = objects
        self._path = path
        self._held = _lock_body(lock_id, operation, actor, released=False)
        self._released = _lock_body(lock_id, operation, actor, released=True)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="omnigraph-lock", daemon=True)

    def start(self) -> None:
        """Start to renew the lease."""
        self._thread.start()

    @property
    def is_lost(self) -> bool:
        """Whether another process has taken over the lock; asked before everything that changes storage."""
        # The number is a fencing token: a takeover, also by force, leaves a larger one behind.
        numbered = _numbered(self._objects, self._path.rpartition("/")[0])
        return not numbered or numbered[-1].path != self._path

    def release(self) -> None:
        """Release the lock; a failure is harmless, since the lease ends by itself."""
        self._stopped.set()
        self._thread.join()
        try:
            self._write(self._released)
        finally:
            # Also after an interrupt: this process must not take the lock for one that it holds.
            _held_here.discard(self.lock_id)

    def _renew(self) -> None:
        while not self._stopped.wait(HEARTBEAT_SECONDS):
            self._write(self._held)

    def _write(self, body: bytes) -> None:
        # A holder that was paused for longer than its lease must not bring its number back.
        with suppress(StorageError):
            # Check and write are two requests. In between a takeover may discard the number, and this write restore it;
            # `is_lost` still says so, since only the largest number counts.
            if not self.is_lost:
                self._objects.write(self._path, body)
