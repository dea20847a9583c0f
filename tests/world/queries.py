"""Random queries, answered by the model: patterns, walks, interfaces, negation, counts, text and vectors.

Written from docs/languages.md. They are asked of what a state shows, under the names that it is shown with.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from omnigraph.graph import Graph
from tests.world.model import Shown
from tests.world.mutations import called
from tests.world.schema_model import Property, Schema, Type, edges, nodes
from tests.world.steps import Broken

MODES = ("auto", "indexed", "csr")
# A query, and its rows in any order; or in this order.
Question = tuple[str, list[tuple[Any, ...]], bool]
WORD = "sea"


@contextmanager
def traversing(mode: str) -> Iterator[None]:
    """Force how edges are traversed."""
    before = os.environ.get("OMNIGRAPH_TRAVERSAL_MODE")
    os.environ["OMNIGRAPH_TRAVERSAL_MODE"] = mode
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMNIGRAPH_TRAVERSAL_MODE"]
        else:
            os.environ["OMNIGRAPH_TRAVERSAL_MODE"] = before


class Questions:
    """Draws questions about a state, and answers them."""

    def __init__(self, random: Random, shown: Shown, schema: Schema) -> None:
        self.random, self.schema = random, schema
        self.rows: dict[str, dict[str, dict[str, Any]]] = {one.table_key: {} for one in schema.values()}
        for (key, entity), values in shown.items():
            self.rows[key][entity] = values

    def draw(self) -> Question | None:
        draws: list[Callable[[], Question | None]] = [
            self._filter,
            self._walk,
            self._walk,
            self._two_hops,
            self._without,
            self._any_edge,
            self._interface,
            self._groups,
            self._search,
            self._nearest,
            self._narrowed,
            self._narrowed,
            self._exists,
            self._counted,
            self._unwound,
            self._first_of_each,
        ]
        return self.random.choice(draws)()

    # -- questions -------------------------------------------------------------------------------------------------

    def _filter(self) -> Question | None:
        type_, one = self._property(nodes(self.schema), ("I32", "I64", "F64", "F32", "String"))
        if one is None:
            return None
        values = [row[one.name] for row in self._of(type_).values() if row[one.name] is not None]
        if not values or one.base == "F32":
            return None
        value = self.random.choice(sorted(values))
        if isinstance(value, float) and abs(value) >= 1e16:
            return None
        text = f'"{_quoted(value)}"' if isinstance(value, str) else str(value)
        found = [(entity,) for entity, row in self._of(type_).items() if row[one.name] == value]
        return f"match {{ $a: {type_.name}  $a.{one.name} = {text} }} return {{ $a.@id as a }}", found, False

    def _walk(self) -> Question | None:
        edge = self._edge()
        if edge is None or edge.ends is None:
            return None
        # A destination appears once, however many parallel edges lead to it.
        pairs = sorted({(row["from"], row["to"]) for row in self._of(edge).values()})
        pattern = f"$a {called(edge)} $b"
        if self.random.random() < 0.5:
            pattern = f"$a: {self.schema[edge.ends[0]].name}  {pattern}"
        return f"match {{ {pattern} }} return {{ $a.@id as a, $b.@id as b }}", pairs, False

    def _two_hops(self) -> Question | None:
        first = self._edge()
        others = [
            one for one in edges(self.schema) if first and first.ends and one.ends and one.ends[0] == first.ends[1]
        ]
        if first is None or not others:
            return None
        second = self.random.choice(others)
        found = {
            (one["from"], one["to"], two["to"])
            for one in self._of(first).values()
            for two in self._of(second).values()
            if one["to"] == two["from"]
        }
        pattern = f"$a {called(first)} $b  $b {called(second)} $c"
        return f"match {{ {pattern} }} return {{ $a.@id as a, $b.@id as b, $c.@id as c }}", sorted(found), False

    def _without(self) -> Question | None:
        edge = self._edge()
        if edge is None or edge.ends is None:
            return None
        source = self.schema[edge.ends[0]]
        having = {row["from"] for row in self._of(edge).values()}
        found = [(one,) for one in self._of(source) if one not in having]
        pattern = f"$a: {source.name}  not {{ $a {called(edge)} $_ }}"
        return f"match {{ {pattern} }} return {{ $a.@id as a }}", found, False

    def _any_edge(self) -> Question | None:
        edge = self._edge()
        if edge is None or edge.ends is None:
            return None
        source = self.schema[edge.ends[0]]
        leaving = [one for one in edges(self.schema) if one.ends and one.ends[0] == source.id]
        found = {(row["from"],) for one in leaving for row in self._of(one).values()}
        return f"match {{ $a: {source.name}  $a _ $x }} return distinct {{ $a.@id as a }}", sorted(found), False

    def _interface(self) -> Question | None:
        named = [one for one in nodes(self.schema) if one.is_named]
        if not named:
            return None
        found = [(entity, row["name"]) for type_ in named for entity, row in self._of(type_).items()]
        return "match { $n: Named } return { $n.@id as a, $n.name as name }", found, False

    def _groups(self) -> Question | None:
        type_, one = self._property(nodes(self.schema), ("I32", "String", "Bool"))
        if one is None:
            return None
        counts = Counter(row[one.name] for row in self._of(type_).values())
        source = f"match {{ $a: {type_.name} }} return {{ $a.{one.name} as v, count($a) as n }}"
        return source, list(counts.items()), False

    def _search(self) -> Question | None:
        type_, one = self._property(nodes(self.schema), ("String",), indexed=True)
        if one is None:
            return None
        found = [(key,) for key, row in self._of(type_).items() if WORD in (row[one.name] or "").split()]
        pattern = f'$a: {type_.name}  search($a.{one.name}, "{WORD}")'
        return f"match {{ {pattern} }} return {{ $a.@id as a }}", found, False

    def _nearest(self) -> Question | None:
        type_, one = self._property(nodes(self.schema), ("Vector(3)",))
        if one is None:
            return None
        # No two of the vectors that there are lie equally far from this one.
        origin = (0.1, 0.2, 0.3)
        ranked = sorted(
            (sum((left - right) ** 2 for left, right in zip(row[one.name], origin, strict=True)), entity)
            for entity, row in self._of(type_).items()
            if row[one.name] is not None
        )
        order = f"order {{ nearest($a.{one.name}, [0.1, 0.2, 0.3]) }} limit 3"
        rows = [(entity,) for _, entity in ranked[:3]]
        return f"match {{ $a: {type_.name} }} return {{ $a.@id as a }} {order}", rows, True

    def _narrowed(self) -> Question | None:
        """Bind a variable twice, first as one of several types; what is left walks on."""
        edge = self._edge()
        if edge is None or edge.ends is None:
            return None
        source = self.schema[edge.ends[0]]
        others = [one.name for one in nodes(self.schema) if one.id != source.id]
        if not others:
            return None
        union = [source.name, *self.random.sample(others, min(len(others), self.random.choice([1, 2])))]
        self.random.shuffle(union)
        bindings = [f"$a: {'|'.join(union)}", f"$a: {source.name}"]
        self.random.shuffle(bindings)
        pairs = sorted({(row["from"], row["to"]) for row in self._of(edge).values()})
        if self.random.random() < 0.5:
            pattern = "  ".join([*bindings, f"$a {called(edge)} $b"])
            return f"match {{ {pattern} }} return {{ $a.@id as a, $b.@id as b }}", pairs, False
        having = {pair[0] for pair in pairs}
        pattern = "  ".join([*bindings, f"not {{ $a {called(edge)} $_ }}"])
        rows = [(one,) for one in self._of(source) if one not in having]
        return f"match {{ {pattern} }} return {{ $a.@id as a }}", rows, False

    def _exists(self) -> Question | None:
        edge = self._edge()
        if edge is None or edge.ends is None:
            return None
        source = self.schema[edge.ends[0]]
        having = {row["from"] for row in self._of(edge).values()}
        negated = self.random.choice(["", "not "])
        found = [(one,) for one in self._of(source) if (one in having) == (not negated)]
        pattern = f"$a: {source.name}  {negated}exists {{ $a {called(edge)} $b }}"
        return f"match {{ {pattern} }} return {{ $a.@id as a }}", found, False

    def _counted(self) -> Question | None:
        edge = self._edge()
        if edge is None or edge.ends is None:
            return None
        source = self.schema[edge.ends[0]]
        # With a variable every edge counts, without one every destination.
        ends = [(row["from"], entity) for entity, row in self._of(edge).items()]
        variable = self.random.choice(["", "$e: "])
        if not variable:
            ends = list({(row["from"], row["to"]) for row in self._of(edge).values()})
        counts = Counter(one for one, _ in ends)
        column = f"count {{ $a {variable}{called(edge)} $b }} as n"
        rows = [(one, counts[one]) for one in self._of(source)]
        return f"match {{ $a: {source.name} }} return {{ $a.@id as a, {column} }}", rows, False

    def _unwound(self) -> Question | None:
        type_, one = self._property(nodes(self.schema), ("[String]", "[I32]", "[I64]"))
        if one is None:
            return None
        rows = [(entity, item) for entity, row in self._of(type_).items() for item in row[one.name] or []]
        pattern = f"$a: {type_.name}  unwind $a.{one.name} as $item"
        return f"match {{ {pattern} }} return {{ $a.@id as a, $item as item }}", rows, False

    def _first_of_each(self) -> Question | None:
        type_, one = self._property(nodes(self.schema), ("I32", "String", "Bool"))
        if one is None:
            return None
        groups: dict[Any, list[str]] = {}
        for entity, row in sorted(self._of(type_).items()):
            groups.setdefault(row[one.name], []).append(entity)
        count = self.random.choice([1, 2])
        rows = [(entity,) for entities in groups.values() for entity in entities[:count]]
        order = f"order {{ $a.@id }} limit {count} per {{ $a.{one.name} }}"
        return f"match {{ $a: {type_.name} }} return {{ $a.@id as a }} {order}", sorted(rows), True

    # -- pieces ----------------------------------------------------------------------------------------------------

    def _of(self, type_: Type) -> dict[str, dict[str, Any]]:
        return self.rows[type_.table_key]

    def _edge(self) -> Type | None:
        among = edges(self.schema)
        return self.random.choice(among) if among else None

    def _property(
        self, among: list[Type], bases: tuple[str, ...], *, indexed: bool = False
    ) -> tuple[Type, Property | None]:
        pairs = [(type_, one) for type_ in among for one in type_.properties if one.base in bases]
        pairs = [(type_, one) for type_, one in pairs if one.is_indexed or not indexed]
        if not pairs:
            return next(iter(self.schema.values())), None
        return self.random.choice(pairs)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def ask(graph: Graph, question: Question, mode: str, **options: Any) -> None:
    """Ask a question in one mode of traversal, and compare the rows."""
    source, expected, is_ordered = question
    what = f"{source} ({mode}, {options})"
    with traversing(mode):
        try:
            found = [tuple(row.values()) for row in graph.query(f"query q() {{ {source} }}", **options).rows()]
        except Exception as error:
            error.add_note(what)
            raise
    if found != expected and (is_ordered or Counter(found) != Counter(expected)):
        missing = sorted((Counter(expected) - Counter(found)).elements(), key=str)
        surplus = sorted((Counter(found) - Counter(expected)).elements(), key=str)
        raise Broken(f"query {what}: missing {missing[:5]}, unexpected {surplus[:5]}, {len(found)} rows: {found[:5]}")
