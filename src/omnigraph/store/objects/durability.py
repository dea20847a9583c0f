"""Durability: the one seam to fsync.

Local disks only; an object store has stored what it has acknowledged.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from typing import Final

from omnigraph import settings
from omnigraph.store.objects.failures import from_os_error
from omnigraph.store.objects.uri import Location

# Concurrent syncs share one commit of the file system's journal, so the pool is wider than the machine has cores.
SYNC_THREADS: Final = 12
_FULL_SYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)


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
def _pool(_process: int) -> ThreadPoolExecutor:
    # Keyed by process id: a forked child inherits the pool object, but none of its threads.
    return ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="omnigraph-sync")


def _sync_one(path: str) -> None:
    try:
        _sync_path(path)
    except OSError as error:
        raise from_os_error(error, "make durable", path) from error


def _sync_all(paths: list[str]) -> None:
    if not paths:
        return
    futures = [_pool(os.getpid()).submit(_sync_one, path) for path in paths[1:]]
    try:
        # The caller's own thread takes a share instead of waiting.
        _sync_one(paths[0])
    finally:
        # Nothing may still be running when the caller learns of a failure and cleans up.
        wait(futures)
    for future in futures:
        future.result()


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
        _sync_all(list(dict.fromkeys(self._absolute(path) for path in files)))
        if parents := self._with_parents(directories):
            _sync_all(parents)
            self._is_anchored = True

    def _absolute(self, path: str) -> str:
        return os.path.join(self._root, path).rstrip("/") or "/"

    def _with_parents(self, directories: Iterable[str]) -> list[str]:
        complete: dict[str, None] = {}
        for directory in map(self._absolute, directories):
            while directory not in complete:
                complete[directory] = None
                if directory == self._root or directory == os.path.dirname(directory):
                    break
                directory = os.path.dirname(directory)
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
