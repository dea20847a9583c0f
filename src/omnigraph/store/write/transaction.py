"""Changes: uncommitted Lance transactions, with the files that must be on disk before anyone relies on them.

Staging writes data files that nothing names yet; abandoning a change leaves only residue for the sweep.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from lance import LanceOperation, Transaction
from lance.fragment import FragmentMetadata, write_fragments

from omnigraph.failpoints import around_change
from omnigraph.store.lance_schema import blob_fields
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


@contextmanager
def staging(
    dataset: Dataset, doing: str, *read: Dataset, step: str = "stage", counted_as: str = "stage"
) -> Iterator[None]:
    """Wrap a step that writes files which nothing names yet: failpoints around it, a count, and errors as ours."""
    with around_change(f"{step} {dataset.ref.path}"):
        with lance_errors(doing, *read):
            yield
        dataset.store.meter.count(counted_as, dataset.ref.path)


def append(dataset: Dataset, rows: pa.Table) -> Change:
    """Stage new rows; the caller vouches that no id among them exists."""
    fragments = write_stream(dataset, rows)
    dataset.store.positions.foresee(dataset, rows, fragments)
    return changed(dataset, LanceOperation.Append(fragments), dataset.count() + rows.num_rows)


def write_stream(
    dataset: Dataset, rows: pa.Table | pa.RecordBatchReader, mode: str = "append", **options: Any
) -> list[FragmentMetadata]:
    """Write rows as they come to new files of a dataset; nothing names them yet."""
    with staging(dataset, f"staging rows of {dataset.ref}"):
        return write_files(dataset, rows, mode, **options)


def write_files(
    dataset: Dataset, rows: pa.Table | pa.RecordBatchReader, mode: str, **options: Any
) -> list[FragmentMetadata]:
    """Let Lance write rows; a caller with another name for the step than `write_stream` reports errors itself."""
    transaction = write_fragments(
        rows,
        dataset.lance,
        mode=mode,
        return_transaction=True,
        data_storage_version=dataset.store.file_format,
        storage_options=dataset.store.lance_options or None,
        **{"max_rows_per_file": ROWS_PER_FILE, **options},
    )
    assert isinstance(transaction, Transaction)
    return list(transaction.operation.fragments)  # type: ignore[attr-defined]  # both modes carry fragments


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
    fragments = write_stream(dataset, rows, "overwrite") if rows.num_rows else []
    return changed(dataset, LanceOperation.Overwrite(rows.schema, fragments), rows.num_rows)


def changed(
    dataset: Dataset, operation: LanceOperation.BaseOperation, row_count: int, known_files: Set[str] = frozenset()
) -> Change:
    """Wrap an operation that was staged at this version of the dataset.

    `known_files` are files that new fragments name and that were there before, relative to the dataset's directory.
    """
    # An update also names fragments that only lose rows.
    updated = {fragment.id for fragment in getattr(operation, "updated_fragments", ())}
    if updated:
        known_files = known_files | stored_files(fragment for fragment in dataset.fragments if fragment.id in updated)
    files = tuple(path for path in written_files(dataset, operation) if path not in known_files)
    transaction = Transaction(dataset.version, operation)
    return Change(transaction, files, row_count, _prove(dataset, operation, known_files))


def stored_files(fragments: Iterable[FragmentMetadata]) -> set[str]:
    """Return the files that stored fragments name, relative to the dataset's directory."""
    return {path for fragment in fragments for path, _ in _fragment_files(fragment, has_blobs=True)}


def written_files(dataset: Dataset, operation: LanceOperation.BaseOperation) -> tuple[str, ...]:
    """Return the files that an operation names and that lie with this branch of the dataset."""
    has_blobs = bool(blob_fields(dataset.schema))
    files = {path for fragment in _fragments(operation) for path, _ in _fragment_files(fragment, has_blobs)}
    return tuple(sorted(files | {f"_indices/{index.uuid}/" for index in getattr(operation, "new_indices", ())}))


def _prove(dataset: Dataset, operation: LanceOperation.BaseOperation, known_files: Set[str]) -> PendingProofs:
    """Begin to prove the files that an operation brings in, and only those."""
    sizes: dict[str, int | None] = {}
    has_blobs = bool(blob_fields(dataset.schema))
    for fragment in _fragments(operation):
        sizes |= {path: size for path, size in _fragment_files(fragment, has_blobs) if path not in known_files}
    for index in getattr(operation, "new_indices", ()):
        # Lance notes the sizes of the files of an index that it has just built, not of one that it has listed.
        index_files = {f"_indices/{index.uuid}/{file.path}": file.size_bytes for file in index.files or ()}
        sizes |= index_files or {f"_indices/{index.uuid}/": None}
    directory = dataset.ref.directory
    return dataset.store.prover.begin({f"{directory}/{path}": size for path, size in sizes.items()})


def _fragments(operation: LanceOperation.BaseOperation) -> Iterable[FragmentMetadata]:
    for name in ("fragments", "new_fragments", "updated_fragments"):
        yield from getattr(operation, name, ())
    for group in getattr(operation, "groups", ()):
        yield from group.new_fragments


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
