"""The ASGI application: dispatches requests to routes, and turns errors into responses.

Every error response, including those for unknown paths and methods, has the shape of `errors.error_body`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeAlias
from urllib.parse import unquote

from omnigraph.errors import GraphError, OmniGraphError
from omnigraph.limits import SERVER_RETRY_AFTER_SECONDS
from omnigraph.server import observability as names
from omnigraph.server.admission import BodyTooLarge, ClientDisconnected, Receive, Send
from omnigraph.server.errors import redact_error
from omnigraph.server.handlers.admin import ALWAYS_ANSWERED, SERVER_ROUTES, prefers_html
from omnigraph.server.handlers.reads import blob_error_headers
from omnigraph.server.observability import (
    CLIENT_CLOSED_REQUEST,
    App,
    RequestLog,
    Scope,
    log_failure,
    request_log,
    with_request_log,
)
from omnigraph.server.responses import Response, json_response, send_response
from omnigraph.server.routes import ROUTES, ServerRoute
from omnigraph.server.service import Service, headers_by_name, server_stopping
from omnigraph.wire import NDJSON

Respond: TypeAlias = Callable[[Scope, Receive], Awaitable[Response]]


def build(service: Service) -> App:
    endpoints = [("GET", _server_endpoint(service, route)) for route in SERVER_ROUTES]
    for route in ROUTES:
        ask = partial(service.answer, route)
        endpoints.append((route.method, _Endpoint(service, route.path, ask, route.headers, route.is_change)))
    # By the pattern of the path, in the order of the tables: the first that has the method wins.
    routes: dict[re.Pattern[str], dict[str, _Endpoint]] = {}
    for method, endpoint in endpoints:
        routes.setdefault(path_pattern(endpoint.path), {})[method] = endpoint
    return with_request_log(partial(_dispatch, service, routes), service.metrics)


async def _dispatch(
    service: Service,
    routes: Mapping[re.Pattern[str], Mapping[str, _Endpoint]],
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    """Run the endpoint of a path and method.

    Not Starlette's router: it took four times as long per request, and nothing else of it was used.
    """
    method: str = scope["method"]
    allowed: set[str] = set()
    path = decode_segments(scope)
    for pattern, endpoints in routes.items():
        match = pattern.fullmatch(path)
        if match is None:
            continue
        # HEAD is GET; the HTTP host drops the body.
        endpoint = endpoints.get(method) or (endpoints.get("GET") if method == "HEAD" else None)
        if endpoint is not None:
            scope["path_params"] = {name: text.replace(_SLASH, "/") for name, text in match.groupdict().items()}
            return await endpoint(scope, receive, send)
        allowed |= endpoints.keys()
    response = _no_route(service, request_log(scope), sorted(allowed))
    return await send_response(response, receive, send, service.readers)


# Stands for an encoded slash in a decoded path. A lone surrogate, which no decoded text has.
_SLASH: Final = "\udc2f"


def decode_segments(scope: Scope) -> str:
    """Return the path of a request, decoded segment by segment: `%2F` is part of a name and separates nothing.

    >>> decode_segments({"path": "/graphs/g/schema", "raw_path": b"/graphs%2Fg%2Fschema"}) == "/graphs/g/schema"
    False
    """
    raw = scope.get("raw_path") or b""
    if b"%" not in raw:
        path: str = scope["path"]
        return path
    return "/".join(unquote(segment).replace("/", _SLASH) for segment in raw.decode("ascii", "replace").split("/"))


def path_pattern(path: str) -> re.Pattern[str]:
    """Compile the path of a route; `{name}` matches one path segment, `{name:path}` any number.

    >>> path_pattern("/graphs/{graph_id}/tags/{tag:path}").fullmatch("/graphs/g/tags/a/b").groupdict()
    {'graph_id': 'g', 'tag': 'a/b'}
    """
    parts = re.split(r"\{(\w+)(:path)?\}", path)
    pattern = re.escape(parts[0])
    for name, is_path, rest in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        pattern += f"(?P<{name}>{'.*' if is_path else '[^/]+'})" + re.escape(rest)
    return re.compile(pattern)


def _no_route(service: Service, log: RequestLog, allowed: list[str]) -> Response:
    """Return the error for an unknown path or, if `allowed` names some, for a method that the path does not have."""
    if not allowed:
        error = GraphError("there is no route at this path; see `/openapi.json`", code="request.no_route")
        return error_response(service, log, error)
    methods = ", ".join(allowed)
    response = error_response(
        service, log, GraphError(f"this path supports {methods}", code="request.method", allowed=allowed)
    )
    return replace(response, headers={**response.headers, "Allow": methods})


def error_response(service: Service, log: RequestLog, error: OmniGraphError, *, is_change: bool = False) -> Response:
    service.count(error)
    log.code = error.code
    served = service.registry.served.get(log.graph_id) if log.graph_id is not None else None
    try:
        body = redact_error(error, served, is_change=is_change)
    except Exception as failure:  # noqa: BLE001 - an error that cannot be encoded is a bug
        log_failure(failure, log.request_id)
        operation = {"operation_id": str(error.context["operation_id"])} if "operation_id" in error.context else {}
        error = GraphError("", code="internal.bug", effect=error.effect, **operation)
        log.code, body = error.code, redact_error(error, served, is_change=is_change)
    response = json_response({**body, "request_id": log.request_id}, error.kind.http_status)
    return replace(response, headers=_error_headers(error))


def _error_headers(error: OmniGraphError) -> dict[str, str]:
    match error.code:
        case "request.unauthorized":
            return {"WWW-Authenticate": "Bearer"}
        case "request.too_many":
            return {"Retry-After": str(SERVER_RETRY_AFTER_SECONDS)}
        case "blob.range" | "blob.changed":
            return blob_error_headers(error)
    # The rest of a body of known length is discarded as it arrives; one of unknown length is not awaited.
    return {"Connection": "close"} if isinstance(error, BodyTooLarge) else {}


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """The ASGI application of one route; every error becomes a response."""

    service: Service
    path: str
    respond_to: Respond
    headers: Mapping[str, str] = field(default_factory=dict)
    is_change: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        log = request_log(scope)
        log.route = self.path
        try:
            response = await self.respond(scope, receive, log)
        except ClientDisconnected:
            return
        if self.headers:
            response = replace(response, headers={**response.headers, **self.headers})
        try:
            await send_response(response, receive, send, self.service.readers, self.service.minimum_rate)
        except Exception as error:  # noqa: BLE001 - as below
            coded = _as_coded_error(log, error)
            if log.status != CLIENT_CLOSED_REQUEST:
                # The status is sent already: the client sees a truncated body.
                log.code = coded.code
                return
            await send_response(self._error_response(log, coded), receive, send, self.service.readers)

    async def respond(self, scope: Scope, receive: Receive, log: RequestLog) -> Response:
        """Return the response, or the error as one."""
        try:
            if self.path not in ALWAYS_ANSWERED:
                self.service.hosts.check(headers_by_name(scope).get("host", ()))
            response = await self._reserve_stream(await self.respond_to(scope, receive))
        except ClientDisconnected:
            raise
        except asyncio.CancelledError:
            # The server is stopping and the request was still sending its body; work in threads has ended by then.
            if not self.service.is_stopping:
                raise
            return self._error_response(log, server_stopping())
        except Exception as error:  # noqa: BLE001 - the text of an unexpected error must not reach the client
            return self._error_response(log, _as_coded_error(log, error))
        if response.has_committed:
            self.service.metrics.count(names.COMMITS)
        return response

    async def _reserve_stream(self, response: Response) -> Response:
        """Reserve transport buffers for a streamed response; other responses need none."""
        if response.media != NDJSON:
            return response
        streams = self.service.streams
        try:
            await streams.reserve()
        except BaseException:
            response.end()
            raise

        return response.releasing(streams.release)

    def _error_response(self, log: RequestLog, error: OmniGraphError) -> Response:
        return error_response(self.service, log, error, is_change=self.is_change)


def _as_coded_error(log: RequestLog, error: Exception) -> OmniGraphError:
    """Return a coded error; anything else is a bug, which is logged and becomes `internal.bug`."""
    if isinstance(error, OmniGraphError):
        return error
    log_failure(error, log.request_id)
    return GraphError("", code="internal.bug")


def _server_endpoint(service: Service, route: ServerRoute) -> _Endpoint:
    async def ask(scope: Scope, receive: Receive) -> Response:
        actor = None if route.is_open else service.authenticate(headers_by_name(scope))
        request_log(scope).actor = actor
        if route.page is not None and prefers_html(",".join(headers_by_name(scope).get("accept", ()))):
            return route.page()
        if route.is_instant:
            return route.handle(service, actor)
        return await service.run(service.admin_threads, lambda: route.handle(service, actor))

    return _Endpoint(service, route.path, ask)
