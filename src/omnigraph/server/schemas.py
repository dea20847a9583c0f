"""From the types of requests and answers to JSON Schema, for the description of the interface.

Pure. Shapes of answers are described once, under their names, and referred to.
"""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Final, Literal, NotRequired, Union, get_args, get_origin, get_type_hints

from omnigraph.errors import ERRORS
from omnigraph.server import wire
from omnigraph.server.refusals import OmnigraphCode

Schema = dict[str, Any]

_PLAIN: Final[dict[Any, Schema]] = {
    str: {"type": "string"},
    int: {"type": "integer", "format": "int64"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    NoneType: {"type": "null"},
    OmnigraphCode: {"type": "string", "enum": sorted(ERRORS)},
}


def reference(name: str) -> Schema:
    """Return a reference to a shape by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def schema_of(kind: Any, shapes: dict[str, Schema]) -> Schema:
    """Return the schema of a type; what it refers to is added to `shapes`."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return {}
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    if origin is Literal:
        return {"type": "string", "enum": list(inner)}
    if origin is list:
        return {"type": "array", "items": schema_of(inner[0], shapes)}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(inner[1], shapes)}
    if origin in (Union, UnionType):
        return {"anyOf": [schema_of(one, shapes) for one in inner]}
    if kind.__name__ not in shapes:
        shapes[kind.__name__] = {}
        shapes[kind.__name__] = _object(kind, shapes)
    return reference(kind.__name__)


def _object(kind: Any, shapes: dict[str, Schema]) -> Schema:
    hints = get_type_hints(kind)
    properties = {wire.TO_WIRE.get(name, name): schema_of(hint, shapes) for name, hint in hints.items()}
    required = sorted(wire.TO_WIRE.get(name, name) for name in required_members(kind))
    about = {} if kind.__doc__ is None else {"description": " ".join(kind.__doc__.split())}
    return {"type": "object", **about, "properties": properties, "required": required}


def required_members(kind: Any) -> set[str]:
    """Return the members that an answer always has; annotations kept as text hide that from older Pythons."""
    hints = get_type_hints(kind, include_extras=True)
    if not kind.__total__:
        return set()
    return {name for name, hint in hints.items() if get_origin(hint) is not NotRequired}


def input_schema(takes: type, shapes: dict[str, Schema]) -> Schema:
    """Return the schema of an input: no other members, and null wherever a member may be left out."""
    assert is_dataclass(takes)
    hints = get_type_hints(takes)
    properties, required = {}, []
    for one in fields(takes):
        name = wire.TO_WIRE.get(one.name, one.name)
        hint = hints[one.name]
        if one.default is MISSING:
            required.append(name)
            properties[name] = schema_of(hint, shapes)
        else:
            properties[name] = schema_of(hint | None, shapes)
            if one.default is not None:
                properties[name]["default"] = one.default
        if wire.ALIAS in one.metadata:
            properties[name]["description"] = f"Also taken under its former name, `{one.metadata[wire.ALIAS]}`."
    shape: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**shape, "required": required} if required else shape


def query_parameters(takes: type, shapes: dict[str, Schema]) -> list[dict[str, Any]]:
    """Return the members of an input as parameters of an address."""
    shape = input_schema(takes, shapes)
    required = set(shape.get("required", ()))
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _without_null(schema)}
        for name, schema in shape["properties"].items()
    ]


def _without_null(schema: Schema) -> Schema:
    """Return a schema without null, which a query string cannot say: what is left out is not there."""
    if "anyOf" not in schema:
        return schema
    options = [option for option in schema["anyOf"] if option.get("type") != "null"]
    rest = {name: value for name, value in schema.items() if name != "anyOf"}
    return {**options[0], **rest} if len(options) == 1 else {"anyOf": options, **rest}
