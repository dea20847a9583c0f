"""How many random examples a test tries: a sample before a change lands, all of them in `make test-long`."""

from __future__ import annotations

import os
from typing import Final

IS_LONG: Final = bool(os.environ.get("OMNIGRAPH_TEST_LONG"))
_SHARE: Final = 5
_LEAST: Final = 10


def examples(count: int) -> int:
    """Return the number to try now, of the number that the long campaign tries."""
    return count if IS_LONG else min(count, max(count // _SHARE, _LEAST))
