"""The engines of the comparison: one module each, imported only by the process that runs it.

An engine is built from the Parquet files once, opened, and asked lines. None may import another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from benchmarks.reads.lines import Line

Params = Mapping[str, Any]
# An Arrow table, or a list of rows; both are complete when it is returned.
Ask = Callable[[Params], Any]
THREADS = 2
OURS = "ours"
PEERS = ("kuzu", "ladybug", "duckdb", "lancedb")


class Engine(Protocol):
    """One opened database."""

    def ask(self, line: Line) -> Ask | None:
        """Return what answers a line, prepared as far as the engine allows; None if it cannot."""


class Maker(Protocol):
    """A module of this package."""

    def build(self, data: Path, home: Path) -> None: ...

    def open_engine(self, home: Path) -> Engine: ...


def load_maker(name: str) -> Maker:
    """Import the module of an engine, and with it the engine."""
    module: Any = import_module(f"benchmarks.reads.engines.{name}_engine")
    return module  # type: ignore[no-any-return]
