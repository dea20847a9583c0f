"""The texts of dates and times, and the integers that they are stored as: of both languages and all input formats.

Pure, one value at a time; `rules.time_columns` reads whole columns. A Date is days and a DateTime milliseconds since
1970; a text without an offset is UTC. A Duration is milliseconds, and its days have 24 hours.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

DAY_MS: Final = 86_400_000
# The first and the last value of each type: years have four digits, from 0001 to 9999.
DATE_RANGE: Final = (-719_162, 2_932_896)
DATETIME_RANGE: Final = (DATE_RANGE[0] * DAY_MS, (DATE_RANGE[1] + 1) * DAY_MS - 1)
# Exact as the floats of JSON, and in the microseconds that Spark counts.
DURATION_RANGE: Final = (1 - 2**53, 2**53 - 1)
_CALENDAR: Final = "dates lie between 0001-01-01 and 9999-12-31"


@dataclass(frozen=True, slots=True)
class TimeForm:
    """How values that are stored as integers are written.

    `read` takes any text that inputs may have. Of these, `shape` are those that tell the type of a column, `literal`
    those of a schema, and `canonical` those that `write` makes and that `cast` takes. `convert` takes a Python object,
    and `at` an instant in milliseconds, which is what `now()` means. All return None for no value; `convert` raises
    `ValueError` for one that cannot be stored.
    """

    example: str
    shape: str
    literal: str
    canonical: str
    read: Callable[[str], int | None]
    write: Callable[[int], str | None]
    convert: Callable[[object], int | None]
    extent: str
    at: Callable[[int], int] | None = None

    def is_literal(self, text: str) -> bool:
        return re.fullmatch(self.literal, text) is not None and self.read(text) is not None


_DATE: Final = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})|(\d{4})(\d{2})(\d{2})", re.ASCII)
_DATETIME: Final = re.compile(
    r"(\d{4}-\d{1,2}-\d{1,2})[T ](\d{2}):(\d{2}):(\d{2})(?:\.(\d+))?(?:Z|([+-])(\d{2}):(\d{2}))?", re.ASCII
)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND: Final = dt.timedelta(milliseconds=1)


def parse_days(text: str) -> int | None:
    """Return the day of a date, or the UTC day of a timestamp; None if the string is neither.

    >>> parse_days("1970-1-2"), parse_days("19700103"), parse_days("1970-01-02T00:30:00+01:00"), parse_days("2024")
    (1, 2, 0, None)
    """
    days = _days(text)
    if days is None and (milliseconds := _milliseconds(text)) is not None:
        days = milliseconds // DAY_MS
    return days


def parse_milliseconds(text: str) -> int | None:
    """Return the milliseconds of a timestamp, or of midnight of a date; None if the string is neither.

    >>> parse_milliseconds("1970-01-01T00:00:01.0019Z"), parse_milliseconds("1970-01-02"), parse_milliseconds("12:00")
    (1001, 86400000, None)
    """
    days = _days(text)
    return days * DAY_MS if days is not None else _milliseconds(text)


def _days(text: str) -> int | None:
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    year, month, day = (int(part) for part in match.groups() if part is not None)
    try:
        return (dt.date(year, month, day) - _EPOCH.date()).days
    except ValueError:
        return None


def _milliseconds(text: str) -> int | None:
    match = _DATETIME.fullmatch(text)
    days = _days(match[1]) if match else None
    if match is None or days is None:
        return None
    hour, minute, second = int(match[2]), int(match[3]), int(match[4])
    offset_hours, offset_minutes = int(match[7] or 0), int(match[8] or 0)
    if hour > 23 or minute > 59 or second > 59 or offset_hours > 23 or offset_minutes > 59:
        return None
    offset = (offset_hours * 60 + offset_minutes) * (-1 if match[6] == "-" else 1)
    minutes = hour * 60 + minute - offset
    instant = days * DAY_MS + minutes * 60_000 + second * 1_000 + int((match[5] or "")[:3].ljust(3, "0"))
    low, high = DATETIME_RANGE
    return instant if low <= instant <= high else None


def _write_date(days: int) -> str | None:
    moment = _moment(days * DAY_MS)
    return None if moment is None else moment.date().isoformat()


def _write_instant(milliseconds: int) -> str | None:
    moment = _moment(milliseconds)
    return None if moment is None else f"{moment.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


def _moment(milliseconds: int) -> dt.datetime | None:
    low, high = DATETIME_RANGE
    return _EPOCH + dt.timedelta(milliseconds=milliseconds) if low <= milliseconds <= high else None


def _instant_of(value: object) -> int | None:
    """Return the milliseconds of a Python date, or of a datetime, which is UTC unless it has a zone."""
    if isinstance(value, dt.datetime):
        return ((value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)) - _EPOCH) // _MILLISECOND
    return (value - _EPOCH.date()).days * DAY_MS if isinstance(value, dt.date) else None


def _day_of(value: object) -> int | None:
    milliseconds = _instant_of(value)
    return None if milliseconds is None else milliseconds // DAY_MS


# In the syntax that Python and RE2 share; the parts of a duration are named.
DURATION_PATTERN: Final = (
    r"^(?P<sign>-?)P(?:(?P<weeks>[0-9]{1,9})W)?(?:(?P<days>[0-9]{1,9})D)?"
    r"(?:T(?:(?P<hours>[0-9]{1,12})H)?(?:(?P<minutes>[0-9]{1,12})M)?"
    r"(?:(?P<seconds>[0-9]{1,15})(?:\.(?P<fraction>[0-9]{1,9}))?S)?)?$"
)
DURATION_UNITS: Final = {"weeks": 7 * DAY_MS, "days": DAY_MS, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}
_PLAIN_DATE: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_PLAIN_INSTANT: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
DATE: Final = TimeForm(
    example="2024-01-31",
    shape=_PLAIN_DATE,
    literal=_PLAIN_DATE,
    canonical=_PLAIN_DATE,
    read=parse_days,
    write=_write_date,
    convert=_day_of,
    extent=_CALENDAR,
    at=lambda milliseconds: milliseconds // DAY_MS,
)
DATETIME: Final = TimeForm(
    example="2024-01-31T12:30:00Z",
    shape="^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]",
    literal=rf"{_PLAIN_INSTANT}(\.[0-9]{{1,6}})?(Z|[+-][0-9]{{2}}:[0-9]{{2}})?$",
    canonical=rf"{_PLAIN_INSTANT}(\.[0-9]{{1,3}})?Z$",
    read=parse_milliseconds,
    write=_write_instant,
    convert=_instant_of,
    extent=_CALENDAR,
    at=lambda milliseconds: milliseconds,
)


def parse_duration(text: str) -> int | None:
    """Return the milliseconds of an ISO 8601 duration from weeks down to seconds; None for another text.

    >>> parse_duration("P1DT2H"), parse_duration("-PT0.5S"), parse_duration("P1M"), parse_duration("PT0.0005S")
    (93600000, -500, None, None)
    """
    match = re.fullmatch(DURATION_PATTERN, text)
    # A unit must be there, and one behind a `T`.
    if match is None or text[-1] in "PT":
        return None
    parts = match.groupdict(default="")
    thousandths = parts["fraction"].rstrip("0")
    total = sum(int(parts[unit] or 0) * size for unit, size in DURATION_UNITS.items())
    total += int(thousandths.ljust(3, "0"))
    # Months and years have no fixed length, and what is finer than a millisecond cannot be stored.
    is_stored = len(thousandths) <= 3 and total <= DURATION_RANGE[1]
    return (-total if parts["sign"] else total) if is_stored else None


def _write_duration(milliseconds: int) -> str | None:
    """Return a duration in days, hours, minutes and seconds."""
    rest, fraction = divmod(abs(milliseconds), 1_000)
    parts: list[str] = []
    for unit, size in (("S", 60), ("M", 60), ("H", 24)):
        rest, count = divmod(rest, size)
        shown = f"{count}.{fraction:03}".rstrip("0").rstrip(".") if unit == "S" else str(count)
        parts += [] if shown == "0" else [f"{shown}{unit}"]
    date, time = f"{rest}D" if rest else "", "".join(parts[::-1])
    if not date and not time:
        return "PT0S"
    return f"{'-' if milliseconds < 0 else ''}P{date}" + (f"T{time}" if time else "")


def _duration_of(value: object) -> int | None:
    """Return the milliseconds of a Python timedelta."""
    if not isinstance(value, dt.timedelta):
        return None
    milliseconds, finer = divmod(value, _MILLISECOND)
    if finer:
        raise ValueError("is finer than a millisecond; round it")
    if abs(milliseconds) > DURATION_RANGE[1]:
        raise ValueError(f"is too long; {DURATION.extent}")
    return milliseconds


DURATION: Final = TimeForm(
    example="P1DT2H30M",
    shape=DURATION_PATTERN,
    literal=DURATION_PATTERN,
    canonical=DURATION_PATTERN,
    read=parse_duration,
    write=_write_duration,
    convert=_duration_of,
    extent="durations have up to 104,249,991 days",
)
