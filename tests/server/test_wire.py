"""What a request may leave out, and how it may spell the rest: nulls, empty filters, former names and former routes."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

import orjson
import pytest

from omnigraph import wire
from omnigraph.errors import UsageError
from omnigraph.server.routes import ROUTES
from omnigraph.wire import from_json
from tests.support.live_server import ADD, PEOPLE, Live

G = "/graphs/g"
INPUTS = sorted({route.takes for route in ROUTES if route.body == "json"}, key=lambda one: one.__name__)
SAMPLES: dict[str, Any] = {"resolutions": [], "params": {}}


@pytest.mark.parametrize("kind", INPUTS, ids=lambda kind: kind.__name__)
def test_null_for_an_optional_member_is_as_if_it_were_left_out(kind: type) -> None:
    required = {wire.TO_WIRE.get(one.name, one.name): "x" for one in fields(kind) if one.default is MISSING}
    optional = {wire.TO_WIRE.get(one.name, one.name): None for one in fields(kind) if one.default is not MISSING}
    assert from_json(kind, orjson.dumps({**required, **optional})) == from_json(kind, orjson.dumps(required))


def test_null_for_a_required_member_is_refused_as_missing() -> None:
    with pytest.raises(UsageError, match="`query` is missing"):
        from_json(wire.Query, b'{"query": null}')


def test_former_name_of_a_member_is_taken_for_it() -> None:
    body = orjson.dumps({"query_source": PEOPLE, "query_name": "people"})
    assert from_json(wire.Mutate, body) == wire.Mutate(query=PEOPLE, name="people")
    assert from_json(wire.Read, body) == wire.Read(query_source=PEOPLE, query_name="people")
    assert from_json(wire.Read, orjson.dumps({"query": PEOPLE})) == wire.Read(query_source=PEOPLE)


def test_both_names_of_a_member_at_once_are_refused() -> None:
    with pytest.raises(UsageError, match="`query` and `query_source`"):
        from_json(wire.Mutate, b'{"query": "a", "query_source": "b"}')


def test_unknown_member_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(UsageError, match=r"unknown field `quarry`.*`query`"):
        from_json(wire.Mutate, b'{"quarry": "a"}')


@pytest.mark.slow
def test_empty_filters_mean_everything(live: Live) -> None:
    whole = live.post(f"{G}/export", {}).body
    assert len(whole.splitlines()) == 7
    assert live.post(f"{G}/export", {"type_names": []}).body == whole
    filters: dict[str, list[str]] = {"kind": [], "type": [], "op": []}
    lines = live.post(f"{G}/changes/baseline", filters).body.splitlines()
    assert lines[:-1] == live.post(f"{G}/changes/baseline", {}).body.splitlines()[:-1]
    assert len(lines) == 8
    first = live.get(f"{G}/commits").json()["commits"][-1]["graph_commit_id"]
    difference = live.post(f"{G}/diff", {"from": first, "to": "main", **filters}).json()
    assert difference["stats"]["inserts"] == 7
    # A cursor of an empty filter goes on where one of no filter does.
    cursor = orjson.loads(lines[-1])["baseline"]["resume_cursor"]
    live.post(f"{G}/mutate", {"query": ADD, "params": {"name": "q"}})
    [block] = live.get(f"{G}/changes?cursor={cursor}").json()["blocks"]
    assert [change["id"] for change in block["changes"]] == ["q"]


@pytest.mark.slow
def test_former_routes_answer_and_name_their_successor(live: Live) -> None:
    read = live.post(f"{G}/read", {"query_source": PEOPLE, "query_name": None, "params": None, "snapshot": None})
    assert read.json()["row_count"] == 5
    assert "graph_commit_id" not in read.json()
    body = {"query_source": ADD, "query_name": "add", "params": {"name": "q"}, "branch": "main"}
    change = live.post(f"{G}/change", body)
    assert change.json()["commit"]["graph_branch"] == "main"
    line = '{"type": "Person", "data": {"name": "r"}}'
    ingest = live.post(f"{G}/ingest", {"data": line, "branch": "draft", "from": "main", "mode": None})
    assert (ingest.json()["mode"], ingest.json()["branch_created"]) == ("merge", True)
    refused = live.post(f"{G}/read", {"query_source": ADD})
    for reply, successor in ((read, "query"), (change, "mutate"), (ingest, "load"), (refused, "query")):
        assert reply.headers["deprecation"] == "true"
        assert reply.headers["link"] == f'<{successor}>; rel="successor-version"'
    assert "deprecation" not in live.post(f"{G}/query", {"query": PEOPLE}).headers


@pytest.mark.slow
def test_query_with_a_mutation_names_the_route_for_it(live: Live) -> None:
    for path, body in (("/query", {"query": ADD}), ("/read", {"query_source": ADD})):
        reply = live.post(f"{G}{path}", body)
        assert reply.status == 400
        assert "/mutate" in reply.json()["error"]
    assert "/query" in live.post(f"{G}/mutate", {"query": PEOPLE}).json()["error"]


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'{"query": "a", "query": "b"}', "query"),
        (b'{"query": "a", "query": "a"}', "query"),
        (b'{"query": "a", "params": {"x": 1, "y": [{"z": 1, "z" : 2}]}}', "z"),
        (b'{"query": "\\"", "qu\\u0065ry": "b"}', "query"),
        (b'{"query": null, "query": "b"}', "query"),
    ],
)
def test_member_that_comes_twice_is_refused_by_name(body: bytes, name: str) -> None:
    with pytest.raises(UsageError, match=f"duplicate member `{name}`") as caught:
        from_json(wire.Query, body)
    assert caught.value.context["name"] == name
