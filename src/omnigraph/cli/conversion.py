"""Conversion of the values of arguments and options, without pydantic, which takes as long to load as half a query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import EnumType
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

_UNKNOWN: Final = object()


@dataclass(frozen=True, slots=True)
class PlainValue:
    """Converts a value that is certainly right; Typer's converter, which loads pydantic, gets the others."""

    build_converter: Callable[[], Any]

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        annotation, is_list = param.type_descriptor.annotation, param.multiple or param.nargs == -1
        if value is None:
            return () if is_list else None
        plain = convert(annotation, value)
        return self.build_converter().coerce(value, param=param, ctx=ctx) if plain is _UNKNOWN else plain


def convert(annotation: Any, value: Any) -> Any:
    """Return a value as a parameter has it; `_UNKNOWN` if it takes a closer look.

    >>> convert(list[Path], ("a",)), convert(Literal["now", "then"], "now"), convert(int, "x") is _UNKNOWN
    ([PosixPath('a')], 'now', True)
    """
    if get_origin(annotation) is list:
        items = [convert(get_args(annotation)[0], item) for item in value]
        return _UNKNOWN if _UNKNOWN in items else items
    if get_origin(annotation) is Literal:
        return value if value in get_args(annotation) else _UNKNOWN
    if isinstance(annotation, EnumType):
        members: list[Any] = list(annotation)
        return next((member for member in members if value in (member, member.value)), _UNKNOWN)
    if annotation in (str, Path) and isinstance(value, str | Path):
        return annotation(value)
    return value if type(value) is annotation else _UNKNOWN
