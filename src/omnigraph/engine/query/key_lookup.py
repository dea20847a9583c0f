"""Key lookup: when a scan asks for one exact key, the node is found by its id and nothing is scanned.

The id of a keyed node is a function of its key, so equality on all key properties is equality of ids.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from omnigraph.engine.query.context import Run
from omnigraph.engine.query.expressions import Evaluate, compile_value
from omnigraph.engine.query.operators import FindKey
from omnigraph.engine.query.vectors import UNIT, Constant, Ids
from omnigraph.lang.catalog import FLOATS, INTEGERS, NodeType
from omnigraph.lang.query import ir
from omnigraph.lang.schema.key_ids import key_id


def compile_key(
    node: NodeType, variable: str, conditions: Sequence[ir.Expr]
) -> tuple[FindKey | None, tuple[ir.Expr, ...]]:
    """Return how to find the one node that the conditions allow, if they name its whole key, and what else they ask."""
    values: dict[str, Evaluate] = {}
    others: list[ir.Expr] = []
    for condition in conditions:
        known = len(values)
        if isinstance(condition, ir.Compare) and condition.op is ir.CompareOp.EQ:
            sides = (condition.left, condition.right)
            for place, value in (sides, sides[::-1]):
                if _is_key_of(node, variable, place) and _is_exact(place, value):
                    assert isinstance(place, ir.PropertyRef)
                    values.setdefault(place.property, compile_value(value))
        if len(values) == known:
            others.append(condition)
    if not node.key or any(name not in values for name in node.key):
        return None, tuple(conditions)
    wanted = [(name, values[name]) for name in node.key]
    return lambda run: _find(run, node, wanted), tuple(others)


def _is_key_of(node: NodeType, variable: str, place: ir.Expr) -> bool:
    return isinstance(place, ir.PropertyRef) and place.variable == variable and place.property in node.key


def _is_exact(place: ir.Expr, value: ir.Expr) -> bool:
    """Tell whether a value has the key's own type, so that equal values have equal spellings."""
    if not isinstance(value, ir.Literal | ir.ParameterRef | ir.Now) or place.type is None:
        return False
    wanted, given = place.type.scalar, value.type.scalar
    return wanted not in FLOATS and (wanted is given or (wanted in INTEGERS and given in INTEGERS))


def _find(run: Run, node: NodeType, wanted: Sequence[tuple[str, Evaluate]]) -> Ids:
    entities = run.nodes(node.name)
    values: dict[str, object] = {}
    for name, evaluate in wanted:
        vector = evaluate(run, UNIT)
        assert isinstance(vector, Constant)
        if vector.value is None or not _fits(node, name, vector.value):
            return np.empty(0, entities.dtype)
        values[name] = vector.value
    place = entities.find(key_id(node, values))
    return np.array([place] if place >= 0 else [], entities.dtype)


def _fits(node: NodeType, name: str, value: object) -> bool:
    scalar = node.properties[name].type.scalar
    if scalar not in INTEGERS or not isinstance(value, int):
        return True
    bits = int(scalar.value[1:])
    if scalar.value.startswith("U"):
        return 0 <= value < 1 << bits
    return -(1 << (bits - 1)) <= value < 1 << (bits - 1)
