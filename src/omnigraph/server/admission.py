"""Admission: how many writes, and how many bytes of them, one actor may have under way.

Counts are exact whatever runs at the same time, and are given back on every way out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

from omnigraph import settings
from omnigraph.errors import GraphError

ANONYMOUS = "anonymous"


@dataclass(slots=True)
class Admission:
    """The writes under way, by actor."""

    inflight_max: int
    bytes_max: int
    _held: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    _lock: Lock = field(default_factory=Lock)

    @contextmanager
    def admit(self, actor: str | None, size: int) -> Iterator[None]:
        """Hold a place for a write of so many bytes; refused when the actor has too many."""
        name = ANONYMOUS if actor is None else actor
        self._enter(name, size)
        try:
            yield
        finally:
            self._leave(name, size)

    def _enter(self, name: str, size: int) -> None:
        with self._lock:
            count, held = self._held.get(name, (0, 0))
            for what, now, most in (("requests", count + 1, self.inflight_max), ("bytes", held + size, self.bytes_max)):
                if now > most:
                    raise GraphError(
                        f"this actor may have {most} {what} of writes under way; try again when some have ended",
                        code="request.too_many",
                        resource=what,
                        limit=most,
                    )
            self._held[name] = [count + 1, held + size]

    def _leave(self, name: str, size: int) -> None:
        with self._lock:
            count, held = self._held[name]
            if count == 1:
                del self._held[name]
            else:
                self._held[name] = [count - 1, held - size]

    @property
    def inflight(self) -> int:
        """How many writes are under way, over all actors."""
        with self._lock:
            return sum(count for count, _ in self._held.values())


def read_admission() -> Admission:
    """Return the admission that the settings ask for."""
    inflight_max = settings.whole("OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX", least=1)
    return Admission(inflight_max, settings.whole("OMNIGRAPH_PER_ACTOR_BYTES_MAX", least=1))
