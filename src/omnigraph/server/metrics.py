"""What a server counts, told as Prometheus reads it.

Counts over all graphs: who may see the numbers need not know which graphs there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from threading import Lock
from typing import Final

MEDIA: Final = "text/plain; version=0.0.4; charset=utf-8"
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
