"""What a log of the server tells, and what it must not."""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from omnigraph.errors import StorageError
from omnigraph.graph import Graph
from omnigraph.server.observability import JsonLines
from tests.support.live_server import ADD, PEOPLE, TOKENS, Live

G = "/graphs/g"


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What the server logs, as it would appear on standard error."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("omnigraph")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield text
    logger.removeHandler(handler)
    logger.setLevel(before)


def test_log_has_every_request_with_its_id(guarded: Live, lines: io.StringIO) -> None:
    reply = guarded.post(f"{G}/mutate", {"query": ADD, "params": {"name": "x"}}, actor="bob")
    # It is logged when the answer is on its way.
    while '"message":"request"' not in lines.getvalue():
        time.sleep(0.01)
    told = [orjson.loads(line) for line in lines.getvalue().splitlines()]
    [request] = [one for one in told if one["message"] == "request"]
    assert request["request_id"] == reply.headers["x-request-id"]
    assert (request["actor"], request["status"], request["code"]) == ("bob", 403, "policy.denied")
    assert (request["graph_id"], request["route"]) == ("g", "/graphs/{graph_id}/mutate")
    assert any(one.get("decision") == "deny" and one["actor"] == "bob" for one in told)


def test_log_has_no_denials_of_what_was_not_asked_for(guarded: Live, lines: io.StringIO) -> None:
    """What an answer shows depends on rights, such as the address of the graph on `admin`; that denies nothing."""
    assert guarded.post(f"{G}/branches", {"name": "draft"}).status == 200
    data = '{"type": "Person", "data": {"name": "x"}}'
    assert guarded.post(f"{G}/load", {"data": data, "branch": "draft"}, actor="bob").status == 200
    told = [orjson.loads(line) for line in lines.getvalue().splitlines()]
    decisions = {(one["action"], one["decision"]) for one in told if one.get("actor") == "bob" and "decision" in one}
    assert decisions == {("change", "allow")}


def test_log_names_no_token_and_no_place_of_storage(
    guarded: Live, lines: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: Any, **more: Any) -> Any:
        raise failures.pop()

    guarded.post(f"{G}/query", {"query": PEOPLE}, headers={"Authorization": "Bearer token-of-mallory"})
    guarded.post(f"{G}/mutate", {"query": ADD, "params": {"name": "a secret value"}})
    failures: list[Exception] = [KeyError("secret-place"), StorageError("secret-place is gone")]
    monkeypatch.setattr(Graph, "query", broken)
    assert [guarded.post(f"{G}/query", {"query": PEOPLE}).status for _ in range(2)] == [500, 500]
    text = lines.getvalue()
    assert all(token not in text for token in (*TOKENS.values(), "token-of-mallory"))
    assert "secret" not in text
    failure = next(orjson.loads(line) for line in text.splitlines() if '"failure"' in line)
    assert failure["error"] == "KeyError"
    assert any(place.startswith("broken:") for place in failure["at"])
