"""A real server on loopback for tests: the host in a thread, asked through Python's own HTTP client."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from omnigraph.limits import SERVER_RELOAD_SECONDS
from omnigraph.server.auth import Tokens
from omnigraph.server.http.listener import HostBounds
from omnigraph.server.registry import GraphConfig, GraphRegistry, open_registry
from omnigraph.server.run import Server, bind, open_service
from omnigraph.server.service import Service
from tests.support.described_routes import OURS

TOKENS = {"ada": "token-of-ada", "bob": "token-of-bob", "eve": "token-of-eve"}
SCHEMA = """
node Person {
    name: String @key
    age: I32?
    photo: Blob?
}
edge Knows: Person -> Person {
    since: I32?
}
"""
DATA = b"\n".join(
    [
        *(orjson.dumps({"type": "Person", "data": {"name": f"p{n}", "age": n}}) for n in range(5)),
        orjson.dumps({"edge": "Knows", "from": "p0", "to": "p1", "data": {"since": 2001}}),
        orjson.dumps({"edge": "Knows", "from": "p1", "to": "p2", "data": {"since": 2002}}),
    ]
)
PEOPLE = "query people() { match { $p: Person } return { $p.name as name, $p.age as age } order { name asc } }"
FIND = "query find($name: String) { match { $p: Person { name: $name } } return { $p.age as age } }"
ADD = "query add($name: String, $age: I32?) { insert Person { name: $name, age: $age } }"


@dataclass(frozen=True)
class Reply:
    """One answer: status, lower-case headers, and the bytes of the body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return orjson.loads(self.body)


@dataclass
class Live:
    """A server that listens, and how to ask it."""

    host: str
    port: int
    service: Service
    server: Server
    thread: threading.Thread
    tokens: Mapping[str, str] = field(default_factory=dict)

    def connect(self, timeout: float = 60) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        actor: str | None = "ada",
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send one request; a body that is not bytes is sent as JSON."""
        sent = dict(headers or {})
        if actor is not None and actor in self.tokens:
            sent.setdefault("Authorization", f"Bearer {self.tokens[actor]}")
        payload: bytes | None
        if body is None or isinstance(body, bytes):
            payload = body
        else:
            payload = orjson.dumps(body)
            sent.setdefault("Content-Type", "application/json")
        connection = self.connect()
        try:
            connection.request(method, path, payload, sent)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            reply = Reply(answer.status, found, answer.read())
        finally:
            connection.close()
        problems = OURS.problems(method, path, reply.status, reply.headers, reply.body)
        assert not problems, problems
        return reply

    def get(self, path: str, **more: Any) -> Reply:
        return self.ask("GET", path, **more)

    def post(self, path: str, body: object = None, **more: Any) -> Reply:
        return self.ask("POST", path, {} if body is None else body, **more)


@contextmanager
def serving(
    house: GraphRegistry,
    tokens: Mapping[str, str] | None = None,
    bounds: HostBounds | None = None,
    reload_seconds: float = SERVER_RELOAD_SECONDS,
) -> Iterator[Live]:
    """Serve in a thread until the block ends."""
    listening = bind("127.0.0.1:0")
    service = open_service(house)
    service.reload_seconds = reload_seconds
    ready = threading.Event()
    server = Server(service, lambda _: ready.set(), bounds)
    thread = threading.Thread(target=lambda: server.run(sockets=[listening]), name="server")
    thread.start()
    try:
        assert ready.wait(30)
        host, port = listening.getsockname()[:2]
        yield Live(host, port, service, server, thread, tokens or {})
    finally:
        server.stop()
        server.force_exit = True
        thread.join(30)
        listening.close()
        service.close()


@contextmanager
def serving_graph(
    uri: str | Path,
    *,
    tokens: Mapping[str, str] | None = None,
    policy: Path | None = None,
    server_policy: Path | None = None,
    queries: Path | None = None,
    bounds: HostBounds | None = None,
) -> Iterator[Live]:
    """Serve one graph as `g`; without tokens it is open to everybody."""
    house = open_registry(
        [GraphConfig("g", str(uri), policy, queries)],
        Tokens.of(tokens or {}),
        is_unauthenticated=not tokens,
        server_policy=server_policy,
    )
    with serving(house, tokens, bounds) as live:
        yield live
