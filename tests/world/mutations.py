"""Random mutations, as text and as what they do to the model.

Written from "Mutations" in docs/languages.md and docs/writing.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from random import Random
from typing import Any

from tests.world.merge_model import find_violations
from tests.world.model import Model, Row, Rows, State, copy_state
from tests.world.schema_model import ENDS, Property, Schema, Type, TypeId, edges, nodes
from tests.world.values import Texts, random_key, random_value

RULES = {
    "OrphanEdge": "E9",
    "UniqueViolation": "E5",
    "CardinalityViolation": "E10",
    "ValueConstraintViolation": "E8",
    "RequiredViolation": "E4",
}
# Ids that the graph chooses; the model learns them afterwards.
PLACEHOLDER = "?"
ORDERED = ("I32", "I64", "U32", "F32", "F64")
Test = Callable[[Row], bool]


def broken_rules(model: Model, schema: Schema, state: State) -> set[str]:
    return {RULES[kind] for kind, _, _ in find_violations(model, schema, state)}


def new_row(model: Model, type_: Type, named: Row) -> Row:
    """Return a new entity: what it does not mention has its default."""
    row: Row = {}
    for one in type_.properties:
        model.set_value(row, one.id, named.get(one.id, one.default))
    if type_.ends:
        row[ENDS] = named[ENDS]
    return row


class Mutation:
    """One mutation: statements in `.gq`, and the state that they make."""

    def __init__(self, model: Model, random: Random, branch: str, visible: Collection[TypeId] | None) -> None:
        self.model = model
        self.random = random
        self.schema = model.schema(branch)
        self.visible = {key: one for key, one in self.schema.items() if visible is None or key in visible}
        self.state = copy_state(model.state(branch))
        self.texts = Texts()
        self.errors: set[str] = set()
        self.fresh = 0
        # Codes that it may be refused with, or not.
        self.may_fail: set[str] = set()
        self.is_mixed = False

    def draw(self, patterns: float = 0.33) -> str | None:
        """Choose statements and apply them, by a pattern with this share; None if there is nothing to write."""
        draws = [self._puts] * 6 + [self._update] * 4 + [self._delete, self._mixed] * 2 + [self._rename] * 2
        body = self._by_pattern() if self.random.random() < patterns else self.random.choice(draws)()
        if body is None:
            return None
        if not self.errors:
            self.errors = broken_rules(self.model, self.schema, self.state)
        return self.texts.query(body, is_mixed=self.is_mixed)

    # -- statements ------------------------------------------------------------------------------------------------

    def _puts(self) -> str | None:
        texts = [self._put() for _ in range(self.random.choice([1, 1, 2, 3]))]
        return "  ".join(one for one in texts if one) or None

    def _put(self) -> str | None:
        type_ = self._type()
        if type_ is None or self.errors:
            return None
        verb = self.random.choice(["insert", "insert", "create", "upsert"]) if type_.key else "insert"
        named: Row = {}
        ends = self._ends(type_)
        if type_.ends:
            if ends is None:
                return None
            named[ENDS] = ends
        for one in type_.properties:
            if one.id in type_.key:
                named[one.id] = random_key(self.random, type_, one)
            elif (one.is_required and one.default is None) or self.random.random() < 0.4:
                named[one.id] = random_value(self.random, one)
        if not named:
            return None
        self._apply_put(verb, type_, named)
        return f"{verb} {type_.name} {{ {self._assigns(type_, named)} }}"

    def _assigns(self, type_: Type, named: Row) -> str:
        parts = []
        if type_.ends:
            parts += [f'from: "{named[ENDS][0]}"', f'to: "{named[ENDS][1]}"']
        parts += [
            f"{one.name}: {self.texts.write(named[one.id], one.base)}" for one in type_.properties if one.id in named
        ]
        return "  ".join(parts)

    def _apply_put(self, verb: str, type_: Type, named: Row) -> None:
        rows = self.state.setdefault(type_.id, {})
        if not type_.key:
            self.fresh += 1
            rows[f"{PLACEHOLDER}{self.fresh}"] = new_row(self.model, type_, named)
            return
        entity = self.model.entity_id(type_, named)
        if verb == "create" and entity in rows:
            self.errors |= {"E11", "E5"}
        if verb == "upsert" and entity in rows:
            row = dict(rows[entity])
            for key, value in named.items():
                if key == ENDS:
                    row[ENDS] = value
                else:
                    self.model.set_value(row, key, value)
            rows[entity] = row
        else:
            rows[entity] = new_row(self.model, type_, named)

    def _update(self) -> str | None:
        type_ = self._type()
        changes = self._sets(type_) if type_ else None
        if type_ is None or changes is None:
            return None
        condition, test = self._condition(type_)
        self.set_all(type_, changes, [one for one, row in self._rows(type_).items() if test(row)])
        return f"update {type_.name} set {{ {self.set_text(changes)} }} where {condition}"

    def _delete(self) -> str | None:
        type_ = self._type()
        if type_ is None:
            return None
        condition, test = self._condition(type_)
        self._delete_all(type_, [one for one, row in self._rows(type_).items() if test(row)])
        return f"delete {type_.name} where {condition}"

    def _rename(self) -> str | None:
        """Give an entity another key, or let two of them swap theirs; edges follow."""
        type_ = self._pick([one for one in nodes(self.visible) if one.key and self._rows(one)])
        if type_ is None:
            return None
        [key] = [one for one in type_.properties if one.id in type_.key]
        old, new = (random_key(self.random, type_, key) for _ in range(2))
        before, after = (self.texts.write(value, key.base) for value in (old, new))
        changes = self._sets(type_) if self.random.random() < 0.3 else None
        sets = f"  {self.set_text(changes)}" if changes else ""
        keys = {old: new}
        if self.random.random() < 0.3:
            keys[new] = old
            value = f"case when {key.name} = {before} then {after} else {before} end"
            text = f"rename {type_.name} set {{ {key.name}: {value}{sets} }} where {key.name} in [{before}, {after}]"
        else:
            text = f"rename {type_.name} set {{ {key.name}: {after}{sets} }} where {key.name} = {before}"
        found = [one for one, row in self._rows(type_).items() if self.model.value(row, key.id) in keys]
        self.set_all(type_, changes or {}, found)
        if not rename_entities(self.model, self.schema, self.state, type_, key, keys):
            self.errors |= {"E11"}
        return text

    def _mixed(self) -> str | None:
        """Write and delete in one mutation; each statement sees what those before it did, and the end is judged."""
        self.is_mixed = True
        texts: list[str] = []
        written: set[TypeId] = set()
        for _ in range(self.random.choice([2, 3, 4])):
            draw = self.random.choice([self._put, self._put, self._update, self._delete])
            before = {key: dict(rows) for key, rows in self.state.items()}
            text = draw()
            if text is None:
                continue
            named = next(one for one in self.schema.values() if one.name == text.split()[1])
            if draw != self._put and named.id in written:
                # Updates of edges and conditions other than one comparison with a constant read what is committed.
                self.may_fail.add("language.rejected")
            written |= {named.id, *(key for key, rows in self.state.items() if rows != before.get(key))}
            if not named.ends:
                written |= {one.id for one in edges(self.schema) if one.ends and named.id in one.ends}
            texts.append(text)
        return "  ".join(texts) or None

    # -- patterns --------------------------------------------------------------------------------------------------

    def _by_pattern(self) -> str | None:
        draws = [self._match_one, self._match_walk, self._match_walk, self._match_edge, self._match_without]
        draws += [self._match_any_edge, self._match_any_edge, self._match_interface, self._match_interface]
        return self.random.choice(draws)()

    def _match_one(self) -> str | None:
        type_ = self._pick(nodes(self.visible))
        if type_ is None:
            return None
        condition, test = self._condition(type_, "$a.")
        found = [one for one, row in self._rows(type_).items() if test(row)]
        return self._write_all(f"$a: {type_.name}  {condition}", "$a", type_, found)

    def _match_walk(self) -> str | None:
        edge = self._pick(edges(self.visible))
        if edge is None or edge.ends is None:
            return None
        source, target = (self.schema[end] for end in edge.ends)
        # A destination appears once, however many parallel edges lead to it.
        pairs = sorted({row[ENDS] for row in self._rows(edge).values()})
        pattern = f"$a: {source.name}  $a {called(edge)} $b"
        if self.random.random() < 0.3:
            return self._insert_edges(pattern, edge, pairs)
        at_source = self.random.random() < 0.5
        found = {pair[0 if at_source else 1] for pair in pairs}
        return self._write_all(pattern, "$a" if at_source else "$b", source if at_source else target, sorted(found))

    def _match_edge(self) -> str | None:
        edge = self._pick(edges(self.visible))
        if edge is None:
            return None
        return self._write_all(f"$a $e: {called(edge)} $b", "$e", edge, list(self._rows(edge)))

    def _match_without(self) -> str | None:
        edge = self._pick(edges(self.visible))
        if edge is None or edge.ends is None:
            return None
        source = self.schema[edge.ends[0]]
        having = {row[ENDS][0] for row in self._rows(edge).values()}
        found = [one for one in self._rows(source) if one not in having]
        return self._write_all(f"$a: {source.name}  not {{ $a {called(edge)} $_ }}", "$a", source, found)

    def _match_any_edge(self) -> str | None:
        """Match over every type of edge that the actor sees."""
        source = self._pick(nodes(self.visible))
        leaving = [one for one in edges(self.visible) if one.ends and source and one.ends[0] == source.id]
        if source is None or not leaving:
            return None
        found = {row[ENDS][0] for edge in leaving for row in self._rows(edge).values()}
        return self._write_all(f"$a: {source.name}  $a _ $x", "$a", source, sorted(found))

    def _match_interface(self) -> str | None:
        """Copy values of every type that the actor sees, through an interface."""
        named = [one for one in nodes(self.visible) if one.is_named]
        targets = [one for one in nodes(self.visible) if not one.key]
        target = self._pick(targets)
        if not named or target is None:
            return None
        text = next((one for one in target.properties if one.base == "String" and not one.is_unique), None)
        if text is None or any(one.is_required and one.default is None for one in target.properties if one is not text):
            return None
        for type_ in named:
            [name] = [one for one in type_.properties if one.is_inherited]
            for row in self._rows(type_).values():
                self._apply_put("insert", target, {text.id: self.model.value(row, name.id)})
        return f"match {{ $n: Named }} insert {target.name} {{ {text.name}: $n.name }}"

    def _insert_edges(self, pattern: str, matched: Type, pairs: list[Any]) -> str | None:
        """Insert an edge for each match; one without a key for each row, one with a key once."""
        others = [
            one for one in edges(self.visible) if one.ends == matched.ends and not any(p.is_required for p in one.free)
        ]
        others = [one for one in others if one.key in ((), (-1,))]
        edge = self._pick(others)
        if edge is None:
            return None
        for pair in pairs:
            self._apply_put("insert", edge, {ENDS: pair})
        return f"match {{ {pattern} }} insert {edge.name} {{ from: $a, to: $b }}"

    def _write_all(self, pattern: str, variable: str, type_: Type, found: list[str]) -> str | None:
        changes = self._sets(type_)
        if changes is None or self.random.random() < 0.25:
            self._delete_all(type_, found)
            return f"match {{ {pattern} }} delete {variable}"
        self.set_all(type_, changes, found)
        return f"match {{ {pattern} }} update {variable} set {{ {self.set_text(changes)} }}"

    # -- pieces ----------------------------------------------------------------------------------------------------

    def _pick(self, among: list[Type]) -> Type | None:
        return self.random.choice(among) if among else None

    def _type(self) -> Type | None:
        return self._pick(list(self.visible.values()))

    def _rows(self, type_: Type) -> dict[str, Row]:
        return self.state.get(type_.id, {})

    def _ends(self, type_: Type) -> tuple[str, str] | None:
        if not type_.ends:
            return None
        found = []
        for end in type_.ends:
            there = sorted(one for one in self.state.get(end, {}) if not one.startswith(PLACEHOLDER))
            if self.random.random() < 0.03:
                there = ["nowhere"]
            if not there:
                return None
            found.append(self.random.choice(there))
        return found[0], found[1]

    def _sets(self, type_: Type) -> dict[Property, Any] | None:
        # A Blob is set with `insert` or `upsert`.
        free = [one for one in type_.free if one.base != "Blob"]
        if not free:
            return None
        chosen = self.random.sample(free, min(len(free), self.random.choice([1, 1, 2])))
        return {one: random_value(self.random, one) for one in chosen}

    def set_text(self, changes: dict[Property, Any]) -> str:
        return "  ".join(f"{one.name}: {self.texts.write(value, one.base)}" for one, value in changes.items())

    def set_all(self, type_: Type, changes: dict[Property, Any], found: list[str]) -> None:
        rows = self.state.get(type_.id, {})
        for entity in found:
            rows[entity] = dict(rows[entity])
            for one, value in changes.items():
                self.model.set_value(rows[entity], one.id, value)

    def _delete_all(self, type_: Type, found: list[str]) -> None:
        delete_entities(self.schema, self.state, type_, found)

    def _condition(self, type_: Type, prefix: str = "") -> tuple[str, Test]:
        """Return a condition as text and as a test; null satisfies no comparison."""
        if type_.ends and not prefix and self.random.random() < 0.5:
            side = self.random.randrange(2)
            ends = [row[ENDS][side] for row in self._rows(type_).values()]
            value = self.random.choice(sorted(ends)) if ends else "nowhere"
            return f'{("from", "to")[side]} = "{value}"', lambda row: bool(row[ENDS][side] == value)
        usable = [one for one in type_.properties if one.base in (*ORDERED, "String") or one.is_enum]
        if not usable:
            return ("true", lambda row: True) if not prefix else (f"{prefix}@id is not null", lambda row: True)
        one = self.random.choice(usable)
        name = f"{prefix}{one.name}"
        if not one.is_required and self.random.random() < 0.15:
            return f"{name} is null", lambda row: self.model.value(row, one.id) is None
        value = random_key(self.random, type_, one) if one.id in type_.key else random_value(self.random, one)
        if value is None:
            return f"{name} is not null", lambda row: self.model.value(row, one.id) is not None
        sign = self.random.choice(["=", "=", ">", "<="]) if one.base in ORDERED else "="
        return f"{name} {sign} {self.texts.write(value, one.base)}", self._test(one, sign, value)

    def _test(self, one: Property, sign: str, value: Any) -> Test:
        def test(row: Row) -> bool:
            stored = self.model.value(row, one.id)
            if stored is None:
                return False
            return bool(stored == value if sign == "=" else stored > value if sign == ">" else stored <= value)

        return test


def called(edge: Type) -> str:
    """Return the name of an edge type as a pattern writes it."""
    return edge.name[0].lower() + edge.name[1:]


def delete_entities(schema: Schema, state: State, type_: Type, found: Collection[str]) -> None:
    """Delete entities; edges go with the nodes that they end at, whoever sees them."""
    gone = set(found)
    state[type_.id] = {one: row for one, row in state.get(type_.id, {}).items() if one not in gone}
    if type_.ends:
        return
    for edge in edges(schema):
        assert edge.ends is not None
        sides = [side for side in (0, 1) if edge.ends[side] == type_.id]
        rows = state.get(edge.id, {})
        state[edge.id] = {one: row for one, row in rows.items() if not any(row[ENDS][side] in gone for side in sides)}


def rename_entities(
    model: Model, schema: Schema, state: State, type_: Type, key: Property, keys: Mapping[Any, Any]
) -> bool:
    """Give nodes other keys, all at once, and their edges other ends; False if another node has such a key."""
    renamed: dict[str, str] = {}
    rows: Rows = {}
    for entity, row in state.get(type_.id, {}).items():
        changed = dict(row)
        model.set_value(changed, key.id, keys.get(model.value(row, key.id), model.value(row, key.id)))
        renamed[entity] = model.entity_id(type_, changed)
        if renamed[entity] in rows:
            return False
        rows[renamed[entity]] = changed
    state[type_.id] = rows
    for edge in edges(schema):
        assert edge.ends is not None
        followed: Rows = {}
        for entity, row in state.get(edge.id, {}).items():
            pair = tuple(renamed[end] if edge.ends[side] == type_.id else end for side, end in enumerate(row[ENDS]))
            changed = {**row, ENDS: pair}
            followed[model.entity_id(edge, changed) if edge.key else entity] = changed
        state[edge.id] = followed
    return True
