"""Three sources that change day by day, and what a graph that follows them must hold, from the definition of the data.

Accounts are rows of a table that are changed in place, tickets are events of which the newest counts, and topics are
lines of which the newest counts. Nothing here knows how a pipeline works.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

START: Final = dt.datetime(2026, 3, 25)
# The first number of a day is left free, for an event of that day which comes late.
SEQUENCE_OF_A_DAY: Final = 1_000


@dataclass(frozen=True, slots=True)
class Account:
    """A row of the table; `updated_at` is in microseconds since the start."""

    name: str
    age: int
    is_deleted: bool
    updated_at: int


@dataclass(frozen=True, slots=True)
class Ticket:
    """An event about a ticket; the one with the largest `seq` counts."""

    tid: int
    owner: str
    topic: str
    is_deleted: bool
    seq: int


@dataclass(frozen=True, slots=True)
class Topic:
    """A line about a topic; the one with the largest `at` counts. Lines without a label are mistakes of the source."""

    label: str | None
    title: str
    is_deleted: bool
    at: int


@dataclass(slots=True)
class Day:
    """What the sources bring on a day; `late` events have an earlier day's `seq`."""

    accounts: list[Account] = field(default_factory=list)
    tickets: list[Ticket] = field(default_factory=list)
    late: list[Ticket] = field(default_factory=list)
    topics: list[Topic] = field(default_factory=list)


@dataclass(slots=True)
class Expected:
    """What a graph must hold: ages, titles, and the owner and topic of every ticket that has one."""

    people: dict[str, int]
    topics: dict[str, str]
    tickets: set[int]
    owns: dict[int, str]
    about: dict[int, str]


def time_of(micros: int) -> dt.datetime:
    """Return a time of the sources, which keep times without a zone."""
    return START + dt.timedelta(microseconds=micros)


def newest(rows: Iterable[Ticket]) -> dict[int, Ticket]:
    found: dict[int, Ticket] = {}
    for row in rows:
        if row.tid not in found or found[row.tid].seq < row.seq:
            found[row.tid] = row
    return found


class World:
    """The sources from their first day on, made by a seeded generator; `days` is what has come so far."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.days: list[Day] = []
        self.accounts: dict[str, Account] = {}
        self.topics: dict[str, Topic] = {}
        self._tids = 0

    # -- the source systems ------------------------------------------------------------------------------------

    def next_day(self) -> Day:
        """Let a day pass."""
        number, day = len(self.days), Day()
        noon = number * 86_400_000_000
        self._change_accounts(day, number, noon)
        self._change_topics(day, number, noon)
        self._add_events(day, number)
        self.days.append(day)
        return day

    def _change_accounts(self, day: Day, number: int, noon: int) -> None:
        alive = [row for row in self.accounts.values() if not row.is_deleted]
        owners = {row.owner for earlier in self.days for row in (*earlier.tickets, *earlier.late)}
        day.accounts += [Account(f"p{number}_{place}", 20 + place, False, 0) for place in range(4)]
        for row in self.random.sample(alive, min(3, len(alive))):
            day.accounts.append(Account(row.name, row.age + self.random.choice((0, 1)), False, 0))
        changed = {row.name for row in day.accounts}
        gone = [row for row in alive if row.name not in changed and row.name in owners]
        if number and gone:
            row = self.random.choice(gone)
            day.accounts.append(Account(row.name, row.age, True, 0))
        # Some changes are made in the same microsecond, the last ones too.
        times = sorted(noon + self.random.randrange(5) * 1_000_001 + 1 for _ in day.accounts)
        day.accounts = [
            Account(row.name, row.age, row.is_deleted, at) for row, at in zip(day.accounts, times, strict=True)
        ]
        self.accounts |= {row.name: row for row in day.accounts}

    def _change_topics(self, day: Day, number: int, noon: int) -> None:
        day.topics += [Topic(f"t{number}", f"Topic {number}", False, noon)]
        if number:
            label = f"t{self.random.randrange(number)}"
            day.topics.append(Topic(label, f"Topic {label} again", self.topics[label].is_deleted, noon + 1))
        alive = [label for label, row in self.topics.items() if not row.is_deleted]
        if number % 3 == 2 and len(alive) > 2:
            day.topics.append(Topic(alive[0], "", True, noon + 2))
        # The same line comes twice, a line comes late, and a line is broken.
        day.topics += [day.topics[0], Topic(f"t{number}", "stale", True, noon - 1), Topic(None, "broken", False, noon)]
        self.random.shuffle(day.topics)
        for row in day.topics:
            if row.label is not None and (row.label not in self.topics or self.topics[row.label].at < row.at):
                self.topics[row.label] = row

    def _add_events(self, day: Day, number: int) -> None:
        people = [row.name for row in self.accounts.values() if not row.is_deleted]
        labels = [label for label, row in self.topics.items() if not row.is_deleted]
        seq = number * SEQUENCE_OF_A_DAY

        def event(tid: int, at: int, *, is_deleted: bool = False) -> Ticket:
            return Ticket(tid, self.random.choice(people), self.random.choice(labels), is_deleted, at)

        known = newest(row for earlier in self.days for row in (*earlier.tickets, *earlier.late))
        alive = [row.tid for row in known.values() if not row.is_deleted]
        for _ in range(5):
            self._tids, seq = self._tids + 1, seq + 1
            day.tickets.append(event(self._tids, seq))
        for tid in self.random.sample(alive, min(3, len(alive))):
            seq += 1
            day.tickets.append(event(tid, seq))
        deleted = [row.tid for row in known.values() if row.is_deleted]
        for tid in self.random.sample(alive, min(1, len(alive))):
            seq += 1
            day.tickets.append(event(tid, seq, is_deleted=True))
        if deleted:
            seq += 1
            day.tickets.append(event(deleted[0], seq))
        # Delivered at least once: some events come twice.
        day.tickets += self.random.sample(day.tickets, 2)
        self.random.shuffle(day.tickets)
        if number and number % 2 == 0:
            self._tids += 1
            day.late.append(event(self._tids, (number - 1) * SEQUENCE_OF_A_DAY))

    # -- the definition ----------------------------------------------------------------------------------------

    def events(self) -> dict[int, Ticket]:
        """Return the newest event of every ticket."""
        return newest(row for day in self.days for row in (*day.tickets, *day.late))

    def expected(self) -> Expected:
        """Return what one load of everything, from scratch, would make."""
        people = {row.name: row.age for row in self.accounts.values() if not row.is_deleted}
        topics = {label: row.title for label, row in self.topics.items() if not row.is_deleted}
        tickets = {tid: row for tid, row in self.events().items() if not row.is_deleted}
        return Expected(
            people,
            topics,
            set(tickets),
            {tid: row.owner for tid, row in tickets.items() if row.owner in people},
            {tid: row.topic for tid, row in tickets.items() if row.topic in topics},
        )

    def watermarks(self, day: int) -> tuple[dt.datetime, int, int]:
        """Return how far accounts, tickets and topics have come at the end of a day."""
        known = self.days[: day + 1]
        return (
            time_of(max(row.updated_at for earlier in known for row in earlier.accounts)),
            max(row.seq for earlier in known for row in earlier.tickets),
            max(row.at for earlier in known for row in earlier.topics),
        )

    def counts(self, day: int) -> dict[str, int]:
        """Return how many entities a day brings."""
        own = self.days[day]
        events = [row for row in newest(own.tickets).values() if not row.is_deleted]
        labels: dict[str, Topic] = {}
        for row in (row for row in own.topics if row.label is not None):
            if row.label not in labels or labels[row.label].at < row.at:
                labels[str(row.label)] = row
        return {
            "Person": sum(not row.is_deleted for row in own.accounts),
            "Ticket": len(events),
            "Topic": sum(not row.is_deleted for row in labels.values()),
            "Owns": len(events),
            "About": len(events),
        }
