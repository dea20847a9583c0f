"""Diaries: what each member of a soak was about to do, what was acknowledged, and what it found wrong.

Kept outside of the graph. A line that was written outlives the process that wrote it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import orjson


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """One entity of one writer, by the branch that it is on."""

    branch: str
    name: str


class Diary:
    """One member's own record."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def tries(self, place: Place, value: int | None) -> None:
        """Say what an entity is about to be set to; None: it is to be deleted."""
        self._note("tries", place, value)

    def acknowledged(self, place: Place, value: int | None) -> None:
        self._note("acknowledged", place, value)

    def counts(self, what: str) -> None:
        """Say that something was done that the judge only counts."""
        self._write({"event": "counts", "what": what})

    def complains(self, what: str) -> None:
        """Say that something happened that must not happen."""
        self._write({"event": "complains", "what": what})

    def _note(self, event: str, place: Place, value: int | None) -> None:
        self._write({"event": event, "branch": place.branch, "name": place.name, "value": value})

    def _write(self, members: dict[str, object]) -> None:
        os.write(self._file, orjson.dumps(members) + b"\n")


@dataclass
class Ledger:
    """All diaries put together: which values each entity may have now, what was done, and all complaints."""

    possible: dict[Place, list[int | None]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    writes: int = 0

    @classmethod
    def read(cls, folder: Path) -> Ledger:
        ledger = cls()
        for path in sorted(folder.glob("*.diary")):
            # The last line of a writer that was killed may be half a line.
            ledger.add(orjson.loads(line) for line in path.read_bytes().split(b"\n")[:-1])
        return ledger

    def add(self, events: Iterable[dict[str, object]]) -> None:
        for one in events:
            if one["event"] == "counts":
                self.counts[str(one["what"])] = self.counts.get(str(one["what"]), 0) + 1
            elif one["event"] == "complains":
                self.complaints.append(str(one["what"]))
            else:
                value = one["value"]
                assert value is None or isinstance(value, int)
                place = Place(str(one["branch"]), str(one["name"]))
                if one["event"] == "tries":
                    # Until it is acknowledged it may have happened or not.
                    self.possible.setdefault(place, [None]).append(value)
                else:
                    self.possible[place] = [value]
                    self.writes += 1
