"""The store: one graph's datasets and control objects, and the only place where datasets are created or committed.

Commits are managed: Lance writes the new manifest beside the others and asks us to register it. We only remember
where it lies, so nothing moves by path until `link`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import pyarrow as pa
from lance import LanceDataset, LanceOperation, Transaction
from lance.commit import CommitConflictError
from lance.dataset import Session  # type: ignore[attr-defined]  # public, though not re-exported
from lance.fragment import FragmentMetadata, write_fragments

from omnigraph import failpoints
from omnigraph.errors import DriftDetected, GraphError, StorageError, StorageKind
from omnigraph.failpoints import Point
from omnigraph.limits import HANDLE_CACHE_MAX, PUBLISH_DEADLINE_SECONDS, STORAGE_THREADS
from omnigraph.store.change import Change
from omnigraph.store.dataset import Dataset, DatasetRef, first_line, lance_errors
from omnigraph.store.durable import Disk
from omnigraph.store.meter import NO_METER, Meter
from omnigraph.store.objects import Objects
from omnigraph.store.uri import Location

FILE_FORMAT = "2.2"
_COMMIT_TIMEOUT = timedelta(seconds=PUBLISH_DEADLINE_SECONDS)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Staged:
    """A committed but invisible version: nothing by path knows it until it is linked."""

    dataset: Dataset
    manifest: str
    passed: tuple[str, ...]
    files: tuple[str, ...]

    @property
    def ref(self) -> DatasetRef:
        return self.dataset.ref


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Rows of a coming strict commit; nothing names their file yet."""

    fragments: list[FragmentMetadata]


class StaleBase(Exception):
    """By path the dataset is further than the handle that a change was staged on: drift, or someone else's commit."""

    def __init__(self, ref: DatasetRef) -> None:
        super().__init__(str(ref))
        self.ref = ref


class LostRace(Exception):
    """A strict commit found its version taken."""


class Store:
    """Datasets and control objects below one graph root."""

    file_format = FILE_FORMAT

    def __init__(self, root: Location, meter: Meter = NO_METER) -> None:
        self.root = root
        self.meter = meter
        self.objects = Objects(root, meter)
        self.disk = Disk(root)
        self.lance_options = root.lance_options()
        self._session = Session()
        self._handles: OrderedDict[DatasetRef, Dataset] = OrderedDict()
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._retired: list[str] = []

    # -- opening -----------------------------------------------------------------------------------------------

    def open(self, ref: DatasetRef) -> Dataset:
        """Return the pinned handle of one version, from the cache when it is there."""
        if (cached := self.cached(ref)) is not None:
            return cached
        self.meter.count("open", str(ref))
        try:
            lance = LanceDataset(
                self.root.child(ref.directory).uri,
                ref.version,
                session=self._session,
                storage_options=self.lance_options or None,
            )
        except (OSError, ValueError) as error:
            raise self._why_unreadable(ref, error) from error
        return self.remember(Dataset(self, ref, lance))

    def cached(self, ref: DatasetRef) -> Dataset | None:
        """Return the pinned handle of one version if this store has opened or made it; no request."""
        with self._lock:
            if (cached := self._handles.get(ref)) is not None:
                self._handles.move_to_end(ref)
            return cached

    def open_unlinked(self, ref: DatasetRef, manifest: str) -> Dataset:
        """Read a published version through its staged manifest, without putting it in place."""
        raw = self.objects.read(manifest)
        try:
            lance = LanceDataset(
                self.root.child(ref.directory).uri,
                ref.version,
                session=self._session,
                storage_options=self.lance_options or None,
                serialized_manifest=_manifest_bytes(raw),
            )
        except (OSError, ValueError) as error:
            raise self._why_unreadable(ref, error) from error
        return Dataset(self, ref, lance)

    def remember(self, dataset: Dataset) -> Dataset:
        """Keep a handle for the next reader of the same version."""
        with self._lock:
            self._handles[dataset.ref] = dataset
            while len(self._handles) > HANDLE_CACHE_MAX:
                self._handles.popitem(last=False)
        return dataset

    def open_latest(self, path: str, branch: str | None) -> Dataset:
        """Open the newest version by path: what a reader without a catalog would see."""
        self.meter.count("open", f"{path} (latest)")
        directory = DatasetRef(path, branch, 0).directory
        try:
            lance = LanceDataset(
                self.root.child(directory).uri, session=self._session, storage_options=self.lance_options or None
            )
        except (OSError, ValueError) as error:
            raise self._why_unreadable(DatasetRef(path, branch, 0), error) from error
        return Dataset(self, DatasetRef(path, branch, lance.version), lance)

    def has_version(self, ref: DatasetRef) -> bool:
        """Probe for one version by path: one request, whatever the history."""
        self.meter.count("probe", str(ref))
        return self.objects.exists(ref.manifest_path)

    def _why_unreadable(self, ref: DatasetRef, error: Exception) -> Exception:
        # Lance reports every failed open as ValueError or OSError, so absence is established by asking for the file.
        present = bool(self.objects.list(f"{ref.directory}/_versions")) if ref.version == 0 else self.has_version(ref)
        if present:
            return StorageError(
                f"{ref} cannot be read: {first_line(error)}", kind=StorageKind.PERMANENT, object=str(ref)
            )
        return StorageError(f"{ref} is not there", kind=StorageKind.NOT_FOUND, object=str(ref))

    # -- creating and committing -------------------------------------------------------------------------------

    def create(self, path: str, schema: pa.Schema, rows: pa.Table | None = None) -> Dataset:
        """Create a dataset exclusively; `LostRace` when one is there already."""
        location = self.root.child(path)
        failpoints.hit(Point.DURABLE_BEFORE, f"create {path}")
        with lance_errors(f"creating {path}"):
            fragments = (
                write_fragments(
                    rows,
                    location.uri,
                    schema=schema,
                    mode="create",
                    enable_stable_row_ids=True,
                    data_storage_version=FILE_FORMAT,
                    storage_options=self.lance_options or None,
                )
                if rows is not None
                else []
            )
            self.sync_rows(path, fragments)
            try:
                lance = LanceDataset.commit(
                    location.uri,
                    LanceOperation.Overwrite(schema, fragments),
                    max_retries=0,
                    enable_stable_row_ids=True,
                    enable_v2_manifest_paths=True,
                    storage_options=self.lance_options or None,
                )
            except CommitConflictError as error:
                raise LostRace from error
            except (OSError, RuntimeError, ValueError) as error:
                # Over a dataset that is there already, Lance fails in ways that its types do not tell apart.
                if self.has_version(DatasetRef(path, None, 1)):
                    raise LostRace from error
                raise
        if lance.version != 1:
            raise LostRace
        self.meter.count("create", path)
        failpoints.hit(Point.DURABLE_AFTER, f"create {path}")
        return Dataset(self, DatasetRef(path, None, 1), lance)

    def fork(self, dataset: Dataset, name: str) -> Dataset:
        """Give a dataset a native branch at this version; writing to it leaves the source alone.

        The name stands for exactly this version, so a fork that is there already is the one we want.
        """
        ref = DatasetRef(dataset.ref.path, name, dataset.version)
        # Without its entry in the list of branches, Lance's cleanup of the parent would not spare what the fork reads.
        listed = f"{ref.path}/_refs/branches/{name}.json"
        failpoints.hit(Point.DURABLE_BEFORE, f"fork {ref}")
        try:
            with lance_errors(f"forking {dataset.ref} as {name}"):
                # Creating a branch locks the handle, and others read through it at the same time.
                copy(dataset.lance).create_branch(name, dataset.version)
        except StorageError:
            if not self.has_version(ref):
                raise
            # Whoever began this fork may have died before it was listed, or lost its bytes to a power cut.
            if not (self.objects.size(ref.manifest_path) and self.objects.size(listed)):
                return self.fork(dataset, f"{name}x")
        self.meter.count("fork", str(ref))
        failpoints.hit(Point.DURABLE_AFTER, f"fork {ref}")
        forked = self.open(ref)
        if self.disk.active:
            self._sync_paths([ref.manifest_path, listed])
        return forked

    def commit(
        self, dataset: Dataset, changes: Sequence[Change], properties: dict[str, str], begun: Staged | None = None
    ) -> Staged:
        """Commit changes one on top of the other, managed: the result is invisible until it is linked.

        `begun` is an earlier result that these changes continue. `StaleBase` means that the dataset has moved by path;
        the caller knows whether that is drift.
        """
        handle = begun.dataset if begun else dataset
        manifests = [*begun.passed, begun.manifest] if begun else []
        files = list(begun.files) if begun else []
        for change in changes:
            handle, manifest = self._commit_one(handle, change, properties)
            manifests.append(manifest)
            files.extend([*change.files, manifest.removeprefix(f"{dataset.ref.directory}/")])
        return Staged(handle, manifests[-1], tuple(manifests[:-1]), tuple(files))

    def _commit_one(self, base: Dataset, change: Change, properties: dict[str, str]) -> tuple[Dataset, str]:
        assert change.read_version == base.version, "a change is committed on the version it was staged on"
        # Lance looks for foreign commits by itself, except before an overwrite, which it takes as it is.
        is_blind = isinstance(change.transaction.operation, LanceOperation.Overwrite)
        if is_blind and self.has_version(base.ref.at(base.version + 1)):
            raise StaleBase(base.ref)
        registrar = _Registrar()
        transaction = change.transaction
        transaction = Transaction(base.version, transaction.operation, transaction.uuid, properties)
        failpoints.hit(Point.DURABLE_BEFORE, f"commit {base.ref}")
        try:
            lance = LanceDataset.commit(
                base.lance,
                transaction,
                max_retries=0,
                commit_timeout=_COMMIT_TIMEOUT,
                storage_options=self.lance_options or None,
                namespace_client=registrar,  # type: ignore[arg-type]  # Lance asks only for these methods
                table_id=[base.ref.path],
                namespace_client_managed_versioning=True,
            )
        except CommitConflictError as error:
            raise StaleBase(base.ref) from error
        except (OSError, RuntimeError, ValueError) as error:
            # Rebasing over a commit that it finds by path, Lance also fails in ways that its types do not tell apart.
            if self.has_version(base.ref.at(base.version + 1)):
                raise StaleBase(base.ref) from error
            with lance_errors(f"committing {base.ref}"):
                raise error
        self.meter.count("commit", str(base.ref))
        failpoints.hit(Point.DURABLE_AFTER, f"commit {base.ref}")
        ref = base.ref.at(base.version + 1)
        manifest = f"{ref.directory}/_versions/{registrar.manifest_path.rpartition('/')[2]}"
        # Lance silently rebases over commits it finds by path; a version further on is how that shows.
        if registrar.version != ref.version:
            self.objects.delete(manifest)
            raise StaleBase(base.ref)
        return Dataset(self, ref, lance), manifest

    def stage_strict(self, dataset: Dataset, rows: pa.Table) -> StagedRows:
        """Write the rows of a coming strict replacement; nothing names the file yet."""
        failpoints.hit(Point.DURABLE_BEFORE, f"stage {dataset.ref}")
        with lance_errors(f"staging {dataset.ref}"):
            transaction = write_fragments(
                rows,
                dataset.lance,
                mode="overwrite",
                return_transaction=True,
                data_storage_version=FILE_FORMAT,
                storage_options=self.lance_options or None,
            )
        assert isinstance(transaction, Transaction)
        self.meter.count("stage", str(dataset.ref))
        failpoints.hit(Point.DURABLE_AFTER, f"stage {dataset.ref}")
        return StagedRows(list(transaction.operation.fragments))  # type: ignore[attr-defined]  # it is an Overwrite

    def commit_strictly(self, dataset: Dataset, rows: StagedRows, schema: pa.Schema) -> Dataset:
        """Make staged rows the next version by path, if and only if nobody committed since; else `LostRace`.

        This is the commit point of the graph: everything else is staged before it or derived after it.
        """
        ref = dataset.ref.at(dataset.version + 1)
        failpoints.hit(Point.DURABLE_BEFORE, f"publish {ref}")
        try:
            lance = LanceDataset.commit(
                dataset.lance,
                Transaction(dataset.version, LanceOperation.Overwrite(schema, rows.fragments)),
                max_retries=0,
                commit_timeout=_COMMIT_TIMEOUT,
                storage_options=self.lance_options or None,
            )
        except CommitConflictError as error:
            raise LostRace from error
        except (OSError, RuntimeError, ValueError) as error:
            with lance_errors(f"publishing {ref}"):
                raise error
        self.meter.count("publish", str(ref))
        failpoints.hit(Point.DURABLE_AFTER, f"publish {ref}")
        # A strict commit lands on the next version or nowhere; anything else means that Lance changed its rules.
        assert lance.version == ref.version, f"strict commit landed on {lance.version} instead of {ref.version}"
        return Dataset(self, ref, lance)

    # -- linking and syncing -----------------------------------------------------------------------------------

    def link(self, ref: DatasetRef, manifest: str, passed: Iterable[str] = ()) -> None:
        """Put a published version in its place by path; idempotent, so anyone may finish it."""
        failpoints.hit(Point.LINK_BEFORE, str(ref))
        try:
            linked = self.objects.link(manifest, ref.manifest_path)
        except StorageError as error:
            # Whoever linked it before us has taken the staged name away; only a missing version is a real loss.
            if error.storage_kind is not StorageKind.NOT_FOUND:
                raise
            if not self.has_version(ref):
                raise GraphError(
                    f"the published version {ref} has lost its manifest `{manifest}`; restore it from a backup",
                    code="graph.corrupt",
                    object=str(ref),
                ) from error
            return
        if not linked and self.objects.read_if_exists(manifest) not in (None, self.objects.read(ref.manifest_path)):
            raise DriftDetected(
                f"a foreign tool wrote version {ref.version} of `{ref.directory}` by path before the graph could;"
                " run `omnigraph repair`",
                object=str(ref),
            )
        self._retired.extend((manifest, *passed))
        if not self.disk.active:
            self._retire()

    def sync(self, staged: Iterable[Staged], strict: Dataset, rows: StagedRows) -> None:
        """Make all that a coming publish relies on survive a power cut, in one batch."""
        if self.disk.active:
            paths = [f"{one.ref.directory}/{file}" for one in staged for file in one.files]
            paths += _data_files(strict.ref.directory, rows.fragments)
            self._sync_paths(paths, {name.rpartition("/")[0] for name in self._retired})
            self._retire()

    def _retire(self) -> None:
        """Remove staged names of linked versions, once the directories that hold the final names are synced.

        That costs a commit nothing: its names go with the batch of the next one, and the last ones on `close`.
        """
        with self._lock:
            retired, self._retired = self._retired, []
        for name in retired:
            self.objects.delete(name)

    def sync_rows(self, directory: str, fragments: Iterable[FragmentMetadata]) -> None:
        """Make rows survive a power cut before a commit by path names them."""
        if self.disk.active and (paths := _data_files(directory, fragments)):
            self._sync_paths(paths)

    def sync_version(self, dataset: Dataset) -> None:
        """Make a version that was committed by path survive a power cut, with its rows."""
        if self.disk.active:
            fragments = [fragment.metadata for fragment in dataset.lance.get_fragments()]
            self._sync_paths([*_data_files(dataset.ref.directory, fragments), dataset.ref.manifest_path])

    def sync_manifest(self, dataset: Dataset) -> None:
        """Make the manifest of a version survive a power cut; its rows already do."""
        if self.disk.active:
            self._sync_paths([dataset.ref.manifest_path])

    def _sync_paths(self, paths: Iterable[str], directories: Iterable[str] = ()) -> None:
        files: list[str] = []
        directories = set(directories)
        for path in paths:
            found = [info.path for info in self.objects.list(path.rstrip("/"))] if path.endswith("/") else [path]
            files.extend(found)
            directories.update(file.rpartition("/")[0] for file in found)
        self.disk.sync(files, directories)

    # -- threads -----------------------------------------------------------------------------------------------

    def in_parallel(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
        """Run tasks side by side and return their results in order; the first error wins once all have settled."""
        if len(tasks) == 1:
            return [tasks[0]()]
        futures = [self.pool.submit(task) for task in tasks]
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
        if self._retired:
            self.disk.sync([], {name.rpartition("/")[0] for name in self._retired})
            self._retire()


class _Registrar:
    """Stands where Lance expects a catalog: it takes note of the next version and publishes nothing."""

    def __init__(self) -> None:
        self.version = 0
        self.manifest_path = ""

    def namespace_id(self) -> str:
        return "omnigraph"

    def create_table_version(self, request: dict[str, object]) -> dict[str, object]:
        # Refusing here would make Lance retry and complain; the caller looks at the version instead.
        self.version = int(str(request["version"]))
        self.manifest_path = str(request["manifest_path"])
        keys = ("version", "manifest_path", "manifest_size", "e_tag")
        return {"version": {key: request.get(key) for key in keys}}


def _manifest_bytes(raw: bytes) -> bytes:
    # The file ends in the position of the manifest, two version numbers and `LANC`; a length precedes the manifest.
    position = int.from_bytes(raw[-16:-8], "little")
    length = int.from_bytes(raw[position : position + 4], "little")
    return raw[position + 4 : position + 4 + length]


def _data_files(directory: str, fragments: Iterable[FragmentMetadata]) -> list[str]:
    # A base id marks a file that a branch inherits; it was synced when its owner wrote it.
    return [f"{directory}/data/{file.path}" for one in fragments for file in one.files if file.base_id is None]
