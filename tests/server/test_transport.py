"""Bodies, streams and slowness: bounds before parsing, backpressure, callers that hang up, reads that wait."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

import orjson
import pytest

from omnigraph.engine.query.budget import Budget
from omnigraph.errors import QueryCancelled, StorageError
from omnigraph.graph import Graph, session_of
from omnigraph.limits import SERVER_BODY_BYTES_MAX, SERVER_OWN_THREADS
from omnigraph.server.responses import MinimumRate, Response
from omnigraph.wire import JSON, NDJSON, from_json
from tests.support.live_server import ADD, PEOPLE, Live

pytestmark = pytest.mark.slow

G = "/graphs/g"


def request_head(path: str, media: str, length: int) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media}\r\nContent-Length: {length}\r\n\r\n".encode()
    )


def wait_for(condition: Any) -> None:
    """Wait until something holds that another thread brings about."""
    never = threading.Event()
    for _ in range(6_000):
        if condition():
            return
        never.wait(0.005)
    raise AssertionError("it never came to hold")


BODIES = [
    (b"{", 400),
    (b"[]", 400),
    (b'{"query": NaN}', 400),
    (b'{"query": "\\ud800"}', 400),
    (b"\xff\xfe", 400),
    (b"[" * 100_000, 400),
    (b'{"query": "' + b"x" * 2_000_000 + b'"}', 413),
]


def test_body_that_is_no_request_is_refused(live: Live) -> None:
    for body, status in BODIES:
        reply = live.ask("POST", f"{G}/query", body, headers={"Content-Type": "application/json"})
        assert reply.status == status, body[:20]


def test_body_too_large_is_refused_before_it_is_sent(live: Live) -> None:
    connection = live.connect(timeout=20)
    connection.putrequest("POST", f"{G}/load/ndjson")
    connection.putheader("Content-Type", NDJSON)
    connection.putheader("Content-Length", str(4 * 1024**3 + 1))
    connection.endheaders()
    answer = connection.getresponse()
    limit = orjson.loads(answer.read())["resource_limit"]
    assert answer.status == 413
    assert limit == {"resource": "graph_batch_request_bytes", "limit": 4 * 1024**3, "actual": 4 * 1024**3 + 1}
    connection.close()


def test_body_in_chunks_that_grows_too_large_is_refused(live: Live) -> None:
    connection = live.connect(timeout=20)
    chunks = (b"x" * 65_536 for _ in range(64))
    headers = {"Content-Type": "application/json", "Transfer-Encoding": "chunked"}
    try:
        connection.request("POST", f"{G}/query", chunks, headers, encode_chunked=True)
        assert connection.getresponse().status == 413
    except (BrokenPipeError, ConnectionResetError):
        # The server closed before everything was sent, which is what the limit is for.
        pass
    finally:
        connection.close()
    assert live.post(f"{G}/query", {"query": PEOPLE}).status == 200


def test_body_of_another_type_or_encoding_is_refused(live: Live) -> None:
    for path, media in [("/query", "text/plain"), ("/query", NDJSON), ("/load/ndjson", "application/json")]:
        reply = live.ask("POST", f"{G}{path}", b"{}", headers={"Content-Type": media})
        assert (reply.status, reply.json()["omnigraph_code"]) == (415, "request.media_type")
    reply = live.ask("POST", f"{G}/load/ndjson", b'{"type": "\xff"}', headers={"Content-Type": NDJSON})
    assert reply.status == 400


def test_body_that_does_not_arrive_is_refused_in_time(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.server.admission.SERVER_BODY_SECONDS_MAX", 0.05)
    connection = live.connect(timeout=20)
    connection.putrequest("POST", f"{G}/query")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", "100")
    connection.endheaders()
    assert connection.getresponse().status == 408
    connection.close()


def test_headers_that_do_not_arrive_or_do_not_end_are_cut_off(live: Live) -> None:
    live.server.host.bounds = replace(live.server.host.bounds, linger_seconds=0.05)
    endless = socket.create_connection((live.host, live.port), timeout=20)
    endless.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
    with pytest.raises(OSError):
        endless.sendall(b"x" * 100_000_000)
    endless.close()
    long = live.connect(timeout=20)
    long.request("GET", "/healthz", headers={"X": "x" * 65_000, "Y": "y" * 1_000})
    assert long.getresponse().status == 413
    long.close()
    live.server.host.bounds = replace(live.server.host.bounds, header_seconds=0.05, idle_seconds=5)
    for beginning in (b"", b"GET /healthz HTTP/1.1\r\nX: "):
        slow = socket.create_connection((live.host, live.port), timeout=20)
        slow.sendall(beginning)
        assert slow.recv(1) == b""
        slow.close()
    # A connection that was used is cut off as well, if its next request does not go on.
    used = live.connect(timeout=20)
    used.request("GET", "/healthz")
    used.getresponse().read()
    used.sock.sendall(b"GET /hea")
    assert used.sock.recv(1) == b""
    used.close()


def test_caller_that_hangs_up_in_its_body_leaves_nothing_behind(live: Live) -> None:
    raw = socket.create_connection((live.host, live.port))
    raw.sendall(request_head(f"{G}/load/ndjson", NDJSON, 1_000) + b"abc")
    wait_for(lambda: live.service.admission.inflight == 1)
    raw.close()
    wait_for(lambda: live.service.admission.inflight == 0)


def test_slow_queries_keep_no_write_and_no_question_to_the_server_waiting(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One caller gets half of the threads; the others wait for their turn.
    threads: int = live.service.readers._max_workers // 2
    started, finish = threading.Semaphore(0), threading.Event()
    plain = Graph.query

    def query(graph: Graph, source: Any, *given: Any, **more: Any) -> Any:
        if "slow" in getattr(source, "text", source):
            started.release()
            assert finish.wait(60)
        return plain(graph, source, *given, **more)

    monkeypatch.setattr(Graph, "query", query)
    slow = {"query": PEOPLE.replace("people", "slow")}
    with ThreadPoolExecutor(threads) as pool:
        first = pool.submit(live.post, f"{G}/query", slow)
        try:
            assert started.acquire(timeout=30)
            assert live.post(f"{G}/query", {"query": PEOPLE}).status == 200, "a read waits for another"
            rest = [pool.submit(live.post, f"{G}/query", slow) for _ in range(threads - 1)]
            assert all(started.acquire(timeout=30) for _ in rest)
            for path in ("/healthz", "/readyz", "/metrics", "/openapi.json"):
                assert live.get(path).status == 200, path
            assert live.post(f"{G}/mutate", {"query": ADD, "params": {"name": "new"}}).status == 200
            assert not any(one.done() for one in (first, *rest))
        finally:
            finish.set()
        assert {one.result().status for one in (first, *rest)} == {200}


def test_healthz_answers_while_storage_does_not(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    started, finish = threading.Semaphore(0), threading.Event()
    kernel = session_of(live.service.registry.served["g"].graph).kernel

    def silent() -> None:
        started.release()
        assert finish.wait(60)

    monkeypatch.setattr(kernel, "snapshot", silent)
    with ThreadPoolExecutor(SERVER_OWN_THREADS) as pool:
        asked = [pool.submit(live.get, "/readyz") for _ in range(SERVER_OWN_THREADS)]
        try:
            assert all(started.acquire(timeout=30) for _ in asked)
            assert live.get("/healthz").status == 200
            assert not any(one.done() for one in asked)
        finally:
            finish.set()


def test_body_of_a_large_load_is_parsed_off_the_event_loop(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: dict[int, str] = {}

    def noted(kind: type, body: bytes) -> Any:
        threads[len(body)] = threading.current_thread().name
        return from_json(kind, body)

    monkeypatch.setattr("omnigraph.server.service.from_json", noted)
    padding = "\n" * SERVER_BODY_BYTES_MAX
    for data in ("", padding):
        data += '{"type": "Person", "data": {"name": "new"}}'
        assert live.post(f"{G}/load", {"data": data, "mode": "merge"}).status == 200
    small, large = (name for _, name in sorted(threads.items()))
    assert small == "server"
    assert large.startswith("omnigraph-write")


def test_query_of_a_caller_that_hung_up_is_cancelled(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    started, cancelled = threading.Event(), threading.Event()

    def query(graph: Graph, *given: Any, budget: Budget, **more: Any) -> Any:
        started.set()
        token = budget.cancel
        assert token is not None
        wait_for(lambda: token.is_cancelled)
        cancelled.set()
        raise QueryCancelled("cancelled")

    monkeypatch.setattr(Graph, "query", query)
    raw = socket.create_connection((live.host, live.port))
    body = orjson.dumps({"query": PEOPLE})
    raw.sendall(request_head(f"{G}/query", JSON, len(body)) + body)
    assert started.wait(30)
    raw.close()
    assert cancelled.wait(30)


class Endless:
    """An export that counts how much of it was taken, and whether it was closed."""

    def __init__(
        self, fails_after: int | None = None, fault: type[Exception] = StorageError, close_fails: bool = False
    ) -> None:
        self.made = 0
        self.fails_after = fails_after
        self.fault = fault
        self.close_fails = close_fails
        self.is_closed = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self.made == self.fails_after:
            raise self.fault("s3://secret-bucket/secret-place is gone")
        self.made += 1
        return b"x" * 1_000_000

    def close(self) -> None:
        self.is_closed = True
        if self.close_fails:
            raise OSError("the connection to storage is gone")


def begin_export(live: Live) -> socket.socket:
    raw = socket.socket()
    # A small buffer here, so that what is not read is soon felt at the other end.
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    raw.connect((live.host, live.port))
    raw.sendall(request_head(f"{G}/export", JSON, 2) + b"{}")
    assert raw.recv(15) == b"HTTP/1.1 200 OK"
    return raw


def writing(live: Live) -> list[Any]:
    return [one for one in set(live.server.host.connections) if one.is_busy]


def test_export_goes_no_faster_than_its_reader_and_ends_with_it(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = Endless()
    monkeypatch.setattr(Graph, "export", lambda *given, **more: endless)
    raw = begin_export(live)
    # Nobody reads: what is made fits into the buffers of both ends, and then sending waits.
    wait_for(lambda: [one.is_full for one in writing(live)] == [True])
    assert endless.made < 20
    second = live.post(f"{G}/export", {})
    assert second.status == 413
    assert second.json()["resource_limit"]["resource"] == "stream_export_slots"
    raw.close()
    wait_for(lambda: endless.is_closed)
    wait_for(lambda: not live.service.registry.served["g"].exports.in_flight)


@pytest.mark.parametrize("fault", [StorageError, KeyError])
def test_export_that_fails_midway_has_no_end(
    live: Live, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: type[Exception]
) -> None:
    failing = Endless(fails_after=3, fault=fault)
    monkeypatch.setattr(Graph, "export", lambda *given, **more: failing)
    caplog.set_level("INFO", "omnigraph.server")
    raw = begin_export(live)
    received = b""
    while part := raw.recv(65_536):
        received += part
    raw.close()
    assert received.count(b"x") >= 3_000_000
    assert not received.endswith(b"0\r\n\r\n")
    assert b"secret" not in received
    wait_for(lambda: not live.service.registry.served["g"].exports.in_flight)
    wait_for(lambda: codes_logged(caplog))
    assert codes_logged(caplog) == ["storage.failed" if fault is StorageError else "internal.bug"]


def codes_logged(caplog: pytest.LogCaptureFixture) -> list[object]:
    """Return what the lines of ended requests give as their code."""
    return [vars(one).get("code") for one in caplog.records if one.getMessage() == "request"]


@pytest.mark.parametrize("fault", [StorageError, KeyError])
def test_export_that_fails_at_once_says_so_without_names(
    live: Live, monkeypatch: pytest.MonkeyPatch, fault: type[Exception]
) -> None:
    monkeypatch.setattr(Graph, "export", lambda *given, **more: Endless(fails_after=0, fault=fault))
    reply = live.post(f"{G}/export", {})
    assert (reply.status, reply.headers["content-type"]) == (500, JSON)
    assert reply.json()["code"] == "internal"
    assert b"secret" not in reply.body
    assert live.post(f"{G}/export", {}).json() | {"request_id": ""} == reply.json() | {"request_id": ""}, (
        "the slot was not given back"
    )


def test_export_whose_close_fails_gives_its_places_back(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Graph, "export", lambda *given, **more: Endless(fails_after=0, close_fails=True))
    streams = live.service.streams._free._value
    assert live.post(f"{G}/export", {}).status == 500
    assert not live.service.registry.served["g"].exports.in_flight
    assert live.service.streams._free._value == streams


def test_export_reader_that_takes_nothing_is_cut_off(
    live: Live, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    live.service.minimum_rate = MinimumRate(stall_seconds=0.1)
    endless = Endless()
    monkeypatch.setattr(Graph, "export", lambda *given, **more: endless)
    caplog.set_level("INFO", "omnigraph.server")
    raw = begin_export(live)
    wait_for(lambda: endless.is_closed)
    wait_for(lambda: not live.service.registry.served["g"].exports.in_flight)
    wait_for(lambda: codes_logged(caplog))
    assert codes_logged(caplog) == ["request.timeout"]
    assert not [one for one in caplog.records if one.getMessage() == "failure"], "it is the reader's failure, not ours"
    raw.close()


def test_export_of_one_actor_leaves_a_slot_for_another(guarded: Live) -> None:
    exports = guarded.service.registry.served["g"].exports
    give_back = exports.take("bob")
    assert guarded.post(f"{G}/export", {}).status == 200
    others = [exports.take(f"other {number}") for number in range(exports.slots_max - 1)]
    assert guarded.post(f"{G}/export", {}).json()["resource_limit"]["limit"] == exports.slots_max
    give_back()
    assert guarded.post(f"{G}/export", {}).status == 200
    for one in others:
        one()
    assert exports.in_flight == 0


def test_reader_that_is_always_slow_is_cut_off_though_it_never_stalls(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    live.service.minimum_rate = MinimumRate(stall_seconds=1, bytes_per_second_min=8_000_000)
    endless = Endless()
    monkeypatch.setattr(Graph, "export", lambda *given, **more: endless)
    raw = begin_export(live)
    # About 1 MB a second: parts go out all the time, but on average too slowly.
    with suppress(ConnectionError):
        for _ in range(600):
            if not raw.recv(65_536) or endless.is_closed:
                break
            threading.Event().wait(0.05)
    wait_for(lambda: endless.is_closed)
    raw.close()


def test_large_json_answer_that_is_not_read_is_dropped(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    live.service.minimum_rate = MinimumRate(stall_seconds=0.1)
    monkeypatch.setattr("omnigraph.server.handlers.reads.json_response", lambda value: Response(b"x" * 50_000_000))
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    raw.connect((live.host, live.port))
    raw.sendall(f"GET {G}/branches HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_for(lambda: writing(live))
    wait_for(lambda: not live.server.host.connections)
    raw.close()


def test_streams_beyond_their_share_of_transport_are_refused(live: Live) -> None:
    live.service.streams._free._value = 0
    reply = live.post(f"{G}/export", {})
    assert reply.status == 413
    assert reply.json()["resource_limit"]["resource"] == "stream_export_transport_bytes"
    live.service.streams._free._value = 1
    assert live.post(f"{G}/export", {}).status == 200


def test_failure_of_our_own_is_told_in_fixed_words(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any, **more: Any) -> Any:
        raise KeyError("/secret-place/people.omni")

    monkeypatch.setattr(Graph, "query", broken)
    reply = live.post(f"{G}/query", {"query": PEOPLE})
    assert (reply.status, reply.json()["omnigraph_code"]) == (500, "internal.bug")
    assert b"secret-place" not in reply.body


def test_request_id_of_the_caller_is_kept_if_harmless(live: Live) -> None:
    assert live.get("/healthz", headers={"X-Request-Id": "abc-1"}).headers["x-request-id"] == "abc-1"
    assert live.get("/healthz", headers={"X-Request-Id": 'a"b c'}).headers["x-request-id"] != 'a"b c'
