"""The description of the interface, OpenAPI 3.1, made from the tables of routes.

`docs/openapi.json` is this, and a test says so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints

from omnigraph import __version__
from omnigraph.ids import ULID_PATTERN
from omnigraph.server import answers, wire
from omnigraph.server.hosting import GRAPH_ID
from omnigraph.server.routes import ROUTES, Route, ServerRoute
from omnigraph.server.writes import COMMIT_ID

_CONDITION = {
    "name": wire.IF_COMMIT,
    "in": "header",
    "required": True,
    "schema": {"type": "string", "pattern": f"^{COMMIT_ID.pattern}$"},
    "description": "The commit that the branch has to be at.",
}
_OPERATION_ID = {
    "name": wire.OPERATION_ID,
    "in": "header",
    "required": False,
    "schema": {"type": "string", "pattern": f"^{ULID_PATTERN.pattern}$"},
    "description": "An id of the caller's choice. Under one id a write is done at most once; see `/operations`.",
}


def describe(server_routes: Sequence[ServerRoute], *, is_secured: bool = True) -> dict[str, Any]:
    """Return the whole description; without tokens, nothing in it asks for one."""
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for one in server_routes:
        operation = _operation(
            one.summary, _name("GET", one.path), one.answers, schemas, () if one.is_open else ("401",)
        )
        if one.path == "/readyz":
            operation["responses"]["503"] = operation["responses"]["200"] | {
                "description": "Not every graph can be read."
            }
        if one.is_open:
            operation["security"] = []
        paths[one.path] = {"get": operation}
    for route in ROUTES:
        path = re.sub(r":path\}", "}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _graph_operation(route, path, schemas)
    _schema(answers.Error, schemas)
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "OmniGraph", "version": __version__, "description": _ABOUT},
        "paths": paths,
        "components": {"schemas": dict(sorted(schemas.items()))},
    }
    if is_secured:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    else:
        for item in paths.values():
            for operation in item.values():
                operation.pop("security", None)
    return document


_ABOUT = (
    "Graphs over HTTP. Every refusal has the shape of `Error`; every answer has a request id in `X-Request-Id`, and a"
    " request may bring one."
)


def _graph_operation(route: Route, path: str, schemas: dict[str, Any]) -> dict[str, Any]:
    operation = _operation(route.summary, _name(route.method, path), route.answers, schemas, _STATUSES)
    operation["parameters"] = [_path_parameter(name) for name in re.findall(r"\{(\w+)\}", path)]
    if route.body != "json":
        operation["parameters"] += _query_parameters(route.takes, schemas)
    if path.endswith("/if-graph-commit"):
        operation["parameters"].append(_CONDITION)
    if route.may_commit:
        operation["parameters"].append(_OPERATION_ID)
    if route.body == "json":
        schema = _input_schema(route.takes, schemas)
        operation["requestBody"] = {
            "required": bool(schema.get("required")),
            "content": {wire.JSON: {"schema": schema}},
        }
    elif route.body == "ndjson":
        operation["requestBody"] = {"required": True, "content": {wire.NDJSON: {"schema": {"type": "string"}}}}
    responses = operation["responses"]
    if route.answers is answers.Rows:
        responses["200"]["content"][wire.ARROW] = {"schema": {"type": "string", "format": "binary"}}
    if route.path.endswith("/queries/{name}"):
        rows = responses["200"]["content"][wire.JSON]["schema"]
        responses["200"]["content"][wire.JSON]["schema"] = {"anyOf": [rows, _schema(answers.Mutated, schemas)]}
    if route.path.endswith("/blob"):
        for status, about in _BLOB_STATUSES.items():
            responses[status] = {"description": about}
    if route.is_write or route.action == "invoke_query":
        responses["429"] = _error("Too many writes of this actor are under way.")
    return operation


# `4XX` says it all: every refusal has one shape, and the table of errors says which status belongs to which.
_STATUSES = ("401", "403", "404", "4XX", "5XX")
_BLOB_STATUSES = {
    "206": "The range that was asked for.",
    "302": "The blob is kept elsewhere.",
    "304": "The caller has it already.",
}
_WORDS = {
    "401": "No token, or an unknown one.",
    "403": "The policy does not allow it.",
    "404": "It is not there.",
    "4XX": "The request is refused; see `omnigraph_code`.",
    "5XX": "The server or its storage failed.",
}


def _operation(
    summary: str, name: str, answer: type | str, schemas: dict[str, Any], statuses: tuple[str, ...]
) -> dict[str, Any]:
    if isinstance(answer, str):
        schema: dict[str, Any] = {"type": "object"} if answer == wire.JSON else {"type": "string"}
        content = {answer: {"schema": schema}}
    else:
        content = {wire.JSON: {"schema": _schema(answer, schemas)}}
    responses: dict[str, Any] = {"200": {"description": summary, "content": content}}
    responses |= {status: _error(_WORDS[status]) for status in statuses}
    return {"summary": summary, "operationId": name, "responses": responses}


def _error(about: str) -> dict[str, Any]:
    return {"description": about, "content": {wire.JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}}


def _name(method: str, path: str) -> str:
    """Return a name for an operation.

    >>> _name("POST", "/graphs/{graph_id}/mutate/if-graph-commit")
    'post_mutate_if_graph_commit'
    """
    words = re.findall(r"[a-z_]+", path.replace("/graphs/{graph_id}", "") or "/graph")
    return "_".join([method.lower(), *words])


def _path_parameter(name: str) -> dict[str, Any]:
    pattern = {"pattern": f"^{GRAPH_ID.pattern}$"} if name == "graph_id" else {"minLength": 1}
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", **pattern}}


def _query_parameters(takes: type, schemas: dict[str, Any]) -> list[dict[str, Any]]:
    shape = _input_schema(takes, schemas)
    required = set(shape.get("required", ()))
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _without_null(schema)}
        for name, schema in shape["properties"].items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without null, which a query string cannot say: what is left out is not there."""
    if "anyOf" not in schema:
        return schema
    [one, *others] = [option for option in schema["anyOf"] if option.get("type") != "null"]
    return {"anyOf": [one, *others]} if others else one


def _input_schema(takes: type, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an input; nothing but its members is taken."""
    assert is_dataclass(takes)
    hints = get_type_hints(takes)
    properties, required = {}, []
    for one in fields(takes):
        name = wire.TO_WIRE.get(one.name, one.name)
        properties[name] = _schema(hints[one.name], schemas)
        if one.default is MISSING:
            required.append(name)
    shape: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**shape, "required": required} if required else shape


def _schema(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a type; shapes of answers are described once and referred to."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return {}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if origin is Literal:
        return {"type": "string", "enum": list(inner)}
    if origin is list:
        return {"type": "array", "items": _schema(inner[0], schemas)}
    if origin is dict:
        values = _schema(inner[1], schemas)
        return {"type": "object", **({"additionalProperties": values} if values else {})}
    if origin in (Union, UnionType):
        return {"anyOf": [_schema(one, schemas) for one in inner]}
    if kind.__name__ not in schemas:
        schemas[kind.__name__] = {}
        schemas[kind.__name__] = _object(kind, schemas)
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


_PLAIN = {str: "string", int: "integer", bool: "boolean", NoneType: "null"}


def _object(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    properties = {wire.TO_WIRE.get(name, name): _schema(hint, schemas) for name, hint in hints.items()}
    required = sorted(wire.TO_WIRE.get(name, name) for name in required_members(kind))
    about = {} if kind.__doc__ is None else {"description": " ".join(kind.__doc__.split())}
    return {"type": "object", **about, "properties": properties, "required": required}


def required_members(kind: Any) -> set[str]:
    """Return the members that an answer always has; annotations kept as text hide that from older Pythons."""
    told = get_type_hints(kind, include_extras=True)
    if not kind.__total__:
        return set()
    return {name for name, hint in told.items() if get_origin(hint) is not NotRequired}
