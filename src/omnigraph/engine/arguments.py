"""Checks of argument types at the public entry points; a mismatch raises `UsageError` naming the argument."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from os import PathLike
from types import NoneType, UnionType
from typing import Final, get_args

from omnigraph.errors import UsageError

_WORDS: Final[Mapping[object, str]] = {
    str: "a string",
    int: "an integer",
    datetime: "a datetime",
    timedelta: "a timedelta",
    Mapping: "a mapping",
    PathLike: "a path",
}


def check_type(argument: str, value: object, expected: type | UnionType) -> None:
    """Raise `UsageError` unless the value of an argument is an instance of a type, or of one in a union.

    >>> check_type("limit", None, int | None)
    """
    if not isinstance(value, expected):
        words = " or ".join(_WORDS[kind] for kind in get_args(expected) or (expected,) if kind is not NoneType)
        raise UsageError(f"`{argument}` must be {words}, got `{type(value).__name__}`", argument=argument)


def check_name_list(argument: str, value: object) -> None:
    """Raise `UsageError` unless the value of an argument is None or a collection of strings, not a single string."""
    if value is None:
        return
    if (
        isinstance(value, str | bytes)
        or not isinstance(value, Collection)
        or not all(isinstance(x, str) for x in value)
    ):
        raise UsageError(f"`{argument}` must be a list of names, got `{type(value).__name__}`", argument=argument)


def strip_name(name: str, argument: str = "branch") -> str:
    """Return a name or id without surrounding whitespace; `UsageError` unless it is a string."""
    check_type(argument, name, str)
    return name.strip()
