"""The schedule of a pipeline: cron expressions of five fields in a time zone, and which runs are due.

An expression speaks of wall time, which a time zone repeats or leaves out twice a year. With hours that start with `*`
it follows real time. With fixed hours, each wall time is due once: a repeated one at its first occurrence, and one
that is left out when the clock jumps over it; so a nightly run happens every night.

Written here because the libraries measured worse, see "Libraries we chose" in CONTRIBUTING.md: behind this parser,
cronsim loses and adds runs where a clock shifts by half an hour or at midnight, and croniter reads `30-30` as any day.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import islice, takewhile
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import yaml

from omnigraph.errors import UsageError
from omnigraph.lang.diagnostic import did_you_mean
from omnigraph.limits import (
    SCHEDULE_CATCH_UP_MAX,
    SCHEDULE_GRACE_SECONDS,
    SCHEDULE_RETRIES_MAX,
    SCHEDULE_RETRY_SECONDS_MAX,
)
from omnigraph.pipelines.declaration.document import PipelineDocument

_FIELDS: Final = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 7))
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_NAMES: Final = {
    "month": {name: number for number, name in enumerate(_MONTHS, 1)},
    "weekday": {name: number for number, name in enumerate(_WEEKDAYS)},
}
_MACROS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
_ITEM: Final = re.compile(r"(?:\*|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>\d+))?")
# A day that an expression names exists at least once in this time: 29 February on a weekday comes every 28 years, or
# every 40 around a year such as 2100.
_DAYS_MAX: Final = 41 * 366
_LONGEST_MONTH: Final = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
_DAY: Final = timedelta(days=1)
# A runner asks for the same days again and again.
_DAYS_CACHED_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed expression; days of the month and of the week are alternatives if both are restricted."""

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    # 0 is Sunday.
    weekdays: frozenset[int]
    is_any_hour: bool
    is_any_day: bool
    is_any_weekday: bool

    def is_on(self, day: date) -> bool:
        """Return True if the expression is due on a day."""
        if day.month not in self.months:
            return False
        is_day, is_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        if self.is_any_day or self.is_any_weekday:
            return is_day and is_weekday
        return is_day or is_weekday

    def after(self, moment: datetime, zone: ZoneInfo) -> Iterator[datetime]:
        """Yield the moments, in UTC, that are due after another one.

        >>> next(parse_cron("30 2 * * *").after(datetime(2026, 3, 28, 12, tzinfo=UTC), ZoneInfo("Europe/Berlin")))
        datetime.datetime(2026, 3, 29, 1, 0, tzinfo=datetime.timezone.utc)
        """
        start = moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        for number in range(_DAYS_MAX):
            begin = start + number * _DAY
            # A day of UTC has moments of two or three local days, in any order where the clock changes at midnight.
            local = [day for offset in (-1, 0, 1) if self.is_on(day := begin.date() + offset * _DAY)]
            due_moments = {due for day in local for due in _moments(self, day, zone) if begin <= due < begin + _DAY}
            yield from (due for due in sorted(due_moments) if due > moment)


@lru_cache(_DAYS_CACHED_MAX)
def _moments(cron: Cron, day: date, zone: ZoneInfo) -> tuple[datetime, ...]:
    """Return the moments at which an expression is due on one of its local days."""
    moments: list[datetime] = []
    for hour in cron.hours:
        for minute in cron.minutes:
            wall = datetime.combine(day, time(hour, minute), zone)
            first, second = (wall.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
            exists = first.astimezone(zone).replace(tzinfo=None) == wall.replace(tzinfo=None)
            if exists:
                moments += [first, second] if cron.is_any_hour else [first]
            elif not cron.is_any_hour:
                moments.append(_find_jump(second, first, zone))
    return tuple(moments)


def _find_jump(low: datetime, high: datetime, zone: ZoneInfo) -> datetime:
    """Return the minute at which the clock jumps: after the first moment, and not after the second."""
    before = low.astimezone(zone).utcoffset()
    while high - low > timedelta(minutes=1):
        middle = low + timedelta(minutes=(high - low) // timedelta(minutes=2))
        low, high = (middle, high) if middle.astimezone(zone).utcoffset() == before else (low, middle)
    return high


def parse_cron(text: str) -> Cron:
    """Parse an expression.

    Raises:
        UsageError: It is not valid, or names a day that never comes.

    >>> sorted(parse_cron("*/20 8-10 * * MON-FRI").hours)
    [8, 9, 10]
    """
    words = _MACROS.get(text.strip().lower(), text).split()
    if len(words) != len(_FIELDS):
        raise UsageError(
            f"`{text}` is not a cron expression of five fields: minute, hour, day of the month, month, day of the week"
            f' (as in "0 2 * * *"), or one of {", ".join(_MACROS)}',
            schedule=text,
        )
    minutes, hours, days, months, weekdays = (
        _parse_field(word, name, low, high, text) for word, (name, low, high) in zip(words, _FIELDS, strict=True)
    )
    # As in Vixie cron, a field that starts with `*` restricts nothing that the other day field does.
    is_any_hour, is_any_day, is_any_weekday = (words[index].startswith("*") for index in (1, 2, 4))
    is_possible = any(day <= _LONGEST_MONTH.get(month, 31) for day in days for month in months)
    if not is_possible and (is_any_day or is_any_weekday):
        raise UsageError(f"`{text}` is never due: no month of it has such a day", schedule=text)
    weekdays = frozenset(day % 7 for day in weekdays)
    return Cron(text, minutes, hours, days, months, weekdays, is_any_hour, is_any_day, is_any_weekday)


def _parse_field(word: str, name: str, low: int, high: int, text: str) -> frozenset[int]:
    values: set[int] = set()
    for item in word.split(","):
        match = _ITEM.fullmatch(item)
        if match is None:
            raise _bad_item(item, name, text, "use a number, a range `a-b`, a step `*/n`, or a list of them")
        if match["first"] is None:
            first, last = low, min(high, 6) if name == "weekday" else high
        else:
            first = _number(match["first"], name, low, high, text)
            last = first if match["last"] is None else _number(match["last"], name, low, high, text)
            if name == "weekday" and last == 0 < first:
                # Sunday ends a week as well as it begins one.
                last = 7
            if match["step"] is not None and match["last"] is None:
                raise _bad_item(item, name, text, f"a step needs a range, as in `{first}-{high}/{match['step']}`")
        if first > last:
            raise _bad_item(item, name, text, f"the range ends before it begins; write `{first}-{high},{low}-{last}`")
        step = int(match["step"] or 1)
        if step == 0:
            raise _bad_item(item, name, text, "a step is 1 or more")
        values.update(range(first, last + 1, step))
    return frozenset(values)


def _number(word: str, name: str, low: int, high: int, text: str) -> int:
    number = _NAMES.get(name, {}).get(word.lower())
    if number is None and word.isascii() and word.isdigit():
        number = int(word)
    if number is None or not low <= number <= high:
        names = f", or a name such as `{list(_NAMES[name])[1].upper()}`" if name in _NAMES else ""
        raise _bad_item(word, name, text, f"use a number from {low} to {high}{names}")
    return number


def _bad_item(item: str, name: str, text: str, advice: str) -> UsageError:
    return UsageError(f"`{item}` is not a valid {name} in the cron expression `{text}`; {advice}", schedule=text)


CatchUp = Literal["last", "all", "none"]
CATCH_UP: Final = ("last", "all", "none")
# More doublings than any pause has room for.
_DOUBLINGS_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a pipeline runs.

    Attributes:
        zone: The time zone of the expression's wall time.
        catch_up: Of runs that were missed, make up for the `last` one, for `all`, or for `none`.
        retries: How often a failed run is tried again.
        retry_seconds: The pause before the first retry; it doubles each time.
    """

    cron: Cron
    zone: ZoneInfo
    catch_up: CatchUp = "last"
    retries: int = 2
    retry_seconds: int = 60

    def next_runs(self, after: datetime, count: int) -> list[datetime]:
        """Return the next moments that are due, in UTC."""
        return list(islice(self.cron.after(after, self.zone), count))

    def due_runs(self, after: datetime, now: datetime) -> tuple[list[datetime], list[datetime]]:
        """Return the runs to start, oldest first, and those to skip, if all up to `after` are settled."""
        missed = list(takewhile(lambda due: due <= now, self.cron.after(after, self.zone)))
        if self.catch_up == "none":
            on_time = now - timedelta(seconds=SCHEDULE_GRACE_SECONDS)
            kept = [due for due in missed if due > on_time][-1:]
        else:
            kept = missed[-SCHEDULE_CATCH_UP_MAX if self.catch_up == "all" else -1 :]
        return kept, missed[: len(missed) - len(kept)]

    def retry_at(self, failures: int, now: datetime) -> datetime | None:
        """Return when to retry after a number of failures; None when the retries are used up."""
        if failures > self.retries:
            return None
        pause = self.retry_seconds * 2 ** min(failures - 1, _DOUBLINGS_MAX)
        return now + timedelta(seconds=min(pause, SCHEDULE_RETRY_SECONDS_MAX))

    def describe(self) -> str:
        """Return the expression, with its time zone unless that is UTC."""
        return self.cron.text if self.zone.key == "UTC" else f"{self.cron.text} {self.zone.key}"


def moment_of(micros: int) -> datetime:
    """Return a time in Unix microseconds as a moment in UTC."""
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros)


def read_schedule(document: PipelineDocument, node: yaml.Node | None) -> Schedule | None:
    """Read a schedule: an expression, or a mapping with more."""
    if node is None:
        return None
    if isinstance(node, yaml.ScalarNode):
        cron = _read_cron(document, node)
        return None if cron is None else Schedule(cron, ZoneInfo("UTC"))
    fields = ("cron", "timezone", "catch_up", "retries", "retry_seconds")
    members = document.fields(node, fields, ("cron",))
    cron = _read_cron(document, members.get("cron"))
    zone = _read_zone(document, members.get("timezone"))
    catch_up: Any = document.word(members.get("catch_up"), CATCH_UP)
    retries = _read_number(document, members.get("retries"), 2, 0, SCHEDULE_RETRIES_MAX)
    retry_seconds = _read_number(document, members.get("retry_seconds"), 60, 1, SCHEDULE_RETRY_SECONDS_MAX)
    return None if cron is None else Schedule(cron, zone, catch_up or "last", retries, retry_seconds)


def _read_cron(document: PipelineDocument, node: yaml.Node | None) -> Cron | None:
    text = document.text(node)
    try:
        return None if text is None else parse_cron(text)
    except UsageError as error:
        document.fault(node, error.message)
        return None


def _read_zone(document: PipelineDocument, node: yaml.Node | None) -> ZoneInfo:
    name = document.text(node) or "UTC"
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        hint = did_you_mean(name, available_timezones()) or "use a name such as `Europe/Berlin`"
        document.fault(node, f"there is no time zone `{name}`; {hint}")
        return ZoneInfo("UTC")


def _read_number(document: PipelineDocument, node: yaml.Node | None, default: int, low: int, high: int) -> int:
    number = document.integer(node)
    if node is None or number is None:
        return default
    if not low <= number <= high:
        document.fault(node, f"expected an integer from {low} to {high}")
    return number
