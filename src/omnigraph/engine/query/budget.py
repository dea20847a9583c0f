"""Budgets: how many rows, bytes and seconds one query may use, and the token that cancels it.

Operators reserve before they allocate, so a query ends with a result or `BudgetExceeded`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from omnigraph import clock
from omnigraph.errors import BudgetExceeded, QueryCancelled
from omnigraph.limits import ARROW_TEXT_BYTES_MAX, QUERY_BYTES_MAX, QUERY_ROWS_MAX, QUERY_SECONDS_MAX


class CancelToken:
    """Lets another thread stop a query at its next step; pass it in a `Budget`."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def cancel(self) -> None:
        """Stop the queries that have this token; they raise `QueryCancelled`.

        Example:
            >>> token = CancelToken()
            >>> token.cancel()
            >>> token.is_cancelled
            True
        """
        self._event.set()

    @property
    def is_cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._event.is_set()


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of one query.

    Attributes:
        rows_max: How many rows a step may hold.
        bytes_max: How many bytes a step may hold.
        seconds_max: How long the query may run.
        cancel: A token with which another thread stops the query.

    Example:
        >>> graph.query("query q() { match { $p: Person } return { $p } }", budget=og.Budget(rows_max=1))
        Traceback (most recent call last):
        ...
        omnigraph.errors.BudgetExceeded: ...
    """

    rows_max: int = QUERY_ROWS_MAX
    bytes_max: int = QUERY_BYTES_MAX
    seconds_max: float = QUERY_SECONDS_MAX
    cancel: CancelToken | None = None


DEFAULT_BUDGET: Final = Budget()

_ADVICE: Final = "make the pattern more selective, return fewer rows, or run it with a larger budget"


def _exceeded(reason: str, limit: str, allowed: float, needed: float, where: str) -> BudgetExceeded:
    return BudgetExceeded(f"{reason}; {_ADVICE}", limit=limit, allowed=allowed, needed=needed, where=where)


class BudgetUsage:
    """Budget usage of one running query."""

    __slots__ = ("budget", "bytes_peak", "rows_peak", "started")

    def __init__(self, budget: Budget, started: float | None = None) -> None:
        self.budget = budget
        self.started = clock.elapsed() if started is None else started
        self.rows_peak = 0
        self.bytes_peak = 0

    def check(self, where: str) -> None:
        """Raise when the query was cancelled or has run for too long."""
        budget = self.budget
        if budget.cancel is not None and budget.cancel.is_cancelled:
            raise QueryCancelled(f"the query was cancelled at {where}", where=where)
        used = clock.elapsed() - self.started
        if used > budget.seconds_max:
            reason = f"the query ran for {used:.1f} seconds and may run for {budget.seconds_max:g}, at {where}"
            raise _exceeded(reason, "seconds", budget.seconds_max, used, where)

    def reserve_bytes(self, needed: int, where: str) -> None:
        """Raise `BudgetExceeded` unless this many bytes may be allocated; call before allocating."""
        self.check(where)
        self._compare("bytes", needed, self.budget.bytes_max, where)
        self.bytes_peak = max(self.bytes_peak, needed)

    def reserve(self, rows: int, row_bytes: int, where: str) -> None:
        """Raise `BudgetExceeded` unless this many rows of this width may be allocated; call before allocating."""
        self.check(where)
        self._compare("rows", rows, self.budget.rows_max, where)
        self._compare("bytes", rows * row_bytes, self.budget.bytes_max, where)
        self.rows_peak = max(self.rows_peak, rows)
        self.bytes_peak = max(self.bytes_peak, rows * row_bytes)

    def _compare(self, limit: str, needed: int, allowed: int, where: str) -> None:
        if needed > allowed:
            reason = f"{where} would need {needed:,} {limit}, but the query is limited to {allowed:,}"
            raise _exceeded(reason, limit, allowed, needed, where)


# The query of this context: shared columns are charged to the query that loads them.
_running: ContextVar[BudgetUsage | None] = ContextVar("running", default=None)


@contextmanager
def charge_to(spending: BudgetUsage) -> Iterator[None]:
    """Charge reads made inside the block to a query's budget."""
    token = _running.set(spending)
    try:
        yield
    finally:
        _running.reset(token)


def charge_running(needed: int, where: str) -> None:
    """Raise if this thread runs a query that may not allocate this many bytes."""
    spending = _running.get()
    if spending is not None:
        spending.reserve_bytes(needed, where)


def check_running() -> None:
    """Raise when the query that this thread runs was cancelled or has run for too long."""
    spending = _running.get()
    if spending is not None:
        spending.check("a search")


@contextmanager
def report_arrow_overflow(spending: BudgetUsage) -> Iterator[None]:
    """Raise Arrow capacity errors, such as 2 GiB of strings in one array, as `BudgetExceeded`."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:
        # Arrow has no error class for overflow; other invalid arguments are bugs and are re-raised.
        if not isinstance(error, pa.ArrowCapacityError) and "overflow" not in str(error):
            raise
        reason = f"a column of the query would hold more than {ARROW_TEXT_BYTES_MAX:,} bytes of text"
        allowed = min(ARROW_TEXT_BYTES_MAX, spending.budget.bytes_max)
        raise _exceeded(reason, "bytes", allowed, ARROW_TEXT_BYTES_MAX, "a column of texts") from None


@contextmanager
def reserve_for_read(count: int, row_bytes: int, where: str) -> Iterator[None]:
    """Check a read of whole columns against the running query's budget: size before, time after."""
    spending = _running.get()
    if spending is not None:
        spending.reserve_bytes(count * row_bytes, where)
    yield
    if spending is not None:
        spending.check(where)
