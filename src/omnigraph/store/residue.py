"""Residue: whose file a stored name is, and which names Lance keeps for itself.

Only looks; what to do about it is the sweep's business.
"""

from __future__ import annotations

from collections.abc import Collection


def dataset_of(path: str) -> str:
    """Return the dataset that a file belongs to by its place, or its first folder.

    >>> dataset_of("nodes/a/data/f.lance"), dataset_of("__manifest/_versions/1.manifest")
    ('nodes/a', '__manifest')
    """
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] in ("nodes", "edges") else parts[0]


def fork_of(path: str, dataset: str) -> str | None:
    """Return the fork that a file of a dataset belongs to; None is the dataset itself.

    >>> fork_of("nodes/a/tree/B-1-x/data/f.lance", "nodes/a"), fork_of("nodes/a/data/f.lance", "nodes/a")
    ('B-1-x', None)
    """
    inside = path.removeprefix(f"{dataset}/")
    return inside.split("/")[1] if inside.startswith("tree/") else None


def is_kept_by_lance(path: str, dataset: str, live_forks: Collection[str | None]) -> bool:
    """Tell whether Lance itself owns a file that no version lists: the version hint and the name of a live fork."""
    folder, _, name = path.rpartition("/")
    if folder.endswith("_refs/branches"):
        return name.removesuffix(".json") in live_forks
    return name == "latest_version_hint.json" and fork_of(path, dataset) in live_forks
