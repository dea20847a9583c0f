"""How a call is made: sent, sent again where that is safe, and its answer read or raised.

Does no I/O: it says what to do next, and blocking and asynchronous graphs do it.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from omnigraph.client.call import Call, Reply, Request, get
from omnigraph.client.refusal import refusal
from omnigraph.errors import Effect, GraphError, OmniGraphError
from omnigraph.limits import CLIENT_ATTEMPTS_MAX, CLIENT_BACKOFF_MILLISECONDS, CLIENT_WAIT_SECONDS_MAX

T = TypeVar("T")

_AGAIN: Final = frozenset({429, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait so long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Lost:
    """No answer came. `unsent`: the server has not seen the request."""

    what: Literal["unsent", "unanswered"]
    reason: str


Step = Request | Pause
Talk = Generator[Step, Any, T]


def converse(call: Call[T]) -> Talk[T]:
    """Yield requests and pauses until there is an answer, and return it; each request is answered by what came back."""
    for attempt in range(CLIENT_ATTEMPTS_MAX):
        came: Reply | Lost = yield call.request
        if isinstance(came, Reply) and (came.status < 400 or came.status in call.also):
            return call.read(came)
        error = _error(call, came)
        if isinstance(came, Reply) and error.effect is Effect.UNKNOWN:
            error = yield from _ask_after(error)
        wait = _wait(came, attempt)
        if attempt + 1 == CLIENT_ATTEMPTS_MAX or wait > CLIENT_WAIT_SECONDS_MAX or not _may_repeat(call, came, error):
            raise error
        yield Pause(wait)
    raise AssertionError("the last attempt returns or raises")


def _error(call: Call[T], came: Reply | Lost) -> OmniGraphError:
    if isinstance(came, Reply):
        return refusal(came, call.source)
    is_unknown = call.is_write and came.what == "unanswered"
    if not is_unknown:
        said = "was not done"
    elif call.operation_id is None:
        said = "may or may not have been done; look at the newest commits"
    else:
        said = f"may or may not have been done; ask with `graph.operation('{call.operation_id}')`"
    named = {} if call.operation_id is None else {"operation_id": call.operation_id}
    return GraphError(
        f"the server did not answer: {came.reason}. What was asked for {said}",
        code="server.unreachable",
        effect=Effect.UNKNOWN if is_unknown else Effect.NONE,
        **named,
    )


def _may_repeat(call: Call[T], came: Reply | Lost, error: OmniGraphError) -> bool:
    if isinstance(came, Lost):
        return came.what == "unsent" or not call.is_write or call.operation_id is not None
    if call.is_write:
        return error.effect is Effect.NONE and (error.retryable or came.status == 429)
    return error.retryable or came.status in _AGAIN


def _wait(came: Reply | Lost, attempt: int) -> float:
    told = came.headers.get("retry-after", "") if isinstance(came, Reply) else ""
    return float(told) if told.isdigit() else CLIENT_BACKOFF_MILLISECONDS * 2**attempt / 1_000


def _ask_after(error: OmniGraphError) -> Talk[OmniGraphError]:
    """Find out what became of a write whose outcome the server did not know."""
    operation_id = error.context.get("operation_id")
    if not isinstance(operation_id, str):
        return error
    for attempt in range(CLIENT_ATTEMPTS_MAX):
        came: Reply | Lost = yield get(f"/operations/{operation_id}")
        told = came.json() if isinstance(came, Reply) and came.status == 200 else {}
        found: dict[str, Any] = {"outcome": "pending", **told}
        if found["outcome"] == "applied":
            error.effect = Effect.APPLIED
            error.context["graph_commit_id"] = found["commit"]["graph_commit_id"]
            return error
        if found["outcome"] == "absent":
            error.effect = Effect.NONE
            return error
        yield Pause(_wait(came, attempt))
    return error
