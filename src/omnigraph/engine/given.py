"""Arguments: those of a wrong type are refused by their names at the doors, before anything is done with them.

Looks at annotations alone; what a value means is for whoever takes it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from os import PathLike
from types import FunctionType
from typing import Any, Final, ParamSpec, TypeVar

from omnigraph.errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)

_NAMES: Final = "Sequence[str]"
# What an annotation takes, and how to say it; arguments annotated otherwise are not looked at here.
_TAKES: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "str": ((str,), "a text"),
    "int": ((int,), "a whole number"),
    "str | Path": ((str, PathLike), "a text or a path"),
    "str | os.PathLike[str]": ((str, PathLike), "a path"),
    "AsOf": ((str, int, datetime), "a commit, a tag, a version or a point in time"),
    "datetime": ((datetime,), "a datetime"),
    "timedelta": ((timedelta,), "a span of time"),
    "Mapping[str, object]": ((Mapping,), "a mapping of names to values"),
    "Mapping[str, Any]": ((Mapping,), "a mapping of names to values"),
    _NAMES: ((Collection,), "a list of names"),
}


def checking(owner: C) -> C:
    """Let all public methods of a class refuse arguments of a wrong type."""
    for name, member in list(vars(owner).items()):
        if isinstance(member, FunctionType) and not name.startswith("_"):
            setattr(owner, name, checked(member))
    return owner


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Let one function refuse arguments of a wrong type."""
    names = list(inspect.signature(function).parameters)
    annotations = {name: str(text) for name, text in function.__annotations__.items() if name != "return"}
    known = {name: text for name, text in annotations.items() if text.removesuffix(" | None") in _TAKES}

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in (*zip(names, args, strict=False), *kwargs.items()):
            if name in known:
                _check(name, value, known[name])
        return function(*args, **kwargs)

    return call


def _check(name: str, value: Any, annotation: str) -> None:
    bare = annotation.removesuffix(" | None")
    if value is None and bare != annotation:
        return
    types, words = _TAKES[bare]
    is_right = isinstance(value, types)
    if bare == _NAMES:
        # A text is a sequence of texts too, and never meant as one.
        is_right = is_right and not isinstance(value, str | bytes) and all(isinstance(one, str) for one in value)
    if not is_right:
        raise UsageError(f"`{name}` takes {words}, not `{type(value).__name__}`", argument=name)
