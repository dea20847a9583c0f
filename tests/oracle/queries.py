"""Random queries over the worlds' schema that compile, with parameters: every clause, extension and mix of types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from omnigraph.lang.catalog import NUMBERS, Catalog, EdgeType, PropertyType, Scalar
from tests.oracle.expressions import Expressions, fields_of
from tests.oracle.literals import literal, quote_text, to_json
from tests.oracle.measures import Measures
from tests.oracle.pattern import HOPS, NO_ENTITY, PATH, TEXT, joined
from tests.oracle.stages import Stages
from tests.oracle.truth import narrowed
from tests.oracle.worlds import POOLS, WORDS

T = TypeVar("T")
NAMES = ("p", "a", "z", "m", "b", "q", "c", "x", "k", "y", "d", "n", "e", "w", "f", "g", "h", "i", "j", "l")
COMPARISONS = ("!=", "=", "<", "<=", ">", ">=", "!=", "<=", ">=")
I64_MAX = 2**63 - 1


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
    # The types of the nodes of each path.
    spaces: dict[str, str] = field(default_factory=dict)

    def make(self) -> Made:
        scope: list[Bound] = []
        if self.often(1, 8):
            body = self.ranking(scope)
        else:
            body = self.union() if self.often(1, 12) else f"{self.patterns(scope)}\n  {self.results(scope)}"
        source = f"query q({', '.join(self.declared)}) {{\n  {body}\n}}"
        return Made(source, self.given, self.params)

    def patterns(self, scope: list[Bound]) -> str:
        """Return a pattern, and perhaps stages behind it, each with a pattern of its own or without."""
        parts = [f"match {{ {'  '.join(self.block(scope, 0))} }}"]
        for _ in range(max(0, self.below(6) - 3)):
            parts.append(Stages(self, scope).write())
            has_nodes = any(one.type not in NO_ENTITY and not one.is_edge for one in scope)
            if has_nodes and self.often(2, 3):
                parts.append(f"match {{ {'  '.join(self.block(scope, 1))} }}")
        return "\n  ".join(parts)

    def union(self) -> str:
        """Return a union of blocks with a text and a number each."""
        blocks = []
        for _ in range(2 + self.below(2)):
            scope: list[Bound] = []
            pattern = self.patterns(scope)
            written = Expressions(self, scope)
            number = self.pick(("count(*)", "max(1)", "3", "null"))
            blocks.append(f"{pattern}\n  return {{ {written.text()} as a, {number} as b }}")
            if number in ("count(*)", "max(1)") and not self.reads_variable(blocks[-1], scope):
                # Beside an aggregate a column must read a variable.
                blocks[-1] = f'{pattern}\n  return {{ "x" as a, 3 as b }}'
        body = f"\n  union{' all' * self.often(1, 2)}\n  ".join(blocks)
        if self.often(1, 2):
            keys = [self.pick(("a", "a desc")), self.pick(("b", "b desc"))][self.below(2) :]
            body += f"\n  order {{ {', '.join(keys)} }}"
        return body + "".join(f" {word} {self.page()}" for word in ("skip", "limit") if self.often(1, 4))

    def reads_variable(self, block: str, scope: list[Bound]) -> bool:
        returned = block.rpartition("return")[2]
        return any(f"${one.name}." in returned for one in scope)

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
        nodes = [one for one in scope if not one.is_edge and one.type not in NO_ENTITY]
        if kind < 3:
            return self.filter(scope, 0)
        if kind < 4 and nodes:
            return self.match(self.pick(nodes))
        ways = [one for one in scope if one.type == PATH]
        if ways and self.often(1, 2):
            return self.member(scope, self.pick(ways), nodes)
        if kind < 6 and depth == 0 and len(nodes) < 2:
            return self.binding(scope)
        return self.traversal(scope, scope)

    def binding(self, scope: list[Bound]) -> str:
        type_ = self.pick(("Person", "Person", "City", "Lone", "Named", "City|Person"))
        if scope and self.often(1, 6):
            return f"$_: {type_}"
        one = Bound(self.fresh(), "City|Lone|Person" if type_ == "Named" else type_)
        scope.append(one)
        return self.match(one, type_)

    def match(self, one: Bound, word: str | None = None) -> str:
        word = word or one.type
        properties = self.properties(one)
        names = [name for name, type_ in properties.items() if type_.dimension is None]
        if names and self.often(1, 5):
            name = self.pick(names)
            item = PropertyType(properties[name].scalar, enum_values=properties[name].enum_values)
            return f"${one.name}: {word} {{ {name}: {self.constant(item)} }}"
        return f"${one.name}: {word}"

    def optional(self, scope: list[Bound], depth: int) -> str:
        inner = list(scope)
        clauses = self.block(inner, depth + 1)
        scope.extend(Bound(one.name, one.type, one.is_edge, True) for one in inner[len(scope) :])
        return f"optional {{ {'  '.join(clauses)} }}"

    def traversal(self, scope: list[Bound], ends: Sequence[Bound]) -> str:
        """Walk from something in `ends`, or from nowhere when there is nothing."""
        nodes = [one for one in ends if not one.is_edge and one.type not in NO_ENTITY]
        start = self.pick(nodes) if nodes else None
        if start is not None and start.type == "Person" and self.often(1, 6):
            return self.path(scope, start, nodes)
        if start is not None and ("|" in start.type or self.often(1, 4)):
            return self.union_walk(scope, start, nodes)
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
        elif self.often(1, 6):
            word = f"({word})"
        if self.often(1, 5):
            name = "_" if self.often(1, 6) else self.fresh()
            if name != "_":
                scope.append(Bound(name, edge.name, is_edge=True))
            return f"${left} ${name}:{word} ${right}"
        hops = suffix = ""
        if self.often(1, 3):
            low = 1 + max(0, self.below(5) - 2)
            hops = f"{{{low},{low + self.below(3)}}}"
            if edge.source == edge.target and self.often(1, 3):
                hops = self.hops()[1]
        if self.often(1, 4):
            name = self.fresh()
            scope.append(Bound(name, HOPS))
            suffix = f" as ${name}"
        return f"${left} {word}{hops} ${right}{suffix}"

    def union_walk(self, scope: list[Bound], start: Bound, nodes: Sequence[Bound]) -> str:
        """Walk several edge types, or any, or from a node of several types."""
        left = set(start.type.split("|"))
        is_both = self.often(1, 4)
        every = list(self.catalog.edges.values())
        leaving = [one for one in every if one.source in left or (is_both and one.target in left)]
        if not leaving:
            return self.filter(scope, 0)
        is_any = self.often(1, 2)
        named = list({(one := self.pick(leaving)).name: one for _ in range(1 + self.below(3))}.values())
        if len(named) == 1 and named[0].source != named[0].target and "|" not in start.type:
            is_both = False
            named = [one for one in named if one.source in left] or [self.pick(leaving)]
        word = "_" if is_any else "|".join(one.name[0].lower() + one.name[1:] for one in named)
        word = f"<{word}>" if is_both else f"({word})" if not is_any and self.often(1, 2) else word
        if not is_any and not is_both and not all(one.source in left for one in named):
            return self.filter(scope, 0)
        edges = every if is_any else named
        low, hops = self.hops() if self.often(1, 2) else (1, "")
        reached = self.reached(edges, left, is_both, bool(hops), low)
        if not hops and self.often(1, 4):
            name = self.fresh()
            used = {one.name for one in edges if one.source in left or (is_both and one.target in left)}
            scope.append(Bound(name, joined(used), is_edge=True))
            right = Bound(self.fresh(), joined(reached))
            scope.append(right)
            return f"${start.name} ${name}:{word} ${right.name}"
        ends = [
            one for one in nodes if is_any and set(one.type.split("|")) & self.reached(every, left, is_both, False, 1)
        ]
        right = self.pick(ends) if ends and self.often(1, 3) else Bound(self.fresh(), joined(reached))
        if right not in scope:
            scope.append(right)
        suffix = ""
        if self.often(1, 4):
            name = self.fresh()
            scope.append(Bound(name, HOPS))
            suffix = f" as ${name}"
        return f"${start.name} {word}{hops} ${right.name}{suffix}"

    def path(self, scope: list[Bound], start: Bound, nodes: Sequence[Bound]) -> str:
        """Bind a path between persons, or from a person to a city."""
        word = self.pick(("knows", "likes", "<knows>", "knows|likes", "<likes|knows>", "knows|livesIn", "livesIn"))
        is_mixed, is_chain = word in ("knows|livesIn", "livesIn"), word != "livesIn"
        low = self.below(2) if is_chain and not is_mixed else 1
        hops = self.pick((f"{{{low},}}", f"{{{low},{low + self.below(4)}}}")) if is_chain else ""
        search = self.pick(("", "shortest ", "all shortest ", "shortest 2 ", "shortest 3 ", "all shortest "))
        if search == "shortest 3 ":
            name = f"k{len(self.declared)}"
            self.declared.append(f"${name}: I32")
            self.params[name] = self.given[name] = 1 + self.below(3)
            search = f"shortest(${name}) "
        weight = " by toll" if hops.endswith(",}") and self.often(1, 2) else ""
        type_ = "Person" if not is_mixed else "City|Person" if is_chain else "City"
        same = [one for one in nodes if one.type == type_ and one != start]
        if same and self.often(1, 2):
            end = self.pick(same)
        else:
            end = Bound(self.fresh(), type_)
            scope.append(end)
        ends = (start, end) if is_mixed or self.often(3, 4) else (end, start)
        one = Bound(self.fresh(), PATH)
        self.spaces[one.name] = "City|Person" if is_mixed else "Person"
        scope.append(one)
        return f"path ${one.name} = {search}${ends[0].name} {word}{hops} ${ends[1].name}{weight}"

    def member(self, scope: list[Bound], path: Bound, nodes: Sequence[Bound]) -> str:
        """Bind a node of a path, or ask whether a node is one."""
        space = self.spaces[path.name]
        same = [one for one in nodes if one.type == space]
        if same and self.often(1, 2):
            return f"${self.pick(same).name} in nodes(${path.name})"
        scope.append(Bound(self.fresh(), space))
        return f"${scope[-1].name} in nodes(${path.name})"

    def hops(self) -> tuple[int, str]:
        """Return a lower bound and the text of a hop range, which may be open or end at a parameter."""
        low = max(0, self.below(5) - 1)
        if self.often(1, 3):
            return low, f"{{{low},}}"
        high = low + self.below(3)
        if self.often(1, 3):
            name = f"k{len(self.declared)}"
            self.declared.append(f"${name}: I64")
            self.params[name] = self.given[name] = high
            return low, f"{{{low},${name}}}"
        return low, f"{{{low},{high}}}"

    def reached(self, edges: Sequence[EdgeType], left: set[str], is_both: bool, is_chain: bool, low: int) -> set[str]:
        pairs = [(one.source, one.target) for one in edges]
        pairs += [(one.target, one.source) for one in edges] if is_both else []
        types = set(left)
        for _ in pairs if is_chain else ():
            types |= {far for near, far in pairs if near in types}
        return {far for near, far in pairs if near in types} | (left if low == 0 else set())

    # -- conditions --------------------------------------------------------------------------------------------

    def filter(self, scope: list[Bound], depth: int) -> str:
        if depth < 2 and self.often(1, 4):
            word = self.pick(("and", "or"))
            parts = [self.filter(scope, depth + 1) for _ in range(2 + self.below(2))]
            return f"({f' {word} '.join(parts)})" if depth or self.often(1, 2) else f" {word} ".join(parts)
        if self.often(1, 10):
            return f"not ({self.filter(scope, depth + 1)})"
        if self.often(1, 6):
            test = Expressions(self, scope).bool()
            if any(f"${one.name}." in test for one in scope):
                return f"({test})"
        return self.condition(scope)

    def condition(self, scope: list[Bound]) -> str:
        owners = [one for one in scope if one.type in NO_ENTITY or self.properties(one)]
        if not owners:
            return "1 = 1"
        one = self.pick(owners)
        if one.type == PATH:
            number = self.constant(PropertyType(Scalar.I64))
            return f"{self.pick(('length', 'cost'))}(${one.name}) {self.pick(COMPARISONS)} {number}"
        if one.type == TEXT:
            return f"${one.name} {self.pick(COMPARISONS)} {self.constant(PropertyType(Scalar.STRING))}"
        if one.type == HOPS:
            return f"${one.name} {self.pick(COMPARISONS)} {self.constant(PropertyType(Scalar.I64))}"
        kind = self.below(10)
        if kind == 0 and self.often(1, 3):
            return (
                f"type(${one.name}) {self.pick(('=', '!=', '<'))} {quote_text(self.pick(('Person', 'City', 'Knows')))}"
            )
        if kind == 9 and not one.is_edge:
            return f"${one.name} is {'not ' * self.often(1, 2)}null"
        if kind == 4 and self.often(1, 2):
            return Expressions(self, scope).field_test(one)
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
            # Single letters are often inside a text and at neither end.
            part = self.pick(('"b"', '"r"', '"o"', '"e"', self.constant(PropertyType(Scalar.STRING))))
            sides = [access, part]
            sides = sides[::-1] if self.often(1, 3) else sides
            # Between two variables the word would be an edge.
            return f"({sides[0]} {self.pick(('contains', 'starts_with', 'ends_with'))} {sides[1]})"
        sides = [access, self.other_side(scope, type_)]
        sides = sides[::-1] if self.often(1, 4) else sides
        test = f"{sides[0]} {self.pick(COMPARISONS)} {sides[1]}"
        # Behind another clause a sign would be the operator of a difference.
        return f"({test})" if test.startswith("-") else test

    def properties(self, one: Bound) -> dict[str, PropertyType]:
        if one.type in NO_ENTITY:
            return {}
        types = self.catalog.edges if one.is_edge else self.catalog.nodes
        first, *others = (types[name].properties for name in one.type.split("|"))
        return {
            name: each.type
            for name, each in first.items()
            if all(name in other and other[name].type == each.type for other in others)
        }

    def other_side(self, scope: list[Bound], type_: PropertyType) -> str:
        if type_.scalar is Scalar.DATETIME and self.often(1, 5):
            return "now()"
        if self.often(1, 3):
            fitting = [
                f"${one.name}.{name}"
                for one in scope
                if one.type not in NO_ENTITY
                for name, other in self.properties(one).items()
                if not other.is_list and other.dimension is None and _fits(type_, other)
            ]
            if fitting:
                return self.pick(fitting)
        return self.constant(type_)

    def text_predicate(self, one: Bound) -> str:
        query = self.pick(WORDS)
        shown = self.parameter(PropertyType(Scalar.STRING), query) if self.often(1, 3) else quote_text(query)
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
            self.given[name] = to_json(value)
        return f"${name}"

    # -- results -----------------------------------------------------------------------------------------------

    def results(self, scope: list[Bound]) -> str:
        is_grouped = self.often(1, 4)
        is_distinct = self.often(1, 6)
        columns = Measures(self, scope).columns() if is_grouped else self.columns(scope)
        shown = [f"{text} as {alias}" if alias else text for text, alias, _ in columns]
        first_of = ""
        if (
            not is_grouped
            and not is_distinct
            and self.often(1, 6)
            and (keys_of := self.sortable(scope) + self.identities(scope))
        ):
            first_of = f"distinct on ({', '.join({self.pick(keys_of) for _ in range(1 + self.below(2))})}) "
        parts = [f"return {'distinct ' * is_distinct}{first_of}{{ {', '.join(shown)} }}"]
        if is_grouped and self.often(1, 3):
            parts.append(f"having {Measures(self, scope).having(columns)}")
        keys = [alias or text for text, alias, can_order in columns if can_order and (alias or "." in text)]
        if not is_grouped and not is_distinct:
            computed = [Expressions(self, scope).any()] if scope and self.often(1, 5) else []
            # What reads no variable is no key.
            computed = [text for text in computed if any(f"${one.name}." in text for one in scope)]
            keys = computed + [alias for _, alias, can_order in columns if can_order and alias] + self.sortable(scope)
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
        found = [f"${one.name}" for one in scope if one.type in (HOPS, TEXT)]
        for one in scope:
            if one.type not in NO_ENTITY:
                for name, type_ in self.properties(one).items():
                    if not type_.is_list and type_.dimension is None:
                        found.append(f"${one.name}.{name}")
                found += [f"${one.name}.{name}" for name in fields_of(one) if one.is_edge or name == "@id"]
        return found

    def identities(self, scope: list[Bound]) -> list[str]:
        """Return the nodes, the names of types and the lengths of paths that rows can be told apart by."""
        entities = [one for one in scope if one.type not in NO_ENTITY]
        found = [f"${one.name}" for one in entities if not one.is_edge]
        found += [f"type(${one.name})" for one in entities if "|" in one.type]
        return found + [f"length(${one.name})" for one in scope if one.type == PATH]

    def columns(self, scope: list[Bound]) -> list[tuple[str, str | None, bool]]:
        """Return columns: their text, their alias, and whether they can be ordered by."""
        found: list[tuple[str, str | None, bool]] = []
        seen: set[str] = set()
        for _ in range(1 + self.below(4)):
            text, can_order = self.column(scope)
            is_named = self.often(1, 3) or text in seen or not text.startswith("$") or text.startswith("$k")
            found.append((text, f"c{len(found)}" if is_named else None, can_order))
            seen.add(text)
        owners = [one for one in scope if one.type not in NO_ENTITY and self.properties(one)]
        if owners and self.often(1, 6):
            found.append((self.entity(self.pick(owners)), None, False))
        return found

    def entity(self, one: Bound) -> str:
        properties = self.properties(one)
        if self.often(1, 2) and any(type_.dimension is None for type_ in properties.values()):
            return f"${one.name}.*"
        names = [self.pick(list(properties)) for _ in range(1 + self.below(3))]
        return f"${one.name} {{ {', '.join(names)} }}"

    def column(self, scope: list[Bound]) -> tuple[str, bool]:
        kind = self.below(15)
        if kind > 11:
            return Expressions(self, scope).any(), True
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
        if one.type == PATH:
            function = self.pick(("nodes", "edges", "length", "cost", ""))
            return f"{function}(${one.name})" if function else f"${one.name}", function in ("length", "cost")
        if one.type in (HOPS, TEXT) or (not one.is_edge and self.often(1, 4)):
            return f"${one.name}", True
        if self.often(1, 5) or not self.properties(one):
            return self.pick((f"type(${one.name})", f"${one.name}.{self.pick(fields_of(one))}")), True
        name, type_ = self.pick(list(self.properties(one).items()))
        return f"${one.name}.{name}", not type_.is_list and type_.dimension is None

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
