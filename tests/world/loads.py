"""Random loads: every mode, format and engine. Written from docs/loading.md and docs/writing.md."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.world.model import Model, Row, copy_state
from tests.world.mutations import broken_rules, new_row
from tests.world.schema_model import ENDS, Schema, Type, TypeId
from tests.world.steps import Step
from tests.world.values import random_key, random_value

LINE_FORMS = ("ingest:dicts", "ingest:ndjson", "load:dicts", "load:ndjson", "bulk:ndjson", "bulk:gz")
TABLE_FORMS = (
    *("ingest:arrow", "load:arrow", "load:csv", "load:parquet", "load:decimal"),
    *("bulk:csv", "bulk:parquet", "bulk:arrow", "bulk:decimal"),
)
# Bulk loads cost ten times as much as small ones.
BULK_SHARE = 0.15


class Load:
    """One load: entities of a few types in one input."""

    def __init__(self, model: Model, random: Random, branch: str, types: list[Type] | None = None) -> None:
        self.model, self.random, self.branch = model, random, branch
        self.schema: Schema = model.schema(branch)
        self.types = types
        self.state = copy_state(model.state(branch))
        self.mode = random.choice(["append", "merge", "merge", "merge", "overwrite"])
        forms = [one for one in (*LINE_FORMS, *TABLE_FORMS) if one.startswith("bulk") == (random.random() < BULK_SHARE)]
        self.form = random.choice(forms or LINE_FORMS)
        self.is_table = self.form in TABLE_FORMS
        self.errors: set[str] = set()
        self.lines: list[dict[str, Any]] = []
        self.columns: dict[str, dict[str, str]] = {}
        self.loaded: dict[TypeId, dict[str, Row]] = {}

    def draw(self) -> Step | None:
        types = list(self.schema.values())
        chosen = self.types or self.random.sample(types, min(len(types), self.random.choice([1, 1, 2, 3])))
        # Nodes first, so that edges of the same input may end at them.
        for type_ in sorted(chosen, key=lambda one: (one.ends is not None, one.id)):
            self._draw_type(type_)
        if not self.lines:
            return None
        self._apply()
        return self._step()

    def _step(self) -> Step:
        call = {
            "call": "load",
            "lines": self.lines,
            "form": self.form,
            "mode": self.mode,
            "branch": self.branch,
            "columns": self.columns if self.is_table else {},
        }
        # Rules of a row may be broken as well, and are checked first.
        errors = {*self.errors, *broken_rules(self.model, self.schema, self.state)}
        return Step("load", call, self.branch, self.state, self.schema, errors=errors, must_fail=bool(errors))

    def draw_many(self, type_: Type, count: int) -> Step | None:
        """Load many entities of a type without a key."""
        if any(one.is_unique or one.bounds or one.is_required for one in type_.properties):
            return None
        # `ingest` is for one small write.
        self.form = self.random.choice([one for one in (*LINE_FORMS, *TABLE_FORMS) if not one.startswith("ingest")])
        self.is_table = self.form in TABLE_FORMS
        few = [self._named(type_, {one.id for one in type_.properties if one.base != "Blob"}) or {} for _ in range(9)]
        self.loaded[type_.id] = {}
        for number in range(count):
            entity, named = f"{type_.id}m{number}", few[number % 9]
            self.loaded[type_.id][entity] = new_row(self.model, type_, named)
            self.lines.append(self._line(type_, entity, named))
        typed = {one.name: one.base for one in type_.properties if one.base != "Blob"}
        self.columns[type_.name] = {"id": "String", **typed}
        self._apply()
        return self._step()

    def draw_empty(self, type_: Type) -> Step | None:
        """Overwrite a type with a table that has no rows."""
        self.form = self.random.choice(TABLE_FORMS)
        columns = {one.name: one.base for one in type_.properties}
        ends = {"from": "String", "to": "String"} if type_.ends else {}
        self.state[type_.id] = {}
        call: dict[str, Any] = {
            "call": "load",
            "lines": [],
            "form": self.form,
            "mode": "overwrite",
            "branch": self.branch,
        }
        call["columns"] = {type_.name: {**({} if type_.key else {"id": "String"}), **ends, **columns}}
        errors = broken_rules(self.model, self.schema, self.state)
        return Step("load", call, self.branch, self.state, self.schema, errors=errors, must_fail=bool(errors))

    def _draw_type(self, type_: Type) -> None:
        columns = self._columns(type_)
        for _ in range(self.random.choice([1, 2, 3])):
            named = self._named(type_, columns)
            if named is None:
                continue
            entity = self.model.entity_id(type_, named) if type_.key else f"{type_.id}e{self.random.randrange(9)}"
            if entity in self.loaded.setdefault(type_.id, {}):
                if not type_.key or self.random.random() < 0.9:
                    continue
                self.errors |= {"E5", "E11"}
            self.loaded[type_.id][entity] = new_row(self.model, type_, named)
            self.lines.append(self._line(type_, entity, named))
        if self.is_table and any(line.get("type", line.get("edge")) == type_.name for line in self.lines):
            ends = {"from": "String", "to": "String"} if type_.ends else {}
            typed = {one.name: one.base for one in type_.properties if one.id in columns}
            self.columns[type_.name] = {**({} if type_.key else {"id": "String"}), **ends, **typed}

    def _columns(self, type_: Type) -> set[int]:
        """Choose the properties that the input of a type mentions."""
        share = self.random.choice([0.3, 0.8, 1.0])
        needed = {one.id for one in type_.properties if one.is_required and one.default is None}
        return (
            needed
            | {one for one in type_.key if one != -1}
            | {one.id for one in type_.properties if self.random.random() < share}
        )

    def _named(self, type_: Type, columns: set[int]) -> Row | None:
        named: Row = {}
        for one in type_.properties:
            if one.id in type_.key:
                named[one.id] = random_key(self.random, type_, one)
            elif one.id in columns:
                named[one.id] = random_value(self.random, one)
        if type_.ends:
            ends = [sorted({*self.state.get(end, {}), *self.loaded.get(end, {})}) for end in type_.ends]
            if not all(ends):
                return None
            named[ENDS] = (self.random.choice(ends[0]), self.random.choice(ends[1]))
        return named

    def _line(self, type_: Type, entity: str, named: Row) -> dict[str, Any]:
        data = {one.name: named[one.id] for one in type_.properties if one.id in named}
        if not type_.key:
            data = {"id": entity, **data}
        if not type_.ends:
            return {"type": type_.name, "data": data}
        return {"edge": type_.name, "from": named[ENDS][0], "to": named[ENDS][1], "data": data}

    def _apply(self) -> None:
        for id_, rows in self.loaded.items():
            stored = self.state.setdefault(id_, {})
            if self.mode == "append" and rows.keys() & stored.keys():
                self.errors |= {"E11"}
            if self.mode == "overwrite" and rows:
                stored.clear()
            stored.update(rows)
