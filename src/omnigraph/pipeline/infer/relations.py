"""Keys of tables and endpoints of edges, from the distinct values of their columns.

Pure. A key has a different value in every row; an endpoint has only values of a key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

from omnigraph.lang.catalog import INTEGERS, Scalar, TypeKey
from omnigraph.limits import INFER_KEY_COLUMNS_MAX
from omnigraph.pipeline.infer.names import name_property
from omnigraph.pipeline.infer.profile import TableProfile
from omnigraph.pipeline.infer.sketch import Sketch

_KEY_TYPES: Final = INTEGERS | {Scalar.STRING}
# Names that a key is likely to have, the likeliest first.
_KEY_NAMES: Final = ("key", "code", "uuid", "guid", "slug", "name", "email")
_END_NAMES: Final = (("from", "to"), ("src", "dst"), ("source", "target"))

Columns = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge type: the columns of its ends, the node tables they lead to, and how sure that is."""

    columns: tuple[str, str]
    ends: tuple[TypeKey, TypeKey]


@dataclass(slots=True)
class Relations:
    """Which tables are nodes, with their keys, and which are edges; `notes` say what was left out, by table."""

    keys: dict[TypeKey, Columns] = field(default_factory=dict)
    edges: dict[TypeKey, Edge] = field(default_factory=dict)
    notes: dict[TypeKey, list[str]] = field(default_factory=dict)

    def add_note(self, key: TypeKey, text: str) -> None:
        self.notes.setdefault(key, []).append(text)


def key_candidates(key: TypeKey, profile: TableProfile) -> list[Columns]:
    """Return the columns that identify the rows of a table, the likeliest key first."""
    unique = [
        name
        for name, column in profile.columns.items()
        if column.type is not None
        and column.type.scalar in _KEY_TYPES
        and not column.type.is_list
        and profile.nulls(name) == 0
        and not column.sketch.has_duplicates
    ]
    return [(name,) for name in sorted(unique, key=lambda name: _rank_key(key, name))]


def _rank_key(key: TypeKey, name: str) -> tuple[int, int]:
    word = name_property(name).lower()
    table = key.name.lower()
    if word == "id":
        return (0, 0)
    if word in _KEY_NAMES:
        return (1, _KEY_NAMES.index(word))
    if word.removesuffix("id").rstrip("_") in (table, table.removesuffix("s")):
        return (1, -1)
    return (2, 0) if word.endswith("id") else (3, 0)


def composite_candidates(profile: TableProfile, size: int) -> list[Columns]:
    """Return pairs or triples of columns that could identify rows, in the order in which an id names them."""
    usable = [
        name
        for name, column in profile.columns.items()
        if column.type is not None
        and column.type.scalar in _KEY_TYPES
        and not column.type.is_list
        and profile.nulls(name) == 0
    ]
    return [tuple(sorted(names)) for names in combinations(usable[:INFER_KEY_COLUMNS_MAX], size)]


def find_end(
    column: str, values: Sketch, keys: Mapping[TypeKey, Sequence[tuple[Columns, Sketch]]], *, is_number: bool
) -> list[tuple[TypeKey, Columns]]:
    """Return the node tables whose keys hold all values of a column, the likeliest first.

    Small numbers are in most keys, so for numbers the name of the column has to speak for the table.
    """
    options: list[tuple[tuple[bool, int, int], TypeKey, Columns]] = []
    for key, candidates in keys.items():
        for position, (columns, sketch) in enumerate(candidates):
            if values.is_within(sketch):
                is_named = names_table(column, key.name)
                options.append(((not is_named, position, sketch.distinct), key, columns))
    options.sort(key=lambda option: (option[0], option[1]))
    named = [option for option in options if not option[0][0]]
    return [(key, columns) for _, key, columns in (named if is_number and named else options)]


def names_table(column: str, table: str) -> bool:
    """Return True if the name of a column speaks of a table.

    >>> names_table("customer_id", "Customers"), names_table("a", "Customers")
    (True, False)
    """
    word = name_property(column).lower().replace("_", "").removesuffix("id")
    singular = table.lower().removesuffix("s")
    return len(word) > 1 and (singular in word or word in singular)


def named_ends(columns: Iterable[str]) -> tuple[str, str] | None:
    """Return the columns that are called like the ends of an edge."""
    names = set(columns)
    return next((pair for pair in _END_NAMES if names >= set(pair)), None)
