"""From the text of a request to the value that its route takes: JSON bodies and query strings, checked the same way.

Pure. What does not fit is a `UsageError` that names the member and says what belongs there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

import orjson

from omnigraph.errors import UsageError
from omnigraph.server.wire import ALIAS, TO_WIRE

T = TypeVar("T")
_InputFields: TypeAlias = dict[str, tuple[Field[Any], Any]]

_known_inputs: dict[Any, _InputFields] = {}
_BOOLEANS: Final = {"true": True, "false": False}
_TYPE_NAMES: Final[Mapping[Any, str]] = {str: "a text", int: "an integer of 64 bits", bool: "true or false"}


def from_json(kind: type[T], body: bytes) -> T:
    """Return what a JSON body says; an empty body says nothing."""
    try:
        given = orjson.loads(body) if body.strip() else {}
    except orjson.JSONDecodeError as error:
        raise UsageError(f"the body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    if not isinstance(given, dict):
        raise UsageError("the body has to be a JSON object")
    return _build(kind, given)


def from_query(kind: type[T], query: bytes) -> T:
    """Return what a query string says; only lists may be given more than once."""
    lists = {
        wire for wire, (_, hint) in _input_fields(kind).items() if list in [get_origin(one) for one in _options(hint)]
    }
    given: dict[str, Any] = {}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name in lists:
            given.setdefault(name, []).append(value)
        elif name in given:
            raise UsageError(f"`{name}` is given more than once", name=name)
        else:
            given[name] = _parse_value(_input_fields(kind)[name][1], value) if name in _input_fields(kind) else value
    return _build(kind, given)


def _build(kind: type[T], given: Mapping[str, Any]) -> T:
    shape = _input_fields(kind)
    # Null says nothing, so it is as if the member were not there. Within a member, such as `params`, it says null.
    given = {name: value for name, value in _resolve_aliases(kind, given).items() if value is not None}
    unknown = sorted(given.keys() - shape.keys())
    if unknown:
        known = ", ".join(f"`{name}`" for name in shape) or "no members"
        raise UsageError(f"unknown member `{unknown[0]}`; the request takes {known}", name=unknown[0])
    values: dict[str, Any] = {}
    for wire, (field, hint) in shape.items():
        if wire not in given:
            if field.default is MISSING:
                raise UsageError(f"`{wire}` is missing", name=wire)
            continue
        if not _matches(hint, given[wire]):
            raise UsageError(f"`{wire}` has to be {_describe_type(hint)}", name=wire)
        values[field.name] = given[wire]
    return kind(**values)


def _resolve_aliases(kind: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a request under their present names, whichever the caller uses."""
    renamed = dict(given)
    for wire, (field, _) in _input_fields(kind).items():
        alias = field.metadata.get(ALIAS)
        if alias is None or alias not in renamed:
            continue
        value = renamed.pop(alias)
        if value is not None and renamed.get(wire) is not None:
            raise UsageError(f"`{wire}` and `{alias}` are two names of one member; send one of them", name=alias)
        renamed[wire] = value if value is not None else renamed.get(wire)
    return renamed


def _input_fields(kind: Any) -> _InputFields:
    """Return the members of an input by the names that travel."""
    if kind not in _known_inputs:
        hints = get_type_hints(kind)
        _known_inputs[kind] = {TO_WIRE.get(one.name, one.name): (one, hints[one.name]) for one in fields(kind)}
    return _known_inputs[kind]


def _options(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _matches(hint: Any, value: object) -> bool:
    return any(_matches_option(option, value) for option in _options(hint))


def _matches_option(option: Any, value: object) -> bool:
    if option is NoneType:
        return value is None
    if option is int:
        # To Python a truth value is a number, to a caller it is not.
        return type(value) is int and -(2**63) <= value < 2**63
    if get_origin(option) is Literal:
        return isinstance(value, str) and value in get_args(option)
    if get_origin(option) is list:
        return isinstance(value, list) and all(_matches(get_args(option)[0], one) for one in value)
    if get_origin(option) is dict:
        return isinstance(value, dict)
    return isinstance(value, option)


def _parse_value(hint: Any, text: str) -> object:
    """Return a text of a query string as the member's type, or as it is, for the check to refuse."""
    options = _options(hint)
    if bool in options:
        return _BOOLEANS.get(text, text)
    if int in options and text.isascii() and text.isdigit() and len(text) < 20:
        return int(text)
    return text


def _describe_type(hint: Any) -> str:
    options = [one for one in _options(hint) if one is not NoneType]
    return " or ".join(map(_describe_option, options))


def _describe_option(option: Any) -> str:
    if get_origin(option) is Literal:
        return "one of " + ", ".join(f"`{word}`" for word in get_args(option))
    if get_origin(option) is list:
        return f"a list, each {_describe_type(get_args(option)[0])}"
    if get_origin(option) is dict:
        return "an object"
    return _TYPE_NAMES[option]
