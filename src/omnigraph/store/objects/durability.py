"""Durability: the one seam to fsync.

Local disks only; an object store has stored what it has acknowledged.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from queue import SimpleQueue
from threading import Thread
from typing import Final, TypeAlias

from omnigraph import settings
from omnigraph.store.objects.failures import from_os_error
from omnigraph.store.objects.uri import Location

# Concurrent syncs share one commit of the file system's journal, so the pool is wider than the machine has cores.
SYNC_THREADS: Final = 12
_FULL_SYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)

# A path, and the queue for what its sync raised.
_Request: TypeAlias = "tuple[str, SimpleQueue[BaseException | None]]"


def _fsync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _FULL_SYNC is None:
            os.fsync(descriptor)
        else:
            # A plain fsync on macOS leaves the bytes in the drive's own cache.
            fcntl.fcntl(descriptor, _FULL_SYNC)
    finally:
        os.close(descriptor)


_sync_path: Callable[[str], None] = _fsync


@contextmanager
def replaced(sync_path: Callable[[str], None]) -> Iterator[None]:
    """Replace fsync of one file or directory in tests; called from several threads."""
    global _sync_path
    before, _sync_path = _sync_path, sync_path
    try:
        yield
    finally:
        _sync_path = before


@cache
def _requests(_process: int) -> SimpleQueue[_Request]:
    """Return the queue of the threads that sync: a future of an executor costs more than the sync of a small file."""
    # Keyed by process id: a forked child inherits the queue, but none of its threads.
    requests: SimpleQueue[_Request] = SimpleQueue()
    for number in range(SYNC_THREADS):
        Thread(target=_serve, args=(requests,), name=f"omnigraph-sync-{number}", daemon=True).start()
    return requests


def _serve(requests: SimpleQueue[_Request]) -> None:
    while True:
        path, answers = requests.get()
        answers.put(_sync_one(path))


def _sync_one(path: str) -> BaseException | None:
    """Sync a path; return what was raised, as the error that the caller gets."""
    try:
        _sync_path(path)
    except OSError as error:
        failure = from_os_error(error, "make durable", path)
        failure.__cause__ = error
        return failure
    except BaseException as error:  # noqa: BLE001 - raised by `_sync_all`
        return error
    return None


def _sync_all(paths: list[str]) -> None:
    if not paths:
        return
    requests, answers = _requests(os.getpid()), SimpleQueue[BaseException | None]()
    for path in paths[1:]:
        requests.put((path, answers))
    # The caller's own thread takes a share instead of waiting. Nothing may still be running when it learns of a failure
    # and cleans up, so all answers come first.
    failures = [_sync_one(paths[0])]
    failures += [answers.get() for _ in paths[1:]]
    for failure in failures:
        if failure is not None:
            raise failure


class Disk:
    """Syncs of files and directories below one graph root."""

    def __init__(self, root: Location) -> None:
        self._root = root.path if root.has_paths else ""
        self._is_anchored = False

    @property
    def active(self) -> bool:
        """Whether `sync` does anything: the root is local and the setting asks to survive power loss."""
        return bool(self._root) and settings.read("OMNIGRAPH_DURABILITY") == "power"

    def sync(self, files: Iterable[str], directories: Iterable[str]) -> None:
        """Return when the bytes of `files` and then the entries of `directories` would survive power loss.

        Paths are relative to the root (`""` is the root itself) or absolute. Directories above the given ones are
        included, because a directory survives only as an entry of its parent. Raises `StorageError` when one of
        them is missing or the disk refuses.
        """
        if not self.active:
            return
        # An entry must never survive without the bytes that it names, hence two rounds.
        _sync_all(list(dict.fromkeys(map(self._absolute, files))))
        if parents := self._with_parents(directories):
            _sync_all(parents)
            self._is_anchored = True

    def _absolute(self, path: str) -> str:
        return (path if path.startswith("/") else f"{self._root}/{path}").rstrip("/") or "/"

    def _with_parents(self, directories: Iterable[str]) -> list[str]:
        complete: dict[str, None] = {}
        for directory in map(self._absolute, directories):
            while directory not in complete:
                complete[directory] = None
                if directory in (self._root, "/"):
                    break
                directory = directory.rpartition("/")[0] or "/"
        # The root's own entry lies outside of the graph; it is new at most once in the life of a handle.
        if complete and not self._is_anchored:
            complete.update(dict.fromkeys(_above(self._root)))
        return list(complete)


def _above(root: str) -> Iterator[str]:
    """Yield the directories that hold the root's own entry, up to its mount point, as far as we may open them."""
    while not os.path.ismount(root):
        root = os.path.dirname(root)
        if os.access(root, os.R_OK):
            yield root
