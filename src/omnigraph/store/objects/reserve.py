"""The reserve: room that a graph on a local disk keeps for itself, so that cleanup can begin when the disk is full.

Cleanup declares itself before it removes anything, and that takes a block of the disk. The reserve is a file of such
blocks: it is overwritten where it lies and renamed, and neither needs any room. To delete it and write the intent
afterwards would not do, because another writer could take the blocks in between.
"""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import shake_256
from typing import Final

from omnigraph import ids
from omnigraph.errors import StorageKind
from omnigraph.limits import RESERVE_BYTES
from omnigraph.store.objects.durability import Disk
from omnigraph.store.objects.failures import from_os_error
from omnigraph.store.objects.local_objects import TEMPORARY_PREFIX
from omnigraph.store.objects.uri import Location

RESERVE_PATH: Final = "__recovery/reserve"


class Reserve:
    """The reserve of one graph; in an object store there is none, and none is needed."""

    def __init__(self, root: Location) -> None:
        self._root = root
        self._disk = Disk(root)
        self._is_kept = not root.is_local

    @property
    def is_kept(self) -> bool:
        """Whether room is set aside, or need not be; checked once per handle."""
        self._is_kept = self._is_kept or self._is_reserve(RESERVE_PATH)
        return self._is_kept

    def keep(self) -> None:
        """Set room aside; best effort, since only a later cleanup would miss it."""
        folder = os.path.dirname(self._full(RESERVE_PATH))
        temporary = self._temporary()
        with suppress(OSError):
            os.makedirs(folder, exist_ok=True)
            try:
                with open(temporary, "xb") as file:
                    # Bytes that a file system cannot compress. They need not survive a power cut: the next check
                    # finds that the size is wrong.
                    file.write(shake_256().digest(RESERVE_BYTES))
                os.replace(temporary, self._full(RESERVE_PATH))
                self._is_kept = True
            finally:
                _unlink(temporary)

    def take(self, path: str, data: bytes) -> bool:
        """Write an object in the room of the reserve; False when there is no reserve, or it is too small.

        The object is padded with spaces. Of several callers at once one gets the room.
        """
        if not self._root.is_local or len(data) > RESERVE_BYTES or not self._is_reserve(RESERVE_PATH):
            return False
        self._is_kept = False
        temporary = self._temporary()
        try:
            os.rename(self._full(RESERVE_PATH), temporary)
        except FileNotFoundError:
            return False
        try:
            self._overwrite(temporary, data)
            os.rename(temporary, self._full(path))
        except OSError as error:
            # A file system that never writes in place needs new blocks even for this; deleted, these are free.
            _unlink(temporary)
            failure = from_os_error(error, "write", self._full(path))
            if failure.storage_kind is StorageKind.FULL:
                return False
            raise failure from error
        self._disk.sync([], [os.path.dirname(path)])
        return True

    def give_back(self, path: str) -> bool:
        """Make the reserve of an object that lies in its room; False when it does not lie there."""
        if not self._root.is_local or not self._is_reserve(path):
            return False
        try:
            os.replace(self._full(path), self._full(RESERVE_PATH))
        except OSError:
            return False
        return True

    def touch(self, path: str) -> None:
        """Give an object the time of the file system, which needs no room."""
        try:
            os.utime(self._full(path))
        except OSError as error:
            raise from_os_error(error, "touch", self._full(path)) from error

    def _overwrite(self, file: str, data: bytes) -> None:
        descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, data.ljust(RESERVE_BYTES), 0)
        finally:
            os.close(descriptor)
        self._disk.sync([file], [])

    def _is_reserve(self, path: str) -> bool:
        try:
            return os.stat(self._full(path)).st_size == RESERVE_BYTES
        except OSError:
            return False

    def _temporary(self) -> str:
        return f"{os.path.dirname(self._full(RESERVE_PATH))}/{TEMPORARY_PREFIX}{ids.new_ulid()}"

    def _full(self, path: str) -> str:
        return os.path.join(self._root.path, path)


def _unlink(file: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(file)
