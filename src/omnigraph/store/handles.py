"""Handles: opening the datasets of a graph, remembering what was opened, and the threads that do it side by side.

Reads only; `store` adds everything that writes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, TypeVar, cast

from lance import LanceDataset
from lance.dataset import Session  # type: ignore[attr-defined]  # public, though not re-exported

from omnigraph.errors import StorageError, StorageKind
from omnigraph.limits import FILE_CACHE_BYTES_MAX, HANDLE_CACHE_MAX, INDEX_CACHE_BYTES_MAX, STORAGE_THREADS
from omnigraph.store.base_paths import manifest_message, rebase_manifest
from omnigraph.store.dataset import Dataset, DatasetRef, first_line, is_panic
from omnigraph.store.meter import NO_METER, Meter
from omnigraph.store.objects import Objects
from omnigraph.store.positions import Positions
from omnigraph.store.proof import Prover
from omnigraph.store.uri import Location

if TYPE_CHECKING:
    from omnigraph.store.store import Store

FILE_FORMAT = "2.2"
T = TypeVar("T")


class Handles:
    """The datasets below one graph root, as far as they are open."""

    file_format = FILE_FORMAT

    def __init__(self, root: Location, meter: Meter = NO_METER) -> None:
        self.root = root
        self.meter = meter
        self.objects = Objects(root, meter)
        self.prover = Prover(self.objects, root.is_local)
        self.positions = Positions()
        self.lance_options = root.lance_options()
        # Every commit adds a version to what Lance remembers; left to itself it stops at a gigabyte.
        self._session = Session(INDEX_CACHE_BYTES_MAX, FILE_CACHE_BYTES_MAX)
        self._handles: OrderedDict[DatasetRef, Dataset] = OrderedDict()
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def _dataset(self, ref: DatasetRef, lance: LanceDataset) -> Dataset:
        # There is one kind of handles, and it can write; this half of it just does not.
        return Dataset(cast("Store", self), ref, lance)

    def open(self, ref: DatasetRef) -> Dataset:
        """Return the pinned handle of one version, from the cache when it is there."""
        if (cached := self.cached(ref)) is not None:
            return cached
        self.meter.count("open", str(ref))
        return self.remember(self._open_version(ref))

    def _open_version(self, ref: DatasetRef, manifest: bytes | None = None) -> Dataset:
        """Open a version, through the bytes of its manifest where they are given."""
        try:
            lance = LanceDataset(
                self.root.child(ref.directory).uri,
                ref.version or None,
                session=self._session,
                storage_options=self.lance_options or None,
                serialized_manifest=manifest,
            )
        except (OSError, ValueError) as error:
            raise self._why_unreadable(ref, error) from error
        except BaseException as error:
            if not is_panic(error):
                raise
            raise self._why_unreadable(ref, error) from error
        dataset = self._dataset(ref.at(lance.version), lance)
        if manifest is None and self._is_based_elsewhere(dataset):
            raw = self.objects.read(dataset.ref.manifest_path)
            return self._open_version(dataset.ref, self._rebased(dataset.ref, raw))
        return dataset

    def _is_based_elsewhere(self, dataset: Dataset) -> bool:
        """Tell whether a fork was made under another address: the graph was moved, copied, or is mounted elsewhere."""
        if dataset.ref.branch is None:
            return False
        origin = self.root.child(dataset.ref.path).uri
        return not all(f"{base}/".startswith(f"{origin}/") for base in dataset.base_directories())

    def _rebased(self, ref: DatasetRef, raw: bytes) -> bytes:
        """Return the manifest of a version with the paths of what it inherits below the root of this graph."""
        return rebase_manifest(manifest_message(raw), ref.path, self.root.child(ref.path).uri)

    def cached(self, ref: DatasetRef) -> Dataset | None:
        """Return the pinned handle of one version if this store has opened or made it; no request."""
        with self._lock:
            if (cached := self._handles.get(ref)) is not None:
                self._handles.move_to_end(ref)
            return cached

    def open_unlinked(self, ref: DatasetRef, manifest: str) -> Dataset:
        """Read a published version through its staged manifest, without putting it in place."""
        dataset = self._open_version(ref, self._rebased(ref, self.objects.read(manifest)))
        dataset.staged_as = manifest
        return dataset

    def remember(self, dataset: Dataset) -> Dataset:
        """Keep a handle for the next reader of the same version."""
        with self._lock:
            self._handles[dataset.ref] = dataset
            while len(self._handles) > HANDLE_CACHE_MAX:
                self._handles.popitem(last=False)
        return dataset

    def forget(self, refs: Iterable[DatasetRef]) -> None:
        """Drop the handles of versions that are gone, so that whoever asks for one hears so."""
        with self._lock:
            for ref in refs:
                self._handles.pop(ref, None)

    def open_latest(self, path: str, branch: str | None) -> Dataset:
        """Open the newest version by path: what a reader without a catalog would see."""
        self.meter.count("open", f"{path} (latest)")
        return self._open_version(DatasetRef(path, branch, 0))

    def has_version(self, ref: DatasetRef) -> bool:
        """Probe for one version by path: one request, whatever the history."""
        self.meter.count("probe", str(ref))
        return self.objects.exists(ref.manifest_path)

    def has_versions(self, path: str, branch: str | None) -> bool:
        """Tell whether a dataset has any version by path; staged ones do not count."""
        folder = f"{DatasetRef(path, branch, 0).directory}/_versions"
        return any(info.path.endswith(".manifest") for info in self.objects.list(folder))

    def _why_unreadable(self, ref: DatasetRef, error: BaseException) -> Exception:
        # Lance reports every failed open as ValueError or OSError, so absence is established by asking for the file.
        present = self.has_version(ref) if ref.version else self.has_versions(ref.path, ref.branch)
        if present:
            return StorageError(
                f"{ref} cannot be read: {first_line(error)}", kind=StorageKind.PERMANENT, object=str(ref)
            )
        return StorageError(f"{ref} is not there", kind=StorageKind.NOT_FOUND, object=str(ref))

    def in_parallel(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
        """Run tasks side by side and return their results in order; the first error wins once all have settled."""
        if len(tasks) == 1:
            return [tasks[0]()]
        futures = [self.pool.submit(copy_context().run, task) for task in tasks]
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
        """Wait for work in the background; the store may be used again afterwards."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True)
