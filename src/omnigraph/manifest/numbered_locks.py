"""A lock in storage that one process holds at a time, with a lease that storage's clock measures.

Locks of a folder are numbered and the newest number is the lock: taking over a dead holder's lock, or removing it by
force, means creating the next number, so of any number of racers one succeeds, and the old holder can see that it has
lost. A lock only spares useless work; correctness rests on compare-and-swap and on atomic commits.
"""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import orjson

from omnigraph import clock
from omnigraph.errors import StorageError
from omnigraph.ids import new_ulid
from omnigraph.limits import HEARTBEAT_SECONDS, LOCK_ATTEMPTS
from omnigraph.manifest.intents import Owner, this_process
from omnigraph.store.objects.control_objects import ObjectInfo, Objects

_MEMBERS: Final = frozenset({"lock_id", "operation", "actor", "owner", "created_at", "released"})
# The ids of the locks that this process holds.
_held_here: Final[set[str]] = set()
_NAME: Final = re.compile(r"[0-9]{12}\.json")


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
            assert body.keys() >= _MEMBERS
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
                is_taken = self._take(path, _body(lock_id, operation, actor, released=False))
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
        body = _body(new_ulid(), "force-unlock", actor, released=True)
        return self._objects.write_if_absent(self._next_path(current), body)

    def _next_path(self, current: LockInfo | None) -> str:
        number = int(current.path.rpartition("/")[2].removesuffix(".json")) + 1 if current is not None else 1
        return f"{self.folder}/{number:012d}.json"


def _numbered(objects: Objects, folder: str) -> list[ObjectInfo]:
    """Return the locks, oldest first, without the temporary files of writers that run or have crashed."""
    return [info for info in objects.list(folder) if _NAME.fullmatch(info.path.rpartition("/")[2])]


def _body(lock_id: str, operation: str, actor: str | None, *, released: bool) -> bytes:
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
        self._held = _body(lock_id, operation, actor, released=False)
        self._released = _body(lock_id, operation, actor, released=True)
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
