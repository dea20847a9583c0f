"""Prometheus metrics of runs, and their endpoint: totals of a runner, and the last run of each pipeline."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, Final

from omnigraph.errors import UsageError
from omnigraph.limits import METRICS_CLIENT_SECONDS_MAX
from omnigraph.prometheus import MEDIA_TYPE, Labels, head, sample

_PREFIX: Final = "omnigraph_pipeline"


# Name, kind and help, in the order in which they are shown.
_METRICS: Final = (
    ("runs_total", "counter", "Runs that have ended, by status."),
    ("entities_written_total", "counter", "Entities that runs have loaded, by type."),
    ("entities_deleted_total", "counter", "Entities that runs have deleted, by type."),
    ("entities_rejected_total", "counter", "Entities that runs have left out for breaking a rule of the schema."),
    ("rows_quarantined_total", "counter", "Rows that runs have left out for failing an expectation."),
    ("stage_seconds_total", "counter", "Seconds of runs, by stage."),
    ("stage_rows_read_total", "counter", "Rows that Spark has read, by stage."),
    ("stage_bytes_read_total", "counter", "Bytes that Spark has read, by stage."),
    ("last_run_timestamp_seconds", "gauge", "When the last run has ended."),
    ("last_success_timestamp_seconds", "gauge", "When the last run ended that did not fail and was not stopped."),
    ("last_run_seconds", "gauge", "Duration of the last run."),
    ("next_run_timestamp_seconds", "gauge", "When the next run is due."),
    ("running", "gauge", "Whether the pipeline runs now."),
)


FAILURES: Final = frozenset({"failed", "stopped"})


class PipelineMetrics:
    """Thread-safe metrics of pipelines."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._values: defaultdict[tuple[str, Labels], float] = defaultdict(float)

    def set(self, name: str, pipeline: str, value: float) -> None:
        with self._lock:
            self._values[(name, (("pipeline", pipeline),))] = value

    def remove(self, name: str, pipeline: str) -> None:
        with self._lock:
            self._values.pop((name, (("pipeline", pipeline),)), None)

    def observe(self, pipeline: str, status: str, at: float, report: Mapping[str, Any] | None) -> None:
        """Count a run that has ended at a time in Unix seconds; `report` is the JSON of its report, if there is one."""
        with self._lock:
            for name, labels, value in _samples(pipeline, status, report or {}):
                self._values[(name, labels)] += value
            label = (("pipeline", pipeline),)
            self._values[("last_run_timestamp_seconds", label)] = at
            if status not in FAILURES:
                self._values[("last_success_timestamp_seconds", label)] = at
            if report is not None:
                self._values[("last_run_seconds", label)] = sum(report["seconds"].values())

    def render(self) -> str:
        with self._lock:
            values = sorted(self._values.items())
        lines: list[str] = []
        for name, kind, about in _METRICS:
            samples = [(labels, value) for (metric, labels), value in values if metric == name]
            if samples:
                lines += [*head(f"{_PREFIX}_{name}", kind, about)]
                lines += [sample(f"{_PREFIX}_{name}", labels, value) for labels, value in samples]
        return "\n".join(lines) + "\n"


def _samples(pipeline: str, status: str, report: Mapping[str, Any]) -> Iterator[tuple[str, Labels, float]]:
    label = ("pipeline", pipeline)
    yield "runs_total", (label, ("status", status)), 1
    # Such runs have loaded nothing themselves.
    is_own = status not in ("already_done", "dry_run")
    for name, members in (("entities_written_total", ("nodes", "edges")), ("entities_deleted_total", ("deleted",))):
        for member in members if is_own else ():
            for type_name, count in report.get(member, {}).items():
                yield name, (label, ("type", type_name)), count
    yield "entities_rejected_total", (label,), report.get("rejected", 0)
    quarantined = (item["failed"] for item in report.get("expectations", ()) if item["outcome"] == "quarantine")
    yield "rows_quarantined_total", (label,), sum(quarantined)
    for name, member in (
        ("stage_seconds_total", "seconds"),
        ("stage_rows_read_total", "rows_read"),
        ("stage_bytes_read_total", "bytes_read"),
    ):
        for stage, value in report.get(member, {}).items():
            yield name, (label, ("stage", stage)), value


class _MetricsServer(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Leave a client that has gone away out of the log; other errors are shown."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@contextmanager
def serving_metrics(host: str, port: int, render: Callable[[], str]) -> Iterator[str]:
    """Serve `/metrics` within the block; yields the address. Port 0 picks a free one."""

    class Handler(BaseHTTPRequestHandler):
        timeout = METRICS_CLIENT_SECONDS_MAX

        def do_GET(self) -> None:
            is_found = self.path.partition("?")[0] == "/metrics"
            body = render().encode() if is_found else b"see /metrics\n"
            self.send_response(200 if is_found else 404)
            self.send_header("Content-Type", MEDIA_TYPE if is_found else "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
            """Scrapes are not logged."""

    try:
        server = _MetricsServer((host, port), Handler)
    except (OSError, OverflowError) as error:
        raise UsageError(f"metrics cannot be served at {host}:{port}: {error}; choose another port") from None
    # How often the server looks whether to stop.
    interval = {"poll_interval": 0.05}
    thread = Thread(target=server.serve_forever, kwargs=interval, name="omnigraph-metrics", daemon=True)
    thread.start()
    try:
        yield f"{host}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
