"""Read many versions of a dataset that every commit overwrites, such as the catalog, with few requests each.

The usual way to open a version also lists its neighbours and caches a handle; a reader of thousands needs neither.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from lance.file import LanceFileReader

from omnigraph.errors import GraphError, ReachabilityDisputed, StorageError, StorageKind
from omnigraph.store.files.manifest_file import UnknownManifest, decode_fragment, decode_manifest
from omnigraph.store.files.reachability import NeededFiles, StoredManifest, inherited_directory
from omnigraph.store.read.dataset import DatasetRef, lance_errors, reclaimed
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
