"""Lower a read to DataFrames: the operators of its pattern as joins, then its projection.

Rows have the ids of the bound variables and the properties that are needed later; an unbound variable is null.

The stages of a `with` and the blocks of a union are reads of their own, whose columns the next read binds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from operator import and_
from typing import Any, Final

from omnigraph.engine.pinned_scan import Scan, plan_scan
from omnigraph.engine.query.context import QueryRun
from omnigraph.engine.query.expand import HopBounds, hop_bounds, visited_types, walk_legs
from omnigraph.engine.query.expressions import variables_of, walk
from omnigraph.engine.query.path_graph import weight_error
from omnigraph.engine.query.physical_plan import ReadPlan, Source
from omnigraph.engine.query.planning import free_variables
from omnigraph.lang.catalog import KINDS, TEXT, TypeKey
from omnigraph.lang.query import ir
from omnigraph.lang.query.ir import Direction
from omnigraph.limits import SPARK_BROADCAST_ROWS_MAX
from omnigraph.spark.query.expressions import Expressions
from omnigraph.spark.query.paths import NODE, PATH_COLUMNS, START, PathFrames, union_frames
from omnigraph.spark.query.projection import Projection
from omnigraph.spark.query.scan import (
    HOPS,
    ID,
    TYPE_MARK,
    VALUE,
    ConstantsRun,
    Names,
    Need,
    ScanSource,
    Search,
    collect_needs,
    push_down_filters,
    pushdown_filter,
    resolve_type_names,
    scan_frame,
    spark_type,
)

NEAR = "near"
FAR = "far"
_START = START


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


def expand_hops(functions: Any, starts: Any, edges: Any, walk: HopBounds, hops: str) -> Any:
    """Breadth-first search from all starts at once: each node within the hop bounds, at its shortest distance."""
    col, lit = functions.col, functions.lit
    pairs = edges.select(NEAR, FAR).localCheckpoint()
    loops = pairs.where(col(NEAR) == col(FAR)).select(col(NEAR).alias("loop"))
    frontier = starts.select(col(NEAR).alias(_START), col(NEAR).alias("node")).localCheckpoint()
    visited, emitted = frontier, [_with_hops(frontier, lit(0), hops)] if walk.minimum == 0 else []
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
    return union_frames(emitted).select(col(_START).alias(NEAR), col("node").alias(FAR), hops)


def _with_hops(nodes: Any, hop: Any, hops: str) -> Any:
    return nodes.withColumn(hops, hop.cast("long"))


_NO_NEED: Final = Need()

# Restricts the scan of the ranked variable to its best candidates.
Narrow = Callable[[Any, str], Any]


class Lowering:
    """Lowers one read on one view."""

    def __init__(
        self, spark: Any, run: QueryRun, expressions: Expressions, needs: Mapping[str, Need], search: Search
    ) -> None:
        self._spark = spark
        self._run = run
        self._view = run.view
        self._expressions = expressions
        self._functions = expressions.functions
        self._names = expressions.names
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
                case ir.PathNodes():
                    rows = self._path_nodes(operator, self._or_empty_row(rows))
                case ir.Unwind():
                    rows = self._unwound(operator, self._or_empty_row(rows))
                case ir.Filter(condition=condition):
                    rows = self._or_empty_row(rows).where(self._expressions.condition(condition))
                case ir.AntiJoin():
                    rows = self._anti(operator, self._or_empty_row(rows))
                case ir.OptionalJoin():
                    rows = self._optional(operator, self._or_empty_row(rows))
                case ir.CountJoin():
                    rows = self._counted(operator, self._or_empty_row(rows))
        return self._or_empty_row(rows)

    def _or_empty_row(self, rows: Any) -> Any:
        return self._spark.range(1).select() if rows is None else rows

    # -- scans -------------------------------------------------------------------------------------------------

    def _scan(self, operator: ir.NodeScan, rows: Any, narrow: Narrow | None) -> Any:
        conditions, others = _partition_conditions(operator.filters, {operator.variable})
        table_key = TypeKey.of("node", operator.node_type)
        frame = self._frames(operator.variable, table_key, conditions)
        if narrow is not None:
            frame = narrow(frame, self._names(operator.variable, ID))
        frame = frame if rows is None else rows.crossJoin(self._small(frame, table_key))
        return self._where(frame, others)

    def _frames(self, variable: str, table_key: TypeKey, conditions: tuple[ir.Expr, ...]) -> Any:
        """Return the entities of a type, or of all types of a union, whose ids then begin with their type."""
        names = ir.split_type(table_key.name)
        frames = []
        for name in names:
            resolved = tuple(resolve_type_names(condition, name) for condition in conditions)
            frame = self._frame(variable, TypeKey.of(table_key.kind, name), resolved)
            frames.append(self._tagged(frame, self._names(variable, ID), name) if len(names) > 1 else frame)
        return union_frames(frames)

    def _tagged(self, frame: Any, column: str, type_name: str) -> Any:
        """Put the type before the ids of a column, so that ids of different types differ."""
        functions = self._functions
        return frame.withColumn(column, functions.concat(functions.lit(type_name + TYPE_MARK), functions.col(column)))

    def _frame(
        self,
        variable: str,
        table_key: TypeKey,
        conditions: tuple[ir.Expr, ...],
        ends: tuple[tuple[str, str], ...] = (),
        need: Need | None = None,
    ) -> Any:
        """Return the entities of a type that satisfy conditions, with the columns that are needed of them."""
        if table_key not in self._scans:
            self._scans[table_key] = plan_scan(self._view, table_key)
        scan, runs = self._scans[table_key]
        need = need or self._needs.get(variable, _NO_NEED)
        outputs = [(name, column, TEXT) for name, column in ends]
        if not variable.startswith("~edge"):
            outputs.append((self._names(variable, ID), ID, TEXT))
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
            self._expressions.run,
            {part: self._search.matches(part) for part in expressions if isinstance(part, ir.TextMatch)},
        )
        return scan_frame(self._spark, source)

    def _small(self, frame: Any, *table_keys: TypeKey) -> Any:
        """Broadcast a frame if its types are small."""
        if all(self._run.row_count(key) <= SPARK_BROADCAST_ROWS_MAX for key in table_keys):
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
        bounds = hop_bounds(self._run, operator)
        if bounds.minimum > bounds.maximum:
            rows = rows.limit(0)
        about_edge, others = _partition_conditions(operator.filters, {operator.edge_variable} - {None})
        about_target, others = _partition_conditions(others, {operator.target})
        if operator.path is not None:
            walked = self._search_paths(operator, operator.path, rows, bounds)
        elif operator.is_single or operator.joins_types:
            edges = self._edges(operator, about_edge, operator.source_type, operator.target_type)
            if operator.hops_variable is not None:
                single_hop = self._functions.lit(1).cast("long")
                edges = edges.withColumn(self._names(operator.hops_variable, HOPS), single_hop)
            key = TypeKey.of("edge", operator.edge)
            walked = rows.join(self._small(edges, key), col(source) == col(NEAR)).drop(NEAR)
        else:
            walked = self._expand_hops(operator, rows, bounds, about_edge)
        walked = self._bind_target(operator.target, operator.target_type, walked, about_target)
        return self._where(walked, others)

    def _path_nodes(self, operator: ir.PathNodes, rows: Any) -> Any:
        path = self._functions.col(self._names(operator.path, HOPS))
        about_node, others = _partition_conditions(operator.filters, {operator.variable})
        # An absent path has no nodes, and `explode` drops the row.
        each = rows.withColumn(FAR, self._functions.explode(path))
        return self._where(self._bind_target(operator.variable, operator.node_type, each, about_node), others)

    def _unwound(self, operator: ir.Unwind, rows: Any) -> Any:
        # `explode` drops the rows of missing and empty lists.
        elements = self._functions.explode(self._expressions.value(operator.collection))
        return rows.withColumn(self._names(operator.variable, VALUE), elements)

    def _expand_hops(self, operator: ir.Expand, rows: Any, bounds: HopBounds, about_edge: tuple[ir.Expr, ...]) -> Any:
        col, source = self._functions.col, self._names(operator.source, ID)
        space = visited_types(operator)
        edges = self._edges(operator, about_edge, space, space)
        hops = self._names(operator.hops_variable or "~hops", HOPS)
        # The start stays in the form that the rows have; the walk may go through more types than that.
        starts = rows.select(col(source).alias(NEAR)).distinct()
        starts = self._converted(starts, NEAR, operator.source_type, space)
        pairs = expand_hops(self._functions, starts, edges, bounds, hops)
        pairs = self._converted(pairs, NEAR, space, operator.source_type)
        pairs = self._converted(pairs, FAR, space, operator.target_type)
        walked = rows.join(pairs, col(source) == col(NEAR)).drop(NEAR)
        return walked if operator.hops_variable is not None else walked.drop(hops)

    def _search_paths(self, operator: ir.Expand, path: ir.Path, rows: Any, bounds: HopBounds) -> Any:
        col, source = self._functions.col, self._names(operator.source, ID)
        space = visited_types(operator)
        count = None if path.is_all else self._run.bound(path.count, "shortest", least=1)
        search = PathFrames(
            self._functions, self._path_steps(operator, path, space), *bounds, count, path.weight is not None
        )
        starts = self._converted(rows.select(col(source).alias(START)).distinct(), START, operator.source_type, space)
        pairs = None
        if path.end is not None:
            end = self._names(path.end, ID)
            pairs = rows.select(col(source).alias(START), col(end).alias(NODE)).dropna().distinct()
            pairs = self._converted(pairs, START, operator.source_type, space)
            pairs = self._converted(pairs, NODE, operator.target_type, space).localCheckpoint()
        paths = search.search(starts, pairs)
        paths = self._converted(paths, START, space, operator.source_type)
        paths = self._converted(paths, NODE, space, operator.target_type)
        columns = [col(name).alias(self._names(path.variable, attribute)) for attribute, name in PATH_COLUMNS]
        paths = paths.select(col(START).alias(NEAR), col(NODE).alias(FAR), *columns)
        same = col(source) == col(NEAR)
        if path.end is not None:
            same = same & (col(self._names(path.end, ID)) == col(FAR))
        return rows.join(paths, same).drop(NEAR)

    def _path_steps(self, operator: ir.Expand, path: ir.Path, space: str) -> Any:
        """Return the edge that stands for each pair of nodes: the lightest, then the one with the smallest id."""
        functions, col, variable = self._functions, self._functions.col, f"~path {path.variable}"
        need, weight = Need(), functions.lit(1.0)
        if path.weight is not None:
            edge = self._view.catalog.edges[operator.legs[0].edge]
            type_ = edge.properties[path.weight].type
            need.properties[path.weight] = ir.PropertyRef(variable, "edge", edge.name, path.weight, type_)
            weight = col(self._names(variable, path.weight)).cast("double")
        is_tagged = ir.is_union(operator.edge)
        frames = [self._leg(variable, leg, (), (space, space), is_tagged, need) for leg in operator.legs]
        edges = union_frames(frames)
        edges = edges.select(NEAR, FAR, weight.alias("weight"), col(self._names(variable, ID)).alias("edge"))
        edges = edges.where(col("weight").isNotNull()).localCheckpoint()
        if path.weight is not None and not edges.where((col("weight") < 0) | functions.isnan("weight")).isEmpty():
            raise weight_error(path.weight)
        best = functions.min(functions.struct("weight", "edge")).alias("best")
        chosen = edges.groupBy(NEAR, FAR).agg(best).select(NEAR, FAR, "best.weight", "best.edge")
        if is_tagged:
            chosen = chosen.withColumn("edge", self._expressions.plain_id(col("edge")))
        return chosen.localCheckpoint()

    def _converted(self, frame: Any, column: str, source_type: str, target_type: str) -> Any:
        """Return ids of one type or union as those of another one, without the ids of types that it lacks."""
        functions = self._functions
        if source_type == target_type:
            return frame
        if not ir.is_union(source_type):
            return self._tagged(frame, column, source_type)
        members = set(ir.split_type(target_type))
        if not members >= set(ir.split_type(source_type)):
            frame = frame.where(self._expressions.type_name(functions.col(column)).isin(sorted(members)))
        if ir.is_union(target_type):
            return frame
        return frame.withColumn(column, self._expressions.plain_id(functions.col(column)))

    def _edges(self, operator: ir.Expand, conditions: tuple[ir.Expr, ...], near: str, far: str) -> Any:
        """Return the edges of a traversal: distinct pairs of nodes, or one row per edge if edges are bound."""
        legs = walk_legs(self._view.catalog, operator)
        variable = operator.edge_variable or "~edge"
        is_tagged = operator.edge_variable is not None and ir.is_union(operator.edge)
        frames = [self._leg(variable, leg, conditions, (near, far), is_tagged) for leg in legs]
        frame = union_frames(frames)
        unique = self._view.catalog.edges[legs[0].edge].unique
        is_distinct = len(legs) == 1 and ("src", "dst") in unique and legs[0].direction is not ir.Direction.BOTH
        return frame if operator.edge_variable is not None or is_distinct else frame.distinct()

    def _leg(
        self,
        variable: str,
        leg: ir.Leg,
        conditions: tuple[ir.Expr, ...],
        ends: tuple[str, str],
        is_tagged: bool,
        need: Need | None = None,
    ) -> Any:
        """Return the edges of one leg, oriented along it, with the ids of the walk's types."""
        edge = self._view.catalog.edges[leg.edge]
        resolved = tuple(resolve_type_names(condition, leg.edge) for condition in conditions)
        frame = self._frame(variable, edge.table_key, resolved, ((NEAR, "src"), (FAR, "dst")), need)
        if is_tagged:
            frame = self._tagged(frame, self._names(variable, ID), leg.edge)
        near, far = ends
        if leg.source == leg.target:
            frame = orient_edges(self._functions, frame, leg.direction)
            return self._leg_ids(frame, leg.source, near, leg.source, far)
        parts = []
        for direction in (Direction.OUT, Direction.IN) if leg.direction is Direction.BOTH else (leg.direction,):
            near_type, far_type = (leg.source, leg.target) if direction is Direction.OUT else (leg.target, leg.source)
            oriented = orient_edges(self._functions, frame, direction)
            parts.append(self._leg_ids(oriented, near_type, near, far_type, far))
        return union_frames(parts)

    def _leg_ids(self, frame: Any, near_type: str, near: str, far_type: str, far: str) -> Any:
        frame = self._tagged(frame, NEAR, near_type) if ir.is_union(near) else frame
        return self._tagged(frame, FAR, far_type) if ir.is_union(far) else frame

    def _bind_target(self, variable: str, node_type: str, walked: Any, conditions: tuple[ir.Expr, ...]) -> Any:
        """Bind the target of a traversal; its node is scanned only if a property or condition needs it."""
        col, target = self._functions.col, self._names(variable, ID)
        need = self._needs.get(variable, _NO_NEED)
        if not conditions and not need.properties and not need.marks:
            return walked.withColumnRenamed(FAR, target)
        table_key = TypeKey.of("node", node_type)
        nodes = self._frames(variable, table_key, conditions)
        return walked.join(self._small(nodes, table_key), col(FAR) == col(target)).drop(FAR)

    def passed_on(self, rows: Any, variable: str, table_key: TypeKey) -> Any:
        """Add what is needed of a node or edge that the rows have by its id."""
        need = self._needs.get(variable, _NO_NEED)
        if not need.properties and not need.marks:
            return rows
        col, column = self._functions.col, self._names(variable, ID)
        entities = self._frames(variable, table_key, ()).withColumnRenamed(column, FAR)
        return rows.join(self._small(entities, table_key), col(column) == col(FAR), "left").drop(FAR)

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

    def _counted(self, operator: ir.CountJoin, rows: Any) -> Any:
        functions = self._functions
        keys, solved = self._solve(operator.inner, rows)
        solutions = solved.select(*self._renamed(keys))
        if operator.is_existence:
            solutions = solutions.distinct() if keys else solutions.limit(1)
        names = [f"k{index}" for index in range(len(keys))]
        counts = solutions.groupBy(*names).agg(functions.count(functions.lit(1)).alias("n"))
        joined = rows.join(counts, self._same(keys), "left") if keys else rows.crossJoin(counts)
        number = functions.coalesce(functions.col("n"), functions.lit(0)).cast("long")
        return joined.withColumn(self._names(operator.variable, HOPS), number).drop("n", *names)

    def _solve(self, inner: tuple[ir.Operator, ...], rows: Any) -> tuple[list[str], Any]:
        """Return the columns that an inner pattern depends on, and its solutions for their distinct values."""
        used = free_variables(inner)
        keys = self._names.of(used, rows.columns, is_key=True)
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
        return reduce(and_, (col(key).eqNullSafe(col(f"k{index}")) for index, key in enumerate(keys)))


def _partition_conditions(
    conditions: Iterable[ir.Expr], variables: set[Any]
) -> tuple[tuple[ir.Expr, ...], tuple[ir.Expr, ...]]:
    """Split conditions into those that use exactly the variables, and the others."""
    matching = [condition for condition in conditions if variables and variables_of(condition) == variables]
    return tuple(matching), tuple(condition for condition in conditions if condition not in matching)


def read_frame(spark: Any, plan: ReadPlan, run: QueryRun) -> Any:
    """Return a read as a lazy DataFrame with the names of its columns."""
    return _projected(spark, plan, run).toDF(*(column.name for column in plan.query.returned))


def _projected(spark: Any, plan: ReadPlan, run: QueryRun) -> Any:
    names, search, cut = Names(), Search(spark, plan, run), plan.cut(run)
    expressions = Expressions(ConstantsRun(run.params, run.now_ms), names)
    pipeline = push_down_filters(plan.query.pipeline)
    lowering = Lowering(spark, run, expressions, collect_needs(plan.query, pipeline), search)
    start = None if plan.source is None else _bound(spark, plan.source, run, names, lowering)
    roots = {operator.variable for operator in pipeline if isinstance(operator, ir.NodeScan)}
    narrow = {plan.ranking.variable: search.narrow} if plan.ranking and plan.ranking.variable in roots else {}
    rows = lowering.pipeline(pipeline, start, narrow)
    per = plan.query.limit_per
    per_group = 0 if per is None else run.bound(per.count, "limit")
    return Projection(plan, expressions, search).run(rows, cut, per_group)


def _bound(spark: Any, source: Source, run: QueryRun, names: Names, lowering: Lowering) -> Any:
    """Return the rows of a source with its columns under the names of variables, and what is needed of entities."""
    frames = [_projected(spark, plan, run.fork()) for plan in source.plans]
    if len(frames) > 1:
        types = [spark_type(column.type) for column in source.columns]
        frames = [_cast(frame, types) for frame in frames]
    rows = reduce(lambda above, below: above.union(below), frames)
    rows = rows.select(
        *(
            selected
            for index, column in enumerate(source.columns)
            for selected in _variable_columns(rows[f"r{index}"], column, names)
        )
    )
    for column in source.columns:
        passed = column.expression
        if isinstance(passed, ir.VariableRef) and passed.kind in KINDS:
            rows = lowering.passed_on(rows, column.name, TypeKey.of(passed.kind, passed.type_name))
    return rows


def _cast(frame: Any, types: list[str]) -> Any:
    return frame.select(*(frame[f"r{index}"].cast(type_).alias(f"r{index}") for index, type_ in enumerate(types)))


def _variable_columns(value: Any, column: ir.Column, names: Names) -> list[Any]:
    passed = column.expression
    if not isinstance(passed, ir.VariableRef):
        return [value.alias(names(column.name, VALUE))]
    if passed.kind in KINDS:
        return [value.alias(names(column.name, ID))]
    return [value[name].alias(names(column.name, name)) for name, _ in PATH_COLUMNS]
