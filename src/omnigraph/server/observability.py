"""JSON logs, Prometheus metrics and request ids, added to every request by an ASGI wrapper.

Connections beyond the limit are rejected before it.
"""

from __future__ import annotations

import logging
import re
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import asdict, dataclass
from threading import Lock
from traceback import extract_tb
from typing import Any, Final

import orjson

from omnigraph import clock
from omnigraph.ids import new_ulid
from omnigraph.prometheus import Labels, head, sample
from omnigraph.server.admission import Message, Receive, Send
from omnigraph.wire import REQUEST_ID

_log: Final = logging.getLogger("omnigraph.server")
# Extra fields of a log record.
_FIELDS: Final = (
    *("request_id", "method", "route", "graph_id", "actor", "status", "milliseconds", "code"),
    *("action", "branch", "target_branch", "decision", "rule", "signal", "graphs", "query", "error", "at"),
)


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= {name: getattr(record, name) for name in _FIELDS if getattr(record, name, None) is not None}
        if record.exc_info and record.exc_info[1] is not None:
            entry |= describe_exception(record.exc_info[1])
        return orjson.dumps(entry, default=str).decode()


def describe_exception(error: BaseException) -> dict[str, object]:
    """Describe an exception by its class and stack; its message may hold data."""
    frames = extract_tb(error.__traceback__)
    return {"error": type(error).__name__, "at": [f"{frame.name}:{frame.lineno}" for frame in frames[-8:]]}


def log_to_stderr() -> None:
    """Send all logs of this process to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("omnigraph").setLevel(logging.INFO)


def log_failure(error: BaseException, request_id: str) -> None:
    _log.error("failure", extra={"request_id": request_id, **describe_exception(error)})


_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class Metrics:
    """Thread-safe counters and histograms."""

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
        with self._lock:
            self.in_flight -= 1
            self._requests[(("method", method), ("route", route), ("status", str(status)))] += 1
            buckets = self._seconds.setdefault(route, [0.0] * (len(_BUCKETS) + 2))
            for bucket, bound in enumerate(_BUCKETS):
                buckets[bucket] += seconds <= bound
            buckets[-2] += seconds
            buckets[-1] += 1

    def count(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1

    def render(self, gauges: Iterable[tuple[str, str, float]], storage: Counter[Labels]) -> str:
        """Return all metrics in Prometheus text format; `gauges` are (name, help, value)."""
        with self._lock:
            requests, counts = dict(self._requests), dict(self._counts)
            seconds = {route: list(buckets) for route, buckets in self._seconds.items()}
            in_flight = self.in_flight
        lines = _metric("omnigraph_http_requests_total", "counter", "HTTP requests completed.", requests)
        about = "Time from the start of a request to the end of its response."
        lines += head("omnigraph_http_request_seconds", "histogram", about)
        for route, buckets in sorted(seconds.items()):
            lines += _histogram(route, buckets)
        lines += _metric("omnigraph_http_requests_in_flight", "gauge", "HTTP requests in flight.", {(): in_flight})
        for name, about in _COUNTS.items():
            lines += _metric(name, "counter", about, {(): counts.get(name, 0)})
        lines += _metric("omnigraph_storage_requests_total", "counter", "Storage requests, by operation.", storage)
        for name, about, value in gauges:
            lines += _metric(name, "gauge", about, {(): value})
        return "\n".join(lines) + "\n"


COMMITS: Final = "omnigraph_commits_total"
CONFLICTS: Final = "omnigraph_conflicts_total"
DENIALS: Final = "omnigraph_policy_denials_total"
REFUSALS: Final = "omnigraph_admission_refusals_total"
_COUNTS: Final = {
    COMMITS: "Commits made by requests.",
    CONFLICTS: "Writes that lost to a concurrent write.",
    DENIALS: "Requests denied by a policy.",
    REFUSALS: "Writes rejected because their actor had too many in flight.",
}


def _metric(name: str, kind: str, about: str, values: Mapping[Labels, float]) -> list[str]:
    return [*head(name, kind, about), *(sample(name, labels, value) for labels, value in sorted(values.items()))]


def _histogram(route: str, buckets: list[float]) -> Iterator[str]:
    name, label = "omnigraph_http_request_seconds", ("route", route)
    for bound, count in zip((*map("{:g}".format, _BUCKETS), "+Inf"), (*buckets[:-2], buckets[-1]), strict=True):
        yield sample(f"{name}_bucket", (label, ("le", bound)), count)
    yield sample(f"{name}_sum", (label,), buckets[-2])
    yield sample(f"{name}_count", (label,), buckets[-1])


Scope = MutableMapping[str, Any]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_SCOPE_KEY: Final = "omnigraph.note"
_SAFE_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
# Status that is logged when the client disconnected before the response (as nginx does).
CLIENT_CLOSED_REQUEST: Final = 499


@dataclass(slots=True)
class RequestLog:
    """The log entry of a request, filled in while it is handled."""

    request_id: str
    route: str = "unknown"
    graph_id: str | None = None
    actor: str | None = None
    code: str | None = None
    status: int = CLIENT_CLOSED_REQUEST


def request_log(scope: Scope) -> RequestLog:
    log = scope[_SCOPE_KEY]
    assert isinstance(log, RequestLog)
    return log


def with_request_log(app: App, metrics: Metrics) -> App:
    """Wrap an application with request ids, logs and metrics."""

    async def observe(scope: Scope, receive: Receive, send: Send) -> None:
        log = RequestLog(_request_id(scope))
        scope[_SCOPE_KEY] = log

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                log.status = message["status"]
                message["headers"] = [*message["headers"], (REQUEST_ID.lower().encode(), log.request_id.encode())]
            await send(message)

        metrics.begin()
        started = clock.elapsed()
        try:
            await app(scope, receive, send_with_id)
        except Exception as error:  # noqa: BLE001 - its message may hold data
            log_failure(error, log.request_id)
        finally:
            seconds = clock.elapsed() - started
            metrics.end(scope["method"], log.route, log.status, seconds)
            members = {"method": scope["method"], "milliseconds": round(seconds * 1_000, 1), **asdict(log)}
            _log.log(logging.INFO if log.status < 500 else logging.ERROR, "request", extra=members)

    return observe


def _request_id(scope: Scope) -> str:
    """Return the request id of the client, if it is well formed, or a new one."""
    header = REQUEST_ID.lower().encode()
    request_id: bytes | None = next((value for name, value in scope["headers"] if name == header), None)
    return request_id.decode() if request_id is not None and _SAFE_ID.fullmatch(request_id) else new_ulid()
