"""What a schedule has settled, as small objects in storage beside its lease.

The commits of runs say which due times were loaded, and nothing here can contradict them: a book only remembers what
makes no commit, such as runs that found nothing new, failures, and when a pipeline was first seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final

import orjson

from omnigraph.errors import ConflictError, StorageError, StorageKind
from omnigraph.limits import HEARTBEAT_LOST_SECONDS
from omnigraph.manifest.locks import HeldLock, LockHeld, LockUnreadable, NumberedLocks
from omnigraph.store.objects.control_objects import Objects
from omnigraph.store.objects.uri import Location

# Below the root of a graph; a cluster has its own.
GRAPH_FOLDER: Final = "__schedule"
_TIMES: Final = frozenset({"settled_until", "due", "retry_at", "started_at", "finished_at"})


@dataclass(frozen=True, slots=True)
class BookEntry:
    """The last run of a pipeline that a schedule started, and up to which due time all runs are settled.

    Attributes:
        settled_until: Runs that were due up to this time need not be started.
        due: The due time of the last run.
        status: How it ended, or `running`.
        message: What it said.
        failures: How often it has failed so far.
        retry_at: When it is tried again.
    """

    settled_until: datetime
    due: datetime | None = None
    status: str | None = None
    message: str = ""
    failures: int = 0
    retry_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None

    def to_json(self) -> dict[str, Any]:
        members: dict[str, Any] = orjson.loads(orjson.dumps(self))
        return members


class ScheduleBook:
    """The book of one graph or cluster."""

    def __init__(self, root: str, folder: str = GRAPH_FOLDER) -> None:
        location = Location.parse(root)
        self.uri = location.uri
        self._objects = Objects(location)
        self._folder = folder

    def read(self, pipeline: str) -> BookEntry | None:
        """Return the entry of a pipeline; None before a schedule has seen it."""
        data = self._objects.read_if_exists(self._path(pipeline))
        if data is None:
            return None
        try:
            members = orjson.loads(data)
            known = {item.name for item in fields(BookEntry)}
            return BookEntry(**{name: _decode(name, value) for name, value in members.items() if name in known})
        except (ValueError, TypeError, AttributeError):
            message = (
                f"`{self._path(pipeline)}` cannot be decoded; delete it, and the pipeline starts with its next run"
            )
            raise StorageError(message, kind=StorageKind.PERMANENT, object=self._path(pipeline)) from None

    def write(self, pipeline: str, entry: BookEntry) -> None:
        """Replace the entry of a pipeline; only the holder of the lease does."""
        self._objects.write(self._path(pipeline), orjson.dumps(entry, option=orjson.OPT_INDENT_2))

    @contextmanager
    def hold_lease(self, actor: str | None = None) -> Iterator[HeldLock]:
        """Hold the lease of the schedule; of any number of runners, one has it.

        Raises:
            ConflictError: Another runner has it.
        """
        try:
            # A lease by storage's clock, not a lock of the machine: runners may be anywhere that reaches the storage.
            lock = NumberedLocks(self._objects, f"{self._folder}/locks").acquire("pipeline schedule", actor)
        except LockUnreadable as error:
            raise ConflictError(f"{error}; delete it if no schedule runs for `{self.uri}`", object=error.path) from None
        except LockHeld as error:
            holder = f" (process {error.holder.body['owner']['pid']})" if error.holder is not None else ""
            raise ConflictError(
                f"another runner{holder} runs the schedule of `{self.uri}`; nothing was started. Stop it first: a"
                f" runner of another machine counts as dead after {HEARTBEAT_LOST_SECONDS} seconds of silence",
                uri=self.uri,
            ) from None
        lock.start()
        try:
            yield lock
        finally:
            lock.release()

    def _path(self, pipeline: str) -> str:
        return f"{self._folder}/{pipeline}.json"


def _decode(name: str, value: Any) -> Any:
    return datetime.fromisoformat(value) if name in _TIMES and value is not None else value
