"""Point lookup: a scan with equality on the whole key becomes a lookup by id.

The id of a keyed node is a function of its key, so equality on all key properties is equality of ids.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from omnigraph.engine.query.context import QueryRun
from omnigraph.engine.query.expressions import Evaluate, compile_value
from omnigraph.engine.query.operators import KeyLookup
from omnigraph.engine.query.vectors import UNIT_ROW, Constant, Ids
from omnigraph.lang.catalog import FLOATS, INTEGERS, NodeType
from omnigraph.lang.query import ir
from omnigraph.lang.schema.key_ids import key_id


def compile_key_lookup(
    node: NodeType, variable: str, conditions: Sequence[ir.Expr]
) -> tuple[KeyLookup | None, tuple[ir.Expr, ...]]:
    """Return how to find the one node that the conditions allow, if they name its whole key, and what else they ask."""
    values: dict[str, Evaluate] = {}
    residual: list[ir.Expr] = []
    for condition in conditions:
        count_before = len(values)
        if isinstance(condition, ir.Compare) and condition.op is ir.CompareOp.EQ:
            sides = (condition.left, condition.right)
            for column, value in (sides, sides[::-1]):
                if _is_key_of(node, variable, column) and _has_key_type(column, value):
                    assert isinstance(column, ir.PropertyRef)
                    values.setdefault(column.property, compile_value(value))
        if len(values) == count_before:
            residual.append(condition)
    if not node.key or any(name not in values for name in node.key):
        return None, tuple(conditions)
    key_values = [(name, values[name]) for name in node.key]
    return lambda run: _find_by_key(run, node, key_values), tuple(residual)


def _is_key_of(node: NodeType, variable: str, column: ir.Expr) -> bool:
    return isinstance(column, ir.PropertyRef) and column.variable == variable and column.property in node.key


def _has_key_type(column: ir.Expr, value: ir.Expr) -> bool:
    """True if a value has the key's type, so that equal values give equal ids."""
    if not isinstance(value, ir.Literal | ir.ParameterRef | ir.Now) or column.type is None:
        return False
    key_type, value_type = column.type.scalar, value.type.scalar
    return key_type not in FLOATS and (key_type is value_type or (key_type in INTEGERS and value_type in INTEGERS))


def _find_by_key(run: QueryRun, node: NodeType, key_values: Sequence[tuple[str, Evaluate]]) -> Ids:
    entities = run.nodes(node.name)
    values: dict[str, object] = {}
    for name, evaluate in key_values:
        vector = evaluate(run, UNIT_ROW)
        assert isinstance(vector, Constant)
        if vector.value is None or not _fits_key_type(node, name, vector.value):
            return np.empty(0, entities.dtype)
        values[name] = vector.value
    dense_id = entities.find(key_id(node, values))
    return np.array([dense_id] if dense_id >= 0 else [], entities.dtype)


def _fits_key_type(node: NodeType, name: str, value: object) -> bool:
    scalar = node.properties[name].type.scalar
    if scalar not in INTEGERS or not isinstance(value, int):
        return True
    bits = int(scalar.value[1:])
    if scalar.value.startswith("U"):
        return 0 <= value < 1 << bits
    return -(1 << (bits - 1)) <= value < 1 << (bits - 1)
