"""OmniGraph: a typed property graph on open Lance datasets, with a Spark data pipeline."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph import errors
    from omnigraph.client import connect, connect_async
    from omnigraph.graph import Graph, init, open, upgrade  # noqa: A004 - `og.open` reads as it should

__version__ = "0.1.0"
__all__ = ["Graph", "connect", "connect_async", "errors", "init", "open", "upgrade"]


def __getattr__(name: str) -> object:
    # Loading the engine takes a second, and much of what imports this package (a lint, a `--help`) never needs it.
    if name in ("connect", "connect_async"):
        from omnigraph import client

        return getattr(client, name)
    if name == "errors":
        return import_module("omnigraph.errors")
    if name in __all__:
        from omnigraph import graph

        return getattr(graph, name)
    raise AttributeError(f"module 'omnigraph' has no attribute {name!r}")
