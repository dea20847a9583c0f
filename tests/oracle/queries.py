"""Random queries over the worlds' schema that compile, with parameters: every clause, extension and mix of types."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from omnigraph.lang.catalog import NUMBERS, Catalog, EdgeType, PropertyType, Scalar
from tests.oracle.pattern import HOPS
from tests.oracle.truth import narrowed
from tests.oracle.worlds import POOLS, WORDS

T = TypeVar("T")
NAMES = ("p", "a", "z", "m", "b", "q", "c", "x", "k", "y", "d", "n", "e", "w", "f", "g", "h", "i", "j", "l")
COMPARISONS = ("!=", "=", "<", "<=", ">", ">=", "!=", "<=", ">=")
I64_MAX = 2**63 - 1
# Sums of the largest integers cancel out to whatever the order of adding leaves, in any engine.
ADDED = frozenset({"age", "few", "ratio", "weight", "rent", "order"})


@dataclass
class Made:
    """One query: its text, the parameters as a caller gives them, and as the evaluator reads them."""

    source: str
    given: dict[str, Any]
    params: dict[str, Any]


@dataclass(frozen=True)
class Bound:
    """A variable in scope: a node or edge of a type, or hops; a loose one may be null."""

    name: str
    type: str
    is_edge: bool = False
    is_loose: bool = False


@dataclass
class Maker:
    """Builds one query; `below(n)` decides everything, so that whoever supplies it can shrink."""

    below: Callable[[int], int]
    catalog: Catalog
    declared: list[str] = field(default_factory=list)
    given: dict[str, Any] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)
    used: int = 0

    def make(self) -> Made:
        scope: list[Bound] = []
        if self.often(1, 8):
            body = self.ranking(scope)
        else:
            clauses = self.block(scope, 0)
            body = f"match {{ {'  '.join(clauses)} }}\n  {self.results(scope)}"
        source = f"query q({', '.join(self.declared)}) {{\n  {body}\n}}"
        return Made(source, self.given, self.params)

    # -- chance ------------------------------------------------------------------------------------------------

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def often(self, times: int, of: int) -> bool:
        # Zero is where shrinking ends, so zero leaves things out.
        return self.below(of) >= of - times

    def fresh(self) -> str:
        self.used += 1
        return NAMES[self.used - 1] if self.used <= len(NAMES) else f"v{self.used}"

    # -- patterns ----------------------------------------------------------------------------------------------

    def block(self, scope: list[Bound], depth: int) -> list[str]:
        """Return the clauses of a block and add what it binds to the scope."""
        clauses: list[str] = []
        if depth == 0:
            clauses.append(self.traversal(scope, []) if self.often(1, 10) else self.binding(scope))
        elif self.often(3, 4):
            clauses.append(self.traversal(scope, scope))
        else:
            clauses.append(self.filter(scope, 0))
        for _ in range(self.below(4 if depth == 0 else 2)):
            clauses.append(self.clause(scope, depth))
        blocks: list[str] = []
        if depth < 2:
            for _ in range(max(0, self.below(4) - 1)):
                blocks.append(self.optional(scope, depth))
            if blocks and self.often(1, 2):
                blocks.append(self.filter(scope, 0))
            for _ in range(max(0, self.below(3) - 1)):
                inner: list[Bound] = list(scope)
                negation = f"not {{ {'  '.join(self.block(inner, depth + 1))} }}"
                (clauses if not any(one.is_loose for one in scope) and self.often(1, 2) else blocks).append(negation)
        return clauses + blocks

    def clause(self, scope: list[Bound], depth: int) -> str:
        kind = self.below(12)
        nodes = [one for one in scope if not one.is_edge and one.type != HOPS]
        if kind < 3:
            return self.filter(scope, 0)
        if kind < 4 and nodes:
            return self.match(self.pick(nodes))
        if kind < 6 and depth == 0 and len(nodes) < 2:
            return self.binding(scope)
        return self.traversal(scope, scope)

    def binding(self, scope: list[Bound]) -> str:
        type_ = self.pick(("Person", "Person", "City", "Lone"))
        if scope and self.often(1, 6):
            return f"$_: {type_}"
        one = Bound(self.fresh(), type_)
        scope.append(one)
        return self.match(one)

    def match(self, one: Bound) -> str:
        if self.often(1, 5):
            properties = self.catalog.nodes[one.type].properties
            names = [name for name, each in properties.items() if each.type.dimension is None]
            name = self.pick(names)
            type_ = properties[name].type
            item = PropertyType(type_.scalar, enum_values=type_.enum_values)
            return f"${one.name}: {one.type} {{ {name}: {self.constant(item)} }}"
        return f"${one.name}: {one.type}"

    def optional(self, scope: list[Bound], depth: int) -> str:
        inner = list(scope)
        clauses = self.block(inner, depth + 1)
        scope.extend(Bound(one.name, one.type, one.is_edge, True) for one in inner[len(scope) :])
        return f"optional {{ {'  '.join(clauses)} }}"

    def traversal(self, scope: list[Bound], ends: Sequence[Bound]) -> str:
        """Walk from something in `ends`, or from nowhere when there is nothing."""
        nodes = [one for one in ends if not one.is_edge and one.type != HOPS]
        start = self.pick(nodes) if nodes else None
        edges = [e for e in self.catalog.edges.values() if start is None or start.type in (e.source, e.target)]
        if not edges:
            return self.filter(scope, 0)
        edge = self.pick(edges)
        left_type, right_type, starts_left = self.orientation(edge, start)
        left = start.name if start is not None and starts_left else None
        right = start.name if start is not None and not starts_left else None
        others = {True: left_type, False: right_type}
        if left is None:
            left = self.end(scope, nodes, others[True])
        if right is None:
            right = self.end(scope, nodes, others[False])
        return self.walk(scope, edge, left, right)

    def orientation(self, edge: EdgeType, start: Bound | None) -> tuple[str, str, bool]:
        """Return the types of the left and right end, and whether the start is the left one."""
        if start is None:
            return edge.source, edge.target, True
        is_left = self.often(2, 3)
        if edge.source == edge.target:
            return edge.source, edge.target, is_left
        forward = (start.type == edge.source) == is_left
        ends = (edge.source, edge.target) if forward else (edge.target, edge.source)
        return (*ends, is_left)

    def end(self, scope: list[Bound], nodes: Sequence[Bound], type_: str) -> str:
        same = [one for one in nodes if one.type == type_]
        if same and self.often(1, 4):
            return self.pick(same).name
        if nodes and self.often(1, 6):
            return "_"
        one = Bound(self.fresh(), type_)
        scope.append(one)
        return one.name

    def walk(self, scope: list[Bound], edge: EdgeType, left: str, right: str) -> str:
        word = self.pick((edge.name[0].lower() + edge.name[1:], edge.name.lower()))
        if edge.source == edge.target and self.often(1, 4):
            word = f"<{word}>"
        if self.often(1, 5):
            name = "_" if self.often(1, 6) else self.fresh()
            if name != "_":
                scope.append(Bound(name, edge.name, is_edge=True))
            return f"${left} ${name}:{word} ${right}"
        hops = suffix = ""
        if self.often(1, 3):
            low = 1 + max(0, self.below(5) - 2)
            hops = f"{{{low},{low + self.below(3)}}}"
        if self.often(1, 4):
            name = self.fresh()
            scope.append(Bound(name, HOPS))
            suffix = f" as ${name}"
        return f"${left} {word}{hops} ${right}{suffix}"

    # -- conditions --------------------------------------------------------------------------------------------

    def filter(self, scope: list[Bound], depth: int) -> str:
        if depth < 2 and self.often(1, 4):
            word = self.pick(("and", "or"))
            parts = [self.filter(scope, depth + 1) for _ in range(2 + self.below(2))]
            return f"({f' {word} '.join(parts)})" if depth or self.often(1, 2) else f" {word} ".join(parts)
        return self.condition(scope)

    def condition(self, scope: list[Bound]) -> str:
        owners = [one for one in scope if one.type == HOPS or self.properties(one)]
        if not owners:
            return "1 = 1"
        one = self.pick(owners)
        if one.type == HOPS:
            return f"${one.name} {self.pick(COMPARISONS)} {self.constant(PropertyType(Scalar.I64))}"
        kind = self.below(10)
        if kind == 9 and not one.is_edge:
            return f"${one.name} is {'not ' * self.often(1, 2)}null"
        if kind == 8 and one.type == "Person":
            return self.text_predicate(one)
        name, type_ = self.pick(list(self.properties(one).items()))
        access = f"${one.name}.{name}"
        if kind == 7 or type_.dimension is not None:
            return f"{access} is {'not ' * self.often(1, 2)}null"
        if type_.is_list:
            return f"{access} contains {self.constant(PropertyType(type_.scalar))}"
        if kind == 6:
            return f"{access} in {self.collection(type_)}"
        if kind == 5 and type_.is_text:
            sides = [access, self.constant(PropertyType(Scalar.STRING))]
            sides = sides[::-1] if self.often(1, 3) else sides
            # Between two variables the word would be an edge.
            return f"({sides[0]} {self.pick(('contains', 'starts_with'))} {sides[1]})"
        sides = [access, self.other_side(scope, type_)]
        sides = sides[::-1] if self.often(1, 4) else sides
        return f"{sides[0]} {self.pick(COMPARISONS)} {sides[1]}"

    def properties(self, one: Bound) -> dict[str, PropertyType]:
        owner = self.catalog.edges[one.type] if one.is_edge else self.catalog.nodes[one.type]
        return {name: each.type for name, each in owner.properties.items()}

    def other_side(self, scope: list[Bound], type_: PropertyType) -> str:
        if type_.scalar is Scalar.DATETIME and self.often(1, 5):
            return "now()"
        if self.often(1, 3):
            fitting = [
                f"${one.name}.{name}"
                for one in scope
                if one.type != HOPS
                for name, other in self.properties(one).items()
                if not other.is_list and other.dimension is None and _fits(type_, other)
            ]
            if fitting:
                return self.pick(fitting)
        return self.constant(type_)

    def text_predicate(self, one: Bound) -> str:
        query = self.pick(WORDS)
        shown = self.parameter(PropertyType(Scalar.STRING), query) if self.often(1, 3) else _text(query)
        function = self.pick(("search", "match_text", "fuzzy"))
        edits = f", {self.below(3)}" if function == "fuzzy" and self.often(1, 2) else ""
        return f"{function}(${one.name}.bio, {shown}{edits})" + (" = true" if self.often(1, 5) else "")

    # -- constants ---------------------------------------------------------------------------------------------

    def constant(self, type_: PropertyType) -> str:
        """Return a literal or parameter that compares with the type; one beside an enum is a word of it."""
        scalar = type_.scalar
        if scalar in NUMBERS and self.often(1, 2):
            scalar = self.pick(sorted(NUMBERS))
        value = self.value(scalar, type_)
        if self.often(1, 3) or (scalar is Scalar.U64 and value > I64_MAX) or scalar is Scalar.F32:
            value = min(value, I64_MAX) if scalar is Scalar.U64 else value
            return self.parameter(PropertyType(scalar), value)
        return literal(value)

    def value(self, scalar: Scalar, type_: PropertyType | None = None) -> Any:
        if type_ is not None and type_.enum_values is not None:
            return self.pick(type_.enum_values)
        if scalar is Scalar.STRING and self.often(1, 6):
            return self.pick(("red", "green", "x", "y"))
        return self.pick(POOLS[scalar])

    def collection(self, type_: PropertyType) -> str:
        scalar = type_.scalar
        if scalar in NUMBERS and self.often(1, 2):
            scalar = self.pick(sorted(NUMBERS))
        items = [self.value(scalar, type_) for _ in range(self.below(4))]
        if scalar in (Scalar.F32, Scalar.U64) or self.often(1, 3):
            items = [min(one, I64_MAX) for one in items] if scalar is Scalar.U64 else items
            if items and self.often(1, 4):
                items.append(None)
            return self.parameter(PropertyType(scalar, is_list=True), tuple(items))
        return f"[{', '.join(literal(one) for one in items)}]"

    def parameter(self, type_: PropertyType, value: Any) -> str:
        name = f"k{len(self.declared)}"
        is_nullable = self.often(1, 4)
        if is_nullable and self.often(1, 3):
            value = None
        self.declared.append(f"${name}: {type_}{'?' * is_nullable}")
        self.params[name] = narrowed(value) if type_.scalar is Scalar.F32 else value
        if value is not None or self.often(1, 2):
            self.given[name] = _json(value)
        return f"${name}"

    # -- results -----------------------------------------------------------------------------------------------

    def results(self, scope: list[Bound]) -> str:
        is_grouped = self.often(1, 4)
        is_distinct = self.often(1, 6)
        columns = self.aggregates(scope) if is_grouped else self.columns(scope)
        shown = [f"{text} as {alias}" if alias else text for text, alias, _ in columns]
        parts = [f"return {'distinct ' * is_distinct}{{ {', '.join(shown)} }}"]
        keys = [alias or text for text, alias, can_order in columns if can_order and (alias or "." in text)]
        if not is_grouped and not is_distinct:
            keys = [alias for _, alias, can_order in columns if can_order and alias] + self.sortable(scope)
        wanted = {self.pick(keys) for _ in range(self.below(3))} if keys else set()
        if wanted:
            order = [key + self.pick(("", " asc", " desc")) for key in sorted(wanted)]
            parts.append(f"order {{ {', '.join(order)} }}")
        parts += [f"{word} {self.page()}" for word in ("skip", "limit") if self.often(1, 4)]
        return "\n  ".join(parts)

    def page(self) -> str:
        number = self.below(6)
        if not self.often(1, 4):
            return str(number)
        name = f"k{len(self.declared)}"
        self.declared.append(f"${name}: {self.pick(('I32', 'I64', 'U32', 'U64'))}")
        self.params[name] = self.given[name] = number
        return f"${name}"

    def sortable(self, scope: list[Bound]) -> list[str]:
        """Return every property and number of hops that a row can be ordered by."""
        found = [f"${one.name}" for one in scope if one.type == HOPS]
        for one in scope:
            if one.type != HOPS:
                for name, type_ in self.properties(one).items():
                    if not type_.is_list and type_.dimension is None:
                        found.append(f"${one.name}.{name}")
        return found

    def columns(self, scope: list[Bound]) -> list[tuple[str, str | None, bool]]:
        """Return columns: their text, their alias, and whether they can be ordered by."""
        found: list[tuple[str, str | None, bool]] = []
        seen: set[str] = set()
        for _ in range(1 + self.below(4)):
            text, can_order = self.column(scope)
            is_named = self.often(1, 3) or text in seen or not text.startswith("$") or text.startswith("$k")
            found.append((text, f"c{len(found)}" if is_named else None, can_order))
            seen.add(text)
        return found

    def column(self, scope: list[Bound]) -> tuple[str, bool]:
        kind = self.below(12)
        if kind == 11:
            scalar = self.pick((Scalar.STRING, Scalar.I64, Scalar.F64, Scalar.BOOL, Scalar.DATE))
            return self.constant(PropertyType(scalar)), True
        persons = [one for one in scope if one.type == "Person"]
        if kind == 10 and persons:
            return f"nearest(${self.pick(persons).name}.vec, {self.vector()})", False
        owners = [one for one in scope if not one.is_edge or self.properties(one)]
        if not owners:
            return '"none"', True
        one = self.pick(owners)
        if one.type == HOPS or (not one.is_edge and self.often(1, 4)):
            return f"${one.name}", True
        name, type_ = self.pick(list(self.properties(one).items()))
        return f"${one.name}.{name}", not type_.is_list and type_.dimension is None

    def aggregates(self, scope: list[Bound]) -> list[tuple[str, str | None, bool]]:
        found: list[tuple[str, str | None, bool]] = []
        sortable = self.sortable(scope)
        nodes = [f"${one.name}" for one in scope if not one.is_edge and one.type != HOPS]
        for text in sorted({self.pick(sortable + nodes) for _ in range(self.below(3))} if sortable + nodes else ()):
            found.append((text, f"c{len(found)}" if self.often(1, 3) else None, True))
        for _ in range(1 + self.below(3)):
            found.append((self.aggregate(scope, sortable, nodes), f"c{len(found)}", True))
        return found

    def aggregate(self, scope: list[Bound], sortable: list[str], nodes: list[str]) -> str:
        types = {one.name: one for one in scope}
        numbers, ordered = [], list(nodes)
        for text in sortable:
            variable, _, name = text[1:].partition(".")
            scalar = Scalar.I64 if not name else self.properties(types[variable])[name].scalar
            if scalar in NUMBERS or scalar is Scalar.STRING:
                ordered.append(text)
            if scalar in NUMBERS and (not name or name in ADDED):
                numbers.append(text)
        function = self.pick(("count", "count", "sum", "avg", "min", "max"))
        if function in ("sum", "avg") and numbers:
            return f"{function}({self.pick(numbers)})"
        if function in ("min", "max") and ordered:
            return f"{function}({self.pick(ordered)})"
        everything = sortable + nodes
        return f"count({self.pick(everything)})" if everything and self.often(1, 2) else "count(*)"

    # -- rankings ----------------------------------------------------------------------------------------------

    def ranking(self, scope: list[Bound]) -> str:
        """Return a read that orders persons by distance; the pattern is about them alone."""
        one = Bound(self.fresh(), "Person")
        scope.append(one)
        clauses = [self.match(one)] + [self.filter(scope, 0) for _ in range(self.below(3))]
        call = f"nearest(${one.name}.vec, {self.vector()})"
        is_column = self.often(1, 2)
        columns = [f"${one.name}", f"${one.name}.age"] + [f"{call} as far"] * is_column
        order = f"order {{ {'far' if is_column else call} }}"
        skip = f"skip {self.below(3)} " * self.often(1, 4)
        pattern = f"match {{ {'  '.join(clauses)} }}"
        return f"{pattern}\n  return {{ {', '.join(columns)} }}\n  {order} {skip}limit {1 + self.below(5)}"

    def vector(self) -> str:
        numbers = [self.pick((0.0, 0.25, 1.0, -2.0, 3.3)) for _ in range(3)]
        if self.often(1, 3):
            name = f"k{len(self.declared)}"
            self.declared.append(f"${name}: Vector(3)")
            self.given[name] = numbers
            self.params[name] = tuple(numbers)
            return f"${name}"
        return f"[{', '.join(str(one) for one in numbers)}]"


def _fits(a: PropertyType, b: PropertyType) -> bool:
    return a.scalar is b.scalar or {a.scalar, b.scalar} <= NUMBERS


def literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, dt.datetime):
        return f'datetime("{_json(value)}")'
    if isinstance(value, dt.date):
        return f'date("{value.isoformat()}")'
    if isinstance(value, float):
        text = repr(value)
        return text if "e" not in text else f"{value:f}"
    return str(value)


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_json(item) for item in value]
    if isinstance(value, dt.datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, dt.date) else value
