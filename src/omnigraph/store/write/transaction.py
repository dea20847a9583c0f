"""Changes: uncommitted Lance transactions, with the files that must be on disk before anyone relies on them.

Staging writes data files that nothing names yet; abandoning a change leaves only residue for the sweep.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace

import pyarrow as pa
from lance import LanceOperation, Transaction
from lance.fragment import FragmentMetadata, write_fragments

from omnigraph import failpoints
from omnigraph.failpoints import Point
from omnigraph.store.lance_schema import BLOB_MARK
from omnigraph.store.read.dataset import Dataset, lance_errors
from omnigraph.store.write.file_proof import NOTHING_TO_PROVE, PendingProofs

ROWS_PER_FILE = 1_048_576


@dataclass(frozen=True, slots=True)
class Change:
    """One staged transaction on one dataset, and the row count it leaves behind.

    `files` are relative to the dataset's directory on its branch; a path that ends in `/` means all files in it.
    `proofs` are of those that are new; nothing may be published before they are there.
    """

    transaction: Transaction
    files: tuple[str, ...]
    row_count: int
    proofs: PendingProofs = NOTHING_TO_PROVE

    @property
    def read_version(self) -> int:
        return int(self.transaction.read_version)

    def rebased(self, onto: Dataset) -> Change:
        """Return the same appended rows as a change of a newer version; only a pure append can move like this."""
        operation = self.transaction.operation
        assert isinstance(operation, LanceOperation.Append), "only an append may be rebased"
        added = sum(fragment.num_rows for fragment in operation.fragments)
        return replace(self, transaction=Transaction(onto.version, operation), row_count=onto.count() + added)

    def following(self, fold: Change) -> Change:
        """Return the same appended rows as the change that follows a rewrite of the same version."""
        assert isinstance(fold.transaction.operation, LanceOperation.Rewrite), "only a rewrite leaves all rows alone"
        operation = self.transaction.operation
        assert isinstance(operation, LanceOperation.Append), "only an append fits on top of any rewrite"
        return replace(self, transaction=Transaction(fold.read_version + 1, operation))


def append(dataset: Dataset, rows: pa.Table) -> Change:
    """Stage new rows; the caller vouches that no id among them exists."""
    fragments = write_rows(dataset, rows)
    operation = LanceOperation.Append(fragments)
    return changed(dataset, operation, dataset.count() + rows.num_rows)


def write_rows(dataset: Dataset, rows: pa.Table) -> list[FragmentMetadata]:
    """Write rows to new files of a dataset; nothing names them yet."""
    fragments = write_stream(dataset, rows)
    dataset.store.positions.foresee(dataset, rows, fragments)
    return fragments


def write_stream(dataset: Dataset, rows: pa.Table | pa.RecordBatchReader) -> list[FragmentMetadata]:
    """Write rows as they come to new files of a dataset; nothing names them yet."""
    return _write(dataset, rows, "append")


def replacing(
    dataset: Dataset, emptied: Sequence[int], updated: Sequence[FragmentMetadata], added: Sequence[FragmentMetadata]
) -> LanceOperation.Update:
    """Return the operation that adds fragments and takes replaced rows out of others; the one way to build it.

    The new rows have row ids of their own, so no index knows them. Lance would add the new fragments to the coverage of
    every index whose column is not named here, and their rows would never be found.
    """
    return LanceOperation.Update(
        removed_fragment_ids=list(emptied),
        updated_fragments=list(updated),
        new_fragments=list(added),
        fields_modified=[],
        fields_for_preserving_frag_bitmap=list(dataset.field_ids.values()),
        update_mode="rewrite_rows",
    )


def overwrite(dataset: Dataset, rows: pa.Table) -> Change:
    """Stage the replacement of all rows, zero rows included; stable row ids and the key mark survive."""
    fragments = _write(dataset, rows, "overwrite") if rows.num_rows else []
    return changed(dataset, LanceOperation.Overwrite(rows.schema, fragments), rows.num_rows)


def changed(
    dataset: Dataset, operation: LanceOperation.BaseOperation, row_count: int, known_files: Set[str] = frozenset()
) -> Change:
    """Wrap an operation that was staged at this version of the dataset.

    `known` are files that new fragments name and that were there before, relative to the dataset's directory.
    """
    known_files = known_files | _known_files(dataset, operation)
    files = tuple(sorted(set(_written_files(operation, _has_blobs(dataset))) - known_files))
    transaction = Transaction(dataset.version, operation)
    return Change(transaction, files, row_count, _prove(dataset, operation, known_files))


def _known_files(dataset: Dataset, operation: LanceOperation.BaseOperation) -> set[str]:
    """Return the files that an operation names again: an update also names fragments that only lose rows."""
    updated = {fragment.id for fragment in _updated(operation)}
    updated_fragments = [fragment for fragment in dataset.fragments if fragment.id in updated] if updated else []
    return {path for fragment in updated_fragments for path, _ in _fragment_files(fragment, has_blobs=True)}


def stored_files(dataset: Dataset) -> set[str]:
    """Return the files that a version names, relative to the dataset's directory."""
    return {path for fragment in dataset.fragments for path, _ in _fragment_files(fragment, has_blobs=True)}


def written_files(dataset: Dataset, operation: LanceOperation.BaseOperation) -> tuple[str, ...]:
    """Return the files that an operation names and that lie with this branch of the dataset."""
    return tuple(sorted(set(_written_files(operation, _has_blobs(dataset)))))


def _has_blobs(dataset: Dataset) -> bool:
    return any(BLOB_MARK in (field.metadata or {}) for field in dataset.schema)


def _prove(dataset: Dataset, operation: LanceOperation.BaseOperation, known_files: Set[str]) -> PendingProofs:
    """Begin to prove the files that an operation brings in, and only those."""
    sizes: dict[str, int | None] = {}
    for fragment in _fragments(operation):
        sizes |= {
            path: size for path, size in _fragment_files(fragment, _has_blobs(dataset)) if path not in known_files
        }
    for index in getattr(operation, "new_indices", ()) or ():
        # Lance notes the sizes of the files of an index that it has just built, not of one that it has listed.
        index_files = {f"_indices/{index.uuid}/{file.path}": file.size_bytes for file in index.files or ()}
        sizes |= index_files or {f"_indices/{index.uuid}/": None}
    directory = dataset.ref.directory
    return dataset.store.prover.begin({f"{directory}/{path}": size for path, size in sizes.items()})


def _write(dataset: Dataset, rows: pa.Table | pa.RecordBatchReader, mode: str) -> list[FragmentMetadata]:
    failpoints.hit(Point.DURABLE_BEFORE, f"stage {dataset.ref.path}")
    with lance_errors(f"staging rows of {dataset.ref}"):
        transaction = write_fragments(
            rows,
            dataset.lance,
            mode=mode,
            return_transaction=True,
            max_rows_per_file=ROWS_PER_FILE,
            data_storage_version=dataset.store.file_format,
            storage_options=dataset.store.lance_options or None,
        )
    dataset.store.meter.count("stage", dataset.ref.path)
    failpoints.hit(Point.DURABLE_AFTER, f"stage {dataset.ref.path}")
    assert isinstance(transaction, Transaction)
    return list(transaction.operation.fragments)  # type: ignore[attr-defined]  # both modes carry fragments


def _written_files(operation: LanceOperation.BaseOperation, has_blobs: bool) -> Iterable[str]:
    for fragment in _fragments(operation):
        yield from (path for path, _ in _fragment_files(fragment, has_blobs))
    for index in getattr(operation, "new_indices", ()) or ():
        yield f"_indices/{index.uuid}/"


def _fragments(operation: LanceOperation.BaseOperation) -> Iterable[FragmentMetadata]:
    for name in ("fragments", "new_fragments"):
        yield from getattr(operation, name, ()) or ()
    yield from _updated(operation)
    for group in getattr(operation, "groups", ()) or ():
        yield from group.new_fragments


def _updated(operation: LanceOperation.BaseOperation) -> Sequence[FragmentMetadata]:
    return getattr(operation, "updated_fragments", ()) or ()


def _fragment_files(fragment: FragmentMetadata, has_blobs: bool) -> Iterable[tuple[str, int | None]]:
    """Yield the files of a fragment with the sizes that Lance has recorded."""
    for file in fragment.files:
        # A base id marks a file that a branch inherits; it was proven and synced when its owner wrote it.
        if getattr(file, "base_id", None) is None:
            yield f"data/{file.path}", file.file_size_bytes
            if has_blobs:
                # Larger blobs lie in a directory beside the file that refers to them, and of the same name.
                yield f"data/{file.path.removesuffix('.lance')}/", None
    if fragment.deletion_file is not None and getattr(fragment.deletion_file, "base_id", None) is None:
        yield fragment.deletion_file.path(fragment.id), None
