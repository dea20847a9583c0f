"""A bar on standard error for whoever watches a command on a terminal; nothing anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def bar() -> Iterator[None]:
    """Show how far the work inside is."""
    if not sys.stderr.isatty():
        yield
        return
    # Imported here, because loading it takes longer than many commands do.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    from omnigraph.engine.maintain import progress

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        tasks: dict[str, TaskID] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = shown.add_task(stage)
            shown.update(tasks[stage], completed=done, total=total)

        with progress.watched(show):
            yield
