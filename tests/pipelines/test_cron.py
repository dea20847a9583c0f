"""Cron expressions compared with their definition: look at every minute, and ask whether it is due."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from omnigraph.errors import UsageError
from omnigraph.pipelines.declaration.cron import Cron, parse_cron

MINUTE = timedelta(minutes=1)
NAMES = {name: str(n) for n, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
MONTHS = {f"{datetime(2026, n, 1):%b}".lower(): str(n) for n in range(1, 13)}


@cache
def matches_field(word: str, value: int, low: int, high: int) -> bool:
    """The definition of a field: one of its items has the value."""
    for item in word.split(","):
        span, _, step = item.partition("/")
        first, _, last = span.partition("-")
        begin, end = (low, high) if span == "*" else (int(first), int(last or first))
        if begin <= value <= end and (value - begin) % int(step or 1) == 0:
            return True
    return False


@cache
def split_fields(text: str) -> list[str]:
    """Return the fields of an expression, with numbers instead of names."""
    minute, hour, day, month, weekday = text.lower().split()
    for names in (NAMES, MONTHS):
        for name, number in names.items():
            month = month.replace(name, number) if names is MONTHS else month
            weekday = weekday.replace(name, number) if names is NAMES else weekday
    return [minute, hour, day, month, weekday]


def matches(text: str, wall: datetime) -> bool:
    """The definition of an expression, for a wall time."""
    minute, hour, day, month, weekday = split_fields(text)
    is_day = matches_field(day, wall.day, 1, 31)
    # Sunday is 0 and 7.
    is_weekday = any(
        matches_field(weekday, number, 0, 6 if "*" in weekday else 7)
        for number in {wall.isoweekday() % 7, wall.isoweekday()}
    )
    is_date = is_day and is_weekday if day[0] == "*" or weekday[0] == "*" else is_day or is_weekday
    return (
        matches_field(minute, wall.minute, 0, 59)
        and matches_field(hour, wall.hour, 0, 23)
        and matches_field(month, wall.month, 1, 12)
        and is_date
    )


def due_minutes(text: str, after: datetime, until: datetime, zone: ZoneInfo) -> list[datetime]:
    """The definition of due moments: walk over real time minute by minute, with the wall clock at hand."""
    is_any_hour = text.split()[1].startswith("*")
    due, shown = [], set[datetime]()
    # What the wall clock has shown before: a day before the start is more than any clock is ever turned back.
    moment = after - timedelta(days=1)
    previous = moment.astimezone(zone).replace(tzinfo=None) - MINUTE
    while moment <= until:
        wall = moment.astimezone(zone).replace(tzinfo=None)
        jumped = [previous + number * MINUTE for number in range(1, (wall - previous) // MINUTE)]
        is_due = matches(text, wall) and (is_any_hour or wall not in shown)
        is_due |= not is_any_hour and any(matches(text, skipped) for skipped in jumped)
        if is_due and moment > after:
            due.append(moment)
        shown.add(wall)
        previous, moment = wall, moment + MINUTE
    return due


def due_by_code(cron: Cron, after: datetime, until: datetime, zone: ZoneInfo) -> list[datetime]:
    return list(takewhile(lambda due: due <= until, cron.after(after, zone)))


def field(low: int, high: int, names: dict[str, str] | None = None) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    bounds = st.tuples(number, number).map(sorted)
    item = st.one_of(
        number.map(str),
        bounds.map(lambda pair: f"{pair[0]}-{pair[1]}"),
        st.tuples(bounds, st.integers(1, 9)).map(lambda both: f"{both[0][0]}-{both[0][1]}/{both[1]}"),
        st.integers(1, 12).map(lambda step: f"*/{step}"),
        *([st.sampled_from(sorted(names)).map(str.upper)] if names else []),
    )
    return st.one_of(st.just("*"), item, st.lists(item, min_size=2, max_size=3).map(",".join))


expressions = st.tuples(
    st.one_of(field(0, 59), st.just("0")), field(0, 23), field(1, 31), field(1, 12, MONTHS), field(0, 7, NAMES)
).map(" ".join)
zones = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/New_York", "America/Santiago", "Australia/Lord_Howe", "Asia/Kathmandu"]
)
# The weeks around changes of these clocks, and any others.
starts = st.one_of(
    st.sampled_from([datetime(2026, 3, 28), datetime(2026, 10, 24), datetime(2026, 4, 4), datetime(2026, 3, 7)]),
    st.datetimes(datetime(2024, 1, 1), datetime(2028, 12, 31)).map(lambda at: at.replace(second=0, microsecond=0)),
)


@settings(max_examples=40, deadline=None)
@given(expressions, zones, starts)
@example("30 2 * * *", "Europe/Berlin", datetime(2026, 3, 28))
@example("30 2 * * *", "Europe/Berlin", datetime(2026, 10, 24))
@example("*/15 * * * *", "Europe/Berlin", datetime(2026, 10, 24))
@example("15 2 * * SAT-SUN", "Australia/Lord_Howe", datetime(2026, 4, 4))
@example("0 12 13 * FRI", "UTC", datetime(2026, 2, 12))
# A shift of half an hour, and one at midnight: cronsim 2.8 loses the run at noon, and adds one at 1:00.
@example("0 */12 * * *", "Australia/Lord_Howe", datetime(2026, 10, 3))
@example("0 */6 6,15 * *", "America/Santiago", datetime(2026, 9, 5))
def test_due_moments_are_those_of_the_definition(text: str, zone_name: str, start: datetime) -> None:
    _, _, day, month, weekday = text.split()
    if weekday.startswith("*") or day.startswith("*"):
        # A day that no month has is refused; `test_wrong_expression_is_refused_with_advice` has these.
        assume(any(matches(f"* * {day} {month} *", start + number * timedelta(days=1)) for number in range(1500)))
    cron = parse_cron(text)
    after, zone = start.replace(tzinfo=UTC), ZoneInfo(zone_name)
    until = after + timedelta(days=2)
    if "SAT-SUN" in text:
        text = text.replace("SAT-SUN", "6-7")
    assert due_by_code(cron, after, until, zone) == due_minutes(text, after, until, zone)


MUTANTS = [
    ("30 2 * * *", "Europe/Berlin", datetime(2026, 3, 28), {"is_any_hour": True}),
    ("30 2 * * *", "Europe/Berlin", datetime(2026, 10, 24), {"is_any_hour": True}),
    ("*/15 * * * *", "Europe/Berlin", datetime(2026, 10, 24), {"is_any_hour": False}),
    ("0 12 13 * FRI", "UTC", datetime(2026, 2, 5), {"is_any_day": True}),
    ("0 0 * * 7", "UTC", datetime(2026, 11, 14), {"weekdays": frozenset({7})}),
]


@pytest.mark.parametrize(("text", "zone_name", "start", "change"), MUTANTS)
def test_definition_catches_a_wrong_rule(text: str, zone_name: str, start: datetime, change: dict[str, object]) -> None:
    after, zone = start.replace(tzinfo=UTC), ZoneInfo(zone_name)
    until = after + timedelta(days=2)
    mutant = replace(parse_cron(text), **change)  # type: ignore[arg-type]
    # A mutant that is never due ends its search by itself.
    found = list(takewhile(lambda due: due <= until, islice(mutant.after(after, zone), 500)))
    assert found != due_minutes(text, after, until, zone)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 2 * *", "not a cron expression of five fields"),
        ("every day", "not a cron expression of five fields"),
        ("60 * * * *", "`60` is not a valid minute"),
        ("0 24 * * *", "use a number from 0 to 23"),
        ("0 0 0 * *", "use a number from 1 to 31"),
        ("0 0 * JANUARY *", "or a name such as `FEB`"),
        ("0 0 31 2,4 *", "never due"),
        ("0 22-2 * * *", "write `22-23,0-2`"),
        ("5/15 * * * *", "a step needs a range, as in `5-59/15`"),
        ("*/0 * * * *", "a step is 1 or more"),
        ("0 0 * * MON#1", "use a number, a range"),
        ("-1 * * * *", "use a number, a range"),
        ("٣ * * * *", "use a number from 0 to 59"),
    ],
)
def test_wrong_expression_is_refused_with_advice(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_cron(text)
    assert message in str(caught.value)


def test_macros_and_rare_days_are_found() -> None:
    utc, start = ZoneInfo("UTC"), datetime(2096, 3, 1, tzinfo=UTC)
    assert next(parse_cron("0 0 29 2 *").after(start, utc)) == datetime(2104, 2, 29, tzinfo=UTC)
    assert next(parse_cron("@Weekly").after(start, utc)) == datetime(2096, 3, 4, tzinfo=UTC)
    assert parse_cron("0 0 31 2 MON").is_on(datetime(2026, 2, 2).date()), "either day field suffices"


def test_leap_day_that_is_a_sunday_comes_after_decades() -> None:
    cron = parse_cron("0 0 29 2 */7")
    years = [year for year in range(2032, 2200, 4) if year != 2100 and datetime(year, 2, 29).isoweekday() == 7]
    # 40 years at most: 2100 is no leap year.
    assert years[:4] == [2032, 2060, 2088, 2128]
    for year, later in pairwise(years[:4]):
        assert next(cron.after(datetime(year, 3, 1, tzinfo=UTC), ZoneInfo("UTC"))) == datetime(later, 2, 29, tzinfo=UTC)
