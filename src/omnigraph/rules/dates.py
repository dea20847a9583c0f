"""Date and DateTime texts, as both languages and the input formats spell them, to the integers that are stored.

Pure. A Date is days and a DateTime milliseconds since 1970; a text without an offset is UTC.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Any, Final

import pyarrow as pa

from omnigraph.rules.dateplaces import DAY_MS, read_days, read_milliseconds
from omnigraph.rules.kernels import Column

_DATE: Final = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})|(\d{4})(\d{2})(\d{2})", re.ASCII)
_DATETIME: Final = re.compile(
    r"(\d{4}-\d{1,2}-\d{1,2})[T ](\d{2}):(\d{2}):(\d{2})(?:\.(\d+))?(?:Z|([+-])(\d{2}):(\d{2}))?", re.ASCII
)
_EPOCH: Final = dt.date(1970, 1, 1).toordinal()


def parse_days(text: str) -> int | None:
    """Return the day of a date, or the UTC day of a timestamp; None when it is neither.

    >>> parse_days("1970-1-2"), parse_days("19700103"), parse_days("1970-01-02T00:30:00+01:00"), parse_days("2024")
    (1, 2, 0, None)
    """
    days = _days(text)
    if days is None and (milliseconds := _milliseconds(text)) is not None:
        days = milliseconds // DAY_MS
    return days


def parse_milliseconds(text: str) -> int | None:
    """Return the instant of a timestamp, or midnight of a date; None when it is neither.

    >>> parse_milliseconds("1970-01-01T00:00:01.0019Z"), parse_milliseconds("1970-01-02"), parse_milliseconds("12:00")
    (1001, 86400000, None)
    """
    days = _days(text)
    return days * DAY_MS if days is not None else _milliseconds(text)


def _days(text: str) -> int | None:
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    year, month, day = (int(part) for part in found.groups() if part is not None)
    try:
        return dt.date(year, month, day).toordinal() - _EPOCH
    except ValueError:
        return None


def _milliseconds(text: str) -> int | None:
    found = _DATETIME.fullmatch(text)
    days = _days(found[1]) if found else None
    if found is None or days is None:
        return None
    hour, minute, second = int(found[2]), int(found[3]), int(found[4])
    offset_hours, offset_minutes = int(found[7] or 0), int(found[8] or 0)
    if hour > 23 or minute > 59 or second > 59 or offset_hours > 23 or offset_minutes > 59:
        return None
    offset = (offset_hours * 60 + offset_minutes) * (-1 if found[6] == "-" else 1)
    minutes = hour * 60 + minute - offset
    return days * DAY_MS + minutes * 60_000 + second * 1_000 + int((found[5] or "")[:3].ljust(3, "0"))


def date_column(texts: Column) -> Column | None:
    """Return a column of texts as Date; None when one of them is no date, which `parse_days` then finds."""
    days = read_days(texts)
    return (
        days.cast(pa.int32()).view(pa.date32())
        if days is not None
        else _each(texts, parse_days, pa.int32(), pa.date32())
    )


def datetime_column(texts: Column) -> Column | None:
    """Return a column of texts as DateTime; None when one of them is no date."""
    instants = read_milliseconds(texts)
    return (
        instants.view(pa.date64())
        if instants is not None
        else _each(texts, parse_milliseconds, pa.int64(), pa.date64())
    )


def _each(texts: Column, parse: Any, stored: pa.DataType, logical: pa.DataType) -> Column | None:
    # Unusual spellings are parsed one by one, but each only once.
    distinct = {text: parse(text) for text in set(texts.to_pylist()) if text is not None}
    if None in distinct.values():
        return None
    return pa.array(map(distinct.get, texts.to_pylist()), stored).view(logical)
