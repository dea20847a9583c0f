"""The report of a run: what it did, with the seconds and the input of each stage, collected while it goes on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import orjson

from omnigraph import clock
from omnigraph.engine.tasks import report_progress
from omnigraph.pipeline.declared.expectations import Verdict
from omnigraph.pipeline.spark.session import JobInput, measuring_jobs
from omnigraph.public_values import PublicValue

Status = Literal["published", "awaiting_review", "stopped", "nothing_new", "dry_run", "already_done"]


@dataclass(frozen=True, slots=True)
class RunReport(PublicValue):
    """What a run did, with the seconds of every stage, and the rows and bytes that Spark has read in it.

    `deleted` counts entities, without edges of deleted nodes. `spark_ui` is the address of Spark's pages, if on.
    """

    pipeline: str
    run_id: str
    status: Status
    branch: str
    nodes: Mapping[str, int] = field(default_factory=dict)
    edges: Mapping[str, int] = field(default_factory=dict)
    deleted: Mapping[str, int] = field(default_factory=dict)
    rejected: int = 0
    expectations: tuple[Verdict, ...] = ()
    watermarks: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    rows_read: Mapping[str, int] = field(default_factory=dict)
    bytes_read: Mapping[str, int] = field(default_factory=dict)
    spark_ui: str | None = None
    commit_id: str | None = None
    message: str = ""


class RunRecorder:
    """Collects the report of one run, and measures its stages."""

    def __init__(self, report: RunReport, folder: Path | None) -> None:
        self._empty = self.report = report
        self.folder = folder
        self.started_us = clock.now_us()
        self._seconds: dict[str, float] = {}
        self._inputs: dict[str, JobInput] = {}
        self._began: tuple[str, float] | None = None

    def reset(self) -> None:
        """Forget what was recorded: it was about another run, which this one has finished before it began."""
        self.report, self._seconds, self._inputs = self._empty, {}, {}

    def set(self, **members: Any) -> None:
        """Replace members of the report."""
        self.report = replace(self.report, **members)

    def add_verdicts(self, verdicts: Iterable[Verdict]) -> None:
        self.set(expectations=(*self.report.expectations, *verdicts))

    def warn(self, label: str, message: str, failed: int = 0) -> None:
        self.add_verdicts([Verdict(label, False, 0, failed, "warn", message)])

    def finish(self, status: Status, message: str) -> RunReport:
        """Complete the report, and write it to the directory of reports, if there is one."""
        self.set(
            status=status,
            message=message,
            seconds={stage: round(seconds, 3) for stage, seconds in self._seconds.items()},
            rows_read={stage: measured.rows for stage, measured in self._inputs.items()},
            bytes_read={stage: measured.bytes for stage, measured in self._inputs.items()},
        )
        if self.folder is not None:
            text = orjson.dumps(self.report.to_json(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
            (self.folder / "run.json").write_bytes(text)
        return self.report

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure a stage: its seconds, and what its Spark jobs read."""
        started = clock.elapsed()
        report_progress(name, 0, 1)
        try:
            with measuring_jobs() as measured:
                self._began = (name, started)
                self._inputs[name] = measured
                yield
        finally:
            self._began = None
            self._seconds[name] = self._seconds.get(name, 0.0) + clock.elapsed() - started
        report_progress(name, 1, 1)

    def describe_stages(self) -> str:
        """Return what the commit says about stages: all that are done, and the load, which is about to be."""
        seconds = dict(self._seconds)
        if self._began is not None:
            seconds[self._began[0]] = clock.elapsed() - self._began[1]
        stages = {
            name: {"seconds": round(elapsed, 3), "rows": self._inputs[name].rows, "bytes": self._inputs[name].bytes}
            for name, elapsed in seconds.items()
        }
        return orjson.dumps(stages).decode()
