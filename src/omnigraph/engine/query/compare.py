"""Vectorised comparisons: row masks that are exact for any pair of numeric types.

`compare` says where a comparison is true and `refute` where it is false; with a null on either side it is neither.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.arguments import Value
from omnigraph.engine.query.vectors import (
    Constant,
    Lists,
    Mask,
    Numbers,
    Strings,
    Vector,
    flag_positions,
    is_null_constant,
)
from omnigraph.errors import DataError
from omnigraph.lang.query.ir import CompareOp
from omnigraph.limits import REGEX_CHARACTERS_MAX, SHOWN_CHARACTERS_MAX

Op = CompareOp
# On two values, on numpy arrays and on columns of Spark.
COMPARISONS: Final[Mapping[CompareOp, Callable[[Any, Any], Any]]] = {
    Op.EQ: operator.eq, Op.NE: operator.ne, Op.LT: operator.lt, Op.LE: operator.le, Op.GT: operator.gt,
    Op.GE: operator.ge,
}  # fmt: skip
_ARROW: Final[Mapping[CompareOp, Callable[[Any, Any], Any]]] = {
    Op.EQ: pc.equal, Op.NE: pc.not_equal, Op.LT: pc.less, Op.LE: pc.less_equal, Op.GT: pc.greater,
    Op.GE: pc.greater_equal,
}  # fmt: skip
MIRRORED: Final = {Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE, Op.EQ: Op.EQ, Op.NE: Op.NE}
_STRING_METHODS: Final[Mapping[CompareOp, Callable[[Any, Any], bool]]] = {
    Op.STARTS_WITH: str.startswith, Op.ENDS_WITH: str.endswith, Op.STRING_CONTAINS: operator.contains,
}  # fmt: skip


def compare(op: CompareOp, left: Vector, right: Vector, count: int) -> Mask:
    """Return where the comparison is true; a null on either side never is."""
    if is_null_constant(left) or is_null_constant(right):
        return np.zeros(count, np.bool_)
    if op is Op.CONTAINS:
        return _list_contains(left, right, count)
    if isinstance(left, Constant) and isinstance(right, Constant):
        return np.full(count, _compare_constants(op, left.value, right.value))
    if isinstance(left, Strings) or isinstance(right, Strings):
        return _match_strings(op, left, right) if op in _STRING_TESTS else _compare_strings(op, left, right)
    if isinstance(left, Constant):
        left, right, op = right, left, MIRRORED[op]
    assert isinstance(left, Numbers)
    if isinstance(right, Constant):
        return mask_nulls(compare_constant(op, left.data, right.value), left.valid)
    assert isinstance(right, Numbers)
    true = _compare_numbers(op, left.data, right.data)
    return mask_nulls(mask_nulls(true, left.valid), right.valid)


def refute(op: CompareOp, left: Vector, right: Vector, count: int) -> Mask:
    """Return where the comparison is false; a null on either side leaves it unknown."""
    if is_null_constant(left) or is_null_constant(right):
        return np.zeros(count, np.bool_)
    false = ~compare(op, left, right, count)
    for side in (left, right):
        false = mask_nulls(false, validity(side))
    return false


def validity(vector: Vector) -> Mask | None:
    """Return which values of a vector are not null; None if all are."""
    if isinstance(vector, Constant):
        return None
    if isinstance(vector, Numbers):
        return vector.valid
    return mask_from_arrow(vector.array.is_valid()) if vector.array.null_count else None


def mask_nulls(true: Mask, valid: Mask | None) -> Mask:
    """Clear the mask where the value is null."""
    return true if valid is None else true & valid


def mask_from_arrow(array: Any) -> Mask:
    """Return a boolean Arrow array as a mask in which null is false."""
    if array.null_count:
        array = array.fill_null(False)
    mask: Mask = array.to_numpy(zero_copy_only=False)
    return mask


def _compare_constants(op: CompareOp, left: Any, right: Any) -> bool:
    if op is Op.MATCHES:
        return bool(mask_from_arrow(match_pattern(pa.array([left], pa.string()), right))[0])
    return bool((_STRING_METHODS.get(op) or COMPARISONS[op])(left, right))


def match_pattern(strings: Any, pattern: str) -> Any:
    """Return where a regular expression (RE2) finds something; raises DataError if it is malformed."""
    if len(pattern) > REGEX_CHARACTERS_MAX:
        message = f"the pattern of `matches` has {len(pattern):,} characters; the limit is {REGEX_CHARACTERS_MAX:,}"
        raise DataError(message, rule="E4", pattern=pattern[:SHOWN_CHARACTERS_MAX])
    try:
        return pc.match_substring_regex(strings, pattern=pattern)
    except pa.ArrowInvalid as error:
        reason = str(error).partition(": ")[2] or str(error)
        message = f"`{pattern}` is not a regular expression: {reason}; `matches` takes the syntax of RE2"
        raise DataError(message, rule="E4", pattern=pattern) from None


# -- strings ---------------------------------------------------------------------------------------------------


def _compare_strings(op: CompareOp, left: Vector, right: Vector) -> Mask:
    sides: list[Any] = [left, right]
    operands = [pa.scalar(side.value, pa.string()) if isinstance(side, Constant) else side.array for side in sides]
    return mask_from_arrow(_ARROW[op](*operands))


def _match_strings(op: CompareOp, left: Vector, right: Vector) -> Mask:
    if isinstance(right, Constant):
        assert isinstance(left, Strings)
        assert isinstance(right.value, str)
        return mask_from_arrow(_STRING_TESTS[op](left.array, right.value))
    assert isinstance(right, Strings)
    assert isinstance(left, Strings | Constant)
    assert op is not Op.MATCHES, "the checker lets only constants be patterns"
    text, pattern = _numpy_strings(left), _numpy_strings(right)
    if _has_nul(left) or _has_nul(right):
        # NumPy's string functions ignore trailing NUL characters.
        pairs = np.broadcast(text, pattern)
        true = np.fromiter((_compare_constants(op, str(a), str(b)) for a, b in pairs), np.bool_, len(pattern))
    elif op in (Op.STARTS_WITH, Op.ENDS_WITH):
        true = np.strings.startswith(text, pattern) if op is Op.STARTS_WITH else np.strings.endswith(text, pattern)
    else:
        true = np.strings.find(text, pattern) >= 0
    true = mask_nulls(true, mask_from_arrow(right.array.is_valid()))
    return mask_nulls(true, mask_from_arrow(left.array.is_valid())) if isinstance(left, Strings) else true


_STRING_TESTS: Final[Mapping[CompareOp, Callable[[Any, str], Any]]] = {
    Op.STARTS_WITH: lambda strings, text: pc.starts_with(strings, pattern=text),
    Op.ENDS_WITH: lambda strings, text: pc.ends_with(strings, pattern=text),
    Op.STRING_CONTAINS: lambda strings, text: pc.match_substring(strings, pattern=text),
    Op.MATCHES: match_pattern,
}


def _has_nul(side: Strings | Constant) -> bool:
    if isinstance(side, Constant):
        return "\x00" in str(side.value)
    return bool(pc.any(pc.match_substring(side.array, "\x00"), min_count=0).as_py())


def _numpy_strings(side: Strings | Constant) -> npt.NDArray[Any]:
    if isinstance(side, Constant):
        return np.array(side.value, np.dtypes.StringDType())
    strings: npt.NDArray[Any] = side.array.fill_null("").to_numpy(zero_copy_only=False)
    return strings.astype(np.dtypes.StringDType())


# -- numbers ---------------------------------------------------------------------------------------------------


def compare_constant(op: CompareOp, data: npt.NDArray[Any], value: Value) -> Mask:
    """Compare numbers with a constant, cast to the column's type unless its value alone decides the result."""
    if data.dtype == np.bool_ or isinstance(value, bool):
        return _apply(op, data, value)
    assert isinstance(value, int | float)
    if data.dtype.kind == "f":
        return _floats_with_constant(op, data, value)
    limits = np.iinfo(data.dtype)
    folded = fold_integer(op, value, int(limits.min), int(limits.max))
    if isinstance(folded, bool):
        return np.full(len(data), folded)
    folded_op, bound = folded
    return _apply(folded_op, data, data.dtype.type(bound))


def fold_integer(op: CompareOp, value: float, low: int, high: int) -> bool | tuple[CompareOp, int]:
    """Fold a comparison of integers in `low`..`high` with any number into one with an integer in range, or a constant.

    >>> fold_integer(CompareOp.LT, 5.5, 0, 10), fold_integer(CompareOp.EQ, 5.5, 0, 10)
    ((<CompareOp.LE: '<='>, 5), False)
    """
    if not math.isfinite(value):
        if math.isnan(value):
            return op is Op.NE
        return op is Op.NE or ((value > 0) == (op in (Op.LT, Op.LE)) and op is not Op.EQ)
    floor = math.floor(value)
    if op in (Op.EQ, Op.NE):
        if floor != value or not low <= floor <= high:
            return op is Op.NE
        return op, floor
    # Below a bound means at most the next integer down; above one, at least the next integer up.
    if op in (Op.LT, Op.LE):
        most = floor - 1 if op is Op.LT and floor == value else floor
        if most >= high:
            return True
        return False if most < low else (Op.LE, most)
    least = floor + 1 if op is Op.GT or floor != value else floor
    if least <= low:
        return True
    return False if least > high else (Op.GE, least)


def _floats_with_constant(op: CompareOp, data: npt.NDArray[Any], value: float) -> Mask:
    if data.dtype == np.float32:
        if isinstance(value, float):
            # A decimal in a query means the value that a 32-bit column stores for it.
            with np.errstate(over="ignore"):
                narrow = np.float32(value)
            if np.isfinite(narrow) or not math.isfinite(value):
                return _apply(op, data, narrow)
        data = data.astype(np.float64)
    near = float(value)
    if near == value or math.isnan(near):
        return _apply(op, data, near)
    if op in (Op.EQ, Op.NE):
        return np.full(len(data), op is Op.NE)
    # No float lies between the integer and its nearest float, so the nearest one decides from its own side.
    if op in (Op.LT, Op.LE):
        return _apply(Op.LT if near > value else Op.LE, data, near)
    return _apply(Op.GE if near > value else Op.GT, data, near)


def _apply(op: CompareOp, left: Any, right: Any) -> Mask:
    true: Mask = COMPARISONS[op](left, right)
    return true


def _compare_numbers(op: CompareOp, left: npt.NDArray[Any], right: npt.NDArray[Any]) -> Mask:
    left_kind, right_kind = left.dtype.kind, right.dtype.kind
    # Of signed with unsigned integers the comparisons of numpy are exact, of integers with floats they are not.
    if left_kind == right_kind or "b" in (left_kind, right_kind) or "f" not in (left_kind, right_kind):
        return _apply(op, left, right)
    if left_kind == "f":
        return _integers_with_floats(MIRRORED[op], right, left)
    return _integers_with_floats(op, left, right)


def _integers_with_floats(op: CompareOp, integers: npt.NDArray[Any], floats: npt.NDArray[Any]) -> Mask:
    wide = floats.astype(np.float64)
    if integers.dtype.itemsize < 8:
        # Every narrower integer is exact as a 64-bit float.
        return _apply(op, integers.astype(np.float64), wide)
    low, high = (-(2.0**63), 2.0**63) if integers.dtype.kind == "i" else (0.0, 2.0**64)
    floor = np.floor(wide)
    inside = (floor >= low) & (floor < high)
    bound = np.where(inside, floor, 0.0).astype(integers.dtype)
    above = np.where(inside, integers > bound, wide < low)
    equal: Mask = inside & (integers == bound) & (wide == floor)
    below: Mask = ~(above | equal | np.isnan(wide))
    if op is Op.EQ:
        return equal
    if op is Op.NE:
        return ~equal
    strict: Mask = below if op in (Op.LT, Op.LE) else above
    return strict | equal if op in (Op.LE, Op.GE) else strict


# -- lists -----------------------------------------------------------------------------------------------------


def _list_contains(left: Vector, right: Vector, count: int) -> Mask:
    if isinstance(left, Constant):
        assert isinstance(left.value, tuple)
        if isinstance(right, Constant):
            return np.full(count, any(item is not None and item == right.value for item in left.value))
        return is_member(right, left.value, count)
    assert isinstance(left, Lists)
    parents = np.repeat(np.arange(count), left.lengths)
    needle = right if isinstance(right, Constant) else right.take(parents)
    is_equal = compare(Op.EQ, left.items, needle, len(parents))
    return flag_positions(parents[is_equal], count)


def is_member(operand: Vector, items: tuple[Any, ...], count: int) -> Mask:
    """Return where a value equals one of the items; null equals none."""
    non_null = [item for item in items if item is not None]
    if isinstance(operand, Constant):
        return np.full(count, operand.value is not None and operand.value in non_null)
    if isinstance(operand, Strings):
        return mask_from_arrow(pc.is_in(operand.array, value_set=pa.array(non_null, pa.string()), skip_nulls=True))
    assert isinstance(operand, Numbers)
    return mask_nulls(np.isin(operand.data, _representable_items(operand.data.dtype, non_null)), operand.valid)


def _representable_items(dtype: np.dtype[Any], items: list[Any]) -> npt.NDArray[Any]:
    """Return the items that a column of this type can hold, in that type; the others equal nothing in it."""
    if dtype == np.bool_:
        return np.array(items, np.bool_)
    if dtype.kind == "f":
        representable = [item for item in items if isinstance(item, float) or float(item) == item]
        if dtype == np.float32:
            representable = [
                item for item in representable if isinstance(item, float) or float(np.float32(item)) == item
            ]
        with np.errstate(over="ignore"):
            return np.array(representable, np.float64).astype(dtype)
    limits = np.iinfo(dtype)
    integral = [item for item in items if math.isfinite(item) and item == math.floor(item)]
    return np.array([int(item) for item in integral if limits.min <= item <= limits.max], dtype)
