"""Date and DateTime texts, as both languages and the input formats spell them, to the integers that are stored.

Pure. A Date is days and a DateTime milliseconds since 1970; a text without an offset is UTC.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from omnigraph.rules.arrow_typing import Column, Numbers

DAY_MS: Final = 86_400_000
_PLAIN_DATE: Final = "0000-00-00"
_PLAIN_TIME: Final = "00:00:00.000000"
# So few texts are read faster one by one.
_FEW: Final = 32
# To the second, and with one to six digits of a fraction.
_PLAIN_WIDTHS: Final = (19, 21, 22, 23, 24, 25, 26)


def read_days(texts: Column) -> Column | None:
    """Return the days of a column of dates; None unless all of them are spelled in a usual way."""
    return _by_place(texts, _read_dates)


def read_milliseconds(texts: Column) -> Column | None:
    """Return the instants of a column of timestamps and dates; None unless all are spelled in a usual way."""
    return _by_place(texts, _read_instants)


def _by_place(texts: Column, read: Callable[[Numbers], Numbers | None]) -> Column | None:
    """Read texts as matrices of characters, one for each length; None unless all are spelled in a usual way."""
    present = texts.drop_null() if texts.null_count else texts
    offsets = np.frombuffer(present.buffers()[1], np.int32)[present.offset : present.offset + len(present) + 1]
    raw = np.frombuffer(present.buffers()[2] or b"", np.uint8)
    lengths = np.diff(offsets)
    if len(present) < _FEW:
        return None
    # A row of such a matrix holds one place of all texts.
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
        found = read(raw[starts[rows] + np.arange(width)[:, None]])
        if found is None:
            return None
        numbers[rows] = found
    return numbers


def _read_dates(places: Numbers) -> Numbers | None:
    if len(places) != len(_PLAIN_DATE) or not _has_shape(places, _PLAIN_DATE):
        return None
    year, month, day = _number(places[0:4]), _number(places[5:7]), _number(places[8:10])
    if year.min() < 1 or month.min() < 1 or month.max() > 12 or day.min() < 1:
        return None
    first_days = _first_days()
    months = year * 12 + month - 1
    days: Numbers = first_days[months] + day - 1
    return days if (days < first_days[months + 1]).all() else None


@cache
def _first_days() -> Numbers:
    """Return the first day of every month from the year 0 on."""
    months = np.arange(-1970 * 12, (10_000 - 1970) * 12 + 1).astype("datetime64[M]")
    return months.astype("datetime64[D]").astype(np.int32)


def _read_instants(places: Numbers) -> Numbers | None:
    end, offset = _read_zone(places)
    if end == len(_PLAIN_DATE):
        days = _read_dates(places) if end == len(places) else None
        return None if days is None else days.astype(np.int64) * DAY_MS
    if end not in _PLAIN_WIDTHS or not _has_shape(places[11:end], _PLAIN_TIME[: end - 11]):
        return None
    days = _read_dates(places[:10])
    hour, minute, second = _number(places[11:13]), _number(places[14:16]), _number(places[17:19])
    is_split = ((places[10] == ord("T")) | (places[10] == ord(" "))).all()
    if days is None or offset is None or not is_split or hour.max() > 23 or minute.max() > 59 or second.max() > 59:
        return None
    fraction = places[20 : min(end, 23)]
    milliseconds = ((hour * 60 + minute - offset) * 60 + second) * 1_000 + _number(fraction) * 10 ** (3 - len(fraction))
    return days.astype(np.int64) * DAY_MS + milliseconds


def _read_zone(places: Numbers) -> tuple[int, Numbers | None]:
    """Return where the zones of instants begin, and how many minutes they are ahead of UTC; None if that is unclear."""
    size = len(places)
    if size and (places[-1] == ord("Z")).all():
        return size - 1, np.zeros(1, np.int32)
    if size > 19 + 6 - 1 and _has_shape(places[-5:], "00:00"):
        hour, minute = _number(places[-5:-3]), _number(places[-2:])
        is_ahead, is_behind = places[-6] == ord("+"), places[-6] == ord("-")
        if hour.max() > 23 or minute.max() > 59 or not (is_ahead | is_behind).all():
            return size - 6, None
        return size - 6, np.where(is_ahead, 1, -1) * (hour * 60 + minute)
    return size, np.zeros(1, np.int32)


def _has_shape(places: Numbers, shape: str) -> bool:
    """Tell whether all texts have a shape, in which a 0 stands for any digit."""
    # A character below the zero wraps around to a large number.
    return all(
        bool((place - np.uint8(ord("0")) <= 9).all() if wanted == "0" else (place == ord(wanted)).all())
        for place, wanted in zip(places, shape, strict=True)
    )


def _number(places: Numbers) -> Numbers:
    total = np.zeros(places.shape[1], np.int32)
    for place in places:
        total = total * 10 + (place - np.uint8(ord("0")))
    return total


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
