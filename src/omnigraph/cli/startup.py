"""Shortens start-up and exit of CLI processes: keeps pandas unloaded, and postpones garbage collection.

Active only in CLI processes, because a library must not change global state of its importer.
"""

from __future__ import annotations

import atexit
import gc
from threading import Event
from typing import Final

from omnigraph.arrow_import import postpone_pandas

_is_cli_process: Final = Event()
# Imports create hundreds of thousands of objects and hardly any garbage; collecting takes a tenth of the start-up.
_OBJECTS_BETWEEN_COLLECTIONS: Final = 100_000
_DEFAULT_THRESHOLD: Final = gc.get_threshold()


def tune_for_short_process() -> None:
    """Keep pandas unloaded, postpone garbage collection, and skip it at exit; for processes that run one command."""
    _is_cli_process.set()
    postpone_pandas()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    # Collecting at exit would take as long as a query, and the memory is freed with the process.
    atexit.register(gc.freeze)


def restore_gc() -> None:
    """Restore garbage collection for a long-running process; objects made at start-up are frozen."""
    if _is_cli_process.is_set():
        gc.freeze()
        gc.set_threshold(*_DEFAULT_THRESHOLD)
