"""Mutations by their definition: a graph of dictionaries, statements in order, patterns over the committed state.

Written from docs/languages.md, docs/writing.md and docs/schema.md, without a look at the engine. Slow on purpose:
patterns are nested loops, and every state is judged as a whole.
"""

from __future__ import annotations

import copy
import datetime as dt
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
# `{type: {id: row}}`; the row of an edge has `src` and `dst`.
State = dict[str, dict[str, Row]]
Env = dict[str, Any]
WORDS = ("red", "green", "blue")
I32_MAX, I64_MAX = 2**31 - 1, 2**63 - 1


@dataclass(frozen=True)
class Property:
    """A property of the model: `base` is a scalar type, `enum` or `[String]`."""

    name: str
    base: str
    required: bool = False
    default: Any = None


@dataclass(frozen=True)
class Type:
    """A node type, or an edge type if it has ends."""

    name: str
    properties: tuple[Property, ...]
    key: tuple[str, ...] = ()
    ends: tuple[str, str] | None = None
    unique: tuple[tuple[str, ...], ...] = ()
    ranges: tuple[tuple[str, int, int], ...] = ()
    card: tuple[int, int | None] | None = None

    def property(self, name: str) -> Property:
        return next(one for one in self.properties if one.name == name)


@dataclass(frozen=True)
class Pattern:
    """`$a: A`, at most one walk to `$b`, at most one `not` block, a second binding, and conditions."""

    variables: dict[str, str]  # node variables that are bound by their type
    walk: tuple[str, str, str, str] | None = None  # source, edge variable or "", edge type, target
    optional: bool = False  # whether the walk stands in an optional block
    without: tuple[str, str, bool] | None = None  # variable, edge type, whether it is the target
    where: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Statement:
    """One statement: a verb, a type or a variable, what it sets, and a condition."""

    verb: str
    target: str
    assigns: dict[str, Any] = field(default_factory=dict)
    where: Any = None


@dataclass(frozen=True)
class Group:
    """Statements that share a pattern, or stand alone."""

    pattern: Pattern | None
    statements: tuple[Statement, ...]


@dataclass(frozen=True)
class Load:
    """Lines for `ingest`: types and what each names, ends as `src` and `dst`; what is not named is absent."""

    mode: str
    lines: tuple[tuple[str, Row], ...]


class Refused(Exception):
    """The mutation is refused with one of these codes."""

    def __init__(self, *codes: str) -> None:
        super().__init__(*codes)
        self.codes = set(codes)


def spelled(value: Any) -> str:
    """Return a key value as ids spell it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dt.date):
        return str((value - dt.date(1970, 1, 1)).days)
    return str(value)


def evaluate(expression: Any, env: Env, row: Row | None = None) -> Any:
    """Return the value of an expression; conditions are True, False or None."""
    kind, *rest = expression
    if kind == "lit":
        return rest[0]
    if kind == "param":
        return env["$params"][rest[0]]
    if kind == "prop":
        variable, name = rest
        source = row if variable is None else env[variable]
        return None if source is None else source[{"from": "src", "to": "dst"}.get(name, name)]
    if kind == "id":
        return None if env[rest[0]] is None else env[rest[0]]["id"]
    if kind == "isnull":
        return evaluate(rest[0], env, row) is None
    if kind == "case":
        return evaluate(rest[1] if evaluate(rest[0], env, row) is True else rest[2], env, row)
    if kind == "coalesce":
        first = evaluate(rest[0], env, row)
        return evaluate(rest[1], env, row) if first is None else first
    values = [evaluate(one, env, row) for one in rest if isinstance(one, tuple)]
    if kind == "and":
        return False if False in values else None if None in values else True
    if kind == "or":
        return True if True in values else None if None in values else False
    if any(one is None for one in values):
        return None
    if kind == "not":
        return not values[0]
    if kind == "in":
        return values[0] in rest[1]
    if kind == "upper":
        return values[0].upper()
    if kind == "concat":
        return values[0] + values[1]
    if kind == "plus":
        if abs(values[0] + values[1]) > I64_MAX:
            raise Refused("overflow")
        return values[0] + values[1]
    left, right = values
    return {"=": left == right, "!=": left != right, "<": left < right, ">=": left >= right}[kind]


@dataclass
class Outcome:
    """What a mutation came to."""

    state: State
    nodes: int
    edges: int
    # Whether something is left to write: an entity that was put and is there, or a stored one that went.
    is_change: bool = True


class Model:
    """The types of a graph, and what a mutation makes of a state."""

    def __init__(self, types: list[Type], mutant: str = "") -> None:
        self.types = {one.name: one for one in types}
        self.mutant = mutant
        self._fresh = 0

    # -- patterns -------------------------------------------------------------------------------------------------

    def matches(self, pattern: Pattern, state: State, params: Env) -> list[Env]:
        """Return the rows of a pattern."""
        rows: list[Env] = [{"$params": params}]
        for variable, name in pattern.variables.items():
            rows = [row | {variable: node} for row in rows for node in state[name].values()]
        if pattern.walk:
            rows = [wider for row in rows for wider in self._walk(pattern, row, state)]
        if pattern.without:
            variable, edge, is_target = pattern.without
            end = "dst" if is_target else "src"
            rows = [row for row in rows if row[variable]["id"] not in {one[end] for one in state[edge].values()}]
        wanted = (True, None) if self.mutant == "unknown is true" else (True,)
        return [row for row in rows if all(evaluate(one, row) in wanted for one in pattern.where)]

    def _walk(self, pattern: Pattern, row: Env, state: State) -> Iterator[Env]:
        source, edge_variable, edge, target = pattern.walk or ("", "", "", "")
        ends = self.types[edge].ends or ("", "")
        seen: set[tuple[str, str]] = set()
        for one in state[edge].values():
            if (source in row and one["src"] != row[source]["id"]) or (
                target in row and one["dst"] != row[target]["id"]
            ):
                continue
            wider = row | {source: state[ends[0]][one["src"]], target: state[ends[1]][one["dst"]]}
            if edge_variable:
                yield wider | {edge_variable: one}
            elif (one["src"], one["dst"]) not in seen:
                yield wider
            seen.add((one["src"], one["dst"]))
        if pattern.optional and not seen:
            yield row | {target: None} | ({edge_variable: None} if edge_variable else {})

    def type_of(self, pattern: Pattern | None, variable: str) -> str:
        """Return the type of a variable of a pattern."""
        assert pattern is not None
        if variable in pattern.variables:
            return pattern.variables[variable]
        source, edge_variable, edge, _ = pattern.walk or ("", "", "", "")
        ends = self.types[edge].ends or ("", "")
        return edge if variable == edge_variable else ends[0] if variable == source else ends[1]

    # -- what the compiler refuses ----------------------------------------------------------------------------------

    def _reads(self, pattern: Pattern) -> set[str]:
        found = set(pattern.variables.values())
        for edge in filter(None, (pattern.walk and pattern.walk[2], pattern.without and pattern.without[1])):
            found |= {edge, *(self.types[edge].ends or ())}
        return found

    def _writes(self, group: Group, statement: Statement) -> set[str]:
        name = self._type(group, statement).name
        if statement.verb == "delete" and not self.types[name].ends:
            return {name} | {one.name for one in self.types.values() if one.ends and name in one.ends}
        return {name}

    def compile(self, program: list[Group], *, is_mixed: bool = False) -> None:
        """Raise what is refused before anything is read."""
        codes: set[str] = set()
        deletes = {one.verb == "delete" for group in program for one in group.statements}
        if len(deletes) > 1 and self.mutant != "mixes" and not is_mixed:
            codes.add("E1")
        written: set[str] = set()
        put: set[str] = set()  # written by something else than a delete
        for group in program:
            if group.pattern and self._reads(group.pattern) & written and self.mutant != "stale patterns":
                codes.add("E1")
            for statement in group.statements:
                if group.pattern is None and statement.target in written and self._is_pattern(statement):
                    codes.add("E1")
                if group.pattern is None and statement.target in put and self._is_pattern(statement, "delete"):
                    codes.add("E1")
                if statement.verb == "update" and set(statement.assigns) & set(self._type(group, statement).key):
                    codes.add("E3")
                written |= self._writes(group, statement)
                put |= set() if statement.verb == "delete" else self._writes(group, statement)
        if codes:
            raise Refused(*codes)

    def _type(self, group: Group, statement: Statement) -> Type:
        is_variable = group.pattern is not None and statement.target[0].islower()
        return self.types[self.type_of(group.pattern, statement.target) if is_variable else statement.target]

    def _is_pattern(self, statement: Statement, verb: str = "update") -> bool:
        """Return whether an update or delete is read like a pattern: it has more than a comparison and constants."""
        if statement.verb != verb:
            return False
        constants = {"lit", "param"}
        kind, *sides = statement.where
        is_simple = kind in ("=", "!=", "<", ">=") and sides[0][0] == "prop" and sides[1][0] in constants
        computes = any(one[0] not in constants or one == ("lit", None) for one in statement.assigns.values())
        return not is_simple or computes or (verb == "update" and self.types[statement.target].ends is not None)

    # -- statements -------------------------------------------------------------------------------------------------

    def run(self, committed: State, program: list[Group], params: Env, *, is_mixed: bool = False) -> Outcome:
        """Return the state after a mutation, or raise what refuses it; `committed` stays as it is."""
        self.compile(program, is_mixed=is_mixed)
        state = copy.deepcopy(committed)
        self._put: set[tuple[str, str]] = set()
        self._committed = committed
        counts = {True: 0, False: 0}
        snapshot = copy.deepcopy(committed)
        for group in program:
            rows = self.matches(group.pattern, snapshot, params) if group.pattern else [{"$params": params}]
            for statement in group.statements:
                if self.mutant == "patterns see the mutation" and group.pattern:
                    rows = self.matches(group.pattern, state, params)
                for name, count in self._statement(group.pattern, statement, rows, state).items():
                    counts[self.types[name].ends is None] += count
        self._judge(committed, state)
        is_left = any(identity in state[name] for name, identity in self._put)
        is_gone = any(identity not in state[name] for name, stored in committed.items() for identity in stored)
        return Outcome(state, counts[True], counts[False], is_left or is_gone)

    def load(self, committed: State, load: Load) -> Outcome:
        """Return the state after an `append` or a `merge`, or raise what refuses it."""
        state = copy.deepcopy(committed)
        seen: set[tuple[str, str]] = set()
        codes: set[str] = set()
        counts = {True: 0, False: 0}
        for name, named in load.lines:
            type_ = self.types[name]
            if any(named[one.name] is None for one in type_.properties if one.required and one.name in named):
                raise Refused("E4", "N9", "N10")
            identity = self._identity(type_, named)
            codes |= {"E5"} if (name, identity) in seen else set()
            codes |= {"E11"} if load.mode == "append" and identity in committed[name] else set()
            seen.add((name, identity))
            defaults = {one.name: copy.copy(one.default) for one in type_.properties}
            state[name][identity] = defaults | named | {"id": identity}
            counts[type_.ends is None] += 1
        try:
            self._judge(committed, state)
        except Refused as refused:
            codes |= refused.codes
        if codes:
            raise Refused(*codes)
        return Outcome(state, counts[True], counts[False])

    def _statement(self, pattern: Pattern | None, statement: Statement, rows: list[Env], state: State) -> Counter[str]:
        by_variable = pattern is not None and statement.target[0].islower()
        name = self.type_of(pattern, statement.target) if by_variable and pattern else statement.target
        if statement.verb in ("insert", "create", "upsert"):
            return self._insert(self.types[name], statement, rows, state, is_pattern=pattern is not None)
        if by_variable:
            chosen = [
                (row[statement.target]["id"], row, row[statement.target]) for row in rows if row[statement.target]
            ]
        else:
            chosen = [
                (one, rows[0], row)
                for one, row in self._seen(statement, state)[name].items()
                if evaluate(statement.where, rows[0], row) is True
                or (self.mutant == "unknown is true" and evaluate(statement.where, rows[0], row) is None)
            ]
        if statement.verb == "delete":
            return self._delete(name, {one for one, _, _ in chosen}, state)
        return self._update(self.types[name], statement, chosen, state)

    def _seen(self, statement: Statement, state: State) -> State:
        is_blind = statement.verb == "delete" and self.mutant == "deletes see what is stored"
        return self._committed if is_blind else state

    def _update(
        self, type_: Type, statement: Statement, chosen: list[tuple[str, Env, Row]], state: State
    ) -> Counter[str]:
        values: dict[str, Row] = {}
        for identity, env, old in chosen:
            new = {
                name: self._fit(type_.property(name), evaluate(one, env, old))
                for name, one in statement.assigns.items()
            }
            if values.setdefault(identity, new) != new and self.mutant != "last row wins":
                raise Refused("E4")
            values[identity] = new
        for identity, new in values.items():
            if identity in state[type_.name]:
                state[type_.name][identity] |= new
                self._put.add((type_.name, identity))
        return Counter({type_.name: len(values.keys() & state[type_.name].keys())})

    def _insert(
        self, type_: Type, statement: Statement, rows: list[Env], state: State, *, is_pattern: bool
    ) -> Counter[str]:
        written: dict[str, Row] = {}
        for env in rows:
            named = {}
            for name, one in statement.assigns.items():
                value = evaluate(one, env)
                if name in ("from", "to"):
                    if value is None:
                        raise Refused("E4", "E9")
                    named[{"from": "src", "to": "dst"}[name]] = value
                else:
                    named[name] = self._fit(type_.property(name), value)
            identity = self._identity(type_, named)
            if written.setdefault(identity, named) != named and self.mutant != "last row wins":
                raise Refused("E4")
            written[identity] = named
        for identity, named in written.items():
            before = state[type_.name].get(identity)
            if before is not None and statement.verb == "create" and self.mutant != "create replaces":
                raise Refused("E11")
            row: Row = {one.name: copy.copy(one.default) for one in type_.properties}
            if self.mutant == "no defaults":
                row = dict.fromkeys(row)
            if before is not None and (statement.verb == "upsert") != (self.mutant == "upsert forgets"):
                row = dict(before)
            row |= named | {"id": identity}
            if self.mutant == "the deleted stay deleted" and before is None and identity in self._committed[type_.name]:
                continue
            state[type_.name][identity] = row
            self._put.add((type_.name, identity))
        return Counter({type_.name: len(written)})

    def _identity(self, type_: Type, row: Row) -> str:
        if not type_.key or (self.mutant == "keys do not count" and type_.ends):
            self._fresh += 1
            return f"~{self._fresh}"
        ends = [one for one in ("src", "dst") if one in type_.key]
        members = ends + sorted(one for one in type_.key if one not in ends)
        if any(row[one] is None for one in members):
            raise Refused("E4")
        texts = [spelled(row[one]) for one in members]
        return texts[0] if len(texts) == 1 else json.dumps(texts, ensure_ascii=False, separators=(",", ":"))

    def _fit(self, prop: Property, value: Any) -> Any:
        if value is not None and prop.base == "I32" and not -I32_MAX - 1 <= value <= I32_MAX:
            raise Refused("E4")
        return value

    def _delete(self, name: str, identities: set[str], state: State) -> Counter[str]:
        counts: Counter[str] = Counter()
        for identity in identities:
            counts[name] += state[name].pop(identity, None) is not None
        if self.types[name].ends is None and self.mutant != "no cascade":
            for edge in self.types.values():
                for one, row in list(state[edge.name].items()):
                    if self.mutant == "new edges stay" and one not in self._committed[edge.name]:
                        continue
                    for end, node in zip(("src", "dst"), edge.ends or (), strict=False):
                        if node == name and row[end] in identities and one in state[edge.name]:
                            del state[edge.name][one]
                            counts[edge.name] += 1
        return counts

    # -- the rules of the graph -------------------------------------------------------------------------------------

    def _judge(self, before: State, after: State) -> None:
        codes: set[str] = set()
        for type_ in self.types.values():
            rows = after[type_.name]
            required = [one.name for one in type_.properties if one.required]
            codes |= {"E4" for row in rows.values() for name in required if row[name] is None}
            enums = [one.name for one in type_.properties if one.base == "enum"]
            codes |= {"E7" for row in rows.values() for name in enums if row[name] not in (None, *WORDS)}
            for name, low, high in type_.ranges:
                codes |= {"E8" for row in rows.values() if row[name] is not None and not low <= row[name] <= high}
            for members in type_.unique:
                tuples = [tuple(row[one] for one in members) for row in rows.values()]
                tuples = [one for one in tuples if None not in one]
                codes |= {"E5"} if len(set(tuples)) < len(tuples) and self.mutant != "not unique" else set()
            if type_.ends:
                codes |= self._judge_edges(type_, before, after)
        if codes:
            raise Refused(*codes)

    def _judge_edges(self, type_: Type, before: State, after: State) -> set[str]:
        codes: set[str] = set()
        rows = after[type_.name]
        source, target = type_.ends or ("", "")
        if any(row["src"] not in after[source] or row["dst"] not in after[target] for row in rows.values()):
            codes.add("E9")
        if type_.card and self.mutant != "any number of edges":
            low, high = type_.card
            degrees = Counter(row["src"] for row in rows.values())
            old = before[type_.name]
            touched = {
                side[one]["src"]
                for one in old.keys() | rows.keys()
                if old.get(one, {}).get("src") != rows.get(one, {}).get("src")
                for side in (old, rows)
                if one in side
            }
            for one in touched & after[source].keys():
                if degrees[one] < low or (high is not None and degrees[one] > high):
                    codes.add("E10")
        return codes
