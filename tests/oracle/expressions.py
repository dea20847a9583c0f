"""Random expressions of a wanted type over the variables in scope; their values stay far from any overflow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from omnigraph.lang.catalog import PropertyType, Scalar
from tests.oracle.pattern import NO_ENTITY, PATH
from tests.oracle.worlds import IDS

if TYPE_CHECKING:
    from tests.oracle.queries import Maker
    from tests.oracle.walks import Bound

INTEGERS = frozenset({"age", "few", "rent", "order"})
FLOATS = frozenset({"score", "weight"})
TEXTS = frozenset({"name", "nick", "note", "country"})
DATE_UNITS = ("year", "quarter", "month", "week", "day")
TIME_UNITS = (*DATE_UNITS, "hour", "minute", "second")
PATTERNS = ("^a", "b$", "[a-z]+", "^$", "é|Z", "o.t")


def fields_of(one: Bound) -> tuple[str, ...]:
    """Return the system fields of a node or an edge."""
    return ("@id", "@type", "@src", "@dst") if one.is_edge else ("@id", "@type")


class Expressions:
    """Writes expressions for a maker of queries."""

    def __init__(self, maker: Maker, scope: Sequence[Bound]) -> None:
        self.maker = maker
        self.scope = scope
        self.writers: dict[str, Callable[[int], str]] = {
            "integer": self.integer,
            "float": self.float,
            "text": self.text,
            "date": self.date,
            "datetime": self.datetime,
            "duration": self.duration,
            "bool": self.bool,
        }

    def any(self, depth: int = 0) -> str:
        """Return an expression of any type that can be ordered, and reads a variable."""
        for _ in range(8):
            text = self.writers[self.maker.pick(tuple(self.writers))](depth)
            if "$" in text.replace("$k", "") and any(f"${one.name}." in text for one in self.scope):
                return text
        return self.integer(depth)

    def leaf(self, names: frozenset[str], scalar: Scalar | None, otherwise: str) -> str:
        found = [
            f"${one.name}.{name}"
            for one in self.scope
            if one.type not in NO_ENTITY
            for name, type_ in self.maker.properties(one).items()
            if not type_.is_list and (name in names if scalar is None else type_.scalar is scalar)
        ]
        return self.maker.pick(found) if found and not self.maker.often(1, 5) else otherwise

    def field(self) -> str:
        """Return a system field of a node or an edge."""
        entities = [one for one in self.scope if one.type not in NO_ENTITY]
        fields = [f"${one.name}.{name}" for one in entities for name in fields_of(one)]
        return self.maker.pick(fields) if fields else '"b"'

    def field_test(self, one: Bound) -> str:
        """Return a condition on a system field: compared with one of another variable, or with an id."""
        maker = self.maker
        access = f"${one.name}.{maker.pick(fields_of(one))}"
        # Ids that a world has are rarely those of two variables at once.
        constant = maker.parameter(PropertyType(Scalar.STRING), maker.pick(IDS)) if maker.often(1, 3) else None
        return f"{access} {maker.pick(('=', '!=', '<', '<=', '>', '>='))} {constant or self.field()}"

    def choose(self, depth: int, leaf: Callable[[], str], *deeper: Callable[[int], str]) -> str:
        if depth > 1 or self.maker.often(1, 3):
            return leaf()
        return self.maker.pick(deeper)(depth + 1)

    def branches(self, write: Callable[[int], str], depth: int) -> str:
        otherwise = f" else {write(depth)}" if self.maker.often(2, 3) else ""
        count = 1 + self.maker.below(3)
        parts = "".join(f" when {self.bool(depth)} then {write(depth)}" for _ in range(count))
        return f"case{parts}{otherwise} end"

    def small(self) -> str:
        return str(self.maker.below(8) - 3)

    # -- types -------------------------------------------------------------------------------------------------

    def integer(self, depth: int = 0) -> str:
        maker = self.maker
        return self.choose(
            depth,
            lambda: self.leaf(INTEGERS, None, self.small()),
            lambda d: f"({self.integer(d)} {maker.pick('+-')} {self.integer(d)})",
            lambda d: f"({self.integer(d)} * {self.small()})",
            lambda d: f"({self.integer(d)} % {self.integer(d)})",
            lambda d: f"div({self.integer(d)}, {self.integer(d)})",
            lambda d: f"{maker.pick(('abs', '-', 'round', 'floor'))}({self.integer(d)})",
            lambda d: f"{maker.pick(('coalesce', 'greatest', 'least'))}({self.integer(d)}, {self.integer(d)})",
            lambda d: self.branches(self.integer, d),
            lambda d: f"length({self.text(d)})",
            lambda d: f"{maker.pick(('year', 'month', 'day', 'weekday'))}({self.date(d)})",
            lambda d: f"{maker.pick(('hour', 'minute', 'second', 'year'))}({self.datetime(d)})",
            lambda d: f'date_diff("{maker.pick(DATE_UNITS)}", {self.date(d)}, {self.date(d)})',
            lambda d: f'date_diff("{maker.pick(TIME_UNITS)}", {self.datetime(d)}, {self.datetime(d)})',
            lambda d: f"cast({self.text(d)} as I64)",
            lambda d: f"size({self.list()})",
            lambda d: f"nullif({self.integer(d)}, {self.integer(d)})",
        )

    def float(self, depth: int = 0) -> str:
        maker = self.maker
        return self.choose(
            depth,
            lambda: self.leaf(FLOATS, None, maker.pick(("0.5", "2.0", "-1.5"))),
            lambda d: f"({self.integer(d)} / {self.integer(d)})",
            lambda d: f"({self.float(d)} {maker.pick('+-')} {self.float(d)})",
            lambda d: f"({self.float(d)} * {maker.pick(('2.0', '0.5', '-1.5'))})",
            lambda d: f"({self.float(d)} % {maker.pick(('2.0', '0.3', '0.0'))})",
            lambda d: f"{maker.pick(('abs', 'round', 'floor', 'ceil', 'sqrt', '-'))}({self.float(d)})",
            lambda d: f"round({self.float(d)}, {maker.below(3)})",
            lambda d: f"coalesce({self.float(d)}, {self.float(d)})",
            lambda d: f"cast({self.integer(d)} as F64)",
            lambda d: f"({self.duration(d)} / {self.duration(d)})",
            lambda d: self.branches(self.float, d),
        )

    def text(self, depth: int = 0) -> str:
        maker = self.maker
        return self.choose(
            depth,
            lambda: self.leaf(TEXTS, None, maker.pick(('"a"', '"-"', '""', '"Éa b"', self.field()))),
            lambda d: f"({self.text(d)} + {self.text(d)})",
            lambda d: f"concat({self.text(d)}, {self.text(d)}, {self.text(d)})",
            lambda d: f"{maker.pick(('lower', 'upper', 'trim'))}({self.text(d)})",
            lambda d: f"substring({self.text(d)}, {self.small()}, {self.small()})",
            lambda d: f"substring({self.text(d)}, {maker.below(3)})",
            lambda d: f"replace({self.text(d)}, {self.text(2)}, {self.text(2)})",
            lambda d: f"coalesce({self.text(d)}, {self.text(d)})",
            lambda d: f"cast({self.integer(d)} as String)",
            lambda d: f"cast({self.date(d)} as String)",
            lambda d: f"cast({self.duration(d)} as String)",
            lambda d: f"{self.list(Scalar.STRING)}[{self.small()}]",
            lambda d: f"split({self.text(d)}, {self.text(2)})[{self.small()}]",
            lambda d: self.branches(self.text, d),
        )

    def date(self, depth: int = 0) -> str:
        maker = self.maker
        return self.choose(
            depth,
            lambda: self.leaf(frozenset(), Scalar.DATE, 'date("2024-01-31")'),
            lambda d: f'date_trunc("{maker.pick(DATE_UNITS)}", {self.date(d)})',
            lambda d: f'date_add({self.date(d)}, {self.small()}, "{maker.pick(DATE_UNITS)}")',
            lambda d: f"cast({self.datetime(d)} as Date)",
            lambda d: f"coalesce({self.date(d)}, {self.date(d)})",
            lambda d: f'cast("{maker.pick(("2024-02-29", "2023-02-29", "x"))}" as Date)',
        )

    def datetime(self, depth: int = 0) -> str:
        maker = self.maker
        return self.choose(
            depth,
            lambda: self.leaf(frozenset(), Scalar.DATETIME, 'datetime("2020-02-29T12:30:00.250Z")'),
            lambda d: f'date_trunc("{maker.pick(TIME_UNITS)}", {self.datetime(d)})',
            lambda d: f'date_add({self.datetime(d)}, {self.small()}, "{maker.pick(TIME_UNITS)}")',
            lambda d: f"cast({self.date(d)} as DateTime)",
            lambda d: f"({self.datetime(d)} {maker.pick('+-')} {self.duration(d)})",
            lambda d: f"({self.duration(d)} + {maker.pick((self.date, self.datetime))(d)})",
            lambda d: self.branches(self.datetime, d),
        )

    def duration(self, depth: int = 0) -> str:
        maker = self.maker
        return self.choose(
            depth,
            lambda: self.leaf(
                frozenset(), Scalar.DURATION, maker.pick(('duration("PT0.001S")', 'duration("-P1DT2H")'))
            ),
            lambda d: f"({self.duration(d)} {maker.pick('+-')} {self.duration(d)})",
            lambda d: f"({self.duration(d)} * {self.small()})",
            lambda d: f"({self.datetime(d)} - {self.datetime(d)})",
            lambda d: f"({self.date(d)} - {self.date(d)})",
            lambda d: f"div({self.duration(d)}, {self.small()})",
            lambda d: f"{maker.pick(('abs', '-'))}({self.duration(d)})",
            lambda d: f"{maker.pick(('coalesce', 'greatest', 'least'))}({self.duration(d)}, {self.duration(d)})",
            lambda d: f'cast("{maker.pick(("PT90M", "P1M", "-P2WT0.5S", "PT"))}" as Duration)',
            lambda d: self.branches(self.duration, d),
        )

    def bool(self, depth: int = 0) -> str:
        maker = self.maker
        return self.choose(
            depth,
            lambda: self.leaf(frozenset(), Scalar.BOOL, maker.pick(("true", "false", "(1 = 2)"))),
            lambda d: f"not ({self.bool(d)})",
            lambda d: f"({self.bool(d)} {maker.pick(('and', 'or'))} {self.bool(d)})",
            lambda d: f"({self.comparison(d)})",
            lambda d: f"(coalesce({self.integer(d)}, {self.integer(d)}) is {'not ' * maker.often(1, 2)}null)",
            lambda d: f"({self.integer(d)} {maker.pick(('in', 'not in'))} [1, -2, 3])",
            lambda d: f'({self.text(d)} {maker.pick(("in", "not in"))} ["a", "ab", ""])',
            lambda d: self.branches(self.bool, d),
            lambda d: self.quantifier(d),
            lambda d: self.quantifier(d),
        )

    def quantifier(self, depth: int) -> str:
        maker = self.maker
        maker.used += 1
        item = f"$item{maker.used}"
        tests = (f'{item} {maker.pick(("starts_with", "!="))} "a"', f"{item} = {self.text(2)}", f"length({item}) > 1")
        test = maker.pick(tests)
        return f"{maker.pick(('any', 'all'))}({item} in {self.list(Scalar.STRING)} where {test})"

    def comparison(self, depth: int) -> str:
        maker = self.maker
        op = maker.pick(("=", "!=", "<", "<=", ">", ">="))
        kind = maker.pick(("integer", "float", "text", "test", "test", "date", "datetime", "duration"))
        if kind == "test":
            word = maker.pick(("starts_with", "ends_with", "ends_with", "contains", "matches"))
            right = maker.pick(('"a"', '"b"', '"Z"', '""', self.text(depth)))
            right = f'"{maker.pick(PATTERNS)}"' if word == "matches" else right
            return f"{self.text(depth)} {word} {right}"
        left, right = self.writers[kind](depth), self.writers[kind](depth)
        if kind in ("integer", "float") and maker.often(1, 3):
            right = self.writers[maker.pick(("integer", "float"))](depth)
        return f"{left} {op} {right}"

    def list(self, scalar: Scalar | None = None) -> str:
        found = [
            f"${one.name}.{name}"
            for one in self.scope
            if one.type not in NO_ENTITY
            for name, type_ in self.maker.properties(one).items()
            if type_.is_list and (scalar is None or type_.scalar is scalar)
        ]
        if scalar is Scalar.STRING:
            found += [f"{self.maker.pick(('nodes', 'edges'))}(${one.name})" for one in self.scope if one.type == PATH]
        return self.maker.pick(found) if found else '["a", "b"]'
