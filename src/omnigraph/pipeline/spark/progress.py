"""A progress bar for the stages of a pipeline, in bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from omnigraph.engine.tasks import Progress


class ProgressBar:
    """A bar on standard error with the stage, bytes, throughput and remaining time."""

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
def progress_bar() -> Iterator[Progress]:
    """Show a bar while the block runs; nothing if standard error is not a terminal."""
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
        yield ProgressBar(progress)
