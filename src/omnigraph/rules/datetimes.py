"""Parses Date and DateTime strings, of both languages and all input formats, to the integers that are stored.

Pure. A Date is days and a DateTime milliseconds since 1970; a string without an offset is UTC.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from omnigraph.rules.arrow_typing import Column, Numbers, pc

DAY_MS: Final = 86_400_000
# The first and the last value of each type: years have four digits, from 0001 to 9999.
DATE_RANGE: Final = (-719_162, 2_932_896)
DATETIME_RANGE: Final = (DATE_RANGE[0] * DAY_MS, (DATE_RANGE[1] + 1) * DAY_MS - 1)
_PLAIN_DATE: Final = "0000-00-00"
_PLAIN_TIME: Final = "00:00:00.000000"
# Fewer strings than this are parsed faster one at a time.
_FEW: Final = 32
# Widths of a timestamp without its zone: to the second, and with one to six digits of a fraction.
_PLAIN_WIDTHS: Final = (19, 21, 22, 23, 24, 25, 26)


# Written here because it measured better: 300,000 timestamps take 10 ms, an Arrow cast behind a regular expression 32
# ms; the cast alone accepts strings that are not timestamps, such as `2024-01-01T00Z`.
def _parse_columnwise(texts: Column, read: Callable[[Numbers], Numbers | None]) -> Column | None:
    """Parse strings as character matrices, one for each length, with one numpy operation per character position.

    Returns None if `read` does, which is the case for any format that is valid but uncommon.
    """
    present = texts.drop_null() if texts.null_count else texts
    offsets = np.frombuffer(present.buffers()[1], np.int32)[present.offset : present.offset + len(present) + 1]
    raw = np.frombuffer(present.buffers()[2] or b"", np.uint8)
    lengths = np.diff(offsets)
    if len(present) < _FEW:
        return None
    # Row i of the matrix holds character i of all strings.
    if (lengths == lengths[0]).all():
        numbers = read(np.ascontiguousarray(raw[offsets[0] : offsets[-1]].reshape(len(present), lengths[0]).T))
    else:
        numbers = _by_width(raw, offsets[:-1], lengths, read)
    if numbers is None:
        return None
    if not texts.null_count:
        return pa.array(numbers)
    is_null = texts.is_null().to_numpy(zero_copy_only=False)
    return pa.array(numbers[np.maximum(np.cumsum(~is_null) - 1, 0)], mask=is_null)


def _by_width(
    raw: Numbers, starts: Numbers, lengths: Numbers, read: Callable[[Numbers], Numbers | None]
) -> Numbers | None:
    numbers = np.empty(len(lengths), np.int64)
    widths = np.unique(lengths)
    if len(widths) > len(_PLAIN_WIDTHS):
        return None
    for width in widths.tolist():
        rows = lengths == width
        parsed = read(raw[starts[rows] + np.arange(width)[:, None]])
        if parsed is None:
            return None
        numbers[rows] = parsed
    return numbers


def _read_dates(characters: Numbers) -> Numbers | None:
    """Return the days of dates; None unless all have the common format `2024-01-31`."""
    if len(characters) != len(_PLAIN_DATE) or not _has_shape(characters, _PLAIN_DATE):
        return None
    year, month, day = _number(characters[0:4]), _number(characters[5:7]), _number(characters[8:10])
    if year.min() < 1 or month.min() < 1 or month.max() > 12 or day.min() < 1:
        return None
    first_days = _first_days()
    months = year * 12 + month - 1
    days: Numbers = first_days[months] + day - 1
    return days if (days < first_days[months + 1]).all() else None


@cache
def _first_days() -> Numbers:
    """Return the first day of every month from year 0 to year 9999."""
    months = np.arange(-1970 * 12, (10_000 - 1970) * 12 + 1).astype("datetime64[M]")
    return months.astype("datetime64[D]").astype(np.int32)


def _read_timestamps(characters: Numbers) -> Numbers | None:
    """Return the milliseconds of timestamps or dates; None unless all have a common format."""
    end, offset = _read_zone(characters)
    if end == len(_PLAIN_DATE):
        days = _read_dates(characters) if end == len(characters) else None
        return None if days is None else days.astype(np.int64) * DAY_MS
    if end not in _PLAIN_WIDTHS or not _has_shape(characters[11:end], _PLAIN_TIME[: end - 11]):
        return None
    days = _read_dates(characters[:10])
    hour, minute, second = _number(characters[11:13]), _number(characters[14:16]), _number(characters[17:19])
    is_split = ((characters[10] == ord("T")) | (characters[10] == ord(" "))).all()
    if days is None or offset is None or not is_split or hour.max() > 23 or minute.max() > 59 or second.max() > 59:
        return None
    fraction = characters[20 : min(end, 23)]
    milliseconds = ((hour * 60 + minute - offset) * 60 + second) * 1_000 + _number(fraction) * 10 ** (3 - len(fraction))
    instants: Numbers = days.astype(np.int64) * DAY_MS + milliseconds
    # An offset may lead out of the first or the last year.
    low, high = DATETIME_RANGE
    return instants if low <= instants.min() and instants.max() <= high else None


def _read_zone(characters: Numbers) -> tuple[int, Numbers | None]:
    """Return where the zone begins, and the minutes ahead of UTC, or None if the zone is malformed."""
    size = len(characters)
    if size and (characters[-1] == ord("Z")).all():
        return size - 1, np.zeros(1, np.int32)
    if size > 19 + 6 - 1 and _has_shape(characters[-5:], "00:00"):
        hour, minute = _number(characters[-5:-3]), _number(characters[-2:])
        is_ahead, is_behind = characters[-6] == ord("+"), characters[-6] == ord("-")
        if hour.max() > 23 or minute.max() > 59 or not (is_ahead | is_behind).all():
            return size - 6, None
        return size - 6, np.where(is_ahead, 1, -1) * (hour * 60 + minute)
    return size, np.zeros(1, np.int32)


def _has_shape(characters: Numbers, shape: str) -> bool:
    """Return True if all strings have a shape, in which 0 represents any digit."""
    # Unsigned subtraction wraps characters below `0` around to large numbers.
    return all(
        bool((column - np.uint8(ord("0")) <= 9).all() if expected == "0" else (column == ord(expected)).all())
        for column, expected in zip(characters, shape, strict=True)
    )


def _number(characters: Numbers) -> Numbers:
    total = np.zeros(characters.shape[1], np.int32)
    for digits in characters:
        total = total * 10 + (digits - np.uint8(ord("0")))
    return total


_DATE: Final = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})|(\d{4})(\d{2})(\d{2})", re.ASCII)
_DATETIME: Final = re.compile(
    r"(\d{4}-\d{1,2}-\d{1,2})[T ](\d{2}):(\d{2}):(\d{2})(?:\.(\d+))?(?:Z|([+-])(\d{2}):(\d{2}))?", re.ASCII
)
_EPOCH: Final = dt.date(1970, 1, 1).toordinal()


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
        return dt.date(year, month, day).toordinal() - _EPOCH
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


def are_in_calendar(instants: Column) -> bool:
    """Return whether all values of a column of Date, DateTime or their integers lie in the years 0001 to 9999."""
    is_date = instants.type in (pa.int32(), pa.date32())
    bounds = pc.min_max(instants.view(pa.int32() if is_date else pa.int64())).as_py()
    low, high = DATE_RANGE if is_date else DATETIME_RANGE
    return bounds["min"] is None or (low <= bounds["min"] and bounds["max"] <= high)


def date_column(texts: Column) -> Column | None:
    """Convert a column of strings to Date; None if one of them is not a date."""
    days = _parse_all(texts, _read_dates, parse_days)
    return None if days is None else days.cast(pa.int32()).view(pa.date32())


def datetime_column(texts: Column) -> Column | None:
    """Convert a column of strings to DateTime; None if one of them is not a timestamp or date."""
    milliseconds = _parse_all(texts, _read_timestamps, parse_milliseconds)
    return None if milliseconds is None else milliseconds.view(pa.date64())


def _parse_all(texts: Column, read: Any, parse: Any) -> Column | None:
    numbers = _parse_columnwise(texts, read)
    if numbers is not None:
        return numbers
    # Uncommon formats are parsed one at a time, but each distinct string only once.
    distinct = {text: parse(text) for text in set(texts.to_pylist()) if text is not None}
    return None if None in distinct.values() else pa.array(map(distinct.get, texts.to_pylist()), pa.int64())
