"""Keeps Arrow from importing pandas with the first array that it makes.

That would take as long as a whole query. Arrow asks once whether pandas is there; it imports it all the same where it
needs it, and learns when a caller has imported it. For processes of our own: it changes how modules are found.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class _After(MetaPathFinder):
    """Import hook that calls a function after a module was imported."""

    def __init__(self, name: str, call: Callable[[], object]) -> None:
        self._name, self._call = name, call
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        loader: Any = None if spec is None else spec.loader
        if loader is not None:
            load = loader.exec_module

            def load_and_call(module: ModuleType) -> None:
                load(module)
                self._call()

            loader.exec_module = load_and_call
        return spec


class _NoPandas(MetaPathFinder):
    """Import hook that hides pandas."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ImportError(f"{fullname} is not imported yet")
        return None


def postpone_pandas() -> None:
    """Keep Arrow from importing pandas, unless it is imported already."""
    if "pandas" in sys.modules:
        return
    if "pyarrow" in sys.modules:
        _ask_without_pandas()
    else:
        _After("pyarrow", _ask_without_pandas)


def _ask_without_pandas() -> None:
    """Let Arrow ask for pandas while that is hidden."""
    import pyarrow.lib

    refusal = _NoPandas()
    sys.meta_path.insert(0, refusal)
    try:
        pyarrow.lib.array([0])
    finally:
        sys.meta_path.remove(refusal)
    _After("pandas", _show_pandas)


def _show_pandas() -> None:
    """Let Arrow see pandas, so that it knows its nulls from other values."""
    import pyarrow.lib

    _ = pyarrow.lib._pandas_api.pd
