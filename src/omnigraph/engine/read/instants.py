"""Dates and instants: from their text, as every surface writes it, to the integers that are stored.

Pure; knows the calendar and nothing of queries.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Final

_DAY: Final = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})|(\d{4})(\d{2})(\d{2})", re.ASCII)
_INSTANT: Final = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})[T ](\d{2}):(\d{2}):(\d{2})(?:\.(\d+))?(?:(Z)|([+-])(\d{2}):(\d{2}))?", re.ASCII
)
_EPOCH: Final = dt.date(1970, 1, 1)
MILLISECONDS_PER_DAY: Final = 86_400_000


def days_of(text: str) -> int | None:
    """Return the days since 1970 of a date, or of the UTC day of an instant; None when the text is neither.

    >>> days_of("2024-01-31"), days_of("20240131"), days_of("2024-01-31T23:30:00-01:00"), days_of("31/01/2024")
    (19753, 19753, 19754, None)
    """
    found = _DAY.fullmatch(text)
    if found is not None:
        return _days(*(int(part) for part in found.groups() if part is not None))
    milliseconds = _milliseconds(text)
    return None if milliseconds is None else milliseconds // MILLISECONDS_PER_DAY


def milliseconds_of(text: str) -> int | None:
    """Return the milliseconds since 1970 of an instant, or of the midnight that begins a date; None when neither.

    >>> milliseconds_of("1970-01-02"), milliseconds_of("1970-01-01 00:00:01.2345Z"), milliseconds_of("10:30")
    (86400000, 1234, None)
    """
    if _DAY.fullmatch(text) is not None:
        days = days_of(text)
        return None if days is None else days * MILLISECONDS_PER_DAY
    return _milliseconds(text)


def _days(year: int, month: int, day: int) -> int | None:
    try:
        return (dt.date(year, month, day) - _EPOCH).days
    except ValueError:
        return None


def _milliseconds(text: str) -> int | None:
    found = _INSTANT.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    fraction, _, sign, offset_hours, offset_minutes = found.groups()[6:]
    days = _days(year, month, day)
    if days is None or hour > 23 or minute > 59 or second > 59:
        return None
    offset = 0
    if sign is not None:
        if int(offset_hours) > 23 or int(offset_minutes) > 59:
            return None
        offset = (int(offset_hours) * 60 + int(offset_minutes)) * 60_000 * (-1 if sign == "-" else 1)
    whole = ((hour * 60 + minute) * 60 + second) * 1_000 + int(((fraction or "") + "000")[:3])
    return days * MILLISECONDS_PER_DAY + whole - offset
