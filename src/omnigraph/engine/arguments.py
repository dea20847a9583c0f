"""Arguments of public calls: their types checked, and query parameters decoded to typed values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from math import isfinite
from os import PathLike
from types import NoneType, UnionType
from typing import Any, Final, TypeAlias, get_args
from unicodedata import category

import numpy as np

from omnigraph.errors import DataError, LimitExceeded, UsageError
from omnigraph.lang.catalog import FLOATS, INTEGERS, PropertyType
from omnigraph.lang.diagnostic import did_you_mean, join_words
from omnigraph.lang.query.check_values import explain_unknown_word
from omnigraph.lang.query.ir import Parameter
from omnigraph.lang.scalars import TIMES, narrow_float
from omnigraph.limits import COMMIT_MESSAGE_CHARACTERS_MAX
from omnigraph.rules.coerce import Misfit, as_sequence, fit, shown

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


def check_choice(argument: str, word: str, choices: Collection[str]) -> None:
    if word not in choices:
        raise UsageError(f"unknown {argument} `{word}`; expected one of {', '.join(choices)}", word=word)


def strip_name(name: str, argument: str = "branch") -> str:
    """Return a name or id without surrounding whitespace; `UsageError` unless it is a string."""
    check_type(argument, name, str)
    return name.strip()


def parse_message(message: str) -> str:
    """Return the message of a commit without surrounding whitespace; raises unless it is printable text.

    >>> parse_message(" Correct ages ")
    'Correct ages'
    """
    message = strip_name(message, "message").replace("\r\n", "\n")
    if not message:
        raise UsageError("`message` is empty; write what the commit is for, or omit it", argument="message")
    if len(message) > COMMIT_MESSAGE_CHARACTERS_MAX:
        raise LimitExceeded(
            f"a commit message has at most {COMMIT_MESSAGE_CHARACTERS_MAX:,} characters, this one has {len(message):,};"
            " nothing was written, shorten it",
            resource="commit_message_characters",
            limit=COMMIT_MESSAGE_CHARACTERS_MAX,
            actual=len(message),
        )
    # Terminals would run control characters, and lone surrogates have no UTF-8.
    wrong = next((letter for letter in message if category(letter) in ("Cc", "Cs") and letter not in "\n\t"), None)
    if wrong is not None:
        raise UsageError(
            f"`message` has the character U+{ord(wrong):04X}, which is not text; nothing was written, remove it",
            argument="message",
        )
    return message


Value: TypeAlias = str | int | float | bool | bytes | tuple[Any, ...] | None

_DIGITS_MAX: Final = 20


def decode_params(declared: Sequence[Parameter], params: Mapping[str, object]) -> dict[str, Value]:
    """Return the values of declared parameters; a missing one that is not nullable is left out."""
    if not isinstance(params, Mapping):
        raise UsageError(f"parameters are given by name, such as {{'limit': 10}}, not as {shown(params)}")
    unknown = next((name for name in params if name not in {parameter.name for parameter in declared}), None)
    if unknown is not None:
        raise _unknown_parameter_error(unknown, [parameter.name for parameter in declared])
    decoded: dict[str, Value] = {}
    for parameter in declared:
        value = params.get(parameter.name)
        if value is not None:
            decoded[parameter.name] = _decode_value(parameter, value)
        elif parameter.type.nullable:
            decoded[parameter.name] = None
        elif parameter.name in params:
            raise _parameter_error(parameter, value, "it is not nullable")
    return decoded


def missing_parameter_error(name: str) -> DataError:
    message = f"parameter `${name}` was not provided; pass it with the query, or declare it nullable with `?`"
    return DataError(message, rule="E2", parameter=name)


def _unknown_parameter_error(name: str, declared: Sequence[str]) -> UsageError:
    takes = (
        f"it takes {join_words([f'`${parameter}`' for parameter in declared], conjunction='and')}"
        if declared
        else "it takes none"
    )
    hint = did_you_mean(str(name), declared, prefix="$", otherwise=takes)
    return UsageError(f"the query has no parameter `${name}`; {hint}", parameter=str(name), declared=list(declared))


def decode_literal(value: object, type_: PropertyType) -> Value:
    """Return the typed value of a literal; date texts are read here, since the compiler leaves them as they are."""
    if value is None:
        return None
    if type_.is_list:
        assert isinstance(value, tuple)
        return tuple(decode_literal(item, type_.item_type) for item in value)
    assert isinstance(value, str | int | float | bool)
    if type_.scalar not in TIMES:
        return value
    try:
        stored: int = fit(value, type_)
    except Misfit as misfit:
        raise DataError(misfit.reason, rule="E4", value=value) from None
    return stored


def _decode_value(parameter: Parameter, value: object) -> Value:
    type_ = parameter.type
    try:
        if type_.is_vector:
            return _vector(value, type_)
        decoded = _list(value, type_) if type_.is_list else _scalar(value, type_)
        reason = None if parameter.words is None else explain_unknown_word(decoded, parameter.words)
        if reason is not None:
            raise Misfit(reason)
        return decoded
    except Misfit as misfit:
        raise _parameter_error(parameter, value, misfit.reason) from None


def _list(value: object, type_: PropertyType) -> tuple[Value, ...]:
    items = as_sequence(value)
    if items is None:
        raise Misfit(f"{shown(value)} is not a list")
    decoded: list[Value] = []
    for position, item in enumerate(items):
        try:
            decoded.append(None if item is None else _scalar(item, type_.item_type))
        except Misfit as misfit:
            raise Misfit(f"item {position}: {misfit.reason}") from None
    return tuple(decoded)


def _scalar(value: object, type_: PropertyType) -> Value:
    scalar = type_.scalar
    if type_.is_blob and isinstance(value, str | bytes):
        # A blob is decoded where it is stored; until then it is its text.
        return value
    if scalar in FLOATS:
        return _float(value, type_)
    if scalar in INTEGERS and isinstance(value, str):
        value = _parse_integer(value)
    if scalar in TIMES and isinstance(value, int | np.integer):
        raise Misfit(f"{shown(value)} is not a {scalar}; write it as text")
    fitted: Value = fit(value, type_)
    return fitted


def _parse_integer(text: str) -> int:
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > _DIGITS_MAX:
        raise Misfit(f"{shown(text)} is not an integer")
    return int(text)


def _float(value: object, type_: PropertyType) -> float:
    if isinstance(value, float | np.floating) and not isfinite(value):
        # Non-finite numbers can be compared; they are rejected when stored.
        return float(value)
    number: float = fit(value, type_)
    return narrow_float(number, type_.scalar)


def _vector(value: object, type_: PropertyType) -> tuple[float, ...]:
    items = as_sequence(value)
    if items is None or len(items) != type_.dimension:
        actual = shown(value) if items is None else f"a list of {len(items)}"
        raise Misfit(f"a list of {type_.dimension} numbers is needed, not {actual}")
    if not all(issubclass(kind, int | float | np.number) and kind is not bool for kind in set(map(type, items))):
        raise Misfit("it has elements that are not numbers")
    try:
        with np.errstate(over="ignore"):
            numbers = np.array(items, np.float64).astype(np.float32)
    except OverflowError:
        numbers = np.array([np.inf], np.float32)
    if not np.isfinite(numbers).all():
        raise Misfit("it has a number that is not finite as F32")
    return tuple(numbers.tolist())


def _parameter_error(parameter: Parameter, value: object, reason: str) -> DataError:
    return DataError(
        f"parameter `${parameter.name}` of type `{parameter.type}` cannot be {shown(value)}: {reason}",
        rule="E4",
        parameter=parameter.name,
        type=str(parameter.type),
        value=shown(value),
    )
