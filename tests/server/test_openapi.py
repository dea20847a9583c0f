"""The description of the interface: checked in, true, and complete; and what a machine makes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from omnigraph import graph as graphs
from omnigraph.server.frontdoor import SERVER_ROUTES
from omnigraph.server.openapi import describe
from omnigraph.server.routes import ROUTES
from tests.server.live import ADD, DATA, PEOPLE, SCHEMA, Live, serving_graph

FILE = Path(__file__).parents[2] / "docs" / "openapi.json"
DOCUMENT = json.loads(FILE.read_text(encoding="utf-8"))
PAGE = FILE.parent / "server.md"


def test_openapi_file_is_what_the_table_of_routes_says() -> None:
    found = describe(SERVER_ROUTES)
    assert found == DOCUMENT, "write it anew: python -m omnigraph.server > docs/openapi.json"


def test_openapi_without_tokens_asks_for_none() -> None:
    document = describe(SERVER_ROUTES, is_secured=False)
    assert "security" not in json.dumps(document)
    assert "securitySchemes" not in document["components"]


def test_openapi_references_lead_somewhere() -> None:
    text = json.dumps(DOCUMENT)
    named = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert named == DOCUMENT["components"]["schemas"].keys()


def test_server_page_lists_every_route() -> None:
    lines = [line.split("|") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    rows = {cells[1].strip(): cells[2].strip() for cells in lines}
    for one in ROUTES:
        name = f"`{one.method} {one.path.removeprefix('/graphs/{graph_id}').replace(':path', '')}`"
        assert rows.get(name) == f"`{one.action}`", name
    for server_route in SERVER_ROUTES:
        assert rows.get(f"`GET {server_route.path}`") == ("no" if server_route.is_open else "yes"), server_route.path


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    uri = tmp_path_factory.mktemp("described") / "people.omni"
    with graphs.init(uri, SCHEMA) as graph:
        graph.ingest(DATA)
    with serving_graph(uri) as live:
        yield live


@schemathesis.serializer("application/x-ndjson")
def ndjson(context: object, value: object) -> bytes:
    return value.encode("utf-8", "replace") if isinstance(value, str) else json.dumps(value).encode()


# It writes its own findings into what it is given.
SPECIFICATION = schemathesis.openapi.from_dict(deepcopy(DOCUMENT))


@pytest.mark.slow
@SPECIFICATION.parametrize()
@settings(max_examples=8, suppress_health_check=list(HealthCheck))
def test_server_asked_anything_described_never_fails(case: Any, described: Live) -> None:
    if "graph_id" in case.path_parameters:
        case.path_parameters["graph_id"] = "g"
    if isinstance(case.body, dict) and isinstance(case.body.get("query"), str) and len(case.body["query"]) % 2:
        # A random text is hardly ever a query, and what comes after the compiler is wanted too.
        case.body["query"] = ADD if "mutate" in case.operation.path else PEOPLE
    case.call_and_validate(
        base_url=f"http://{described.host}:{described.port}",
        checks=[not_a_server_error, content_type_conformance, response_schema_conformance],
    )
