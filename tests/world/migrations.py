"""Random migration steps on any branch. Written from "Migrations" in docs/schema.md."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from tests.world.model import Model, State, copy_state
from tests.world.schema_model import WIDER, Property, Type, convert, nodes, source_text
from tests.world.steps import Step
from tests.world.values import NEW_BASES, POOLS

Change = tuple[Type, set[str]]
# Names that come back after a drop, so that names and identities part.
REUSED = ("x", "y")
MERGE_RULES = {"I32": ("max", "min"), "F64": ("max",), "[I32]": ("union",), "[String]": ("union",)}


class Migration:
    """One migration of a branch: a new schema, the state under it, and why it may be refused."""

    def __init__(self, model: Model, random: Random, branch: str) -> None:
        self.model, self.random, self.branch = model, random, branch
        self.before = model.schema(branch)
        self.schema = dict(self.before)
        self.state: State = model.state(branch)
        self.errors: set[str] = set()

    def draw(self) -> Step | None:
        count = self.random.choice([1, 1, 1, 2])
        changed = [self.random.choice(self._draws())() for _ in range(count)]
        return self.step() if any(changed) else None

    def step(self) -> Step | None:
        """Return the apply of all changes so far; None if there are none."""
        if self.schema == self.before:
            return None
        call = {"call": "apply_schema", "schema": source_text(self.schema, self.before), "branch": self.branch}
        step = Step("schema", call, self.branch, self.state, self.schema)
        step.errors, step.must_fail = self.errors, bool(self.errors)
        return step

    def drop(self) -> bool:
        """Drop a property or a type."""
        return self.random.choice([self._drop_property, self._drop_property, self._drop_type])()

    def _draws(self) -> list[Any]:
        draws = [self._add_property] * 4 + [self._rename_property, self._drop_property, self.add_type] * 2
        draws += [self._rename_type, self._drop_type, self.widen, self.widen, self.widen]
        draws += [self._make_optional, self._make_required, self._grow_enum, self._toggle_index, self._toggle_unique]
        draws += [self._toggle_bounds, self._change_rule, self._change_default]
        return [*draws, *[self._add_required] * 2]

    # -- properties ------------------------------------------------------------------------------------------------

    def _add_property(self) -> bool:
        type_ = self._type()
        new = self._new_property(type_)
        if any(one.name == new.name for one in type_.properties):
            return False
        return self._put(type_.with_property(new))

    def _new_property(self, type_: Type) -> Property:
        base = self.random.choice([*NEW_BASES, "enum(red, green)", "Vector(3)", "Blob"])
        name = self.random.choice(REUSED) if self.random.random() < 0.3 else self.model.new_name("p")
        is_text = base in ("String", "I32")
        is_indexed = is_text and not type_.ends and self.random.random() < 0.3
        rules = MERGE_RULES.get(base, ())
        merge = self.random.choice(rules) if rules and self.random.random() < 0.3 else None
        return Property(self.model.new_id(), name, base, is_indexed=is_indexed, merge=merge)

    def _add_required(self) -> bool:
        """Add a required property with a default, which all entities get."""
        type_ = self._type()
        base = self.random.choice(["I32", "String", "Bool", "F64"])
        default = self.random.choice([one for one in POOLS[base] if one not in ("", 1e39)])
        new = Property(self.model.new_id(), self.model.new_name("q"), base, is_required=True, default=default)
        self.model.fills[new.id] = default
        return self._put(type_.with_property(new))

    def _rename_property(self) -> bool:
        type_, one = self._property(lambda one: not one.is_inherited)
        return one is not None and self._put(type_.with_property(replace(one, name=self.model.new_name("n"))))

    def _drop_property(self) -> bool:
        type_, one = self._property(lambda one: not one.is_inherited, keyed=False)
        if one is None:
            return False
        self.state = copy_state(self.state)
        for row in self.state.get(type_.id, {}).values():
            row.pop(one.id, None)
        return self._put(type_.without_property(one.id))

    def widen(self) -> bool:
        type_, one = self._property(lambda one: one.base in WIDER and one.bounds is None, keyed=False)
        if one is None:
            return False
        base = self.random.choice(WIDER[one.base])
        values = [self.model.value(row, one.id) for row in self.state.get(type_.id, {}).values()]
        for value in [*values, one.default]:
            convert(value, base)
        merge = one.merge if one.merge in (None, "union", "max", "min") else None
        return self._put(type_.with_property(replace(one, base=base, merge=merge)))

    def _make_optional(self) -> bool:
        type_, one = self._property(lambda one: one.is_required, keyed=False)
        if one is None:
            return False
        former = self.before.get(type_.id)
        if former is not None and former.find(one.id) is None:
            # It comes in the same step, and only what comes as required gives its default to what exists.
            self.model.fills.pop(one.id, None)
        return self._put(type_.with_property(replace(one, is_required=False)))

    def _make_required(self) -> bool:
        type_, one = self._property(lambda one: not one.is_required and one.base != "Blob", keyed=False)
        former = self.before.get(type_.id)
        # A property that comes in the same step needs a default: see `_add_required`.
        if one is None or one.is_inherited or (former is not None and former.find(one.id) is None):
            return False
        if any(self.model.value(row, one.id) is None for row in self.state.get(type_.id, {}).values()):
            self.errors.add("E4")
        return self._put(type_.with_property(replace(one, is_required=True)))

    def _grow_enum(self) -> bool:
        type_, one = self._property(lambda one: one.is_enum, keyed=False)
        if one is None:
            return False
        words = [*one.words, self.model.new_name("w")]
        base = "String" if self.random.random() < 0.3 else f"enum({', '.join(words)})"
        return self._put(type_.with_property(replace(one, base=base)))

    def _toggle_index(self) -> bool:
        bases = ("String", "I32", "Date", "Vector(3)")
        type_, one = self._property(lambda one: one.base in bases and not one.is_inherited, keyed=False)
        if one is None or type_.ends:
            return False
        return self._put(type_.with_property(replace(one, is_indexed=not one.is_indexed)))

    def _toggle_unique(self) -> bool:
        type_, one = self._property(lambda one: one.base in ("String", "I32") and not one.is_inherited, keyed=False)
        if one is None:
            return False
        values = [self.model.value(row, one.id) for row in self.state.get(type_.id, {}).values()]
        present = [value for value in values if value is not None]
        if not one.is_unique and len(set(present)) < len(present):
            self.errors.add("E5")
        return self._put(type_.with_property(replace(one, is_unique=not one.is_unique)))

    def _toggle_bounds(self) -> bool:
        type_, one = self._property(lambda one: one.base == "I32", keyed=False)
        if one is None or type_.ends:
            return False
        if one.bounds:
            return self._put(type_.with_property(replace(one, bounds=None)))
        bounds = self.random.choice([(-5, 10), (-5, 2000)])
        values = [self.model.value(row, one.id) for row in self.state.get(type_.id, {}).values()]
        if any(value is not None and not bounds[0] <= value <= bounds[1] for value in values):
            self.errors.add("E8")
        return self._put(type_.with_property(replace(one, bounds=bounds)))

    def _change_rule(self) -> bool:
        type_, one = self._property(lambda one: one.base in MERGE_RULES and not one.is_inherited, keyed=False)
        if one is None:
            return False
        rule = self.random.choice([None, "ours", "theirs", *MERGE_RULES[one.base]])
        return self._put(type_.with_property(replace(one, merge=rule)))

    def _change_default(self) -> bool:
        type_, one = self._property(lambda one: one.base in ("I32", "Bool") and not one.is_unique, keyed=False)
        if one is None or (one.bounds is not None):
            return False
        default = self.random.choice([*POOLS[one.base], *([] if one.is_required else [None])])
        return self._put(type_.with_property(replace(one, default=default)))

    # -- types -----------------------------------------------------------------------------------------------------

    def add_type(self) -> bool:
        if len(self.schema) > 9:
            return False
        id_ = self.model.new_id()
        name = self.model.new_name("T")
        if self.random.random() < 0.5:
            key = Property(self.model.new_id(), "k", self.random.choice(["String", "I32"]), is_required=True)
            others = [Property(self.model.new_id(), "s", "String"), Property(self.model.new_id(), "m", "I32")]
            return self._put(Type(id_, name, (key, *others), key=(key.id,)))
        ends = [self.random.choice(nodes(self.schema)).id for _ in range(2)]
        members = (Property(self.model.new_id(), "m", "I32"),)
        key_ = self.random.choice([(), (-1,)])
        return self._put(Type(id_, name, members, key=key_, ends=(ends[0], ends[1])))

    def _rename_type(self) -> bool:
        type_ = self._type()
        return self._put(replace(type_, name=self.model.new_name("N")))

    def _drop_type(self) -> bool:
        type_ = self._type()
        used = {end for one in self.schema.values() for end in one.ends or ()}
        if type_.id in used or len(nodes(self.schema)) < 3 or (not type_.ends and len(nodes(self.schema)) < 4):
            return False
        del self.schema[type_.id]
        self.state = {key: rows for key, rows in self.state.items() if key != type_.id}
        return True

    # -- pieces ----------------------------------------------------------------------------------------------------

    def _put(self, type_: Type) -> bool:
        self.schema[type_.id] = type_
        return True

    def _type(self) -> Type:
        return self.random.choice(list(self.schema.values()))

    def _property(self, fits: Any, *, keyed: bool = True) -> tuple[Type, Property | None]:
        """Choose a type, and a property of it that fits; None if it has none."""
        type_ = self._type()
        found = [one for one in type_.properties if fits(one) and (keyed or one.id not in type_.key)]
        return type_, self.random.choice(found) if found else None
