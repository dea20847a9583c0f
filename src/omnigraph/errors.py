"""Every error the product raises: one base class, one table from code to HTTP status and exit status.

Ground layer: imports nothing of ours. Errors pickle, because Spark sends them home from its workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar


class Effect(StrEnum):
    """What a failed operation did to the graph."""

    NONE = "none"
    APPLIED = "applied"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """One row of the error table."""

    code: str
    http_status: int
    exit_status: int
    retryable: bool
    summary: str


_TABLE = (
    ErrorKind("language.rejected", 400, 1, False, "A schema, query or migration was refused by the compiler."),
    ErrorKind("data.rejected", 400, 1, False, "Data breaks a rule of the schema or of the input format; see `rule`."),
    ErrorKind("usage.invalid", 400, 1, False, "The call itself is wrong: unknown option, missing file, bad value."),
    ErrorKind("internal.bug", 500, 1, False, "An assumption of our own was broken; please report it."),
)

ERRORS: Mapping[str, ErrorKind] = MappingProxyType({kind.code: kind for kind in _TABLE})


class OmniGraphError(Exception):
    """Base of all our errors: a stable `code`, a message that says what to do next, and typed context.

    >>> error = UsageError("no such file: a.pg", path="a.pg")
    >>> error.code, error.kind.http_status, error.effect.value, error.context["path"]
    ('usage.invalid', 400, 'none', 'a.pg')
    """

    code: ClassVar[str] = "internal.bug"

    def __init__(self, message: str, *, effect: Effect = Effect.NONE, **context: object) -> None:
        super().__init__(message)
        self.message = message
        self.effect = effect
        self.context = context

    @property
    def kind(self) -> ErrorKind:
        return ERRORS[self.code]

    @property
    def retryable(self) -> bool:
        return self.kind.retryable

    def to_json(self) -> dict[str, object]:
        """Return the structured form that every surface prints."""
        return {"code": self.code, "error": self.message, "effect": self.effect.value, **self.context}

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.effect, self.context)


def _rebuild(cls: type[OmniGraphError], message: str, effect: Effect, context: dict[str, object]) -> OmniGraphError:
    return cls(message, effect=effect, **context)


class UsageError(OmniGraphError):
    """The caller asked for something that cannot be asked."""

    code = "usage.invalid"


class DataError(OmniGraphError):
    """Data breaks a rule; `context["rule"]` holds its code, such as `E6` or `N9`."""

    code = "data.rejected"
