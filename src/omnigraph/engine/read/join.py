"""Joins by value: which rows and which nodes agree in a property, without making every combination first.

Works on vectors alone; sides of one kind of value only, so that equality is that of codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engine.read.adjacency import Adjacency
from omnigraph.engine.read.expressions import Evaluate, compile_value, variables_of
from omnigraph.engine.read.vectors import Constant, Numbers, Texts, Vector
from omnigraph.engine.read.walker import Located
from omnigraph.lang.query import ir
from omnigraph.lang.types import INTEGERS, Scalar


@dataclass(frozen=True)
class Join:
    """A property of the scanned nodes that must equal a property of the rows so far."""

    own: Evaluate
    other: Evaluate
    text: str


def compile_join(variable: str, bound: set[str], condition: ir.Expr, text: str) -> Join | None:
    """Return a condition as a join of a scan, or None when it is not one."""
    if not isinstance(condition, ir.Compare) or condition.op is not ir.CompareOp.EQ:
        return None
    sides = (condition.left, condition.right)
    for own, other in (sides, sides[::-1]):
        is_pair = isinstance(own, ir.PropertyRef) and isinstance(other, ir.PropertyRef)
        if is_pair and variables_of(own) == {variable} and variables_of(other) <= bound and _is_one_kind(own, other):
            return Join(compile_value(own), compile_value(other), text)
    return None


def _is_one_kind(own: ir.Expr, other: ir.Expr) -> bool:
    assert own.type is not None
    assert other.type is not None
    first, second = own.type, other.type
    if first.is_list or second.is_list:
        return False
    # The largest unsigned integers do not fit beside signed ones, so they are compared pair by pair.
    narrow = INTEGERS - {Scalar.U64}
    kinds = {Scalar.STRING, Scalar.DATE, Scalar.DATETIME, Scalar.BOOL}
    return (first.scalar in narrow and second.scalar in narrow) or (first.scalar is second.scalar in kinds)


def locate_equal(left: Vector, right: Vector) -> Located:
    """Return, for each left value, where the equal right values are; a null equals nothing."""
    codes, left_count = _codes(left, right)
    lefts, rights = codes[:left_count], codes[left_count:]
    places = np.flatnonzero(rights >= 0)
    order = places[np.argsort(rights[places], kind="stable")]
    size = int(codes.max(initial=-1)) + 1
    counts = np.append(np.bincount(rights[places], minlength=size), 0)
    starts = np.concatenate([[0], np.cumsum(counts)])
    # The extra last place is what a null code reads, and nothing is there.
    return Located(Adjacency(starts, order, None, len(rights)), starts[:-1][lefts], counts[lefts])


def _codes(left: Vector, right: Vector) -> tuple[npt.NDArray[np.int64], int]:
    if isinstance(left, Texts) and isinstance(right, Texts):
        both: Any = pa.chunked_array([left.array, right.array]).combine_chunks().dictionary_encode()
        codes = both.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        return codes, len(left.array)
    assert not isinstance(left, Constant)
    assert isinstance(left, Numbers)
    assert isinstance(right, Numbers)
    data = np.concatenate([left.data.astype(np.int64), right.data.astype(np.int64)])
    codes = np.unique(data, return_inverse=True)[1].astype(np.int64)
    return np.where(np.concatenate([_valid(left), _valid(right)]), codes, -1), len(left.data)


def _valid(numbers: Numbers) -> npt.NDArray[np.bool_]:
    return np.ones(len(numbers.data), np.bool_) if numbers.valid is None else numbers.valid
