"""Query planner: typed IR of a pattern to a pipeline of physical operators.

Pure and rule-based, without statistics: start at the most selective variable, push filters down to the first step that
binds their variables, turn cycle-closing hops into membership tests, and drop variables that no later step needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from omnigraph.engine.query.context import QueryRun
from omnigraph.engine.query.expressions import compile_constant, compile_predicate, compile_value, variables_of, walk
from omnigraph.engine.query.meeting import fuse_meetings, reverse_walk
from omnigraph.engine.query.operators import (
    AntiJoin,
    Condition,
    Expand,
    ExpandIntersect,
    ExpandInto,
    Filter,
    KeyLookup,
    OptionalJoin,
    PathNodes,
    Pipeline,
    PlanStep,
    Scan,
    compile_join,
    equal_sides,
)
from omnigraph.engine.query.subqueries import CountJoin
from omnigraph.engine.query.unwinding import Unwind
from omnigraph.engine.query.vectors import Ids
from omnigraph.lang.catalog import FLOATS, INTEGERS, KINDS, Catalog, NodeType, TypeKey
from omnigraph.lang.query import ir
from omnigraph.lang.query.format_plan import format_plan
from omnigraph.lang.scalars import RANGES
from omnigraph.lang.schema.arrow_schema import key_id


def compile_key_lookup(
    node: NodeType | None, variable: str, conditions: Sequence[ir.Expr]
) -> tuple[KeyLookup | None, tuple[ir.Expr, ...]]:
    """Return a key lookup if the conditions fix the id or the whole key of a node, and the remaining conditions.

    There is none for a union of types, which has no node type.
    """
    if node is None:
        return None, tuple(conditions)
    ids = (
        (item, value)
        for item in conditions
        for column, value in _equal_properties(item, variable)
        if column.property == "id" and isinstance(value, ir.Literal | ir.ParameterRef)
    )
    if (by_id := next(ids, None)) is not None:
        id_condition, entity_id = by_id
        find_id = compile_constant(entity_id)
        return lambda run: _find_by_id(run, node, find_id(run)), tuple(i for i in conditions if i is not id_condition)
    values: dict[str, Callable[[QueryRun], Any]] = {}
    residual: list[ir.Expr] = []
    for condition in conditions:
        count_before = len(values)
        for column, value in _equal_properties(condition, variable):
            if column.property in node.key and _has_key_type(column, value):
                values.setdefault(column.property, compile_constant(value))
        # A condition that the lookup implies is dropped; a second one on the same column stays, and may contradict it.
        if len(values) == count_before:
            residual.append(condition)
    if not node.key or any(name not in values for name in node.key):
        return None, tuple(conditions)
    return lambda run: _find_by_key(run, node, {name: values[name](run) for name in node.key}), tuple(residual)


def _equal_properties(condition: ir.Expr, variable: str) -> Iterator[tuple[ir.PropertyRef, ir.Expr]]:
    """Yield the properties of a variable that a condition compares for equality, and what it compares them with."""
    for column, value in equal_sides(condition):
        if isinstance(column, ir.PropertyRef) and column.variable == variable:
            yield column, value


def _find_by_id(run: QueryRun, node: NodeType, entity_id: str | None) -> Ids:
    entities = run.nodes(node.name)
    dense_id = -1 if entity_id is None else entities.find(entity_id)
    return np.array([dense_id] if dense_id >= 0 else [], entities.dtype)


def _find_by_key(run: QueryRun, node: NodeType, values: Mapping[str, Any]) -> Ids:
    is_possible = all(value is not None and _fits_key_type(node, name, value) for name, value in values.items())
    return _find_by_id(run, node, key_id(node, values) if is_possible else None)


def _has_key_type(column: ir.PropertyRef, value: ir.Expr) -> bool:
    """True if a value has the key's type, so that equal values give equal ids."""
    if not isinstance(value, ir.Literal | ir.ParameterRef | ir.Now):
        return False
    key_type, value_type = column.type.scalar, value.type.scalar
    return key_type not in FLOATS and (key_type is value_type or (key_type in INTEGERS and value_type in INTEGERS))


def _fits_key_type(node: NodeType, name: str, value: object) -> bool:
    scalar = node.properties[name].type.scalar
    if scalar not in INTEGERS or not isinstance(value, int):
        return True
    low, high = RANGES[scalar]
    return low <= value <= high


_BY_KEY, _BY_EQUALITY, _BY_NOTHING = 2, 1, 0


def choose_start(catalog: Catalog, operators: Sequence[ir.Operator]) -> Sequence[ir.Operator]:
    """Return the operators with each scan moved to the most selective variable within single hops."""
    conditions: dict[str, list[ir.Expr]] = {}
    for operator in operators:
        if isinstance(operator, ir.Filter) and len(used := variables_of(operator.condition)) == 1:
            conditions.setdefault(used.pop(), []).append(operator.condition)

    def selectivity(variable: str, node_type: str, filters: Sequence[ir.Expr]) -> int:
        local = [*(item for item in filters if variables_of(item) == {variable}), *conditions.get(variable, ())]
        if compile_key_lookup(catalog.nodes.get(node_type), variable, local)[0] is not None:
            return _BY_KEY
        is_equal = any(isinstance(item, ir.Compare) and item.op is ir.CompareOp.EQ for item in local)
        return _BY_EQUALITY if is_equal else _BY_NOTHING

    def of_target(hop: ir.Expand) -> int:
        return selectivity(hop.target, hop.target_type, hop.filters)

    reordered = list(operators)
    for scan in [operator for operator in operators if isinstance(operator, ir.NodeScan)]:
        named = [hop for hop in _reachable_hops(scan, operators) if not hop.target.startswith("~")]
        # Ties keep the written order, so that a plan can be predicted from the query.
        best = max(named, key=of_target, default=None)
        if best is not None and of_target(best) > selectivity(scan.variable, scan.node_type, scan.filters):
            reordered = _start_at(scan, best, reordered)
    return reordered


def _reachable_hops(scan: ir.NodeScan, operators: Iterable[ir.Operator]) -> list[ir.Expand]:
    """Return the single hops that lead on from a scan without a gap."""
    reached = {scan.variable}
    walks = []
    for operator in operators:
        if isinstance(operator, ir.Expand) and operator.source in reached and operator.is_single:
            walks.append(operator)
            reached.add(operator.target)
    return walks


def _start_at(scan: ir.NodeScan, best: ir.Expand, operators: Sequence[ir.Operator]) -> list[ir.Operator]:
    """Return the operators with a scan of the best variable, and the walks between it and the scan turned round."""
    by_target = {hop.target: hop for hop in operators if isinstance(hop, ir.Expand)}
    # Single hops form a tree rooted at the scan. Rerooting it reverses the hops between both roots and no others.
    path = [best]
    while path[-1].source != scan.variable:
        path.append(by_target[path[-1].source])
    filters = {scan.variable: scan.filters, **{hop.target: hop.filters for hop in path}}
    reversed_path: list[ir.Operator] = [ir.NodeScan(best.target, best.target_type, best.filters)]
    reversed_path += [
        replace(reverse_walk(hop), filters=filters[hop.source], is_backwards=hop.is_backwards) for hop in path
    ]
    result: list[ir.Operator] = []
    for operator in operators:
        if operator is scan:
            result.extend(reversed_path)
        elif not any(operator is hop for hop in path):
            result.append(operator)
    return result


Bound = set[str]
PlacedOperator = tuple[ir.Operator, tuple[ir.Expr, ...]]


class Planner:
    """Plans the pattern of one query."""

    def __init__(self, catalog: Catalog, *, keeps_roots: bool = False) -> None:
        self._catalog = catalog
        self._keeps_roots = keeps_roots
        self._markers = count()

    def pipeline(
        self, operators: Sequence[ir.Operator], outer: Iterable[str], needed: Iterable[str], *, as_set: bool
    ) -> Pipeline:
        """Return the steps of some operators, for rows that bind `outer`, when `needed` is read afterwards."""
        rooted = operators if self._keeps_roots else choose_start(self._catalog, operators)
        placed = place_filters(rooted, set(outer))
        steps = [self._step(operator, conditions) for operator, conditions in placed]
        self._join(placed, steps, set(outer))
        uses = [_used_variables(operator, conditions) for operator, conditions in placed]
        before = _bound_before(placed, outer)
        live = set(needed)
        outputs = frozenset(live)
        # Liveness analysis, backwards: a variable is kept after a step exactly if a later step or the result reads it.
        for index in reversed(range(len(steps))):
            step, (operator, _) = steps[index], placed[index]
            step.keep = frozenset(live)
            if isinstance(operator, ir.Join):
                self._plan_inner(step, operator, live, before[index])
            elif as_set and isinstance(step, Scan | Expand):
                step.is_existence = _is_existence(step, live)
            live = (live - _defined_variables(operator)) | uses[index]
        fused = _fuse_intersections(steps)
        return Pipeline(fused if self._keeps_roots else fuse_meetings(fused, as_set=as_set), as_set, outputs)

    def _step(self, operator: ir.Operator, conditions: tuple[ir.Expr, ...]) -> PlanStep:
        if isinstance(operator, ir.NodeScan):
            node = self._catalog.nodes.get(operator.node_type)
            find_key, residual = compile_key_lookup(node, operator.variable, conditions)
            compiled = tuple(compile_condition(item) for item in residual)
            return Scan(operator.variable, operator.node_type, compiled, find_key)
        compiled = tuple(compile_condition(item) for item in conditions)
        match operator:
            case ir.Expand():
                if len(conditions) == 1 and (end := closing_variable(operator, conditions[0])) is not None:
                    return ExpandInto(operator, end)
                node = self._catalog.nodes.get(operator.target_type)
                find_target, _ = compile_key_lookup(node, operator.target, conditions)
                return Expand(operator, compiled, find_target=find_target)
            case ir.PathNodes(path=path, variable=variable):
                return PathNodes(path, variable, operator.node_type, compiled)
            case ir.Filter():
                return Filter(compiled)
            case ir.AntiJoin():
                return AntiJoin(self._new_marker())
            case ir.OptionalJoin(bindings=bindings):
                return OptionalJoin(tuple(item.variable for item in bindings), self._new_marker())
            case ir.Unwind(collection=collection, variable=variable):
                return Unwind(compile_value(collection), variable, format_condition(collection))
            case ir.CountJoin(variable=variable, is_existence=is_existence):
                return CountJoin(self._new_marker(), variable, is_existence)

    def _new_marker(self) -> str:
        return f"~row{next(self._markers)}"

    def _join(self, placed: list[PlacedOperator], steps: list[PlanStep], bound: Bound) -> None:
        """Turn scans into lookups by a value shared with the rows, where a filter would compare it anyway."""
        for index, (operator, _) in enumerate(placed):
            step = steps[index]
            if bound and isinstance(step, Scan) and step.find_key is None and index + 1 < len(placed):
                following, conditions = placed[index + 1]
                joins = [compile_join(step.variable, bound, item, format_condition(item)) for item in conditions]
                position = next((n for n, join in enumerate(joins) if join is not None), None)
                if isinstance(following, ir.Filter) and position is not None:
                    step.join = joins[position]
                    other_conditions = conditions[:position] + conditions[position + 1 :]
                    placed[index] = (operator, (*placed[index][1], conditions[position]))
                    placed[index + 1] = (following, other_conditions)
                    steps[index + 1] = self._step(following, other_conditions)
            bound |= _defined_variables(operator)

    def _plan_inner(self, step: PlanStep, operator: ir.Join, live: Bound, bound: Bound) -> None:
        if isinstance(step, AntiJoin | CountJoin):
            # Decorrelation: the inner pattern runs once for all rows, over the distinct values of the one variable that
            # it reads from outside, or over numbered rows where it reads several.
            step.correlated = tuple(sorted(free_variables(operator.inner) & bound))
            needed = step.correlated if len(step.correlated) == 1 else (step.marker,)
            as_set = isinstance(step, AntiJoin) or step.is_existence
            step.inner = self.pipeline(operator.inner, {*step.correlated, *needed}, needed, as_set=as_set)
        elif isinstance(step, OptionalJoin):
            needed_after = {*live, step.marker}
            step.inner = self.pipeline(operator.inner, {*bound, step.marker}, needed_after, as_set=False)


def _fuse_intersections(steps: list[PlanStep]) -> tuple[PlanStep, ...]:
    """Return the steps with each walk and the check right behind it as one, where they can be."""
    # A walk and a check that it closes a cycle are a multiway (worst-case optimal) join of two adjacency lists: the
    # intersection is never larger than the shorter list.
    fused: list[PlanStep] = []
    for step in steps:
        intersection = ExpandIntersect.of(fused[-1], step) if fused else None
        fused[-1:] = [intersection] if intersection is not None else [*fused[-1:], step]
    return tuple(fused)


def compile_condition(condition: ir.Expr) -> Condition:
    searched = tuple(
        (part.field.owner, part.field.property) for part in walk(condition) if isinstance(part, ir.TextMatch)
    )
    return Condition(
        compile_predicate(condition), frozenset(variables_of(condition)), format_condition(condition), searched
    )


def format_condition(condition: ir.Expr) -> str:
    plan = format_plan(ir.ReadIR("", (), (ir.Filter(condition),), (), False, False, None, (), None, None))
    return plan.splitlines()[1].strip().removeprefix("filter ")


def place_filters(operators: Sequence[ir.Operator], outer: Bound) -> list[PlacedOperator]:
    """Return the operators with the conditions that each can check as soon as it is done.

    A condition on exactly what a scan or walk binds goes into it; one on several operators becomes a filter behind
    the last of them.
    """
    patterns = [operator for operator in operators if not isinstance(operator, ir.Filter)]
    # Each condition is checked behind the last of the operators that bind what it reads.
    bound_at = dict.fromkeys(outer, -1)
    for index, operator in enumerate(patterns):
        for name in _defined_variables(operator):
            bound_at.setdefault(name, index)
    ready: dict[int, list[tuple[ir.Expr, set[str]]]] = {}
    for condition in (operator.condition for operator in operators if isinstance(operator, ir.Filter)):
        used = variables_of(condition)
        ready.setdefault(max((bound_at[name] for name in used), default=-1), []).append((condition, used))
    placed: list[PlacedOperator] = _filter_operator([item for item, _ in ready.get(-1, ())])
    for index, operator in enumerate(patterns):
        defined = _defined_variables(operator)
        is_binding = isinstance(operator, ir.NodeScan | ir.Expand | ir.PathNodes)
        local_conditions = list(conditions_of(operator))
        later_conditions: list[ir.Expr] = []
        closing = [item for item, _ in ready.get(index, ()) if closing_variable(operator, item) is not None]
        for item, used in ready.get(index, ()):
            # A walk that closes a cycle checks that alone.
            is_own = item in closing if closing else is_binding and used <= defined
            (local_conditions if is_own else later_conditions).append(item)
        placed.append((operator, tuple(local_conditions)))
        placed.extend(_filter_operator(later_conditions))
    return placed


def _filter_operator(conditions: Sequence[ir.Expr]) -> list[PlacedOperator]:
    return [(ir.Filter(conditions[0]), tuple(conditions))] if conditions else []


def closing_variable(operator: ir.Operator, condition: ir.Expr) -> str | None:
    """Return the bound variable at which a condition makes a hop end, as `ExpandInto` can check; None for others."""
    if not isinstance(operator, ir.Expand) or not operator.target.startswith("~") or not operator.is_single:
        return None
    match condition:
        case ir.Compare(left=ir.NodeRef(variable=target), right=ir.NodeRef(variable=end)) if target == operator.target:
            return end
    return None


def variable_types(operator: ir.Operator) -> dict[str, TypeKey | None]:
    """Return the variables that an operator binds, with their types; hops and paths have none."""
    match operator:
        case ir.NodeScan(variable=variable, node_type=node_type) | ir.PathNodes(variable=variable, node_type=node_type):
            return {variable: TypeKey.of("node", node_type)}
        case ir.Expand():
            types: dict[str, TypeKey | None] = {operator.target: TypeKey.of("node", operator.target_type)}
            if operator.edge_variable is not None:
                types[operator.edge_variable] = TypeKey.of("edge", operator.edge)
            if operator.hops_variable is not None:
                types[operator.hops_variable] = None
            if operator.path is not None:
                types[operator.path.variable] = None
            return types
        case ir.OptionalJoin(bindings=bindings):
            return {
                item.variable: TypeKey.of(item.kind, item.type_name) if item.type_name and item.kind in KINDS else None
                for item in bindings
            }
        case ir.CountJoin(variable=variable) | ir.Unwind(variable=variable):
            return {variable: None}
        case _:
            return {}


def _defined_variables(operator: ir.Operator) -> set[str]:
    return set(variable_types(operator))


def _used_variables(operator: ir.Operator, conditions: Iterable[ir.Expr]) -> set[str]:
    used = {name for item in conditions for name in variables_of(item)}
    if isinstance(operator, ir.Expand):
        used.add(operator.source)
        used |= {operator.path.end} if operator.path is not None and operator.path.end is not None else set()
    elif isinstance(operator, ir.PathNodes):
        used.add(operator.path)
    elif isinstance(operator, ir.Unwind):
        used |= variables_of(operator.collection)
    elif isinstance(operator, ir.Join):
        used |= free_variables(operator.inner)
    return used - _defined_variables(operator)


def conditions_of(operator: ir.Operator) -> tuple[ir.Expr, ...]:
    """Return the conditions that an operator was written with."""
    return (operator.condition,) if isinstance(operator, ir.Filter) else getattr(operator, "filters", ())


def free_variables(operators: Iterable[ir.Operator]) -> set[str]:
    """Return the variables that operators read without binding them."""
    free: set[str] = set()
    bound: set[str] = set()
    for operator in operators:
        free |= _used_variables(operator, conditions_of(operator)) - bound
        bound |= _defined_variables(operator)
    return free


def _bound_before(placed: Sequence[PlacedOperator], outer: Iterable[str]) -> dict[int, set[str]]:
    """Return what is bound before each operator that has operators of its own."""
    bound = set(outer)
    bound_by_index: dict[int, set[str]] = {}
    for index, (operator, _) in enumerate(placed):
        if isinstance(operator, ir.Join):
            bound_by_index[index] = set(bound)
        bound |= _defined_variables(operator)
    return bound_by_index


def _is_existence(step: Scan | Expand, live: Bound) -> bool:
    if isinstance(step, Scan):
        return step.variable not in live and step.join is None
    walk = step.walk
    new_variables = {walk.target, walk.edge_variable, walk.hops_variable}
    return walk.is_single and not step.conditions and not new_variables & live
