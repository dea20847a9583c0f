"""Random reads in two languages at once: `.gq` for the product, SQL for DuckDB, over the same data.

A second opinion of other hands: it shares no evaluator with the reference, and knows joins, groups and nulls by itself.
Walks of several hops, search and numbers of different widths are left to the reference.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from omnigraph.lang.catalog import INTEGERS, Catalog, EdgeType, NodeType, PropertyType, Scalar
from tests.oracle.literals import literal
from tests.oracle.measures import ADDED
from tests.oracle.model import Edge, Graph, Node
from tests.oracle.queries import COMPARISONS
from tests.oracle.worlds import POOLS

T = TypeVar("T")
Said = tuple[str, str]
STORED: dict[Scalar, Any] = {
    Scalar.STRING: pa.string(),
    Scalar.BOOL: pa.bool_(),
    Scalar.I32: pa.int32(),
    Scalar.I64: pa.int64(),
    Scalar.U32: pa.uint32(),
    Scalar.F64: pa.float64(),
    Scalar.DATE: pa.date32(),
    Scalar.DATETIME: pa.timestamp("ms"),
}


def load(catalog: Catalog, data: Graph) -> duckdb.DuckDBPyConnection:
    """Return a database with one table per type."""
    database = duckdb.connect()
    database.execute("SET threads = 1")
    for name, node in catalog.nodes.items():
        _create(database, node, list(data.nodes[name].values()), {"id": [one.id for one in data.nodes[name].values()]})
    for name, edge in catalog.edges.items():
        edges = data.edges[name]
        ends = {
            "id": [one.id for one in edges],
            "src": [one.source for one in edges],
            "dst": [one.target for one in edges],
        }
        _create(database, edge, edges, ends)
    return database


def _create(
    database: duckdb.DuckDBPyConnection,
    owner: NodeType | EdgeType,
    rows: Sequence[Node | Edge],
    ids: dict[str, list[str]],
) -> None:
    columns: dict[str, Any] = {name: pa.array(values, pa.string()) for name, values in ids.items()}
    for name, one in owner.properties.items():
        if _is_plain(one.type):
            values = [_naive(row.values[name]) for row in rows]
            columns[f"p_{name}"] = pa.array(values, STORED[one.type.scalar])
    database.register("given", pa.table(columns))
    database.execute(f"CREATE TABLE t_{owner.name} AS SELECT * FROM given")
    database.unregister("given")


def _is_plain(type_: PropertyType) -> bool:
    return not type_.is_list and type_.scalar in STORED


def _naive(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, dt.datetime) else value


@dataclass(frozen=True)
class Bound:
    """A variable, and the alias of its table."""

    name: str
    owner: NodeType | EdgeType

    def properties(self, *scalars: Scalar) -> list[tuple[str, PropertyType]]:
        found = ((name, one.type) for name, one in self.owner.properties.items())
        return [(name, type_) for name, type_ in found if _is_plain(type_) and (not scalars or type_.scalar in scalars)]

    def said(self, name: str) -> Said:
        return f"${self.name}.{name}", f"{self.name}.p_{name}"


@dataclass
class Twin:
    """Builds one read twice; `below(n)` decides everything."""

    below: Callable[[int], int]
    catalog: Catalog
    scope: list[Bound] = field(default_factory=list)
    clauses: list[str] = field(default_factory=list)
    joins: list[str] = field(default_factory=list)
    where: list[str] = field(default_factory=list)
    used: int = 0
    # What stands before the last pattern, and values that it has bound: their types by name.
    before: str = ""
    values: dict[str, str] = field(default_factory=dict)

    def make(self) -> Said:
        """Return the text of the read in both languages."""
        if self.often(1, 8):
            return self.union()
        self.pattern()
        if self.often(1, 3):
            self.stage()
        return self.results()

    def pattern(self) -> None:
        self.scan()
        for _ in range(self.below(3)):
            self.pick((self.walk, self.walk, self.walk, self.close, self.scan))()
        for _ in range(self.below(3)):
            self.keep(self.condition(self.scope, 1))
        if self.often(1, 3):
            self.optional()
            if self.often(1, 2):
                self.keep(self.condition(self.scope, 1))
        if self.often(1, 3):
            self.negation()

    def stage(self) -> None:
        """Group by a node, count, and go on from there; in SQL, a subquery whose nodes are joined again."""
        keys = [one for one in self.nodes() if self.often(2, 3)] or self.nodes()[:1]
        number, extreme = self.fresh(), self.fresh()
        owner = self.pick([one for one in self.scope if one.properties(Scalar.I32, Scalar.I64)] or [None])
        measures = [(number, "count(*)", "count(*)")]
        if owner is not None:
            gq, sql = owner.said(self.pick(owner.properties(Scalar.I32, Scalar.I64))[0])
            measures.append((extreme, f"max({gq})", f"max({sql})"))
        shown = [f"${one.name}" for one in keys] + [f"{gq} as ${name}" for name, gq, _ in measures]
        selected = [f"{one.name}.id AS k_{one.name}" for one in keys] + [
            f"{sql} AS v_{name}" for name, _, sql in measures
        ]
        where = f"WHERE {' AND '.join(f'({one})' for one in self.where)}" if self.where else ""
        group = f"GROUP BY {', '.join(f'{one.name}.id' for one in keys)}"
        low = self.below(3)
        self.before = f"match {{ {'  '.join(self.clauses)} }} with {{ {', '.join(shown)} }} having ${number} > {low} "
        inner = f"SELECT {', '.join(selected)} {' '.join(self.joins)} {where} {group} HAVING count(*) > {low}"
        self.joins = [f"FROM ({inner}) s"]
        self.joins += [f"LEFT JOIN t_{one.owner.name} {one.name} ON {one.name}.id = s.k_{one.name}" for one in keys]
        self.values = {name: f"s.v_{name}" for name, _, _ in measures}
        self.clauses, self.where, self.scope = [], [], list(keys)
        for _ in range(self.below(3)):
            self.pick((self.walk, self.close))()
        if self.often(1, 2):
            self.optional()

    def union(self) -> Said:
        """Return two blocks with a text and a number each, ordered by both."""
        parts = []
        for _ in range(2):
            block = Twin(self.below, self.catalog, used=self.used)
            block.pattern()
            owner = self.pick([one for one in block.scope if one.properties(Scalar.STRING)] or [None])
            name = self.pick(owner.properties(Scalar.STRING))[0] if owner is not None else None
            key = owner.said(name) if owner is not None and name is not None else None
            columns = [key, ("count(*)", "count(*)")] if key else [('"none"', "'none'"), ("1", "1")]
            gq, sql = block.said(columns, "", f"GROUP BY {key[1]}" if key else "", [], [])
            parts.append((gq.removeprefix("query q() {").removesuffix("}"), sql))
            self.used = block.used
        word = self.pick(("union", "union all"))
        gq, sql = (f" {word} ".join(texts) for texts in zip(*parts, strict=True))
        limit = self.below(5)
        cut = f"SELECT * FROM ({sql}) ORDER BY c0 ASC NULLS FIRST, c1 DESC LIMIT {limit}"
        return f"query q() {{ {gq} order {{ c0, c1 desc }} limit {limit} }}", cut

    # -- patterns ----------------------------------------------------------------------------------------------

    def scan(self) -> None:
        if len(self.scope) > 3:
            return
        one = Bound(self.fresh(), self.pick(list(self.catalog.nodes.values())))
        self.clauses.append(f"${one.name}: {one.owner.name}")
        self.joins.append(f"{'CROSS JOIN' if self.scope else 'FROM'} t_{one.owner.name} {one.name}")
        self.scope.append(one)

    def walk(self) -> None:
        """Go on over an edge; with an edge variable every edge is a row, else every pair of nodes."""
        if (step := self.step()) is None:
            return
        start, edge, near, far = step
        end = Bound(self.fresh(), self.catalog.nodes[edge.target if near == "src" else edge.source])
        is_edge = self.often(1, 3)
        table, variable = (f"t_{edge.name}", Bound(self.fresh(), edge)) if is_edge else (_pairs(edge), None)
        alias = variable.name if variable else self.fresh("~")
        word = f"${alias}:{_word(edge)}" if variable else _word(edge)
        ends = (start.name, end.name) if near == "src" else (end.name, start.name)
        self.clauses.append(f"${ends[0]} {word} ${ends[1]}")
        self.joins.append(f"JOIN {table} {alias} ON {alias}.{near} = {start.name}.id")
        self.joins.append(f"JOIN t_{end.owner.name} {end.name} ON {end.name}.id = {alias}.{far}")
        self.scope += [end, *([variable] if variable else [])]

    def close(self) -> None:
        """Ask for an edge between two variables that are there already, perhaps one and the same."""
        if (step := self.step()) is None:
            return
        start, edge, near, far = step
        wanted = edge.target if near == "src" else edge.source
        end = self.pick([one for one in self.nodes() if one.owner.name == wanted] or [start])
        if end.owner.name != wanted:
            return
        alias = self.fresh("~")
        ends = (start.name, end.name) if near == "src" else (end.name, start.name)
        self.clauses.append(f"${ends[0]} {_word(edge)} ${ends[1]}")
        both = f"{alias}.{near} = {start.name}.id AND {alias}.{far} = {end.name}.id"
        self.joins.append(f"JOIN {_pairs(edge)} {alias} ON {both}")

    def optional(self) -> None:
        if (step := self.step()) is None:
            return
        start, edge, near, far = step
        end = Bound(self.fresh(), self.catalog.nodes[edge.target if near == "src" else edge.source])
        condition = self.condition([end], 0) if self.often(1, 2) else None
        ends = (start.name, end.name) if near == "src" else (end.name, start.name)
        written = f" {condition[0]}" if condition else ""
        self.clauses.append(f"optional {{ ${ends[0]} {_word(edge)} ${ends[1]}{written} }}")
        where = f"WHERE {condition[1]}" if condition else ""
        inner = f"SELECT {end.name}.*, e.{near} AS near FROM {_pairs(edge)} e JOIN t_{end.owner.name} {end.name}"
        joined = f"({inner} ON {end.name}.id = e.{far} {where}) {end.name}"
        self.joins.append(f"LEFT JOIN {joined} ON {end.name}.near = {start.name}.id")
        self.scope.append(end)

    def negation(self) -> None:
        if (step := self.step()) is None:
            return
        start, edge, near, far = step
        end = Bound(self.fresh(), self.catalog.nodes[edge.target if near == "src" else edge.source])
        ends = (start.name, end.name) if near == "src" else (end.name, start.name)
        condition = self.condition([end, start], 0) if self.often(2, 3) else ("", "true")
        self.clauses.append(f"not {{ ${ends[0]} {_word(edge)} ${ends[1]} {condition[0]} }}")
        joined = f"t_{edge.name} e JOIN t_{end.owner.name} {end.name} ON {end.name}.id = e.{far}"
        self.where.append(f"NOT EXISTS (SELECT 1 FROM {joined} WHERE e.{near} = {start.name}.id AND {condition[1]})")

    def step(self) -> tuple[Bound, EdgeType, str, str] | None:
        """Return a node to go on from, an edge that touches its type, and the columns of its near and far end."""
        start = self.pick(self.nodes())
        found = [(start, edge, "src", "dst") for edge in self.catalog.edges.values() if edge.source == start.owner.name]
        found += [
            (start, edge, "dst", "src") for edge in self.catalog.edges.values() if edge.target == start.owner.name
        ]
        return self.pick(found) if found else None

    def nodes(self) -> list[Bound]:
        return [one for one in self.scope if isinstance(one.owner, NodeType)]

    # -- conditions --------------------------------------------------------------------------------------------

    def keep(self, condition: Said) -> None:
        self.clauses.append(condition[0])
        self.where.append(condition[1])

    def condition(self, scope: list[Bound], depth: int) -> Said:
        if depth and self.often(1, 3):
            parts = [self.condition(scope, 0) for _ in range(2)]
            word = self.pick(("and", "or"))
            joined: list[str] = [f" {word} ".join(texts) for texts in zip(*parts, strict=True)]
            return f"({joined[0]})", f"({joined[1]})"
        if depth and self.often(1, 5):
            inner = self.condition(scope, depth - 1)
            return f"not ({inner[0]})", f"NOT ({inner[1]})"
        one = self.pick([bound for bound in scope if bound.properties()] or self.nodes())
        name, type_ = self.pick(one.properties())
        gq, sql = one.said(name)
        kind = self.below(6)
        if kind == 0:
            test = self.pick(("is null", "is not null"))
            return f"{gq} {test}", f"{sql} {test}"
        if kind == 1:
            items = [self.value(type_) for _ in range(1 + self.below(3))]
            texts = [", ".join(spelt) for spelt in zip(*items, strict=True)]
            return f"{gq} in [{texts[0]}]", f"{sql} IN ({texts[1]})"
        if kind == 2 and type_.scalar is Scalar.STRING:
            test = self.pick(("contains", "starts_with"))
            value = self.value(type_)
            return f"{gq} {test} {value[0]}", f"{test}({sql}, {value[1]})"
        if kind == 3 and (others := [(o, n) for o in scope for n, t in o.properties(type_.scalar)]):
            other, name = self.pick(others)
            values = other.said(name)
        else:
            values = self.value(type_)
        op = self.pick(COMPARISONS)
        return f"{gq} {op} {values[0]}", f"{sql} {op} {values[1]}"

    def value(self, type_: PropertyType) -> Said:
        value = self.pick(type_.enum_values or POOLS[type_.scalar])
        return literal(value), _sql(value)

    # -- results -----------------------------------------------------------------------------------------------

    def results(self) -> Said:
        if self.often(1, 3):
            return self.grouped()
        if self.values:
            columns = [(f"${name}", sql) for name, sql in self.values.items()] + [self.column()]
            return self.said(columns, "", "", [], [])
        is_distinct = self.often(1, 3)
        columns = [self.column() for _ in range(1 + self.below(3))]
        keys = [(f"c{place}", f"c{place}") for place in range(len(columns))] if is_distinct else self.keys()
        ties = [] if is_distinct else [f"{one.name}.id NULLS FIRST" for one in sorted(self.scope, key=lambda b: b.name)]
        return self.said(columns, "DISTINCT " * is_distinct, "", keys, ties)

    def keys(self) -> list[Said]:
        owners = [one for one in self.scope if one.properties()]
        return [(one := self.pick(owners)).said(self.pick(one.properties())[0]) for _ in range(1 + self.below(2))]

    def grouped(self) -> Said:
        keys = list(dict.fromkeys(self.column() for _ in range(self.below(3))))
        measures = [self.measure() for _ in range(1 + self.below(2))]
        group = f"GROUP BY {', '.join(sql for _, sql in keys)}" if keys else ""
        named = [(f"c{place}", f"c{place}") for place in range(len(keys))]
        return self.said(keys + measures, "", group, named, [])

    def column(self) -> Said:
        one = self.pick([bound for bound in self.scope if bound.properties()])
        if isinstance(one.owner, NodeType) and self.often(1, 3):
            return f"${one.name}", f"{one.name}.id"
        if self.often(1, 4):
            return self.computed(one)
        return one.said(self.pick(one.properties())[0])

    def computed(self, one: Bound) -> Said:
        """Return a `case`, a sum or a default of a property."""
        name, type_ = self.pick(one.properties())
        gq, sql = one.said(name)
        value = self.value(type_)
        if name in ADDED and type_.scalar in INTEGERS and self.often(1, 2):
            return f"{gq} * 3 - 1", f"{sql}::BIGINT * 3 - 1"
        if self.often(1, 2) or type_.enum_values is not None:
            test = self.condition([one], 0)
            return f"case when {test[0]} then {gq} end", f"CASE WHEN {test[1]} THEN {sql} END"
        if type_.scalar is Scalar.I32:
            return f"coalesce({gq}, {value[0]})", f"coalesce({sql}, {value[1]})::BIGINT"
        return f"coalesce({gq}, {value[0]})", f"coalesce({sql}, {value[1]})"

    def measure(self) -> Said:
        one = self.pick([bound for bound in self.scope if bound.properties()])
        name, type_ = self.pick(one.properties())
        gq, sql = one.said(name)
        function = self.pick(("count(*)", "count", "distinct", "sum", "avg", "min", "max"))
        if function == "distinct":
            return f"count(distinct {gq})", f"count(DISTINCT {sql})"
        if function in ("sum", "avg") and name in ADDED:
            is_exact = function == "sum" and type_.scalar in INTEGERS
            return f"{function}({gq})", f"sum({sql})" if is_exact else f"{function}({sql}::DOUBLE)"
        if function in ("min", "max"):
            return f"{function}({gq})", f"{function}({sql})"
        return ("count(*)", "count(*)") if function == "count(*)" else (f"count({gq})", f"count({sql})")

    def said(self, columns: list[Said], distinct: str, group: str, keys: list[Said], ties: list[str]) -> Said:
        """Return the whole read; its order leaves nothing open, so that it may be cut."""
        gq = [self.before + (f"match {{ {'  '.join(self.clauses)} }}" if self.clauses else "")]
        shown = ", ".join(f"{text} as c{place}" for place, (text, _) in enumerate(columns))
        gq.append(f"return {distinct.lower()}{{ {shown} }}")
        selected = ", ".join(f"{text} AS c{place}" for place, (_, text) in enumerate(columns))
        where = f"WHERE {' AND '.join(f'({one})' for one in self.where)}" if self.where else ""
        sql = [f"SELECT {distinct}{selected}", *self.joins, where, group]
        if keys and self.often(1, 2):
            turned = [self.often(1, 2) for _ in keys]
            downs = ["desc" if down else "asc" for down in turned]
            gq.append(f"order {{ {', '.join(f'{key[0]} {down}' for key, down in zip(keys, downs, strict=True))} }}")
            nulls = ["DESC NULLS LAST" if down else "ASC NULLS FIRST" for down in turned]
            ordered = [f"{key[1]} {null}" for key, null in zip(keys, nulls, strict=True)] + ties
            sql.append(f"ORDER BY {', '.join(ordered)}")
            for word, chance in (("skip", 3), ("limit", 2)):
                if self.often(1, chance):
                    number = self.below(6)
                    gq.append(f"{word} {number}")
                    sql.append(f"{'OFFSET' if word == 'skip' else 'LIMIT'} {number}")
        return f"query q() {{ {' '.join(gq)} }}", " ".join(sql)

    # -- chance ------------------------------------------------------------------------------------------------

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def often(self, wins: int, of: int) -> bool:
        return self.below(of) < wins

    def fresh(self, kind: str = "") -> str:
        self.used += 1
        # Names whose order is not that of their making, since ties are broken in the order of names.
        return f"j{self.used}" if kind else f"{'qmzadk'[self.used % 6]}{self.used}"


def _word(edge: EdgeType) -> str:
    return edge.name[0].lower() + edge.name[1:]


def _pairs(edge: EdgeType) -> str:
    return f"(SELECT DISTINCT src, dst FROM t_{edge.name})"


def _sql(value: Any) -> str:
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        escaped = value.replace("'", "''")
        return f"'{escaped}'"
    if isinstance(value, dt.datetime):
        return f"TIMESTAMP '{_naive(value).isoformat(sep=' ')}'"
    if isinstance(value, dt.date):
        return f"DATE '{value.isoformat()}'"
    return f"{value!r}::DOUBLE" if isinstance(value, float) else str(value)


def answers(database: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a statement as plain values; instants are aware."""
    rows = database.execute(sql).fetchall()
    return [tuple(one.replace(tzinfo=dt.UTC) if isinstance(one, dt.datetime) else one for one in row) for row in rows]
