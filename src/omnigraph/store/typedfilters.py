"""Typed filters on datasets that hold lists which Substrait has no name for.

Lance hands a filter over together with the dataset's whole schema, and puts placeholders where a column's type cannot
be named. It does not know that lists of unsigned numbers and of `date64` are such types, so a filter on any column of a
dataset that has one is refused; this adds them to what it knows.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import pyarrow as pa

_UNNAMED: Final = (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.date64())
# By its name, since `lance.dataset` as an attribute is a function.
lance_dataset: Final[Any] = import_module("lance.dataset")
_known_to_lance: Final = lance_dataset._needs_substrait_placeholder


def needs_placeholder(type_: Any) -> bool:
    """Tell whether a column of this type must be hidden from a filter on another column."""
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return type_.value_type in _UNNAMED or needs_placeholder(type_.value_type)
    return bool(_known_to_lance(type_))


def install() -> None:
    """Make Lance ask us; doing it twice changes nothing."""
    lance_dataset._needs_substrait_placeholder = needs_placeholder
