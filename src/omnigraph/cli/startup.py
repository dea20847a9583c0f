"""Shortens start-up and exit of CLI processes: keeps pandas unloaded, and postpones garbage collection.

Active only in CLI processes, because a library must not change global state of its importer.
"""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from threading import Event
from types import ModuleType
from typing import Any, Final


class _ArrowWithoutPandas(MetaPathFinder):
    """Import hook that keeps Arrow, once it is imported, from loading pandas with the first array that it makes.

    That would take as long as a whole query. Arrow asks once whether pandas is there, and later loads it all the same
    when a call really needs it.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "pyarrow":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        loader: Any = None if spec is None else spec.loader
        if loader is not None:
            loader.exec_module = partial(_load_without_pandas, loader.exec_module)
        return spec


class _NoPandas(MetaPathFinder):
    """Import hook that hides pandas."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ImportError(f"{fullname} is not loaded yet")
        return None


def _load_without_pandas(load: Callable[[ModuleType], None], module: ModuleType) -> None:
    """Load Arrow, and let it ask for pandas while that is hidden."""
    load(module)
    import pyarrow.lib

    refusal = _NoPandas()
    sys.meta_path.insert(0, refusal)
    try:
        pyarrow.lib.array([0])
    finally:
        sys.meta_path.remove(refusal)


_is_cli_process: Final = Event()
# Imports create hundreds of thousands of objects and hardly any garbage; collecting takes a tenth of the start-up.
_OBJECTS_BETWEEN_COLLECTIONS: Final = 100_000
_DEFAULT_THRESHOLD: Final = gc.get_threshold()


def tune_for_short_process() -> None:
    """Keep pandas unloaded, postpone garbage collection, and skip it at exit; for processes that run one command."""
    _is_cli_process.set()
    if "pyarrow" not in sys.modules:
        sys.meta_path.insert(0, _ArrowWithoutPandas())
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    # Collecting at exit would take as long as a query, and the memory is freed with the process.
    atexit.register(gc.freeze)


def restore_gc() -> None:
    """Restore garbage collection for a long-running process; objects made at start-up are frozen."""
    if _is_cli_process.is_set():
        gc.freeze()
        gc.set_threshold(*_DEFAULT_THRESHOLD)
