"""How a call is made: sent, sent again where that is safe, and its answer read or raised.

Does no I/O: it says what to do next, and blocking and asynchronous graphs do it.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from omnigraph.client.request import Call, Reply, Request, get
from omnigraph.client.responses import refusal
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
    is_open = False
    for attempt in range(CLIENT_ATTEMPTS_MAX):
        came: Reply | Lost = yield call.request
        if isinstance(came, Reply) and (came.status < 400 or came.status in call.also):
            return call.read(came)
        is_open = is_open or (call.is_write and isinstance(came, Lost) and came.what == "unanswered")
        error = _error(call, came, is_open)
        if isinstance(came, Reply) and error.effect is Effect.UNKNOWN:
            yield from _ask_after(error)
        is_open = is_open or error.effect is Effect.UNKNOWN
        wait = _wait(came, attempt)
        if attempt + 1 == CLIENT_ATTEMPTS_MAX or wait > CLIENT_WAIT_SECONDS_MAX or not _may_repeat(call, came, error):
            if is_open and error.effect is not Effect.APPLIED:
                # What one attempt may have done, the failure of a later one does not take back.
                error.effect = Effect.UNKNOWN
                error.context = {**_named(call), **error.context}
            raise error
        yield Pause(wait)
    raise AssertionError("the last attempt returns or raises")


def _error(call: Call[T], came: Reply | Lost, is_open: bool) -> OmniGraphError:
    if isinstance(came, Reply):
        return refusal(came, call.source, is_write=call.is_write)
    if not is_open:
        return GraphError(
            f"cannot reach the server: {came.reason}; check its address, and that it is running. Nothing was changed",
            code="server.unreachable",
            effect=Effect.NONE,
            **_named(call),
        )
    if call.operation_id is None:
        said = "may or may not have been done; look at the newest commits"
    else:
        said = f"may or may not have been done; ask with `graph.operation('{call.operation_id}')`"
    return GraphError(
        f"the server did not answer: {came.reason}. What was asked for {said}",
        code="server.unreachable",
        effect=Effect.UNKNOWN,
        **_named(call),
    )


def _named(call: Call[T]) -> dict[str, str]:
    return {} if call.operation_id is None else {"operation_id": call.operation_id}


def _may_repeat(call: Call[T], came: Reply | Lost, error: OmniGraphError) -> bool:
    if isinstance(came, Lost):
        return came.what == "unsent" or not call.is_write or call.operation_id is not None
    if not call.is_write:
        return error.retryable or came.status in _AGAIN
    if error.effect is Effect.UNKNOWN:
        return call.operation_id is not None and came.status in _AGAIN
    return error.effect is Effect.NONE and (error.retryable or came.status == 429)


def _wait(came: Reply | Lost, attempt: int) -> float:
    told = came.headers.get("retry-after", "") if isinstance(came, Reply) else ""
    return float(told) if told.isdecimal() else CLIENT_BACKOFF_MILLISECONDS * 2**attempt / 1_000


def _ask_after(error: OmniGraphError) -> Talk[None]:
    """Find out what became of a write whose outcome the server did not know, and let its error say so."""
    operation_id = error.context.get("operation_id")
    if not isinstance(operation_id, str):
        return
    for attempt in range(CLIENT_ATTEMPTS_MAX):
        came: Reply | Lost = yield get(f"/operations/{operation_id}")
        found = _outcome(came)
        if found.get("outcome") == "applied":
            error.effect = Effect.APPLIED
            # Names of branches and tags change without a commit.
            if found.get("commit"):
                error.context["graph_commit_id"] = found["commit"]["graph_commit_id"]
            return
        if found.get("outcome") == "absent":
            error.effect = Effect.NONE
            return
        if attempt + 1 < CLIENT_ATTEMPTS_MAX:
            yield Pause(min(_wait(came, attempt), CLIENT_WAIT_SECONDS_MAX))


def _outcome(came: Reply | Lost) -> dict[str, Any]:
    # Something between us may answer in the place of the server; that tells nothing.
    try:
        told = came.json() if isinstance(came, Reply) and came.status == 200 else None
    except ValueError:
        told = None
    return told if isinstance(told, dict) else {}
