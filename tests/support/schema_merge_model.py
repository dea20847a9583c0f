"""A model of schema merges, from the definition: a schema is a set of facts about identities, merged one by one.

Nothing here uses the rules of the merge. A fact is a path that begins with the identity it is about, and a value.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

from omnigraph.lang.catalog import Cardinality, PropertyType, Scalar
from omnigraph.lang.schema.ir import SchemaIR
from omnigraph.lang.schema.shape import EdgeShape, Identities, NodeShape, PropertyShape, SchemaShape, TypeIds

DOMAIN = "01JAZ5V9X0000000000000000A"
SPACE = 2**32
Path = tuple[Any, ...]
# A type is (type id,), a property (type id, property id); what is known of either is a longer path.
Facts = dict[Path, Any]


class ModelConflict(Exception):
    """The definition of a merge gives no result."""


def merge_facts(base: Facts, ours: Facts, theirs: Facts, take: str | None = None) -> Facts:
    """Merge by definition; raises `ModelConflict`. With `take`, a side wins wherever both changed something.

    What it dropped goes; what only the other side dropped is not brought back, and is a conflict still.
    """
    merged: Facts = {}
    for path in {*base, *ours, *theirs}:
        before, left, right = (side.get(path) for side in (base, ours, theirs))
        if left == right or right == before:
            value = left
        elif left == before:
            value = right
        elif take is None:
            raise ModelConflict(path)
        else:
            value = left if take == "ours" else right
        if value is not None:
            merged[path] = value
    for thing in [path for path in base if path[-1] == "is"]:
        about = thing[:-1]
        kept = [side for side in (ours, theirs) if thing in side]
        if len(kept) == 1 and _about(kept[0], about) != _about(base, about):
            winner = {"ours": ours, "theirs": theirs}.get(take or "")
            if winner is None or winner is kept[0]:
                raise ModelConflict(thing)
            merged = {path: value for path, value in merged.items() if path[: len(about)] != about}
    if take is not None:
        merged = _without_clashes(merged, ours if take == "ours" else theirs)
    _check(merged)
    return merged


def _without_clashes(facts: Facts, winner: Facts) -> Facts:
    """Leave out every thing of the other side that has the name of one of the winner."""
    places = {
        path[:-1]: (path[0] if len(path) == 3 else facts.get((path[0], "is")), value)
        for path, value in facts.items()
        if path[-1] == "name"
    }
    taken = {place for thing, place in places.items() if (*thing, "is") in winner}
    lost = [thing for thing, place in places.items() if (*thing, "is") not in winner and place in taken]
    return {path: value for path, value in facts.items() if not any(path[: len(one)] == one for one in lost)}


def _about(facts: Facts, thing: Path) -> Facts:
    return {path: value for path, value in facts.items() if path[: len(thing)] == thing}


def _check(facts: Facts) -> None:
    for path in facts:
        # Every fact is about something that exists.
        owners = [path[:length] for length in (1, 2) if len(path) > length + 1 and isinstance(path[length - 1], int)]
        if not all((*owner, "is") in facts for owner in owners):
            raise ModelConflict(path)
        if path[-1] in ("source", "target") and (facts[path], "is") not in facts:
            raise ModelConflict(path)
    names = [
        (path[0] if len(path) == 3 else facts[path[0], "is"], value)
        for path, value in facts.items()
        if path[-1] == "name"
    ]
    if len(set(names)) != len(names):
        raise ModelConflict("two things of one name")


class SchemaEditor:
    """Random changes of a schema on one branch, which numbers new things in a space of its own."""

    def __init__(self, random: Random, facts: Facts, space: int) -> None:
        self.random = random
        self.facts = dict(facts)
        self._next = space * SPACE + 1

    def new_id(self) -> int:
        self._next += 1
        return self._next

    @property
    def next_identity_id(self) -> int:
        return self._next + 1

    def edit(self) -> None:
        """Make one change that keeps the schema valid; none if the change does not fit."""
        before = dict(self.facts)
        action = self.random.choice(
            [
                self.add_type,
                self.add_edge,
                self.add_property,
                self.rename,
                self.drop,
                self.widen,
                self.extend,
                self.mark,
            ]
        )
        try:
            action()
            _check(self.facts)
        except (ModelConflict, IndexError):
            self.facts = before

    def add_type(self) -> None:
        type_id = self.new_id()
        self.facts |= {(type_id, "is"): "node", (type_id, "name"): self._name("N"), (type_id, "table"): self.new_id()}

    def add_edge(self) -> None:
        ends = self.random.choices(self._types("node"), k=2)
        type_id = self.new_id()
        self.facts |= {
            (type_id, "is"): "edge",
            (type_id, "name"): self._name("E"),
            (type_id, "table"): self.new_id(),
            (type_id, "source"): ends[0],
            (type_id, "target"): ends[1],
        }

    def add_property(self) -> None:
        owner = self.random.choice(self._types("node", "edge"))
        thing = (owner, self.new_id())
        scalar = self.random.choice(["I32", "String", "enum"])
        self.facts |= {(*thing, "is"): "property", (*thing, "name"): self._name("p"), (*thing, "scalar"): scalar}
        if scalar == "enum":
            self.facts[(*thing, "value", "base")] = True

    def rename(self) -> None:
        path = self.random.choice(_sorted(path for path in self.facts if path[-1] == "name"))
        self.facts[path] = self._name(str(self.facts[path])[0])

    def drop(self) -> None:
        thing = self.random.choice(_sorted(path for path in self.facts if path[-1] == "is"))[:-1]
        for path in _about(self.facts, thing):
            del self.facts[path]

    def widen(self) -> None:
        path = self.random.choice(_sorted(path for path in self.facts if self.facts[path] in ("I32", "String")))
        self.facts[path] = self.random.choice(["I64", "F64"]) if self.facts[path] == "I32" else "String"
        self.facts[*path[:-1], "nullable"] = True

    def extend(self) -> None:
        thing = self.random.choice(_sorted(path for path in self.facts if self.facts[path] == "enum"))[:-1]
        values = _sorted(path for path in _about(self.facts, thing) if path[2] == "value")
        if len(values) > 1 and self.random.random() < 0.4:
            del self.facts[self.random.choice(values)]
        else:
            self.facts[*thing, "value", self.random.choice("abcd")] = True

    def mark(self) -> None:
        thing = self.random.choice(_sorted(path for path in self.facts if self.facts[path] == "property"))[:-1]
        path = (*thing, self.random.choice(["@index", "@unique"]))
        self.facts = {**self.facts, path: True} if path not in self.facts else _without(self.facts, path)

    def _types(self, *kinds: str) -> list[int]:
        return sorted(path[0] for path in self.facts if len(path) == 2 and self.facts[path] in kinds)

    def _name(self, prefix: str) -> str:
        return f"{prefix}{self.random.randrange(12)}"


def _sorted(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=repr)


def _without(facts: Facts, path: Path) -> Facts:
    return {other: value for other, value in facts.items() if other != path}


# -- facts as a schema, and back ---------------------------------------------------------------------------------------


def to_ir(facts: Facts, next_identity_id: int) -> SchemaIR:
    """Return facts as the schema that the product merges."""
    nodes: list[NodeShape] = []
    edges: list[EdgeShape] = []
    ids: dict[str, dict[str, TypeIds]] = {"node": {}, "edge": {}}
    for type_id, kind in sorted((path[0], kind) for path, kind in facts.items() if len(path) == 2 and path[1] == "is"):
        name = facts[type_id, "name"]
        things = sorted(path[:2] for path, value in facts.items() if value == "property" and path[0] == type_id)
        properties = tuple(sorted((_property(facts, thing) for thing in things), key=lambda item: item.name))
        property_ids = {facts[*thing, "name"]: thing[1] for thing in things}
        ids[kind][name] = TypeIds(type_id, facts[type_id, "table"], dict(sorted(property_ids.items())))
        if kind == "node":
            nodes.append(NodeShape(name, properties))
        else:
            source, target = (facts[facts[type_id, end], "name"] for end in ("source", "target"))
            edges.append(EdgeShape(name, source, target, properties, (), Cardinality()))
    shape = SchemaShape(
        (), tuple(sorted(nodes, key=lambda item: item.name)), tuple(sorted(edges, key=lambda item: item.name))
    )
    identities = Identities({}, dict(sorted(ids["node"].items())), dict(sorted(ids["edge"].items())))
    return SchemaIR(DOMAIN, next_identity_id, shape, identities)


def _property(facts: Facts, thing: Path) -> PropertyShape:
    scalar = facts[*thing, "scalar"]
    values = sorted(path[3] for path in _about(facts, thing) if path[2] == "value")
    type_ = PropertyType(
        Scalar.STRING if scalar == "enum" else Scalar(scalar),
        nullable=(*thing, "nullable") in facts,
        enum_values=tuple(values) if scalar == "enum" else None,
    )
    marks = tuple(mark for mark in ("index", "unique") if (*thing, f"@{mark}") in facts)
    return PropertyShape(facts[*thing, "name"], type_, marks)


def random_histories(seed: int) -> tuple[tuple[Facts, int], tuple[Facts, int], tuple[Facts, int]]:
    """Return the facts of a base and two sides, each with its next identity."""
    random = Random(seed)
    base = SchemaEditor(random, {}, 0)
    base.add_type()
    for _ in range(random.randrange(3, 20)):
        base.edit()
    main, branch = SchemaEditor(random, base.facts, 0), SchemaEditor(random, base.facts, random.randrange(1, 9))
    main._next = first = base._next
    for side in (main, branch):
        for _ in range(random.randrange(7)):
            side.edit()
    sides = [(main.facts, main.next_identity_id), (branch.facts, branch.next_identity_id)]
    if not any(identity > SPACE for path in branch.facts for identity in path if isinstance(identity, int)):
        # A branch that has added nothing yet has the counter that it began with.
        sides[1] = (branch.facts, first + 1)
    random.shuffle(sides)
    return (base.facts, base.next_identity_id), sides[0], sides[1]
