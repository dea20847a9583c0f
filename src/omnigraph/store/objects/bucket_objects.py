"""Control objects in a bucket of any object store; with `arrow_files`, the only importer of `obstore`.

The client retries on its own, within bounds; a final failure is classified by its response, else by its type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

import obstore
from obstore import exceptions
from obstore.store import AzureStore, GCSStore, S3Store

from omnigraph import clock, ids
from omnigraph.errors import StorageError, StorageKind
from omnigraph.limits import CONDITIONAL_PUT_ATTEMPTS_MAX, COPY_CHUNK_BYTES, RETRY_WAIT_SECONDS
from omnigraph.store.objects import uri
from omnigraph.store.objects.backend import Inspected, Meter, ObjectInfo
from omnigraph.store.objects.failures import fill_in, from_text
from omnigraph.store.objects.schemes import StoreKind
from omnigraph.store.objects.uri import Location
from omnigraph.store.write.file_proof import FOOTER_BYTES, etag_checksum

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult, ObjectMeta, PutMode, UpdateVersion
    from obstore.store import ClientConfig, RetryConfig

Client: TypeAlias = S3Store | GCSStore | AzureStore
# The clients take the same arguments, but for the names of options that `client_settings` knows.
_CLIENTS: Final[Mapping[str, Callable[..., Client]]] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}

# The most that one bulk request lists or deletes.
BATCH_OBJECTS: Final = 1_000
# A name that every store takes: Azure allows letters, digits and `_` alone, and proxies drop names with `_`.
_ATTEMPT: Final = "omnigraphattempt"

# `{…}` are filled in from the table of stores.
_WAIT: Final = "check the credentials, the {bucket}, {endpoint} and {place}, then try again"
_MEANINGS: Final[tuple[tuple[type[Exception], StorageKind, str], ...]] = (
    (FileNotFoundError, StorageKind.NOT_FOUND, "there is no such object or {bucket}; check the address and {place}"),
    (exceptions.PermissionDeniedError, StorageKind.CONFIGURATION, "permission denied; {credentials}"),
    (exceptions.UnauthenticatedError, StorageKind.CONFIGURATION, "not authenticated; {credentials}"),
    (exceptions.UnknownConfigurationKeyError, StorageKind.CONFIGURATION, "a setting is not known to the client"),
    (exceptions.AlreadyExistsError, StorageKind.PRECONDITION, "it exists already"),
    (exceptions.PreconditionError, StorageKind.PRECONDITION, "it changed meanwhile; read it again"),
    (exceptions.NotModifiedError, StorageKind.PRECONDITION, "it did not change"),
    (exceptions.NotSupportedError, StorageKind.PERMANENT, "this store lacks the operation; use one that has it"),
    (exceptions.InvalidPathError, StorageKind.PERMANENT, "the store does not take this name; choose another address"),
    (exceptions.GenericError, StorageKind.TRANSIENT, f"the store gave no usable answer, despite retries; {_WAIT}"),
    (Exception, StorageKind.UNKNOWN, f"the client failed in an unforeseen way; {_WAIT}"),
)


def from_client_error(error: Exception, action: str, target: str, store: StoreKind) -> StorageError:
    """Return the storage failure of an exception of the client of a store."""
    by_type = next((kind, fill_in(remedy, store)) for cls, kind, remedy in _MEANINGS if isinstance(error, cls))
    kind, remedy = from_text(str(error), store) or by_type
    return StorageError(f"cannot {action} `{target}`: {remedy}", kind=kind, object=target)


def open_client(root: Location) -> Client:
    """Return the client of the bucket of a location, for what is below that; sends no request."""
    options = root.client_options()
    client_options: ClientConfig = {
        "allow_http": options.pop("allow_http", "") == "true",
        "timeout": timedelta(seconds=uri.REQUEST_TIMEOUT_SECONDS),
        "connect_timeout": timedelta(seconds=uri.CONNECT_TIMEOUT_SECONDS),
    }
    retry: RetryConfig = {
        "max_retries": uri.RETRIES_MAX,
        "retry_timeout": timedelta(seconds=uri.RETRY_TIMEOUT_SECONDS),
    }
    prefix = root.path or None
    try:
        return _CLIENTS[root.scheme](
            root.bucket, prefix=prefix, config=options, client_options=client_options, retry_config=retry
        )
    except (exceptions.BaseError, ValueError) as error:
        raise from_client_error(error, "make a client of", root.uri, root.kind) from error


class BucketObjects:
    """The operations of `Objects` on a bucket; paths are checked by the caller."""

    def __init__(self, root: Location, meter: Meter) -> None:
        self._root = root
        self._meter = meter
        self._store = open_client(root)

    def get(self, path: str) -> bytes | None:
        self._meter.count("get", path)
        with self._failing("read", path):
            try:
                return obstore.get(self._store, path).bytes().to_bytes()
            except FileNotFoundError as error:
                # Nothing is known about an object of a bucket that is not there.
                if self._failure(error, "read", path).storage_kind is not StorageKind.NOT_FOUND:
                    raise
                return None

    def info(self, path: str) -> ObjectInfo | None:
        self._meter.count("head", path)
        with self._failing("look at", path):
            try:
                return self._info(obstore.head(self._store, path))
            except FileNotFoundError:
                return None

    def inspect(self, path: str) -> Inspected | None:
        self._meter.count("inspect", path)
        with self._failing("look at", path):
            try:
                if not self._root.kind.reads_from_end:
                    return self._inspect_sized(path)
                response = obstore.get(self._store, path, options={"range": {"suffix": FOOTER_BYTES}})
                return Inspected(
                    response.meta["size"], response.bytes().to_bytes(), etag_checksum(response.meta["e_tag"])
                )
            except FileNotFoundError:
                return None

    def _inspect_sized(self, path: str) -> Inspected:
        """Inspect with two requests: the last bytes can only be asked for by their position."""
        meta = obstore.head(self._store, path)
        size, e_tag = meta["size"], meta["e_tag"]
        tail = b""
        if size:
            self._meter.count("inspect", path)
            options: GetOptions = {"range": (max(0, size - FOOTER_BYTES), size)}
            if e_tag is not None:
                options["if_match"] = e_tag
            tail = obstore.get(self._store, path, options=options).bytes().to_bytes()
        return Inspected(size, tail, etag_checksum(e_tag))

    def put(self, path: str, data: bytes) -> None:
        self._meter.count("put", path)
        with self._failing("write", path):
            obstore.put(self._store, path, data, use_multipart=False)

    @contextmanager
    def open_chunks(self, path: str) -> Iterator[Iterator[bytes] | None]:
        self._meter.count("get", path)
        with self._failing("read", path):
            try:
                answer: GetResult | None = obstore.get(self._store, path)
            except FileNotFoundError:
                answer = None
        yield None if answer is None else self._read_chunks(path, answer)

    def _read_chunks(self, path: str, answer: GetResult) -> Iterator[bytes]:
        with self._failing("read", path):
            for chunk in answer.stream(min_chunk_size=COPY_CHUNK_BYTES):
                yield bytes(chunk)

    def put_chunks(self, path: str, chunks: Iterator[bytes]) -> None:
        self._meter.count("put", path)
        # Chunks are asked for in this thread: an upload that pulled them from another object itself would wait for the
        # runtime that it runs in. What is not closed is never completed.
        writing = obstore.open_writer(self._store, path, buffer_size=COPY_CHUNK_BYTES)
        with self._failing("write", path), writing as writer:
            for chunk in chunks:
                writer.write(chunk)

    def create(self, path: str, data: bytes) -> bool:
        return self._put_on_condition(path, data, "create")

    def put_if_match(self, path: str, data: bytes, expected: ObjectInfo) -> bool:
        condition: UpdateVersion = {"e_tag": expected.e_tag or ""}
        if self._root.kind.matches_generations:
            condition["version"] = expected.version or ""
        return self._put_on_condition(path, data, condition)

    def _put_on_condition(self, path: str, data: bytes, mode: PutMode) -> bool:
        self._meter.count("put_if_absent", path)
        with self._failing("write", path):
            try:
                obstore.put(self._store, path, data, mode=mode, use_multipart=False)
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
                return False
        return True

    def put_if_absent(self, path: str, data: bytes) -> bool:
        # The client may repeat a request whose answer was lost, and then meets its own object. The mark tells them
        # apart, so there is exactly one winner and the winner knows.
        attempt = ids.new_ulid()
        for number in range(CONDITIONAL_PUT_ATTEMPTS_MAX):
            clock.pause(ids.fraction() * number * RETRY_WAIT_SECONDS)
            self._meter.count("put_if_absent", path)
            with self._failing("write", path):
                try:
                    marks = {_ATTEMPT: attempt}
                    obstore.put(self._store, path, data, mode="create", use_multipart=False, attributes=marks)
                    return True
                except exceptions.AlreadyExistsError as error:
                    refusal = error
                self._meter.count("get", path)
                # 409 says that another conditional request was in flight, not that the name is taken: while nothing
                # is there, the name is free.
                with suppress(FileNotFoundError):
                    return obstore.get(self._store, path).attributes.get(_ATTEMPT) == attempt
        raise self._failure(refusal, "write", path) from refusal

    def link(self, staged: str, final: str) -> bool:
        data = self.get(staged)
        if data is not None:
            return self.put_if_absent(final, data)
        if self.info(final) is not None:
            return False
        raise self._failure(FileNotFoundError(), "link", staged)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self._meter.count("list", prefix)
        with self._failing("list", prefix):
            for batch in obstore.list(self._store, prefix or None, chunk_size=BATCH_OBJECTS):
                for entry in batch:
                    yield self._info(entry)

    def _info(self, entry: ObjectMeta) -> ObjectInfo:
        modified_us = int(entry["last_modified"].timestamp() * 1_000_000)
        return ObjectInfo(entry["path"], entry["size"], modified_us, entry["e_tag"], entry["version"])

    def delete(self, path: str) -> None:
        self._meter.count("delete", path)
        # Only S3 takes the deletion of what is not there for done.
        with self._failing("delete", path), suppress(FileNotFoundError):
            obstore.delete(self._store, path)

    def delete_many(self, paths: Sequence[str]) -> None:
        for begin in range(0, len(paths), BATCH_OBJECTS):
            batch = list(paths[begin : begin + BATCH_OBJECTS])
            self._meter.count("delete", batch[0])
            with self._failing("delete", batch[0]):
                self._delete_batch(batch)

    def _delete_batch(self, paths: Sequence[str]) -> None:
        try:
            obstore.delete(self._store, paths)
        except FileNotFoundError:
            # Another process deleted one of them. What became of the others is not said, so each is deleted by itself.
            for path in paths:
                with suppress(FileNotFoundError):
                    obstore.delete(self._store, path)

    def delete_prefix(self, prefix: str) -> int:
        count = 0
        self._meter.count("list", prefix)
        with self._failing("delete", prefix):
            for batch in obstore.list(self._store, prefix, chunk_size=BATCH_OBJECTS):
                self._meter.count("delete", prefix)
                self._delete_batch([entry["path"] for entry in batch])
                count += len(batch)
        return count

    def drop_empty(self, folder: str, before_us: int) -> None:
        """Do nothing: object stores have no empty folders."""

    def _failure(self, error: Exception, action: str, path: str) -> StorageError:
        target = self._root.child(path).uri if path else self._root.uri
        return from_client_error(error, action, target, self._root.kind)

    @contextmanager
    def _failing(self, action: str, path: str) -> Iterator[None]:
        try:
            yield
        except (exceptions.BaseError, OSError, ValueError) as error:
            raise self._failure(error, action, path) from error
