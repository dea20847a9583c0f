"""Sans-I/O retry loop: yields requests and pauses; retries only when that is safe.

A read is always safe; a write if it surely did nothing, or has an operation id (idempotency key).
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
    """Wait before the next request."""

    seconds: float


@dataclass(frozen=True, slots=True)
class NoResponse:
    """No response arrived. `unsent`: the server has not seen the request."""

    kind: Literal["unsent", "unanswered"]
    reason: str
    address: str = "the server"


Step = Request | Pause
Steps = Generator[Step, Any, T]


def retry_steps(call: Call[T]) -> Steps[T]:
    """Yield requests and pauses; send each request's outcome back. Returns the parsed response, or raises."""
    is_open = False
    for attempt in range(CLIENT_ATTEMPTS_MAX):
        outcome: Response | NoResponse = yield call.request
        if isinstance(outcome, Response) and (outcome.status < 400 or outcome.status in call.accepted_statuses):
            return call.read(outcome)
        is_open = is_open or (call.is_write and isinstance(outcome, NoResponse) and outcome.kind == "unanswered")
        error = _attempt_error(call, outcome, is_open)
        if isinstance(outcome, Response) and error.effect is Effect.UNKNOWN:
            yield from _resolve_unknown_effect(error)
        is_open = is_open or error.effect is Effect.UNKNOWN
        wait = _retry_delay(outcome, attempt)
        if attempt + 1 == CLIENT_ATTEMPTS_MAX or wait > CLIENT_WAIT_SECONDS_MAX or not _may_retry(call, outcome, error):
            if is_open and error.effect is not Effect.APPLIED:
                # An earlier attempt may have been applied, even if this one surely failed.
                error.effect = Effect.UNKNOWN
                error.context = {**_operation_context(call), **error.context}
            raise error
        yield Pause(wait)
    raise AssertionError("the last attempt returns or raises")


def _attempt_error(call: Call[T], outcome: Response | NoResponse, is_open: bool) -> OmniGraphError:
    if isinstance(outcome, Response):
        return parse_error(outcome, call.source, is_write=call.is_write)
    if not is_open:
        return GraphError(
            f"cannot reach {outcome.address}: {outcome.reason}; check the address, and that the server is running."
            " Nothing was changed",
            code="server.unreachable",
            effect=Effect.NONE,
            **_operation_context(call),
        )
    if call.operation_id is None:
        advice = "may or may not have been applied; check the newest commits"
    else:
        advice = f"may or may not have been applied; check with `graph.operation('{call.operation_id}')`"
    return GraphError(
        f"no response from the server: {outcome.reason}. The request {advice}",
        code="server.unreachable",
        effect=Effect.UNKNOWN,
        **_operation_context(call),
    )


def _operation_context(call: Call[T]) -> dict[str, str]:
    return {} if call.operation_id is None else {"operation_id": call.operation_id}


def _may_retry(call: Call[T], outcome: Response | NoResponse, error: OmniGraphError) -> bool:
    if isinstance(outcome, NoResponse):
        return outcome.kind == "unsent" or not call.is_write or call.operation_id is not None
    if not call.is_write:
        return error.retryable or outcome.status in _RETRYABLE_STATUSES
    if error.effect is Effect.UNKNOWN:
        return call.operation_id is not None and outcome.status in _RETRYABLE_STATUSES
    return error.effect is Effect.NONE and (error.retryable or outcome.status == 429)


def _retry_delay(outcome: Response | NoResponse, attempt: int) -> float:
    retry_after = outcome.headers.get("retry-after", "") if isinstance(outcome, Response) else ""
    return float(retry_after) if retry_after.isdecimal() else CLIENT_BACKOFF_MILLISECONDS * 2**attempt / 1_000


def _resolve_unknown_effect(error: OmniGraphError) -> Steps[None]:
    """Look up the operation of a write with unknown outcome, and set `effect` of its error."""
    operation_id = error.context.get("operation_id")
    if not isinstance(operation_id, str):
        return
    for attempt in range(CLIENT_ATTEMPTS_MAX):
        outcome: Response | NoResponse = yield get(f"/operations/{operation_id}")
        operation = _operation_fields(outcome)
        if operation.get("outcome") == "applied":
            error.effect = Effect.APPLIED
            # Names of branches and tags change without a commit.
            if operation.get("commit"):
                error.context["graph_commit_id"] = operation["commit"]["graph_commit_id"]
            return
        if operation.get("outcome") == "absent":
            error.effect = Effect.NONE
            return
        if attempt + 1 < CLIENT_ATTEMPTS_MAX:
            yield Pause(min(_retry_delay(outcome, attempt), CLIENT_WAIT_SECONDS_MAX))


def _operation_fields(outcome: Response | NoResponse) -> dict[str, Any]:
    # A proxy may respond instead of the server; ignore what is not JSON.
    try:
        data = outcome.json() if isinstance(outcome, Response) and outcome.status == 200 else None
    except ValueError:
        data = None
    return data if isinstance(data, dict) else {}
