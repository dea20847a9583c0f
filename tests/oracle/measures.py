"""Random aggregates of the variables in scope, alone and in expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.lang.catalog import NUMBERS, Scalar
from tests.oracle.expressions import Expressions
from tests.oracle.pattern import HOPS, NO_ENTITY, PATH, TEXT

if TYPE_CHECKING:
    from tests.oracle.queries import Maker
    from tests.oracle.walks import Bound

# Sums of the largest integers cancel out to whatever the order of adding leaves, in any engine.
ADDED = frozenset({"age", "few", "ratio", "weight", "rent", "order"})


class Measures:
    """Writes the aggregates and the `having` of a maker of queries."""

    def __init__(self, maker: Maker, scope: list[Bound]) -> None:
        self.maker = maker
        self.scope = scope

    def having(self, columns: list[tuple[str, str | None, bool]]) -> str:
        """Return a condition on groups: a returned number, or an aggregate that is not returned."""
        named = [alias for text, alias, _ in columns if alias and text.startswith(("count(", "sum("))]
        left = self.maker.pick([*named, "count(*)", "count(*) * 2"])
        test = f"{left} {self.maker.pick(('>', '>=', '<', '!='))} {self.maker.below(4)}"
        return f"not ({test})" if self.maker.often(1, 4) else test

    def columns(self) -> list[tuple[str, str | None, bool]]:
        """Return columns with aggregates: their text, their alias, and whether they can be ordered by."""
        found: list[tuple[str, str | None, bool]] = []
        scope, sortable = self.scope, self.maker.sortable(self.scope)
        nodes = [f"${one.name}" for one in scope if not one.is_edge and one.type not in NO_ENTITY]
        for text in sorted(
            {self.maker.pick(sortable + nodes) for _ in range(self.maker.below(3))} if sortable + nodes else ()
        ):
            found.append((text, f"c{len(found)}" if self.maker.often(1, 3) else None, True))
        if scope and self.maker.often(1, 6):
            text = Expressions(self.maker, self.scope).any()
            if any(f"${one.name}." in text for one in scope):
                found.append((text, f"c{len(found)}", True))
        for _ in range(1 + self.maker.below(3)):
            measure = self.measure(sortable, nodes)
            found.append((measure, f"c{len(found)}", not measure.startswith("collect")))
        return found

    def measure(self, sortable: list[str], nodes: list[str]) -> str:
        """Return an aggregate, of an expression or in one."""
        written = Expressions(self.maker, self.scope)
        kind = self.maker.below(16)
        if kind > 13 and self.scope:
            return self.entity_measure(nodes)
        if kind > 9:
            return self.distinct_measure(written, kind)
        if kind == 9:
            return f"{self.maker.pick(('sum', 'min', 'max', 'count', 'mode'))}({written.integer()})"
        if kind == 8:
            return f"{self.maker.pick(('min', 'max', 'count', 'mode'))}({written.text()})"
        if kind == 7:
            return f"sum({written.integer()}) {self.maker.pick('+-/%')} count(*)"
        if kind == 6:
            return f"coalesce(max({written.integer()}), 0) * 2"
        return self.aggregate(sortable, nodes)

    def distinct_measure(self, written: Expressions, kind: int) -> str:
        """Return an aggregate of distinct values, a list, a sum of durations, an extreme of a date, or a statistic."""
        if kind >= 13:
            return f"{self.maker.pick(('count', 'sum', 'avg'))}(distinct {written.integer()})"
        if kind == 12:
            value = self.maker.pick((written.text, written.integer, written.date, written.bool))()
            return f"collect({'distinct ' * self.maker.often(1, 2)}{value})"
        if kind == 11:
            if self.maker.often(1, 4):
                return f"median({self.maker.pick((written.date, written.datetime, written.duration))()})"
            if self.maker.often(1, 4):
                return f"{self.maker.pick(('sum', 'avg'))}({written.duration()})"
            value = self.maker.pick((written.date, written.datetime, written.duration, written.bool))()
            return f"{self.maker.pick(('min', 'max', 'mode'))}({value})"
        fraction = self.maker.pick(("0.5", "0.9", "0", "1"))
        value = written.integer()
        return self.maker.pick((f"stddev({value})", f"percentile({value}, {fraction})", f"median({value})"))

    def entity_measure(self, nodes: list[str]) -> str:
        """Return an aggregate of nodes, of the names of types, or of paths."""
        one = self.maker.pick(self.scope)
        if one.type in (HOPS, TEXT):
            return f"count(distinct ${one.name})"
        if one.type == PATH:
            value = self.maker.pick(("length", "cost"))
            return f"{self.maker.pick(('sum', 'max', 'avg', 'count', 'count'))}({value}(${one.name}))"
        if f"${one.name}" in nodes and self.maker.often(2, 3):
            return f"{self.maker.pick(('count', 'collect'))}({'distinct ' * self.maker.often(2, 3)}${one.name})"
        return self.maker.pick((f"count(distinct type(${one.name}))", f"max(type(${one.name}))"))

    def aggregate(self, sortable: list[str], nodes: list[str]) -> str:
        types = {one.name: one for one in self.scope}
        numbers, ordered = [], list(nodes)
        for text in sortable:
            variable, _, name = text[1:].partition(".")
            plain = Scalar.STRING if types[variable].type == TEXT else Scalar.I64
            if name.startswith("@"):
                ordered.append(text)
                continue
            scalar = plain if not name else self.maker.properties(types[variable])[name].scalar
            if scalar in NUMBERS or scalar is Scalar.STRING:
                ordered.append(text)
            if scalar in NUMBERS and (not name or name in ADDED):
                numbers.append(text)
        function = self.maker.pick(("count", "count", "sum", "avg", "min", "max"))
        if function in ("sum", "avg") and numbers:
            return f"{function}({self.maker.pick(numbers)})"
        if function in ("min", "max") and ordered:
            return f"{function}({self.maker.pick(ordered)})"
        everything = sortable + nodes
        return f"count({self.maker.pick(everything)})" if everything and self.maker.often(1, 2) else "count(*)"
