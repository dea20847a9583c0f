"""Export slots of a graph: an export holds a cut of the graph in memory for as long as its reader takes.

So there are few at a time, and one actor has no more than its share of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from omnigraph.errors import LimitExceeded
from omnigraph.limits import SERVER_EXPORTS_MAX, SERVER_EXPORTS_PER_ACTOR_MAX


@dataclass(slots=True)
class ExportSlots:
    """The exports of one graph that are under way, by caller."""

    slots_max: int = SERVER_EXPORTS_MAX
    per_caller_max: int = SERVER_EXPORTS_PER_ACTOR_MAX
    _held: Counter[str] = field(default_factory=Counter)
    _lock: Lock = field(default_factory=Lock)

    @property
    def held(self) -> int:
        """How many exports are under way."""
        with self._lock:
            return self._held.total()

    def take(self, caller: str) -> Callable[[], None]:
        """Take a slot and return the function that gives it back; refused when there is none for this caller."""
        with self._lock:
            if self._held[caller] >= self.per_caller_max:
                raise _no_slot("an export of yours", self.per_caller_max)
            if self._held.total() >= self.slots_max:
                raise _no_slot(f"{self.slots_max} exports", self.slots_max)
            self._held[caller] += 1

        def give_back() -> None:
            with self._lock:
                self._held[caller] -= 1
                if not self._held[caller]:
                    del self._held[caller]

        return give_back


def _no_slot(under_way: str, limit: int) -> LimitExceeded:
    return LimitExceeded(
        f"{under_way} of this graph is under way, and a server runs no more at a time; try again when it has ended",
        resource="stream_export_slots",
        limit=limit,
        actual=limit + 1,
    )
