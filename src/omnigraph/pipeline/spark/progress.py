"""Progress: a bar on the terminal for people who watch a pipeline.

Stages report bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from omnigraph.engine.tasks import Progress


class Bar:
    """A bar on standard error: the stage, bytes, bytes a second and the time that is left."""

    def __init__(self, progress: Any) -> None:
        self._progress = progress
        self._task: Any = None

    def begin(self, stage: str, total: int) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(stage, total=max(total, 1))

    def reach(self, done: int) -> None:
        self._progress.update(self._task, completed=done)


@contextmanager
def bar() -> Iterator[Progress]:
    """Show a bar while the block runs; nothing where nobody watches a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield Bar(progress)
