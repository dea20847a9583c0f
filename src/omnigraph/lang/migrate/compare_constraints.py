"""Compare the constraints of an accepted type with those of its new version.

Pure. A constraint is the same if it constrains the same properties, even if they were renamed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from omnigraph.lang.catalog import Cardinality, TypeKey
from omnigraph.lang.diagnostic import Span
from omnigraph.lang.migrate.step import Step, StepEffect, StepKind
from omnigraph.lang.schema.ast import Kind
from omnigraph.lang.schema.codec import TypeIds
from omnigraph.lang.schema.ir import SchemaIR
from omnigraph.lang.schema.lower import TypeOrigin
from omnigraph.lang.schema.shape import ConstraintShape, InterfaceShape, TypeShape


@dataclass(frozen=True, slots=True)
class Pair:
    """An accepted type and its successor, each in its schema."""

    kind: Kind
    accepted: SchemaIR
    old_name: str
    ir: SchemaIR
    name: str
    origin: TypeOrigin

    @property
    def old(self) -> TypeShape:
        return self.accepted.types(self.kind)[self.old_name]

    @property
    def new(self) -> TypeShape:
        return self.ir.types(self.kind)[self.name]

    @property
    def old_ids(self) -> TypeIds:
        return self.accepted.ids(self.kind)[self.old_name]

    @property
    def new_ids(self) -> TypeIds:
        return self.ir.ids(self.kind)[self.name]

    @property
    def table_key(self) -> TypeKey:
        """The key of the type, which is not an interface."""
        return TypeKey.of(self.kind, self.name)

    def step(self, kind: StepKind, property_name: str | None = None, *, span: Span | None = None, **more: Any) -> Step:
        """Return a step on the type or one of its properties, at the name of the type unless a span is given."""
        return Step(kind, self.kind, self.name, property_name, span=span or self.origin.span, **more)


@dataclass(frozen=True, slots=True)
class _ConstraintKey:
    """Identifies a constraint by the ids of its columns, so that renaming a column does not change it."""

    kind: str
    columns: frozenset[int | str]
    bounds: tuple[int | float | str | None, ...]


@dataclass(frozen=True, slots=True)
class _ConstraintSource:
    """How a constraint was written: its text, whether it is in the body, and the property that carries it."""

    text: str
    is_in_body: bool
    carrier: str | None = None


def compare_constraints(pair: Pair) -> Iterator[Step]:
    """Yield dropped constraints, then added ones, each ordered by text."""
    before, after = _constraints(pair.old, pair.old_ids), _constraints(pair.new, pair.new_ids)
    dropped = frozenset(pair.old_ids.property_ids.values()) - frozenset(pair.new_ids.property_ids.values())
    for constraint, source in sorted(before.items(), key=lambda entry: entry[1].text):
        is_dropped_with_columns = constraint.kind != "key" and constraint.columns <= dropped
        if constraint not in after and not is_dropped_with_columns:
            yield pair.step("drop_constraint", constraint=source.text)
    for constraint, source in sorted(after.items(), key=lambda entry: entry[1].text):
        if constraint not in before:
            effect: StepEffect = "validates"
            if pair.kind == "interface" or constraint.kind == "index":
                effect = "instant"
            elif constraint.kind == "key":
                effect = "rewrites"
            touches = () if effect == "instant" else _touched(pair, constraint.kind)
            span = _span(source, pair.origin)
            yield pair.step("add_constraint", constraint=source.text, effect=effect, touches=touches, span=span)


def compare_cardinality(pair: Pair, old: Cardinality, new: Cardinality) -> Iterator[Step]:
    """Yield a drop of the old bounds and an addition of the new ones; looser bounds need no check."""
    if old == new:
        return
    if old != Cardinality():
        yield pair.step("drop_constraint", constraint=str(old))
    if new != Cardinality():
        is_looser = new.minimum <= old.minimum and (
            new.maximum is None or (old.maximum is not None and old.maximum <= new.maximum)
        )
        effect, touches = ("instant", ()) if is_looser else ("validates", (pair.table_key,))
        yield pair.step("add_constraint", constraint=str(new), effect=effect, touches=touches)


def has_moved_constraint(pair: Pair) -> bool:
    """Return True if a constraint moved between the property form and the body form, which changes nothing else."""
    before, after = _constraints(pair.old, pair.old_ids), _constraints(pair.new, pair.new_ids)
    return any(
        (before[constraint].is_in_body, before[constraint].carrier is None)
        != (source.is_in_body, source.carrier is None)
        for constraint, source in after.items()
        if constraint in before
    )


def _touched(pair: Pair, kind: str) -> tuple[str, ...]:
    """Return the types that a constraint is checked on; a key changes ids, and so the ends of edges."""
    if kind != "key" or pair.kind != "node":
        return (pair.table_key,)
    edges = (edge.name for edge in pair.ir.shape.edges if pair.name in (edge.source, edge.target))
    return (pair.table_key, *(TypeKey.of("edge", name) for name in edges))


def _constraints(shape: TypeShape, ids: TypeIds) -> Mapping[_ConstraintKey, _ConstraintSource]:
    sources: dict[_ConstraintKey, _ConstraintSource] = {}
    body: tuple[ConstraintShape, ...] = () if isinstance(shape, InterfaceShape) else shape.constraints
    for item in body:
        # The endpoints of an edge have no identity; their names never change.
        columns = frozenset(ids.property_ids.get(column, column) for column in item.columns)
        sources[_ConstraintKey(item.kind, columns, (item.minimum, item.maximum, item.pattern))] = _ConstraintSource(
            str(item), True
        )
    for owner in shape.properties:
        for mark in owner.marks:
            constraint = _ConstraintKey(mark, frozenset({ids.property_ids[owner.name]}), (None, None, None))
            sources[constraint] = _ConstraintSource(f"@{mark}({owner.name})", constraint in sources, owner.name)
    return sources


def _span(source: _ConstraintSource, origin: TypeOrigin) -> Span:
    if source.carrier is not None:
        return origin.properties[source.carrier].span
    return origin.constraints.get(source.text, origin.span)
