"""Date and DateTime texts of whole columns in their usual spellings, read place by place with numpy.

Pure. `dates` says what texts mean, and reads the spellings that are left unread here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.rules.kernels import Column, Numbers

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
