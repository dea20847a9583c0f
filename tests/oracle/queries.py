"""Random queries over the worlds' schema that compile, with parameters: every clause, extension and mix of types."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from omnigraph.lang.catalog import NUMBERS, PropertyType, Scalar
from tests.oracle.expressions import Expressions, fields_of
from tests.oracle.literals import literal, quote_text, to_json
from tests.oracle.measures import Measures
from tests.oracle.pattern import HOPS, NO_ENTITY, PATH, TEXT
from tests.oracle.stages import Stages
from tests.oracle.truth import narrowed
from tests.oracle.walks import Bound, Walks
from tests.oracle.worlds import POOLS, WORDS

COMPARISONS = ("!=", "=", "<", "<=", ">", ">=", "!=", "<=", ">=")
I64_MAX = 2**63 - 1


@dataclass
class Made:
    """One query: its text, the parameters as a caller gives them, and as the evaluator reads them."""

    source: str
    given: dict[str, Any]
    params: dict[str, Any]


@dataclass
class Maker(Walks):
    """Builds one query; `below(n)` decides everything, so that whoever supplies it can shrink."""

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

    # -- patterns ----------------------------------------------------------------------------------------------

    def block(self, scope: list[Bound], depth: int) -> list[str]:
        """Return the clauses of a block and add what it binds to the scope."""
        clauses: list[str] = []
        if depth and self.often(1, 3):
            clauses += self.narrowing(scope)
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
        if self.often(1, 10):
            return self.unwind(scope, [one for one in nodes if one.type == "Person"])
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
        if "|" in one.type and self.often(1, 3):
            # A second binding of the node asks more of it; which of the two comes first does not matter.
            narrower = self.pick(("City", "Person", "City|Person"))
            words = [type_, narrower][:: self.pick((1, -1))]
            scope.append(Bound(one.name, narrower))
            return f"{self.match(scope[-1], words[0])}  ${one.name}: {words[1]}"
        scope.append(one)
        return self.match(one, type_)

    def unwind(self, scope: list[Bound], persons: list[Bound]) -> str:
        """Bind the elements of a list: of a person, written, or a parameter."""
        is_text = self.often(1, 2)
        if persons and self.often(2, 3):
            collection = f"${self.pick(persons).name}.{'tags' if is_text else 'nums'}"
        else:
            collection = self.collection(PropertyType(Scalar.STRING if is_text else Scalar.DATE))
            is_text = is_text or "date" in collection
        one = Bound(self.fresh(), TEXT if is_text else HOPS)
        if "date" not in collection and not collection.startswith("$k") and collection != "[]":
            scope.append(one)
        return f"unwind {collection} as ${one.name}"

    def narrowing(self, scope: list[Bound]) -> list[str]:
        """Ask a narrower type of a node of several types that is bound outside, for the rest of the block."""
        places = [place for place, one in enumerate(scope) if "|" in one.ends and not one.is_edge]
        if not places:
            return []
        place = self.pick(places)
        one, members = scope[place], scope[place].ends.split("|")
        scope[place] = replace(one, left=self.pick(members))
        return [f"${one.name}: {scope[place].left}"]

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

    # -- conditions --------------------------------------------------------------------------------------------

    def filter(self, scope: list[Bound], depth: int) -> str:
        if depth < 2 and self.often(1, 4):
            word = self.pick(("and", "or"))
            parts = [self.filter(scope, depth + 1) for _ in range(2 + self.below(2))]
            return f"({f' {word} '.join(parts)})" if depth or self.often(1, 2) else f" {word} ".join(parts)
        if self.often(1, 10):
            return f"not ({self.filter(scope, depth + 1)})"
        if self.often(1, 10) and (test := self.pattern_test(scope)) is not None:
            return test
        if self.often(1, 6):
            test = Expressions(self, scope).bool()
            if any(f"${one.name}." in test for one in scope):
                return f"({test})"
        return self.condition(scope)

    def subquery(self, scope: list[Bound], word: str) -> str | None:
        """Return a pattern that is matched beside each row; None if there is no node that it could begin at."""
        nodes = [one for one in scope if not one.is_edge and one.type not in NO_ENTITY]
        if not nodes or self.nested >= 2:
            return None
        self.nested += 1
        inner = list(scope)
        clauses = self.block(inner, 2 - self.often(1, 3))
        self.nested -= 1
        return f"{word} {{ {'  '.join(clauses)} }}"

    def pattern_test(self, scope: list[Bound]) -> str | None:
        """Return a condition about a pattern."""
        if self.often(1, 2):
            test = self.subquery(scope, "exists")
            return None if test is None else f"{'not ' * self.often(1, 4)}{test}"
        number = self.subquery(scope, "count")
        return None if number is None else f"{number} {self.pick(COMPARISONS)} {self.below(3)}"

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
            counted = self.subquery(scope, "count") if self.often(1, 10) else None
            # What reads no variable is no key.
            computed = [text for text in computed if any(f"${one.name}." in text for one in scope)]
            keys = (
                [counted]
                if counted is not None
                else computed + [alias for _, alias, can_order in columns if can_order and alias] + self.sortable(scope)
            )
        wanted = {self.pick(keys) for _ in range(self.below(3))} if keys else set()
        if wanted:
            order = [key + self.pick(("", " asc", " desc")) for key in sorted(wanted)]
            parts.append(f"order {{ {', '.join(order)} }}")
        groups = self.sortable(scope) + self.identities(scope)
        if groups and not is_grouped and not is_distinct and self.often(1, 6):
            parts.append(self.limit_per(groups))
        parts += [f"{word} {self.page()}" for word in ("skip", "limit") if self.often(1, 4)]
        return "\n  ".join(parts)

    def limit_per(self, keys: list[str]) -> str:
        """Return how many rows of each group are left."""
        chosen = sorted({self.pick(keys) for _ in range(1 + self.below(2))})
        return f"limit {self.page()} per {{ {', '.join(chosen)} }}"

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
        if self.often(1, 8) and (matches := self.subquery(scope, self.pick(("count", "exists")))) is not None:
            return matches, True
        if kind > 11:
            return Expressions(self, scope).any(), True
        if kind == 11:
            scalar = self.pick((Scalar.STRING, Scalar.I64, Scalar.F64, Scalar.BOOL, Scalar.DATE, Scalar.DURATION))
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
        """Return a read that orders persons by distance; the pattern is about them alone, or would apply behind."""
        self.nested = 2
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
