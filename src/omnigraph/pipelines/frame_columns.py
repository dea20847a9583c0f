"""Columns of Spark frames by name and type, as sources, transforms and expectations use them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import and_
from typing import Any, Final

from omnigraph.engine.input.frame_rows import ORIGIN
from omnigraph.errors import UsageError
from omnigraph.lang.diagnostic import did_you_mean

# A text that is a number.
NUMBER: Final = r"^\s*[+-]?[0-9]+(\.[0-9]+)?\s*$"
# Names of Spark types.
NUMBER_TYPES: Final = ("byte", "short", "integer", "long", "decimal", "float", "double")
TIME_TYPES: Final = ("date", "timestamp", "timestamp_ntz")
TEXT_TYPES: Final = ("string", "varchar", "char")
_FAMILIES: Final = {"number": NUMBER_TYPES, "time": TIME_TYPES, "text": TEXT_TYPES}


def column_of(name: str) -> Any:
    """Return a column by its name, whatever characters it has."""
    from pyspark.sql import functions

    quoted = name.replace("`", "``")
    return functions.col(f"`{quoted}`")


def type_of(frame: Any, column: str) -> str:
    return str(frame.schema[column].dataType.typeName())


def find_family(frame: Any, column: str) -> str | None:
    """Return how the values of a column are compared: as numbers, times or text; None if they cannot."""
    kind = type_of(frame, column)
    return next((family for family, kinds in _FAMILIES.items() if kind in kinds), None)


def all_of(conditions: Iterable[Any]) -> Any:
    return reduce(and_, conditions)


def all_present(columns: Iterable[Any]) -> Any:
    return all_of(column.isNotNull() for column in columns)


def names_of(frame: Any) -> list[str]:
    """Return the columns that SQL and the declaration see: all but where a row comes from."""
    return [name for name in frame.columns if name != ORIGIN]


def suggest_column(name: str, frame: Any) -> str:
    """Return a hint for a column that a frame does not have."""
    return did_you_mean(name, names_of(frame)) or f"it has {', '.join(names_of(frame))}"


def require_distinct_columns(frame: Any, subject: str, part: str) -> None:
    """Refuse a view in which two columns have the same name."""
    names: set[str] = set()
    for name in names_of(frame):
        if name.lower() in names:
            raise UsageError(f"{subject} has two columns `{name}`; give one of them another name", part=part)
        names.add(name.lower())
