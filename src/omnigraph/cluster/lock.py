"""The lock of a cluster: one operation at a time, with coded findings for everything that can be wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from omnigraph.cluster.findings import ClusterError, Finding, error, warning
from omnigraph.cluster.ledger import FOLDER, Ledger
from omnigraph.manifest.numbered_locks import HeldLock, LockHeld, LockInfo, LockUnreadable, NumberedLocks

LOCK_FOLDER: Final = f"{FOLDER}/locks"


def read_lock(ledger: Ledger) -> LockInfo | None:
    """Return the newest lock, held or released, or None if there never was one."""
    try:
        return _locks(ledger).read()
    except LockUnreadable as failure:
        raise _unreadable_error(failure) from None


@contextmanager
def hold_lock(ledger: Ledger, operation: str, actor: str | None) -> Iterator[ClusterLock]:
    """Hold the lock of a cluster; raises `ClusterError` with `state_lock_held` while another operation holds it."""
    try:
        lock = _locks(ledger).acquire(operation, actor)
    except LockUnreadable as failure:
        raise _unreadable_error(failure) from None
    except LockHeld as failure:
        raise _held_error(failure.holder) from None
    lock.start()
    try:
        yield ClusterLock(lock)
    finally:
        lock.release()


def force_unlock(ledger: Ledger, lock_id: str, actor: str | None) -> None:
    """Release the lock of another process; `lock_id` must be that of the current holder."""
    current = read_lock(ledger)
    if current is None or not current.is_held:
        raise ClusterError.of([error("state_lock_missing", LOCK_FOLDER, "no operation holds the lock")])
    if current.lock_id != lock_id:
        message = f"the lock is held as `{current.lock_id}`; check which operation you mean to stop"
        raise ClusterError.of([error("state_lock_id_mismatch", LOCK_FOLDER, message)])
    # The next number is created as released, so the holder notices that it has lost before its next change.
    if not _locks(ledger).release_by_force(current, actor):
        raise ClusterError.of([error("state_lock_missing", LOCK_FOLDER, "the lock has just changed hands; look again")])


def _locks(ledger: Ledger) -> NumberedLocks:
    return NumberedLocks(ledger.objects, LOCK_FOLDER)


def _unreadable_error(failure: LockUnreadable) -> ClusterError:
    message = "it cannot be decoded; delete the object if no operation is running"
    return ClusterError.of([error("invalid_state_lock", failure.path, message)])


def _held_error(lock: LockInfo | None) -> ClusterError:
    if lock is None:
        message = "other operations took the lock first each time; nothing was changed. Run the command again"
        return ClusterError.of([error("state_lock_held", LOCK_FOLDER, message)])
    by_actor = f" by `{lock.body['actor']}`" if lock.body["actor"] else ""
    message = (
        f"`{lock.body['operation']}`{by_actor} holds the lock `{lock.lock_id}`; wait for it, or, if it is certainly"
        f" dead, run `omnigraph cluster force-unlock {lock.lock_id}`"
    )
    return ClusterError.of([error("state_lock_held", LOCK_FOLDER, message)])


class ClusterLock:
    """A held lock of a cluster."""

    def __init__(self, lock: HeldLock) -> None:
        self._lock = lock
        self.lock_id = lock.lock_id

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is worth a warning: a dead holder had the lock."""
        dead = self._lock.taken_from
        if dead is None:
            return ()
        message = f"its holder `{dead.body['operation']}` has stopped without releasing it; taken over"
        return (warning("state_lock_taken_over", LOCK_FOLDER, message),)

    def require(self) -> None:
        """Raise if the lock was taken over; called before everything that changes storage."""
        if self._lock.is_lost:
            message = "another operation has taken over the lock; nothing more was changed. Run the command again"
            raise ClusterError.of([error("state_lock_lost", LOCK_FOLDER, message)])
