"""Residue: whose file a stored name is, and which names Lance keeps for itself.

Only looks; what to do about it is the sweep's business.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

_LISTED_FORKS: Final = "_refs/branches/"


def dataset_of(path: str) -> str:
    """Return the dataset that a file belongs to by its place, or its first folder.

    >>> dataset_of("nodes/a/data/f.lance"), dataset_of("__manifest/_versions/1.manifest")
    ('nodes/a', '__manifest')
    """
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] in ("nodes", "edges") else parts[0]


def fork_of(path: str, dataset: str) -> str | None:
    """Return the fork that a file of a dataset belongs to, also its entry in Lance's list; None is the dataset itself.

    >>> fork_of("nodes/a/tree/B-1-x/data/f.lance", "nodes/a"), fork_of("nodes/a/data/f.lance", "nodes/a")
    ('B-1-x', None)
    >>> fork_of("nodes/a/_refs/branches/B-1-x.json", "nodes/a")
    'B-1-x'
    """
    inside = path.removeprefix(f"{dataset}/")
    if inside.startswith(_LISTED_FORKS):
        return inside.removeprefix(_LISTED_FORKS).removesuffix(".json")
    return inside.split("/")[1] if inside.startswith("tree/") else None


def is_kept_by_lance(path: str, dataset: str, live_forks: Collection[str | None]) -> bool:
    """Tell whether Lance itself owns a file that no version lists: the version hint and the name of a live fork."""
    is_own = path.startswith(f"{dataset}/{_LISTED_FORKS}") or path.endswith("/latest_version_hint.json")
    return is_own and fork_of(path, dataset) in live_forks
