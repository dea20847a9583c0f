"""Declared pipelines over local files: what is new is loaded once, whatever they are called, and nothing is lost.

Written from docs/pipelines.md. A pipeline that appends reads CSV or Parquet into a type without a key; one that merges
leaves rows out whose word is none of an enum, and loads them when the schema has it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, replace
from random import Random
from typing import Any

from tests.world.calls import Answer
from tests.world.idioms import Idiom, do
from tests.world.migrations import Migration
from tests.world.model import Row, State, copy_state
from tests.world.mutations import PLACEHOLDER, broken_rules, new_row
from tests.world.schema_model import Property, Type
from tests.world.steps import Broken, Step
from tests.world.values import random_key, random_value
from tests.world.world import World

SQL = {"String": "STRING", "I32": "INT", "I64": "BIGINT", "F64": "DOUBLE", "Bool": "BOOLEAN"}


@dataclass
class Desk:
    """A declared pipeline: how it is called by now, where it reads, and what it has left out."""

    type_id: int
    form: str
    mode: str
    name: str
    source: str = "rows"
    former: str | None = None
    former_source: str | None = None
    seq: int = 0
    columns: dict[str, str] = field(default_factory=dict)
    # Rows that wait for the schema to take them, by the word that it lacks.
    rejected: list[tuple[str, str, Row]] = field(default_factory=list)
    rejections: dict[str, int] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        """Where its source is."""
        return f"{self.mode}-{self.type_id}"


def _desk(world: World, random: Random, mode: str) -> Desk | None:
    """Return the pipeline of a mode, as long as main has its type."""
    if mode not in world.desks:
        wanted = "Note" if mode == "append" else "Task"
        first = next(one for one in world.model.commits[0].schema.values() if one.name == wanted)
        world.desks[mode] = Desk(first.id, random.choice(["csv", "csv", "parquet"]), mode, world.model.new_name("pipe"))
    desk = world.desks[mode]
    type_ = world.model.schema("main").get(desk.type_id)
    return desk if type_ is not None and _mapped(type_) is not None else None


def _mapped(type_: Type) -> list[Property] | None:
    """Return the properties that a source has columns for; None if the type needs another one."""
    mapped = [
        one for one in type_.properties if (one.base in SQL or one.is_enum) and not one.is_unique and not one.bounds
    ]
    needed = [one for one in type_.properties if one.is_required and one.default is None]
    return mapped if all(one in mapped for one in needed) else None


def _declare(desk: Desk, type_: Type) -> str:
    columns = _mapped(type_) or []
    schema = ", ".join(["seq BIGINT", *(f"c{one.id} {SQL.get(one.base, 'STRING')}" for one in columns)])
    source: dict[str, Any] = {"format": desk.form, "path": desk.folder, "incremental": "seq"}
    if desk.form == "csv":
        source |= {"header": True, "schema": schema}
    if desk.former_source is not None:
        source["renamed_from"] = desk.former_source
    mapping = {"from": desk.source, "mode": desk.mode, "columns": {one.name: f"c{one.id}" for one in columns}}
    declared: dict[str, Any] = {"sources": {desk.source: source}, "nodes": {type_.name: mapping}}
    if desk.mode == "merge":
        declared["on_error"] = "quarantine"
    if desk.former is not None:
        declared["renamed_from"] = desk.former
    return json.dumps({"pipelines": {desk.name: declared}})


def _call(desk: Desk, type_: Type, rows: list[Row]) -> dict[str, Any]:
    """Return a run, before which a file with rows comes."""
    columns = {"seq": "I64", **{f"c{one.id}": one.base for one in _mapped(type_) or []}}
    lines: list[Row] = []
    for row in rows:
        desk.seq += 1
        lines.append({"seq": desk.seq, **{f"c{key}": value for key, value in row.items()}})
    file: dict[str, Any] = {"path": desk.folder, "name": f"{desk.seq}.{desk.form}", "columns": columns, "rows": lines}
    # All files of a source have one header; those of before a migration are loaded, and taken away.
    file["is_alone"] = columns != desk.columns
    desk.columns = columns if rows else desk.columns
    return {"call": "pipeline", "declaration": _declare(desk, type_), "file": file if rows else None}


def _draw_rows(world: World, random: Random, desk: Desk, type_: Type) -> list[Row]:
    rows: dict[Any, Row] = {}
    for number in range(random.choice([1, 2, 4])):
        row = {one.id: random_value(random, one) for one in _mapped(type_) or []}
        # A column has one type in all files; Parquet has decimals here.
        row = {key: 0.35 if desk.form == "parquet" and value == 1e39 else value for key, value in row.items()}
        for one in type_.properties:
            if one.id in type_.key:
                row[one.id] = random_key(random, type_, one)
        rows[world.model.entity_id(type_, row) if type_.key else number] = row
    return list(rows.values())


def _applied(world: World, type_: Type, rows: list[Row]) -> State:
    """Return main with rows loaded: each replaces an entity as a whole."""
    state = copy_state(world.model.state("main"))
    for number, row in enumerate(rows):
        entity = world.model.entity_id(type_, row) if type_.key else f"{PLACEHOLDER}{number}"
        state.setdefault(type_.id, {})[entity] = new_row(world.model, type_, row)
    return state


def append(world: World, random: Random) -> bool:
    """Run a pipeline that appends what is new; sometimes under another name, which must be told."""
    desk = _desk(world, random, "append")
    if desk is None:
        return False
    type_ = world.model.schema("main")[desk.type_id]
    is_renamed = desk.seq > 0 and random.random() < 0.4
    if is_renamed:
        _rename(world, random, desk, type_)
    for rows in (_draw_rows(world, random, desk, type_), []):
        step = _run(world, desk, type_, rows)
        if step is None:
            return True
        do(world, step)
    return True


def _rename(world: World, random: Random, desk: Desk, type_: Type) -> None:
    """Give a pipeline or its source another name: refused, unless it says which one it had."""
    told = replace(desk, former=None, former_source=None)
    if random.random() < 0.5:
        told.name = world.model.new_name("pipe")
        silent, told = told, replace(told, former=desk.name)
    else:
        told.source = world.model.new_name("rows")
        silent, told = told, replace(told, former_source=desk.source)
    step = Step("pipeline", _call(silent, type_, []))
    step.errors, step.must_fail = {"pipeline.renamed"}, True
    do(world, step)
    for one in fields(Desk):
        setattr(desk, one.name, getattr(told, one.name))


def _run(world: World, desk: Desk, type_: Type, rows: list[Row]) -> Step | None:
    state = _applied(world, type_, rows)
    errors = broken_rules(world.model, world.model.schema("main"), state)
    if errors:
        return None
    step = Step("pipeline", _call(desk, type_, rows), "main", state, world.model.schema("main"))
    step.then = lambda answer: _check_report(answer, "published" if rows else "nothing_new", 0)
    return step


def _check_report(answer: Answer, status: str, rejected: int) -> None:
    if (answer["status"], answer["rejected"]) != (status, rejected):
        raise Broken(f"the run is {answer['status']} with {answer['rejected']} rejected, expected {status}, {rejected}")


def reject(world: World, random: Random) -> bool:
    """Run a pipeline that leaves rows out, let the schema take them, and load them again."""
    desk = _desk(world, random, "merge")
    if desk is None:
        return False
    type_ = world.model.schema("main")[desk.type_id]
    enum = next((one for one in type_.properties if one.is_enum), None)
    if enum is None:
        return False
    is_run = [_run_with_rejected(world, random, desk, type_, enum) for _ in range(random.choice([1, 2]))]
    return any(is_run) and _take_rejected(world, random, desk, type_, enum)


def _run_with_rejected(world: World, random: Random, desk: Desk, type_: Type, enum: Property) -> bool:
    rows = _draw_rows(world, random, desk, type_)
    wrong: list[Row] = []
    for row in _draw_rows(world, random, desk, type_)[:2]:
        if all(world.model.entity_id(type_, row) != world.model.entity_id(type_, one) for one in rows):
            wrong.append({**row, enum.id: world.model.new_name("late")})
    state = _applied(world, type_, rows)
    if broken_rules(world.model, world.model.schema("main"), state):
        return False
    step = Step("pipeline", _call(desk, type_, [*rows, *wrong]), "main", state, world.model.schema("main"))

    def then(answer: Answer) -> None:
        _check_report(answer, "published", len(wrong))
        if wrong:
            desk.rejections[answer["run_id"]] = len(wrong)
        if answer["files"] != desk.rejections:
            raise Broken(f"rejected rows in the report are {answer['files']}, expected {desk.rejections}")
        for row in wrong:
            desk.rejected.append((answer["run_id"], row[enum.id], row))

    step.then = then
    return do(world, step)


def _take_rejected(world: World, random: Random, desk: Desk, type_: Type, enum: Property) -> bool:
    """Add the words that rejected rows have to the schema, and load these rows."""
    migration = Migration(world.model, random, "main")
    words = dict.fromkeys([*enum.words, *(word for _, word, _ in desk.rejected)])
    migration.schema[type_.id] = type_.with_property(replace(enum, base=f"enum({', '.join(words)})"))
    do(world, migration.step())
    type_ = world.model.schema("main")[desk.type_id]
    rows = [row for _, _, row in desk.rejected]
    state = _applied(world, type_, rows)
    if broken_rules(world.model, world.model.schema("main"), state):
        return False
    call = {**_call(desk, type_, []), "is_retry": True}
    step = Step("pipeline", call, "main", state, world.model.schema("main"))
    step.then = lambda answer: _check_report(answer, "published" if rows else "nothing_new", 0)
    do(world, step)
    desk.rejected.clear()
    return True


IDIOMS: dict[Idiom, float] = {append: 1.2, reject: 1}
OPERATIONS = 50
