"""The store: a graph's datasets and control objects; the only module that creates datasets and commits to them.

Commits use Lance's managed versioning: Lance writes the new manifest under a staged name and asks a namespace client
to register it. Ours only records the name, so no version is visible by path until `link`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa
from lance import LanceDataset, LanceOperation, Transaction
from lance.commit import CommitConflictError
from lance.fragment import FragmentMetadata, write_fragments

from omnigraph import failpoints
from omnigraph.errors import DriftDetected, GraphError, StorageError, StorageKind
from omnigraph.failpoints import Point, around_change
from omnigraph.limits import PASSING_CACHE_BYTES_MAX, PUBLISH_DEADLINE_SECONDS
from omnigraph.store.dataset_cache import DatasetCache
from omnigraph.store.objects.backend import NO_METER, Inspected, Meter
from omnigraph.store.objects.durability import Disk
from omnigraph.store.objects.uri import Location
from omnigraph.store.read.dataset import Dataset, DatasetRef, lance_errors
from omnigraph.store.write.file_proof import (
    ChecksumKind,
    PendingProofs,
    Proof,
    checksum_text,
    etag_checksum,
    is_inlined,
    not_whole,
    pack,
)
from omnigraph.store.write.transaction import Change, changed, write_files

_COMMIT_TIMEOUT = timedelta(seconds=PUBLISH_DEADLINE_SECONDS)


@dataclass(frozen=True, slots=True)
class Staged:
    """A committed but invisible version: nothing by path knows it until it is linked."""

    dataset: Dataset
    manifest: str
    passed: tuple[str, ...]
    files: tuple[str, ...]
    proofs: tuple[PendingProofs, ...] = ()

    @property
    def ref(self) -> DatasetRef:
        return self.dataset.ref


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Rows of a coming strict commit; nothing names their file yet."""

    fragments: list[FragmentMetadata]
    proofs: tuple[Proof, ...] = ()


@dataclass(frozen=True, slots=True)
class Strict:
    """A coming strict commit. On a disk its manifest is written and only waits for its name."""

    base: Dataset
    rows: StagedRows
    schema: pa.Schema
    staged: Staged | None

    @property
    def ref(self) -> DatasetRef:
        return self.base.ref.successor


class StaleBase(Exception):
    """By path the dataset is newer than the handle that a change was staged on: drift, or a concurrent commit."""

    def __init__(self, ref: DatasetRef) -> None:
        super().__init__(str(ref))
        self.ref = ref


class LostRace(Exception):
    """A strict commit found its version taken."""


class Store(DatasetCache):
    """Datasets and control objects below one graph root."""

    def __init__(self, root: Location, meter: Meter = NO_METER, cache_bytes: int | None = None) -> None:
        super().__init__(root, meter, cache_bytes)
        self.disk = Disk(root)
        self._retired: list[str] = []

    def opened_once(self) -> Store:
        """Return a store of the same graph with small caches, for work that opens each version once."""
        return Store(self.root, self.meter, PASSING_CACHE_BYTES_MAX)

    @property
    def checksum_kind(self) -> ChecksumKind:
        return ChecksumKind.ETAG if self.root.kind.keeps_objects_whole else ChecksumKind.CONTENT

    def checksum_of(self, dataset: Dataset) -> str | None:
        """Return the checksum of the file that holds a version, if that costs no request to an object store."""
        if dataset.checksum is None and not self.root.kind.has_round_trips:
            inspected = self.objects.inspect(dataset.ref.manifest_path)
            proof = self.prover.proof_of(dataset.ref.manifest_path, inspected, None)
            dataset.checksum = checksum_text(self.checksum_kind, proof)
        return dataset.checksum

    def pack_checksums(self, proofs: Iterable[Proof], earlier: str = "") -> str:
        """Return checksums of files as a record for `verify`, with those of an earlier one of the same kind."""
        return pack(self.checksum_kind, proofs, earlier)

    def create(
        self,
        path: str,
        schema: pa.Schema,
        rows: pa.Table | None = None,
        seal: Callable[[list[Proof]], pa.Schema] | None = None,
        checksums_as: str | None = None,
    ) -> Dataset:
        """Create a dataset exclusively and durably; `LostRace` when it exists.

        `seal` may give the schema once the files of the rows are proven; `checksums_as` names the property of the first
        transaction that holds their checksums.
        """
        uri, ref, registrar = self.root.child(path).uri, DatasetRef(path, None, 1), _Registrar()
        failpoints.hit(Point.DURABLE_BEFORE, f"create {path}")
        try:
            with lance_errors(f"creating {path}"):
                fragments = [] if rows is None else self._write_new(uri, schema, rows)
                proven = self._prove_fragments(path, fragments)
                schema = schema if seal is None else seal(proven)
                properties = {} if checksums_as is None else {checksums_as: self.pack_checksums(proven)}
                lance = LanceDataset.commit(
                    uri,
                    Transaction(0, LanceOperation.Overwrite(schema, fragments), transaction_properties=properties),
                    max_retries=0,
                    enable_stable_row_ids=True,
                    enable_v2_manifest_paths=True,
                    storage_options=self.lance_options or None,
                    **registrar.options(path),
                )
        except StorageError as error:
            # When the dataset exists, Lance fails with errors whose types do not distinguish that.
            if self.has_version(ref):
                raise LostRace from error
            raise
        files = [f"data/{file.path}" for fragment in fragments for file in fragment.files]
        manifest = registrar.manifest_of(ref)
        proofs = (self._prove_manifest(manifest, registrar),)
        staged_files = (*files, manifest.removeprefix(f"{path}/"))
        staged = Staged(Dataset(self, ref, lance), manifest, (), staged_files, proofs)
        self.meter.count("create", path)
        failpoints.hit(Point.DURABLE_AFTER, f"create {path}")
        self.take_name(staged)
        # The handle that Lance returned keeps using the registrar; a new one opens the dataset by path.
        created = self.open(ref)
        created.checksum = checksum_text(self.checksum_kind, *proofs[0].result())
        return created

    def _write_new(self, uri: str, schema: pa.Schema, rows: pa.Table) -> list[FragmentMetadata]:
        written = write_fragments(
            rows,
            uri,
            schema=schema,
            mode="create",
            enable_stable_row_ids=True,
            data_storage_version=self.file_format,
            storage_options=self.lance_options or None,
        )
        assert isinstance(written, list)
        return written

    def take_name(self, staged: Staged) -> None:
        """Link a staged version durably under its final name; `LostRace` if the name is taken.

        The bytes are synced before the name: a name that survives a power cut without its bytes would leave an
        unreadable newest version.
        """
        for proofs in staged.proofs:
            proofs.result()
        self.sync_files([f"{staged.ref.directory}/{file}" for file in staged.files])
        is_taken = not self.objects.link(staged.manifest, staged.ref.manifest_path)
        if is_taken:
            self.objects.discard(staged.manifest)
            raise LostRace
        self.sync_files([staged.ref.manifest_path])
        self.objects.discard(staged.manifest)

    def fork(self, dataset: Dataset, *names: str) -> Dataset:
        """Create a Lance branch of a dataset at this version; writes to it do not touch the source.

        Each name represents exactly this version, so an existing fork is reused if it is complete. The next name is
        tried only after one that another process left unfinished.
        """
        for name in names:
            forked = self._fork_as(dataset, name)
            if forked is not None:
                return forked
        raise StorageError(
            f"forking {dataset.ref} failed: forks were begun before and not finished ({', '.join(names)}); run"
            " `omnigraph cleanup` to remove them, then try again",
            kind=StorageKind.PERMANENT,
            object=str(dataset.ref),
        )

    def fork_new(self, dataset: Dataset, name: str) -> Dataset:
        """Create a Lance branch of a dataset under a name that was never used before."""
        forked = self._fork_as(dataset, name)
        if forked is None:
            # No other process knows the name, so the store refused a request of this process for another one in flight.
            raise StorageError(
                f"forking {dataset.ref} failed: the store did not let the fork be listed, because another request was"
                " under way: try again",
                kind=StorageKind.TRANSIENT,
                object=str(dataset.ref),
            )
        return forked

    def _fork_as(self, dataset: Dataset, name: str) -> Dataset | None:
        ref = DatasetRef(dataset.ref.path, name, dataset.version)
        failpoints.hit(Point.DURABLE_BEFORE, f"fork {ref}")
        try:
            with lance_errors(f"forking {dataset.ref} as {name}"):
                # Creating a branch locks the handle, and others read through it at the same time.
                copy(dataset.lance).create_branch(name, dataset.version)
        except StorageError as error:
            if not self.has_version(ref):
                raise
            # Without its entry in the list of branches, Lance's cleanup of the parent would delete what the fork reads.
            if not (self.objects.size(ref.manifest_path) and self.objects.size(ref.branch_entry)):
                # After a storage failure, another name would fail as well.
                if error.storage_kind is not StorageKind.UNKNOWN:
                    raise
                # The process that began this fork may have died before it was listed, or lost its bytes to a power cut.
                return None
        self.meter.count("fork", str(ref))
        failpoints.hit(Point.DURABLE_AFTER, f"fork {ref}")
        forked = self.open(ref)
        self.sync_files([ref.manifest_path, ref.branch_entry])
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
        proofs = list(begun.proofs) if begun else []
        for change in changes:
            # Lance checks for commits by others itself, except before an overwrite, which it applies unconditionally.
            is_blind = isinstance(change.transaction.operation, LanceOperation.Overwrite)
            if is_blind and self.has_version(handle.ref.successor):
                raise StaleBase(handle.ref)
            handle, manifest, proof = self._commit_one(handle, change, properties)
            manifests.append(manifest)
            files.extend([*change.files, manifest.removeprefix(f"{dataset.ref.directory}/")])
            proofs.extend((change.proofs, proof))
        return Staged(handle, manifests[-1], tuple(manifests[:-1]), tuple(files), tuple(proofs))

    def _commit_one(
        self, base: Dataset, change: Change, properties: dict[str, str]
    ) -> tuple[Dataset, str, PendingProofs]:
        assert change.read_version == base.version, "a change is committed on the version it was staged on"
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
                **registrar.options(base.ref.path),
            )
        except CommitConflictError as error:
            raise StaleBase(base.ref) from error
        except (OSError, RuntimeError, ValueError) as error:
            # When Lance rebases over a commit that it finds by path, the types of its errors do not distinguish that.
            if self.has_version(base.ref.successor):
                raise StaleBase(base.ref) from error
            with lance_errors(f"committing {base.ref}"):
                raise error
        self.meter.count("commit", str(base.ref))
        failpoints.hit(Point.DURABLE_AFTER, f"commit {base.ref}")
        ref = base.ref.successor
        manifest = registrar.manifest_of(ref)
        # Lance silently rebases over commits it finds by path; a version further on is how that shows.
        if registrar.version != ref.version:
            self.objects.discard(manifest)
            raise StaleBase(base.ref)
        log = f"{base.ref.directory}/_transactions/{base.version}-{transaction.uuid}.txn"
        proof = self._prove_manifest(manifest, registrar, log)
        committed = Dataset(self, ref, lance)
        committed.checksum = checksum_text(self.checksum_kind, *proof.result())
        return committed, manifest, proof

    def _prove_manifest(self, manifest: str, registrar: _Registrar, log: str | None = None) -> PendingProofs:
        """Prove a staged manifest and the file of its transaction.

        In an object store each was one put, and the answer to the manifest's says what is there now.
        """
        if self.root.kind.keeps_objects_whole:
            is_reported = registrar.e_tag is not None and registrar.size_bytes is not None
            proof = Proof(manifest, registrar.size_bytes or 0, etag_checksum(registrar.e_tag))
            return PendingProofs([proof]) if is_reported else self.prover.begin({manifest: registrar.size_bytes})
        raw = self.objects.read(manifest)
        logged = self.objects.read_if_exists(log) if log is not None else None
        if logged is not None and not is_inlined(logged, raw):
            raise not_whole(str(log), "it is not the transaction that was committed")
        return PendingProofs([self.prover.proof_of(manifest, Inspected.of(raw), registrar.size_bytes)])

    def _prove_fragments(self, directory: str, fragments: Iterable[FragmentMetadata]) -> list[Proof]:
        sizes = {
            f"{directory}/data/{file.path}": file.file_size_bytes for fragment in fragments for file in fragment.files
        }
        return self.prover.begin(sizes).result()

    def stage_strict(self, dataset: Dataset, rows: pa.Table) -> StagedRows:
        """Write the rows of a coming strict replacement; nothing names the file yet."""
        with around_change(f"stage {dataset.ref}"):
            with lance_errors(f"staging {dataset.ref}"):
                fragments = write_files(dataset, rows, "overwrite")
            self.meter.count("stage", str(dataset.ref))
        return StagedRows(fragments, tuple(self._prove_fragments(dataset.ref.directory, fragments)))

    def prepare_strictly(self, dataset: Dataset, rows: StagedRows, schema: pa.Schema) -> Strict:
        """Do everything of a strict commit before its commit point; `LostRace` when it can no longer win."""
        if self.root.kind.publishes_by_put:
            return Strict(dataset, rows, schema, None)
        change = changed(dataset, LanceOperation.Overwrite(schema, rows.fragments), 0)
        try:
            handle, manifest, proof = self._commit_one(dataset, change, {})
        except StaleBase as error:
            raise LostRace from error
        files = (*change.files, manifest.removeprefix(f"{dataset.ref.directory}/"))
        return Strict(dataset, rows, schema, Staged(handle, manifest, (), files, (proof,)))

    def commit_strictly(self, strict: Strict) -> Dataset:
        """Make the prepared rows the next version if no other commit came first; else `LostRace`.

        This is the commit point of the graph: everything else is staged before it or derived after it. On a disk it
        is one hard link to bytes that are already synced; on an object store, one conditional put.
        """
        with around_change(f"publish {strict.ref}"):
            if strict.staged is not None:
                published = strict.staged.dataset
                if not self.objects.link(strict.staged.manifest, strict.ref.manifest_path):
                    self.objects.discard(strict.staged.manifest)
                    raise LostRace
                self._retired.append(strict.staged.manifest)
            else:
                published = self._commit_by_path(strict)
            self.meter.count("publish", str(strict.ref))
        return published

    def _commit_by_path(self, strict: Strict) -> Dataset:
        base = strict.base
        try:
            lance = LanceDataset.commit(
                base.lance,
                Transaction(base.version, LanceOperation.Overwrite(strict.schema, strict.rows.fragments)),
                max_retries=0,
                commit_timeout=_COMMIT_TIMEOUT,
                storage_options=self.lance_options or None,
            )
        except CommitConflictError as error:
            raise LostRace from error
        except (OSError, RuntimeError, ValueError) as error:
            with lance_errors(f"publishing {strict.ref}"):
                raise error
        # A strict commit lands on the next version or nowhere; anything else means that Lance changed its rules.
        assert lance.version == strict.ref.version, f"strict commit landed on {lance.version} instead of {strict.ref}"
        return Dataset(self, strict.ref, lance)

    def link(self, ref: DatasetRef, manifest: str, passed: Iterable[str] = ()) -> None:
        """Link a published version under its final name; idempotent, so any process may finish it."""
        failpoints.hit(Point.LINK_BEFORE, str(ref))
        try:
            linked = self.objects.link(manifest, ref.manifest_path)
        except StorageError as error:
            # Another process linked it and deleted the staged name; only a missing version is a loss.
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
                f"another tool wrote version {ref.version} of `{ref.directory}` by path before the graph could;"
                " run `omnigraph repair`",
                object=str(ref),
            )
        self._retired.extend((manifest, *passed))
        if not self.disk.active:
            self._retire()

    def sync(self, staged: Iterable[Staged], strict: Strict) -> None:
        """Sync all files that a publish relies on to disk, in one batch."""
        if self.disk.active:
            both = [*staged, *([strict.staged] if strict.staged else ())]
            paths = [f"{version.ref.directory}/{file}" for version in both for file in version.files]
            self.sync_files(paths, {name.rpartition("/")[0] for name in self._retired})
            self._retire()

    def _retire(self) -> None:
        """Remove staged names of linked versions, once the directories that hold the final names are synced.

        That costs a commit nothing: its names go with the batch of the next one, and the last ones on `close`.
        """
        with self._lock:
            retired, self._retired = self._retired, []
        for name in retired:
            self.objects.discard(name)

    def sync_manifest(self, dataset: Dataset) -> None:
        """Sync the name of a published version; its bytes are synced already."""
        self.sync_files([dataset.ref.manifest_path])

    def sync_files(self, paths: Iterable[str], directories: Iterable[str] = ()) -> None:
        """Sync files and their directories; a path that ends in `/` means all files in it."""
        if not self.disk.active:
            return
        files: list[str] = []
        directories = set(directories)
        for path in paths:
            files += [info.path for info in self.objects.list(path.rstrip("/"))] if path.endswith("/") else [path]
        directories.update([file.rpartition("/")[0] for file in files])
        self.disk.sync(files, directories)

    def close(self) -> None:
        super().close()
        if self._retired:
            # What was published stands; a sweep removes names that stay.
            with suppress(StorageError):
                self.disk.sync([], {name.rpartition("/")[0] for name in self._retired})
                self._retire()


class _Registrar:
    """A namespace client for Lance that records the next version and publishes nothing."""

    def __init__(self) -> None:
        self.version = 0
        self.size_bytes: int | None = None
        self.e_tag: str | None = None
        self._manifest_path = ""

    def options(self, path: str) -> dict[str, Any]:
        """Return the arguments that make Lance register a commit here, under a staged name."""
        return {"namespace_client": self, "table_id": [path], "namespace_client_managed_versioning": True}

    def namespace_id(self) -> str:
        return "omnigraph"

    def list_table_versions(self, request: dict[str, object]) -> dict[str, object]:
        return {"versions": []}

    def create_table_version(self, request: dict[str, object]) -> dict[str, object]:
        # An error here would make Lance retry; the caller checks the version instead.
        self.version = int(str(request["version"]))
        self._manifest_path = str(request["manifest_path"])
        size, e_tag = request.get("manifest_size"), request.get("e_tag")
        self.size_bytes = int(str(size)) if size is not None else None
        self.e_tag = str(e_tag) if e_tag is not None else None
        keys = ("version", "manifest_path", "manifest_size", "e_tag")
        return {"version": {key: request.get(key) for key in keys}}

    def manifest_of(self, ref: DatasetRef) -> str:
        """Return the path of the staged manifest, relative to the graph's root."""
        return f"{ref.directory}/_versions/{self._manifest_path.rpartition('/')[2]}"
