"""Logs of a server: one JSON object a line on standard error, with request ids.

No token, no address of storage and no text of an exception goes in; those may name what a log must not.
"""

from __future__ import annotations

import logging
import sys
from traceback import extract_tb
from typing import Final

import orjson

_log: Final = logging.getLogger("omnigraph.server")
# What a record may carry beside its message.
_MEMBERS: Final = (
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
        told |= {name: getattr(record, name) for name in _MEMBERS if getattr(record, name, None) is not None}
        if record.exc_info and record.exc_info[1] is not None:
            told |= describe(record.exc_info[1])
        return orjson.dumps(told, default=str).decode()


def describe(error: BaseException) -> dict[str, object]:
    """Return what may be told about an exception: its class, and the functions it came through."""
    frames = extract_tb(error.__traceback__)
    return {"error": type(error).__name__, "at": [f"{one.name}:{one.lineno}" for one in frames[-8:]]}


def to_standard_error() -> None:
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
    _log.error("failure", extra={"request_id": request_id, **describe(error)})
