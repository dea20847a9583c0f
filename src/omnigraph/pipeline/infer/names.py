"""Names of files and columns as names of types and properties."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Final

from omnigraph.lang.schema.checks.declarations import RESERVED_NAMES

_PROPERTY: Final = re.compile(r"[a-z_][A-Za-z0-9_]*")
_TYPE: Final = re.compile(r"[A-Z][A-Za-z0-9_]*")
_EDGE_ENDS: Final = frozenset({"src", "dst"})


def is_type_name(name: str) -> bool:
    return _TYPE.fullmatch(name) is not None


def name_type(text: str) -> str:
    """Return the name of a type for a file or table.

    >>> name_type("data/depends-on.csv.gz"), name_type("People"), name_type("2024 sales.parquet")
    ('DependsOn', 'People', 'T2024Sales')
    """
    stem = os.path.basename(text.rstrip("/")).split(".")[0]
    words = [word for word in re.split(r"[^A-Za-z0-9]+", stem) if word]
    name = "".join(word[0].upper() + word[1:] for word in words) or "Table"
    return name if name[0].isalpha() else f"T{name}"


def name_property(column: str) -> str:
    """Return the name of a property for a column.

    >>> [name_property(column) for column in ("First Name", "SKU", "Price", "2nd", "größe")]
    ['first_name', 'sku', 'price', '_2nd', 'gr_e']
    """
    if _PROPERTY.fullmatch(column):
        return column
    name = re.sub(r"[^A-Za-z0-9]+", "_", column).strip("_")
    name = name.lower() if " " in column or name.isupper() else name[:1].lower() + name[1:]
    return name if name[:1].isalpha() else f"_{name}"


def name_properties(columns: Iterable[str], *, is_edge: bool, keeps_id: bool) -> dict[str, str]:
    """Return the property of each column, all different; `id` stays the id of the graph if it is one.

    >>> name_properties(["id", "a b", "a_b"], is_edge=False, keeps_id=False)
    {'id': 'id_', 'a b': 'a_b_2', 'a_b': 'a_b'}
    """
    columns = list(columns)
    reserved = RESERVED_NAMES | (_EDGE_ENDS if is_edge else frozenset()) | (frozenset() if keeps_id else {"id"})
    used_names = {column for column in columns if name_property(column) == column and column not in reserved}
    names: dict[str, str] = {}
    for column in columns:
        name = name_property(column)
        if name in reserved:
            name = f"{name}_"
        if name != column:
            base, number = name, 1
            while name in used_names:
                number += 1
                name = f"{base}_{number}"
            used_names.add(name)
        names[column] = name
    return names
