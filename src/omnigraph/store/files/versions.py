"""Versions of a dataset read in bulk, and the operations of versions that another tool wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from lance.file import LanceFileReader

from omnigraph.errors import GraphError, ReachabilityDisputed, StorageError, StorageKind
from omnigraph.store.files.manifest_file import UnknownManifest, decode_fragment, decode_manifest
from omnigraph.store.files.reachability import NeededFiles, StoredManifest, inherited_directory
from omnigraph.store.read.dataset import Dataset, DatasetRef, lance_errors, reclaimed
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
_BYTES: Final = 2


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
    at = 0
    while at < len(body):
        key, at = _number(body, at)
        if key >> 3 in _OPERATIONS:
            return _OPERATIONS[key >> 3]
        value, at = _number(body, at)
        at += value if key & 7 == _BYTES else 0
    return None


def _number(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(body):
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return value, at
