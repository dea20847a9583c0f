"""Violations of the rules by a write, collected up to a bound and raised as a single error.

Pure values; the first violation determines the error, and all are in its context.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

from omnigraph.errors import DataError, KeyConflict, LimitExceeded
from omnigraph.limits import VIOLATIONS_MAX


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule. `line` is the line or record number in the input, if known."""

    rule: str
    message: str
    type_key: str | None = None
    entity_id: str | None = None
    property: str | None = None
    value: str | None = None
    line: int | None = None

    def to_json(self) -> dict[str, object]:
        return {name: value for name, value in asdict(self).items() if value is not None}


class Findings:
    """Violations in the order in which they are reported, up to a bound."""

    def __init__(self, violations_max: int = VIOLATIONS_MAX, *, unit: str = "line") -> None:
        self.violations: list[Violation] = []
        self.unit = unit
        self._violations_max = violations_max

    @property
    def is_full(self) -> bool:
        return len(self.violations) >= self._violations_max

    @property
    def room(self) -> int:
        return self._violations_max - len(self.violations)

    def add(self, violation: Violation) -> None:
        if not self.is_full:
            self.violations.append(violation)

    def raise_if_any(self) -> None:
        """Raise the first violation as an error, with all violations in its context, if there are any."""
        if self.violations:
            self._raise()

    def _raise(self) -> NoReturn:
        first = self.violations[0]
        more = len(self.violations) - 1
        message = first.message if first.line is None else f"{self.unit} {first.line}: {first.message}"
        if more:
            message += f" (and {'at least ' if self.is_full else ''}{more} more)"
        context: dict[str, Any] = first.to_json() | {
            "violations": [violation.to_json() for violation in self.violations]
        }
        if more:
            context["violation_counts"] = dict(Counter(violation.rule for violation in self.violations))
            context["violations_truncated"] = self.is_full
        del context["message"]
        raise _CLASSES.get(first.rule, DataError)(message, **context)


_CLASSES: dict[str, Any] = {"E11": KeyConflict, "E12": LimitExceeded, "N11": LimitExceeded}
