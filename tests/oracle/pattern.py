"""What a block of a query says, resolved: which variable is of which type, and which way each traversal goes.

Part of the reference evaluator: reads the syntax tree and the declared types, and nothing of the compiler behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from omnigraph.lang.catalog import Catalog
from omnigraph.lang.query import ast

HOPS = "#hops"


@dataclass(frozen=True)
class Scan:
    """Bind a variable to every node of a type, or hold the node it is already bound to against the matches."""

    variable: str
    type: str
    matches: tuple[ast.Match, ...]


@dataclass(frozen=True)
class Walk:
    """Follow an edge from one variable to another; `direction` is `out`, `in` or `both`, seen from the start."""

    start: str
    end: str
    start_type: str
    end_type: str
    edge: str
    direction: str
    minimum: int
    maximum: int
    edge_variable: str | None
    hops_variable: str | None
    # Walked from the right end as written to the left one.
    is_backwards: bool = False


@dataclass
class Block:
    """A block: its steps in the order in which they run, then what holds of their rows."""

    steps: list[Scan | Walk] = field(default_factory=list)
    conditions: list[ast.Condition] = field(default_factory=list)
    optionals: list[tuple[Block, list[str]]] = field(default_factory=list)
    negations: list[Block] = field(default_factory=list)
    scope: dict[str, str] = field(default_factory=dict)


class Patterns:
    """Resolves the blocks of one query."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._fresh = count(1)

    def block(self, clauses: tuple[ast.Clause, ...], outer: Mapping[str, str]) -> Block:
        """Resolve a block against the variables around it, which map to their types."""
        block = Block(scope=dict(outer))
        scans: list[Scan] = []
        walks: list[Walk] = []
        for clause in clauses:
            if isinstance(clause, ast.Binding):
                name = self._name(clause.variable)
                block.scope.setdefault(name, clause.type.text)
                scans.append(Scan(name, clause.type.text, clause.matches))
            elif isinstance(clause, ast.Traversal):
                walks.append(self._walk(clause, block.scope))
        block.steps = list(_arranged(scans, walks, set(outer)))
        for clause in clauses:
            if isinstance(clause, ast.Optional):
                inner = self.block(clause.clauses, block.scope)
                new = [name for name in inner.scope if name not in block.scope]
                block.scope.update({name: inner.scope[name] for name in new})
                block.optionals.append((inner, new))
        for clause in clauses:
            if isinstance(clause, ast.Negation):
                block.negations.append(self.block(clause.clauses, block.scope))
            elif not isinstance(clause, ast.Binding | ast.Traversal | ast.Optional):
                block.conditions.append(clause)
        return block

    def _name(self, name: ast.Name) -> str:
        return name.text if name.text != "_" else f"~{next(self._fresh)}"

    def _walk(self, clause: ast.Traversal, scope: dict[str, str]) -> Walk:
        edge = next(one for name, one in self._catalog.edges.items() if name.lower() == clause.edge.text.lower())
        left, right = self._name(clause.left), self._name(clause.right)
        left_type, right_type = scope.get(left), scope.get(right)
        if clause.undirected:
            direction = "both"
        elif edge.source == edge.target or left_type == edge.source:
            direction = "out"
        elif left_type == edge.target:
            direction = "in"
        else:
            direction = "in" if right_type == edge.source else "out"
        ends = (edge.target, edge.source) if direction == "in" else (edge.source, edge.target)
        scope.setdefault(left, ends[0])
        scope.setdefault(right, ends[1])
        low, high = (clause.hops.minimum, clause.hops.maximum or 0) if clause.hops else (1, 1)
        # Edges between different types cannot be walked one after the other.
        high = high if edge.source == edge.target else 1
        edge_variable = None
        if clause.edge_variable is not None and clause.edge_variable.text != "_":
            edge_variable = clause.edge_variable.text
            scope[edge_variable] = edge.name
        hops_variable = clause.hops_variable.text if clause.hops_variable else None
        if hops_variable is not None:
            scope[hops_variable] = HOPS
        return Walk(left, right, *ends, edge.name, direction, low, high, edge_variable, hops_variable)


def _arranged(scans: list[Scan], walks: list[Walk], bound: set[str]) -> Iterator[Scan | Walk]:
    """Yield the steps in the documented order: each walk as soon as one of its ends is bound, scans as needed."""
    waiting = list(walks)

    def walk_on() -> Iterator[Walk]:
        while (walk := next((one for one in waiting if one.start in bound or one.end in bound), None)) is not None:
            waiting.remove(walk)
            yield walk if walk.start in bound else _backwards(walk)
            bound.update((walk.start, walk.end))

    # A variable's matches hold wherever it is bound; naming it first as a scan checks them once it has a node.
    yield from (scan for scan in scans if scan.variable in bound)
    yield from walk_on()
    for scan in scans:
        yield scan
        bound.add(scan.variable)
        yield from walk_on()
    for walk in walks:
        if walk in waiting:
            yield Scan(walk.start, walk.start_type, ())
            bound.add(walk.start)
            yield from walk_on()


def _backwards(walk: Walk) -> Walk:
    reverse = {"out": "in", "in": "out", "both": "both"}[walk.direction]
    return Walk(
        walk.end, walk.start, walk.end_type, walk.start_type, walk.edge, reverse, walk.minimum, walk.maximum,
        walk.edge_variable, walk.hops_variable, True,
    )  # fmt: skip
