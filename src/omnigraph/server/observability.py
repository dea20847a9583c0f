"""What every request leaves behind: a request id in its answer, a line in the log, and its share of the numbers.

Wraps the whole application, so that it answers nothing unseen; connections beyond the limit never get that far.
"""

from __future__ import annotations

import logging
import re
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from threading import Lock
from traceback import extract_tb
from typing import Any, Final

import orjson

from omnigraph import clock
from omnigraph.ids import new_ulid
from omnigraph.server.admission import Message, Receive, Send
from omnigraph.server.wire import REQUEST_ID

_log: Final = logging.getLogger("omnigraph.server")
# What a record may carry beside its message.
_FIELDS: Final = (
    *("request_id", "method", "route", "graph_id", "actor", "status", "milliseconds", "code"),
    *("action", "branch", "target_branch", "decision", "rule", "signal", "graphs", "query", "error", "at"),
)


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, object] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        told |= {name: getattr(record, name) for name in _FIELDS if getattr(record, name, None) is not None}
        if record.exc_info and record.exc_info[1] is not None:
            told |= describe_exception(record.exc_info[1])
        return orjson.dumps(told, default=str).decode()


def describe_exception(error: BaseException) -> dict[str, object]:
    """Return what may be told about an exception: its class, and the functions it came through."""
    frames = extract_tb(error.__traceback__)
    return {"error": type(error).__name__, "at": [f"{one.name}:{one.lineno}" for one in frames[-8:]]}


def log_to_stderr() -> None:
    """Send all logs of this process to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("omnigraph").setLevel(logging.INFO)


def log_request(level: int, **members: object) -> None:
    """Log that a request has ended."""
    if _log.isEnabledFor(level):
        _log.log(level, "request", extra=members)


def log_failure(error: BaseException, request_id: str) -> None:
    """Log a failure of our own, for whoever is asked about the request id."""
    _log.error("failure", extra={"request_id": request_id, **describe_exception(error)})


METRICS_MEDIA: Final = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Counters that threads and the event loop share."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._requests: Counter[Labels] = Counter()
        self._seconds: dict[str, list[float]] = {}
        self._counts: Counter[str] = Counter()
        self.in_flight = 0

    def begin(self) -> None:
        with self._lock:
            self.in_flight += 1

    def end(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that has ended."""
        with self._lock:
            self.in_flight -= 1
            self._requests[(("method", method), ("route", route), ("status", str(status)))] += 1
            kept = self._seconds.setdefault(route, [0.0] * (len(_BUCKETS) + 2))
            for place, bound in enumerate(_BUCKETS):
                kept[place] += seconds <= bound
            kept[-2] += seconds
            kept[-1] += 1

    def count(self, name: str) -> None:
        """Count one commit, conflict or refusal."""
        with self._lock:
            self._counts[name] += 1

    def render(self, gauges: Iterable[tuple[str, str, float]], storage: Counter[Labels]) -> str:
        """Return all numbers as text; `gauges` are those that are looked up now: name, help, value."""
        with self._lock:
            requests, counts = dict(self._requests), dict(self._counts)
            seconds = {route: list(kept) for route, kept in self._seconds.items()}
            in_flight = self.in_flight
        lines = [*_head("omnigraph_http_requests_total", "counter", "Requests that were answered.")]
        lines += [_line("omnigraph_http_requests_total", labels, count) for labels, count in sorted(requests.items())]
        lines += [*_head("omnigraph_http_request_seconds", "histogram", "Time from request to the end of its answer.")]
        for route, kept in sorted(seconds.items()):
            lines += _histogram(route, kept)
        lines += [*_head("omnigraph_http_requests_in_flight", "gauge", "Requests that are being answered.")]
        lines.append(_line("omnigraph_http_requests_in_flight", (), in_flight))
        for name, about in _COUNTS.items():
            lines += [*_head(name, "counter", about), _line(name, (), counts.get(name, 0))]
        lines += [*_head("omnigraph_storage_requests_total", "counter", "Requests to storage, by operation.")]
        lines += [_line("omnigraph_storage_requests_total", labels, count) for labels, count in sorted(storage.items())]
        for name, about, value in gauges:
            lines += [*_head(name, "gauge", about), _line(name, (), value)]
        return "\n".join(lines) + "\n"


COMMITS: Final = "omnigraph_commits_total"
CONFLICTS: Final = "omnigraph_conflicts_total"
DENIALS: Final = "omnigraph_policy_denials_total"
REFUSALS: Final = "omnigraph_admission_refusals_total"
_COUNTS: Final = {
    COMMITS: "Commits that requests made.",
    CONFLICTS: "Writes that lost to another one.",
    DENIALS: "Requests that a policy denied.",
    REFUSALS: "Writes that were refused because their actor had too many.",
}


def _head(name: str, kind: str, about: str) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"


def _line(name: str, labels: Labels, value: float) -> str:
    """Return one sample.

    >>> _line("a_total", (("route", 'x"y'),), 2)
    'a_total{route="x\\\\"y"} 2'
    """
    escaped = (value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"") for _, value in labels)
    inside = ",".join(f'{key}="{text}"' for (key, _), text in zip(labels, escaped, strict=True))
    return f"{name}{{{inside}}} {value:g}" if inside else f"{name} {value:g}"


def _histogram(route: str, kept: list[float]) -> Iterator[str]:
    name, label = "omnigraph_http_request_seconds", ("route", route)
    for bound, count in zip((*map("{:g}".format, _BUCKETS), "+Inf"), (*kept[:-2], kept[-1]), strict=True):
        yield _line(f"{name}_bucket", (label, ("le", bound)), count)
    yield _line(f"{name}_sum", (label,), kept[-2])
    yield _line(f"{name}_count", (label,), kept[-1])


Scope = MutableMapping[str, Any]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_SCOPE_KEY: Final = "omnigraph.note"
_SAFE_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
# What is counted and logged when the caller hung up before anything was answered.
CLIENT_CLOSED_REQUEST: Final = 499


@dataclass(slots=True)
class RequestLog:
    """What becomes known about a request while it is answered."""

    request_id: str
    route: str = "unknown"
    graph_id: str | None = None
    actor: str | None = None
    code: str | None = None
    status: int = CLIENT_CLOSED_REQUEST


def request_log(scope: Scope) -> RequestLog:
    """Return the note of a request."""
    found = scope[_SCOPE_KEY]
    assert isinstance(found, RequestLog)
    return found


def with_request_log(app: App, metrics: Metrics) -> App:
    """Return an application that leaves traces."""

    async def observe(scope: Scope, receive: Receive, send: Send) -> None:
        note = RequestLog(_request_id(scope))
        scope[_SCOPE_KEY] = note

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                note.status = message["status"]
                message["headers"] = [*message["headers"], (REQUEST_ID.lower().encode(), note.request_id.encode())]
            await send(message)

        metrics.begin()
        started = clock.elapsed()
        try:
            await app(scope, receive, noting)
        except Exception as error:  # noqa: BLE001 - the server would print its text, which may name what it must not
            log_failure(error, note.request_id)
        finally:
            seconds = clock.elapsed() - started
            metrics.end(scope["method"], note.route, note.status, seconds)
            log_request(
                logging.INFO if note.status < 500 else logging.ERROR,
                request_id=note.request_id,
                method=scope["method"],
                route=note.route,
                graph_id=note.graph_id,
                actor=note.actor,
                status=note.status,
                milliseconds=round(seconds * 1_000, 1),
                code=note.code,
            )

    return observe


def _request_id(scope: Scope) -> str:
    """Return the id that the caller gave, if it is harmless, or a new one."""
    wanted = REQUEST_ID.lower().encode()
    given: bytes | None = next((value for name, value in scope["headers"] if name == wanted), None)
    return given.decode() if given is not None and _SAFE_ID.fullmatch(given) else new_ulid()
