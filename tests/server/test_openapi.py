"""The description of the interface: true, and complete."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from omnigraph import graph as graphs
from omnigraph.errors import ERRORS
from omnigraph.lang.diagnostic import Source
from omnigraph.lang.scalars import ParameterKind
from omnigraph.public_values import CommitKind, ConflictKind
from omnigraph.server.errors import CODES
from omnigraph.server.handlers.admin import SERVER_ROUTES
from omnigraph.server.openapi import describe
from omnigraph.server.routes import ROUTES
from omnigraph.stored_queries import check_queries
from tests.support.described_routes import OURS
from tests.support.live_server import SCHEMA
from tools import built_docs

DOCUMENT = json.loads(built_docs.openapi_text())


def test_openapi_without_tokens_asks_for_none() -> None:
    document = describe(SERVER_ROUTES, is_secured=False)
    assert "security" not in json.dumps(document)
    assert "securitySchemes" not in document["components"]


def test_openapi_references_lead_somewhere() -> None:
    text = json.dumps(DOCUMENT)
    named = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert named == DOCUMENT["components"]["schemas"].keys()


def test_server_page_lists_every_route() -> None:
    lines = [line.split("|") for line in built_docs.read_page("server.md").splitlines() if line.startswith("| `")]
    rows = {cells[1].strip(): cells[2].strip() for cells in lines}
    for one in ROUTES:
        name = f"`{one.method} {one.path.removeprefix('/graphs/{graph_id}').replace(':path', '')}`"
        assert rows.get(name) == f"`{one.action}`", name
    for server_route in SERVER_ROUTES:
        assert rows.get(f"`GET {server_route.path}`") == ("no" if server_route.is_open else "yes"), server_route.path


COMMIT = {
    "graph_commit_id": "c",
    "graph_branch": "main",
    "graph_manifest_version": 1,
    "parent_commit_id": None,
    "merged_parent_commit_id": None,
    "actor_id": None,
    "created_at": 1,
    "kind": "mutation",
    "operation_id": "o",
    "properties": {},
    "message": None,
}
REFUSAL = {
    "error": "e",
    "omnigraph_code": "commit.not_found",
    "code": "not_found",
    "effect": "none",
    "retryable": False,
    "context": {"anything": 1},
    "request_id": "r",
}
JSON = {"content-type": "application/json", "x-request-id": "r"}


@pytest.mark.parametrize(
    ("status", "more_headers", "body", "problem"),
    [
        (200, {}, COMMIT, None),
        (404, {}, REFUSAL, None),
        (200, {}, {**COMMIT, "colour": "red"}, "colour"),
        (200, {}, {**COMMIT, "kind": "whim"}, "whim"),
        (200, {}, {name: value for name, value in COMMIT.items() if name != "actor_id"}, "actor_id"),
        (200, {"x-colour": "red"}, COMMIT, "x-colour"),
        (418, {}, COMMIT, "418"),
        (404, {}, {**REFUSAL, "code": "teapot"}, "teapot"),
        (404, {}, {**REFUSAL, "omnigraph_code": "tea.pot"}, "tea.pot"),
        (404, {}, {**REFUSAL, "blob_range": {"start": 1}}, "end"),
        (200, {"content-type": "text/plain"}, COMMIT, "text/plain"),
    ],
)
def test_answer_that_is_not_as_described_is_found(
    status: int, more_headers: dict[str, str], body: dict[str, Any], problem: str | None
) -> None:
    raw = json.dumps(body).encode()
    found = OURS.problems("GET", "/graphs/g/commits/c", status, JSON | more_headers, raw)
    assert (not found) if problem is None else any(problem in one for one in found)


def test_openapi_names_every_status_singly() -> None:
    statuses = {one for item in DOCUMENT["paths"].values() for op in item.values() for one in op["responses"]}
    assert all(one.isdigit() for one in statuses)
    # What no route of a server can come to: a cancelled query has no reader, and Spark is not part of it.
    known = {str(kind.http_status) for kind in ERRORS.values()} - {"405", "499", "501"}
    assert known <= statuses


def test_openapi_shapes_leave_no_member_undescribed() -> None:
    # Values of properties, rows and parameters are the schema's of a graph, and what an error knows is its own.
    free = {"Rows.rows", "LegacyRows.rows", "Image.properties", "Conflict.base", "Conflict.ours", "Conflict.theirs"}
    free |= {"Error.context", "NodeRecord.data", "EdgeRecord.data"}
    free |= {"EntityChange.before", "EntityChange.after", "PropertyOrigin.value"}
    found = {
        f"{name}.{member}"
        for name, shape in DOCUMENT["components"]["schemas"].items()
        for member, schema in shape["properties"].items()
        if '"additionalProperties": {}' in json.dumps(schema) or schema == {}
    }
    assert found == free


def test_openapi_enum_of_commit_kinds_is_complete() -> None:
    source = Path(__file__).parents[2] / "src" / "omnigraph"
    calls = (
        node
        for path in source.rglob("*.py")
        if "lan(" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ((maker := ast.unparse(node.func)) == "Plan" or maker.endswith("stager.plan"))
    )
    # The kind is the first argument of a plan, and the second of `Stager.plan`; that of a load is one of its options.
    made = {kind.value for call in calls for kind in call.args[:2] if isinstance(kind, ast.Constant)} - {None}
    assert made
    assert made | {"init", "ingest", "load", "merge", "revert", "cherry_pick"} == {*get_args(CommitKind)}


def test_limits_that_a_server_can_come_to_say_how_much_was_asked_for() -> None:
    source = Path(__file__).parents[2] / "src" / "omnigraph"
    # Loads, exports to files and pipelines are no part of a server, and do not always know how much there is.
    apart = {"pipelines", "input", "load", "export_files.py"}
    files = [path for path in source.rglob("*.py") if not apart & {*path.parts}]
    calls = [
        node
        for path in files
        if "LimitExceeded(" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "LimitExceeded"
    ]
    assert calls
    assert all({"resource", "limit", "actual"} <= {one.arg for one in call.keywords} for call in calls)


def test_openapi_enum_of_parameter_kinds_is_complete(tmp_path: Path) -> None:
    types = ["String", "Bool", "I32", "I64", "F64", "Date", "DateTime", "Duration", "Blob", "Vector(2)", "[I32]"]
    declared = ", ".join(f"$p{place}: {name}" for place, name in enumerate(types))
    with graphs.init(tmp_path / "k.omni", SCHEMA) as graph:
        source = Source("k.gq", f"query k({declared}) {{ match {{ $p: Person }} return {{ $p.name }} }}")
        [query] = check_queries([source], graph.schema.catalog).queries
    kinds = {kind for one in query.params for kind in (one.kind, one.item_kind) if kind}
    assert kinds == {*get_args(ParameterKind)}


def test_openapi_enum_of_codes_is_what_the_envelope_gives() -> None:
    shapes = DOCUMENT["components"]["schemas"]
    assert shapes["Error"]["properties"]["code"]["enum"] == [*CODES.values()]
    kinds = [re.sub(r"(?<!^)(?=[A-Z])", "_", kind.value).lower() for kind in ConflictKind]
    assert shapes["MergeConflict"]["properties"]["kind"]["enum"] == kinds
