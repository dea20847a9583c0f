"""An S3 protocol server on loopback, for tests: a request log, latency, faults, and hooks around every mutation.

Moto keeps one set of buckets per process, so there is one server at a time in a process; a start empties it.
"""

from __future__ import annotations

import gc
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal

import pytest
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from omnigraph.manifest import commit_loop
from omnigraph.store.objects import conditional_puts

BUCKET: Final = "graphs"
MUTATING: Final = frozenset({"PUT", "POST", "DELETE"})
CONDITIONS: Final = frozenset({"If-None-Match", "If-Match"})

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
FaultKind = Literal[
    "error_500", "throttle_503", "deny_403", "expired_400", "conflict_409", "drop_before", "drop_after", "delay"
]


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came in; `key` is without the bucket, `condition` is `If-None-Match` or `If-Match`."""

    method: str
    key: str
    query: str
    condition: str
    at_seconds: float

    @property
    def is_mutating(self) -> bool:
        return self.method in MUTATING


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with one request; only `drop_after` and `delay` still carry it out."""

    kind: FaultKind
    seconds: float = 0.0
    answer: tuple[str, str] | None = None


ERROR_500: Final = Fault("error_500")
THROTTLE_503: Final = Fault("throttle_503")
DENY_403: Final = Fault("deny_403")
EXPIRED_400: Final = Fault("expired_400")
CONFLICT_409: Final = Fault("conflict_409")
DROP_BEFORE: Final = Fault("drop_before")
DROP_AFTER: Final = Fault("drop_after")

# Status and code of the answers that refuse a request without carrying it out.
_REFUSALS: Final[dict[str, tuple[str, str]]] = {
    "error_500": ("500 Internal Server Error", "InternalError"),
    "throttle_503": ("503 Slow Down", "SlowDown"),
    "deny_403": ("403 Forbidden", "AccessDenied"),
    "expired_400": ("400 Bad Request", "ExpiredToken"),
    "conflict_409": ("409 Conflict", "ConditionalRequestConflict"),
}


def delay(seconds: float) -> Fault:
    """Return the fault of an answer that takes its time."""
    return Fault("delay", seconds)


def refuse(status: str, code: str) -> Fault:
    """Return the fault of an answer with a status and a code."""
    return Fault("error_500", answer=(status, code))


Action = Callable[[Request], Fault | None]


@dataclass(slots=True)
class _Hook:
    """An action that waits for its mutation; `remaining` counts down to it."""

    remaining: int
    when: Literal["before", "after"]
    action: Action


class _QuietHandler(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        pass


class _Server(ThreadedWSGIServer):
    # Joined at the end, so that no handler outlives its test.
    daemon_threads = False


class S3Server:
    """A running server, from `with S3Server() as server` until the end of the block; its bucket is `graphs`.

    One lock makes each request atomic; latency and delays pass outside of it, so concurrent requests overlap and
    `elapsed / latency_seconds` tells how many were made one after another.
    """

    def __init__(self, latency_seconds: float = 0.0) -> None:
        self.latency_seconds = latency_seconds
        self.fault: Callable[[Request], Fault | None] | None = None
        # Headers that a request loses on its way, as behind a proxy that strips them.
        self.ignored_headers: frozenset[str] = frozenset()
        self.requests: list[Request] = []
        self.mutations = 0
        self._hooks: list[_Hook] = []
        self._apply = threading.Lock()
        self._judge = threading.Lock()
        self._stopped = threading.Event()

    def __enter__(self) -> S3Server:
        _reset_backend()
        _backend().create_bucket(BUCKET, "us-east-1")
        self._server = _Server("127.0.0.1", 0, self._serve, _QuietHandler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        _reset_backend()
        # Moto's answers form cycles with their buffers; collected now, they cannot warn in another test. They are
        # young: to look at everything that a worker holds takes seconds after a thousand tests.
        gc.collect(1)
        # What this process knows of the writers of a graph is no knowledge of the next graph at the same address.
        commit_loop._turns.clear()
        conditional_puts.forget_proven()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def uri(self, prefix: str) -> str:
        """Return the address of a graph in the bucket."""
        return f"s3://{BUCKET}/{prefix}"

    def environment(self) -> dict[str, str]:
        """Return the variables that lead any client, also one in a child process, to this server."""
        return self.settings(self.endpoint)

    @staticmethod
    def settings(endpoint: str) -> dict[str, str]:
        """Return the variables that lead a client to an address."""
        return {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ENDPOINT_URL_S3": endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_S3_FORCE_PATH_STYLE": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_SESSION_TOKEN": "",
        }

    def saved(self) -> Callable[[], None]:
        """Keep what the bucket holds now; the returned function puts it back."""
        backend = _backend()
        keys = backend.buckets[BUCKET].keys
        with self._apply:
            kept = {name: (key.value, key.last_modified, dict(key.metadata)) for name, key in keys.items()}

        def restore() -> None:
            with self._apply:
                for name in list(keys):
                    keys.pop(name)
                for name, (value, modified, metadata) in kept.items():
                    key = backend.put_object(BUCKET, name, value)
                    key.last_modified = modified
                    key.set_metadata(metadata)

        return restore

    def forget(self) -> None:
        """Empty the log and start to count mutations anew."""
        with self._apply:
            self.requests.clear()
            self.mutations = 0

    def on_mutation(self, k: int, when: Literal["before", "after"], action: Action) -> None:
        """Run `action` once, right before or after the k-th mutating request from now is carried out.

        No other request is carried out meanwhile. A fault that the action returns befalls the request: `DROP_BEFORE`
        from a `before` action keeps it from being carried out, `DROP_AFTER` keeps the answer from the client.
        """
        assert k >= 1, "mutations are counted from 1"
        with self._apply:
            self._hooks.append(_Hook(k, when, action))

    def _serve(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        request = _request_of(environ)
        for header in self.ignored_headers:
            environ.pop(f"HTTP_{header.upper().replace('-', '_')}", None)
        with self._judge:
            self.requests.append(request)
            fault = self.fault(request) if self.fault is not None else None
        self._stopped.wait(self.latency_seconds + (fault.seconds if fault is not None else 0.0))
        if fault is None or fault.kind in ("drop_after", "delay"):
            answer = _Answer()
            fault = self._carry_out(request, environ, answer) or fault
        else:
            _drain(environ)
        if fault is not None and fault.kind in ("drop_before", "drop_after"):
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionAbortedError("injected")
        if fault is not None and fault.kind in _REFUSALS:
            return _refuse(start_response, *(fault.answer or _REFUSALS[fault.kind]))
        start_response(answer.status, answer.headers)
        return [answer.body]

    def _carry_out(self, request: Request, environ: Environ, answer: _Answer) -> Fault | None:
        """Let moto answer, with the hooks around it; return the fault that a hook asks for."""
        with self._apply:
            if not request.is_mutating:
                answer.take(environ)
                return None
            self.mutations += 1
            for hook in self._hooks:
                hook.remaining -= 1
            due = [hook for hook in self._hooks if hook.remaining == 0]
            self._hooks = [hook for hook in self._hooks if hook.remaining > 0]
            faults = [hook.action(request) for hook in due if hook.when == "before"]
            if not any(fault is not None and fault.kind != "drop_after" for fault in faults):
                answer.take(environ)
                faults += [hook.action(request) for hook in due if hook.when == "after"]
            else:
                _drain(environ)
            return next((fault for fault in faults if fault is not None), None)


class _Answer:
    """What moto says to one request, held back until it may go out."""

    status = ""
    headers: list[tuple[str, str]]
    body = b""

    def take(self, environ: Environ) -> None:
        def start_response(status: str, headers: list[tuple[str, str]], _: object = None) -> None:
            self.status, self.headers = status, headers

        chunks = _application()(environ, start_response)
        self.body = b"".join(chunks)
        if (close := getattr(chunks, "close", None)) is not None:
            close()


# Moto is imported when a server starts: modules that have one test on S3 are also collected for others.
def _backend() -> Any:
    from moto.core.models import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends

    return s3_backends[DEFAULT_ACCOUNT_ID]["aws"]


def _reset_backend() -> None:
    from moto.s3.models import s3_backends

    s3_backends.reset()


@cache
def _application() -> Callable[[Environ, StartResponse], Iterable[bytes]]:
    from moto.moto_server.werkzeug_app import create_backend_app

    application: Callable[[Environ, StartResponse], Iterable[bytes]] = create_backend_app("s3")
    return application


def _request_of(environ: Environ) -> Request:
    return Request(
        environ["REQUEST_METHOD"],
        environ["PATH_INFO"].lstrip("/").partition("/")[2],
        environ.get("QUERY_STRING", ""),
        environ.get("HTTP_IF_NONE_MATCH") or environ.get("HTTP_IF_MATCH") or "",
        time.monotonic(),
    )


def _drain(environ: Environ) -> None:
    # A connection that is closed on unread bytes is reset, and then the client may not see the answer.
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))


def _refuse(start_response: StartResponse, status: str, code: str) -> Iterable[bytes]:
    body = f"<Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
    start_response(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]


@pytest.fixture
def s3_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A fresh server with an empty bucket, to which the environment of the test points."""
    with S3Server() as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        yield server
