"""Anything in headers, tokens, names, cursors and ranges: an answer that says what is wrong, and never a failure."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph import graph as graphs
from omnigraph.errors import UsageError
from omnigraph.wire import Changes, Query, from_json, from_query
from tests.server.conftest import POLICY
from tests.support.examples import examples
from tests.support.live_server import DATA, PEOPLE, SCHEMA, TOKENS, Live, serving_graph

pytestmark = pytest.mark.slow

HEADERS = ["Authorization", "Range", "If-Match", "If-None-Match", "If-Range", "Accept", "X-Request-Id", "Expect"]
HEADERS += ["Omnigraph-Operation-Id", "Omnigraph-If-Graph-Commit"]
VALUES = st.text(st.characters(codec="latin-1", exclude_characters="\r\n\0"), max_size=60)
NAMES = st.text(max_size=30) | st.sampled_from(["main", " main ", "..", "a/../b", "%2e%2e", "__manifest", "\0"])
TOKEN = st.from_regex(r"eyJ[A-Za-z0-9_-]{0,200}") | NAMES


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    root: Path = tmp_path_factory.mktemp("fuzzed")
    policy = root / "policy.yaml"
    policy.write_text(POLICY, encoding="utf-8")
    with graphs.init(root / "secret-place.omni", SCHEMA) as graph:
        graph.ingest(DATA)
    with serving_graph(root / "secret-place.omni", tokens=TOKENS, policy=policy) as live:
        yield live


def check(live: Live, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> int:
    connection = live.connect()
    try:
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value.encode("latin-1"))
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        text = answer.read()
    except http.client.BadStatusLine:
        # What is not HTTP at all is cut off before it reaches anything of ours.
        return 400
    finally:
        connection.close()
    assert answer.status < 500, (path, headers, text)
    assert b"secret-place" not in text
    return answer.status


def sent(**more: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKENS['ada']}", "Content-Type": "application/json", **more}


@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(st.sampled_from(HEADERS), VALUES, st.sampled_from(["/query", "/blob", "/schema"]))
def test_any_header_is_answered(fuzzed: Live, name: str, value: str, path: str) -> None:
    headers = sent() | {name: value}
    if path == "/query":
        check(fuzzed, "POST", "/graphs/g/query", orjson.dumps({"query": PEOPLE}), headers)
    else:
        tail = "?entity=node&type=Person&id=p0&property=photo" if path == "/blob" else ""
        check(fuzzed, "GET", f"/graphs/g{path}{tail}", None, headers)


@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(NAMES, st.integers(0, 5))
def test_any_name_is_answered(fuzzed: Live, name: str, place: int) -> None:
    quoted = quote(name, safe="", errors="replace")
    method, path = [
        ("GET", f"/graphs/g/snapshot?branch={quoted}"),
        ("DELETE", f"/graphs/g/branches/{quoted}"),
        ("GET", f"/graphs/{quoted}/schema"),
        ("GET", f"/graphs/g/commits/{quoted}"),
        ("GET", f"/graphs/g/operations/{quoted}"),
        ("DELETE", f"/graphs/g/tags/{quoted}"),
    ][place]
    check(fuzzed, method, path, None, sent())


@settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))
@given(TOKEN, st.sampled_from(["cursor", "page_token", "start"]))
def test_any_cursor_is_answered(fuzzed: Live, text: str, name: str) -> None:
    quoted = quote(text, safe="", errors="replace")
    assert check(fuzzed, "GET", f"/graphs/g/changes?{name}={quoted}", None, sent()) in (200, 400, 404, 413)


@settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))
@given(VALUES)
def test_any_token_but_the_known_ones_is_refused(fuzzed: Live, text: str) -> None:
    if text.strip() not in TOKENS.values():
        assert check(fuzzed, "GET", "/graphs/g/schema", None, {"Authorization": f"Bearer {text}"}) in (400, 401)


@settings(max_examples=examples(200))
@given(st.dictionaries(st.sampled_from(["query", "name", "params", "branch", "x"]), st.none() | st.integers() | NAMES))
def test_from_json_anything_fits_or_is_refused(given_: dict[str, object]) -> None:
    body = orjson.dumps(
        {name: value for name, value in given_.items() if not isinstance(value, int) or abs(value) < 2**60}
    )
    try:
        made = from_json(Query, body)
    except UsageError:
        return
    assert isinstance(made.query, str)
    assert made.name is None or isinstance(made.name, str)


@settings(max_examples=examples(200))
@given(st.binary(max_size=60) | st.from_regex(rb"limit=\d{0,25}&kind=(node|edge)"))
def test_from_query_anything_fits_or_is_refused(query: bytes) -> None:
    try:
        made = from_query(Changes, query)
    except UsageError:
        return
    assert made.limit is None or isinstance(made.limit, int)
