"""Requests that a machine makes of the description of the interface: the server answers all as described."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from omnigraph import graph as graphs
from tests.support.examples import IS_LONG
from tests.support.live_server import ADD, DATA, PEOPLE, SCHEMA, Live, serving_graph
from tools import built_docs

pytestmark = pytest.mark.slow
pytest_plugins = ["schemathesis.pytest.plugin"]

DOCUMENT = json.loads(built_docs.openapi_text())


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


@SPECIFICATION.parametrize()
@settings(max_examples=8 if IS_LONG else 3, suppress_health_check=list(HealthCheck))
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
