"""How benchmarks build the history that they measure on."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from unittest.mock import patch


def without_syncs() -> AbstractContextManager[object]:
    """Build history quickly: what is measured later is synced as usual."""
    return patch.dict(os.environ, OMNIGRAPH_DURABILITY="process")
