"""Lineage events as the specification of OpenLineage defines them, sent to a file and to a receiver on loopback."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.errors import OmniGraphError
from omnigraph.ids import new_ulid
from omnigraph.pipelines import lineage as lineage_module
from omnigraph.pipelines.declaration.config import SourceDeclaration, parse_pipelines
from omnigraph.pipelines.lineage import Lineage, name_dataset

TEXT = """
pipelines:
  crm:
    sources: { rows: { format: csv, path: "s3://lake/rows/" } }
    nodes: { Person: { from: rows } }
"""


@contextmanager
def receiver(status: int = 201) -> Iterator[tuple[str, list[tuple[str, str | None, dict[str, Any]]]]]:
    """A service that keeps what it gets: path, authorization and event."""
    received: list[tuple[str, str | None, dict[str, Any]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            received.append((self.path, self.headers["authorization"], json.loads(body)))
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def lineage() -> Lineage:
    return Lineage(parse_pipelines(TEXT)["crm"], "graph.omni", new_ulid())


def check_event(event: dict[str, Any]) -> None:
    """The members that the specification requires of a run event and of its facets."""
    assert event["eventType"] in ("START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER")
    assert "T" in event["eventTime"]
    assert event["schemaURL"].startswith("https://openlineage.io/spec/")
    UUID(event["run"]["runId"])
    assert event["job"]["namespace"]
    assert event["job"]["name"]
    for dataset in (*event["inputs"], *event["outputs"]):
        assert dataset["namespace"]
        assert dataset["name"]
    owners = (event["run"], event["job"], *event["inputs"], *event["outputs"])
    facets = [facet for owner in owners for facet in owner.get("facets", {}).values()]
    facets += [facet for output in event["outputs"] for facet in output["outputFacets"].values()]
    assert all(facet["_producer"] and facet["_schemaURL"].endswith(".json") for facet in facets)


def test_nothing_is_sent_unless_an_address_is_set(lineage: Lineage) -> None:
    assert not lineage.is_on
    assert lineage.emit("START") is None


def test_event_is_posted_with_its_key(lineage: Lineage, monkeypatch: pytest.MonkeyPatch) -> None:
    lineage.columns["rows"] = {"name": "string"}
    with receiver() as (url, received):
        monkeypatch.setenv("OPENLINEAGE_URL", url)
        monkeypatch.setenv("OPENLINEAGE_API_KEY", "k")
        monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "team")
        assert lineage.emit("START") is None
        assert lineage.emit("COMPLETE", {"Person": 4}, "c1") is None
        assert lineage.emit("FAIL", error="away") is None
    for path, authorization, event in received:
        assert (path, authorization, event["job"]["namespace"]) == ("/api/v1/lineage", "Bearer k", "team")
        check_event(event)
    assert received[1][2]["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 4
    assert received[1][2]["inputs"][0]["facets"]["schema"]["fields"] == [{"name": "name", "type": "string"}]
    assert received[2][2]["run"]["facets"]["errorMessage"]["message"] == "away"


def test_service_that_is_away_is_no_error(lineage: Lineage, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver(503) as (url, _):
        monkeypatch.setenv("OPENLINEAGE_URL", url)
        assert "503" in str(lineage.emit("START"))
    assert "could not be sent" in str(lineage.emit("START"))
    monkeypatch.setenv("OPENLINEAGE_URL", "no address")
    assert "could not be sent" in str(lineage.emit("START"))


def test_error_of_an_event_names_variables_instead_of_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_SECRET", "hunter2")
    declared = parse_pipelines(TEXT.replace("s3://lake/rows/", "s3://lake/${DB_SECRET}"))["crm"]
    error = "path s3://lake/hunter2 is not there: jdbc:x?password=opensesame"
    event = Lineage(declared, "graph.omni", new_ulid()).event("FAIL", {}, None, error)
    message = "path s3://lake/${DB_SECRET} is not there: jdbc:x?password=***"
    assert event["run"]["facets"]["errorMessage"]["message"] == message


@pytest.mark.parametrize(
    ("user", "key", "message"),
    [
        ("ada:opensesame@", "", "the service responded with 503"),
        ("", "opensesame\n", "`OPENLINEAGE_API_KEY` has characters that a header cannot have"),
        ("", "öpensesame", "`OPENLINEAGE_API_KEY` has characters that a header cannot have"),
        ("ada:opensesame#@", "", "`OPENLINEAGE_URL` is not an address"),
    ],
)
def test_warning_of_lineage_shows_no_secret(
    lineage: Lineage, monkeypatch: pytest.MonkeyPatch, user: str, key: str, message: str
) -> None:
    with receiver(503) as (url, _):
        monkeypatch.setenv("OPENLINEAGE_URL", url.replace("://", f"://{user}"))
        monkeypatch.setenv("OPENLINEAGE_API_KEY", key)
        warning = str(lineage.emit("START"))
    assert message in warning
    assert "pensesame" not in warning


@contextmanager
def slow_receiver(data: bytes, pause: float) -> Iterator[str]:
    """A service whose response goes on for ever."""
    is_over = threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.recv(1 << 16)
            connection.sendall(b"HTTP/1.1 201 Created\r\n")
            while not is_over.wait(pause):
                connection.sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            is_over.set()
            thread.join()


@pytest.mark.parametrize(
    ("data", "pause", "limit", "warning"),
    [
        (b"a: b\r\n", 0.02, 0.3, "took longer than 0.3 seconds"),
        (b"content-length: 999999999999\r\n\r\n", 0, 30.0, "None"),
    ],
    ids=["head", "body"],
)
def test_endless_response_does_not_delay_a_run(
    lineage: Lineage, monkeypatch: pytest.MonkeyPatch, data: bytes, pause: float, limit: float, warning: str
) -> None:
    monkeypatch.setattr(lineage_module, "LINEAGE_TIMEOUT_SECONDS", limit)
    with slow_receiver(data, pause) as url:
        monkeypatch.setenv("OPENLINEAGE_URL", url)
        assert warning in str(lineage.emit("START"))


def test_file_that_nobody_reads_does_not_delay_a_run(
    lineage: Lineage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineage_module, "LINEAGE_TIMEOUT_SECONDS", 0.1)
    os.mkfifo(tmp_path / "events")
    monkeypatch.setenv("OMNIGRAPH_LINEAGE_FILE", str(tmp_path / "events"))
    assert "took longer than 0.1 seconds" in str(lineage.emit("START"))


def test_failed_run_is_told_before_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_LINEAGE_FILE", str(tmp_path / "events"))
    graph = og.init(tmp_path / "g.omni", "node Person { name: String @key }")
    text = TEXT + "    publish: { merge_into: main }\n    expect: [{ query: none }]\n    queries: nowhere\n"
    with pytest.raises(OmniGraphError):
        pipeline.run(graph, parse_pipelines(text, folder=tmp_path))
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    assert [event["eventType"] for event in events] == ["START", "FAIL"]


@pytest.mark.parametrize(
    ("path", "options", "named"),
    [
        ("s3://lake/rows/", {}, ("s3://lake", "rows/")),
        ("rows", {}, ("file", "/team/rows")),
        ("../rows/", {}, ("file", "/rows")),
        ("file:///data/rows", {}, ("file", "/data/rows")),
        ("file:/data/rows", {}, ("file", "/data/rows")),
        (None, {"url": "jdbc:derby:memory:x;create=true", "dbtable": "t"}, ("derby", "t")),
        (None, {"url": "jdbc:mysql://h/db?password=x", "query": "SELECT 1"}, ("mysql://h", "crm")),
    ],
)
def test_datasets_are_named_without_secrets(path: str | None, options: dict[str, str], named: tuple[str, str]) -> None:
    source = SourceDeclaration("crm", "jdbc", path, options, None)
    assert name_dataset(source, Path("/team")) == named
