"""Requests as bytes on a connection: what frames a body, what is refused, trailers, connections that end early."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import pytest

from omnigraph.errors import QueryCancelled
from omnigraph.graph import Graph
from omnigraph.server.http.connection import HttpConnection
from tests.support.live_server import PEOPLE, Live

pytestmark = pytest.mark.slow

BODY = orjson.dumps({"query": PEOPLE})
TYPED = "Host: localhost\r\nContent-Type: application/json\r\n"


@contextmanager
def connected(live: Live) -> Iterator[socket.socket]:
    with socket.create_connection((live.host, live.port), timeout=20) as raw:
        yield raw


def read_all(raw: socket.socket) -> bytes:
    """Read until the other end closes; a reset counts as the end."""
    parts = []
    try:
        while part := raw.recv(1 << 16):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


def read_answer(raw: socket.socket) -> bytes:
    """Read one answer of known length."""
    answer = b""
    while b"\r\n\r\n" not in answer:
        part = raw.recv(1 << 16)
        assert part, answer
        answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += raw.recv(1 << 16)
    return head + b"\r\n\r\n" + body


def ask_query(headers: str, body: bytes, version: str = "1.1") -> bytes:
    return f"POST /graphs/g/query HTTP/{version}\r\n{TYPED}{headers}\r\n".encode() + body


def chunked(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


LENGTH = f"Content-Length: {len(BODY)}\r\n"
UPGRADES = [
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n",
    "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
    "Upgrade: websocket\r\n",
]


@pytest.mark.parametrize("upgrade", UPGRADES)
@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize("is_split", [False, True])
def test_upgrade_is_ignored_and_the_body_is_read(live: Live, upgrade: str, is_chunked: bool, is_split: bool) -> None:
    framing, body = ("Transfer-Encoding: chunked\r\n", chunked(BODY)) if is_chunked else (LENGTH, BODY)
    request = ask_query(upgrade + framing, body)
    cut = len(request) - len(body) + 7 if is_split else len(request)
    with connected(live) as raw:
        for _ in range(2):
            raw.sendall(request[:cut])
            if is_split:
                time.sleep(0.05)
                raw.sendall(request[cut:])
            answer = read_chunked_or_whole(raw)
            assert answer.startswith(b"HTTP/1.1 200 "), answer
            assert b'"p4"' in answer
        for length in ("", "Content-Length: 0\r\n"):
            raw.sendall(f"GET /healthz HTTP/1.1\r\nHost: localhost\r\n{upgrade}{length}\r\n".encode())
            assert read_answer(raw).startswith(b"HTTP/1.1 200 ")


def read_chunked_or_whole(raw: socket.socket) -> bytes:
    answer = b""
    while b"\r\n\r\n" not in answer:
        part = raw.recv(1 << 16)
        assert part, answer
        answer += part
    if b"transfer-encoding: chunked" in answer:
        while not answer.endswith(b"0\r\n\r\n"):
            answer += raw.recv(1 << 16)
    else:
        head, _, body = answer.partition(b"\r\n\r\n")
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while len(body) < length:
            more = raw.recv(1 << 16)
            body, answer = body + more, answer + more
    return answer


CHUNKED = "Transfer-Encoding: chunked\r\n"
REFUSED = {
    "coding that is not known": ("Transfer-Encoding: gzip\r\n", 400),
    "coding before chunks": ("Transfer-Encoding: gzip, chunked\r\n", 400),
    "identity": ("Transfer-Encoding: identity\r\n", 400),
    "chunked twice": ("Transfer-Encoding: chunked, chunked\r\n", 400),
    "two codings": (CHUNKED + CHUNKED, 400),
    "no coding": ("Transfer-Encoding: \r\n", 400),
    "coding with a parameter": ("Transfer-Encoding: chunked;q=1\r\n", 400),
    "obscured coding": ("Transfer-Encoding: \x0bchunked\r\n", 400),
    "length and coding": (LENGTH + CHUNKED, 400),
    "coding and length": (CHUNKED + LENGTH, 400),
    "two lengths": (LENGTH + LENGTH, 400),
    "two hosts": (LENGTH + "Host: localhost\r\n", 400),
    "other host": (LENGTH + "Host: evil.example\r\n", 400),
    "compressed body": (LENGTH + "Content-Encoding: gzip\r\n", 415),
    "compressed chunks": (CHUNKED + "content-encoding: br\r\n", 415),
    "two encodings": (LENGTH + "Content-Encoding: gzip\r\nContent-Encoding: identity\r\n", 415),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_request_whose_framing_is_in_doubt_is_refused(live: Live, kind: str) -> None:
    headers, status = REFUSED[kind]
    body = chunked(BODY) if "chunked" in headers else BODY
    with connected(live) as raw:
        raw.sendall(ask_query(headers, body) + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = read_all(raw)
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer
    assert b"connection: close" in answer
    assert answer.count(b"\r\n\r\n") == 1
    code = orjson.loads(answer.partition(b"\r\n\r\n")[2])["omnigraph_code"]
    assert code == ("usage.invalid" if status == 400 else "request.media_type")


def test_chunks_in_http_1_0_are_refused(live: Live) -> None:
    with connected(live) as raw:
        raw.sendall(ask_query(CHUNKED, chunked(BODY), "1.0"))
        assert read_all(raw).startswith(b"HTTP/1.1 400 ")


HEADS = {
    "no host": b"GET /healthz HTTP/1.1\r\n\r\n",
    "no host with a body": b"POST /graphs/g/query HTTP/1.1\r\nContent-Type: application/json\r\n%b\r\n%b"
    % (LENGTH.encode(), BODY),
    "two hosts": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
    "two hosts in 1.0": b"GET /healthz HTTP/1.0\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
    "no version": b"GET /healthz\r\n\r\n",
    "no version, with a host": b"GET /healthz\r\nHost: localhost\r\n\r\n",
    "version 0.9": b"GET /healthz HTTP/0.9\r\n\r\n",
    "version 2.0": b"GET /healthz HTTP/2.0\r\nHost: localhost\r\n\r\n",
    "folded header": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n",
    "space before a colon": b"GET /healthz HTTP/1.1\r\nHost : localhost\r\n\r\n",
    "bare line feeds": b"GET /healthz HTTP/1.1\nHost: localhost\n\n",
    "length in a trailer": ask_query(CHUNKED, chunked(BODY)[:-2] + b"Content-Length: 3\r\n\r\n"),
    "coding in a trailer": ask_query(CHUNKED, chunked(BODY)[:-2] + b"Transfer-Encoding: chunked\r\n\r\n"),
    "length that overflows": ask_query("Content-Length: %s\r\n" % (10**30), BODY),
}


@pytest.mark.parametrize("kind", HEADS)
def test_request_with_a_malformed_head_is_refused(live: Live, kind: str) -> None:
    with connected(live) as raw:
        raw.sendall(HEADS[kind] + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = read_all(raw)
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert b"connection: close" in answer
    # Nothing follows the one answer, or it would not be JSON.
    assert orjson.loads(answer.partition(b"\r\n\r\n")[2])["omnigraph_code"] == "usage.invalid"


def test_request_of_http_1_0_needs_no_host(live: Live) -> None:
    with connected(live) as raw:
        raw.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert read_all(raw).startswith(b"HTTP/1.1 200 ")


def test_stream_of_http_1_0_is_not_chunked(live: Live) -> None:
    with connected(live) as raw:
        raw.sendall(f"POST /graphs/g/export HTTP/1.0\r\n{TYPED}Content-Length: 2\r\n\r\n{{}}".encode())
        head, _, body = read_all(raw).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"transfer-encoding" not in head
    assert all(orjson.loads(line) for line in body.splitlines())


def test_client_that_expects_continue_is_told_to_send_its_body(live: Live) -> None:
    with connected(live) as raw:
        raw.sendall(ask_query(LENGTH + "Expect: 100-Continue\r\n", b""))
        assert raw.recv(1 << 16) == b"HTTP/1.1 100 Continue\r\n\r\n"
        raw.sendall(BODY)
        assert read_chunked_or_whole(raw).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("length", ["999999999999999999", "1234567890123456789", "0" * 30 + "99999999"])
def test_length_over_the_limit_is_told_as_it_was_sent(live: Live, length: str) -> None:
    with connected(live) as raw:
        raw.sendall(ask_query(f"Content-Length: {length}\r\n", b""))
        answer = read_answer(raw)
    assert answer.startswith(b"HTTP/1.1 413 "), answer
    assert orjson.loads(answer.partition(b"\r\n\r\n")[2])["resource_limit"]["actual"] == int(length)


def test_length_with_leading_zeros_is_a_length(live: Live) -> None:
    with connected(live) as raw:
        raw.sendall(ask_query("Content-Length: " + LENGTH.split()[1].zfill(25) + "\r\n", BODY))
        assert read_chunked_or_whole(raw).startswith(b"HTTP/1.1 200 ")


TRAILERS = {
    "many": b"X: y\r\n" * 32_000,
    "one": b"X: " + b"y" * 190_000 + b"\r\n",
}


@pytest.mark.parametrize("kind", TRAILERS)
def test_trailers_in_one_read_are_bounded(live: Live, kind: str) -> None:
    burst = ask_query(CHUNKED, b"%x\r\n%b\r\n0\r\n" % (len(BODY), BODY) + TRAILERS[kind] + b"\r\n")
    answer = answer_to_one_read(live, burst)
    assert answer.startswith(b"HTTP/1.1 413 "), "trailers beyond the bound were taken"


def answer_to_one_read(live: Live, data: bytes) -> bytes:
    """Return what is answered to bytes that arrive in one read."""
    answers: list[bytes] = []
    done = threading.Event()
    loop = live.server.host._servers[0].get_loop()
    made: list[HttpConnection] = []

    def feed() -> None:
        made.append(HttpConnection(live.server.host))
        transport: Any = Recorder(answers, done)
        made[0].connection_made(transport)
        made[0].data_received(data)
        loop.call_later(5, done.set)

    loop.call_soon_threadsafe(feed)
    assert done.wait(10)
    loop.call_soon_threadsafe(made[0].connection_lost, None)
    return b"".join(answers)


class Recorder:
    """A transport that keeps what is written to it."""

    def __init__(self, written: list[bytes], done: threading.Event) -> None:
        self._written = written
        self._done = done

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.9", 1) if name == "peername" else None

    def write(self, data: bytes) -> None:
        self._written.append(data)
        self._done.set()

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        self._done.set()

    close = write_eof = abort

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


def test_trailers_in_bounds_are_taken(live: Live) -> None:
    trailers = b"X: y\r\n" * 100
    with connected(live) as raw:
        raw.sendall(ask_query(CHUNKED, b"%x\r\n%b\r\n0\r\n" % (len(BODY), BODY) + trailers + b"\r\n"))
        assert read_chunked_or_whole(raw).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_client_that_closes_its_half_is_answered(live: Live, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Graph.query

    def slow(graph: Graph, *given: Any, **more: Any) -> Any:
        time.sleep(0.5)
        return plain(graph, *given, **more)

    monkeypatch.setattr(Graph, "query", slow)
    with connected(live) as raw:
        raw.sendall(ask_query(LENGTH, BODY, version))
        raw.shutdown(socket.SHUT_WR)
        answer = read_all(raw).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 "), answer
    assert b'"p4"' in answer
    assert b"connection: close" in answer


def test_client_that_closes_its_half_within_its_body_is_not_waited_for(live: Live) -> None:
    with connected(live) as raw:
        raw.sendall(ask_query(LENGTH, BODY)[:-5])
        raw.shutdown(socket.SHUT_WR)
        assert read_all(raw) == b""


def test_query_is_cancelled_when_its_client_closes_both_halves(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    started, cancelled = threading.Event(), threading.Event()

    def query(graph: Graph, *given: Any, budget: Any, **more: Any) -> Any:
        started.set()
        deadline = time.monotonic() + 10
        while not budget.cancel.is_cancelled and time.monotonic() < deadline:
            time.sleep(0.01)
        if budget.cancel.is_cancelled:
            cancelled.set()
        raise QueryCancelled("cancelled")

    monkeypatch.setattr(Graph, "query", query)
    with connected(live) as raw:
        raw.sendall(ask_query(LENGTH, BODY))
        assert started.wait(10)
        raw.shutdown(socket.SHUT_WR)
    assert cancelled.wait(5)


def test_hang_ups_log_no_exception(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    parts = [
        b"", b"GET /hea", ask_query(LENGTH, BODY), ask_query(LENGTH, BODY)[:-5], b"nonsense\r\n\r\n",
        ask_query(CHUNKED, chunked(BODY)), b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3,
        ask_query("Content-Length: 1000000000\r\n", b"x" * 100_000),
    ]  # fmt: skip
    for part in parts * 3:
        for is_reset in (False, True):
            with connected(live) as raw:
                if is_reset:
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                raw.sendall(part)
    deadline = time.monotonic() + 10
    while live.server.host.connections and time.monotonic() < deadline:
        time.sleep(0.02)
    # What was ended may still hold timers; ending it once more must not fail either.
    assert live.get("/healthz").status == 200
    bad = [one for one in caplog.records if one.exc_info or (one.name == "asyncio" and one.levelno >= logging.WARNING)]
    assert not bad, [one.getMessage() for one in bad]


def test_ended_connections_can_be_ended_again(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    ended: list[Any] = []
    with connected(live) as raw:
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        read_answer(raw)
        ended += live.server.host.connections
    assert ended
    deadline = time.monotonic() + 10
    while live.server.host.connections and time.monotonic() < deadline:
        time.sleep(0.02)
    loop, done = live.server.host._servers[0].get_loop(), threading.Event()
    for one in ended:
        for end in (
            one.abort,
            one.resume_reading,
            one.pause_reading,
            one._linger,
            one._close,
            one.shut_down,
            one.abort,
        ):
            loop.call_soon_threadsafe(end)
    loop.call_soon_threadsafe(done.set)
    assert done.wait(10)
    assert not [one for one in caplog.records if one.exc_info], caplog.text
