"""The schedule of a pipeline, and which of its runs are due."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
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
from omnigraph.pipeline.declared.cron import Cron, parse_cron
from omnigraph.pipeline.declared.document import PipelineDocument

CatchUp = Literal["last", "all", "none"]
CATCH_UP: Final = ("last", "all", "none")
# More doublings than any pause has room for.
_DOUBLINGS_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a pipeline runs.

    Attributes:
        cron: The expression.
        zone: The time zone that its wall time is in.
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
        """Return when to try again after so many failures; None if there were enough."""
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
    cron = _read_cron(document, members["cron"]) if "cron" in members else None
    zone = _read_zone(document, members.get("timezone"))
    catch_up: Any = document.word(members["catch_up"], CATCH_UP) if "catch_up" in members else "last"
    retries = _read_number(document, members.get("retries"), 2, 0, SCHEDULE_RETRIES_MAX)
    retry_seconds = _read_number(document, members.get("retry_seconds"), 60, 1, SCHEDULE_RETRY_SECONDS_MAX)
    return None if cron is None else Schedule(cron, zone, catch_up or "last", retries, retry_seconds)


def _read_cron(document: PipelineDocument, node: yaml.Node) -> Cron | None:
    text = document.text(node)
    try:
        return None if text is None else parse_cron(text)
    except UsageError as error:
        document.fault(node, error.message)
        return None


def _read_zone(document: PipelineDocument, node: yaml.Node | None) -> ZoneInfo:
    name = "UTC" if node is None else document.text(node)
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        hint = did_you_mean(str(name), available_timezones()) or "use a name such as `Europe/Berlin`"
        document.fault(node, f"there is no time zone `{name}`; {hint}")
        return ZoneInfo("UTC")


def _read_number(document: PipelineDocument, node: yaml.Node | None, default: int, low: int, high: int) -> int:
    number = document.integer(node)
    if node is None or number is None:
        return default
    if not low <= number <= high:
        document.fault(node, f"expected an integer from {low} to {high}")
    return number
