"""Lowers checked patterns to operators that start from bound variables.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count

from omnigraph.lang.catalog import Catalog
from omnigraph.lang.query import ir
from omnigraph.lang.query.check_context import Counted, Kind, Scope, shared_properties, with_null
from omnigraph.lang.query.check_patterns import Block, Start


class Lowering:
    """The lowering of a query; it hands out temporaries that no source can spell and no two walks share."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._numbers = count(1)

    def block(self, block: Block, outer: frozenset[str]) -> tuple[ir.Operator, ...]:
        pipeline = _Pattern(self, block, outer).operators()
        pipeline.extend(ir.Filter(condition) for condition in block.conditions)
        around = frozenset(block.scope) | outer
        adopted = {variable.name for _, fresh in block.optionals for variable in fresh}
        inside = outer | (block.scope.keys() - adopted)
        # What is counted without the variables of optional blocks may leave fewer rows for them.
        early = [item for item in block.counts if not item.names & adopted]
        pipeline.extend(self._count(item, inside) for item in early)
        for inner, fresh in block.optionals:
            bindings = tuple(variable.bound() for variable in fresh)
            pipeline.append(ir.OptionalJoin(self.block(inner, inside), bindings))
            inside |= {variable.name for variable in fresh}
        pipeline.extend(self._count(item, around) for item in block.counts if item.names & adopted)
        pipeline.extend(ir.Filter(condition) for condition in block.late_conditions)
        pipeline.extend(ir.AntiJoin(self.block(inner, around)) for inner in block.negations)
        return tuple(pipeline)

    def _count(self, counted: Counted, outer: frozenset[str]) -> ir.CountJoin:
        return ir.CountJoin(self.block(counted.block, outer), counted.variable, counted.is_existence)

    def result_counts(self, counts: Sequence[Counted], scope: Scope) -> tuple[ir.Operator, ...]:
        """Return what the result behind a pattern asks of patterns beside each row."""
        return tuple(self._count(item, frozenset(scope)) for item in counts)

    def temporary(self) -> str:
        return f"~{next(self._numbers)}"

    def name_end(self, end: str) -> str:
        """Return the name of an end of a walk; each anonymous one gets its own, so that two stay unrelated."""
        return self.temporary() if end == "_" else end

    def matches(self, variable: str, start: Start, nullable: bool) -> Iterator[ir.Expr]:
        properties = shared_properties(self._catalog, "node", start.node_type)
        for name, value in start.matches:
            type_ = with_null(properties[name].type, nullable)
            op = ir.CompareOp.CONTAINS if type_.is_list else ir.CompareOp.EQ
            yield ir.Compare(op, ir.PropertyRef(variable, Kind.NODE.value, start.node_type, name, type_), value)


class _Pattern:
    """The bindings and walks of a block, ordered so that every walk starts from a bound variable."""

    def __init__(self, lowering: Lowering, block: Block, outer: frozenset[str]) -> None:
        self._lowering = lowering
        self._bound = set(outer)
        self._operators: list[ir.Operator] = []
        self._nullable = {name for name in outer if block.scope[name].nullable}
        self._starts = [(lowering.name_end(start.variable), start) for start in block.starts]
        self._walks = [
            replace(walk, source=lowering.name_end(walk.source), target=lowering.name_end(walk.target))
            for walk in block.walks
        ]
        self._filters: dict[str, list[ir.Expr]] = {}
        for variable, start in self._starts:
            matches = lowering.matches(variable, start, variable in self._nullable)
            self._filters.setdefault(variable, []).extend(matches)
        self._touching: dict[str, list[int]] = {}
        for index, walk in enumerate(self._walks):
            for end in {walk.source, walk.target}:
                self._touching.setdefault(end, []).append(index)
        self._path_nodes = list(block.path_nodes)
        self._unwinds = list(block.unwinds)
        self._types = {name: variable.type_name for name, variable in block.scope.items()}
        self._waiting: list[int] = []
        self._emitted: set[int] = set()

    def operators(self) -> list[ir.Operator]:
        for variable, start in self._starts:
            if variable in self._nullable:
                # What an optional block left empty is no node, so it cannot be bound again.
                reference = ir.NodeRef(variable, start.node_type, with_null(ir.ID, True))
                self._operators.append(ir.Filter(ir.IsNull(reference, negated=True)))
        for variable in sorted(self._bound & self._filters.keys()):
            # A binding of an outer variable asks more of the same entity.
            self._operators.extend(ir.Filter(condition) for condition in self._filters[variable])
        # Lists that are known before the pattern may then select its nodes.
        self._unwind()
        for variable in self._bound & self._touching.keys():
            self._reach(variable)
        for path in [path for _, path in self._path_nodes if path in self._bound]:
            self._bind_path_nodes(path)
        self._walk()
        for variable, start in self._starts:
            self._scan(variable, start.node_type)
        for walk in self._walks:
            self._scan(walk.source, walk.source_type)
        self._bound |= self._types.keys()
        self._unwind()
        return self._operators

    def _unwind(self) -> None:
        """Bind the elements of the lists that read bound variables alone, in written order."""
        for unwind in self._unwinds[:]:
            if ir.variables_read(unwind.collection) <= self._bound:
                self._unwinds.remove(unwind)
                self._operators.append(unwind)
                self._bound.add(unwind.variable)

    def _scan(self, variable: str, node_type: str) -> None:
        if variable in self._bound:
            return
        self._operators.append(ir.NodeScan(variable, node_type, tuple(self._filters.get(variable, ()))))
        self._reach(variable)
        self._walk()

    def _reach(self, variable: str) -> None:
        self._bound.add(variable)
        for index in self._touching.get(variable, ()):
            heappush(self._waiting, index)

    def _walk(self) -> None:
        while self._waiting:
            index = heappop(self._waiting)
            walk = self._walks[index]
            if index in self._emitted or self._awaits_end(walk):
                continue
            self._emitted.add(index)
            if walk.source in self._bound and walk.target in self._bound:
                self._close(walk)
            else:
                self._expand(walk if walk.source in self._bound else walk.reversed())
            if walk.path is not None:
                self._bind_path_nodes(walk.path.variable)

    def _bind_path_nodes(self, path: str) -> None:
        """Bind the nodes of a path that has just been bound."""
        for variable, _ in [item for item in self._path_nodes if item[1] == path]:
            self._path_nodes.remove((variable, path))
            node_type = self._types[variable]
            assert node_type is not None
            if variable not in self._bound:
                filters = tuple(self._filters.get(variable, ()))
                self._operators.append(ir.PathNodes(path, variable, node_type, filters))
                self._reach(variable)
                continue
            temporary = self._lowering.temporary()
            self._operators.append(ir.PathNodes(path, temporary, node_type))
            self._require_same(temporary, variable, node_type)

    def _awaits_end(self, walk: ir.Expand) -> bool:
        """Return True if a path should wait for the binding of its other end, which leaves few pairs to search."""
        ends = {walk.source, walk.target} - self._bound
        return walk.path is not None and any(self._filters.get(end) for end in ends)

    def _expand(self, walk: ir.Expand) -> None:
        self._operators.append(replace(walk, filters=tuple(self._filters.get(walk.target, ()))))
        self._reach(walk.target)

    def _close(self, walk: ir.Expand) -> None:
        temporary = self._lowering.temporary()
        path = None if walk.path is None else replace(walk.path, end=walk.target)
        self._operators.append(replace(walk, target=temporary, path=path))
        self._require_same(temporary, walk.target, walk.target_type)

    def _require_same(self, temporary: str, variable: str, node_type: str) -> None:
        """Keep the rows in which a node that was reached again is the bound one."""
        bound = ir.NodeRef(variable, node_type, with_null(ir.ID, variable in self._nullable))
        self._operators.append(ir.Filter(ir.Compare(ir.CompareOp.EQ, ir.NodeRef(temporary, node_type), bound)))
