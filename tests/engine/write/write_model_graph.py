"""A graph in dictionaries that knows the rules: what a write should leave behind, or the code by which it is refused.

Pure, and slow on purpose: states are judged as a whole, not step by step.
"""

from __future__ import annotations

import datetime as dt
import json
import operator
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.engine.write.write_model_schema import BOUNDS, PATTERN, Property, Schema, Type

EPOCH = dt.date(1970, 1, 1)
OPERATORS = {"=": operator.eq, "!=": operator.ne, ">=": operator.ge, "<": operator.lt}
Row = dict[str, Any]
# `{type: {id: row}}`; the ends of an edge are members `src` and `dst` of its row.
Image = dict[str, dict[str, Row]]


def spelled(value: Any) -> str:
    """Return a key value as ids spell it."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return str((value - EPOCH).days) if isinstance(value, dt.date) else str(value)


def id_of(type_: Type, row: Row) -> str:
    parts = [spelled(row[name]) for name in type_.key]
    return parts[0] if len(parts) == 1 else json.dumps(parts, separators=(",", ":"))


def is_allowed(one: Property, value: Any) -> bool:
    """Tell whether the rules of a property allow a value that is not null."""
    is_within = not one.is_bounded or BOUNDS[0] <= value <= BOUNDS[1]
    return (
        is_within
        and (not one.is_checked or bool(re.search(PATTERN, value)))
        and (one.kind != "enum" or value in one.words)
    )


@dataclass
class Outcome:
    """What a write should come to: a code, or an image with the number of entities it touched."""

    image: Image
    code: str | None = None
    nodes: int = 0
    edges: int = 0


@dataclass
class Model:
    """A schema and the image of a graph."""

    schema: Schema
    image: Image

    @classmethod
    def empty(cls, schema: Schema) -> Model:
        return cls(schema, {one.name: {} for one in schema.types})

    def reshaped(self, schema: Schema) -> Model:
        """Return the graph under another schema: renamed, with new properties null and dropped ones gone."""
        after: Image = {}
        for type_ in schema.types:
            is_known = type_.former is not None or any(one.name == type_.name for one in self.schema.types)
            before = self.image[type_.former or type_.name] if is_known else {}
            names = {one.name: one.former or one.name for one in type_.properties} | (
                {"src": "src", "dst": "dst"} if type_.ends else {}
            )
            after[type_.name] = {
                entity: {name: row.get(former) for name, former in names.items()} for entity, row in before.items()
            }
            for one in type_.properties:
                is_new = one.former is None and is_known and one.name not in self._names(type_)
                if is_new and not one.is_nullable:
                    # What has no value gets the default.
                    after[type_.name] = {
                        entity: {**row, one.name: one.default} for entity, row in after[type_.name].items()
                    }
        return Model(schema.settled(), after)

    def _names(self, type_: Type) -> set[str]:
        [old] = [one for one in self.schema.types if one.name == (type_.former or type_.name)]
        return {one.name for one in old.properties}

    def evolved(self, schema: Schema) -> Outcome:
        """Return what a schema that is not refused by itself comes to: what breaks it is refused, ids follow keys."""
        after = self.reshaped(schema)
        code = after.fault(after.image, list(after.image))
        if code is not None:
            return Outcome(self.image, code)
        before = {one.name: one for one in self.schema.types}
        renamed: dict[str, dict[str, str]] = {}
        for type_ in sorted(schema.types, key=lambda one: one.ends is not None):
            old = before.get(type_.former or type_.name)
            rows = after.image[type_.name]
            for column, end in zip(("src", "dst"), type_.ends or (), strict=False):
                ids = renamed.get(end, {})
                rows = {entity: {**row, column: ids.get(row[column], row[column])} for entity, row in rows.items()}
            if type_.key and old is not None:
                ids = {entity: id_of(type_, row) for entity, row in rows.items()}
                if len(set(ids.values())) < len(ids):
                    return Outcome(self.image, "E5")
                renamed[type_.name] = ids
                rows = {ids[entity]: row for entity, row in rows.items()}
            after.image[type_.name] = rows
        return Outcome(after.image)

    def copy(self) -> Image:
        return {name: dict(rows) for name, rows in self.image.items()}

    def matching(self, image: Image, type_: Type, column: str, word: str, constant: Any) -> list[str]:
        """Return the ids of the rows that a comparison chooses; null is never chosen."""
        test = OPERATORS[word]
        rows = image[type_.name].items()
        if constant is None:
            return []
        return [entity for entity, row in rows if row[column] is not None and test(row[column], constant)]

    def delete(self, image: Image, type_: Type, ids: Iterable[str]) -> tuple[int, int]:
        """Take entities out of an image, with the edges at nodes; return how many nodes and edges went."""
        chosen = [one for one in ids if image[type_.name].pop(one, None) is not None]
        if type_.ends:
            return 0, len(chosen)
        gone = 0
        for edge in self.schema.edges:
            assert edge.ends is not None
            rows = image[edge.name]
            for entity, row in list(rows.items()):
                if any(
                    end == type_.name and row[column] in chosen
                    for end, column in zip(edge.ends, ("src", "dst"), strict=True)
                ):
                    del rows[entity]
                    gone += 1
        return len(chosen), gone

    def fault(self, after: Image, untouched: Sequence[str] = ()) -> str | None:
        """Return the code of the first rule that an image breaks; edges of `untouched` types leave no source alone."""
        for check in (self._required, self._words, self._ranges_and_patterns, self._unique, self._ends):
            if (code := check(after)) is not None:
                return code
        return self._cardinality(after, untouched)

    def value_fault(self, image: Image) -> str | None:
        return self._words(image) or self._ranges_and_patterns(image)

    def _required(self, image: Image) -> str | None:
        for type_ in self.schema.types:
            needed = [one.name for one in type_.properties if not one.is_nullable]
            if any(row[name] is None for row in image[type_.name].values() for name in needed):
                return "E4"
        return None

    def _words(self, image: Image) -> str | None:
        for type_ in self.schema.types:
            for one in type_.properties:
                held = [row[one.name] for row in image[type_.name].values()]
                if one.kind == "enum" and any(value is not None and value not in one.words for value in held):
                    return "E7"
        return None

    def _ranges_and_patterns(self, image: Image) -> str | None:
        for type_ in self.schema.types:
            for one in type_.properties:
                held = [row[one.name] for row in image[type_.name].values() if row[one.name] is not None]
                if one.kind != "enum" and not all(is_allowed(one, value) for value in held):
                    return "E8"
        return None

    def _unique(self, image: Image) -> str | None:
        for type_ in self.schema.types:
            for columns in type_.unique:
                held = [tuple(row[name] for name in columns) for row in image[type_.name].values()]
                whole = [one for one in held if None not in one]
                if len(set(whole)) < len(whole):
                    return "E5"
        return None

    def _ends(self, image: Image) -> str | None:
        for edge in self.schema.edges:
            assert edge.ends is not None
            for end, column in zip(edge.ends, ("src", "dst"), strict=True):
                if any(row[column] not in image[end] for row in image[edge.name].values()):
                    return "E9"
        return None

    def _cardinality(self, after: Image, untouched: Sequence[str]) -> str | None:
        for edge in self.schema.edges:
            assert edge.ends is not None
            counts = Counter(row["src"] for row in after[edge.name].values())
            if edge.name not in untouched:
                # A node that never had an edge is fine; one that had some and stays is counted.
                before = {row["src"] for row in self.image[edge.name].values()}
                counts.update(dict.fromkeys(before & after[edge.ends[0]].keys(), 0))
            if any(count < edge.least or (edge.most is not None and count > edge.most) for count in counts.values()):
                return "E10"
        return None
