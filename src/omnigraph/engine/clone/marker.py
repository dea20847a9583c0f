"""The marker of a clone, `__clone.json` at its root: what it was made of, and whether it is whole.

An update compares it with the clone as it is: a clone that was written to since is a graph of its own, and is never
overwritten.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Final, Self

import orjson

from omnigraph.errors import GraphError
from omnigraph.store.objects import Objects

MARKER_PATH: Final = "__clone.json"


@dataclass(frozen=True, slots=True)
class CloneMarker:
    """Which graph a clone holds, by its first commit, and the version of each branch's catalog that it was left at."""

    graph: str
    complete: bool
    heads: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, objects: Objects) -> Self | None:
        """Return the marker of a clone; None where there is none."""
        raw = objects.read_if_exists(MARKER_PATH)
        if raw is None:
            return None
        try:
            return cls(**orjson.loads(raw))
        except (TypeError, ValueError) as error:
            raise GraphError(
                f"`{MARKER_PATH}` of the clone cannot be read; clone to another place", code="clone.diverged"
            ) from error

    def write(self, objects: Objects) -> None:
        objects.write(MARKER_PATH, orjson.dumps(asdict(self)))
