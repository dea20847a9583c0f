"""Random schemas, graphs and mutations for the model, and their text in `.pg` and `.gq`."""

from __future__ import annotations

import datetime as dt
import json
from random import Random
from typing import Any

from tests.engine.write.mutation_model import WORDS, Group, Load, Model, Pattern, Property, State, Statement, Type

VALUES: dict[str, list[Any]] = {
    "String": ["a", "b", "c", "é"],
    "I32": [-1, 0, 1, 2, 7],
    "I64": [-3, 0, 1, 2**40],
    "F64": [-0.5, 0.25, 1.5],
    "Bool": [True, False],
    "Date": [dt.date(1969, 12, 31), dt.date(2024, 2, 29)],
    "enum": list(WORDS),
    "[String]": [[], ["x"], ["x", "y"]],
}
ORDERED = ("String", "I32", "I64", "F64", "Date")


def random_types(rng: Random) -> list[Type]:
    """Return two node types and two edge types."""
    nodes = [_random_node(rng, "A"), _random_node(rng, "B")]
    return [
        *nodes,
        _random_edge(rng, "E", ("A", "A")),
        _random_edge(rng, "F", rng.choice([("A", "B"), ("B", "B"), ("B", "A")])),
    ]


def _random_node(rng: Random, name: str) -> Type:
    key: tuple[str, ...] = rng.choice([("k",), ("k",), ("k", "j"), ()])
    base = rng.choice(["String", "String", "I32", "Date", "enum", "Bool"])
    members = [Property("k", base, required=True)] if key else []
    members += [Property("j", "I32", required=True)] if "j" in key else []
    members += _plain(rng)
    unique = tuple(rng.sample([("s",), ("n", "s"), ("d",)], rng.choice([0, 0, 1])))
    ranges = (("n", -1, 8),) if rng.random() < 0.4 else ()
    return Type(name, tuple(members), key, None, unique, ranges)


def _random_edge(rng: Random, name: str, ends: tuple[str, str]) -> Type:
    key: tuple[str, ...] = rng.choice([(), ("src", "dst"), ("src", "dst", "w"), ("w",), ("src", "w", "day")])
    members = [Property(one, base, required=one in key) for one, base in (("w", "I32"), ("day", "Date"))]
    members += [Property("s", "String", default=rng.choice([None, "dflt"])), Property("e", "enum")]
    unique = (("src", "s"),) if rng.random() < 0.15 else ()
    card = rng.choice([None, None, (0, 3), (1, None), (1, 2)])
    return Type(name, tuple(members), key, ends, unique, (), card)


def _plain(rng: Random) -> list[Property]:
    return [
        Property("s", "String", default=rng.choice([None, "dflt"])),
        Property("n", "I32"),
        Property("m", "I64", required=rng.random() < 0.5, default=rng.choice([None, 5])),
        Property("e", "enum", required=rng.random() < 0.2, default=rng.choice([None, "green"])),
        Property("b", "Bool"),
        Property("d", "Date"),
        Property("f", "F64"),
        Property("l", "[String]", default=rng.choice([None, ["x"]])),
    ]


def schema_text(types: list[Type]) -> str:
    """Return the types as a `.pg` source."""
    return "\n".join(_type_text(one) for one in types)


def _type_text(type_: Type) -> str:
    base = {"enum": f"enum({', '.join(WORDS)})"}
    members = []
    for one in type_.properties:
        default = (
            ""
            if one.default is None
            else f" @default({one.default if one.base == 'enum' else json.dumps(one.default)})"
        )
        members.append(f"{one.name}: {base.get(one.base, one.base)}{'' if one.required else '?'}{default}")
    members += [f"@key({', '.join(type_.key)})"] * bool(type_.key)
    members += [f"@unique({', '.join(one)})" for one in type_.unique]
    members += [f"@range({name}, {low}..{high})" for name, low, high in type_.ranges]
    if not type_.ends:
        return f"node {type_.name} {{ {'  '.join(members)} }}"
    card = f" @card({type_.card[0]}..{'' if type_.card[1] is None else type_.card[1]})" if type_.card else ""
    return f"edge {type_.name}: {type_.ends[0]} -> {type_.ends[1]}{card} {{ {'  '.join(members)} }}"


class Programs:
    """Draws mutations for a model and its present state."""

    def __init__(self, rng: Random, model: Model) -> None:
        self.rng = rng
        self.model = model
        self.params: dict[str, tuple[str, Any]] = {}
        self.constant = False

    def draw_mixed(self, state: State) -> list[Group]:
        """Return a mutation of a few statements, any of which may delete; most of them see earlier ones."""
        self.params, self.state, self.constant = {}, state, self.rng.random() < 0.7
        groups: list[Group] = []
        for _ in range(self.rng.choice([2, 3, 3, 4, 5])):
            deletes = self.rng.random() < 0.4
            if self.rng.random() < 0.15 and not groups:
                pattern = self._pattern()
                count = self.rng.choice([1, 2, 3])
                groups.append(
                    Group(pattern, tuple(self._by_pattern(pattern, self.rng.random() < 0.4) for _ in range(count)))
                )
            elif not groups or groups[-1].pattern is None:
                groups.append(Group(None, (self._plain(deletes),)))
        if self.constant:
            groups = [Group(group.pattern, tuple(map(self._simplified, group.statements))) for group in groups]
        return groups

    def _simplified(self, statement: Statement) -> Statement:
        """Return a statement whose condition, if any, is one comparison, which sees what the mutation wrote."""
        if statement.where is None:
            return statement
        type_ = self.model.types[statement.target]
        simple = ("String", "I32", "enum", "Date", "Bool")
        prop = self.rng.choice([one for one in type_.properties if one.base in simple])
        where = ("=", ("prop", None, prop.name), self._literal(prop))
        return Statement(statement.verb, statement.target, statement.assigns, where)

    def draw(self, state: State) -> list[Group]:
        """Return a mutation; `params` are its parameters then."""
        self.params = {}
        self.state = state
        rng = self.rng
        deletes = rng.random() < 0.25
        groups: list[Group] = []
        while sum(len(one.statements) for one in groups) < rng.choice([1, 1, 1, 2, 3]):
            if rng.random() < 0.55:
                pattern = self._pattern()
                count = rng.choice([1, 1, 2])
                statements = tuple(self._by_pattern(pattern, self._deletes(deletes)) for _ in range(count))
                groups.append(Group(pattern, statements))
            elif not groups or groups[-1].pattern is None:
                groups.append(Group(None, (self._plain(self._deletes(deletes)),)))
        return groups

    def seed(self, state: State) -> list[Group]:
        """Return a mutation that fills a graph: nodes first, then edges."""
        self.params, self.state, self.constant = {}, state, True
        empty = not any(state[name] for name in ("A", "B"))
        types = [one for one in self.model.types.values() if empty == (one.ends is None)]
        return [Group(None, (self._insert(self.rng.choice(types), {}),)) for _ in range(6 if empty else 3)]

    def load(self, state: State) -> Load:
        """Return some lines to load, which may repeat what is stored."""
        rng = self.rng
        self.params, self.state, self.constant = {}, state, True
        lines: list[tuple[str, dict[str, Any]]] = []
        for _ in range(rng.choice([1, 2, 3])):
            type_ = self._type()
            assigns = self._insert(type_, {}).assigns
            named = {{"from": "src", "to": "dst"}.get(name, name): one[1] for name, one in assigns.items()}
            absent = [one for one in type_.properties if one.required and one.default is None and one.name not in named]
            named |= {one.name: rng.choice(VALUES[one.base]) for one in absent}
            lines.append((type_.name, named))
        return Load(rng.choice(["append", "merge", "merge"]), tuple(lines))

    def _deletes(self, mostly: bool) -> bool:
        return mostly != (self.rng.random() < 0.02)

    def _type(self, *, node: bool | None = None) -> Type:
        return self.rng.choice([one for one in self.model.types.values() if node is None or (one.ends is None) == node])

    def _plain(self, deletes: bool) -> Statement:
        type_ = self._type()
        if deletes:
            return Statement("delete", type_.name, where=self._condition({None: type_}))
        if self.rng.random() < 0.35:
            return Statement("update", type_.name, self._sets(type_, {None: type_}), self._condition({None: type_}))
        return self._insert(type_, {})

    def _by_pattern(self, pattern: Pattern, deletes: bool) -> Statement:
        scope = self._scope(pattern)
        variable = self.rng.choice(list(scope))
        if deletes:
            return Statement("delete", variable)
        if self.rng.random() < 0.45:
            return Statement("update", variable, self._sets(scope[variable], scope))
        return self._insert(self._type(), scope)

    def _scope(self, pattern: Pattern) -> dict[Any, Type]:
        names = list(pattern.variables) + (
            [one for one in (pattern.walk[0], pattern.walk[1], pattern.walk[3]) if one] if pattern.walk else []
        )
        return {one: self.model.types[self.model.type_of(pattern, one)] for one in dict.fromkeys(names)}

    def _pattern(self) -> Pattern:
        rng = self.rng
        edge = self._type(node=False)
        source, target = edge.ends or ("", "")
        shape = rng.choice(["one", "one", "walk", "walk", "named", "named", "cross", "optional", "without"])
        if shape in ("walk", "named"):
            bound = rng.choice([{"a": source}, {"a": source, "b": target}, {}])
            pattern = Pattern(bound, ("a", "w" if shape == "named" else "", edge.name, "b"))
        elif shape == "cross":
            pattern = Pattern({"a": self._type(node=True).name, "b": self._type(node=True).name})
        elif shape == "optional":
            pattern = Pattern({"a": source}, ("a", rng.choice(["w", ""]), edge.name, "b"), optional=True)
        elif shape == "without":
            at_target = rng.random() < 0.3 and source != target
            pattern = Pattern({"a": target if at_target else source}, without=("a", edge.name, at_target))
        else:
            pattern = Pattern({"a": self._type(node=True).name})
        if rng.random() < 0.4:
            pattern = Pattern(
                pattern.variables,
                pattern.walk,
                pattern.optional,
                pattern.without,
                (self._condition(self._scope(pattern)),),
            )
        return pattern

    def _sets(self, type_: Type, scope: dict[Any, Type]) -> dict[str, Any]:
        names = [one.name for one in type_.properties if one.name not in type_.key or self.rng.random() < 0.01]
        chosen = self.rng.sample(names, min(len(names), self.rng.choice([1, 1, 2])))
        return {name: self._value(type_.property(name), scope) for name in chosen}

    def _insert(self, type_: Type, scope: dict[Any, Type]) -> Statement:
        rng = self.rng
        verb = rng.choice(["insert", "insert", "create", "upsert"] if type_.key else ["insert", "create"])
        assigns = {}
        for end, node in zip(("from", "to"), type_.ends or (), strict=False):
            variables = [one for one, bound in scope.items() if bound.name == node]
            if variables and rng.random() < 0.8:
                assigns[end] = ("id", rng.choice(variables))
            else:
                assigns[end] = (
                    "lit",
                    rng.choice(
                        [*self.state[node], "nowhere"]
                        if rng.random() < 0.05 or not self.state[node]
                        else list(self.state[node])
                    ),
                )
        for one in type_.properties:
            must = one.name in type_.key or (one.required and one.default is None)
            if (must and (verb == "upsert" and one.name not in type_.key) and rng.random() < 0.5) or (
                not must and rng.random() < 0.6
            ):
                continue
            assigns[one.name] = self._value(one, scope)
        if not assigns:
            assigns["s"] = self._value(type_.property("s"), scope)
        return Statement(verb, type_.name, assigns)

    # -- expressions ------------------------------------------------------------------------------------------------

    def _value(self, prop: Property, scope: dict[Any, Type]) -> Any:
        rng = self.rng
        if self.constant:
            return self._literal(prop)
        sources = [
            (variable, one)
            for variable, type_ in scope.items()
            for one in type_.properties
            if one.base == prop.base or {one.base, prop.base} == {"I32", "I64"}
        ]
        chance = rng.random()
        if sources and chance < 0.55:
            variable, other = rng.choice(sources)
            value: Any = ("prop", variable, other.name)
            if prop.base in ("I32", "I64") and rng.random() < 0.4:
                value = ("plus", value, ("lit", rng.choice([1, -1, 2**31])))
            elif prop.base == "String" and rng.random() < 0.4:
                value = rng.choice([("upper", value), ("concat", value, ("lit", "x"))])
            if rng.random() < 0.5 and prop.base not in ("enum", "[String]"):
                value = ("coalesce", value, self._literal(prop))
            elif rng.random() < 0.15 and prop.base not in ("enum", "[String]"):
                value = ("case", self._condition(scope), value, self._literal(prop))
            return value
        if chance < 0.68:
            return self._param(prop)
        if chance < 0.72 and not prop.required:
            return ("lit", None)
        return self._literal(prop)

    def _literal(self, prop: Property) -> Any:
        return ("lit", self.rng.choice(VALUES[prop.base]))

    def _param(self, prop: Property) -> Any:
        base = "String" if prop.base == "enum" else prop.base
        value = None if self.rng.random() < 0.2 else self.rng.choice(VALUES[prop.base])
        if prop.base == "enum" and self.rng.random() < 0.1:
            value = "pink"
        name = f"p{len(self.params)}"
        self.params[name] = (f"{base}?", value)
        return ("param", name)

    def _condition(self, scope: dict[Any, Type], depth: int = 2) -> Any:
        rng = self.rng
        if depth and rng.random() < 0.3:
            kind = rng.choice(["and", "or", "not"])
            return (kind, *(self._condition(scope, depth - 1) for _ in range(1 if kind == "not" else 2)))
        variable = rng.choice(list(scope))
        type_ = scope[variable]
        if type_.ends and variable is None and rng.random() < 0.4:
            end = rng.choice([0, 1])
            return (
                "=",
                ("prop", None, ("from", "to")[end]),
                ("lit", rng.choice([*self.state[type_.ends[end]], "nowhere"])),
            )
        prop = rng.choice([one for one in type_.properties if one.base != "[String]"])
        left = ("prop", variable, prop.name)
        if rng.random() < 0.15:
            return ("isnull", left)
        if rng.random() < 0.15:
            return ("in", left, rng.sample(VALUES[prop.base], 2))
        kind = rng.choice(["=", "=", "!="] + (["<", ">="] if prop.base in ORDERED else []))
        stored = [row[prop.name] for row in self.state[type_.name].values() if row[prop.name] is not None]
        return (kind, left, ("lit", rng.choice(stored)) if stored and rng.random() < 0.7 else self._literal(prop))


def load_text(model: Model, load: Load) -> str:
    """Return the lines of a load as NDJSON."""
    texts = []
    for name, named in load.lines:
        data = {key: str(value) if isinstance(value, dt.date) else value for key, value in named.items()}
        line: dict[str, Any] = {"type": name}
        if model.types[name].ends:
            line = {"edge": name, "from": data.pop("src"), "to": data.pop("dst")}
        texts.append(json.dumps(line | {"data": data}))
    return "\n".join(texts)


def query_text(programs: Programs, groups: list[Group], *, is_mixed: bool = False) -> str:
    """Return a mutation as `.gq`."""
    head = ", ".join(f"${name}: {base}" for name, (base, _) in programs.params.items())
    body = "\n  ".join(text for group in groups for text in _group_texts(group))
    return f"query q({head}) {'@mixed ' if is_mixed else ''}{{\n  {body}\n}}"


def _group_texts(group: Group) -> list[str]:
    texts = []
    if group.pattern:
        pattern = group.pattern
        clauses = [f"${variable}: {name}" for variable, name in pattern.variables.items()]
        if pattern.walk:
            source, edge, name, target = pattern.walk
            walk = f"${source} {f'${edge}:' if edge else ''}{name.lower()} ${target}"
            clauses.append(f"optional {{ {walk} }}" if pattern.optional else walk)
        if pattern.without:
            variable, name, is_target = pattern.without
            clauses.append(
                f"not {{ $x {name.lower()} ${variable} }}" if is_target else f"not {{ ${variable} {name.lower()} $_ }}"
            )
        clauses += [f"({expression_text(one)})" for one in pattern.where]
        texts.append(f"match {{ {'  '.join(clauses)} }}")
    for one in group.statements:
        target = f"${one.target}" if one.target[0].islower() else one.target
        sets = " ".join(f"{name}: {expression_text(value)}," for name, value in one.assigns.items())
        where = "" if one.where is None else f" where {expression_text(one.where)}"
        texts.append(
            f"delete {target}{where}"
            if one.verb == "delete"
            else f"update {target} set {{ {sets} }}{where}"
            if one.verb == "update"
            else f"{one.verb} {target} {{ {sets} }}"
        )
    return texts


def literal_text(value: Any) -> str:
    """Return a value as a literal."""
    if isinstance(value, dt.date):
        return f'date("{value}")'
    if isinstance(value, list):
        return f"[{', '.join(map(literal_text, value))}]"
    return json.dumps(value, ensure_ascii=False)


def expression_text(expression: Any) -> str:
    """Return an expression as `.gq`."""
    kind, *rest = expression
    if kind == "lit":
        return literal_text(rest[0])
    if kind in ("param", "id"):
        return f"${rest[0]}"
    if kind == "prop":
        return rest[1] if rest[0] is None else f"${rest[0]}.{rest[1]}"
    if kind == "isnull":
        return f"{expression_text(rest[0])} is null"
    if kind == "in":
        return f"{expression_text(rest[0])} in {literal_text(rest[1])}"
    parts = [expression_text(one) for one in rest]
    if kind == "not":
        return f"not ({parts[0]})"
    if kind == "case":
        return f"case when {parts[0]} then {parts[1]} else {parts[2]} end"
    if kind in ("coalesce", "upper", "concat"):
        return f"{kind}({', '.join(parts)})"
    sign = {"plus": "+"}.get(kind, kind)
    return f"({parts[0]} {sign} {parts[1]})"
