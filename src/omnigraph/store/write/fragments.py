"""Fragments written by parallel tasks of one operation, and the transaction that combines them.

The seam for executors: a task stages files and sends back texts. Nothing here commits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa
from lance import LanceOperation
from lance.fragment import FragmentMetadata

from omnigraph.errors import StorageError
from omnigraph.limits import LOAD_SPLIT_BYTES
from omnigraph.store.blobs.cells import StoredBlobs, blob_columns, without_blob_bytes, write_with_blobs
from omnigraph.store.blobs.shared import Sharing, StagedFragment, assembled, shared_paths
from omnigraph.store.read.dataset import Dataset, DatasetRef, lance_errors
from omnigraph.store.read.lookup import ROW_ADDRESS, split_addresses
from omnigraph.store.read.row_ranges import RowRange, scan_range
from omnigraph.store.store import Store
from omnigraph.store.write.file_proof import Proof
from omnigraph.store.write.transaction import Change, append, changed, replacing, written_files

# A fragment as text, because it may come from another machine.
FragmentText: TypeAlias = str
# The member of such a text that says what its writer has proven about its files.
_PROOFS: Final = "proofs"
# The member that says which files it shares with fragments that are there.
_SHARING: Final = "sharing"
Stage: TypeAlias = Callable[[Dataset, pa.Table], Change]


@dataclass(frozen=True, slots=True)
class Marked:
    """One fragment of a dataset in which a task marked rows as gone; without text when none is left."""

    fragment_id: int
    text: FragmentText | None
    rows: int


def claims(ref: DatasetRef, operation_id: str) -> tuple[str, str]:
    """Return the beginnings of all paths at which an operation stages files of a dataset: its data, and the rest."""
    return f"{ref.directory}/data/{operation_id}-", f"{side_folder(ref, operation_id)}/"


def side_folder(ref: DatasetRef, operation_id: str) -> str:
    """Return where an operation keeps files of its own beside a dataset, until it ends."""
    return f"{ref.directory}/_staging-{operation_id}"


def write_fragments(dataset: Dataset, rows: pa.Table, stage: Stage, operation_id: str) -> list[FragmentText]:
    """Stage rows with `append` or `overwrite` of `transaction`, in files that the operation's name begins.

    Lance names files at random. Under a name that an intent can claim, they are safe from any sweep while the owner
    lives, and removed by the first one after it died.
    """
    change = stage(dataset, rows)
    change.proofs.result()
    operation: Any = change.transaction.operation
    return [rename_files(dataset, fragment, operation_id) for fragment in operation.fragments]


def write_fragments_with_blobs(
    dataset: Dataset, rows: pa.Table, blobs: Sequence[StoredBlobs], operation_id: str
) -> list[FragmentText]:
    """Stage rows of which some take over stored blobs, in files that the operation's name begins."""
    if not blobs:
        return write_fragments(dataset, rows, append, operation_id)
    texts = []
    for fragment in write_with_blobs(dataset, rows, blobs).staged:
        members = json.loads(rename_files(dataset, fragment.metadata, operation_id))
        texts.append(json.dumps({**members, _SHARING: asdict(fragment.sharing)} if fragment.sharing else members))
    return texts


def rename_files(
    dataset: Dataset, fragment: FragmentMetadata, operation_id: str, known_files: Set[str] = frozenset()
) -> FragmentText:
    """Give the new files of a fragment names that the operation's name begins; return the fragment as text."""
    members = fragment.to_json()
    objects = dataset.store.objects
    folder = f"{dataset.ref.directory}/data"
    sizes: dict[str, int | None] = {}
    for file in members["files"]:
        name = str(file["path"])
        if name in known_files:
            continue
        file["path"] = f"{operation_id}-{name}"
        # Larger blobs lie in a directory beside the file that refers to them, and of the same name.
        blobs = [info.path for info in objects.list(f"{folder}/{name.removesuffix('.lance')}")]
        for path in (f"{folder}/{name}", *blobs):
            final = f"{folder}/{operation_id}-{path.removeprefix(f'{folder}/')}"
            objects.link(path, final)
            dataset.store.prover.renamed(path, final)
            objects.discard(path)
            sizes[final] = None if path in blobs else file["file_size_bytes"]
    # Another process may commit these files, and need not read them again.
    proofs = dataset.store.prover.begin(sizes).result()
    members[_PROOFS] = [[proof.path, proof.size_bytes, proof.checksum] for proof in proofs]
    return json.dumps(members)


def row_count(fragments: Sequence[FragmentText]) -> int:
    """Return how many rows staged fragments hold."""
    return sum(fragment.num_rows for fragment in map(_staged, fragments))


def appended(dataset: Dataset, fragments: Sequence[FragmentText]) -> Change:
    """Return the change that adds staged rows; the caller vouches that no id among them exists."""
    accept_proofs(dataset, fragments)
    return changed(dataset, LanceOperation.Append(parse_fragments(fragments)), dataset.count() + row_count(fragments))


def replaced(dataset: Dataset, fragments: Sequence[FragmentText]) -> Change:
    """Return the change after which a dataset holds the staged rows alone, be they none."""
    accept_proofs(dataset, fragments)
    operation = LanceOperation.Overwrite(dataset.schema, parse_fragments(fragments))
    return changed(dataset, operation, row_count(fragments))


def upserted(dataset: Dataset, fragments: Sequence[FragmentText], marked: Sequence[Marked]) -> Change:
    """Return the change that adds staged rows and takes out those they replace, which tasks have marked.

    Replacing rows get row ids of their own: unlike an update in process, nothing ties them to their predecessors.
    """
    deleted_rows = sum(deletion.rows for deletion in marked)
    if deleted_rows == 0 and not any(_staged(fragment).sharing for fragment in fragments):
        # An append can be moved to a newer version without being staged again; an update cannot.
        return appended(dataset, fragments)
    accept_proofs(dataset, fragments)
    emptied = [deletion.fragment_id for deletion in marked if deletion.text is None]
    updated = parse_fragments([deletion.text for deletion in marked if deletion.text is not None and deletion.rows])
    staged = list(map(_staged, fragments))
    operation = replacing(dataset, emptied, updated, assembled(dataset, staged))
    return changed(dataset, operation, dataset.count() + row_count(fragments) - deleted_rows, shared_paths(staged))


def fragment_ids(dataset: Dataset) -> list[int]:
    """Return the fragments of a dataset, in order."""
    return [fragment.id for fragment in dataset.fragments]


def read_fragment(dataset: Dataset, fragment_id: int, columns: Sequence[str]) -> pa.Table:
    """Return columns of the rows of one fragment, with their addresses."""
    with dataset.reading():
        return dataset.fragment(fragment_id).scanner(columns=list(columns), with_row_address=True).to_table()


def scan_fragments(
    dataset: Dataset, fragment_ids: Sequence[int], columns: Sequence[str], where: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Stream columns of the rows of some fragments that satisfy a condition, with their row ids."""
    return scan_range(dataset, RowRange(tuple(fragment_ids)), columns, where)


def scan_whole_rows(
    dataset: Dataset, fragment_id: int, columns: Sequence[str], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """Stream columns of the rows of one fragment, of a blob only whether there is one, with row ids and addresses."""
    with dataset.reading():
        scanner = dataset.lance.scanner(
            columns=list(columns),
            fragments=[dataset.fragment(fragment_id)],
            with_row_id=True,
            with_row_address=True,
            batch_size=batch_rows,
        )
        blobs = [name for name in blob_columns(dataset) if name in columns]
        for batch in scanner.to_batches():
            yield from without_blob_bytes(pa.Table.from_batches([batch]), blobs).to_batches()


def fragment_runs(dataset: Dataset) -> list[list[int]]:
    """Return the fragments of a dataset in runs of about the size of a task, in order; no fragment is cut."""
    runs: list[list[int]] = []
    size = LOAD_SPLIT_BYTES
    for fragment in dataset.fragments:
        nbytes = sum(file.file_size_bytes or 0 for file in fragment.files)
        if size + nbytes > LOAD_SPLIT_BYTES:
            runs.append([])
            size = 0
        runs[-1].append(fragment.id)
        size += nbytes
    return runs


def mark_rows(dataset: Dataset, fragment_id: int, rows: pa.Table) -> Marked:
    """Stage the removal of rows of one fragment, given with their addresses; each fragment is one task's alone."""
    if rows.num_rows == 0:
        return Marked(fragment_id, "", 0)
    _, offsets = split_addresses(rows.column(ROW_ADDRESS).to_numpy())
    with lance_errors(f"deleting rows of {dataset.ref}"):
        left = dataset.fragment(fragment_id).delete_rows(offsets.tolist())
    return Marked(fragment_id, None if left is None else json.dumps(left.to_json()), rows.num_rows)


def staged_files(dataset: Dataset, fragments: Sequence[FragmentText]) -> set[str]:
    """Return the paths of the files that staged fragments consist of, relative to the graph's root."""
    operation = LanceOperation.Append(parse_fragments(fragments))
    return {f"{dataset.ref.directory}/{file}" for file in written_files(dataset, operation)}


def remove_staged(store: Store, refs: Iterable[DatasetRef], operation_id: str, keep: Set[str]) -> None:
    """Remove the data files that an operation staged, but those that are to stay; a path that ends in / is a folder."""
    folders = tuple(path for path in keep if path.endswith("/"))
    for ref in refs:
        data, _ = claims(ref, operation_id)
        # What cannot be removed now is swept by its age; the work itself has ended, for better or worse.
        with suppress(StorageError):
            for info in store.objects.list(f"{ref.directory}/data"):
                if info.path.startswith(data) and info.path not in keep and not info.path.startswith(folders):
                    store.objects.delete(info.path)


def parse_fragments(fragments: Sequence[FragmentText]) -> list[FragmentMetadata]:
    """Return the fragments of their texts."""
    return [_staged(text).metadata for text in fragments]


def _staged(text: FragmentText) -> StagedFragment:
    members = json.loads(text)
    members.pop(_PROOFS, None)
    sharing = members.pop(_SHARING, None)
    return StagedFragment(FragmentMetadata.from_json(json.dumps(members)), Sharing(**sharing) if sharing else None)


def accept_proofs(dataset: Dataset, fragments: Sequence[FragmentText]) -> None:
    """Take over what the writers of staged fragments have proven about their files."""
    for text in fragments:
        for path, size_bytes, checksum in json.loads(text).get(_PROOFS, ()):
            dataset.store.prover.accept(Proof(path, size_bytes, checksum))
