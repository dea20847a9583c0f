"""Decides which tables are nodes and which are edges, with their names, keys and endpoints, from distinct values.

A key has a different value in every row; an endpoint has only values of a key.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

from omnigraph.engine.infer.profile import ColumnProfile, Sketch, TableProfile
from omnigraph.engine.infer.scan import Probe, Scan
from omnigraph.lang.catalog import INTEGERS, TEXT, PropertyType, TypeKey
from omnigraph.lang.schema.checks.declarations import RESERVED_NAMES
from omnigraph.limits import INFER_KEY_COLUMNS_MAX, INFER_PASS_VALUES

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


_KEY_TYPES: Final = INTEGERS | {TEXT.scalar}
# Names that a key is likely to have, the likeliest first.
_KEY_NAMES: Final = ("key", "code", "uuid", "guid", "slug", "name", "email")
_END_NAMES: Final = (("from", "to"), ("src", "dst"), ("source", "target"))

Columns = tuple[str, ...]
_HASH_MAX: Final = 2**64 - 1
_COMPOSITE_SIZES: Final = (2, 3)


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
    unique = [name for name in _key_columns(profile) if not profile.columns[name].sketch.has_duplicates]
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
    usable = _key_columns(profile)[:INFER_KEY_COLUMNS_MAX]
    return [tuple(sorted(names)) for names in combinations(usable, size)]


def _key_columns(profile: TableProfile) -> list[str]:
    """Return the columns that may be part of a key: each row has a value, of a type that keys have."""
    return [
        name
        for name, column in profile.columns.items()
        if column.type is not None
        and column.type.scalar in _KEY_TYPES
        and not column.type.is_list
        and profile.nulls(name) == 0
    ]


def find_end(
    column: str, values: Sketch, keys: Mapping[TypeKey, Sequence[tuple[Columns, Sketch]]], *, is_number: bool
) -> list[tuple[TypeKey, Columns]]:
    """Return the node tables whose keys hold all values of a column, the likeliest first.

    Small numbers are in most keys, so for numbers the name of the column has to mention the table.
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
    """Return True if the name of a column mentions a table.

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


@dataclass(slots=True)
class Relater:
    """One decision over all tables. `guessed` may be nodes or edges; `ends` are the columns that a caller named."""

    scan: Scan
    profiles: Mapping[TypeKey, TableProfile]
    guessed: frozenset[TypeKey]
    ends: Mapping[TypeKey, tuple[str, str]]
    keys: dict[TypeKey, list[tuple[Columns, Sketch]]] = field(default_factory=dict)

    def relate(self) -> Relations:
        """Return the keys and edges; a key of more values than a sketch holds is checked value by value."""
        nodes = [key for key in self.profiles if key.kind == "node"]
        self.keys = {key: self._single_keys(key) for key in nodes}
        edge_columns = self._find_edges(nodes)
        for key in edge_columns:
            self.keys.pop(key, None)
        while True:
            relations = self._choose(edge_columns)
            wrong = next((key for key in relations.keys if not self._is_key(key, relations.keys[key])), None)
            if wrong is None:
                self._note_references(relations)
                return relations
            self.keys[wrong] = [pair for pair in self.keys[wrong] if pair[0] != relations.keys[wrong]]

    def _single_keys(self, key: TypeKey) -> list[tuple[Columns, Sketch]]:
        profile = self.profiles[key]
        return [(columns, profile.columns[columns[0]].sketch) for columns in key_candidates(key, profile)]

    def _find_edges(self, nodes: Sequence[TypeKey]) -> dict[TypeKey, tuple[str, str]]:
        """Return the end columns of all edge tables: those that were named, and those that tables turn out to have."""
        ends_by_table = {
            key: self.ends.get(key) or named_ends(self.profiles[key].columns)
            for key in self.profiles
            if key.kind == "edge"
        }
        for key in nodes:
            if key in self.guessed:
                ends = named_ends(self.profiles[key].columns)
                ends = ends or self._guess_ends(key)
                if ends is not None and (named_ends(self.profiles[key].columns) or self._is_link_table(key, ends)):
                    ends_by_table[key] = ends
        return {key: ends for key, ends in ends_by_table.items() if ends is not None}

    def _is_link_table(self, key: TypeKey, ends: tuple[str, str]) -> bool:
        """Return True unless a table has a key of its own, or may describe the nodes that one of its columns names.

        In a table of N:1 links one end is distinct, as a key is, but it is the key of another table.
        """
        if not self.keys[key]:
            return True
        columns = self.profiles[key].columns
        is_own_key = any(name not in ends for candidate, _ in self.keys[key] for name in candidate)
        return not is_own_key and len(columns) == len(ends)

    def _guess_ends(self, key: TypeKey) -> tuple[str, str] | None:
        others = {other: pairs for other, pairs in self.keys.items() if other != key}
        columns = [
            name
            for name, column in self.profiles[key].columns.items()
            if self.profiles[key].nulls(name) == 0 and self._leads_anywhere(name, column, others)
        ]
        return (columns[0], columns[1]) if len(columns) > 1 else None

    def _leads_anywhere(
        self, name: str, column: ColumnProfile, keys: Mapping[TypeKey, Sequence[tuple[Columns, Sketch]]]
    ) -> bool:
        options = find_end(name, column.sketch, keys, is_number=_is_number(column))
        return bool(options) and (not _is_number(column) or names_table(name, options[0][0].name))

    def _choose(self, edge_columns: Mapping[TypeKey, tuple[str, str]]) -> Relations:
        relations = Relations()
        for key, columns in edge_columns.items():
            ends = [self._choose_end(key, column, relations) for column in columns]
            if ends[0] is not None and ends[1] is not None:
                relations.edges[key] = Edge(columns, (ends[0], ends[1]))
            else:
                missing = " and ".join(f"`{column}`" for column, end in zip(columns, ends, strict=True) if end is None)
                relations.add_note(
                    key, f"left out: edge {key.name}, because the values of {missing} are in no key of a node type"
                )
        for key in self.profiles:
            if key.kind == "edge" and key not in edge_columns:
                relations.add_note(key, f"left out: edge {key.name}, which has no columns `from` and `to`")
        for key, candidates in self.keys.items():
            relations.keys.setdefault(key, candidates[0][0] if candidates else ())
        return relations

    def _choose_end(self, key: TypeKey, column: str, relations: Relations) -> TypeKey | None:
        profile = self.profiles[key].columns.get(column)
        if profile is None or not profile.values:
            return None
        options = find_end(column, profile.sketch, self.keys, is_number=_is_number(profile))
        if not options and _composite_size(profile.example):
            self._add_composites(_composite_size(profile.example))
            options = find_end(column, profile.sketch, self.keys, is_number=False)
        for table, columns in options:
            if relations.keys.setdefault(table, columns) == columns:
                return table
        return None

    def _add_composites(self, size: int) -> None:
        """Add keys of several columns to the candidates of tables that have none of that size yet."""
        probes = [
            probe
            for key in self.keys
            if not any(len(columns) == size for columns, _ in self.keys[key])
            for probe in (self._probe(key, columns) for columns in composite_candidates(self.profiles[key], size))
        ]
        sketches = self.scan.sketch_ids(probes) if probes else {}
        for probe in probes:
            sketch = sketches.get(probe, Sketch())
            if not sketch.has_duplicates:
                self.keys[probe.key].append((probe.columns, sketch))

    def _probe(self, key: TypeKey, columns: Columns) -> Probe:
        types = (self.profiles[key].columns[column].type for column in columns)
        scalars = (None if type_ is None else type_.scalar for type_ in types)
        return Probe(key, columns, tuple(PropertyType(scalar or TEXT.scalar) for scalar in scalars))

    def _is_key(self, key: TypeKey, columns: Columns) -> bool:
        """Return True if no two rows have the same key; reads the input once for each range of hashes."""
        sketch = next((sketch for names, sketch in self.keys[key] if names == columns), Sketch())
        if not columns or sketch.is_exact:
            return True
        passes = -(-self.profiles[key].rows // INFER_PASS_VALUES)
        bounds = [_HASH_MAX * number // passes for number in range(passes + 1)]
        probe = self._probe(key, columns)
        ranges = zip([0, *(bound + 1 for bound in bounds[1:])], bounds[1:], strict=False)
        return not any(self.scan.find_duplicates(probe, low, high) for low, high in ranges)

    def _note_references(self, relations: Relations) -> None:
        """Note columns of nodes that hold keys of other nodes: an edge needs a table with the keys of both."""
        for key, columns in relations.keys.items():
            others = {
                other: [pair for pair in self.keys[other] if pair[0] == chosen]
                for other, chosen in relations.keys.items()
                if other != key
            }
            for name, column in self.profiles[key].columns.items():
                options = find_end(name, column.sketch, others, is_number=True)
                if name not in columns and options and names_table(name, options[0][0].name):
                    other = options[0][0].name
                    relations.add_note(
                        key, f"{name}: every value is a key of {other}; an edge to it needs a table with both keys"
                    )


def _is_number(profile: ColumnProfile) -> bool:
    return profile.type is not None and profile.type.scalar in INTEGERS


def _composite_size(text: str) -> int:
    """Return how many parts an id has that is written as a JSON array; 0 for other texts."""
    try:
        parts = json.loads(text) if text.startswith("[") else None
    except ValueError:
        return 0
    return len(parts) if isinstance(parts, list) and len(parts) in _COMPOSITE_SIZES else 0
