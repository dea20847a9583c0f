"""Hash join of a scan with the rows so far, on properties that must be equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engine.query.adjacency import Adjacency
from omnigraph.engine.query.expand import NeighbourRanges
from omnigraph.engine.query.expressions import Evaluate, compile_value, variables_of
from omnigraph.engine.query.vectors import Constant, Numbers, Strings, Vector
from omnigraph.lang.catalog import INTEGERS, Scalar
from omnigraph.lang.query import ir


@dataclass(frozen=True)
class Join:
    """A property of the scanned nodes that must equal a property of the rows so far."""

    scanned: Evaluate
    bound: Evaluate
    text: str


def compile_join(variable: str, bound: set[str], condition: ir.Expr, text: str) -> Join | None:
    """Return a condition as a join of a scan, or None when it is not one."""
    if not isinstance(condition, ir.Compare) or condition.op is not ir.CompareOp.EQ:
        return None
    sides = (condition.left, condition.right)
    for scanned, bound_side in (sides, sides[::-1]):
        is_pair = isinstance(scanned, ir.PropertyRef) and isinstance(bound_side, ir.PropertyRef | ir.ValueRef)
        if (
            is_pair
            and variables_of(scanned) == {variable}
            and variables_of(bound_side) <= bound
            and _is_joinable(scanned, bound_side)
        ):
            return Join(compile_value(scanned), compile_value(bound_side), text)
    return None


def _is_joinable(scanned: ir.Expr, bound_side: ir.Expr) -> bool:
    assert scanned.type is not None
    assert bound_side.type is not None
    first, second = scanned.type, bound_side.type
    if first.is_list or second.is_list:
        return False
    # The largest unsigned integers do not fit beside signed ones, so they are compared pair by pair.
    narrow = INTEGERS - {Scalar.U64}
    kinds = {Scalar.STRING, Scalar.DATE, Scalar.DATETIME, Scalar.BOOL}
    return (first.scalar in narrow and second.scalar in narrow) or (first.scalar is second.scalar in kinds)


def hash_join(left: Vector, right: Vector) -> NeighbourRanges:
    """Return, for each left value, where the equal right values are; a null equals nothing."""
    codes, left_count = _join_codes(left, right)
    lefts, rights = codes[:left_count], codes[left_count:]
    non_null = np.flatnonzero(rights >= 0)
    order = non_null[np.argsort(rights[non_null], kind="stable")]
    size = int(codes.max(initial=-1)) + 1
    counts = np.append(np.bincount(rights[non_null], minlength=size), 0)
    starts = np.concatenate([[0], np.cumsum(counts)])
    # The extra last place is what a null code reads, and nothing is there.
    return NeighbourRanges(Adjacency(starts, order, None, len(rights)), starts[:-1][lefts], counts[lefts])


def _join_codes(left: Vector, right: Vector) -> tuple[npt.NDArray[np.int64], int]:
    if isinstance(left, Strings) and isinstance(right, Strings):
        both: Any = pa.chunked_array([left.array, right.array]).combine_chunks().dictionary_encode()
        codes = both.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        return codes, len(left.array)
    assert not isinstance(left, Constant)
    assert isinstance(left, Numbers)
    assert isinstance(right, Numbers)
    data = np.concatenate([left.data.astype(np.int64), right.data.astype(np.int64)])
    codes = np.unique(data, return_inverse=True)[1].astype(np.int64)
    return np.where(np.concatenate([left.valid_mask, right.valid_mask]), codes, -1), len(left.data)
