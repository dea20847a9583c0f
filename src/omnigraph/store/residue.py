"""Residue: telling the files that some version of a dataset names from those that nothing names.

Only looks; what to do about it is the sweep's business.
"""

from __future__ import annotations

from collections.abc import Collection

from omnigraph.errors import StorageError, StorageKind
from omnigraph.store.dataset import lance_errors
from omnigraph.store.store import Store


def named_files(store: Store, path: str, fork: str | None) -> set[str]:
    """Return every file that a version of this dataset or fork names, relative to the graph's root."""
    try:
        newest = store.open_latest(path, fork)
    except StorageError as error:
        if error.storage_kind is StorageKind.NOT_FOUND:
            return set()
        raise
    with lance_errors(f"listing the files of {newest.ref}"):
        tracked = newest.lance.tracked_files().read_all()
    here = newest.ref.directory
    root = store.root.uri.strip("/")
    found: set[str] = set()
    for base, file in zip(tracked["base_uri"].to_pylist(), tracked["path"].to_pylist(), strict=True):
        # A fork also names files of the dataset it came from; Lance gives those with their absolute base.
        folder = str(base).removeprefix("file://").strip("/").removeprefix(root).strip("/") or here
        found.add(f"{folder}/{file}")
    return found


def fork_of(path: str, dataset: str) -> str:
    """Return the fork that a file of a dataset belongs to, or an empty string.

    >>> fork_of("nodes/a/tree/B-1-x/data/f.lance", "nodes/a"), fork_of("nodes/a/data/f.lance", "nodes/a")
    ('B-1-x', '')
    """
    inside = path.removeprefix(f"{dataset}/")
    return inside.split("/")[1] if inside.startswith("tree/") else ""


def is_kept_by_lance(path: str, live_forks: Collection[str]) -> bool:
    """Tell whether Lance itself owns a file that no version lists: its version hint, and the names of live forks."""
    folder, _, name = path.rpartition("/")
    if folder.endswith("_refs/branches"):
        return name.removesuffix(".json") in live_forks
    return name == "latest_version_hint.json"
