"""A disk that forgets: remembers what was synced, and shows what would be left if the power went now.

Stands in for fsync through the seam of `durable`; nothing is really synced, so it is quick.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from omnigraph.store.objects import durability

Inode = tuple[int, int]


class PowerLoss:
    """Records syncs below `watched`, an existing directory; what lies there at the start counts as safe.

    A file survives with the bytes of its own last sync, under the names that its directories had at theirs. A name
    that was synced before the bytes survives as an empty file.
    """

    def __init__(self, watched: Path) -> None:
        self._watched = str(watched)
        self._bytes: dict[Inode, bytes] = {}
        self._entries: dict[Inode, dict[str, Inode]] = {}
        self._directories: set[Inode] = set()
        self._held: dict[Inode, int] = {}
        self._lock = threading.Lock()
        self._exit = ExitStack()

    def __enter__(self) -> PowerLoss:
        for directory, _, names in os.walk(self._watched):
            for path in (directory, *(os.path.join(directory, name) for name in names)):
                self.sync(path)
        self._exit.enter_context(durability.replaced(self.sync))
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()
        for descriptor in self._held.values():
            os.close(descriptor)

    def sync(self, path: str) -> None:
        """Remember one file's bytes or one directory's names, as fsync would."""
        with self._lock:
            if path != self._watched and not path.startswith(self._watched + "/"):
                return
            inode = self._hold(path)
            if inode in self._directories:
                names = os.listdir(path)
                self._entries[inode] = {name: self._hold(os.path.join(path, name)) for name in names}
            else:
                self._bytes[inode] = Path(path).read_bytes()

    def surviving(self) -> dict[str, bytes]:
        """Return the files that a power cut at this moment leaves, by path below `watched`."""
        return self._files(self._entries)

    def surviving_names_first(self) -> dict[str, bytes]:
        """The same if the disk happens to have stored every name already, but no byte that was not asked for."""
        with self._lock:
            live: dict[Inode, dict[str, Inode]] = {}
            for directory, directories, files in os.walk(self._watched):
                names = (*directories, *files)
                live[self._hold(directory)] = {name: self._hold(os.path.join(directory, name)) for name in names}
        return self._files(live)

    def materialise(self, target: Path) -> None:
        """Write what survives into the new directory `target`, directories without files included."""
        target.mkdir()
        for path in self._paths(self._entries):
            (target / path).mkdir(parents=True, exist_ok=True)
        for path, data in self.surviving().items():
            (target / path).write_bytes(data)

    def _hold(self, path: str) -> Inode:
        """Return the identity of what lies at `path`; held open, so that nothing new can take it over."""
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        status = os.fstat(descriptor)
        inode = (status.st_dev, status.st_ino)
        if inode in self._held:
            os.close(descriptor)
        else:
            self._held[inode] = descriptor
        if stat.S_ISDIR(status.st_mode):
            self._directories.add(inode)
        return inode

    def _paths(self, entries: Mapping[Inode, Mapping[str, Inode]]) -> dict[str, Inode]:
        """Return every directory that can be reached from the watched one through `entries`, by path."""
        status = os.stat(self._watched)
        found = {"": (status.st_dev, status.st_ino)}
        pending = [""]
        while pending:
            directory = pending.pop()
            for name, inode in entries.get(found[directory], {}).items():
                if inode in self._directories:
                    path = os.path.join(directory, name)
                    found[path] = inode
                    pending.append(path)
        return found

    def _files(self, entries: Mapping[Inode, Mapping[str, Inode]]) -> dict[str, bytes]:
        return {
            os.path.join(directory, name): self._bytes.get(child, b"")
            for directory, inode in self._paths(entries).items()
            for name, child in entries.get(inode, {}).items()
            if child not in self._directories
        }
