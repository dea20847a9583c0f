"""Serves the metrics of a runner over HTTP, for Prometheus to scrape."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from omnigraph.errors import UsageError
from omnigraph.limits import METRICS_CLIENT_SECONDS_MAX
from omnigraph.prometheus import MEDIA_TYPE


class _MetricsServer(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Leave a client that has gone away out of the log; other errors are shown."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@contextmanager
def serving_metrics(host: str, port: int, render: Callable[[], str]) -> Iterator[str]:
    """Serve `/metrics` within the block; yields the address. Port 0 picks a free one."""

    class Handler(BaseHTTPRequestHandler):
        timeout = METRICS_CLIENT_SECONDS_MAX

        def do_GET(self) -> None:
            is_found = self.path.partition("?")[0] == "/metrics"
            body = render().encode() if is_found else b"see /metrics\n"
            self.send_response(200 if is_found else 404)
            self.send_header("Content-Type", MEDIA_TYPE if is_found else "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
            """Scrapes are not logged."""

    try:
        server = _MetricsServer((host, port), Handler)
    except (OSError, OverflowError) as error:
        raise UsageError(f"metrics cannot be served at {host}:{port}: {error}; choose another port") from None
    thread = threading.Thread(target=server.serve_forever, name="omnigraph-metrics", daemon=True)
    thread.start()
    try:
        yield f"{host}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
