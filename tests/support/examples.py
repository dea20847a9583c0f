"""How many random examples a test tries: a sample before a change lands, all of them in `make test-long`."""

from __future__ import annotations

import os
from random import Random
from typing import Final

IS_LONG: Final = bool(os.environ.get("OMNIGRAPH_TEST_LONG"))
_SHARE: Final = 5
_LEAST: Final = 10


def examples(count: int) -> int:
    """Return the number to try now, of the number that the long campaign tries."""
    return count if IS_LONG else min(count, max(count // _SHARE, _LEAST))


def spread(count: int, most: int | None) -> list[int]:
    """Return the numbers from 1 to a count; at most so many of them, the first and the last included.

    >>> spread(3, None), spread(9, 3), spread(2, 3), spread(9, 1)
    ([1, 2, 3], [1, 5, 9], [1, 2], [1])
    """
    if most is None or count <= most:
        return list(range(1, count + 1))
    return [1 + round(step * (count - 1) / max(most - 1, 1)) for step in range(most)]


def draw(count: int, most: int | None, salt: str) -> list[int]:
    """Return the numbers from 1 to a count; at most so many of them, always the same ones for the same salt.

    >>> draw(3, None, ""), draw(2, 3, ""), len(draw(9, 2, "a")), draw(99, 2, "a") != draw(99, 2, "b")
    ([1, 2, 3], [1, 2], 2, True)
    """
    numbers = range(1, count + 1)
    return [*numbers] if most is None or count <= most else sorted(Random(salt).sample(numbers, most))
