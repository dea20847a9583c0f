"""Lower the operators of a pattern to joins of DataFrames.

Rows have the ids of the bound variables and the properties that are needed later; an unbound variable is null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any, Final

from omnigraph.engine.query.expressions import variables_of, walk
from omnigraph.engine.session import View
from omnigraph.lang.catalog import PropertyType, Scalar, TypeKey
from omnigraph.lang.query import ir
from omnigraph.lang.query.ir import Direction, Expand
from omnigraph.limits import SPARK_BROADCAST_ROWS_MAX
from omnigraph.pipeline.datasource.table_reader import Scan, plan_scan
from omnigraph.pipeline.query.expressions import Expressions
from omnigraph.pipeline.query.scan import HOPS, ID, Names, Need, ScanSource, pushdown_filter, scan_frame
from omnigraph.pipeline.query.search import Search

NEAR = "near"
FAR = "far"
_START = "start"


def orient_edges(functions: Any, edges: Any, direction: Direction) -> Any:
    """Return edges in the direction of a traversal; a self-loop counts once even in both directions."""
    if direction is Direction.OUT:
        return edges
    col = functions.col
    others = [name for name in edges.columns if name not in (NEAR, FAR)]
    back = edges.select(col(FAR).alias(NEAR), col(NEAR).alias(FAR), *others)
    if direction is Direction.IN:
        return back
    return edges.select(NEAR, FAR, *others).unionByName(back.where(col(NEAR) != col(FAR)))


def expand_hops(functions: Any, starts: Any, edges: Any, walk: Expand, hops: str) -> Any:
    """Breadth-first search from all starts at once: each node within the hop bounds, at its shortest distance."""
    col, lit = functions.col, functions.lit
    pairs = edges.select(NEAR, FAR).localCheckpoint()
    loops = pairs.where(col(NEAR) == col(FAR)).select(col(NEAR).alias("loop"))
    frontier = starts.select(col(NEAR).alias(_START), col(NEAR).alias("node")).localCheckpoint()
    visited, emitted = frontier, []
    for hop in range(1, walk.maximum + 1):
        if hop == walk.minimum:
            # A node with a self-loop is reached again one hop later, which may be the first time within the bounds.
            # Backwards, that node is the start.
            looping = col(_START if walk.is_backwards else "node") == col("loop")
            emitted.append(_with_hops(frontier.join(loops, looping, "left_semi"), lit(hop), hops))
        stepped = frontier.join(pairs, col("node") == col(NEAR)).select(_START, col(FAR).alias("node")).distinct()
        frontier = stepped.join(visited, [_START, "node"], "left_anti").localCheckpoint()
        visited = visited.unionByName(frontier)
        if hop >= walk.minimum:
            emitted.append(_with_hops(frontier, lit(hop), hops))
        if frontier.isEmpty():
            break
    if not emitted:
        emitted.append(_with_hops(frontier.limit(0), lit(0), hops))
    everything = reduce(lambda left, right: left.unionByName(right), emitted)
    return everything.select(col(_START).alias(NEAR), col("node").alias(FAR), hops)


def _with_hops(nodes: Any, hop: Any, hops: str) -> Any:
    return nodes.withColumn(hops, hop.cast("long"))


_TEXT: Final = PropertyType(Scalar.STRING)
_NO_NEED: Final = Need()

# Restricts the scan of the ranked variable to its best candidates.
Narrow = Callable[[Any, str], Any]


class Lowering:
    """Lowers one read on one view."""

    def __init__(
        self, spark: Any, view: View, expressions: Expressions, names: Names, needs: Mapping[str, Need], search: Search
    ) -> None:
        self._spark = spark
        self._view = view
        self._expressions = expressions
        self._functions = expressions.functions
        self._names = names
        self._needs = needs
        self._search = search
        self._scans: dict[TypeKey, tuple[Scan, list[list[int]]]] = {}

    def pipeline(
        self, operators: Iterable[ir.Operator], rows: Any = None, narrow: Mapping[str, Narrow] | None = None
    ) -> Any:
        """Apply operators to rows; to one empty row if None."""
        for operator in operators:
            match operator:
                case ir.NodeScan():
                    rows = self._scan(operator, rows, (narrow or {}).get(operator.variable))
                case ir.Expand():
                    rows = self._expand(operator, self._or_empty_row(rows))
                case ir.Filter(condition=condition):
                    rows = self._or_empty_row(rows).where(self._expressions.condition(condition))
                case ir.AntiJoin():
                    rows = self._anti(operator, self._or_empty_row(rows))
                case ir.OptionalJoin():
                    rows = self._optional(operator, self._or_empty_row(rows))
        return self._or_empty_row(rows)

    def _or_empty_row(self, rows: Any) -> Any:
        return self._spark.range(1).select() if rows is None else rows

    # -- scans -------------------------------------------------------------------------------------------------

    def _scan(self, operator: ir.NodeScan, rows: Any, narrow: Narrow | None) -> Any:
        conditions, others = _partition_conditions(operator.filters, {operator.variable})
        table_key = TypeKey.of("node", operator.node_type)
        frame = self._frame(operator.variable, table_key, conditions)
        if narrow is not None:
            frame = narrow(frame, self._names(operator.variable, ID))
        frame = frame if rows is None else rows.crossJoin(self._small(frame, table_key))
        return self._where(frame, others)

    def _frame(
        self, variable: str, table_key: TypeKey, conditions: tuple[ir.Expr, ...], ends: tuple[tuple[str, str], ...] = ()
    ) -> Any:
        """Return the entities of a type that satisfy conditions, with the columns that are needed of them."""
        if table_key not in self._scans:
            self._scans[table_key] = plan_scan(self._view, table_key)
        scan, runs = self._scans[table_key]
        need = self._needs.get(variable, _NO_NEED)
        outputs = [(name, column, _TEXT) for name, column in ends]
        if not variable.startswith("~edge"):
            outputs.append((self._names(variable, ID), ID, _TEXT))
        outputs += [(self._names(variable, name), name, ref.type) for name, ref in need.properties.items()]
        marks = tuple((self._names(variable, mark), mark) for mark in need.marks)
        expressions = [part for condition in (*conditions, *need.marks) for part in walk(condition)]
        source = ScanSource(
            scan,
            runs,
            variable,
            tuple(outputs),
            marks,
            conditions,
            pushdown_filter(conditions, self._expressions.constant),
            self._expressions.params,
            self._expressions.now_ms,
            {part: self._search.matches(part) for part in expressions if isinstance(part, ir.TextMatch)},
        )
        return scan_frame(self._spark, source)

    def _small(self, frame: Any, *table_keys: TypeKey) -> Any:
        """Broadcast a frame if its types are small."""
        pins = self._view.snapshot.state.pins
        if all(pins[key].row_count <= SPARK_BROADCAST_ROWS_MAX for key in table_keys):
            return self._functions.broadcast(frame)
        return frame

    def _where(self, rows: Any, conditions: Iterable[ir.Expr]) -> Any:
        for condition in conditions:
            rows = rows.where(self._expressions.condition(condition))
        return rows

    # -- traversals -------------------------------------------------------------------------------------------------

    def _expand(self, operator: ir.Expand, rows: Any) -> Any:
        col, source = self._functions.col, self._names(operator.source, ID)
        rows = rows.where(col(source).isNotNull())
        if operator.minimum > operator.maximum:
            rows = rows.limit(0)
        about_edge, others = _partition_conditions(operator.filters, {operator.edge_variable} - {None})
        about_target, others = _partition_conditions(others, {operator.target})
        edges = self._edges(operator, about_edge)
        if operator.minimum == operator.maximum == 1:
            if operator.hops_variable is not None:
                single_hop = self._functions.lit(1).cast("long")
                edges = edges.withColumn(self._names(operator.hops_variable, HOPS), single_hop)
            key = TypeKey.of("edge", operator.edge)
            walked = rows.join(self._small(edges, key), col(source) == col(NEAR)).drop(NEAR)
        else:
            starts = rows.select(col(source).alias(NEAR)).distinct()
            hops = self._names(operator.hops_variable or "~hops", HOPS)
            pairs = expand_hops(self._functions, starts, edges, operator, hops)
            walked = rows.join(pairs, col(source) == col(NEAR)).drop(NEAR)
            walked = walked if operator.hops_variable is not None else walked.drop(hops)
        return self._where(self._bind_target(operator, walked, about_target), others)

    def _edges(self, operator: ir.Expand, conditions: tuple[ir.Expr, ...]) -> Any:
        """Return the edges of a traversal: distinct pairs of nodes, or one row per edge if edges are bound."""
        variable = operator.edge_variable or "~edge"
        edge = self._view.catalog.edges[operator.edge]
        frame = self._frame(variable, edge.table_key, conditions, ((NEAR, "src"), (FAR, "dst")))
        frame = orient_edges(self._functions, frame, operator.direction)
        is_distinct = ("src", "dst") in edge.unique and operator.direction is not ir.Direction.BOTH
        return frame if operator.edge_variable is not None or is_distinct else frame.distinct()

    def _bind_target(self, operator: ir.Expand, walked: Any, conditions: tuple[ir.Expr, ...]) -> Any:
        """Bind the target of a traversal; its node is scanned only if a property or condition needs it."""
        col, target = self._functions.col, self._names(operator.target, ID)
        need = self._needs.get(operator.target, _NO_NEED)
        if not conditions and not need.properties and not need.marks:
            return walked.withColumnRenamed(FAR, target)
        table_key = TypeKey.of("node", operator.target_type)
        nodes = self._frame(operator.target, table_key, conditions)
        return walked.join(self._small(nodes, table_key), col(FAR) == col(target)).drop(FAR)

    # -- blocks ------------------------------------------------------------------------------------------------

    def _anti(self, operator: ir.AntiJoin, rows: Any) -> Any:
        keys, solved = self._solve(operator.inner, rows)
        if not keys:
            return rows.join(solved.limit(1), self._functions.lit(True), "left_anti")
        solutions = solved.select(*self._renamed(keys)).distinct()
        return rows.join(solutions, self._same(keys), "left_anti")

    def _optional(self, operator: ir.OptionalJoin, rows: Any) -> Any:
        keys, solved = self._solve(operator.inner, rows)
        bound = self._names.of((item.variable for item in operator.bindings), solved.columns)
        solved = solved.select(*self._renamed(keys), *bound)
        if not keys:
            return rows.join(solved, self._functions.lit(True), "left")
        return rows.join(solved, self._same(keys), "left").drop(*(f"k{index}" for index in range(len(keys))))

    def _solve(self, inner: tuple[ir.Operator, ...], rows: Any) -> tuple[list[str], Any]:
        """Return the columns that an inner pattern depends on, and its solutions for their distinct values."""
        used = _variables_used(inner)
        keys = self._names.keys(used, rows.columns)
        if not keys:
            return [], self.pipeline(inner)
        # All other columns of an entity depend on its id.
        distinct_rows = rows.select(*self._names.of(used, rows.columns)).dropDuplicates(keys)
        return keys, self.pipeline(inner, distinct_rows)

    def _renamed(self, keys: list[str]) -> list[Any]:
        return [self._functions.col(key).alias(f"k{index}") for index, key in enumerate(keys)]

    def _same(self, keys: list[str]) -> Any:
        col = self._functions.col
        # An unbound variable is a value like any other, so nulls are equal.
        pairs = [col(key).eqNullSafe(col(f"k{index}")) for index, key in enumerate(keys)]
        condition = pairs[0]
        for pair in pairs[1:]:
            condition = condition & pair
        return condition


def _partition_conditions(
    conditions: Iterable[ir.Expr], variables: set[Any]
) -> tuple[tuple[ir.Expr, ...], tuple[ir.Expr, ...]]:
    """Split conditions into those that use exactly the variables, and the others."""
    matching = [condition for condition in conditions if variables and variables_of(condition) == variables]
    return tuple(matching), tuple(condition for condition in conditions if condition not in matching)


def _variables_used(operators: Iterable[ir.Operator]) -> set[str]:
    """Return all variables that operators use."""
    variables: set[str] = set()
    for operator in operators:
        match operator:
            case ir.NodeScan(filters=filters):
                variables.update(*(variables_of(condition) for condition in filters))
            case ir.Expand(source=source, filters=filters):
                variables.add(source)
                variables.update(*(variables_of(condition) for condition in filters))
            case ir.Filter(condition=condition):
                variables |= variables_of(condition)
            case ir.AntiJoin(inner=inner) | ir.OptionalJoin(inner=inner):
                variables |= _variables_used(inner)
    return variables
