"""Lowering: from checked blocks to pipelines of operators.

Pure. Scans and walks first, then conditions, optional blocks, conditions on those, negations last.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count

from omnigraph.lang.catalog import Catalog
from omnigraph.lang.query import ir
from omnigraph.lang.query.check_context import Kind, with_null
from omnigraph.lang.query.check_patterns import Block, Start, Walk

_REVERSED = {ir.Direction.OUT: ir.Direction.IN, ir.Direction.IN: ir.Direction.OUT, ir.Direction.BOTH: ir.Direction.BOTH}


def lower_pattern(catalog: Catalog, block: Block) -> tuple[ir.Operator, ...]:
    """Return the pipeline of a whole `match`."""
    return _Lowering(catalog).block(block, frozenset())


class _Lowering:
    """One lowering; it hands out temporaries that no source can spell and no two walks share."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._numbers = count(1)

    def block(self, block: Block, outer: frozenset[str]) -> tuple[ir.Operator, ...]:
        pipeline = _Pattern(self, block, outer).operators()
        pipeline.extend(ir.Filter(condition) for condition in block.conditions)
        around = frozenset(block.scope) | outer
        inside = outer | {name for name in block.scope if name not in _fresh(block)}
        for inner, fresh in block.optionals:
            bindings = tuple(variable.bound() for variable in fresh)
            pipeline.append(ir.OptionalJoin(self.block(inner, inside), bindings))
            inside |= {variable.name for variable in fresh}
        pipeline.extend(ir.Filter(condition) for condition in block.late_conditions)
        pipeline.extend(ir.AntiJoin(self.block(inner, around)) for inner in block.negations)
        return tuple(pipeline)

    def temporary(self) -> str:
        return f"~{next(self._numbers)}"

    def matches(self, variable: str, start: Start, nullable: bool) -> tuple[ir.Expr, ...]:
        properties = self._catalog.nodes[start.node_type].properties
        comparisons: list[ir.Expr] = []
        for name, value in start.matches:
            type_ = with_null(properties[name].type, nullable)
            op = ir.CompareOp.CONTAINS if type_.is_list else ir.CompareOp.EQ
            comparisons.append(
                ir.Compare(op, ir.PropertyRef(variable, Kind.NODE.value, start.node_type, name, type_), value)
            )
        return tuple(comparisons)


def _fresh(block: Block) -> set[str]:
    return {variable.name for _, fresh in block.optionals for variable in fresh}


class _Pattern:
    """The bindings and walks of a block, ordered so that every walk starts from a bound variable."""

    def __init__(self, lowering: _Lowering, block: Block, outer: frozenset[str]) -> None:
        self._lowering = lowering
        self._bound = set(outer)
        self._done: list[ir.Operator] = []
        self._nullable = {name for name in outer if block.scope[name].nullable}
        # Each anonymous endpoint gets a unique name, so that two of them stay unrelated.
        self._starts = [(start.variable or lowering.temporary(), start) for start in block.starts]
        self._walks = [
            (walk.left or lowering.temporary(), walk.right or lowering.temporary(), walk) for walk in block.walks
        ]
        self._filters: dict[str, list[ir.Expr]] = {}
        for variable, start in self._starts:
            matches = lowering.matches(variable, start, variable in self._nullable)
            self._filters.setdefault(variable, []).extend(matches)
        self._touching: dict[str, list[int]] = {}
        for index, (left, right, _) in enumerate(self._walks):
            self._touching.setdefault(left, []).append(index)
            if right != left:
                self._touching.setdefault(right, []).append(index)
        self._waiting: list[int] = []
        self._emitted: set[int] = set()

    def operators(self) -> list[ir.Operator]:
        for variable, start in self._starts:
            if variable in self._nullable:
                # What an optional block left empty is no node, so it cannot be bound again.
                reference = ir.NodeRef(variable, start.node_type, with_null(ir.ID, True))
                self._done.append(ir.Filter(ir.IsNull(reference, negated=True)))
        for variable in sorted(self._bound & self._filters.keys()):
            # A binding of an outer variable asks more of the same entity.
            self._done.extend(ir.Filter(condition) for condition in self._filters[variable])
        for variable in self._bound & self._touching.keys():
            self._reach(variable)
        self._walk()
        for variable, start in self._starts:
            self._scan(variable, start.node_type)
        for left, _, walk in self._walks:
            self._scan(left, walk.left_type)
        return self._done

    def _scan(self, variable: str, node_type: str) -> None:
        if variable in self._bound:
            return
        self._done.append(ir.NodeScan(variable, node_type, tuple(self._filters.get(variable, ()))))
        self._reach(variable)
        self._walk()

    def _reach(self, variable: str) -> None:
        self._bound.add(variable)
        for index in self._touching.get(variable, ()):
            heappush(self._waiting, index)

    def _walk(self) -> None:
        while self._waiting:
            index = heappop(self._waiting)
            if index in self._emitted:
                continue
            self._emitted.add(index)
            left, right, walk = self._walks[index]
            if left in self._bound and right in self._bound:
                self._close(left, right, walk)
            elif left in self._bound:
                self._done.append(self._expand(left, right, walk, walk.direction))
                self._reach(right)
            else:
                self._done.append(self._expand_back(left, right, walk))
                self._reach(left)

    def _expand(self, source: str, target: str, walk: Walk, direction: ir.Direction) -> ir.Expand:
        return ir.Expand(
            source, walk.left_type, target, walk.right_type, walk.edge, direction, walk.minimum, walk.maximum,
            tuple(self._filters.get(target, ())), walk.edge_variable, walk.hops_variable,
        )  # fmt: skip

    def _expand_back(self, left: str, right: str, walk: Walk) -> ir.Expand:
        return ir.Expand(
            right, walk.right_type, left, walk.left_type, walk.edge, _REVERSED[walk.direction], walk.minimum,
            walk.maximum, tuple(self._filters.get(left, ())), walk.edge_variable, walk.hops_variable, True,
        )  # fmt: skip

    def _close(self, left: str, right: str, walk: Walk) -> None:
        temporary = self._lowering.temporary()
        self._done.append(self._expand(left, temporary, walk, walk.direction))
        end = ir.NodeRef(right, walk.right_type, with_null(ir.ID, right in self._nullable))
        same = ir.Compare(ir.CompareOp.EQ, ir.NodeRef(temporary, walk.right_type), end)
        self._done.append(ir.Filter(same))
