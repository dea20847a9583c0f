"""Files in object stores for Arrow's readers and writers: inputs of loads, outputs of exports, staged keys.

Arrow's own clients of Google Cloud Storage and Azure know other settings than the rest of this package, so these files
go through the client that graphs use.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Final, NoReturn, TypeAlias

import obstore
import pyarrow as pa
from obstore import exceptions
from pyarrow import fs

from omnigraph.store.objects.bucket_objects import Client, from_client_error, open_client
from omnigraph.store.objects.schemes import STORES
from omnigraph.store.objects.uri import Location

_BUFFER_BYTES: Final = 8 << 20
# Turns errors of the client into ours, for the block that it is around.
Failing: TypeAlias = Callable[[], AbstractContextManager[None]]


def object_files(scheme: str) -> fs.PyFileSystem:
    """Return the file system of a scheme, with the settings of this process; its paths start with the bucket."""
    return fs.PyFileSystem(_ObjectFiles(scheme))


class _ObjectFiles(fs.FileSystemHandler):
    """What Arrow asks of a file system; objects have no folders, so these are made and moved by no one."""

    def __init__(self, scheme: str) -> None:
        self._scheme = scheme
        self._clients: dict[str, Client] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ObjectFiles) and other._scheme == self._scheme

    __hash__ = None  # type: ignore[assignment]

    def get_type_name(self) -> str:
        return f"omnigraph-{self._scheme}"

    def normalize_path(self, path: str) -> str:
        return path

    def _locate(self, path: str) -> tuple[Client, str, str]:
        bucket, _, key = path.partition("/")
        if bucket not in self._clients:
            self._clients[bucket] = open_client(Location(self._scheme, bucket, ""))
        return self._clients[bucket], bucket, key.strip("/")

    @contextmanager
    def _failing(self, action: str, path: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise FileNotFoundError(2, "there is no such object") from None
        except exceptions.BaseError as error:
            raise from_client_error(error, action, f"{self._scheme}://{path}", STORES[self._scheme]) from error

    def get_file_info(self, paths: Sequence[str]) -> list[fs.FileInfo]:
        return [self._look(path) for path in paths]

    def _look(self, path: str) -> fs.FileInfo:
        client, bucket, key = self._locate(path)
        if key:
            try:
                with self._failing("look at", path):
                    return _info(bucket, obstore.head(client, key))
            except FileNotFoundError:
                pass
        with self._failing("list", path):
            is_folder = any(len(batch) for batch in obstore.list(client, key or None, chunk_size=1))
        return fs.FileInfo(path, fs.FileType.Directory if is_folder else fs.FileType.NotFound)

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        client, bucket, key = self._locate(selector.base_dir)
        with self._failing("list", selector.base_dir):
            if selector.recursive:
                return [_info(bucket, entry) for batch in obstore.list(client, key or None) for entry in batch]
            listed = obstore.list_with_delimiter(client, key or None)
        folders = [fs.FileInfo(f"{bucket}/{name}", fs.FileType.Directory) for name in listed["common_prefixes"]]
        return [*folders, *(_info(bucket, entry) for entry in listed["objects"])]

    def open_input_file(self, path: str) -> pa.PythonFile:
        return pa.PythonFile(self._reader(path), mode="r")

    def open_input_stream(self, path: str) -> pa.PythonFile:
        return pa.PythonFile(io.BufferedReader(self._reader(path), _BUFFER_BYTES), mode="r")

    def _reader(self, path: str) -> _Reader:
        client, _, key = self._locate(path)
        with self._failing("read", path):
            size = obstore.head(client, key)["size"]
        return _Reader(client, key, size, partial(self._failing, "read", path))

    def open_output_stream(self, path: str, metadata: Any) -> pa.PythonFile:
        client, _, key = self._locate(path)
        return pa.PythonFile(_Writer(client, key, partial(self._failing, "write", path)), mode="w")

    def _lacking(self, *_: object, **__: object) -> NoReturn:
        raise NotImplementedError("object stores have no folders, and objects are neither moved nor appended to")

    create_dir: Callable[..., None] = _lacking
    delete_dir: Callable[..., None] = _lacking
    delete_dir_contents: Callable[..., None] = _lacking
    delete_root_dir_contents: Callable[..., None] = _lacking
    delete_file: Callable[..., None] = _lacking
    move: Callable[..., None] = _lacking
    copy_file: Callable[..., None] = _lacking
    open_append_stream: Callable[..., Any] = _lacking


class _Reader(io.RawIOBase):
    """One object for random access; each read is one request for just these bytes."""

    def __init__(self, client: Client, key: str, size: int, failing: Failing) -> None:
        self._client, self._key, self._size, self._failing = client, key, size, failing
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = begin + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        rest = max(self._size - self._position, 0)
        length = rest if size is None or size < 0 else min(size, rest)
        if not length:
            return b""
        with self._failing():
            data = obstore.get_range(self._client, self._key, start=self._position, length=length).to_bytes()
        self._position += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _Writer(io.RawIOBase):
    """One new object, which is there once it is closed."""

    def __init__(self, client: Client, key: str, failing: Failing) -> None:
        self._failing = failing
        self._writer = obstore.open_writer(client, key, buffer_size=_BUFFER_BYTES)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        with self._failing():
            # Buffers of Arrow hold signed bytes, which the client does not take.
            self._writer.write(bytes(data))
        return len(data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            with self._failing():
                self._writer.close()


def _info(bucket: str, entry: Any) -> fs.FileInfo:
    path = f"{bucket}/{entry['path']}"
    return fs.FileInfo(path, fs.FileType.File, mtime=entry["last_modified"], size=entry["size"])
