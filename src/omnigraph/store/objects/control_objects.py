"""Control objects below one graph root: small files with atomic replace and put-if-absent, local or in an object store.

Adds to its backends what both share: checked paths, failpoints around every change, one meaning of absence.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from omnigraph import clock, ids
from omnigraph.errors import StorageError, StorageKind, UsageError
from omnigraph.failpoints import around_change
from omnigraph.store.objects.backend import NO_METER, Backend, ContentDigests, Inspected, Meter, ObjectInfo
from omnigraph.store.objects.conditional_puts import is_proven, require_conditional_puts
from omnigraph.store.objects.local_objects import RESERVE_PATH, TEMPORARY_PREFIX, LocalObjects, Reserve
from omnigraph.store.objects.uri import Location

__all__ = ["ObjectInfo", "Objects"]

_NO_SEGMENTS: Final = frozenset(("", ".", ".."))


class Objects:
    """The control objects of one graph; paths are relative to its root, with `/` between segments."""

    def __init__(self, root: Location, meter: Meter = NO_METER) -> None:
        self._root = root
        self._backend = open_backend(root, meter)
        self._reserve = Reserve(root)

    def read(self, path: str) -> bytes:
        """Return the bytes; absence is a `StorageError` of kind `not_found`."""
        data = self._backend.get(_checked(path))
        if data is None:
            raise self._absent(path)
        return data

    def _absent(self, path: str) -> StorageError:
        where = self._root.child(path).uri
        return StorageError(
            f"cannot read `{where}`: there is no such object; check the address of the graph",
            kind=StorageKind.NOT_FOUND,
            object=where,
        )

    def read_if_exists(self, path: str) -> bytes | None:
        """Return the bytes, or None if there is certainly no such object; one request."""
        return self._backend.get(_checked(path))

    def copy_to(self, target: Objects, path: str) -> int:
        """Copy an object to another root under the same path, in chunks; return the CRC-32 of its bytes.

        Readers there see all of it or none.
        """
        digests = ContentDigests()
        with self._backend.open_chunks(_checked(path)) as chunks, around_change(f"copy {path}"):
            if chunks is None:
                raise self._absent(path)
            target._backend.put_chunks(path, digests.passing(chunks))
        return digests.crc32

    def digests(self, path: str) -> ContentDigests:
        """Return the digests of an object's bytes, read in chunks."""
        digests = ContentDigests()
        with self._backend.open_chunks(_checked(path)) as chunks:
            if chunks is None:
                raise self._absent(path)
            for _ in digests.passing(chunks):
                pass
        return digests

    def exists(self, path: str) -> bool:
        """Return True if there is such an object; a permission error is raised. One request."""
        return self._backend.info(_checked(path)) is not None

    def size(self, path: str) -> int | None:
        """Return the size in bytes, or None if there is no such object; one request."""
        info = self._backend.info(_checked(path))
        return None if info is None else info.size_bytes

    def info(self, path: str) -> ObjectInfo | None:
        """Return size and modification time, or None if there is no such object; one request."""
        return self._backend.info(_checked(path))

    def read_time(self) -> int:
        """Return storage's own time in Unix microseconds: that of an object which is written for it and removed.

        The local clock may be years off; code that compares it with the age of files must ask storage.
        """
        probe = f"{TEMPORARY_PREFIX}time-{ids.new_ulid()}"
        try:
            self._backend.put(probe, b"")
            info = self._backend.info(probe)
        finally:
            self._backend.delete(probe)
        if info is None:
            raise StorageError(f"`{probe}` was removed while its time was read; try again", kind=StorageKind.TRANSIENT)
        return clock.storage_us(info.modified_us)

    def inspect(self, path: str) -> Inspected | None:
        """Return size, footer and checksum, or None if there is no such object; one request."""
        return self._backend.inspect(_checked(path))

    def list(self, prefix: str) -> list[ObjectInfo]:
        """Return all objects below the directory `prefix` (`""`: all), by path, with what crashed writers left."""
        return sorted(self._backend.list(_checked(prefix) if prefix else ""))

    def write(self, path: str, data: bytes) -> None:
        """Create or replace: every reader sees all of the old bytes or all of the new ones."""
        with around_change(f"write {path}"):
            self._backend.put(_checked(path), data)

    def write_from_reserve(self, path: str, data: bytes) -> None:
        """Create or replace, on a full disk in the room that was set aside; the bytes may be padded with spaces."""
        try:
            self.write(path, data)
        except StorageError as error:
            if error.storage_kind is not StorageKind.FULL:
                raise
            with around_change(f"write_from_reserve {path}"):
                is_written = self._reserve.take(_checked(path), data)
            if not is_written:
                self.write(path, data)

    def touch(self, path: str) -> None:
        """Touch an object, which works on a full disk; object stores need nothing."""
        with around_change(f"touch {path}"):
            self._reserve.touch(_checked(path))

    def keep_reserve(self) -> None:
        """Set room aside for `write_from_reserve`, where there is none yet; best effort."""
        if not self._reserve.is_kept:
            with suppress(StorageError), around_change(f"write {RESERVE_PATH}"):
                self._reserve.keep()

    def delete_into_reserve(self, path: str) -> None:
        """Remove the object; one that uses the space of the reserve becomes the reserve again."""
        with around_change(f"delete {path}"):
            if not self._reserve.give_back(_checked(path)):
                self._backend.delete(path)

    def write_if_absent(self, path: str, data: bytes) -> bool:
        """Create, or return False if the name is taken; of any number of racers exactly one gets True."""
        self.require_conditional_puts()
        with around_change(f"write_if_absent {path}"):
            return self._backend.put_if_absent(_checked(path), data)

    def require_conditional_puts(self) -> None:
        """Raise `UnsafeStore` if storage ignores conditional puts; at most two requests, once in a process."""
        require_conditional_puts(self._root, self._backend)

    @property
    def is_proven(self) -> bool:
        """Whether `require_conditional_puts` needs no request."""
        return is_proven(self._root)

    def link(self, staged: str, final: str) -> bool:
        """Give the bytes of `staged` the name `final` too, or return False if that is taken; `staged` stays.

        On a disk the new name survives power loss only once its directory is synced, so keep `staged` until then.
        """
        with around_change(f"link {final}"):
            return self._backend.link(_checked(staged), _checked(final))

    def delete(self, path: str) -> None:
        """Remove the object; a missing one is ignored. After power loss it may reappear."""
        with around_change(f"delete {path}"):
            self._backend.delete(_checked(path))

    def delete_many(self, paths: Sequence[str]) -> None:
        """Remove many objects, in bulk where storage can; in no particular order."""
        for path in paths:
            _checked(path)
        if paths:
            with around_change(f"delete_many {len(paths)} {paths[0]}"):
                self._backend.delete_many(paths)

    def discard(self, path: str) -> None:
        """Remove a harmless object; ignores failures, since a sweep removes it by age."""
        with suppress(StorageError):
            self.delete(path)

    def discard_prefix(self, prefix: str) -> None:
        """Remove everything below a directory, as `discard` does with an object."""
        with suppress(StorageError):
            self.delete_prefix(prefix)

    def delete_prefix(self, prefix: str) -> int:
        """Remove everything below a directory and return how many objects that were; the root itself is refused."""
        with around_change(f"delete_prefix {prefix}"):
            return self._backend.delete_prefix(_checked(prefix))

    def drop_empty(self, folder: str, before_us: int) -> None:
        """Remove the folders in a folder that have been empty since a time; only disks have such folders."""
        self._backend.drop_empty(_checked(folder), before_us)


def open_backend(root: Location, meter: Meter) -> Backend:
    if root.has_paths:
        return LocalObjects(root, meter)
    # Most graphs are local; they should not pay for loading a client that they never use.
    from omnigraph.store.objects.bucket_objects import BucketObjects

    return BucketObjects(root, meter)


def _checked(path: str) -> str:
    # Some paths are read back from stored intents, so a damaged one must not lead out of the graph.
    if "\0" in path or not _NO_SEGMENTS.isdisjoint(path.split("/")):
        raise UsageError(f"`{path}` is not the path of an object below the graph's root", path=path)
    return path
