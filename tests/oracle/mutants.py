"""Defects that an engine could well have, each as a patch: the oracle must catch every one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest

from omnigraph.engine.query import aggregate as aggregation
from omnigraph.engine.query import (
    expressions,
    functions,
    operators,
    physical_plan,
    projection,
    ranking,
    unwinding,
    vectors,
)
from omnigraph.engine.query.aggregate import KERNELS
from omnigraph.engine.query.compare import compare
from omnigraph.engine.query.expand import Expansion, HopBounds, choose_walker, expand_hops
from omnigraph.engine.query.ordering import sort_keys, top_rows
from omnigraph.engine.query.path_graph import build_path_graph
from omnigraph.engine.query.paths import PathSearch, path_key
from omnigraph.engine.query.ranking import match_text, nearest
from omnigraph.engine.query.vectors import Constant, Numbers
from omnigraph.engine.session import GraphSession
from omnigraph.lang.query import ir
from omnigraph.lang.query.check_context import Scope

Patch = pytest.MonkeyPatch
Mutant = Callable[[Patch], None]


# -- defects of meaning: the engine runs another query than the one it was given -------------------------------


def _rewritten(node: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(node, tuple):
        return tuple(_rewritten(item, change) for item in node)
    if not is_dataclass(node) or isinstance(node, type):
        return node
    parts = {one.name: _rewritten(getattr(node, one.name), change) for one in fields(node)}
    return change(replace(node, **parts))


def meaning(change: Callable[[Any], Any]) -> Mutant:
    """Return a mutant that changes some part of every read before it is run."""

    def apply(patch: Patch) -> None:
        compile_ = GraphSession.compile

        def changed(self: GraphSession, *arguments: Any) -> Any:
            compiled = compile_(self, *arguments)
            return replace(compiled, ir=_rewritten(compiled.ir, change))

        patch.setattr(GraphSession, "compile", changed)

    return apply


def on(kind: type, **changed: Callable[[Any], Any]) -> Mutant:
    """Return a mutant that sets fields of every part of one kind."""

    def change(node: Any) -> Any:
        parts = {name: function(node) for name, function in changed.items()} if isinstance(node, kind) else {}
        return replace(node, **parts)

    return meaning(change)


def _or_as_and(node: Any) -> Any:
    return ir.And(node.conditions) if isinstance(node, ir.Or) else node


def _operator(one: ir.CompareOp, other: ir.CompareOp) -> Mutant:
    return on(ir.Compare, op=lambda node: other if node.op is one else node.op)


def _direction(one: ir.Direction, other: ir.Direction) -> Mutant:
    def turned(node: ir.Expand) -> ir.Direction:
        return other if node.direction is one and node.source_type == node.target_type else node.direction

    return on(ir.Expand, direction=turned)


def _one_hop_more(node: ir.Expand) -> Any:
    return node.maximum + (node.source_type == node.target_type) if isinstance(node.maximum, int) else node.maximum


def _one_way(leg: ir.Leg) -> ir.Direction:
    return ir.Direction.OUT if leg.direction is ir.Direction.BOTH else leg.direction


def _one_more(limit: Any) -> Any:
    return limit + 1 if isinstance(limit, int) else limit


def _without_negations(pipeline: tuple[ir.Operator, ...]) -> tuple[ir.Operator, ...]:
    return tuple(one for one in pipeline if not isinstance(one, ir.AntiJoin))


# -- defects of execution --------------------------------------------------------------------------------------


def null_is_unequal(patch: Patch) -> None:
    def changed(op: ir.CompareOp, *rest: Any) -> Any:
        return ~compare(ir.CompareOp.EQ, *rest) if op is ir.CompareOp.NE else compare(op, *rest)

    patch.setattr(expressions, "compare", changed)


def lossy_numbers(patch: Patch) -> None:
    def widened(side: Any) -> Any:
        if isinstance(side, Numbers) and side.data.dtype.kind in "iu":
            return Numbers(side.data.astype(np.float64), side.valid)
        if isinstance(side, Constant) and isinstance(side.value, int) and not isinstance(side.value, bool):
            return Constant(float(side.value), side.type)
        return side

    patch.setattr(expressions, "compare", lambda op, a, b, count: compare(op, widened(a), widened(b), count))


def parallel_edges_count(patch: Patch) -> None:
    def changed(run: Any, walk: Any, *rest: Any) -> Any:
        return choose_walker(run, replace(walk, edge_variable="edge"), *rest)

    patch.setattr(operators, "choose_walker", changed)


def loops_are_lost(patch: Patch) -> None:
    def changed(run: Any, walker: Any, nodes: Any, *rest: Any) -> Any:
        reached = expand_hops(run, walker, nodes, *rest)
        keep = reached.targets != nodes[reached.rows]
        hops = None if reached.hops is None else reached.hops[keep]
        return Expansion(reached.rows[keep], reached.targets[keep], None, hops)

    patch.setattr(operators, "expand_hops", changed)


def limit_before_order(patch: Patch) -> None:
    def changed(keys: Any, count: int, wanted: int | None, ties: Any) -> Any:
        few = count if wanted is None else min(wanted, count)
        return top_rows([key[:few] for key in keys], few, wanted, ties)

    patch.setattr(projection, "top_rows", changed)


def ties_are_left(patch: Patch) -> None:
    patch.setattr(
        projection, "top_rows", lambda keys, count, wanted, ties: top_rows(keys, count, wanted, lambda places: [])
    )


def nulls_last(patch: Patch) -> None:
    def changed(vector: Any, descending: bool) -> Any:
        nulls = [~vector.valid] if isinstance(vector, Numbers) and vector.valid is not None else []
        return nulls + sort_keys(vector, descending)

    patch.setattr(projection, "sort_keys", changed)


def negation_of_any_row(patch: Patch) -> None:
    def changed(self: Any, run: Any, rows: Any) -> Any:
        marked = rows.only(self.correlated).with_columns({self.marker: np.arange(rows.count)})
        found = self.inner.run(run, marked)
        return rows.where(np.full(rows.count, found.count == 0))

    patch.setattr(operators.AntiJoin, "run", changed)


def optional_is_required(patch: Patch) -> None:
    def changed(self: Any, run: Any, rows: Any) -> Any:
        marked = rows.with_columns({self.marker: np.arange(rows.count)})
        return self.inner.run(run, marked).only(self.keep - {self.marker})

    patch.setattr(operators.OptionalJoin, "run", changed)


def count_counts_nulls(patch: Patch) -> None:
    count = KERNELS["count"]
    changed = replace(count, run=lambda call, vector, groups: count.run(call, None, groups))
    patch.setitem(KERNELS, "count", changed)


def median_takes_nulls_for_zeros(patch: Patch) -> None:
    median = KERNELS["median"]

    def run(call: ir.Aggregate, vector: Any, groups: Any) -> Any:
        return median.run(call, Numbers(vector.data, None) if isinstance(vector, Numbers) else vector, groups)

    patch.setitem(KERNELS, "median", replace(median, run=run))


def mode_takes_the_largest_of_ties(patch: Patch) -> None:
    mode = KERNELS["mode"]

    def run(*given: Any) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(aggregation, "sort_keys", lambda vector, descending: sort_keys(vector, not descending))
            return mode.run(*given)

    patch.setitem(KERNELS, "mode", replace(mode, run=run))


def typing_errors_are_not_forgiven(patch: Patch) -> None:
    def changed(view: Any, node_type: str, name: str, query: str, *rest: Any) -> Any:
        return match_text(view, node_type, name, query, "search")

    patch.setattr(ranking, "match_text", changed)


def nearest_forgets_its_filter(patch: Patch) -> None:
    patch.setattr(
        ranking,
        "nearest",
        lambda view, type_, name, query, among, limit: nearest(view, type_, name, query, None, limit),
    )


def loops_follow_the_walk(patch: Patch) -> None:
    def changed(run: Any, walker: Any, nodes: Any, node_count: int, bounds: HopBounds, *rest: Any) -> Any:
        return expand_hops(run, walker, nodes, node_count, bounds._replace(is_backwards=False), *rest)

    patch.setattr(operators, "expand_hops", changed)


def weights_are_ignored(patch: Patch) -> None:
    def changed(adjacency: Any, edges: Any, weight: str | None) -> Any:
        return build_path_graph(adjacency, edges, None)

    patch.setattr(operators, "build_path_graph", changed)


def paths_tie_in_reverse(patch: Patch) -> None:
    search = PathSearch.search

    def changed(self: Any, starts: Any, *rest: Any) -> Any:
        return search(replace(self, ranks=self.ranks.max(initial=0) - self.ranks), starts, *rest)

    patch.setattr(PathSearch, "search", changed)


def values_of_the_next_row(patch: Patch) -> None:
    def changed(run: Any, variable: str, row_indices: Any, *_: Any) -> Any:
        values = run.scratch[expressions.source_key(variable)]
        count = len(values.data if isinstance(values, Numbers) else values.array)
        return values.take((row_indices + 1) % max(count, 1))

    patch.setattr(expressions, "source_values", changed)


def missing_entities_are_dropped(patch: Patch) -> None:
    rows = physical_plan.Source.rows

    def changed(self: Any, run: Any) -> Any:
        found = rows(self, run)
        present = [found.columns[name] >= 0 for name in self.tables]
        return found.where(np.logical_and.reduce([np.ones(found.count, np.bool_), *present]))

    patch.setattr(physical_plan.Source, "rows", changed)


def paths_lose_their_first_node(patch: Patch) -> None:
    run_ = operators.PathNodes.run

    def changed(self: Any, run: Any, rows: Any) -> Any:
        table = run.scratch.get(path_key(self.path))
        if table is not None:
            nodes = np.where(np.isin(np.arange(len(table.nodes)), table.offsets[:-1]), table.nodes[0], table.nodes)
            run.scratch[path_key(self.path)] = replace(table, nodes=nodes)
        return run_(self, run, rows)

    patch.setattr(operators.PathNodes, "run", changed)


def _distinct_source(node: ir.ReadIR) -> Any:
    is_stage = isinstance(node.source, ir.ReadIR) and not node.source.is_grouped and not node.source.distinct_on
    return replace(node.source, is_distinct=True) if is_stage else node.source  # type: ignore[type-var]


def last_element_is_lost(patch: Patch) -> None:
    run_ = unwinding.Unwind.run

    def changed(self: Any, run: Any, rows: Any) -> Any:
        found = run_(self, run, rows)
        return found.where(np.arange(found.count) < found.count - 1)

    patch.setattr(unwinding.Unwind, "run", changed)


def narrower_types_are_unseen(patch: Patch) -> None:
    patch.setattr(Scope, "narrow", lambda self, name, type_name: None)


def unknown_is_false(patch: Patch) -> None:
    patch.setattr(expressions, "refute", lambda *given: ~compare(*given))


def implemented(name: str, other: Callable[..., Any]) -> Mutant:
    """Return a mutant that computes one function in another way."""

    def apply(patch: Patch) -> None:
        right = functions.IMPLEMENTATIONS[name]
        patch.setitem(functions.IMPLEMENTATIONS, name, lambda *given: other(right, *given))

    return apply


def _renamed(one: str, other: str) -> Mutant:
    def change(node: ir.Call) -> str:
        return other if node.function == one and len(node.arguments) == (2 if one in "+-" else 1) else node.function

    return on(ir.Call, function=change)


def _floored_remainder(right: Any, arguments: Any, type_: Any, count: int) -> Any:
    result = right(arguments, type_, count)
    (divisor, _) = vectors.numbers(arguments[1])
    with np.errstate(all="ignore"):
        return Numbers(np.mod(result.data, divisor.astype(result.data.dtype)), result.valid)


def _infinite_quotient(right: Any, arguments: Any, type_: Any, count: int) -> Any:
    return Numbers(right(arguments, type_, count).data, None)


def _from_one(right: Any, arguments: Any, type_: Any, count: int) -> Any:
    start = vectors.to_arrow_plain(arguments[1], count)
    return right([arguments[0], vectors.vector_from_arrow(pc.subtract(start, 1)), *arguments[2:]], type_, count)


def _calendar_forgotten(right: Any, arguments: Any, type_: Any, count: int) -> Any:
    unit = arguments[2]
    days = {"month": 30, "quarter": 91, "year": 365}.get(unit.value)
    if days is None:
        return right(arguments, type_, count)
    amount = vectors.materialize(arguments[1], count)
    assert isinstance(amount, Numbers)
    return right([arguments[0], Numbers(amount.data * days, amount.valid), Constant("day", unit.type)], type_, count)


def _other_end(node: ir.PropertyRef) -> str:
    ends = {"src": "dst", "dst": "src"} if node.owner_kind == "edge" else {}
    return ends.get(node.property, node.property)


def ids_of_another_entity(patch: Patch) -> None:
    stored_column = expressions.stored_column

    def changed(expression: Any) -> Any:
        key, name = stored_column(expression)
        is_field = isinstance(expression, ir.PropertyRef) and name == "id" and key.kind == "edge"
        return key, "src" if is_field else name

    patch.setattr(expressions, "stored_column", changed)


def _coalesce_backwards(node: Any) -> Any:
    return node.arguments[::-1] if node.function == "coalesce" else node.arguments


MUTANTS: Mapping[str, Mutant] = {
    "the last element of a list is lost": last_element_is_lost,
    "one row more of each group": on(ir.GroupLimit, count=lambda node: _one_more(node.count)),
    "a group is told apart by its first key": on(ir.GroupLimit, keys=lambda node: node.keys[:1]),
    "exists is always true": on(ir.CountJoin, inner=lambda node: ()),
    "count is whether": on(ir.CountJoin, is_existence=lambda node: True),
    "a walk does not see the narrower type of its end": narrower_types_are_unseen,
    "a with returns equal rows once": on(ir.ReadIR, source=_distinct_source),
    "a with takes the values of another row": values_of_the_next_row,
    "a with drops what is missing": missing_entities_are_dropped,
    "a union forgets its last block": on(ir.Union, parts=lambda node: node.parts[:-1]),
    "a path loses its first node": paths_lose_their_first_node,
    "all means any": on(ir.Quantifier, function=lambda node: "any"),
    "having is ignored": on(ir.ReadIR, having=lambda node: None),
    "distinct on is ignored": on(ir.ReadIR, distinct_on=lambda node: ()),
    "distinct values count twice": on(ir.Aggregate, is_distinct=lambda node: False),
    "the opposite of unknown is true": unknown_is_false,
    "a difference is a sum": _renamed("-", "+"),
    "upper case is lower case": _renamed("upper", "lower"),
    "a remainder has the sign of the divisor": implemented("%", _floored_remainder),
    "division by zero is no null": implemented("/", _infinite_quotient),
    "positions count from one": implemented("substring", _from_one),
    "every month has thirty days": implemented("date_add", _calendar_forgotten),
    "coalesce takes the last": on(ir.Call, arguments=_coalesce_backwards),
    "the last branch of a case wins": on(ir.Case, branches=lambda node: node.branches[::-1]),
    "a case without a match takes its first value": on(ir.Case, otherwise=lambda node: node.branches[0][1]),
    "an end may be anywhere": _operator(ir.CompareOp.ENDS_WITH, ir.CompareOp.STRING_CONTAINS),
    "not in means in": meaning(
        lambda node: node.condition if isinstance(node, ir.Not) and isinstance(node.condition, ir.In) else node
    ),
    "null is unequal to everything": null_is_unequal,
    "integers compare as floats": lossy_numbers,
    "parallel edges count": parallel_edges_count,
    "a loop is lost": loops_are_lost,
    "a loop counts where the walk ends, not where it is written to end": loops_follow_the_walk,
    "limit before order": limit_before_order,
    "ties are left as they come": ties_are_left,
    "nulls come last": nulls_last,
    "a negation looks at all rows at once": negation_of_any_row,
    "optional is required": optional_is_required,
    "count counts nulls": count_counts_nulls,
    "a median takes nulls for zeros": median_takes_nulls_for_zeros,
    "a mode takes the largest of ties": mode_takes_the_largest_of_ties,
    "fuzzy forgives nothing": typing_errors_are_not_forgiven,
    "nearest forgets its filter": nearest_forgets_its_filter,
    "one hop more": on(ir.Expand, maximum=_one_hop_more),
    "nearer nodes are not left out": on(ir.Expand, minimum=lambda node: min(node.minimum, 1)),
    "an open range ends after two hops": on(ir.Expand, maximum=lambda node: node.maximum or 2),
    "the last alternative is forgotten": on(ir.Expand, legs=lambda node: node.legs[:-1] or node.legs),
    "paths by weight count hops": weights_are_ignored,
    "paths tie in reverse": paths_tie_in_reverse,
    "one path less": on(ir.Path, count=lambda node: max(node.count - 1, 1) if isinstance(node.count, int) else 1),
    "all shortest is any shortest": on(ir.Path, is_all=lambda node: False),
    "any way is one way": on(ir.Leg, direction=_one_way),
    "undirected is directed": _direction(ir.Direction.BOTH, ir.Direction.OUT),
    "directed is undirected": _direction(ir.Direction.OUT, ir.Direction.BOTH),
    "backwards is forwards": _direction(ir.Direction.IN, ir.Direction.OUT),
    "a match of the target is forgotten": on(ir.Expand, filters=lambda node: ()),
    "or means and": meaning(_or_as_and),
    "at most means less": _operator(ir.CompareOp.LE, ir.CompareOp.LT),
    "starts_with means contains": _operator(ir.CompareOp.STARTS_WITH, ir.CompareOp.STRING_CONTAINS),
    "is null is always asked": on(ir.IsNull, negated=lambda node: False),
    "the ends of an edge are swapped": on(ir.PropertyRef, property=_other_end),
    "ids are those of another entity": ids_of_another_entity,
    "descending is ignored": on(ir.OrderKey, descending=lambda node: False),
    "distinct is ignored": on(ir.ReadIR, is_distinct=lambda node: False),
    "skip is ignored": on(ir.ReadIR, skip=lambda node: None),
    "limit is one too large": on(ir.ReadIR, limit=lambda node: _one_more(node.limit)),
    "the second order key is ignored": on(ir.ReadIR, order=lambda node: node.order[:1]),
    "the smallest is the largest": on(ir.Aggregate, function=lambda node: node.function.replace("min", "max")),
    "negations are ignored": on(ir.ReadIR, pipeline=lambda node: _without_negations(node.pipeline)),
}

# What a query must contain for some defects to show, as a regular expression; nearly all others pass them.
CONSTRUCTS: Mapping[str, str] = {
    "the last element of a list is lost": "unwind",
    "a median takes nulls for zeros": r"median\(",
    "a mode takes the largest of ties": r"mode\(",
    "one row more of each group": " per ",
    "a group is told apart by its first key": r" per \{[^}]*,",
    "exists is always true": "exists",
    "count is whether": r"count \{",
    "a walk does not see the narrower type of its end": r"(?:not|optional) \{ \$(\w): (?:City|Person)  \$\1 [lv]i",
    "a with returns equal rows once": r"with \{",
    "a with takes the values of another row": r" as \$.*\} .*\n.*match",
    "a with drops what is missing": r"(?s)optional.*with",
    "a union forgets its last block": "union",
    "a path loses its first node": "in nodes",
    "all means any": r"all\(",
    "having is ignored": "having",
    "distinct on is ignored": "distinct on",
    "distinct values count twice": r"\(distinct",
    "the opposite of unknown is true": r"not \(",
    "a difference is a sum": " - ",
    "upper case is lower case": r"upper\(",
    "a remainder has the sign of the divisor": " % ",
    "division by zero is no null": " / ",
    "positions count from one": r"substring\(",
    "every month has thirty days": r"date_add\(",
    "coalesce takes the last": r"coalesce\(",
    "the last branch of a case wins": "case",
    "a case without a match takes its first value": "case",
    "an end may be anywhere": "ends_with",
    "not in means in": "not in",
    "a loop counts where the walk ends, not where it is written to end": "<",
    "nulls come last": "order",
    "count counts nulls": r"count\(\$\w+\.",
    "fuzzy forgives nothing": "fuzzy",
    "nearest forgets its filter": "nearest",
    "an open range ends after two hops": ",}",
    "paths by weight count hops": "by toll",
    "paths tie in reverse": "path",
    "one path less": "shortest",
    "all shortest is any shortest": "all shortest",
    "any way is one way": "<",
    "undirected is directed": r"<\w+>",
    "a match of the target is forgotten": r": \w+ \{",
    "or means and": " or ",
    "at most means less": "<=",
    "starts_with means contains": "starts_with",
    "is null is always asked": "is not null",
    "descending is ignored": "desc",
    "distinct is ignored": "distinct",
    "skip is ignored": "skip",
    "limit is one too large": "limit",
    "the second order key is ignored": "order .*,",
    "the smallest is the largest": r"min\(",
    "negations are ignored": r"not \{",
}
