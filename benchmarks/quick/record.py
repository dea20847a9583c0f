"""The recorded ratios, and how a new one compares with its record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

PATH = Path(__file__).parent / "recorded.json"
# A ratio below this share of the recorded one is a loss, not noise.
LOSS = 0.5


@dataclass(frozen=True, slots=True)
class Record:
    """Ratios by line, above 1 where ours is faster, and where they were measured."""

    commit: str
    machine: str
    ratios: Mapping[str, float]

    @classmethod
    def read(cls, path: Path = PATH) -> Record:
        return cls(**json.loads(path.read_text(encoding="utf-8")))

    def write(self, path: Path = PATH) -> None:
        path.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line beside its record; `now` is None if it was not measured, `before` if it is new."""

    line: str
    now: float | None
    before: float | None

    @property
    def is_lost(self) -> bool:
        return self.now is not None and self.before is not None and self.now < LOSS * self.before

    def __str__(self) -> str:
        """Render one line of the report.

        >>> print(Verdict("point lookup", 0.2, 0.5))
        LOST   0.20   0.50 before  point lookup
        """
        mark = "LOST" if self.is_lost else "" if self.now is not None and self.before is not None else "?"
        now = "     -" if self.now is None else f"{self.now:6.2f}"
        before = "     - before" if self.before is None else f"{self.before:6.2f} before"
        return f"{mark:4} {now} {before}  {self.line}"
