"""Which versions of a dataset lie in storage, and which files each of them names.

Only looks; what may go is decided above.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from omnigraph.store.dataset import DatasetRef, lance_errors
from omnigraph.store.store import Store


@dataclass(frozen=True, slots=True)
class Version:
    """One version by path: when it was written, and every file it names, relative to the graph's root."""

    ref: DatasetRef
    modified_us: int
    files: frozenset[str]


def versions_of(store: Store, path: str, fork: str | None, modified_us: Mapping[str, int]) -> dict[int, Version]:
    """Return the versions of a dataset or fork by number; `modified_us` says when each object was written."""
    newest = store.open_latest(path, fork)
    with lance_errors(f"listing the versions of {newest.ref}"):
        tracked = newest.lance.tracked_files().read_all()
    here, root = newest.ref.directory, store.root.uri.strip("/")
    files: dict[int, set[str]] = {}
    columns = (tracked[name].to_pylist() for name in ("version", "base_uri", "path"))
    for version, base, file in zip(*columns, strict=True):
        # A fork also names files of the dataset it came from; Lance gives those with their absolute base.
        folder = str(base).removeprefix("file://").strip("/").removeprefix(root).strip("/") or here
        files.setdefault(int(version), set()).add(f"{folder}/{file}")
    found = {}
    for number, named in files.items():
        ref = newest.ref.at(number)
        # A version whose manifest was not listed is newer than the listing.
        if ref.manifest_path in modified_us:
            found[number] = Version(ref, modified_us[ref.manifest_path], frozenset(named))
    return found
