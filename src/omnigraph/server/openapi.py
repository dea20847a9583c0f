"""Generate the OpenAPI 3.1 document from the route tables.

Tests check that every response in the route tests matches it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING
from enum import EnumType
from types import NoneType, UnionType
from typing import Any, Final, Literal, NewType, NotRequired, Union, get_args, get_origin, get_type_hints

from omnigraph import __version__, wire
from omnigraph.errors import ERRORS
from omnigraph.ids import GRAPH_ID, ULID_PATTERN
from omnigraph.lang.catalog import TypeKey
from omnigraph.public_values import ConflictKind, PublicValue, members
from omnigraph.server import answers
from omnigraph.server.errors import CODES, Code, Error, MergeConflictKind, OmnigraphCode
from omnigraph.server.handlers.writes import COMMIT_ID
from omnigraph.server.routes import ROUTES, Route, ServerRoute

Schema = dict[str, Any]

_SCALARS: Final[dict[Any, Schema]] = {
    str: {"type": "string"},
    TypeKey: {"type": "string"},
    int: {"type": "integer", "format": "int64"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    NoneType: {"type": "null"},
    OmnigraphCode: {"type": "string", "enum": sorted(ERRORS)},
    Code: {"type": "string", "enum": list(CODES.values())},
    MergeConflictKind: {"type": "string", "enum": [name.lower() for name in ConflictKind.__members__]},
}


def schema_of(kind: Any, shapes: dict[str, Schema]) -> Schema:
    """Return the schema of a type; the schemas it refers to are added to `shapes`."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return {}
    if kind in _SCALARS:
        return dict(_SCALARS[kind])
    if hasattr(kind, "json_type"):
        return schema_of(kind.json_type, shapes)
    if isinstance(kind, NewType):
        return schema_of(kind.__supertype__, shapes)
    if isinstance(kind, EnumType):
        return {"type": "string", "enum": [item.value for item in list[Any](kind)]}
    if origin is Literal:
        return {"type": "string", "enum": list(inner)}
    if origin in (list, tuple):
        return {"type": "array", "items": schema_of(inner[0], shapes)}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(inner[1], shapes)}
    if origin in (Union, UnionType):
        return {"anyOf": [schema_of(option, shapes) for option in inner]}
    if kind.__name__ not in shapes:
        shapes[kind.__name__] = {}
        shapes[kind.__name__] = _object(kind, shapes)
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _object(kind: Any, shapes: dict[str, Schema]) -> Schema:
    if issubclass(kind, PublicValue):
        hints = {member.name: member.kind for member in members(kind)}
        required: Iterable[str] = hints
    else:
        # Read from the hints: older Pythons do not see what is required in annotations that are strings.
        hints, extras = get_type_hints(kind), get_type_hints(kind, include_extras=True)
        required = [name for name, hint in extras.items() if kind.__total__ and get_origin(hint) is not NotRequired]
    properties = {wire.TO_WIRE.get(name, name): schema_of(hint, shapes) for name, hint in hints.items()}
    about = {} if kind.__doc__ is None else {"description": " ".join(kind.__doc__.split())}
    required = sorted(wire.TO_WIRE.get(name, name) for name in required)
    return {"type": "object", **about, "properties": properties, "required": required}


def input_schema(takes: type, shapes: dict[str, Schema]) -> Schema:
    """Return the schema of an input: no unknown members, and every optional member may be null."""
    properties, required = {}, []
    for name, (member, hint) in wire.input_fields(takes).items():
        if member.default is MISSING:
            required.append(name)
            properties[name] = schema_of(hint, shapes)
        else:
            properties[name] = schema_of(hint | None, shapes)
            if member.default is not None:
                properties[name]["default"] = member.default
        if wire.ALIAS in member.metadata:
            properties[name]["description"] = f"Also accepted under its former name, `{member.metadata[wire.ALIAS]}`."
    shape: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**shape, "required": required} if required else shape


def query_parameters(takes: type, shapes: dict[str, Schema]) -> list[dict[str, Any]]:
    shape = input_schema(takes, shapes)
    required = set(shape.get("required", ()))
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _without_null(schema)}
        for name, schema in shape["properties"].items()
    ]


def _without_null(schema: Schema) -> Schema:
    """Return a schema without null: a query string cannot express it, and omits the parameter instead."""
    if "anyOf" not in schema:
        return schema
    options = [option for option in schema["anyOf"] if option.get("type") != "null"]
    rest = {name: value for name, value in schema.items() if name != "anyOf"}
    return {**options[0], **rest} if len(options) == 1 else {"anyOf": options, **rest}


_TEXT: Final[Schema] = {"type": "string"}
_BINARY: Final[Schema] = {"type": "string", "format": "binary"}
_COUNT: Final[Schema] = {"type": "integer", "format": "int64", "minimum": 0}
_ABOUT: Final = (
    "Graphs over HTTP. Every error has the shape of `Error`; every response has a request id in `X-Request-Id`, and a"
    " request may send one. Later releases may add members to responses; members of requests that are not"
    " described are refused."
)

# Response headers, by name, with their descriptions.
_HEADERS: Final[Mapping[str, tuple[Schema, str]]] = {
    wire.REQUEST_ID: (_TEXT, "The id of the request; give it to the operator when you report a problem."),
    "WWW-Authenticate": (_TEXT, "`Bearer`."),
    "Retry-After": (_COUNT, "Seconds to wait before the next attempt."),
    "Deprecation": (_TEXT, "`true`: the route is deprecated, and exists for clients of earlier releases."),
    "Link": (_TEXT, "The route that replaces this one."),
    "Vary": (_TEXT, "`Accept`: programs get JSON, browsers a page."),
    "Content-Security-Policy": (_TEXT, "Scripts, styles and requests of this server only."),
    "X-Content-Type-Options": (_TEXT, "`nosniff`."),
    "Referrer-Policy": (_TEXT, "`no-referrer`."),
    "Cross-Origin-Opener-Policy": (_TEXT, "`same-origin`."),
    "Cache-Control": (_TEXT, "`no-cache`."),
    "ETag": (_TEXT, "A strong validator of the blob."),
    "Accept-Ranges": (_TEXT, "`bytes`."),
    "Content-Range": (
        _TEXT,
        "The returned range and the length of the blob; `bytes */N` if the range is outside the blob.",
    ),
    "Content-Length": (_COUNT, "The length of the body in bytes."),
    wire.SNAPSHOT_ID: (_TEXT, "The commit that was read."),
    wire.QUERY_NAME: (_TEXT, "For Arrow streams: the name of the query, percent-encoded."),
    wire.ROW_COUNT: (_COUNT, "For Arrow streams: the number of rows."),
    wire.BRANCH: (_TEXT, "For Arrow streams: the branch that was read, percent-encoded."),
    wire.COMMIT_ID: (_TEXT, "For Arrow streams: the commit that was read."),
}
_ARROW_HEADERS: Final = (wire.QUERY_NAME, wire.ROW_COUNT, wire.BRANCH, wire.COMMIT_ID)
_BLOB_HEADERS: Final = ("ETag", "Accept-Ranges", wire.SNAPSHOT_ID, "X-Content-Type-Options")

# Statuses of errors: the name of the shared response, and its description.
_ERROR_STATUSES: Final[Mapping[str, tuple[str, str]]] = {
    "400": ("BadRequest", "The request is invalid; see `omnigraph_code`."),
    "401": ("Unauthorized", "The token is missing or unknown."),
    "403": ("Forbidden", "The policy does not allow this."),
    "404": ("NotFound", "It is not there."),
    "408": ("Timeout", "The body was not received in time."),
    "409": ("Conflict", "The request conflicts with the state of the graph."),
    "410": ("Gone", "Cleanup removed the requested state."),
    "412": ("PreconditionFailed", "The branch or blob is not in the state that the caller expected."),
    "413": ("TooLarge", "The request, or the work it needs, exceeds a limit."),
    "415": ("MediaType", "The route does not accept the media type of the body."),
    "416": ("Range", "The range is outside the blob."),
    "421": ("Misdirected", "The server does not serve the host in the `Host` header."),
    "424": ("UnreadableSource", "An external blob that the write names cannot be read."),
    "429": ("TooManyRequests", "This actor has too many requests in flight."),
    "500": ("Failed", "The server or its storage failed."),
    "503": ("Stopping", "The server is shutting down; retry."),
}
_COMMON_STATUSES: Final = ("400", "401", "403", "404", "409", "421", "429", "500", "503")
_STATUS_HEADERS: Final[Mapping[str, tuple[str, ...]]] = {"401": ("WWW-Authenticate",), "429": ("Retry-After",)}


def _header_parameter(
    name: str, about: str, *, pattern: str | None = None, is_required: bool = False
) -> dict[str, Any]:
    schema = {**_TEXT, **({} if pattern is None else {"pattern": f"^{pattern}$"})}
    return {"name": name, "in": "header", "required": is_required, "schema": schema, "description": about}


_CONDITION: Final = _header_parameter(
    wire.IF_COMMIT, "The commit that must be the head of the branch.", pattern=COMMIT_ID.pattern, is_required=True
)
_OPERATION_ID: Final = _header_parameter(
    wire.OPERATION_ID,
    "The idempotency key of the write, chosen by the caller: a write is done at most once per key; see `/operations`.",
    pattern=ULID_PATTERN.pattern,
)
_REQUEST_ID: Final = _header_parameter(wire.REQUEST_ID, "An id for the request; the server replaces a malformed one.")
_BLOB_CONDITIONS: Final = (
    _header_parameter("If-Match", "Strong ETags, or `*`; 412 unless the blob has one of them."),
    _header_parameter("If-None-Match", "ETags, or `*`; 304 if the blob has one of them."),
)
_BLOB_RANGES: Final = (
    _header_parameter("Range", "One range of bytes; anything else is ignored."),
    _header_parameter("If-Range", "A strong ETag; the range is ignored unless the blob has it."),
)


def describe(server_routes: Sequence[ServerRoute], *, is_secured: bool = True) -> dict[str, Any]:
    """Return the OpenAPI document; without authentication it has no security schemes."""
    shapes: dict[str, Schema] = {}
    paths: dict[str, Any] = {}
    schema_of(Error, shapes)
    for server_route in server_routes:
        paths[server_route.path] = {"get": _server_operation(server_route, shapes)}
    for route in ROUTES:
        path = re.sub(r":path\}", "}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _graph_operation(route, path, shapes)
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "OmniGraph", "version": __version__, "description": _ABOUT},
        "paths": paths,
        "components": {
            "headers": {name: {"schema": schema, "description": about} for name, (schema, about) in _HEADERS.items()},
            "parameters": {wire.REQUEST_ID: _REQUEST_ID},
            "responses": {name: _error_response(status) for status, (name, _) in _ERROR_STATUSES.items()},
            "schemas": dict(sorted(shapes.items())),
        },
    }
    if is_secured:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    else:
        for item in paths.values():
            for operation in item.values():
                operation.pop("security", None)
    return document


def _server_operation(route: ServerRoute, shapes: dict[str, Schema]) -> dict[str, Any]:
    content = _content(route.answers, shapes)
    if route.page is not None:
        content = {**content, "text/html": {"schema": dict(_TEXT)}}
    statuses = ("421", "500", "503") if route.is_open else ("401", "403", "421", "500", "503")
    responses = {"200": _response(route.summary, content, route.headers), **_error_responses(statuses)}
    if route.path == "/readyz":
        responses["503"] = _response("A graph cannot be read, or the server is shutting down.", content)
    operation = _operation(route.summary, _operation_name("GET", route.path), responses)
    return {**operation, "security": []} if route.is_open else operation


def _graph_operation(route: Route, path: str, shapes: dict[str, Schema]) -> dict[str, Any]:
    responses = {**_success_responses(route, shapes), **_route_error_responses(route)}
    operation = _operation(route.summary, _operation_name(route.method, path), responses)
    operation["parameters"] += [_path_parameter(name) for name in re.findall(r"\{(\w+)\}", path)]
    operation["parameters"] += _parameters(route, shapes)
    if route.body == "json":
        schema = input_schema(route.takes, shapes)
        content = {wire.JSON: {"schema": schema}}
        operation["requestBody"] = {"required": bool(schema.get("required")), "content": content}
    elif route.body == "ndjson":
        operation["requestBody"] = {
            "required": True,
            "content": _ndjson_content((wire.NodeRecord, wire.EdgeRecord), shapes),
        }
    if route.successor is not None:
        operation["deprecated"] = True
    return operation


def _parameters(route: Route, shapes: dict[str, Schema]) -> list[dict[str, Any]]:
    parameters = query_parameters(route.takes, shapes) if route.body != "json" else []
    if route.path.endswith("/if-graph-commit"):
        parameters.append(_CONDITION)
    if route.may_commit:
        parameters.append(_OPERATION_ID)
    if route.path.endswith("/blob"):
        parameters += [*_BLOB_CONDITIONS, *(_BLOB_RANGES if route.method == "GET" else ())]
    return parameters


def _success_responses(route: Route, shapes: dict[str, Schema]) -> dict[str, Any]:
    if route.path.endswith("/blob"):
        content = {} if route.method == "HEAD" else {wire.BYTES: {"schema": _BINARY}}
        full_headers = (*_BLOB_HEADERS, "Content-Length")
        responses = {
            "200": _response(route.summary, content, full_headers),
            "304": _response("Not changed.", {}, _BLOB_HEADERS),
        }
        if route.method == "GET":
            responses["206"] = _response("The requested range.", content, (*full_headers, "Content-Range"))
        return responses
    if route.path.endswith("/export"):
        content = _ndjson_content((wire.NodeRecord, wire.EdgeRecord), shapes)
        documents = {media: {"schema": dict(_TEXT)} for media in wire.EXPORT_MEDIA.values() if media != wire.NDJSON}
        return {"200": _response(route.summary, {**content, **documents})}
    if route.path.endswith("/baseline"):
        kinds = (wire.NodeRecord, wire.EdgeRecord, wire.BaselineRecord)
        return {"200": _response(route.summary, _ndjson_content(kinds, shapes))}
    content = _content(route.answers, shapes)
    if route.path.endswith("/queries/{name}"):
        both = [content[wire.JSON]["schema"], schema_of(answers.Mutated, shapes)]
        content[wire.JSON]["schema"] = {"anyOf": both}
    if route.answers is answers.Rows:
        content[wire.ARROW] = {"schema": _BINARY}
        return {"200": _response(route.summary, content, _ARROW_HEADERS)}
    return {"200": _response(route.summary, content, route.headers)}


def _route_statuses(route: Route) -> tuple[str, ...]:
    """Return the error statuses of a route, which follow from its input and its action."""
    names = {*route.takes.__dataclass_fields__, *re.findall(r"\{(\w+)", route.path)}  # type: ignore[attr-defined]
    statuses = set(_COMMON_STATUSES)
    if route.body != "none":
        statuses |= {"408", "413", "415"}
    if route.answers in (answers.Mutated, answers.Loaded, answers.LoadedAt) or route.path.endswith("/queries/{name}"):
        statuses.add("424")
    if names & {"snapshot", "as_of", "at", "commit", "commit_id", "page_token", "before", "to"}:
        statuses |= {"410", "413"}
    if route.path.endswith("/if-graph-commit"):
        statuses.add("412")
    if route.path.endswith("/blob"):
        statuses |= {"412", "416"} if route.method == "GET" else {"412"}
    return tuple(sorted(statuses))


def _operation(summary: str, name: str, responses: dict[str, Any]) -> dict[str, Any]:
    request_id = {"$ref": f"#/components/parameters/{wire.REQUEST_ID}"}
    ordered = dict(sorted(responses.items()))
    return {"summary": summary, "operationId": name, "parameters": [request_id], "responses": ordered}


def _content(response: type | str, shapes: dict[str, Schema]) -> dict[str, Any]:
    if isinstance(response, str):
        return {response: {"schema": {"type": "object"} if response == wire.JSON else dict(_TEXT)}}
    return {wire.JSON: {"schema": schema_of(response, shapes)}}


def _ndjson_content(kinds: Iterable[type], shapes: dict[str, Schema]) -> dict[str, Any]:
    """Return the content of an NDJSON body, a string in OpenAPI; `x-line-schema` describes a line."""
    line = {"anyOf": [schema_of(kind, shapes) for kind in kinds]}
    return {wire.NDJSON: {"schema": dict(_TEXT), "x-line-schema": line}}


def _response(about: str, content: Mapping[str, Any], headers: Iterable[str] = ()) -> dict[str, Any]:
    references = {name: {"$ref": f"#/components/headers/{name}"} for name in (wire.REQUEST_ID, *headers)}
    response: dict[str, Any] = {"description": about, "headers": references}
    return {**response, "content": dict(content)} if content else response


def _error_responses(statuses: Iterable[str]) -> dict[str, Any]:
    return {status: {"$ref": f"#/components/responses/{_ERROR_STATUSES[status][0]}"} for status in statuses}


def _route_error_responses(route: Route) -> dict[str, Any]:
    is_head, is_blob = route.method == "HEAD", route.path.endswith("/blob")
    blob_headers = {"412": _BLOB_HEADERS, "416": (*_BLOB_HEADERS, "Content-Range")} if is_blob else {}
    responses = _error_responses(_route_statuses(route))
    for status in responses:
        headers = (*blob_headers.get(status, ()), *route.headers)
        if headers or is_head:
            responses[status] = _error_response(status, headers, has_body=not is_head)
    return responses


def _error_response(status: str, headers: Iterable[str] = (), *, has_body: bool = True) -> dict[str, Any]:
    content = {wire.JSON: {"schema": {"$ref": "#/components/schemas/Error"}}} if has_body else {}
    return _response(_ERROR_STATUSES[status][1], content, (*_STATUS_HEADERS.get(status, ()), *headers))


def _operation_name(method: str, path: str) -> str:
    """Return a name for an operation.

    >>> _operation_name("POST", "/graphs/{graph_id}/mutate/if-graph-commit")
    'post_mutate_if_graph_commit'
    """
    words = re.findall(r"[a-z_]+", path.replace("/graphs/{graph_id}", "") or "/graph") or ["root"]
    return "_".join([method.lower(), *words])


def _path_parameter(name: str) -> dict[str, Any]:
    pattern = {"pattern": f"^{GRAPH_ID.pattern}$"} if name == "graph_id" else {"minLength": 1}
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", **pattern}}
