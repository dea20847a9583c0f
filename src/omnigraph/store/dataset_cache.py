"""The cache of open dataset handles of a graph, and the thread pool that reads them in parallel.

Reads only; `Store` adds everything that writes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from contextvars import copy_context
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar, cast

from lance import LanceDataset
from lance.dataset import Session  # type: ignore[attr-defined]  # public, though not re-exported

from omnigraph.errors import StorageError, StorageKind
from omnigraph.limits import (
    FILE_CACHE_BYTES_MAX,
    HANDLE_CACHE_MAX,
    INDEX_CACHE_BYTES_MAX,
    OPEN_SECONDS_MAX,
    STORAGE_THREADS,
)
from omnigraph.lru import LruCache
from omnigraph.store.files.manifest_file import leave_out_indexes, manifest_message, rebase_manifest
from omnigraph.store.objects.backend import NO_METER, Meter
from omnigraph.store.objects.control_objects import Objects
from omnigraph.store.objects.uri import Location
from omnigraph.store.read.dataset import (
    AS_STORED,
    Dataset,
    DatasetRef,
    Shape,
    first_line,
    is_panic,
    lance_errors,
    shaped_manifest,
    storage_error,
)
from omnigraph.store.read.lookup import Positions
from omnigraph.store.write.file_proof import Prover

if TYPE_CHECKING:
    from omnigraph.store.store import Store


T = TypeVar("T")


class DatasetCache:
    """Opens the datasets below a graph root, and caches their handles."""

    file_format = "2.2"

    def __init__(self, root: Location, meter: Meter = NO_METER, cache_bytes: int | None = None) -> None:
        self.root = root
        self.meter = meter
        self.objects = Objects(root, meter)
        self.prover = Prover(self.objects, root.kind)
        self.positions = Positions()
        self.lance_options = root.lance_options()
        # Every commit adds a version to Lance's metadata cache, whose default bound is a gigabyte.
        file_cache_bytes = cache_bytes or FILE_CACHE_BYTES_MAX
        self._session = Session(cache_bytes or INDEX_CACHE_BYTES_MAX, file_cache_bytes)
        self._plain_session = Session(1 << 20, file_cache_bytes // 8)
        self._handles: LruCache[DatasetRef, Dataset] = LruCache(HANDLE_CACHE_MAX)
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._has_answered = False

    def _dataset(self, ref: DatasetRef, lance: LanceDataset) -> Dataset:
        # `DatasetCache` is only instantiated as `Store`, so the cast is safe.
        return Dataset(cast("Store", self), ref, lance)

    def open(self, ref: DatasetRef) -> Dataset:
        """Return the handle of a version, cached if possible."""
        if (cached := self.cached(ref)) is not None:
            return cached
        if ref.shape != AS_STORED:
            return self.reshaped(self.open(ref.stored), ref.shape)
        self.meter.count("open", str(ref))
        return self.remember(self._open_version(ref))

    def _open_version(self, ref: DatasetRef, manifest: bytes | None = None, session: Session | None = None) -> Dataset:
        """Open a version, from the bytes of its manifest if those are passed."""
        lance = self._open_lance(ref, manifest, session or self._session)
        dataset = self._dataset(ref.at(lance.version), lance)
        if manifest is None and self._is_based_elsewhere(dataset):
            raw = self.objects.read(dataset.ref.manifest_path)
            return self._open_version(dataset.ref, self._rebased(dataset.ref, raw))
        return dataset

    def _open_lance(
        self, ref: DatasetRef, manifest: bytes | None, session: Session, *, is_retry: bool = False
    ) -> LanceDataset:
        try:
            return LanceDataset(
                self.root.child(ref.directory).uri,
                ref.version or None,
                session=session,
                storage_options=self.lance_options or None,
                serialized_manifest=manifest,
            )
        except BaseException as error:
            # Lance reports every failed open as ValueError or OSError, or panics.
            if not isinstance(error, OSError | ValueError) and not is_panic(error):
                raise
            failure = storage_error(f"opening {ref}", error)
            if failure.storage_kind not in (StorageKind.NOT_FOUND, StorageKind.UNKNOWN):
                raise failure from error
            # It is not known which: a probe decides whether the version exists.
            if not (self.has_version(ref) if ref.version else self.has_versions(ref.path, ref.branch)):
                raise StorageError(f"{ref} is not there", kind=StorageKind.NOT_FOUND, object=str(ref)) from error
            if is_retry:
                raise StorageError(
                    f"{ref} cannot be read: {first_line(error)}", kind=StorageKind.PERMANENT, object=str(ref)
                ) from error
        # Another process may have written it between the open and the probe; if not, it is damaged.
        return self._open_lance(ref, manifest, session, is_retry=True)

    def _is_based_elsewhere(self, dataset: Dataset) -> bool:
        """Return True if a fork was made under another URI: the graph was moved, copied, or is mounted elsewhere."""
        if dataset.ref.branch is None:
            return False
        origin = self.root.child(dataset.ref.path).uri
        return not all(f"{base}/".startswith(f"{origin}/") for base in dataset.base_directories())

    def _rebased(self, ref: DatasetRef, raw: bytes) -> bytes:
        """Return the manifest of a version with the paths of inherited files below the root of this graph."""
        return rebase_manifest(manifest_message(raw), ref.path, self.root.child(ref.path).uri)

    def cached(self, ref: DatasetRef) -> Dataset | None:
        """Return the handle of a version if it is cached; no request."""
        return self._handles.get(ref)

    def open_unlinked(self, ref: DatasetRef, manifest: str) -> Dataset:
        """Open a version through its staged manifest, without linking it.

        Lance reads the list of indexes from the file of the version's final name, which is not there yet, whenever it
        filters or stages rows: the handle has none.
        """
        message = leave_out_indexes(self._rebased(ref, self.objects.read(manifest)))
        dataset = self._open_version(ref, message, self._plain_session)
        dataset.staged_as = manifest
        return dataset

    def reshaped(self, dataset: Dataset, shape: Shape) -> Dataset:
        """Return a version with the columns of a shape; no request unless columns are dropped."""
        if shape == AS_STORED:
            return dataset
        ref = replace(dataset.ref, shape=shape)
        with lance_errors(f"opening {ref}", dataset):
            with_indexes = not dataset.staged_as and not shape.is_empty and not _drops_indexed(dataset, shape)
            lance = LanceDataset(
                self.root.child(ref.directory).uri,
                ref.version,
                # A session caches indexes by version, which would be wrong for a handle without them.
                session=self._session if with_indexes else self._plain_session,
                storage_options=self.lance_options or None,
                serialized_manifest=shaped_manifest(
                    dataset.lance._ds.serialized_manifest(),
                    dataset.lance.lance_schema,
                    shape,
                    with_indexes=with_indexes,
                ),
            )
        handle = self._dataset(ref, lance)
        handle.staged_as = dataset.staged_as
        return handle if handle.staged_as else self.remember(handle)

    def remember(self, dataset: Dataset) -> Dataset:
        """Cache a handle for the next reader of the same version."""
        self._handles.put(dataset.ref, dataset)
        return dataset

    def forget(self, refs: Iterable[DatasetRef]) -> None:
        """Drop the handles of deleted versions, so that opening one fails."""
        deleted = set(refs)
        self._handles.remove(*(handle.ref for handle in self._handles.values() if handle.ref.stored in deleted))

    def open_latest(self, path: str, branch: str | None) -> Dataset:
        """Open the newest version by path: what a reader without a catalog would see."""
        self.meter.count("open", f"{path} (latest)")
        ref = DatasetRef(path, branch, 0)
        if self._has_answered or not self.root.kind.has_round_trips:
            return self._open_version(ref)
        dataset = self._open_in_time(ref)
        self._has_answered = True
        return dataset

    def _open_in_time(self, ref: DatasetRef) -> Dataset:
        """Open the newest version, with a deadline, at a URI that has not answered yet.

        Lance lists six times in a row before it gives up, and each request may take until its timeout.
        """
        opening: Future[Dataset] = Future()

        def run() -> None:
            try:
                opening.set_result(self._open_version(ref))
            except Exception as error:  # noqa: BLE001 - raised by `result`
                opening.set_exception(error)

        # A daemon thread, so that the process can exit while storage does not answer.
        threading.Thread(target=run, name="omnigraph-opening", daemon=True).start()
        try:
            return opening.result(OPEN_SECONDS_MAX)
        except TimeoutError:
            raise StorageError(
                f"opening {ref} failed: the store did not answer within {OPEN_SECONDS_MAX} seconds: check"
                f" {self.root.kind.endpoint_setting}, then try again",
                kind=StorageKind.TRANSIENT,
                object=str(ref),
            ) from None

    def has_version(self, ref: DatasetRef) -> bool:
        """Probe for a version by path: one request."""
        self.meter.count("probe", str(ref))
        return self.objects.exists(ref.manifest_path)

    def has_versions(self, path: str, branch: str | None) -> bool:
        """Return True if a dataset has any linked version."""
        folder = f"{DatasetRef(path, branch, 0).directory}/_versions"
        return any(info.path.endswith(".manifest") for info in self.objects.list(folder))

    def in_parallel(self, tasks: Sequence[Callable[[], T]], at_once: int | None = None) -> list[T]:
        """Run tasks in parallel and return their results in order; raise the first error once all have finished.

        At most `at_once` of them run at the same time; without it, as many as the pool has threads.
        """
        if len(tasks) == 1:
            return [tasks[0]()]
        own_pool = None if at_once is None else ThreadPoolExecutor(at_once, thread_name_prefix="omnigraph-task")
        with own_pool or nullcontext(self.pool) as pool:
            futures = [pool.submit(copy_context().run, task) for task in tasks]
            errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]
        return [future.result() for future in futures]

    @property
    def pool(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(STORAGE_THREADS, thread_name_prefix="omnigraph-store")
            return self._pool

    def close(self) -> None:
        """Wait for background work; the store may be used again afterwards."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True)


def _drops_indexed(dataset: Dataset, shape: Shape) -> bool:
    """Return True if a dropped column has an index: Lance opens no dataset with an index of an unknown column."""
    if not shape.dropped:
        return False
    dropped = {dataset.field_ids[name] for name in shape.dropped}
    return any(dropped & set(index.fields) for index in dataset.lance.describe_indices())
