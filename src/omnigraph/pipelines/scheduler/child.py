"""Runs a scheduled pipeline in a process of its own.

A run starts Spark with the master and settings of its pipeline, which a process can do once, and what it leaks or
breaks ends with it. The parent keeps the child's standard input open: if the parent is killed, the child sees its end
and exits, so that no run goes on without a runner. A run that is cut off is done again by the next one.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import orjson

from omnigraph.errors import OmniGraphError
from omnigraph.lang.diagnostic import Source
from omnigraph.pipelines.declaration.config import PipelineDeclaration
from omnigraph.pipelines.run import run

FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ScheduledPipeline:
    """A pipeline with the graph that it loads into, and the queries of its expectations if they are not in files."""

    declaration: PipelineDeclaration
    graph_uri: str
    queries: tuple[Source, ...] | None = None
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: the status of its report, or `failed`; `report` is the JSON of the report, if there is one."""

    status: str
    message: str
    report: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """What the process of a run needs to know; reports go to a folder of their own for each due time."""

    item: ScheduledPipeline
    due: datetime
    report: Path | None

    @property
    def folder(self) -> Path | None:
        name = self.item.declaration.name
        return None if self.report is None else self.report / name / f"{self.due:%Y%m%dT%H%M%SZ}"


class RunningPipeline(Protocol):
    """A run that was started."""

    def poll(self) -> Outcome | None:
        """Return how the run has ended; None while it runs."""

    def stop(self) -> None:
        """End the run at once."""


class Child:
    """A run in a child process."""

    def __init__(self, item: ScheduledPipeline, due: datetime, report: Path | None) -> None:
        # A file has room for a report of any size; a pipe that is read at the end has not.
        self._answer = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the run has ended
        self._process = subprocess.Popen(
            # The package imports this module, so `-m` would run it a second time, with a warning.
            [sys.executable, "-c", f"import sys; from {__name__} import main; sys.exit(main())"],
            stdin=subprocess.PIPE,
            stdout=self._answer,
            # A signal of the terminal is for the runner, which lets its runs finish.
            start_new_session=True,
        )
        assert self._process.stdin is not None
        pickle.dump(Job(item, due, report), self._process.stdin)
        self._process.stdin.flush()

    def poll(self) -> Outcome | None:
        code = self._process.poll()
        if code is None:
            return None
        self._answer.seek(0)
        data = self._answer.read()
        self._close()
        try:
            return Outcome(**orjson.loads(data))
        except (ValueError, TypeError):
            reason = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
            return Outcome(FAILED, f"the process of the run {reason} before it had a result; its output says why")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        self._answer.close()
        if self._process.stdin is not None:
            self._process.stdin.close()


def main() -> int:
    """Run the pipeline of the job on standard input, and print its outcome as JSON."""
    job = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    # Java may print to standard output, where nothing but the outcome belongs.
    answer = os.dup(1)
    os.dup2(2, 1)
    outcome = _run(job)
    os.write(answer, orjson.dumps(outcome))
    return 0


def _run(job: Job) -> Outcome:
    from omnigraph.graph import open as open_graph

    item = job.item
    try:
        with open_graph(item.graph_uri, actor=item.actor) as graph:
            report = run(graph, item.declaration, report=job.folder, queries=item.queries, scheduled_for=job.due)
    except OmniGraphError as error:
        return Outcome(FAILED, f"{error.message} ({error.code})")
    return Outcome(report.status, report.message, report.to_json())


def _exit_with_parent() -> None:
    # Not by the reader of `sys.stdin`: Python aborts at its exit if a thread holds the lock of that.
    while os.read(0, 1):
        pass
    os._exit(1)
