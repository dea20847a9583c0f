"""The application: the two tables of routes on FastAPI, and the one place where refusals become answers.

Everything it answers, refusals by the framework included, has the shape of `envelope`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from omnigraph.errors import GraphError, OmniGraphError
from omnigraph.limits import SERVER_RETRY_AFTER_SECONDS
from omnigraph.server import observability as names
from omnigraph.server.admission import Gone, Overflow, Receive, Send
from omnigraph.server.error_masking import told
from omnigraph.server.handlers.admin import ALWAYS_ANSWERED, SERVER_ROUTES
from omnigraph.server.handlers.blobs import blob_error_headers
from omnigraph.server.observability import HUNG_UP, App, Note, Scope, log_failure, note_of, observed
from omnigraph.server.responses import Answer, json_answer, send_answer
from omnigraph.server.routes import ROUTES, Route, ServerRoute
from omnigraph.server.service import Service, headers_of, stopping
from omnigraph.server.wire import NDJSON

Ask: TypeAlias = Callable[[Scope, Receive], Awaitable[Answer]]


def build(service: Service) -> App:
    """Return the application of a server."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    ends = [("GET", _of_server(service, one)) for one in SERVER_ROUTES]
    ends += [(one.method, _of_graph(service, one)) for one in ROUTES]
    routes = [(method, StarletteRoute(end.path, end, methods=[method])) for method, end in ends]
    app.router.routes[:] = [route for _, route in routes]

    async def refuse(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        is_known = error.status_code == 405
        path = request.scope["path"]
        allowed = sorted({method for method, one in routes if one.path_regex.match(path)}) if is_known else []
        return _refused(service, request.scope, allowed)

    app.add_exception_handler(HTTPException, refuse)
    return observed(app, service.metrics)


def _refused(service: Service, scope: Scope, allowed: list[str]) -> Response:
    """Answer what no route takes; `allowed` are the methods that the address does take."""
    if allowed:
        error = GraphError(f"this address answers {', '.join(allowed)}", code="request.method", allowed=allowed)
    else:
        error = GraphError("there is nothing at this address; see `/openapi.json`", code="request.no_route")
    answer = refusal(service, note_of(scope), error)
    headers = {**answer.headers, **({"Allow": ", ".join(allowed)} if allowed else {})}
    assert isinstance(answer.body, bytes)
    return Response(answer.body, answer.status, headers, answer.media)


def refusal(service: Service, note: Note, error: OmniGraphError, *, is_change: bool = False) -> Answer:
    """Return the answer that tells an error."""
    service.count(error)
    note.code = error.code
    hosted = service.house.hosted.get(note.graph_id) if note.graph_id is not None else None
    try:
        body = told(error, hosted, is_change=is_change)
    except Exception as failure:  # noqa: BLE001 - an error that cannot be told is a failure of our own
        log_failure(failure, note.request_id)
        known = {"operation_id": str(error.context["operation_id"])} if "operation_id" in error.context else {}
        error = GraphError("", code="internal.bug", effect=error.effect, **known)
        note.code, body = error.code, told(error, hosted, is_change=is_change)
    answer = json_answer({**body, "request_id": note.request_id}, error.kind.http_status)
    return replace(answer, headers=_headers(error))


def _headers(error: OmniGraphError) -> dict[str, str]:
    match error.code:
        case "request.unauthorized":
            return {"WWW-Authenticate": "Bearer"}
        case "request.too_many":
            return {"Retry-After": str(SERVER_RETRY_AFTER_SECONDS)}
        case "blob.range" | "blob.changed":
            return blob_error_headers(error)
    # The rest of a body of known length is thrown away as it comes; one without an end is not waited for.
    return {"Connection": "close"} if isinstance(error, Overflow) else {}


class _End:
    """One end of the application: answers a request by asking for it, whatever happens."""

    def __init__(
        self,
        service: Service,
        path: str,
        ask: Ask,
        *,
        headers: Mapping[str, str] | None = None,
        is_change: bool = False,
    ) -> None:
        self.service = service
        self.headers = headers or {}
        self.path = path
        self.ask = ask
        self.is_change = is_change

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        note = note_of(scope)
        note.route = self.path
        try:
            answer = await self.respond(scope, receive, note)
        except Gone:
            return
        if self.headers:
            answer = replace(answer, headers={**answer.headers, **self.headers})
        try:
            await send_answer(answer, receive, send, self.service.readers, self.service.pace)
        except Exception as error:  # noqa: BLE001 - as below
            coded = _coded(note, error)
            if note.status != HUNG_UP:
                # The reader sees a body without its end; nothing else can be said any more.
                note.code = coded.code
                return
            await send_answer(self._refusal(note, coded), receive, send, self.service.readers)

    async def respond(self, scope: Scope, receive: Receive, note: Note) -> Answer:
        """Return an answer, or the refusal as one."""
        try:
            if self.path not in ALWAYS_ANSWERED:
                self.service.hosts.check(headers_of(scope).get("host", ()))
            answer = await self._reserved(await self.ask(scope, receive))
        except Gone:
            raise
        except asyncio.CancelledError:
            # Its time is over with that of the server, and it was still bringing its body; work in threads ends before.
            if not self.service.is_stopping:
                raise
            return self._refusal(note, stopping())
        except Exception as error:  # noqa: BLE001 - whatever it is, its text is not for the caller
            return self._refusal(note, _coded(note, error))
        if answer.has_committed:
            self.service.metrics.count(names.COMMITS)
        return answer

    async def _reserved(self, answer: Answer) -> Answer:
        """Return a stream with its share of the transport; other answers need none."""
        if answer.media != NDJSON:
            return answer
        streams = self.service.streams
        try:
            await streams.reserve()
        except BaseException:
            answer.end()
            raise

        def end() -> None:
            answer.end()
            streams.release()

        return replace(answer, end=end)

    def _refusal(self, note: Note, error: OmniGraphError) -> Answer:
        return refusal(self.service, note, error, is_change=self.is_change)


def _coded(note: Note, error: Exception) -> OmniGraphError:
    """Return an error that can be told; what is a failure of our own is logged instead."""
    if isinstance(error, OmniGraphError):
        return error
    log_failure(error, note.request_id)
    return GraphError("", code="internal.bug")


def _of_graph(service: Service, route: Route) -> _End:
    return _End(service, route.path, partial(service.answer, route), headers=route.headers, is_change=route.is_change)


def _of_server(service: Service, route: ServerRoute) -> _End:
    async def ask(scope: Scope, receive: Receive) -> Answer:
        actor = None if route.is_open else service.authenticate(headers_of(scope))
        note_of(scope).actor = actor
        if route.is_instant:
            return route.handle(service, actor)
        return await service.run(service.own, lambda: route.handle(service, actor))

    return _End(service, route.path, ask)
