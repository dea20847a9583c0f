"""How a call is made: sent, sent again where that is safe, and its answer read or raised.

Does no I/O: it says what to do next, and blocking and asynchronous graphs do it.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from omnigraph.client.request import Call, Request, Response, get
from omnigraph.client.responses import parse_error
from omnigraph.errors import Effect, GraphError, OmniGraphError
from omnigraph.limits import CLIENT_ATTEMPTS_MAX, CLIENT_BACKOFF_MILLISECONDS, CLIENT_WAIT_SECONDS_MAX

T = TypeVar("T")

_RETRYABLE_STATUSES: Final = frozenset({429, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait so long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class NoResponse:
    """No answer came. `unsent`: the server has not seen the request."""

    kind: Literal["unsent", "unanswered"]
    reason: str


Step = Request | Pause
Steps = Generator[Step, Any, T]


def retry_steps(call: Call[T]) -> Steps[T]:
    """Yield requests and pauses until there is an answer, and return it; each request is answered by what came back."""
    is_open = False
    for attempt in range(CLIENT_ATTEMPTS_MAX):
        came: Response | NoResponse = yield call.request
        if isinstance(came, Response) and (came.status < 400 or came.status in call.accepted_statuses):
            return call.read(came)
        is_open = is_open or (call.is_write and isinstance(came, NoResponse) and came.kind == "unanswered")
        error = _attempt_error(call, came, is_open)
        if isinstance(came, Response) and error.effect is Effect.UNKNOWN:
            yield from _resolve_unknown_effect(error)
        is_open = is_open or error.effect is Effect.UNKNOWN
        wait = _retry_delay(came, attempt)
        if attempt + 1 == CLIENT_ATTEMPTS_MAX or wait > CLIENT_WAIT_SECONDS_MAX or not _may_retry(call, came, error):
            if is_open and error.effect is not Effect.APPLIED:
                # What one attempt may have done, the failure of a later one does not take back.
                error.effect = Effect.UNKNOWN
                error.context = {**_operation_context(call), **error.context}
            raise error
        yield Pause(wait)
    raise AssertionError("the last attempt returns or raises")


def _attempt_error(call: Call[T], came: Response | NoResponse, is_open: bool) -> OmniGraphError:
    if isinstance(came, Response):
        return parse_error(came, call.source, is_write=call.is_write)
    if not is_open:
        return GraphError(
            f"cannot reach the server: {came.reason}; check its address, and that it is running. Nothing was changed",
            code="server.unreachable",
            effect=Effect.NONE,
            **_operation_context(call),
        )
    if call.operation_id is None:
        said = "may or may not have been done; look at the newest commits"
    else:
        said = f"may or may not have been done; ask with `graph.operation('{call.operation_id}')`"
    return GraphError(
        f"the server did not answer: {came.reason}. What was asked for {said}",
        code="server.unreachable",
        effect=Effect.UNKNOWN,
        **_operation_context(call),
    )


def _operation_context(call: Call[T]) -> dict[str, str]:
    return {} if call.operation_id is None else {"operation_id": call.operation_id}


def _may_retry(call: Call[T], came: Response | NoResponse, error: OmniGraphError) -> bool:
    if isinstance(came, NoResponse):
        return came.kind == "unsent" or not call.is_write or call.operation_id is not None
    if not call.is_write:
        return error.retryable or came.status in _RETRYABLE_STATUSES
    if error.effect is Effect.UNKNOWN:
        return call.operation_id is not None and came.status in _RETRYABLE_STATUSES
    return error.effect is Effect.NONE and (error.retryable or came.status == 429)


def _retry_delay(came: Response | NoResponse, attempt: int) -> float:
    told = came.headers.get("retry-after", "") if isinstance(came, Response) else ""
    return float(told) if told.isdecimal() else CLIENT_BACKOFF_MILLISECONDS * 2**attempt / 1_000


def _resolve_unknown_effect(error: OmniGraphError) -> Steps[None]:
    """Find out what became of a write whose outcome the server did not know, and let its error say so."""
    operation_id = error.context.get("operation_id")
    if not isinstance(operation_id, str):
        return
    for attempt in range(CLIENT_ATTEMPTS_MAX):
        came: Response | NoResponse = yield get(f"/operations/{operation_id}")
        found = _operation_fields(came)
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
            yield Pause(min(_retry_delay(came, attempt), CLIENT_WAIT_SECONDS_MAX))


def _operation_fields(came: Response | NoResponse) -> dict[str, Any]:
    # Something between us may answer in the place of the server; that tells nothing.
    try:
        told = came.json() if isinstance(came, Response) and came.status == 200 else None
    except ValueError:
        told = None
    return told if isinstance(told, dict) else {}
