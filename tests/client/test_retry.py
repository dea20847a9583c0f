"""When a request is sent again, and what is raised in the end; no connection is needed to say so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from omnigraph import wire
from omnigraph.client.messages import Call, Request, Response, get, post, with_operation_id
from omnigraph.client.transport import NoResponse, Pause, retry_steps
from omnigraph.errors import Effect, GraphError, OmniGraphError, ReadSetChanged, UsageError
from omnigraph.ids import is_ulid
from omnigraph.limits import CLIENT_ATTEMPTS_MAX, CLIENT_WAIT_SECONDS_MAX
from omnigraph.server.errors import error_body

READ = Call(get("/branches"), lambda reply: reply.json()["n"])
ONCE = Call(with_operation_id(post("/mutate", wire.Mutate(query="q"))), lambda reply: reply.json()["n"], is_write=True)
WRITE = Call(post("/branches", wire.NewBranch(name="b")), lambda reply: reply.json()["n"], is_write=True)
DONE = Response(200, {}, b'{"n": 1}')
SORRY = Response(503, {}, b"sorry")
UNSENT, UNANSWERED = NoResponse("unsent", "refused"), NoResponse("unanswered", "reset")


def refused(error: OmniGraphError, status: int | None = None, **headers: str) -> Response:
    return Response(status or error.kind.http_status, headers, orjson.dumps(error_body(error)))


BUSY = refused(ReadSetChanged("it moved", member="head"))
WRONG = refused(UsageError("no", value=1))
LATER = refused(UsageError("later"), 429, **{"retry-after": "60"})
UNKNOWN = refused(ReadSetChanged("lost", effect=Effect.UNKNOWN, operation_id="01ARZ3NDEKTSV4RRFFQ69G5FAV"))


def operation(outcome: str) -> Response:
    commit = {"graph_commit_id": "C"} if outcome == "applied" else None
    return Response(200, {}, orjson.dumps({"operation_id": "X", "outcome": outcome, "commit": commit}))


def talk(
    call: Call[Any], came: Sequence[Response | NoResponse], waits: list[float] | None = None
) -> tuple[object, list[str]]:
    """Answer the requests of a call one after the other; return its answer or error, and the paths it asked for."""
    asked: list[str] = []
    answers = iter(came)
    steps = retry_steps(call)
    step = next(steps)
    try:
        while True:
            if isinstance(step, Request):
                asked.append(step.path)
                step = steps.send(next(answers))
            else:
                assert isinstance(step, Pause)
                if waits is not None:
                    waits.append(step.seconds)
                step = steps.send(None)
    except StopIteration as end:
        return end.value, asked
    except OmniGraphError as error:
        return error, asked


@pytest.mark.parametrize(
    ("call", "came", "requests"),
    [
        (READ, [DONE], 1),
        (READ, [UNSENT, UNANSWERED, DONE], 3),
        (READ, [SORRY, DONE], 2),
        (WRITE, [UNSENT, DONE], 2),
        (ONCE, [SORRY, DONE], 2),
        (ONCE, [UNANSWERED, UNSENT, DONE], 3),
        (WRITE, [BUSY, DONE], 2),
        (WRITE, [refused(UsageError("slow down"), 429), DONE], 2),
    ],
)
def test_retry_what_did_nothing_is_sent_again(
    call: Call[Any], came: list[Response | NoResponse], requests: int
) -> None:
    answer, asked = talk(call, came)
    assert (answer, len(asked)) == (1, requests)


@pytest.mark.parametrize(
    ("call", "came", "code", "effect"),
    [
        (READ, WRONG, "usage.invalid", Effect.NONE),
        (WRITE, WRONG, "usage.invalid", Effect.NONE),
        (WRITE, UNANSWERED, "server.unreachable", Effect.UNKNOWN),
        (WRITE, SORRY, "server.unreachable", Effect.UNKNOWN),
        (WRITE, LATER, "usage.invalid", Effect.NONE),
    ],
)
def test_retry_what_may_have_happened_or_cannot_is_raised_at_once(
    call: Call[Any], came: Response | NoResponse, code: str, effect: Effect
) -> None:
    error, asked = talk(call, [came])
    assert isinstance(error, OmniGraphError)
    assert (error.code, error.effect, len(asked)) == (code, effect, 1)


@pytest.mark.parametrize("came", [UNSENT, BUSY])
def test_retry_gives_up_after_a_bounded_number_of_attempts(came: Response | NoResponse) -> None:
    error, asked = talk(WRITE, [came] * 99)
    assert isinstance(error, OmniGraphError)
    assert len(asked) == CLIENT_ATTEMPTS_MAX


@pytest.mark.parametrize(
    ("told", "effect", "requests"),
    [
        ([operation("applied")], Effect.APPLIED, 2),
        ([operation("pending"), UNANSWERED, operation("applied")], Effect.APPLIED, 4),
        ([Response(200, {}, b"<html>"), Response(200, {}, b"[]"), operation("applied")], Effect.APPLIED, 4),
        ([operation("pending")] * 99, Effect.UNKNOWN, 1 + CLIENT_ATTEMPTS_MAX),
    ],
)
def test_retry_unknown_outcome_is_asked_for(told: list[Response | NoResponse], effect: Effect, requests: int) -> None:
    error, asked = talk(WRITE, [UNKNOWN, *told])
    assert isinstance(error, OmniGraphError)
    assert (error.effect, len(asked)) == (effect, requests)
    assert asked[1] == "/operations/01ARZ3NDEKTSV4RRFFQ69G5FAV"


def test_retry_outcome_that_is_nothing_lets_the_write_be_sent_again() -> None:
    answer, asked = talk(WRITE, [UNKNOWN, operation("absent"), DONE])
    assert (answer, asked) == (1, ["/branches", "/operations/01ARZ3NDEKTSV4RRFFQ69G5FAV", "/branches"])


def test_retry_unanswered_write_is_sent_again_under_the_same_id() -> None:
    steps = retry_steps(ONCE)
    first = next(steps)
    assert isinstance(first, Request)
    assert isinstance(steps.send(UNANSWERED), Pause)
    assert steps.send(None) is first
    assert is_ulid(first.headers[wire.OPERATION_ID])


def test_retry_never_answered_write_says_how_to_ask_for_it() -> None:
    error, asked = talk(ONCE, [UNANSWERED] * 99)
    assert isinstance(error, OmniGraphError)
    assert (error.effect, len(asked)) == (Effect.UNKNOWN, CLIENT_ATTEMPTS_MAX)
    assert error.context["operation_id"] == ONCE.operation_id
    assert str(ONCE.operation_id) in error.message


@pytest.mark.parametrize(
    "came",
    [
        [UNANSWERED, UNSENT, UNSENT, UNSENT],
        [UNANSWERED, LATER],
        [UNANSWERED, WRONG],
        [SORRY, LATER],
        [SORRY] * 4,
    ],
)
def test_retry_write_that_one_attempt_may_have_done_stays_unknown(came: list[Response | NoResponse]) -> None:
    error, asked = talk(ONCE, came)
    assert isinstance(error, OmniGraphError)
    assert (error.effect, len(asked)) == (Effect.UNKNOWN, len(came))
    assert error.context["operation_id"] == ONCE.operation_id
    assert "was not done" not in error.message


def test_retry_failed_read_did_nothing() -> None:
    error, asked = talk(READ, [SORRY] * 99)
    assert isinstance(error, OmniGraphError)
    assert (error.code, error.effect, len(asked)) == ("server.unreachable", Effect.NONE, CLIENT_ATTEMPTS_MAX)


def test_retry_waits_only_before_it_asks_again_and_never_long() -> None:
    waits: list[float] = []
    talk(WRITE, [UNKNOWN, *[Response(503, {"retry-after": "3600"}, b"sorry")] * 99], waits)
    assert waits == [CLIENT_WAIT_SECONDS_MAX] * (CLIENT_ATTEMPTS_MAX - 1)


def test_retry_write_that_was_done_is_raised_as_applied() -> None:
    done = GraphError("before", code="conflict.repeated", effect=Effect.APPLIED, graph_commit_id="C")
    error, asked = talk(ONCE, [UNANSWERED, refused(done)])
    assert isinstance(error, OmniGraphError)
    assert (error.code, error.effect, error.context["graph_commit_id"]) == ("conflict.repeated", Effect.APPLIED, "C")
    assert len(asked) == 2
