"""Attacks over raw sockets on a server process: a bystander is answered meanwhile, and memory stays where it was.

Attackers come from 127.0.0.1, the bystander from 127.0.0.2. Ceilings are generous: what they have to tell apart is
seconds from minutes, and tens of megabytes from hundreds.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import orjson
import pytest

import omnigraph as og
from tests.server.attacked_server import BOUNDS, THREADS, TOKENS

pytestmark = pytest.mark.slow

POLICY = """
version: 1
groups: {all: [ada, bob]}
rules:
  - id: all
    allow: {actors: {group: all}, actions: [read, export], branch_scope: any}
"""
PEOPLE = 1_200
LOOKUP = 'query q() { match { $p: P { k: "p7" } } return { $p.n as n } }'
# 1.44 million rows.
LARGE = "query q() { match { $a: P $b: P } return { $a.k as a, $b.k as b, $a.t as t } limit 400000 }"
SLOW = "query q() { match { $a: P $b: P } return { $a.k as a } order { $b.t asc, $a.t desc, $b.n desc } limit 1 }"
CEILING_SECONDS = 8.0
MEMORY = 150_000_000


class Attacked:
    """A running server, and how to reach it."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port

    def connect(self, peer: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20, source_address=(peer, 0))

    def ask(self, path: str, query: str | None = None, *, actor: str = "ada", peer: str = "127.0.0.2") -> bytes:
        """Send one request and return the whole answer."""
        with self.connect(peer) as raw:
            raw.sendall(request(path, query, actor, close=True))
            parts = []
            while part := raw.recv(1 << 20):
                parts.append(part)
        return b"".join(parts)

    def memory(self) -> int:
        """Return what the process holds in memory."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


def request(path: str, query: str | None, actor: str, *, close: bool = False) -> bytes:
    head = f"{'GET' if query is None else 'POST'} {path} HTTP/1.1\r\nHost: localhost\r\n"
    head += f"Authorization: Bearer {TOKENS[actor]}\r\n" + ("Connection: close\r\n" if close else "")
    if query is None:
        return f"{head}\r\n".encode()
    body = orjson.dumps({"query": query}) if query else b"{}"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    folder = tmp_path_factory.mktemp("attacked")
    (folder / "policy.yaml").write_text(POLICY)
    uri = folder / "g.omni"
    with og.init(uri, "node P { k: String @key\n n: I32?\n t: String? }") as graph:
        rows = ({"k": f"p{n}", "n": n, "t": f"{n:05d}".ljust(60, "x")} for n in range(PEOPLE))
        graph.ingest(b"\n".join(orjson.dumps({"type": "P", "data": row}) for row in rows))
    environment = {**os.environ, "OMNIGRAPH_SERVER_THREADS": str(THREADS)}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.server.attacked_server", str(uri)],
            stdout=subprocess.PIPE, stderr=log, text=True, env=environment, cwd=Path(__file__).parents[2],
        )  # fmt: skip
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline().rpartition(":")[2] or 0)
        assert port, (folder / "log").read_text()
        attacked = Attacked(process, port)
        # What the first requests load stays, and is nobody's attack.
        assert b" 200 " in attacked.ask("/graphs/g/query", LARGE)[:20]
        yield attacked
    finally:
        process.kill()
        process.wait()
        process.communicate()


@contextmanager
def bystander(server: Attacked, memory: int = MEMORY) -> Iterator[Callable[[], None]]:
    """Yield a look at the server: it answers another actor in good time, and holds no more than it should."""
    before = server.memory()

    def look() -> None:
        started = time.monotonic()
        assert b" 200 " in server.ask("/healthz")[:20]
        assert b'"rows":[{"n":7}]' in server.ask("/graphs/g/query", LOOKUP)
        assert time.monotonic() - started < CEILING_SECONDS
        assert server.memory() - before < memory

    look()
    yield look
    look()


def is_closed_within(raw: socket.socket, seconds: float) -> bool:
    """Read until the other end closes, or not."""
    raw.settimeout(seconds)
    with suppress(ConnectionError):
        try:
            while raw.recv(1 << 16):
                pass
        except TimeoutError:
            return False
    return True


def flood(raw: socket.socket, part: bytes, total: int) -> int:
    """Send until the other end has had enough; return how much it took."""
    sent = 0
    with suppress(OSError):
        while sent < total:
            raw.sendall(part)
            sent += len(part)
    return sent


CHUNKED = b"POST /graphs/g/query HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
KNOWN = CHUNKED[:-2] + f"Authorization: Bearer {TOKENS['bob']}\r\nContent-Type: application/json\r\n\r\n".encode()
FLOODS = {
    "trailers of an actor": (KNOWN + b"2\r\n{}\r\n0\r\n", b"X: y\r\n" * 10_000),
    "long trailer of an actor": (KNOWN + b"2\r\n{}\r\n0\r\nX: ", b"y" * 65_536),
    "extension of an actor": (KNOWN + b"2;", b"e" * 65_536),
    "short trailers": (CHUNKED + b"0\r\n", b"X: y\r\n" * 10_000),
    "one long trailer": (CHUNKED + b"0\r\nX: ", b"y" * 65_536),
    "extension of a chunk": (CHUNKED + b"1;", b"e" * 65_536),
    "headers": (b"GET /healthz HTTP/1.1\r\n", b"X: y\r\n" * 10_000),
    "one long header": (b"GET /healthz HTTP/1.1\r\nX: ", b"y" * 65_536),
    "address": (b"GET /", b"y" * 65_536),
    "empty lines": (b"", b"\r\n" * 32_768),
}


@pytest.mark.parametrize("kind", FLOODS)
def test_flood_without_end_is_cut_off(server: Attacked, kind: str) -> None:
    head, part = FLOODS[kind]
    with bystander(server, 40_000_000) as look, server.connect() as raw:
        raw.sendall(head)
        # Sockets buffer a few megabytes; the server itself takes its bound and no more.
        assert flood(raw, part, 60_000_000) < 60_000_000, kind
        look()
        assert is_closed_within(raw, 5)


def test_bodies_after_the_answer_hold_no_connection(server: Attacked) -> None:
    late = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n"
    unauthorized = b"POST /graphs/g/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n"
    with bystander(server) as look, ExitStack() as held:
        raws = [held.enter_context(server.connect()) for _ in range(8)]
        for place, raw in enumerate(raws):
            raw.sendall(late if place % 2 else unauthorized)
        answers = [raw.recv(4_096) for raw in raws]
        assert all(b"connection: close" in one for one in answers), answers
        started = time.monotonic()
        left = list(raws)
        while left and time.monotonic() - started < 10:
            look()
            left = [raw for raw in left if dribble(raw)]
        assert not left, "bytes extend the deadline"


def dribble(raw: socket.socket) -> bool:
    """Send a byte; tell whether the other end still takes it, though it may have said that it sends nothing more."""
    try:
        raw.sendall(b"x")
    except OSError:
        return False
    return True


def test_body_that_is_dribbled_is_given_up(server: Attacked) -> None:
    head = request("/graphs/g/query", LOOKUP, "bob")
    with bystander(server), server.connect() as raw:
        raw.sendall(head[:-20])
        started = time.monotonic()
        answer = raw.recv(4_096)
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"connection: close" in answer
        assert is_closed_within(raw, 5)
        assert time.monotonic() - started < CEILING_SECONDS


def test_connections_of_one_peer_leave_room_for_others(server: Attacked) -> None:
    with bystander(server) as look, ExitStack() as held:
        for _ in range(BOUNDS.connections_max + 10):
            raw = held.enter_context(server.connect())
            with suppress(OSError):
                raw.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
        look()


@pytest.mark.parametrize("is_first", [True, False])
def test_unfinished_headers_of_many_peers_leave_room_for_others(server: Attacked, is_first: bool) -> None:
    whole = b"" if is_first else b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
    with bystander(server) as look, ExitStack() as held:
        for number in range(BOUNDS.connections_max + 4):
            raw = held.enter_context(server.connect(f"127.0.1.{number % 10 + 1}"))
            with suppress(OSError):
                raw.sendall(whole)
                assert is_first or raw.recv(4096).startswith(b"HTTP/1.1 200")
                raw.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
        look()


def test_connections_of_many_peers_leave_room_for_health(server: Attacked) -> None:
    with ExitStack() as held:
        # Requests whose bodies do not come.
        for number in range(BOUNDS.connections_max):
            raw = held.enter_context(server.connect(f"127.0.1.{number + 1}"))
            raw.sendall(request("/graphs/g/query", LOOKUP, "ada")[:-1])
        assert b" 200 " in server.ask("/healthz")[:20]
        refused = server.ask("/graphs/g/query", LOOKUP)
        assert refused.startswith(b"HTTP/1.1 503")
        assert b'"omnigraph_code":"server.busy"' in refused
    # Connections that wait for nothing make room.
    with bystander(server) as look, ExitStack() as held:
        for number in range(BOUNDS.connections_max + 4):
            held.enter_context(server.connect(f"127.0.1.{number + 1}"))
        look()


def test_answers_that_are_not_read_are_dropped(server: Attacked) -> None:
    with bystander(server, 250_000_000) as look, ExitStack() as held:
        raws = [held.enter_context(server.connect()) for _ in range(6)]
        for raw in raws:
            raw.sendall(request("/graphs/g/query", LARGE, "bob"))
        look()
        deadline = time.monotonic() + 30
        while in_flight(server) > 1 and time.monotonic() < deadline:
            time.sleep(0.2)
        assert in_flight(server) == 1, "an answer waits for its reader without end"
        assert all(is_closed_within(raw, 5) for raw in raws), "what waits in a connection stays there"


def in_flight(server: Attacked) -> int:
    """Return how many requests are under way, this one included."""
    numbers = server.ask("/metrics").decode()
    return int(next(one for one in numbers.splitlines() if one.startswith("omnigraph_http_requests_in_flight "))[-2:])


def unchunked(answer: bytes) -> bytes:
    """Return the body of an answer that came in chunks."""
    parts: list[bytes] = []
    place = answer.index(b"\r\n\r\n") + 4
    while True:
        end = answer.index(b"\r\n", place)
        size = int(answer[place:end], 16)
        if not size:
            return b"".join(parts)
        parts.append(answer[end + 2 : end + 2 + size])
        place = end + 4 + size


def test_many_rows_are_streamed_in_little_memory(server: Attacked) -> None:
    with bystander(server):
        before, peak, done = server.memory(), 0, threading.Event()

        def watch() -> None:
            nonlocal peak
            while not done.wait(0.05):
                peak = max(peak, server.memory())

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            answer = server.ask("/graphs/g/query", LARGE, actor="bob")
        finally:
            done.set()
            watching.join()
        assert b"transfer-encoding: chunked" in answer[:500]
        assert len(orjson.loads(unchunked(answer))["rows"]) == 400_000
        assert len(answer) > 30_000_000
        # A dictionary a row would take ten times as much as the answer.
        assert peak - before < 4 * len(answer)


def test_pipelined_request_does_not_keep_a_hung_up_query_alive(server: Attacked) -> None:
    with bystander(server):
        raw = server.connect()
        raw.sendall(request("/graphs/g/query", LARGE.replace("limit 400000", "limit 1400000"), "bob"))
        raw.sendall(request("/healthz", None, "bob") * 3)
        deadline = time.monotonic() + 20
        while in_flight(server) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        raw.close()
        while in_flight(server) > 1 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert in_flight(server) == 1


def test_pipelined_request_is_refused_by_the_end_of_the_connection(server: Attacked) -> None:
    with server.connect() as raw:
        raw.sendall(request("/graphs/g/query", LOOKUP, "bob") + request("/healthz", None, "bob"))
        answer = b""
        while part := raw.recv(65_536):
            answer += part
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b'"rows":[{"n":7}]' in answer
    # One after the other they are all answered, on one connection.
    with server.connect() as raw:
        for _ in range(3):
            raw.sendall(request("/healthz", None, "bob"))
            assert raw.recv(4_096).startswith(b"HTTP/1.1 200")


def test_slow_queries_of_one_actor_keep_no_other_waiting(server: Attacked) -> None:
    with ExitStack() as held:
        for _ in range(2 * THREADS):
            held.enter_context(server.connect()).sendall(request("/graphs/g/query", SLOW, "bob"))
        deadline = time.monotonic() + 10
        while in_flight(server) < 2 * THREADS + 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        with bystander(server):
            pass


BOMBS = {
    "or": "query q() { match { $p: P $p.n = 1 " + "or $p.n = 1 " * 80_000 + "} return { $p.k } }",
    "filters": "query q() { match { $p: P " + "$p.n = 1 " * 100_000 + "} return { $p.k } }",
    "bad bindings": "query q() { match { " + "".join(f"$x{n}: Q " for n in range(80_000)) + "} return { $x.k } }",
    "queries": "".join(f"query q{n}() {{ match {{ $p: P }} return {{ $p.k }} }}\n" for n in range(15_000)),
    "walks": "query q() { match { $p: P " + "$p e $q " * 1_000 + "} return { $p.k } }",
    "columns": "query q() { match { $p: P } return { " + ", ".join(["$p.k"] * 20_000) + " } limit 1 }",
    "words": 'query q() { match { $p: P fuzzy($p.t, "'
    + " ".join(f"w{n}" for n in range(3_000))
    + '", 2) } return { $p.k } }',
}


@pytest.mark.parametrize("kind", BOMBS)
def test_text_that_is_long_to_compile_is_refused_or_done_soon(server: Attacked, kind: str) -> None:
    with bystander(server, 400_000_000) as look:
        started = time.monotonic()
        answers: list[bytes] = []
        asking = threading.Thread(
            target=lambda: answers.append(server.ask("/graphs/g/query", BOMBS[kind], actor="bob", peer="127.0.0.1"))
        )
        asking.start()
        look()
        asking.join(60)
        assert answers, "it is still compiled"
        assert answers[0][9:12] in (b"200", b"400", b"413"), answers[0][:200]
        assert time.monotonic() - started < 2 * CEILING_SECONDS
