"""Writes drawn by chance for a modelled graph: each as a user would give it, with what it should come to."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from typing import Any, TypeAlias

from hypothesis import strategies as st

import omnigraph as og
from tests.engine.write.write_model_graph import Image, Model, Outcome, Row, id_of, is_allowed
from tests.engine.write.write_model_schema import WORDS, Property, Schema, Type, changes

FRESH = "fresh"
# What hands out a value of a strategy: of a composite one, or of `data`.
Draw: TypeAlias = Any
VALUES: dict[str, list[Any]] = {
    "String": ["a", "x", "xy"],
    "I32": [-1, 0, 2, 3],
    "I64": [-1, 0, 2, 3, 2**40],
    "Date": [dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(2024, 3, 1)],
    "Bool": [False, True],
    "F64": [0.0, 0.5, 1.0],
    "enum": list(WORDS),
}
ORDERED = ("I32", "I64", "Date")


@dataclass(frozen=True, slots=True)
class Action:
    """One write as plain data, so that another process can be asked to do it."""

    do: str
    text: str
    params: dict[str, Any]
    mode: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """An action, what it should come to, and for a change of schema the graph after it."""

    action: Action
    outcome: Outcome
    schema: Schema | None = None


def perform(graph: og.Graph, action: Action) -> Any:
    """Carry an action out."""
    if action.do == "mutate":
        return graph.mutate(action.text, params=action.params)
    if action.do == "apply":
        return graph.schema.apply(action.text)
    mode: Any = action.mode
    if action.do == "records":
        return graph.ingest([json.loads(line) for line in action.text.splitlines()], mode=mode)
    return graph.ingest(action.text.encode(), mode=mode)


def plain(value: Any) -> Any:
    """Return a value as JSON spells it."""
    return value.isoformat() if isinstance(value, dt.date) else value


def draw_value(draw: Draw, one: Property) -> Any:
    """Draw a value of a property: mostly one that its rules allow, so that graphs grow."""
    if draw(st.integers(0, 7)) == 0:
        return draw(st.sampled_from([None, *VALUES[one.kind]]))
    if one.is_nullable and draw(st.integers(0, 3)) == 0:
        return None
    return draw(st.sampled_from([value for value in VALUES[one.kind] if is_allowed(one, value)]))


def draw_key(draw: Draw, type_: Type) -> Row:
    """Draw the key of a node; it is never null here, so that an id can be told."""
    return {one.name: draw(st.sampled_from(VALUES[one.kind])) for one in type_.properties if one.name in type_.key}


def draw_row(draw: Draw, type_: Type) -> Row:
    return {one.name: draw_value(draw, one) for one in type_.free()} | draw_key(draw, type_)


def draw_mentioned(draw: Draw, type_: Type, row: Row) -> list[Property]:
    """Draw the properties that a writer mentions; the others get their default in the row."""
    left_out = [one for one in type_.properties if one.default is not None and draw(st.booleans())]
    row |= {one.name: one.default for one in left_out}
    return [one for one in type_.properties if one not in left_out]


def draw_end(draw: Draw, model: Model, type_name: str) -> str:
    """Draw the id of a node: mostly one that is there."""
    [type_] = [one for one in model.schema.nodes if one.name == type_name]
    there = sorted(model.image[type_name])
    if there and draw(st.integers(0, 9)) < 8:
        return str(draw(st.sampled_from(there)))
    return id_of(type_, draw_key(draw, type_)) if type_.key else "n1"


def has_null(type_: Type, row: Row) -> bool:
    return any(row[one.name] is None and not one.is_nullable for one in type_.properties)


class _Statements:
    """Statements of one mutation, with parameters of their own."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._params: list[str] = []
        self._values: dict[str, Any] = {}

    def constant(self, kind: str, value: Any) -> str:
        name = f"p{len(self._params)}"
        self._params.append(f"${name}: {'String' if kind == 'enum' else kind}?")
        self._values[name] = plain(value)
        return f"${name}"

    def add(self, text: str) -> None:
        self._texts.append(text)

    def action(self) -> Action:
        text = f"query q({', '.join(self._params)}) {{ {' '.join(self._texts)} }}"
        return Action("mutate", text, self._values)


def draw_write(draw: Draw, model: Model) -> Step:
    """Draw a mutation of inserts and updates."""
    statements, image = _Statements(), model.copy()
    nodes = edges = 0
    types = [one for one in model.schema.types if one.ends or one.properties]
    if not types:
        return draw_ingest(draw, model)
    for number in range(draw(st.integers(1, 3))):
        type_ = draw(st.sampled_from(types))
        free = type_.free()
        if not type_.ends and free and draw(st.booleans()):
            changed = _update(draw, model, image, type_, statements)
            nodes += len(changed)
            image[type_.name] |= changed
            continue
        row = draw_row(draw, type_)
        mentioned = draw_mentioned(draw, type_, row)
        assignments = [f"{one.name}: {statements.constant(one.kind, row[one.name])}" for one in mentioned]
        if type_.ends:
            row |= {"src": draw_end(draw, model, type_.ends[0]), "dst": draw_end(draw, model, type_.ends[1])}
            for word, column in (("from", "src"), ("to", "dst")):
                assignments.append(f"{word}: {json.dumps(row[column])}")
            edges += 1
        else:
            nodes += 1
        image[type_.name][id_of(type_, row) if type_.key else f"{FRESH}{number}"] = row
        statements.add(f"insert {type_.name} {{{' '.join(assignments)}}}")
    return Step(statements.action(), Outcome(image, model.fault(image, _same(model, image)), nodes, edges))


def _update(draw: Draw, model: Model, image: Image, type_: Type, statements: _Statements) -> dict[str, Row]:
    column, word, constant = _draw_test(draw, type_, statements)
    target = draw(st.sampled_from(type_.free()))
    value = draw_value(draw, target)
    chosen = model.matching(image, type_, column, word.split()[0], constant)
    assigned = statements.constant(target.kind, value)
    statements.add(f"update {type_.name} set {{{target.name}: {assigned}}} where {column} {word}")
    return {entity: image[type_.name][entity] | {target.name: value} for entity in chosen}


def _draw_test(draw: Draw, type_: Type, statements: _Statements) -> tuple[str, str, Any]:
    """Draw a comparison: its column, its text, and its constant."""
    one = draw(st.sampled_from(type_.properties))
    word = draw(st.sampled_from(["=", "!=", ">=", "<"] if one.kind in ORDERED else ["=", "!="]))
    # A word that is not one of the enum is refused before anything runs.
    value = draw(st.sampled_from([*(one.words or VALUES[one.kind]), None]))
    return one.name, f"{word} {statements.constant(one.kind, value)}", value


def draw_delete(draw: Draw, model: Model) -> Step:
    """Draw a mutation of deletes."""
    statements, image = _Statements(), model.copy()
    nodes = edges = 0
    types = [one for one in model.schema.types if one.ends or one.properties]
    if not types:
        return draw_ingest(draw, model)
    for _ in range(draw(st.integers(1, 2))):
        type_ = draw(st.sampled_from(types))
        if type_.ends and (not type_.properties or draw(st.booleans())):
            side = draw(st.sampled_from([0, 1]))
            end = draw_end(draw, model, type_.ends[side])
            column, word = ("src", "dst")[side], "="
            statements.add(f"delete {type_.name} where {('from', 'to')[side]} = {json.dumps(end)}")
            chosen = model.matching(image, type_, column, word, end)
        else:
            column, test, constant = _draw_test(draw, type_, statements)
            statements.add(f"delete {type_.name} where {column} {test}")
            chosen = model.matching(image, type_, column, test.split()[0], constant)
        lost = model.delete(image, type_, chosen)
        nodes, edges = nodes + lost[0], edges + lost[1]
    return Step(statements.action(), Outcome(image, model.fault(image, _same(model, image)), nodes, edges))


def _same(model: Model, image: Image) -> list[str]:
    return [name for name, rows in image.items() if rows == model.image[name]]


def draw_ingest(draw: Draw, model: Model) -> Step:
    """Draw lines, and the mode in which they are written."""
    mode = draw(st.sampled_from(["append", "merge", "merge", "overwrite"]))
    lines: list[str] = []
    given: dict[str, list[tuple[str, Row]]] = {}
    is_null = False
    for number in range(draw(st.integers(1, 5))):
        type_ = draw(st.sampled_from(model.schema.types))
        row = draw_row(draw, type_)
        ends = (
            {"src": draw_end(draw, model, type_.ends[0]), "dst": draw_end(draw, model, type_.ends[1])}
            if (type_.ends)
            else {}
        )
        if type_.key and type_.name in given and draw(st.integers(0, 4)) == 0:
            repeated = {name: given[type_.name][0][1][name] for name in type_.key}
            row |= {name: value for name, value in repeated.items() if name not in ends}
            ends |= {name: value for name, value in repeated.items() if name in ends}
        mentioned = draw_mentioned(draw, type_, row)
        is_null = is_null or has_null(type_, row)
        data = {one.name: plain(row[one.name]) for one in mentioned}
        row |= ends
        entity = id_of(type_, row) if type_.key else _draw_id(draw, type_, number)
        if not entity.startswith(FRESH):
            data["id"] = entity
        given.setdefault(type_.name, []).append((entity, row))
        envelope = {"from": row["src"], "to": row["dst"]} if type_.ends else {}
        lines.append(json.dumps({"edge" if type_.ends else "type": type_.name, **envelope, "data": data}))
    outcome = _ingested(model, mode, given)
    outcome.code = "N10" if is_null else outcome.code
    do = draw(st.sampled_from(["lines", "records"]))
    return Step(Action(do, "\n".join(lines), {}, mode), outcome)


def _draw_id(draw: Draw, type_: Type, number: int) -> str:
    prefix = "e" if type_.ends else "n"
    return str(draw(st.sampled_from([f"{prefix}1", f"{prefix}2", f"{prefix}3", f"{FRESH}{number}"])))


def _ingested(model: Model, mode: str, given: dict[str, list[tuple[str, Row]]]) -> Outcome:
    """Return what an ingest comes to: its values, ids within it, taken ids, and then the whole graph are judged."""
    image = model.copy()
    own: Image = {one.name: dict(given.get(one.name, ())) for one in model.schema.types}
    # A value that a later line replaces is judged as well, unless the writer has dropped it: there the last wins.
    every: Image = {
        one.name: {f"{place}": row for place, (_, row) in enumerate(given.get(one.name, ()))}
        if mode != "merge" or one.key
        else own[one.name]
        for one in model.schema.types
    }
    for name, rows in given.items():
        image[name] = dict(rows) if mode == "overwrite" else image[name] | dict(rows)
    codes = [model.value_fault(every), _repeated(model.schema, mode, given)]
    taken = any(entity in model.image[name] for name, rows in given.items() for entity, _ in rows)
    codes.append("E11" if mode == "append" and taken else None)
    # An overwrite judges the new image alone: a source that it leaves without edges is a node without edges.
    untouched = _same(model, image) if mode != "overwrite" else list(image)
    codes.append(model.fault(image, untouched))
    return Outcome(image, next((one for one in codes if one is not None), None))


def _repeated(schema: Schema, mode: str, given: dict[str, list[tuple[str, Row]]]) -> str | None:
    for type_ in sorted(schema.types, key=lambda one: one.table_key):
        ids = [entity for entity, _ in given.get(type_.name, ())]
        if len(set(ids)) < len(ids) and (type_.key or mode != "merge"):
            return "E5" if type_.key else "E11"
    return None


def draw_apply(draw: Draw, model: Model) -> Step:
    """Draw a change of the schema."""
    change = draw(changes(model.schema))
    action = Action("apply", change.schema.render(), {})
    if change.code is not None:
        return Step(action, Outcome(model.image, change.code))
    outcome = model.evolved(change.schema)
    return Step(action, outcome, change.schema.settled() if outcome.code is None else None)
