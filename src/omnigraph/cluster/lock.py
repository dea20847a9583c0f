"""The lock of a cluster: one operation at a time, with a lease that storage's clock measures.

Locks are numbered and the newest number is the lock: taking over a dead holder's lock, or removing it by force, means
creating the next number, so of any number of racers one succeeds, and the old holder can see that it has lost. The
lock only spares operators useless work; correctness rests on the ledger's compare-and-swap and on atomic commits.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import orjson

from omnigraph import clock
from omnigraph.cluster.findings import ClusterError, Finding, error, warning
from omnigraph.cluster.ledger import FOLDER, Ledger
from omnigraph.errors import StorageError
from omnigraph.ids import new_ulid
from omnigraph.limits import CLUSTER_LOCK_ATTEMPTS, HEARTBEAT_SECONDS
from omnigraph.manifest.intents import Owner, this_process
from omnigraph.store.objects.control_objects import ObjectInfo, Objects

LOCK_FOLDER: Final = f"{FOLDER}/locks"
# The ids of the locks that operations of this process hold.
_held_here: Final[set[str]] = set()
_NAME: Final = re.compile(r"[0-9]{12}\.json")


@dataclass(frozen=True, slots=True)
class LockInfo:
    """The newest lock; `silent_us` is the time since its last heartbeat by storage's clock."""

    path: str
    body: dict[str, Any]
    silent_us: int

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
        return is_left_behind or owner.is_dead(self.silent_us)

    def to_json(self) -> dict[str, Any]:
        """Return what `status` shows of a holder."""
        shown = {name: self.body[name] for name in ("lock_id", "operation", "actor", "created_at")}
        return {**shown, "pid": self.body["owner"]["pid"], "silent_seconds": round(self.silent_us / 1e6, 1)}


def read_lock(ledger: Ledger) -> LockInfo | None:
    """Return the newest lock, held or released, or None if there never was one."""
    infos = _numbered(ledger.objects)
    if not infos:
        return None
    newest = infos[-1]
    data = ledger.objects.read_if_exists(newest.path)
    if data is None:
        return read_lock(ledger)
    try:
        body = orjson.loads(data)
        info = LockInfo(newest.path, body, ledger.objects.read_time() - clock.storage_us(newest.modified_us))
        Owner.from_json(body["owner"])
        assert {"lock_id", "operation", "actor", "created_at", "released"} <= body.keys()
    except (ValueError, KeyError, TypeError, AssertionError):
        message = "it cannot be decoded; delete the object if no operation is running"
        raise ClusterError([error("invalid_state_lock", newest.path, message)]) from None
    return info


@contextmanager
def hold_lock(ledger: Ledger, operation: str, actor: str | None) -> Iterator[ClusterLock]:
    """Hold the lock of a cluster; raises `ClusterError` with `state_lock_held` while another operation holds it."""
    lock = _acquire(ledger, operation, actor)
    lock.start()
    try:
        yield lock
    finally:
        lock.release()


def force_unlock(ledger: Ledger, lock_id: str, actor: str | None) -> None:
    """Release the lock of another process; `lock_id` must be that of the current holder."""
    current = read_lock(ledger)
    if current is None or not current.is_held:
        raise ClusterError([error("state_lock_missing", LOCK_FOLDER, "no operation holds the lock")])
    if current.lock_id != lock_id:
        message = f"the lock is held as `{current.lock_id}`; check which operation you mean to stop"
        raise ClusterError([error("state_lock_id_mismatch", LOCK_FOLDER, message)])
    body = _body(new_ulid(), "force-unlock", actor, released=True)
    if not ledger.objects.write_if_absent(_next_path(current), body):
        raise ClusterError([error("state_lock_missing", LOCK_FOLDER, "the lock has just changed hands; look again")])


def _acquire(ledger: Ledger, operation: str, actor: str | None) -> ClusterLock:
    for _ in range(CLUSTER_LOCK_ATTEMPTS):
        current = read_lock(ledger)
        findings: tuple[Finding, ...] = ()
        if current is not None and current.is_held:
            if not current.is_dead:
                raise _held(current)
            message = f"its holder `{current.body['operation']}` has stopped without releasing it; taken over"
            findings = (warning("state_lock_taken_over", LOCK_FOLDER, message),)
        lock_id, path = new_ulid(), _next_path(current)
        _held_here.add(lock_id)
        is_taken = False
        try:
            is_taken = _take(ledger.objects, path, _body(lock_id, operation, actor, released=False))
        finally:
            if not is_taken:
                _held_here.discard(lock_id)
        if is_taken:
            return ClusterLock(ledger.objects, path, lock_id, operation, actor, findings)
    message = "other operations took the lock first each time; nothing was changed. Run the command again"
    raise ClusterError([error("state_lock_held", LOCK_FOLDER, message)])


def _take(objects: Objects, path: str, body: bytes) -> bool:
    """Create a lock, and return True if it is the newest."""
    if not objects.write_if_absent(path, body):
        return False
    paths = [info.path for info in _numbered(objects)]
    # A number can be absent because its holder is done and a later holder discarded it: only the newest counts.
    for stale in [other for other in paths if other < paths[-1]]:
        objects.discard(stale)
    return path == paths[-1]


def _held(lock: LockInfo) -> ClusterError:
    who = f" by `{lock.body['actor']}`" if lock.body["actor"] else ""
    message = (
        f"`{lock.body['operation']}`{who} holds the lock `{lock.lock_id}`; wait for it, or, if it is certainly dead,"
        f" run `omnigraph cluster force-unlock {lock.lock_id}`"
    )
    return ClusterError([error("state_lock_held", LOCK_FOLDER, message)])


def _numbered(objects: Objects) -> list[ObjectInfo]:
    """Return the locks, oldest first, without the temporary files of writers that run or have crashed."""
    return [info for info in objects.list(LOCK_FOLDER) if _NAME.fullmatch(info.path.rpartition("/")[2])]


def _next_path(current: LockInfo | None) -> str:
    number = int(current.path.rpartition("/")[2].removesuffix(".json")) + 1 if current is not None else 1
    return f"{LOCK_FOLDER}/{number:012d}.json"


def _body(lock_id: str, operation: str, actor: str | None, *, released: bool) -> bytes:
    owner = this_process().to_json()
    members = {"version": 1, "lock_id": lock_id, "operation": operation, "actor": actor, "owner": owner}
    return orjson.dumps({**members, "created_at": clock.now_us(), "released": released})


class ClusterLock:
    """A held lock; a thread renews it until it is released."""

    def __init__(
        self,
        objects: Objects,
        path: str,
        lock_id: str,
        operation: str,
        actor: str | None,
        findings: tuple[Finding, ...],
    ) -> None:
        self.lock_id = lock_id
        self.findings = findings
        self._objects = objects
        self._path = path
        self._held = _body(lock_id, operation, actor, released=False)
        self._released = _body(lock_id, operation, actor, released=True)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="cluster-lock", daemon=True)

    def start(self) -> None:
        """Start to renew the lease."""
        self._thread.start()

    def require(self) -> None:
        """Raise if the lock was taken over; called before everything that changes storage."""
        if not self._is_newest():
            message = "another operation has taken over the lock; nothing more was changed. Run the command again"
            raise ClusterError([error("state_lock_lost", LOCK_FOLDER, message)])

    def release(self) -> None:
        """Release the lock; a failure is harmless, since the lease ends by itself."""
        self._stopped.set()
        self._thread.join()
        self._write(self._released)
        _held_here.discard(self.lock_id)

    def _renew(self) -> None:
        while not self._stopped.wait(HEARTBEAT_SECONDS):
            self._write(self._held)

    def _write(self, body: bytes) -> None:
        # A holder that was paused for longer than its lease must not bring its number back.
        with suppress(StorageError):
            if self._is_newest():
                self._objects.write(self._path, body)

    def _is_newest(self) -> bool:
        numbered = _numbered(self._objects)
        return bool(numbered) and numbered[-1].path == self._path
