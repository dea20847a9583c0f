"""Parses JSON bodies and query strings into the input types of routes.

Pure. A mismatch is a `UsageError` that names the field and its expected type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

import orjson

from omnigraph.engine.json_members import find_repeated_member
from omnigraph.errors import UsageError
from omnigraph.server.wire import ALIAS, TO_WIRE

T = TypeVar("T")
_InputFields: TypeAlias = dict[str, tuple[Field[Any], Any]]

_known_inputs: dict[Any, _InputFields] = {}
_BOOLEANS: Final = {"true": True, "false": False}
_TYPE_NAMES: Final[Mapping[Any, str]] = {
    str: "a string",
    int: "a 64-bit integer",
    float: "a number",
    bool: "true or false",
}


def from_json(kind: type[T], body: bytes) -> T:
    """Parse a JSON body; an empty body is `{}`."""
    try:
        document = orjson.loads(body) if body.strip() else {}
    except orjson.JSONDecodeError as error:
        raise UsageError(f"the body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    if not isinstance(document, dict):
        raise UsageError("the body must be a JSON object")
    if (name := find_repeated_member(body, document)) is not None:
        raise UsageError(f"duplicate member `{name}` in an object of the body; send it once", name=name)
    return _build(kind, document)


def from_query(kind: type[T], query: bytes) -> T:
    """Parse a query string; only lists may repeat."""
    lists = {
        wire
        for wire, (_, hint) in _input_fields(kind).items()
        if list in [get_origin(option) for option in _options(hint)]
    }
    values: dict[str, Any] = {}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name in lists:
            values.setdefault(name, []).append(value)
        elif name in values:
            raise UsageError(f"`{name}` is given more than once", name=name)
        else:
            values[name] = _parse_value(_input_fields(kind)[name][1], value) if name in _input_fields(kind) else value
    return _build(kind, values)


def _build(kind: type[T], document: Mapping[str, Any]) -> T:
    shape = _input_fields(kind)
    # A null field counts as absent. Inside a field, such as `params`, null is a value.
    document = {name: value for name, value in _resolve_aliases(kind, document).items() if value is not None}
    unknown = sorted(document.keys() - shape.keys())
    if unknown:
        expected = ", ".join(f"`{name}`" for name in shape) or "no fields"
        raise UsageError(f"unknown field `{unknown[0]}`; expected one of {expected}", name=unknown[0])
    values: dict[str, Any] = {}
    for wire, (field, hint) in shape.items():
        if wire not in document:
            if field.default is MISSING:
                raise UsageError(f"`{wire}` is missing", name=wire)
            continue
        if not _matches(hint, document[wire]):
            raise UsageError(f"`{wire}` must be {_describe_type(hint)}", name=wire)
        values[field.name] = document[wire]
    return kind(**values)


def _resolve_aliases(kind: Any, document: Mapping[str, Any]) -> dict[str, Any]:
    """Rename aliased fields to their current names."""
    renamed = dict(document)
    for wire, (field, _) in _input_fields(kind).items():
        alias = field.metadata.get(ALIAS)
        if alias is None or alias not in renamed:
            continue
        value = renamed.pop(alias)
        if value is not None and renamed.get(wire) is not None:
            raise UsageError(f"`{wire}` and `{alias}` are two names of one field; send one of them", name=alias)
        renamed[wire] = value if value is not None else renamed.get(wire)
    return renamed


def _input_fields(kind: Any) -> _InputFields:
    """Return the fields of an input type by their names on the wire."""
    if kind not in _known_inputs:
        hints = get_type_hints(kind)
        _known_inputs[kind] = {
            TO_WIRE.get(member.name, member.name): (member, hints[member.name]) for member in fields(kind)
        }
    return _known_inputs[kind]


def _options(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _matches(hint: Any, value: object) -> bool:
    return any(_matches_option(option, value) for option in _options(hint))


def _matches_option(option: Any, value: object) -> bool:
    if option is NoneType:
        return value is None
    if option is int:
        # bool is a subclass of int, but not a JSON integer.
        return type(value) is int and -(2**63) <= value < 2**63
    if get_origin(option) is Literal:
        return isinstance(value, str) and value in get_args(option)
    if get_origin(option) is list:
        return isinstance(value, list) and all(_matches(get_args(option)[0], item) for item in value)
    if get_origin(option) is dict:
        return isinstance(value, dict)
    return isinstance(value, option)


def _parse_value(hint: Any, text: str) -> object:
    """Convert a query-string value to the field's type; unchanged if it does not fit, for the check to reject."""
    options = _options(hint)
    if bool in options:
        return _BOOLEANS.get(text, text)
    if int in options and text.isascii() and text.isdigit() and len(text) < 20:
        return int(text)
    return text


def _describe_type(hint: Any) -> str:
    options = [option for option in _options(hint) if option is not NoneType]
    return " or ".join(map(_describe_option, options))


def _describe_option(option: Any) -> str:
    if get_origin(option) is Literal:
        return "one of " + ", ".join(f"`{word}`" for word in get_args(option))
    if get_origin(option) is list:
        return f"a list, each {_describe_type(get_args(option)[0])}"
    if get_origin(option) is dict:
        return "an object"
    return _TYPE_NAMES[option]
