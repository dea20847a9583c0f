"""Writes under an id of the caller's choice: done at most once, however often and however close they come."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import omnigraph as og
from omnigraph.client.transport import NoResponse, Transport
from omnigraph.errors import Effect, OmniGraphError
from omnigraph.graph import Graph
from omnigraph.ids import new_ulid
from omnigraph.limits import COMMIT_WINDOW_ROWS
from omnigraph.manifest import idempotency, kernel
from tests.support.live_server import ADD, PEOPLE, SCHEMA, Live, Reply

pytestmark = pytest.mark.slow

G = "/graphs/g"
HEADER = "Omnigraph-Operation-Id"
LINES = b'{"type": "Person", "data": {"name": "new"}}\n'


def add(live: Live, operation: str, name: str = "new") -> Reply:
    body = {"query": ADD, "params": {"name": name}}
    return live.post(f"{G}/mutate", body, headers={HEADER: operation})


def names(live: Live) -> list[str]:
    return [row["name"] for row in live.post(f"{G}/query", {"query": PEOPLE}).json()["rows"]]


def ways(live: Live) -> dict[str, tuple[str, Any]]:
    """Return a request to each route that can make a commit."""
    commits = live.get(f"{G}/commits").json()["commits"]
    live.post(f"{G}/branches", {"name": "side"})
    side = live.post(f"{G}/mutate", {"query": ADD, "params": {"name": "of-side"}, "branch": "side"}).json()
    assert side["affected_nodes"] == 1
    picked = live.get(f"{G}/commits?branch=side").json()["commits"][0]["graph_commit_id"]
    return {
        "mutate": ("/mutate", {"query": ADD, "params": {"name": "new"}}),
        "load": ("/load", {"data": LINES.decode(), "mode": "append"}),
        "lines": ("/load/ndjson?mode=append", LINES),
        "stored": ("/queries/add", {"params": {"name": "new"}}),
        "merge": ("/branches/merge", {"source": "side", "target": "main", "delete_branch": True}),
        "pick": ("/cherry-pick", {"commit": picked}),
        "revert": ("/revert", {"commit": commits[0]["graph_commit_id"]}),
        "schema": ("/schema/apply", {"schema_source": SCHEMA.replace("age: I32?", "age: I32?\n    town: String?")}),
    }


@pytest.mark.parametrize("way", ["mutate", "load", "lines", "stored", "merge", "pick", "revert", "schema"])
def test_write_repeated_under_its_id_is_refused_with_its_commit(live: Live, way: str) -> None:
    path, body = ways(live)[way]
    if way == "schema":
        # A schema is applied only where there are no other branches.
        assert live.ask("DELETE", f"{G}/branches/side").status == 200
    operation = new_ulid()
    headers = {HEADER: operation, **({"Content-Type": "application/x-ndjson"} if isinstance(body, bytes) else {})}
    assert live.post(f"{G}{path}", body, headers=headers).status == 200
    newest = live.get(f"{G}/commits").json()["commits"][0]["graph_commit_id"]
    again = live.post(f"{G}{path}", body, headers=headers)
    assert (again.status, again.json()["omnigraph_code"]) == (409, "conflict.repeated"), again.body
    assert (again.json()["effect"], again.json()["context"]["graph_commit_id"]) == ("applied", newest)
    assert live.get(f"{G}/commits").json()["commits"][0]["graph_commit_id"] == newest
    told = live.get(f"{G}/operations/{operation}").json()
    assert (told["outcome"], told["commit"]["graph_commit_id"]) == ("applied", newest)


def test_write_that_was_refused_leaves_its_id_unused(live: Live) -> None:
    operation = new_ulid()
    stale = {"data": LINES.decode().replace("new", "p0"), "mode": "append"}
    refused = live.post(f"{G}/load", stale, headers={HEADER: operation})
    assert refused.json()["omnigraph_code"] == "conflict.key"
    assert live.get(f"{G}/operations/{operation}").json()["outcome"] == "pending"
    assert add(live, operation).status == 200


def test_write_under_way_is_pending_however_old_its_id_looks(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    started, finish = threading.Event(), threading.Event()
    plain = Graph.mutate

    def slow(graph: Graph, *given: Any, **more: Any) -> Any:
        started.set()
        assert finish.wait(60)
        return plain(graph, *given, **more)

    monkeypatch.setattr(Graph, "mutate", slow)
    old = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(add, live, old)
        try:
            assert started.wait(60)
            assert live.get(f"{G}/operations/{old}").json()["outcome"] == "pending"
        finally:
            finish.set()
        assert under_way.result().status == 200
    assert live.get(f"{G}/operations/{old}").json()["outcome"] == "applied"
    assert live.service.registry.served["g"].in_flight_operations == []


def together(live: Live, writers: int) -> list[int]:
    """Send one write several times at once, each with a name of its own, so that only the id can refuse it."""
    operation, start = new_ulid(), threading.Barrier(writers)

    def one(number: int) -> int:
        start.wait(60)
        return add(live, operation, f"w{number}").status

    with ThreadPoolExecutor(writers) as pool:
        return sorted(pool.map(one, range(writers)))


def test_writes_of_one_id_at_once_are_done_once(live: Live) -> None:
    assert together(live, 6) == [200, 409, 409, 409, 409, 409]
    assert sum(name.startswith("w") for name in names(live)) == 1


def test_writes_of_one_id_that_is_not_looked_for_are_done_twice(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: without the look at history, every one of them goes through."""
    monkeypatch.setattr(kernel, "reject_repeated", lambda *_: None)
    assert together(live, 3) == [200, 200, 200]


def test_repeated_write_is_found_after_it_left_the_window(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.manifest.publish.COMMIT_WINDOW_ROWS", 2)
    assert COMMIT_WINDOW_ROWS > 2
    operation = new_ulid()
    assert add(live, operation).status == 200
    for number in range(6):
        assert add(live, new_ulid(), f"w{number}").status == 200
    window = live.service.registry.served["g"].graph.snapshot().state.commits
    assert idempotency.find_request(window, idempotency.RequestKey(operation, None)) is None
    assert add(live, operation, "again").json()["omnigraph_code"] == "conflict.repeated"
    assert "again" not in names(live)


@pytest.mark.parametrize(
    ("method", "path", "body", "value"),
    [
        ("POST", "/mutate", {"query": ADD, "params": {"name": "new"}}, "x"),
        ("POST", "/mutate", {"query": ADD, "params": {"name": "new"}}, ""),
        ("POST", "/query", {"query": PEOPLE}, "01ARZ3NDEKTSV4RRFFQ69G5FAV"),
        ("POST", "/branches", {"name": "b"}, "01ARZ3NDEKTSV4RRFFQ69G5FAV"),
        ("DELETE", "/branches/b", None, "01ARZ3NDEKTSV4RRFFQ69G5FAV"),
        ("POST", "/schema/plan", {"schema_source": SCHEMA}, "01ARZ3NDEKTSV4RRFFQ69G5FAV"),
        ("GET", "/schema", None, "01ARZ3NDEKTSV4RRFFQ69G5FAV"),
    ],
)
def test_operation_id_that_is_none_or_would_not_be_looked_at_is_refused(
    live: Live, method: str, path: str, body: object, value: str
) -> None:
    reply = live.ask(method, f"{G}{path}", body, headers={HEADER: value})
    assert (reply.status, reply.json()["omnigraph_code"]) == (400, "usage.invalid")
    assert HEADER in reply.json()["error"]


def test_client_that_lost_an_answer_learns_that_the_write_was_done(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first answer is thrown away on its way back, as a broken connection does."""
    sent = Transport._send
    answered: list[Any] = []

    def lossy(self: Transport, request: Any) -> Any:
        reply = sent(self, request)
        answered.append(reply)
        return NoResponse("unanswered", "reset") if len(answered) == 1 else reply

    monkeypatch.setattr(Transport, "_send", lossy)
    with og.connect(f"http://{live.host}:{live.port}", graph="g") as graph:
        with pytest.raises(OmniGraphError) as caught:
            graph.mutate(ADD, params={"name": "new"})
        assert (caught.value.code, caught.value.effect) == ("conflict.repeated", Effect.APPLIED)
        assert graph.commit(str(caught.value.context["graph_commit_id"])).kind == "mutation"
    assert names(live).count("new") == 1
