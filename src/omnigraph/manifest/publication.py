"""Cancellation of a publish: settles between a writer and a caller that stops waiting whether the write may publish.

A caller that times out must report the outcome. Before the commit point it closes the write, which then never
publishes; after it, it reports the operation id to look up.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from omnigraph.errors import ConflictError, Effect, StorageError, StorageKind
from omnigraph.ids import OperationId


class Publication:
    """The permission of one write to be published.

    >>> early, late = Publication(), Publication()
    >>> early.begin(OperationId("01")); early.close(), late.close()
    ('01', None)
    >>> late.begin(OperationId("02"))
    Traceback (most recent call last):
    omnigraph.errors.ConflictError: the caller stopped waiting for this write; nothing was written
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_closed = False
        self._operation_id: OperationId | None = None

    def begin(self, operation_id: OperationId) -> None:
        """Record, right before the commit point, that the write is being published; raise if it was closed."""
        with self._lock:
            if self._is_closed:
                raise ConflictError("the caller stopped waiting for this write; nothing was written")
            self._operation_id = operation_id

    def lose(self) -> None:
        """Record that nothing was published after all."""
        with self._lock:
            self._operation_id = None

    def close(self) -> OperationId | None:
        """Keep the write from being published from now on; return the operation that was, or is being, published."""
        with self._lock:
            self._is_closed = True
            return self._operation_id


_watched: Final[ContextVar[Publication | None]] = ContextVar("publication", default=None)


@contextmanager
def watched(publication: Publication) -> Iterator[None]:
    """Let a caller in another thread close the writes that are made here."""
    token = _watched.set(publication)
    try:
        yield
    finally:
        _watched.reset(token)


def current() -> Publication:
    """Return the publication of the current write; a new one, which is never closed, if there is none."""
    return _watched.get() or Publication()


def unknown_outcome(operation_id: OperationId, why: str) -> StorageError:
    """Return the error for a write that may or may not have been published."""
    return StorageError(
        f"storage did not answer whether operation {operation_id} was published; look for it in the history of the"
        f" branch before you run it again ({why})",
        effect=Effect.UNKNOWN,
        kind=StorageKind.TRANSIENT,
        operation_id=operation_id,
    )
