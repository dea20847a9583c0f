"""Columns of dates and times: read from strings, written as strings, and as other libraries know them.

Pure; `lang.times` reads and writes a single value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from omnigraph.lang.scalars import RANGES, TIME_FORMS, Scalar
from omnigraph.lang.schema.arrow_schema import ARROW_TYPES, PHYSICAL
from omnigraph.lang.times import DATETIME_RANGE, DAY_MS, DURATION_PATTERN, DURATION_UNITS
from omnigraph.rules.arrow_typing import Column, Numbers, pc

# Arrow takes its date64 for whole days wherever it converts it, so instants are converted as these.
TIMESTAMP: Final[Any] = pa.timestamp("ms", "UTC")


def parse_times(texts: Column, scalar: Scalar, *, others_are_null: bool = False) -> Column | None:
    """Convert a column of strings to a type of dates or times; None if one of them is none, unless those are null."""
    stored, numbers = ARROW_TYPES[scalar], _READERS[scalar](texts)
    if numbers is None:
        # Uncommon formats are parsed one at a time, but each distinct string only once.
        read = TIME_FORMS[scalar].read
        distinct = {text: read(text) for text in set(texts.to_pylist()) if text is not None}
        if None in distinct.values() and not others_are_null:
            return None
        numbers = pa.array(map(distinct.get, texts.to_pylist()), pa.int64())
    return numbers.cast(PHYSICAL[stored]).view(stored)


def time_texts(values: Column) -> Column:
    """Return a column of dates or times as the strings that queries show.

    >>> time_texts(pa.array([1_704_164_645_000, None]).view(pa.date64())).to_pylist()
    ['2024-01-02T03:04:05.000Z', None]
    """
    return _WRITERS[values.type](values)


def is_in_range(column: Column, scalar: Scalar) -> bool:
    """Return True if all values of a column of a type, or of its integers, lie in the range of the type."""
    bounds = pc.min_max(column.view(PHYSICAL[ARROW_TYPES[scalar]])).as_py()
    low, high = RANGES[scalar]
    return bounds["min"] is None or (low <= bounds["min"] and bounds["max"] <= high)


def to_timestamps(column: Column) -> Column:
    """Return a column of DateTime, or of lists of it, as timestamps, and any other as it is."""
    type_ = column.type
    if type_ == ARROW_TYPES[Scalar.DATETIME]:
        return column.view(TIMESTAMP)
    is_list = pa.types.is_list(type_) and type_.value_type == ARROW_TYPES[Scalar.DATETIME]
    return column.view(pa.list_(TIMESTAMP)) if is_list else column


def from_timestamps(column: Column, type_: pa.DataType) -> Column:
    """Return timestamps, or lists of them, as a column of DateTime; below the millisecond they must be zero."""
    return column.cast(pa.list_(TIMESTAMP) if pa.types.is_list(type_) else TIMESTAMP).view(type_)


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


def _write_instants(values: Column) -> Column:
    # Formatting by a pattern takes eight times as long.
    instants = pc.cast(values.view(pa.int64()).view(pa.timestamp("ms")), pa.string())
    return pc.binary_join_element_wise(pc.replace_substring(instants, " ", "T"), "Z", "")


def _read_durations(texts: Column) -> Column | None:
    """Return the milliseconds of durations; None if a text is none."""
    parts = pc.extract_regex(texts, pattern=DURATION_PATTERN)
    has_no_unit = pc.match_substring_regex(texts, "[PT]$")
    thousandths = pc.utf8_rtrim(pc.struct_field(parts, "fraction"), characters="0")
    is_finer = pc.greater(pc.utf8_length(thousandths), 3)
    if parts.null_count > texts.null_count or pc.any(pc.or_(has_no_unit, is_finer)).as_py():
        return None
    total = _integers(pc.utf8_rpad(thousandths, 3, "0"))
    for unit, size in DURATION_UNITS.items():
        total = pc.add(total, pc.multiply(_integers(pc.struct_field(parts, unit)), size))
    total = pc.if_else(pc.equal(pc.struct_field(parts, "sign"), "-"), pc.negate(total), total)
    return total if is_in_range(total, Scalar.DURATION) else None


def _integers(digits: Column) -> Column:
    return pc.if_else(pc.equal(digits, ""), "0", digits).cast(pa.int64())


def _write_durations(values: Column) -> Column:
    milliseconds = values.view(pa.int64())
    length = pc.fill_null(pc.abs(milliseconds), 0).to_numpy(zero_copy_only=False)
    date = _count_unit(pa.array(length // DAY_MS), "D")
    time = pc.binary_join_element_wise(
        _count_unit(pa.array(length // 3_600_000 % 24), "H"),
        _count_unit(pa.array(length // 60_000 % 60), "M"),
        _count_unit(pa.array(length % 60_000 / 1_000), "S"),
        "",
    )
    sign = pc.if_else(pc.less(milliseconds, 0), "-", "")
    texts = pc.binary_join_element_wise(sign, "P", date, pc.if_else(pc.equal(time, ""), "", "T"), time, "")
    return pc.if_else(pc.equal(milliseconds, 0), "PT0S", texts)


def _count_unit(counts: Column, unit: str) -> Column:
    return pc.if_else(pc.equal(counts, 0), "", pc.binary_join_element_wise(counts.cast(pa.string()), unit, ""))


# How a column of strings in common formats is read at once.
_READERS: Final[Mapping[Scalar, Callable[[Column], Column | None]]] = {
    Scalar.DATE: partial(_parse_columnwise, read=_read_dates),
    Scalar.DATETIME: partial(_parse_columnwise, read=_read_timestamps),
    Scalar.DURATION: _read_durations,
}
_WRITERS: Final[Mapping[pa.DataType, Callable[[Column], Column]]] = {
    ARROW_TYPES[Scalar.DATE]: lambda days: days.cast(pa.string()),
    ARROW_TYPES[Scalar.DATETIME]: _write_instants,
    ARROW_TYPES[Scalar.DURATION]: _write_durations,
}
