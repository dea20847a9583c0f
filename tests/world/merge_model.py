"""What a merge of two states means: one entity and one property at a time, then the rules of the schema.

Written from "Conflicts" and "Histories that cross" in docs/branching.md and "Merge rules" in docs/schema.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.world.model import CommitNumber, Model, Row, Rows, State
from tests.world.schema_merge import merge_schemas
from tests.world.schema_model import ENDS, Schema, Type, convert, edges

# Kind, table key, id; None where any of several entities may be named.
Conflict = tuple[str, str, str | None]
ABSENT = object()


class Unknown:
    """A value that equals no other, not even another unknown one; as a list it has no items."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return False

    def __iter__(self) -> Any:
        return iter(())


class UnknownRow(dict[Any, Any]):
    """An entity of which nothing is known."""

    __hash__ = None

    def __eq__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return True

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: object) -> Unknown:
        return Unknown()


@dataclass(frozen=True)
class Clash:
    """What both sides did to one entity; `columns` are the ids of the properties that clash."""

    kind: str
    type_id: int
    entity: str
    columns: tuple[Any, ...]


@dataclass
class Merged:
    """What a merge makes, ours where there is a clash."""

    state: State
    clashes: list[Clash]


def only(row: Row | None, type_: Type) -> Row | None:
    """Return a row with the properties that a type has."""
    if row is None or isinstance(row, UnknownRow):
        return row
    known = {ENDS, *(one.id for one in type_.properties)}
    return {key: value for key, value in row.items() if key in known}


def merge_states(
    model: Model, schema: Schema, base: State, ours: State, theirs: State, *, join: bool = False
) -> Merged:
    """Merge three states under one schema. With `join`, two ancestors become a virtual base."""
    merged: State = {}
    clashes: list[Clash] = []
    for key, type_ in schema.items():
        rows: Rows = {}
        sides = [side.get(key, {}) for side in (base, ours, theirs)]
        for entity in sorted({*sides[0], *sides[1], *sides[2]}):
            row, kind, columns = _merge_entity(model, type_, [only(side.get(entity), type_) for side in sides], join)
            if kind is not None:
                clashes.append(Clash(kind, key, entity, columns))
            if row is not None:
                rows[entity] = row
        merged[key] = rows
    return Merged(merged, clashes)


def _merge_entity(
    model: Model, type_: Type, sides: list[Row | None], join: bool
) -> tuple[Row | None, str | None, tuple[Any, ...]]:
    base, ours, theirs = sides
    if _same(ours, theirs) or _same(theirs, base):
        return ours, None, ()
    if _same(ours, base):
        return theirs, None, ()
    if ours is None or theirs is None:
        if join:
            return UnknownRow(), None, ()
        if type_.merge not in ("ours", "theirs"):
            return ours, "DeleteVsUpdate", ()
        return (ours if type_.merge == "ours" else theirs), None, ()
    row, columns = dict(ours), list[Any]()
    parts: list[tuple[Any, str | None]] = [(ENDS, type_.merge)] if type_.ends else []
    for part, rule in [*parts, *((one.id, one.merge or type_.merge) for one in type_.properties)]:
        value = _merge_value(rule, [ABSENT if side is None else model.value(side, part) for side in sides], join)
        if value is ABSENT:
            columns.append(part)
            if join:
                row[part] = Unknown()
        else:
            model.set_value(row, part, value)
    if not columns or join:
        return row, None, ()
    return ours, "DivergentInsert" if base is None else "DivergentUpdate", tuple(columns)


def _same(one: Row | None, two: Row | None) -> bool:
    if one is None or two is None:
        return one is two
    return not isinstance(one, UnknownRow) and not isinstance(two, UnknownRow) and one == two


def _merge_value(rule: str | None, values: list[Any], join: bool) -> Any:
    """Return the merged value; ABSENT: it is a conflict, or between ancestors unknown."""
    base, ours, theirs = values
    if _equal(ours, theirs) or _equal(theirs, base):
        return ours
    if _equal(ours, base):
        return theirs
    if rule in ("ours", "theirs") and not join:
        return ours if rule == "ours" else theirs
    if rule == "union":
        older = [] if base is ABSENT or base is None else list(base)
        mine, yours = list(ours or []), list(theirs or [])
        removed = [item for item in older if item not in mine or item not in yours]
        union: list[Any] = []
        for item in [*mine, *yours]:
            if item not in union and item not in removed:
                union.append(item)
        return union
    if rule in ("max", "min"):
        if isinstance(ours, Unknown) or isinstance(theirs, Unknown):
            return ABSENT
        present = [value for value in (ours, theirs) if value is not None]
        pick = max if rule == "max" else min
        return pick(present, key=lambda value: value.encode() if isinstance(value, str) else value)
    return ABSENT


def _equal(one: Any, two: Any) -> bool:
    if one is ABSENT or two is ABSENT:
        return False
    return bool(one == two) and not isinstance(one, Unknown)


def find_violations(model: Model, schema: Schema, state: State) -> set[Conflict]:
    """Return what breaks a rule of the schema: ends, unique values, cardinality, bounds, required values."""
    found: set[Conflict] = set()
    for type_ in edges(schema):
        assert type_.ends is not None
        counts: dict[str, int] = {}
        for one, row in state.get(type_.id, {}).items():
            source, target = row[ENDS]
            if source not in state.get(type_.ends[0], {}) or target not in state.get(type_.ends[1], {}):
                found.add(("OrphanEdge", type_.table_key, one))
            counts[source] = counts.get(source, 0) + 1
        if type_.card_max is not None and any(count > type_.card_max for count in counts.values()):
            found.add(("CardinalityViolation", type_.table_key, None))
    for type_ in schema.values():
        found |= {(kind, type_.table_key, None) for kind in _row_violations(model, type_, state.get(type_.id, {}))}
    return found


def _row_violations(model: Model, type_: Type, rows: Rows) -> Iterable[str]:
    for one in type_.properties:
        values = [model.value(row, one.id) for row in rows.values()]
        present = [value for value in values if value is not None]
        if one.is_unique and len(set(present)) < len(present):
            yield "UniqueViolation"
        if one.is_required and len(present) < len(values):
            yield "RequiredViolation"
        if one.bounds and any(not one.bounds[0] <= value <= one.bounds[1] for value in present):
            yield "ValueConstraintViolation"


@dataclass(frozen=True)
class Base:
    """What a merge starts from; `is_certain` is False if a cleanup may have removed what it was computed from."""

    state: State
    schema: Schema | None
    is_certain: bool


def find_base(model: Model, ours: Iterable[CommitNumber], theirs: CommitNumber) -> Base:
    """Return the best common ancestor; several of them are joined, each to those before it."""
    best = model.bases(ours, theirs)
    first = model.commits[best[0]]
    state, is_certain = first.state, True
    schema: Schema = first.schema
    for number, other in enumerate(best[1:], start=1):
        below = find_base(model, best[:number], other)
        commit = model.commits[other]
        if below.schema is None:
            return Base(state, None, False)
        joined = merge_schemas(below.schema, schema, commit.schema)
        if joined.conflicts:
            return Base(state, None, False)
        deeper = model.bases(best[:number], other)
        is_certain = is_certain and below.is_certain and not any(one in model.reclaimed for one in deeper)
        state = merge_states(model, joined.schema, below.state, state, commit.state, join=True).state
        schema = joined.schema
    return Base(state, schema, is_certain)


def decide(
    model: Model,
    schema: Schema,
    sides: tuple[State, State, State],
    merged: Merged,
    decisions: Mapping[tuple[int, str], str],
) -> State | None:
    """Return the merged state with clashes decided; None: a decision takes what is unknown or fits no type."""
    state = {key: dict(rows) for key, rows in merged.state.items()}
    by_name = dict(zip(("base", "ours", "theirs"), sides, strict=True))
    for clash in merged.clashes:
        type_ = schema[clash.type_id]
        side = decisions[clash.type_id, clash.entity]
        taken = only(by_name[side].get(clash.type_id, {}).get(clash.entity), type_)
        if isinstance(taken, UnknownRow):
            return None
        if clash.kind == "DeleteVsUpdate" or taken is None:
            if taken is not None and not _fits(type_, taken, taken):
                return None
            put(state, clash.type_id, clash.entity, taken)
            continue
        parts = {part: model.value(taken, part) for part in clash.columns}
        if not _fits(type_, parts, clash.columns):
            return None
        row = _merge_without(model, type_, sides, clash)
        for part, value in parts.items():
            model.set_value(row, part, value)
        state[clash.type_id][clash.entity] = row
    return state


def _fits(type_: Type, values: Mapping[Any, Any], parts: Iterable[Any]) -> bool:
    """Whether the values of some parts of an entity are known, and the properties of its type can hold them."""
    for part in parts:
        one, value = type_.find(part), values[part]
        if isinstance(value, Unknown):
            return False
        try:
            if one is not None:
                convert(value, one.base)
        except ValueError:
            return False
    return True


def _merge_without(model: Model, type_: Type, sides: tuple[State, State, State], clash: Clash) -> Row:
    """Merge what does not clash in an entity that does."""
    rows = [only(side.get(clash.type_id, {}).get(clash.entity), type_) for side in sides]
    alike = [None if row is None else dict(row) for row in rows]
    for row in alike:
        for part in clash.columns:
            if row is not None:
                row.pop(part, None)
    row, _, _ = _merge_entity(model, type_, alike, False)
    assert row is not None
    return dict(row)


def put(state: State, type_id: int, entity: str, row: Row | None) -> None:
    """Leave an entity in a state as it shall be; None is absent."""
    if row is None:
        state[type_id].pop(entity, None)
    else:
        state[type_id][entity] = row
