"""Versions of a dataset read in bulk: what other tools wrote, and whether their indexes and blobs can be read.

Read-only. Handles that are in use answer from their caches, so open new ones to check what storage holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from lance.file import LanceFileReader

from omnigraph.errors import GraphError, ReachabilityDisputed, StorageError, StorageKind
from omnigraph.store.blobs.cells import ALONE, SHARED, blob_columns, blob_name, file_of_column, read_descriptors
from omnigraph.store.files.manifest_file import UnknownManifest, decode_fragment, decode_manifest, read_message
from omnigraph.store.files.reachability import NeededFiles, StoredManifest, inherited_directory
from omnigraph.store.read.dataset import Dataset, DatasetRef, lance_errors, reclaimed
from omnigraph.store.read.live_rows import directory_of
from omnigraph.store.store import Store


def read_overwritten(store: Store, ref: DatasetRef, columns: Sequence[str] | None, needed: NeededFiles) -> pa.Table:
    """Return columns of one version, with the metadata of its schema; its files are added to those that are needed."""
    try:
        content = decode_manifest(store.objects.read(ref.manifest_path))
        needed.add_content(StoredManifest.of(ref), content)
        directories = {base: inherited_directory(ref.path, path) for base, path in content.bases.items()}
        files = [file for fragment in content.fragments for file in decode_fragment(fragment)]
    except UnknownManifest as error:
        raise ReachabilityDisputed(
            f"`{ref}` cannot be interpreted: {error}; no version was removed. Use the newer release that wrote it",
            object=str(ref),
        ) from error
    except StorageError as error:
        if error.storage_kind is not StorageKind.NOT_FOUND:
            raise
        raise reclaimed(ref) from error
    data = [file for file in files if file.path.endswith(".lance")]
    if not data or any(file.path.startswith("_deletions/") for file in files):
        raise GraphError(f"`{ref}` was not written as a whole", code="graph.corrupt", object=str(ref))
    store.meter.count("scan", str(ref))
    paths = [f"{ref.directory if file.base is None else directories[file.base]}/{file.path}" for file in data]
    metadata = {name.encode(): value for name, value in content.metadata.items()}
    return pa.concat_tables([_read_file(store, ref, path, columns) for path in paths]).replace_schema_metadata(metadata)


def _read_file(store: Store, ref: DatasetRef, path: str, columns: Sequence[str] | None) -> pa.Table:
    with lance_errors(f"reading {ref}"):
        reader = LanceFileReader(
            store.root.child(path).uri,
            storage_options=store.lance_options or None,
            columns=None if columns is None else list(columns),
        )
        return reader.read_all().to_table()


# The field numbers of Lance's transaction message, for operations that a foreign tool may have left.
_OPERATIONS: Final = {
    100: "Append",
    101: "Delete",
    102: "Overwrite",
    103: "CreateIndex",
    104: "Rewrite",
    105: "Merge",
    106: "Restore",
    107: "ReserveFragments",
    108: "Update",
    109: "Project",
    110: "UpdateConfig",
    111: "DataReplacement",
}


def operations(newest: Dataset, since: int) -> list[str | None]:
    """Return the operation of every version after `since`, oldest first; None where it is unknown."""
    tracked = newest.lance.tracked_files().read_all().to_pylist()
    files = {row["version"]: row["path"] for row in tracked if row["type"] == "transaction file"}
    names: list[str | None] = []
    for version in range(since + 1, newest.version + 1):
        file = files.get(version)
        body = newest.store.objects.read_if_exists(f"{newest.ref.directory}/{file}") if file else None
        names.append(_operation(body) if body else None)
    return names


def _operation(body: bytes) -> str | None:
    """Return the operation that a stored transaction holds: the first of its fields with a number from the table."""
    try:
        fields = [number for number, _ in read_message(body)]
    except ValueError:
        return None
    return next((_OPERATIONS[number] for number in fields if number in _OPERATIONS), None)


# What Lance says when a part of a text index left the cache while the rest was read.
_EVICTED: Final = "FTS prewarm completed without publishing"


def index_faults(dataset: Dataset) -> Iterator[tuple[str, str]]:
    """Yield the indexes of which some file cannot be read, with the reason; each is read completely."""
    with lance_errors(f"listing the indexes of {dataset.ref}", dataset):
        names = sorted(index.name for index in dataset.lance.describe_indices())
    for name in names:
        fault = _read_index(dataset, name)
        if fault is not None and _EVICTED in fault:
            # Concurrent reads share the cache, so read it once more with a cache of its own. A text index that is
            # larger than the cache ends like this again, after all of its files have been read.
            separate_store = dataset.store.opened_once()
            try:
                fault = _read_index(separate_store.open(dataset.ref), name)
            finally:
                separate_store.close()
        if fault is not None and _EVICTED not in fault:
            yield name, fault


def _read_index(dataset: Dataset, name: str) -> str | None:
    """Read all files of an index; return what went wrong, if anything."""
    try:
        with lance_errors(f"reading an index of {dataset.ref}", dataset):
            dataset.lance.prewarm_index(name)
    except StorageError as error:
        return error.message
    return None


def blob_faults(dataset: Dataset) -> Iterator[str]:
    """Yield what is missing of the files that hold the larger blobs of a version."""
    columns = blob_columns(dataset)
    # By the folder beside a data file, how far into each of its files blobs reach; fragments may share data files.
    needed: dict[str, dict[str, int]] = {}
    for fragment in dataset.lance.get_fragments() if columns else ():
        for column in columns:
            folder = _folder(dataset, fragment.metadata, column)
            if folder is None:
                continue
            ends = needed.setdefault(folder, {})
            for number, end in _ends(read_descriptors(dataset, column, fragment)):
                name = blob_name(number)
                ends[name] = max(ends.get(name, 0), end)
    for folder, ends in sorted(needed.items()):
        if ends:
            yield from _short(dataset, folder, ends)


def _folder(dataset: Dataset, fragment: Any, column: str) -> str | None:
    """Return where the larger blobs of a column of a fragment lie; None when it has none, or they are not ours."""
    file = file_of_column(dataset, fragment, column)
    directory = directory_of(dataset, file.base_id) if file is not None else None
    return f"{directory}/data/{file.path.removesuffix('.lance')}" if directory else None


def _ends(storage: Any) -> Iterator[tuple[int, int]]:
    """Yield the number of each file that blobs lie in, and how far into it they reach."""
    members = {name: storage.field(name).to_numpy(zero_copy_only=False) for name in ("kind", "position", "size")}
    numbers = storage.field("blob_id").to_numpy(zero_copy_only=False)
    beside = np.isin(members["kind"], (SHARED, ALONE)) & np.asarray(storage.is_valid())
    ends = (members["position"] + members["size"])[beside]
    for number in np.unique(numbers[beside]):
        yield int(number), int(ends[numbers[beside] == number].max())


def _short(dataset: Dataset, folder: str, needed: dict[str, int]) -> Iterator[str]:
    """Compare how far blobs reach with the files that are there."""
    sizes = {info.path.rpartition("/")[2]: info.size_bytes for info in dataset.store.objects.list(folder)}
    missing = sorted(needed.keys() - sizes.keys())
    if missing:
        yield f"{len(missing)} files of blobs are missing in `{folder}`: {missing[0]}"
    for name in sorted(needed.keys() & sizes.keys()):
        if sizes[name] < needed[name]:
            yield f"the file of blobs `{folder}/{name}` lacks its end"
