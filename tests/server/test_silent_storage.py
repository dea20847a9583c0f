"""A server whose storage says nothing: each write is answered in time, by what is known of it, and the process ends."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import failpoints
from omnigraph.failpoints import Point
from omnigraph.limits import SERVER_SHUTDOWN_SECONDS_MAX
from omnigraph.manifest import publish
from omnigraph.server import run, service
from tests.support.live_server import ADD, SCHEMA, Live, Reply, serving_graph
from tests.support.mixed_calls import ask
from tests.support.s3_server import Fault, Request, S3Server, delay, s3_server
from tests.support.server_process import running

__all__ = ["s3_server"]

NAMES = ("a", "b", "c")
COUNT = "query q() { match { $p: Person } return { $p.name as name } order { name asc } }"


@contextmanager
def silence() -> Iterator[tuple[threading.Event, Callable[[], None]]]:
    """Hold the first publish at its commit point: yield the event of its arrival, and what lets it go on."""
    arrived, go = threading.Event(), threading.Event()

    def hold(detail: str) -> None:
        if detail.startswith("publish "):
            arrived.set()
            go.wait()

    with failpoints.armed({Point.DURABLE_BEFORE: hold}):
        try:
            yield arrived, go.set
        finally:
            go.set()


@contextmanager
def warm(live: Live) -> Iterator[None]:
    """Let a first write load whatever the others need."""
    assert live.post("/graphs/g/mutate", {"query": ADD, "params": {"name": "first"}}).status == 200
    yield


def write_all(live: Live, pool: ThreadPoolExecutor) -> list[Future[Reply]]:
    return [pool.submit(live.post, "/graphs/g/mutate", {"query": ADD, "params": {"name": one}}) for one in NAMES]


def people(uri: str) -> set[str]:
    with og.open(uri, read_only=True) as graph:
        return {row["name"] for row in graph.query(COUNT).rows()} & set(NAMES)


def check_answers(replies: list[Reply], refused: str, uri: str, finish: Callable[[], None]) -> None:
    """Hold what callers were told against what becomes of their writes in the end."""
    bodies = [one.json() for one in replies]
    effects = [one["effect"] for one in bodies]
    assert sorted(effects) == ["none", "none", "unknown"]
    assert {one["omnigraph_code"] for one in bodies if one["effect"] == "none"} == {refused}
    assert all(one["retryable"] for one in bodies)
    [(told, name)] = [(body, name) for body, name in zip(bodies, NAMES, strict=True) if body["effect"] == "unknown"]
    finish()
    assert people(uri) == {name}
    with og.open(uri) as graph:
        assert graph.operation(told["operation_id"]).outcome == "applied"


@pytest.mark.slow
def test_writes_behind_a_silent_publish_are_answered_within_one_deadline(
    graph_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "SERVER_WRITE_SECONDS_MAX", 3)
    with ThreadPoolExecutor(3) as pool, serving_graph(graph_uri) as live, warm(live), silence() as (arrived, go):
        asked = write_all(live, pool)
        assert arrived.wait(30)
        replies = [one.result(30) for one in asked]

        def finish() -> None:
            go()
            live.service.writers.shutdown(wait=True)

        check_answers(replies, "conflict.busy", graph_uri, finish)


@pytest.mark.slow
def test_writes_at_a_shutdown_are_answered_and_never_published_later(
    graph_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "SERVER_ANSWER_SECONDS_MAX", 0.5)
    monkeypatch.setattr(service, "SERVER_CANCEL_SECONDS_MAX", 0.1)
    monkeypatch.setattr(service, "SERVER_CLOSE_SECONDS_MAX", 0.1)
    with ThreadPoolExecutor(3) as pool, serving_graph(graph_uri) as live, warm(live), silence() as (arrived, go):
        asked = write_all(live, pool)
        assert arrived.wait(30)
        while len([one for one in live.service.writers._threads if one.is_alive()]) < len(NAMES):
            time.sleep(0.01)
        live.server.stop()
        replies = [one.result(30) for one in asked]
        live.thread.join(30)
        assert not live.service.close()

        def finish() -> None:
            go()
            live.service.writers.shutdown(wait=True)

        check_answers(replies, "server.stopping", graph_uri, finish)


@pytest.mark.slow
def test_mutant_without_a_closed_publication_is_caught(graph_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish.Publication, "begin", lambda self, operation_id: None)
    with pytest.raises(AssertionError):
        test_writes_behind_a_silent_publish_are_answered_within_one_deadline(graph_uri, monkeypatch)


@pytest.mark.long
@pytest.mark.s3
def test_process_is_gone_within_its_grace_period_though_s3_is_silent(s3_server: S3Server, tmp_path: Path) -> None:
    uri = s3_server.uri("g")
    og.init(uri, SCHEMA).close()
    silent = threading.Event()

    def fault(request: Request) -> Fault | None:
        is_publish = request.method == "PUT" and "__manifest/_versions/" in request.key and request.condition == "*"
        if is_publish:
            silent.set()
        return delay(600) if is_publish else None

    s3_server.fault = fault
    environment = {**s3_server.environment(), "OMNIGRAPH_UNAUTHENTICATED": "1"}
    with (
        running("--store", uri, log=tmp_path / "log", environment=environment) as server,
        ThreadPoolExecutor(4) as pool,
    ):
        asked = [
            pool.submit(ask, server, "POST", "/mutate", {"query": ADD, "params": {"name": one}})
            for one in (*NAMES, "d")
        ]
        assert silent.wait(60)
        begun = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        bodies = [one.result(60)[1] for one in asked]
        assert server.process.wait(60) == 0
        took = time.monotonic() - begun
    assert took < SERVER_SHUTDOWN_SECONDS_MAX + 5
    for body in bodies:
        assert body["effect"] == "none" or body["operation_id"], body
    assert "unknown" in {one["effect"] for one in bodies}
