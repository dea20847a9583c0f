"""Factorized aggregation: counts and sums over tree-shaped patterns without materialising paths.

Invariant: a node's weight is the number of ways to complete the pattern below it (product over tree edges of the sum
over neighbours), so a root's weight is its number of result rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from omnigraph.engine.query.adjacency import Adjacency
from omnigraph.engine.query.aggregate import (
    KERNELS,
    Groups,
    SingleGroup,
    SingletonGroups,
    join_limbs,
    limb_bits,
    split_limbs,
)
from omnigraph.engine.query.compare import validity
from omnigraph.engine.query.context import QueryRun
from omnigraph.engine.query.expand import is_indexed_cheaper, locate_neighbours, near_type
from omnigraph.engine.query.expressions import Evaluate, variables_of, walk
from omnigraph.engine.query.meeting import walks_of
from omnigraph.engine.query.operators import AntiJoin, Condition, Expand, KeyLookup, Pipeline, Scan, filter_rows
from omnigraph.engine.query.projection import Deferred, Projection, computed_column
from omnigraph.engine.query.vectors import Ids, Numbers, Rows, Vector, flag_positions, materialize
from omnigraph.errors import BudgetExceeded
from omnigraph.lang.catalog import TypeKey
from omnigraph.lang.query import ir
from omnigraph.lang.query.functions import AGGREGATES
from omnigraph.lang.query.ir import REVERSED, Direction
from omnigraph.limits import QUERY_WEIGHED_WALKS_MAX

Weights = npt.NDArray[Any]
# Weights are exact up to here; larger counts raise BudgetExceeded.
_COUNT_MAX = 2**62


@dataclass
class TreeEdge:
    """A traversal from one variable of the tree to a child."""

    edge: str
    direction: Direction
    per_edge: bool
    to: Vertex

    def adjacency(self, run: QueryRun) -> Adjacency:
        return run.topology(self.edge).adjacency(self.direction, per_edge=self.per_edge)


@dataclass
class Vertex:
    """One variable of the tree with its conditions and child edges."""

    variable: str
    node_type: str
    conditions: tuple[Condition, ...] = ()
    find_key: KeyLookup | None = None
    negations: list[AntiJoin] = field(default_factory=list)
    branches: list[TreeEdge] = field(default_factory=list)

    @property
    def is_free(self) -> bool:
        return not self.conditions and not self.negations and self.find_key is None


@dataclass(frozen=True)
class Forest:
    """The trees of a pattern and the root variable of each."""

    vertices: Mapping[str, Vertex]
    roots: tuple[str, ...]
    trees: Mapping[str, int]

    def rooted_at(self, variable: str, parent: str | None = None) -> Vertex:
        """Return the tree re-rooted at a variable, without the part beyond a `parent`; the pattern is symmetric."""
        branches = [
            replace(walk, to=self.rooted_at(walk.to.variable, variable))
            for walk in self.walks[variable]
            if walk.to.variable != parent
        ]
        return replace(self.vertices[variable], branches=branches)

    def cheapest_root(self, summed: str | None) -> str:
        """Return where to count from: where the pattern is narrow, else where fewest weights cross edges.

        `summed` is the variable whose values are added up, if there is one: counted from there, they cross none.
        """
        first = self.roots[0]
        if not self.vertices[first].is_free:
            return first
        if summed is not None and self.trees[summed] == self.trees[first]:
            return summed
        in_tree = (name for name, tree in self.trees.items() if tree == self.trees[first])
        # The weight of an unfiltered leaf is just the degree.
        return next((name for name in in_tree if len(self.walks[name]) > 1 or not self.vertices[name].is_free), first)

    @cached_property
    def walks(self) -> Mapping[str, list[TreeEdge]]:
        """The walks from each variable, in both directions."""
        walks: dict[str, list[TreeEdge]] = {name: [] for name in self.vertices}
        for name, vertex in self.vertices.items():
            for branch in vertex.branches:
                reverse = TreeEdge(branch.edge, REVERSED[branch.direction], branch.per_edge, vertex)
                walks[name].append(branch)
                walks[branch.to.variable].append(reverse)
        return walks


def build_forest(pipeline: Pipeline) -> Forest | None:
    """Return a pattern as trees, or None when it has other parts than single hops and conditions on one variable each.

    Weights are carried by recursion, so a pattern of very many walks is left to the rows, too.
    """
    vertices: dict[str, Vertex] = {}
    roots: list[str] = []
    trees: dict[str, int] = {}
    for step in chain.from_iterable(walks_of(step) for step in pipeline.steps):
        if isinstance(step, Scan) and step.join is None and not ir.is_union(step.node_type):
            vertices[step.variable] = Vertex(step.variable, step.node_type, step.conditions, step.find_key)
            trees[step.variable] = len(roots)
            roots.append(step.variable)
        elif isinstance(step, Expand):
            walk, target = step.walk, step.walk.target
            is_plain_hop = walk.is_single and walk.hops_variable is None and not walk.legs
            if not is_plain_hop or any(condition.variables != {target} for condition in step.conditions):
                return None
            vertices[target] = Vertex(target, walk.target_type, step.conditions)
            branch = TreeEdge(walk.edge, walk.direction, walk.edge_variable is not None, vertices[target])
            vertices[walk.source].branches.append(branch)
            trees[target] = trees[walk.source]
        elif isinstance(step, AntiJoin) and len(step.correlated) == 1 and step.correlated[0] in vertices:
            vertices[step.correlated[0]].negations.append(step)
        else:
            return None
    walk_count = sum(len(vertex.branches) for vertex in vertices.values())
    return Forest(vertices, tuple(roots), trees) if walk_count <= QUERY_WEIGHED_WALKS_MAX else None


@dataclass(frozen=True, slots=True)
class Factor:
    """What one variable contributes to each way: a value of its nodes, or whether they have one."""

    variable: str
    values: Weights


def uses_memory_only(run: QueryRun, forest: Forest) -> bool:
    for vertex in forest.vertices.values():
        for branch in vertex.branches:
            frontier = 1 if vertex.find_key is not None else run.row_count(TypeKey.of("node", vertex.node_type))
            if is_indexed_cheaper(run, branch.edge, branch.direction, 1, frontier)[0]:
                return False
    return True


def select_nodes(run: QueryRun, vertex: Vertex, ids: Ids | None) -> Ids:
    """Return the nodes, all or some, for which everything holds that the pattern asks of this variable alone."""
    if ids is None:
        ids = run.nodes(vertex.node_type).all if vertex.find_key is None else vertex.find_key(run)
    rows = filter_rows(run, Rows(len(ids), {vertex.variable: ids}), vertex.conditions)
    for negation in vertex.negations:
        if rows.count:
            rows = negation.run(run, rows)
    return rows.columns[vertex.variable]


def path_weights(run: QueryRun, vertex: Vertex, ids: Ids, factor: Factor | None) -> Weights:
    """Return for each node the number of ways to complete the pattern below it, times the factor's value."""
    run.check(f"counting at ${vertex.variable}")
    # Yannakakis' algorithm with counts (a sum-product over the join tree): below different branches the choices are
    # independent, so their numbers multiply. The factor is in one branch only, and the others scale it.
    path_counts: Weights = np.ones(len(ids), np.int64)
    values: Weights | None = None
    if factor is not None and factor.variable == vertex.variable:
        values = factor.values if len(ids) == len(factor.values) else factor.values[ids]
    for branch in vertex.branches:
        if factor is not None and factor.variable in _variables(branch.to):
            values = _branch_weights(run, branch, ids, factor)
        else:
            path_counts = multiply_path_counts(path_counts, _branch_weights(run, branch, ids, None), vertex.variable)
    return path_counts if values is None else _scale_by_paths(values, path_counts)


def _scale_by_paths(values: Weights, path_counts: Weights) -> Weights:
    """Return values times path counts; a node without paths adds nothing, whatever its value."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(path_counts == 0, values.dtype.type(0), values * path_counts)


def multiply_path_counts(first: Weights, second: Weights, variable: str) -> Weights:
    """Return the products of path counts; raises if they could overflow."""
    # The bound of the largest product decides almost always; the exact total is computed only where it is too large.
    largest = float(first.max(initial=0)) * float(second.max(initial=0))
    if largest * len(first) > _COUNT_MAX:
        check_path_count(int((first.astype(np.float64) * second).sum()), variable)
    return first * second


def check_path_count(count: int, variable: str) -> None:
    """Raise when there are more ways than 64-bit integers can count."""
    if count > _COUNT_MAX:
        message = f"counting at ${variable} gives more than 2^62; make the pattern more selective"
        # The exact number may have hundreds of digits.
        needed = min(count, 2**63 - 1)
        raise BudgetExceeded(message, limit="rows", allowed=_COUNT_MAX, needed=needed, where=f"${variable}")


def _branch_weights(run: QueryRun, branch: TreeEdge, ids: Ids, factor: Factor | None) -> Weights:
    adjacency = branch.adjacency(run)
    entities = run.nodes(branch.to.node_type)
    is_all = ids is run.nodes(near_type(run, branch.edge, branch.direction)).all
    degrees = adjacency.degrees if is_all else adjacency.degrees[ids]
    # Nothing below to count: every edge is one way.
    if factor is None and branch.to.is_free and not branch.to.branches:
        return degrees
    # Weigh all nodes of the other end once if the edges lead to most of them anyway, otherwise only those they lead to.
    if is_all or int(degrees.sum()) >= entities.count:
        selected = select_nodes(run, branch.to, None)
        below = path_weights(run, branch.to, selected, factor)
        # Few nodes pass the conditions: push their weights back along their edges instead of pulling along all edges.
        if len(selected) * 8 < entities.count:
            return _scatter_weights(run, branch, selected, below, ids)
        dense = below
        if selected is not entities.all:
            dense = np.zeros(entities.count, below.dtype)
            dense[selected] = below
    else:
        located = locate_neighbours(adjacency, ids)
        reached = np.flatnonzero(flag_positions(located.neighbours(), entities.count)).astype(entities.dtype)
        selected = select_nodes(run, branch.to, reached)
        dense = np.zeros(entities.count, np.int64 if factor is None else factor.values.dtype)
        dense[selected] = path_weights(run, branch.to, selected, factor)
    if factor is None and float(dense.max(initial=0)) * float(degrees.max(initial=0)) > _COUNT_MAX:
        # Parallel edges can add up to more than all nodes below weigh.
        check_path_count(int(_gather_weights(adjacency, ids, dense.astype(np.float64)).max()), branch.to.variable)
    return _gather_weights(adjacency, ids, dense)


def _gather_weights(adjacency: Adjacency, ids: Ids, dense: Weights) -> Weights:
    located = locate_neighbours(adjacency, ids)
    if located.is_all:
        return _gather_all_weights(adjacency, dense)
    if located.total * 2 > len(adjacency.neighbours):
        # Gathering all edges in order is cheaper than random access to most of them.
        sums: Weights = _gather_all_weights(adjacency, dense)[ids]
        return sums
    return _sum_ranges(dense[located.neighbours()], located.degrees, dense.dtype)


def _gather_all_weights(adjacency: Adjacency, dense: Weights) -> Weights:
    with np.errstate(invalid="ignore"):
        narrow = dense.astype(np.int32)
    # Weights that are small integers take half the time to gather, and their sums are exact.
    values = narrow if bool((narrow == dense).all()) else dense
    return _sum_ranges(values.take(adjacency.neighbours), adjacency.degrees, dense.dtype)


def _sum_ranges(values: Weights, lengths: npt.NDArray[np.int64], dtype: np.dtype[Any]) -> Weights:
    """Return the sums of consecutive stretches of values; a stretch may be empty."""
    sums = np.zeros(len(lengths), dtype)
    some = np.flatnonzero(lengths)
    if len(some):
        wide = np.int64 if values.dtype == np.int32 else values.dtype
        sums[some] = np.add.reduceat(values, (np.cumsum(lengths) - lengths)[some], dtype=wide)
    return sums


def _scatter_weights(run: QueryRun, branch: TreeEdge, selected: Ids, below: Weights, ids: Ids) -> Weights:
    backwards = run.topology(branch.edge).adjacency(REVERSED[branch.direction], per_edge=branch.per_edge)
    located = locate_neighbours(backwards, selected)
    sums = np.zeros(run.nodes(near_type(run, branch.edge, branch.direction)).count, below.dtype)
    np.add.at(sums, located.neighbours(), np.repeat(below, located.degrees))
    return sums[ids]


def _variables(vertex: Vertex) -> set[str]:
    return {vertex.variable}.union(*(_variables(branch.to) for branch in vertex.branches))


def sum_factor(variable: str, vector: Vector) -> Factor:
    """Return the value of each node, 0 where it is null; integers as they are, others as 64-bit floats."""
    assert isinstance(vector, Numbers)
    values = vector.data if vector.data.dtype.kind in "iu" else vector.data.astype(np.float64)
    return Factor(variable, values if vector.valid is None else np.where(vector.valid, values, values.dtype.type(0)))


@dataclass(frozen=True, slots=True)
class RootNodes:
    """The selected nodes of the variable that holds the groups, and the indices of nodes with at least one path."""

    ids: Ids
    completed: Ids

    def completed_of(self, values: Any) -> Any:
        return values if len(self.completed) == len(self.ids) else values[self.completed]


@dataclass(frozen=True)
class FactorizedAggregate:
    """A grouped read whose groups all come from one variable, or that has none."""

    query: ir.ReadIR
    forest: Forest
    variable: str

    @staticmethod
    def of(query: ir.ReadIR, pipeline: Pipeline) -> FactorizedAggregate | None:
        """Return how to answer a read by weights, or None."""
        forest = build_forest(pipeline) if query.is_grouped and query.rank is None else None
        if forest is None or not all(_is_factorizable(column.expression, forest) for column in query.columns):
            return None
        # Weights are per root node, so all keys of a group must be known at the root.
        keys = {
            item.expression.variable
            for item in query.columns
            if isinstance(item.expression, ir.PropertyRef | ir.NodeRef | ir.VariableRef)
        }
        if len(keys) > 1 or not forest.roots:
            return None
        return FactorizedAggregate(
            query, forest, next(iter(keys), None) or forest.cheapest_root(_summed_variable(query))
        )

    def is_worthwhile(self, run: QueryRun) -> bool:
        """True if weights are likely cheaper than rows; not when a key lookup limits the rows."""
        keyed = [name for name, vertex in self.forest.vertices.items() if vertex.find_key is not None]
        if run.traversal_mode == "indexed" or any(name != self.variable for name in keyed):
            return False
        if keyed and any(isinstance(part, ir.Case) for item in self.query.columns for part in walk(item.expression)):
            # What is computed would be computed for all nodes, for the sake of few rows.
            return False
        return uses_memory_only(run, self.forest)

    def columns(self, run: QueryRun, finish: Projection) -> tuple[list[Deferred], int]:
        root = self.forest.rooted_at(self.variable)
        ids = select_nodes(run, root, None)
        other_paths = int(self._other_trees(run, None))
        weights = path_weights(run, root, ids, None)
        # Trees without a common variable form a cross product, so their numbers multiply.
        path_count = int(weights.sum(dtype=np.float64)) * other_paths
        check_path_count(path_count, self.variable)
        # A node that completes no way is in no row, and so in no group.
        roots = RootNodes(ids, np.flatnonzero(weights) if path_count else np.empty(0, np.int64))
        # Without any way the number of the others may be too large for an array.
        weights = roots.completed_of(weights * (other_paths if path_count else 0))
        rows = Rows(len(weights), {self.variable: roots.completed_of(ids)})
        groups = self._groups(run, finish, rows)
        counts: dict[ir.Expr | None, Any] = {None: groups.sum_integers(weights)}
        columns: list[Deferred] = []
        for index, column in enumerate(self.query.columns):
            if isinstance(column.expression, ir.Aggregate):
                vector = self._argument(run, column.expression, finish.values[index])
                values = self._aggregate(run, column.expression, vector, roots, groups, counts)
                columns.append(computed_column(values))
            else:
                columns.append(finish.deferred(run, index, rows, groups.first))
        return columns, groups.size

    def _groups(self, run: QueryRun, finish: Projection, rows: Rows) -> Groups:
        keys = [item.expression for item in self.query.columns if not isinstance(item.expression, ir.Aggregate)]
        if not keys:
            return SingleGroup(rows.count)
        if any(isinstance(key, ir.NodeRef | ir.VariableRef) for key in keys):
            return SingletonGroups(rows.count)
        return Groups(finish.group_keys(run, rows), rows.count)

    def _argument(self, run: QueryRun, call: ir.Aggregate, evaluate: Evaluate | None) -> Vector | None:
        """Return what an aggregate reads, for all nodes of its variable; None if it counts rows."""
        if evaluate is None or isinstance(call.argument, ir.NodeRef):
            return None
        [variable] = variables_of(call.argument)
        nodes = run.nodes(self.forest.vertices[variable].node_type)
        return materialize(evaluate(run, Rows(nodes.count, {variable: nodes.all})), nodes.count)

    def _aggregate(
        self,
        run: QueryRun,
        call: ir.Aggregate,
        vector: Vector | None,
        roots: RootNodes,
        groups: Groups,
        counts: dict[ir.Expr | None, Any],
    ) -> Any:
        argument = None if vector is None else call.argument
        if argument not in counts:
            assert vector is not None
            counts[argument] = counts[None]
            if (valid := validity(vector)) is not None:
                [variable] = variables_of(argument)
                factor = Factor(variable, valid.astype(np.int64))
                counts[argument] = groups.sum_integers(self._weigh(run, factor, roots))
        count = counts[argument]
        from_sums = KERNELS[call.function].from_sums
        assert from_sums is not None
        if vector is None or not AGGREGATES[call.function].reads_values:
            return from_sums(call, count, count)
        [variable] = variables_of(argument)
        sums = self._sums(run, sum_factor(variable, vector), roots, groups, float(counts[None].sum()))
        return from_sums(call, sums, np.asarray(count))

    def _sums(self, run: QueryRun, factor: Factor, roots: RootNodes, groups: Groups, path_count: float) -> Any:
        """Return the sums of values over `path_count` paths; of integers exactly, limb by limb."""
        if factor.values.dtype.kind not in "iu":
            return groups.sum(self._weigh(run, factor, roots))
        bits = limb_bits(path_count)
        limbs = [
            groups.sum_integers(self._weigh(run, Factor(factor.variable, limb), roots))
            for limb in split_limbs(factor.values, bits)
        ]
        return join_limbs(limbs, bits, factor.values.dtype.kind == "u")

    def _weigh(self, run: QueryRun, factor: Factor, roots: RootNodes) -> Any:
        if not len(roots.completed):
            # The trees besides may be completed in more ways than any number type can hold.
            return np.empty(0, factor.values.dtype)
        root = self.forest.rooted_at(self.variable)
        other_paths: Any = self._other_trees(run, factor)
        if factor.values.dtype.kind == "i":
            # Limb sums fit 64 bits in the end, so intermediate wrap-around cancels (arithmetic modulo 2^64).
            other_paths = np.array([other_paths % 2**64], np.uint64).astype(np.int64)
        with np.errstate(over="ignore"):
            return roots.completed_of(path_weights(run, root, roots.ids, factor) * other_paths)

    def _other_trees(self, run: QueryRun, factor: Factor | None) -> int | float:
        """Return in how many ways the trees that do not hold the groups can be completed."""
        total: int | float = 1
        for index, name in enumerate(self.forest.roots):
            if index != self.forest.trees[self.variable]:
                root = self.forest.rooted_at(name)
                total *= path_weights(run, root, select_nodes(run, root, None), factor).sum().item()
        return total


def _is_factorizable(expression: ir.Expr, forest: Forest) -> bool:
    if isinstance(expression, ir.NodeRef | ir.PropertyRef | ir.VariableRef):
        return expression.variable in forest.vertices
    if not isinstance(expression, ir.Aggregate) or expression.is_distinct:
        return False
    argument = expression.argument
    if KERNELS[expression.function].from_sums is None:
        return False
    if argument is None or isinstance(argument, ir.NodeRef):
        return True
    variables = variables_of(argument)
    return len(variables) == 1 and variables <= forest.vertices.keys() and _is_total(argument)


# What can be computed for nodes that are in no row, because it never fails.
_TOTAL = ir.PropertyRef | ir.Literal | ir.Case | ir.And | ir.Or | ir.IsNull
_TOTAL_OPS = frozenset(map(ir.CompareOp, ("=", "!=", "<", "<=", ">", ">=")))


def _is_total(argument: ir.Expr | None) -> bool:
    """True for properties, and for a `case` of literals and properties that only compares them."""
    if not isinstance(argument, ir.PropertyRef | ir.Case):
        return False
    return all(
        part.op in _TOTAL_OPS if isinstance(part, ir.Compare) else isinstance(part, _TOTAL) for part in walk(argument)
    )


def _summed_variable(query: ir.ReadIR) -> str | None:
    calls = [item.expression for item in query.columns if isinstance(item.expression, ir.Aggregate)]
    variables = {
        name for call in calls if not isinstance(call.argument, ir.NodeRef) for name in variables_of(call.argument)
    }
    return next(iter(variables)) if len(variables) == 1 else None
