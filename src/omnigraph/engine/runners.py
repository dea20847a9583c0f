"""Where the tasks of long operations run: in this process, or where a session was told to run them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from omnigraph import settings
from omnigraph.engine.tasks import Runner, Threads
from omnigraph.errors import UsageError


class Runners(Protocol):
    """Chooses the runner of an operation from what is known of its work before it begins."""

    def by_size(self, size: int, local_max: int, local: Runner = ...) -> Runner:
        """Return the runner of tasks of a size; `local` if this process is the place for up to `local_max`."""
        ...

    def by_input(self, size: int, frames: Iterable[Any], other_input: str, local: Runner | None = None) -> Runner:
        """Return the runner of files of a size, or of where frames are; an error names an input for this process.

        `local` reads in this process, by default the threads that are set.
        """
        ...

    def require(self) -> None:
        """Fail early if the place that was asked for is not to be had."""
        ...


class ThisProcess:
    """Runs everything in threads of this process."""

    def by_size(self, size: int, local_max: int, local: Runner = Threads()) -> Runner:  # noqa: B008 - it is frozen
        return local

    def by_input(self, size: int, frames: Iterable[Any], other_input: str, local: Runner | None = None) -> Runner:
        for _ in frames:
            raise UsageError(f"a distributed frame cannot be read in this process; {other_input}")
        return local or input_threads()

    def require(self) -> None:
        pass


def input_threads() -> Threads:
    """Return the threads that read an input, as many as are set."""
    return Threads(settings.read_integer("OMNIGRAPH_LOAD_CONCURRENCY", least=1))
