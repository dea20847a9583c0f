"""The loader of inputs that are too large for one small write.

It belongs to the pipeline, which lies above the engine and the graph, so the package registers here how to find it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Loader: TypeAlias = Callable[..., Any]
_finders: list[Callable[[], Loader]] = []


def register_bulk_loader(find: Callable[[], Loader]) -> None:
    """Register the function that imports the loader."""
    _finders[:] = [find]


def bulk_loader() -> Loader:
    """Return the loader; imports the pipeline, which takes longer than a small write."""
    return _finders[0]()
