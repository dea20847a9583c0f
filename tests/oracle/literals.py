"""Values as `.gq` writes them, and as a caller passes them."""

from __future__ import annotations

import datetime as dt
from typing import Any


def literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quote_text(value)
    if isinstance(value, dt.datetime):
        return f'datetime("{to_json(value)}")'
    if isinstance(value, dt.date):
        return f'date("{value.isoformat()}")'
    if isinstance(value, dt.timedelta):
        return f'duration("{to_json(value)}")'
    if isinstance(value, float):
        text = repr(value)
        return text if "e" not in text else f"{value:f}"
    return str(value)


def quote_text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def to_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [to_json(item) for item in value]
    if isinstance(value, dt.datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, dt.timedelta):
        seconds, rest = divmod(abs(value), dt.timedelta(seconds=1))
        return f"{'-' if value < dt.timedelta() else ''}PT{seconds}.{rest // dt.timedelta(milliseconds=1):03}S"
    return value.isoformat() if isinstance(value, dt.date) else value
