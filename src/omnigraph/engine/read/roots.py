"""Roots: where a pattern is best entered.

Pure. A pattern of single hops means the same from every end, so it starts at the variable that its conditions narrow
down most, not at the one that was written first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from omnigraph.engine.read.expressions import variables_of
from omnigraph.engine.read.keys import compile_key
from omnigraph.lang.catalog import Catalog
from omnigraph.lang.query import ir

_REVERSED: Final = {
    ir.Direction.OUT: ir.Direction.IN, ir.Direction.IN: ir.Direction.OUT, ir.Direction.BOTH: ir.Direction.BOTH,
}  # fmt: skip
_BY_KEY, _BY_EQUALITY, _BY_NOTHING = 2, 1, 0


def reroot(catalog: Catalog, operators: Sequence[ir.Operator]) -> Sequence[ir.Operator]:
    """Return the operators with each scan moved to the best variable that single hops join it to."""
    conditions: dict[str, list[ir.Expr]] = {}
    for operator in operators:
        if isinstance(operator, ir.Filter) and len(used := variables_of(operator.condition)) == 1:
            conditions.setdefault(used.pop(), []).append(operator.condition)
    moved = list(operators)
    for scan in [operator for operator in operators if isinstance(operator, ir.NodeScan)]:
        best = _best(catalog, scan, _tree(scan, operators), conditions)
        if best is not None:
            moved = _moved(scan, best, moved)
    return moved


def _tree(scan: ir.NodeScan, operators: Iterable[ir.Operator]) -> list[ir.Expand]:
    """Return the single hops that lead on from a scan without a gap."""
    reached = {scan.variable}
    walks = []
    for operator in operators:
        if isinstance(operator, ir.Expand) and operator.source in reached and operator.minimum == operator.maximum == 1:
            walks.append(operator)
            reached.add(operator.target)
    return walks


def _best(
    catalog: Catalog, scan: ir.NodeScan, walks: Sequence[ir.Expand], conditions: Mapping[str, Sequence[ir.Expr]]
) -> ir.Expand | None:
    """Return the walk to the variable to start from; None when the scan is as good as any.

    `conditions` are those that read one variable alone, by that variable.
    """
    most = _narrowness(catalog, scan.variable, scan.node_type, scan.filters, conditions)
    best = None
    for walk in walks:
        if walk.target.startswith("~"):
            continue
        found = _narrowness(catalog, walk.target, walk.target_type, walk.filters, conditions)
        if found > most:
            most, best = found, walk
    return best


def _narrowness(
    catalog: Catalog,
    variable: str,
    node_type: str,
    filters: Sequence[ir.Expr],
    conditions: Mapping[str, Sequence[ir.Expr]],
) -> int:
    own = [*(item for item in filters if variables_of(item) == {variable}), *conditions.get(variable, ())]
    if compile_key(catalog.nodes[node_type], variable, own)[0] is not None:
        return _BY_KEY
    is_equal = any(isinstance(item, ir.Compare) and item.op is ir.CompareOp.EQ for item in own)
    return _BY_EQUALITY if is_equal else _BY_NOTHING


def _moved(scan: ir.NodeScan, best: ir.Expand, operators: Sequence[ir.Operator]) -> list[ir.Operator]:
    """Return the operators with a scan of the best variable, and the walks between it and the scan turned round."""
    by_target = {walk.target: walk for walk in operators if isinstance(walk, ir.Expand)}
    path = [best]
    while path[-1].source != scan.variable:
        path.append(by_target[path[-1].source])
    filters = {scan.variable: scan.filters, **{walk.target: walk.filters for walk in path}}
    turned: list[ir.Operator] = [ir.NodeScan(best.target, best.target_type, best.filters)]
    turned += [
        replace(
            walk,
            source=walk.target,
            source_type=walk.target_type,
            target=walk.source,
            target_type=walk.source_type,
            direction=_REVERSED[walk.direction],
            filters=filters[walk.source],
        )
        for walk in path
    ]
    result: list[ir.Operator] = []
    for operator in operators:
        if operator is scan:
            result.extend(turned)
        elif not any(operator is walk for walk in path):
            result.append(operator)
    return result
