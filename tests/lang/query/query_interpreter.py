"""A naive interpreter of the read IR over small data in dictionaries: slow, plain, and only for tests.

It shares nothing with the engines, so that lowering can be judged by what its plans return.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt, ne
from pathlib import Path
from typing import Any

from omnigraph.lang.query import ir

Row = dict[str, Any]


@dataclass(frozen=True)
class Graph:
    """Nodes by type and id, edges by type as (id, src, dst, properties)."""

    nodes: dict[str, dict[str, Row]]
    edges: dict[str, list[tuple[str, str, str, Row]]]


def load_graph(path: Path, keys: dict[str, str]) -> Graph:
    """Read graph NDJSON; `keys` names the key property of each node type."""
    nodes: dict[str, dict[str, Row]] = {}
    edges: dict[str, list[tuple[str, str, str, Row]]] = {}
    for number, line in enumerate(path.read_text("utf-8").splitlines()):
        record = json.loads(line)
        data = record.get("data", {})
        if "type" in record:
            nodes.setdefault(record["type"], {})[data[keys[record["type"]]]] = data
        else:
            edge_id = data.get("id", f"e{number}")
            edges.setdefault(record["edge"], []).append((edge_id, record["from"], record["to"], data))
    return Graph(nodes, edges)


def run(graph: Graph, query: ir.QueryIR, params: Row | None = None) -> list[list[Any]]:
    """Return the rows of a read without ranking, sorted."""
    assert isinstance(query, ir.ReadIR)
    machine = _Machine(graph, params or {})
    rows = machine.pipeline(query.pipeline, [{}])
    if query.is_grouped:
        results = machine.group(query, rows)
    else:
        results = [[machine.value(column.expression, row) for column in query.columns] for row in rows]
    if query.is_distinct:
        results = [json.loads(text) for text in dict.fromkeys(json.dumps(result) for result in results)]
    return sorted(results, key=json.dumps)


class _Machine:
    def __init__(self, graph: Graph, params: Row) -> None:
        self.graph, self.params = graph, params

    def pipeline(self, operators: Iterable[ir.Operator], rows: list[Row]) -> list[Row]:
        for operator in operators:
            rows = [made for row in rows for made in self.step(operator, row)]
        return rows

    def step(self, operator: ir.Operator, row: Row) -> Iterator[Row]:
        match operator:
            case ir.NodeScan(variable=variable, node_type=node_type, filters=filters):
                for node_id in self.graph.nodes.get(node_type, {}):
                    made = {**row, variable: node_id}
                    if all(self.value(condition, made) is True for condition in filters):
                        yield made
            case ir.Expand():
                yield from self.expand(operator, row)
            case ir.Filter(condition=condition):
                if self.value(condition, row) is True:
                    yield row
            case ir.AntiJoin(inner=inner):
                if not self.pipeline(inner, [row]):
                    yield row
            case ir.CountJoin(inner=inner, variable=variable, is_existence=is_existence):
                matches = len(self.pipeline(inner, [row]))
                yield {**row, variable: min(matches, 1) if is_existence else matches}
            case ir.Unwind(collection=collection, variable=variable):
                for element in self.value(collection, row) or ():
                    yield {**row, variable: element}
            case ir.OptionalJoin(inner=inner, bindings=bindings):
                yield from self.pipeline(inner, [row]) or [{**row, **{item.variable: None for item in bindings}}]

    def expand(self, operator: ir.Expand, row: Row) -> Iterator[Row]:
        start = row[operator.source]
        if operator.edge_variable is not None:
            for edge in self.graph.edges.get(operator.edge, []):
                for end in self.ends(edge, start, operator.direction):
                    yield from self.kept(operator, {**row, operator.target: end, operator.edge_variable: edge})
            return
        for end, hop in self.reached(operator, start).items():
            made = {**row, operator.target: end}
            if operator.hops_variable:
                made[operator.hops_variable] = hop
            yield from self.kept(operator, made)

    def reached(self, operator: ir.Expand, start: str) -> dict[str, int]:
        """Return every node at the hop at which it is emitted: its distance, or one more where a loop adds a hop.

        The loop is that of the end as written, which a backwards walk starts from.
        """
        assert isinstance(operator.minimum, int)
        assert isinstance(operator.maximum, int)
        distances, frontier = {start: 0}, [start]
        for hop in range(1, operator.maximum + 1):
            edges = self.graph.edges.get(operator.edge, [])
            found = {end for node in frontier for edge in edges for end in self.ends(edge, node, operator.direction)}
            frontier = sorted(found - distances.keys())
            distances |= dict.fromkeys(frontier, hop)
        emitted: dict[str, int] = {}
        for node, distance in distances.items():
            last = start if operator.is_backwards else node
            if distance and distance >= operator.minimum:
                emitted[node] = distance
            elif distance == operator.minimum - 1 and self.has_loop(operator.edge, last):
                emitted[node] = operator.minimum
        return emitted

    def has_loop(self, edge: str, node: str) -> bool:
        return any(source == target == node for _, source, target, _ in self.graph.edges.get(edge, []))

    def ends(self, edge: tuple[str, str, str, Row], node: str, direction: ir.Direction) -> Iterator[str]:
        _, source, target, _ = edge
        if source == node and direction is not ir.Direction.IN:
            yield target
        if (
            target == node
            and direction is not ir.Direction.OUT
            and not (source == target and direction is ir.Direction.BOTH)
        ):
            yield source

    def kept(self, operator: ir.Expand, row: Row) -> Iterator[Row]:
        if all(self.value(condition, row) is True for condition in operator.filters):
            yield row

    def group(self, query: ir.ReadIR, rows: list[Row]) -> list[list[Any]]:
        plain = [column.expression for column in query.columns if not isinstance(column.expression, ir.Aggregate)]
        groups: dict[str, list[Row]] = {} if plain else {"[]": []}
        for row in rows:
            groups.setdefault(json.dumps([self.value(item, row) for item in plain]), []).append(row)
        return [[self.cell(column.expression, members) for column in query.columns] for members in groups.values()]

    def cell(self, expression: ir.Expr, rows: list[Row]) -> Any:
        if not isinstance(expression, ir.Aggregate):
            return self.value(expression, rows[0])
        if expression.argument is None:
            return len(rows)
        values = [value for row in rows if (value := self.value(expression.argument, row)) is not None]
        if expression.function == "count":
            return len(values)
        if not values:
            return None
        if expression.function == "sum":
            return float(sum(values))
        if expression.function == "avg":
            return sum(values) / len(values)
        return min(values) if expression.function == "min" else max(values)

    def value(self, expression: ir.Expr, row: Row) -> Any:
        match expression:
            case ir.Literal(value=value):
                return list(value) if isinstance(value, tuple) else value
            case ir.ParameterRef(name=name):
                return self.params.get(name)
            case ir.NodeRef(variable=variable) | ir.HopsRef(variable=variable) | ir.ValueRef(variable=variable):
                return row[variable]
            case ir.PropertyRef(variable=variable, owner_kind="edge", property=name):
                return None if row[variable] is None else row[variable][3].get(name)
            case ir.PropertyRef(variable=variable, owner=owner, property=name):
                return None if row[variable] is None else self.graph.nodes[owner][row[variable]].get(name)
            case ir.IsNull(operand=operand, negated=negated):
                return (self.value(operand, row) is None) is not negated
            case ir.And(conditions=conditions):
                return _all([self.value(item, row) for item in conditions])
            case ir.Or(conditions=conditions):
                return _not(_all([_not(self.value(item, row)) for item in conditions]))
            case ir.In(operand=operand, collection=collection):
                value, items = self.value(operand, row), self.value(collection, row)
                return None if value is None or items is None else value in items
            case ir.Compare(op=op, left=left, right=right):
                return _compare(op, self.value(left, row), self.value(right, row))
        raise AssertionError(f"not interpreted: {expression}")


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _all(values: list[bool | None]) -> bool | None:
    if False in values:
        return False
    return None if None in values else True


def _compare(op: ir.CompareOp, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    if op is ir.CompareOp.STARTS_WITH:
        return bool(left.startswith(right))
    if op in (ir.CompareOp.CONTAINS, ir.CompareOp.STRING_CONTAINS):
        return right in left
    functions = {"=": eq, "!=": ne, ">": gt, "<": lt, ">=": ge}
    return bool(functions.get(op.value, le)(left, right))
