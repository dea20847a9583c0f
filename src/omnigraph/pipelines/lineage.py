"""Tells a lineage service what a run reads and writes, as events of OpenLineage; off unless an address is set.

The events are written here as the specification defines them: they are a few members of JSON. openlineage-python would
save some 15 lines, bring eight packages with two HTTP stacks of their own, and take 0.4 s to import.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from os.path import normpath
from pathlib import Path
from threading import Thread
from typing import Any, Final, Literal
from uuid import UUID

import orjson
from ulid import ULID

from omnigraph import clock, settings
from omnigraph.limits import LINEAGE_TIMEOUT_SECONDS
from omnigraph.pipelines.declaration.config import PipelineDeclaration, SourceDeclaration
from omnigraph.pipelines.declaration.cron import moment_of
from omnigraph.pipelines.redaction import redact

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
    >>> name_dataset(SourceDeclaration("log", "json", "hdfs://ada:secret@host/logs/*.json", {}, None), None)
    ('hdfs://host', 'logs/*.json')
    """
    options = source.options
    if source.path is not None:
        scheme, separator, rest = source.path.partition("://")
        if separator and scheme != "file":
            authority, _, name = rest.partition("/")
            return f"{scheme}://{authority.rpartition('@')[2]}", name
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
