"""What this release writes: the format of the catalog.

Ground layer: imports nothing of ours, so that `omnigraph version` can tell it without loading the engine.
"""

from __future__ import annotations

from typing import Final

# 1 to 6 belong to the original.
FORMAT_STAMP: Final = 7
