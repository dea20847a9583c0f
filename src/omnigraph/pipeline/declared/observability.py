"""What the world sees of runs: Prometheus metrics with their endpoint, and events of OpenLineage.

The events are written here as the specification defines them: they are a few members of JSON, and its Python client
would bring an HTTP stack of its own.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from os.path import normpath
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Final, Literal
from uuid import UUID

import orjson
from ulid import ULID

from omnigraph import clock, settings
from omnigraph.errors import UsageError
from omnigraph.limits import LINEAGE_TIMEOUT_SECONDS, METRICS_CLIENT_SECONDS_MAX
from omnigraph.pipeline.declared.config import PipelineDeclaration, SourceDeclaration, redact
from omnigraph.pipeline.declared.schedule import moment_of
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
    # What an earlier run has loaded is not loaded again.
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
    # The interval is how long it may take to stop.
    interval = {"poll_interval": 0.05}
    thread = Thread(target=server.serve_forever, kwargs=interval, name="omnigraph-metrics", daemon=True)
    thread.start()
    try:
        yield f"{host}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


EventType = Literal["START", "COMPLETE", "FAIL"]
_PRODUCER: Final = "https://github.com/omnigraph/omnigraph"
_SPEC: Final = "https://openlineage.io/spec"
_SCHEMA_URL: Final = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FILE_URI: Final = re.compile(r"^file:/+")
_JDBC: Final = re.compile(r"jdbc:(?P<kind>\w+):(?://(?:[^@/]*@)?(?P<host>[^/;?]+))?")


@dataclass(slots=True)
class Lineage:
    """The lineage of one run; what is known of its datasets is added while it goes on."""

    pipeline: PipelineDeclaration
    graph_uri: str
    run_id: str
    scheduled_for: datetime | None = None
    # Columns with their Spark types, by source and by loaded type.
    columns: dict[str, Mapping[str, str]] = field(default_factory=dict)
    started_us: int = field(default_factory=clock.now_us)

    @property
    def is_on(self) -> bool:
        return bool(settings.read("OPENLINEAGE_URL") or settings.read("OMNIGRAPH_LINEAGE_FILE"))

    def emit(
        self,
        kind: EventType,
        counts: Mapping[str, int] | None = None,
        commit_id: str | None = None,
        error: str | None = None,
    ) -> str | None:
        """Send an event; returns why it could not be sent, which is no reason to fail a run."""
        if not self.is_on:
            return None
        event = self.event(kind, counts or {}, commit_id, error)
        failure = _send_in_time(event)
        return None if failure is None else f"the lineage event {kind} could not be sent: {failure}"

    def event(
        self, kind: EventType, counts: Mapping[str, int], commit_id: str | None, error: str | None
    ) -> dict[str, Any]:
        """Return an event as the specification has it."""
        namespace = settings.read("OPENLINEAGE_NAMESPACE")
        run_facets: dict[str, Any] = {}
        if self.scheduled_for is not None:
            due = self.scheduled_for.isoformat()
            run_facets["nominalTime"] = _facet("1-0-1/NominalTimeRunFacet", nominalStartTime=due)
        if error is not None:
            message = redact(error, self.pipeline)
            facet = _facet("1-0-1/ErrorMessageRunFacet", message=message, programmingLanguage="PYTHON")
            run_facets["errorMessage"] = facet
        job_type = _facet("2-0-3/JobTypeJobFacet", processingType="BATCH", integration="OMNIGRAPH", jobType="PIPELINE")
        return {
            "eventType": kind,
            "eventTime": moment_of(clock.now_us()).isoformat(),
            "producer": _PRODUCER,
            "schemaURL": _SCHEMA_URL,
            "run": {"runId": str(run_uuid(self.run_id)), "facets": run_facets},
            "job": {"namespace": namespace, "name": self.pipeline.name, "facets": {"jobType": job_type}},
            "inputs": [self._input(source) for source in self.pipeline.sources.values()],
            "outputs": [
                self._output(name, counts.get(name), commit_id) for name in (*self.pipeline.nodes, *self.pipeline.edges)
            ],
        }

    def _input(self, source: SourceDeclaration) -> dict[str, Any]:
        namespace, name = name_dataset(source, self.pipeline.folder)
        return {"namespace": namespace, "name": name, "facets": self._schema_facet(source.name)}

    def _output(self, type_name: str, count: int | None, commit_id: str | None) -> dict[str, Any]:
        facets = self._schema_facet(type_name)
        if commit_id is not None:
            facets["version"] = _facet("1-0-1/DatasetVersionDatasetFacet", datasetVersion=commit_id)
        statistics = {}
        if count is not None:
            statistics["outputStatistics"] = _facet("1-0-2/OutputStatisticsOutputDatasetFacet", rowCount=count)
        return {"namespace": self.graph_uri, "name": type_name, "facets": facets, "outputFacets": statistics}

    def _schema_facet(self, name: str) -> dict[str, Any]:
        if name not in self.columns:
            return {}
        columns = [{"name": column, "type": kind} for column, kind in self.columns[name].items()]
        return {"schema": _facet("1-1-1/SchemaDatasetFacet", fields=columns)}


def run_uuid(run_id: str) -> UUID:
    """Return the id of a run, a ULID, as the UUID with the same bits.

    >>> str(run_uuid("01M7MV6DJTMDZ7AYCYVWMKZ6PV"))
    '01a1e9b3-365a-a37e-7579-9edf293f9adb'
    """
    return ULID.from_str(run_id).to_uuid()


def name_dataset(source: SourceDeclaration, folder: Path | None) -> tuple[str, str]:
    """Return the namespace and name of a source, without variables and secrets of its address.

    >>> options = {"url": "jdbc:postgresql://user:secret@db:5432/crm", "table": "accounts"}
    >>> name_dataset(SourceDeclaration("crm", "jdbc", None, options, None), None)
    ('postgresql://db:5432', 'accounts')
    """
    options = source.options
    if source.path is not None:
        scheme, separator, rest = source.path.partition("://")
        if separator and scheme != "file":
            bucket, _, name = rest.partition("/")
            return f"{scheme}://{bucket}", name
        path = _FILE_URI.sub("/", source.path)
        return "file", normpath(path if folder is None else folder / path)
    match = _JDBC.match(options.get("url", ""))
    namespace = (
        source.format if match is None else f"{match['kind']}://{match['host']}" if match["host"] else match["kind"]
    )
    return namespace, options.get("table") or options.get("dbtable") or source.name


def _facet(schema: str, **members: object) -> dict[str, object]:
    version, _, name = schema.partition("/")
    return {"_producer": _PRODUCER, "_schemaURL": f"{_SPEC}/facets/{version}/{name}.json", **members}


def _send_in_time(event: Mapping[str, Any]) -> str | None:
    """Send an event, and give up after a while; returns why it was not sent.

    The time-outs of a client are for each read, so a service that sends a byte now and then would never meet them.
    """
    failures: list[str] = []

    def send() -> None:
        try:
            _send(event)
        except (OSError, ValueError) as failure:
            failures.append(str(failure))

    thread = Thread(target=send, name="omnigraph-lineage", daemon=True)
    thread.start()
    thread.join(LINEAGE_TIMEOUT_SECONDS)
    if thread.is_alive():
        return f"it took longer than {LINEAGE_TIMEOUT_SECONDS} seconds"
    return failures[0] if failures else None


def _send(event: Mapping[str, Any]) -> None:
    data = orjson.dumps(event)
    file, url = settings.read("OMNIGRAPH_LINEAGE_FILE"), settings.read("OPENLINEAGE_URL")
    if file:
        # One write, so that events of several runs do not mix.
        with open(file, "ab", buffering=0) as events:
            events.write(data + b"\n")
    if url:
        _post(f"{url.rstrip('/')}/{settings.read('OPENLINEAGE_ENDPOINT').lstrip('/')}", data)


def _post(address: str, data: bytes) -> None:
    """Post an event. Errors show neither the key nor the address, which may have a password."""
    import httpx

    key = settings.read("OPENLINEAGE_API_KEY")
    if not (key.isascii() and key.isprintable()):
        raise ValueError("`OPENLINEAGE_API_KEY` has characters that a header cannot have, such as a line break")
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}
    try:
        # The body of the response is not read: it may have any length.
        with httpx.stream("POST", address, content=data, headers=headers, timeout=LINEAGE_TIMEOUT_SECONDS) as response:
            status = response.status_code
    except httpx.InvalidURL:
        raise ValueError("`OPENLINEAGE_URL` is not an address such as `https://host:5000`") from None
    except httpx.HTTPError as failure:
        raise OSError(str(failure)) from None
    if not 200 <= status < 300:
        raise OSError(f"the service responded with {status}")
