"""Control objects as files below a local directory, and the reserve that lets cleanup begin when the disk is full.

A file gets its final name only when its bytes are complete and, if power loss is to be survived, on the disk.

Cleanup declares itself before it removes anything, and that takes a block of the disk. The reserve is a file of such
blocks: it is overwritten where it lies and renamed, and neither needs any room. To delete it and write the intent
afterwards would not do, because another writer could take the blocks in between.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import shake_256
from typing import Final
from zlib import crc32

from omnigraph import ids
from omnigraph.errors import StorageError, StorageKind
from omnigraph.limits import COPY_CHUNK_BYTES, RESERVE_BYTES
from omnigraph.store.objects.backend import Inspected, Meter, ObjectInfo
from omnigraph.store.objects.durability import Disk
from omnigraph.store.objects.failures import from_os_error
from omnigraph.store.objects.uri import Location
from omnigraph.store.write.file_proof import FOOTER_BYTES

# Names with this prefix are not objects yet; a crash can leave one behind.
TEMPORARY_PREFIX: Final = ".og-"
# A directory is not an object: reading its path finds nothing, as in an object store.
_ABSENT: Final = (FileNotFoundError, IsADirectoryError)
_CHUNK_BYTES: Final = 262_144
_NO_HARD_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK)


class LocalObjects:
    """The operations of `Objects` on files; paths are checked by the caller."""

    def __init__(self, root: Location, meter: Meter) -> None:
        self._root = root.path
        self._disk = Disk(root)
        self._meter = meter

    def get(self, path: str) -> bytes | None:
        self._meter.count("get", path)
        with self._failing("read", path), suppress(*_ABSENT), open(self._full(path), "rb") as file:
            return file.read()
        return None

    def info(self, path: str) -> ObjectInfo | None:
        self._meter.count("head", path)
        with self._failing("look at", path), suppress(*_ABSENT):
            status = os.stat(self._full(path))
            if not stat.S_ISDIR(status.st_mode):
                return _info(path, status)
        return None

    def inspect(self, path: str) -> Inspected | None:
        self._meter.count("inspect", path)
        checksum, size, tail = 0, 0, b""
        with self._failing("read back", path), suppress(*_ABSENT), open(self._full(path), "rb", buffering=0) as file:
            chunk = bytearray(_CHUNK_BYTES)
            while count := file.readinto(chunk):
                view = memoryview(chunk)[:count]
                checksum, size = crc32(view, checksum), size + count
                tail = (tail + bytes(view[-FOOTER_BYTES:]))[-FOOTER_BYTES:]
            return Inspected(size, tail, checksum)
        return None

    def put(self, path: str, data: bytes) -> None:
        self.put_chunks(path, iter((data,)))

    def put_chunks(self, path: str, chunks: Iterator[bytes]) -> None:
        self._meter.count("put", path)
        with self._failing("write", path), self._temporary(path, chunks) as temporary:
            os.replace(temporary, self._full(path))
        self._settle(path)

    @contextmanager
    def open_chunks(self, path: str) -> Iterator[Iterator[bytes] | None]:
        self._meter.count("get", path)
        file = None
        with self._failing("read", path), suppress(FileNotFoundError):
            file = open(self._full(path), "rb")  # noqa: SIM115 - closed below, after the chunks were read
        if file is None:
            yield None
            return
        with file:
            yield iter(partial(file.read, COPY_CHUNK_BYTES), b"")

    def put_if_match(self, path: str, data: bytes, expected: ObjectInfo) -> bool:
        raise AssertionError("files have no ETags")

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self._meter.count("put_if_absent", path)
        final = self._full(path)
        with self._failing("write", path):
            # The link decides; the check before it only saves losers of an old race a write.
            if os.path.lexists(final):
                return False
            with self._temporary(path, iter((data,))) as temporary:
                if not _link(temporary, final):
                    return False
        self._settle(path)
        return True

    create = put_if_absent

    def link(self, staged: str, final: str) -> bool:
        self._meter.count("link", final)
        try:
            with self._failing("link", staged):
                os.makedirs(os.path.dirname(self._full(final)), exist_ok=True)
                return _link(self._full(staged), self._full(final))
        except StorageError as error:
            # Another process may have removed the staged name already.
            if error.storage_kind is not StorageKind.NOT_FOUND or not os.path.lexists(self._full(final)):
                raise
            return False

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self._meter.count("list", prefix)
        with self._failing("list", prefix):
            for directory, _, names in self._directories(prefix, topdown=True):
                for path in (os.path.join(directory, name) for name in names):
                    # A file may be removed while it is listed; then it is skipped.
                    with suppress(FileNotFoundError):
                        yield _info(os.path.relpath(path, self._root), os.stat(path))

    def delete(self, path: str) -> None:
        self.delete_many([path])

    def delete_many(self, paths: Sequence[str]) -> None:
        self._meter.count("delete", paths[0])
        for path in paths:
            with self._failing("delete", path), suppress(*_ABSENT):
                os.unlink(self._full(path))

    def delete_prefix(self, prefix: str) -> int:
        self._meter.count("list", prefix)
        self._meter.count("delete", prefix)
        count = 0
        with self._failing("delete", prefix):
            for directory, _, names in self._directories(prefix, topdown=False):
                # Another process may be deleting the same; what it removed first is not counted here.
                for name in names:
                    with suppress(FileNotFoundError):
                        os.unlink(os.path.join(directory, name))
                        count += 1
                with suppress(FileNotFoundError):
                    os.rmdir(directory)
        if os.path.isdir(os.path.dirname(self._full(prefix))):
            self._settle(prefix)
        return count

    def drop_empty(self, folder: str, before_us: int) -> None:
        self._meter.count("list", folder)
        with self._failing("list", folder), suppress(FileNotFoundError):
            with os.scandir(self._full(folder)) as entries:
                folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
            for name in folders:
                inside = list(self._directories(f"{folder}/{name}", topdown=False))
                if not any(names for _, _, names in inside) and all(
                    _is_older(folder_path, before_us) for folder_path, _, _ in inside
                ):
                    for directory, _, _ in inside:
                        # It may be in use again, or another process removes it; an empty folder is harmless.
                        with suppress(OSError):
                            os.rmdir(directory)

    def _full(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _directories(self, prefix: str, topdown: bool) -> Iterator[tuple[str, Sequence[str], Sequence[str]]]:
        def raise_error(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                raise error

        return os.walk(self._full(prefix), topdown=topdown, onerror=raise_error)

    @contextmanager
    def _temporary(self, path: str, chunks: Iterator[bytes]) -> Iterator[str]:
        """Yield a file beside `path` with these bytes, already on the disk; it is gone afterwards."""
        directory = os.path.dirname(self._full(path))
        os.makedirs(directory, exist_ok=True)
        temporary = os.path.join(directory, f"{TEMPORARY_PREFIX}{ids.new_ulid()}")
        try:
            with open(temporary, "xb") as file:
                file.writelines(chunks)
            self._disk.sync([temporary], [])
            yield temporary
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)

    def _settle(self, path: str) -> None:
        """Sync the directory of `path`, so that a change that is already visible survives power loss."""
        self._disk.sync([], [os.path.dirname(path)])

    @contextmanager
    def _failing(self, action: str, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise from_os_error(error, action, self._full(path), self._root) from error


def _info(path: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(path, status.st_size, status.st_mtime_ns // 1_000)


def _is_older(directory: str, before_us: int) -> bool:
    try:
        return os.stat(directory).st_mtime_ns // 1_000 <= before_us
    except FileNotFoundError:
        return False


def _link(source: str, final: str) -> bool:
    try:
        os.link(source, final)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        raise StorageError(
            f"cannot create `{final}`: a graph needs hard links, and this file system refuses them;"
            " put the graph on another one",
            kind=StorageKind.CONFIGURATION,
            object=final,
            errno=errno.errorcode.get(error.errno or 0, ""),
        ) from error
    return True


RESERVE_PATH: Final = "__recovery/reserve"


class Reserve:
    """The reserve of one graph; in an object store there is none, and none is needed."""

    def __init__(self, root: Location) -> None:
        self._root = root
        self._disk = Disk(root)
        self._is_kept = not root.has_paths

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
        if not self._root.has_paths or len(data) > RESERVE_BYTES or not self._is_reserve(RESERVE_PATH):
            return False
        self._is_kept = False
        temporary = self._temporary()
        try:
            os.rename(self._full(RESERVE_PATH), temporary)
        except FileNotFoundError:
            return False
        try:
            with open(temporary, "r+b") as file:
                file.write(data.ljust(RESERVE_BYTES))
            self._disk.sync([temporary], [])
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
        """Turn an object that uses the space of the reserve back into it; False if it does not."""
        if not self._root.has_paths or not self._is_reserve(path):
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
