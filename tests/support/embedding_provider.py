"""A loopback embedding provider that behaves, or misbehaves, as a test asks."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, bytes]


@dataclass
class Provider:
    """What the provider was asked, and how it answers the n-th time (counted from 0)."""

    answer: Callable[[int, Any], Answer]
    url: str = ""
    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    hold: threading.Event = field(default_factory=threading.Event)
    holds: bool = False
    connections: int = 0
    ends_connections: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    missing_bytes: Callable[[int], int] = lambda number: 0


def openai_answer(*vectors: list[float]) -> Answer:
    data = [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    return 200, json.dumps({"data": data[::-1]}).encode()


@contextmanager
def running(provider: Provider) -> Iterator[Provider]:
    """Serve the provider on a free port of the loopback interface."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            provider.connections += 1
            super().setup()

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            number = len(provider.requests)
            provider.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            if provider.holds:
                # The client gives up first; the event only lets the thread end with the test.
                provider.hold.wait(30)
            status, payload = provider.answer(number, body)
            self.send_response(status)
            if status == 302:
                self.send_header("Location", provider.url + "/elsewhere")
            for name, value in provider.headers.items():
                self.send_header(name, value)
            missing = provider.missing_bytes(number)
            self.send_header("Content-Length", str(len(payload) + missing))
            self.end_headers()
            self.wfile.write(payload)
            # Ended without a word, as by a server that does not wait for the next request.
            self.close_connection = self.close_connection or provider.ends_connections or missing > 0

        do_GET = do_POST

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it that
            """Say nothing."""

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:
                # A client that gave up has closed the connection.
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    provider.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield provider
    finally:
        provider.hold.set()
        server.shutdown()
        thread.join()
        server.server_close()
