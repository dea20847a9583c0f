"""What every request leaves behind: a request id in its answer, a line in the log, and its share of the numbers.

Wraps the whole application, so that it answers nothing unseen; connections beyond the limit never get that far.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

from omnigraph import clock
from omnigraph.ids import new_ulid
from omnigraph.server.body import Message, Receive, Send
from omnigraph.server.logs import log_failure, log_request
from omnigraph.server.metrics import Metrics
from omnigraph.server.wire import REQUEST_ID

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_NOTE: Final = "omnigraph.note"
_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
# What is counted and logged when the caller hung up before anything was answered.
HUNG_UP: Final = 499


@dataclass(slots=True)
class Note:
    """What becomes known about a request while it is answered."""

    request_id: str
    route: str = "unknown"
    graph_id: str | None = None
    actor: str | None = None
    code: str | None = None
    status: int = HUNG_UP


def note_of(scope: Scope) -> Note:
    """Return the note of a request."""
    found = scope[_NOTE]
    assert isinstance(found, Note)
    return found


def observed(app: App, metrics: Metrics) -> App:
    """Return an application that leaves traces."""

    async def observe(scope: Scope, receive: Receive, send: Send) -> None:
        note = Note(_request_id(scope))
        scope[_NOTE] = note

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                note.status = message["status"]
                message["headers"] = [*message["headers"], (REQUEST_ID.lower().encode(), note.request_id.encode())]
            await send(message)

        metrics.begin()
        started = clock.elapsed()
        try:
            await app(scope, receive, noting)
        except Exception as error:  # noqa: BLE001 - the server would print its text, which may name what it must not
            log_failure(error, note.request_id)
        finally:
            seconds = clock.elapsed() - started
            metrics.end(scope["method"], note.route, note.status, seconds)
            log_request(
                logging.INFO if note.status < 500 else logging.ERROR,
                request_id=note.request_id,
                method=scope["method"],
                route=note.route,
                graph_id=note.graph_id,
                actor=note.actor,
                status=note.status,
                milliseconds=round(seconds * 1_000, 1),
                code=note.code,
            )

    return observe


def _request_id(scope: Scope) -> str:
    """Return the id that the caller gave, if it is harmless, or a new one."""
    wanted = REQUEST_ID.lower().encode()
    given: bytes | None = next((value for name, value in scope["headers"] if name == wanted), None)
    return given.decode() if given is not None and _ID.fullmatch(given) else new_ulid()
