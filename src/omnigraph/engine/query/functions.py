"""Functions and operators on vectors: numpy for numbers and dates, Arrow kernels for strings and lists.

`IMPLEMENTATIONS` has every name of `lang.query.functions`. All but a few are strict: null in, null out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engine.query.casts import cast_vector
from omnigraph.engine.query.compare import compare
from omnigraph.engine.query.ordering import encode_dictionary
from omnigraph.engine.query.time_functions import DATE_FUNCTIONS, is_date
from omnigraph.engine.query.vectors import (
    Constant,
    Lists,
    Mask,
    Numbers,
    Strings,
    Vector,
    combine_validity,
    divide_integers,
    integers,
    is_null_constant,
    materialize,
    numbers,
    pack_codes,
    raise_overflow,
    to_arrow,
    to_arrow_plain,
    vector_from_arrow,
)
from omnigraph.lang.catalog import PropertyType
from omnigraph.lang.query import ir
from omnigraph.lang.query.ir import CompareOp
from omnigraph.lang.scalars import INTEGERS, RANGES, TIMES
from omnigraph.lang.times import DAY_MS
from omnigraph.rules.arrow_typing import pc

Pair: TypeAlias = tuple[npt.NDArray[Any], npt.NDArray[Any]]
Implementation: TypeAlias = Callable[[Sequence[Vector], PropertyType, int], Vector]
_I64_MIN: Final = -(2**63)
_STORED_AS_INTEGERS: Final = INTEGERS | TIMES
# Products below this are exact enough as floats to say that they fit 64 bits.
_SAFE_PRODUCT: Final = 2.0**62


def apply_function(call: ir.Call, arguments: Sequence[Vector], count: int) -> Vector:
    """Return a call applied to its evaluated arguments; constants give a constant."""
    type_ = call.type
    if call.function not in _NOT_STRICT and any(is_null_constant(item) for item in arguments):
        return Constant(None, type_)
    if arguments and all(isinstance(item, Constant) for item in arguments):
        single = _apply(call, arguments, 1)
        return single if isinstance(single, Constant) else Constant(_first_value(single), type_)
    return _apply(call, arguments, count)


def _apply(call: ir.Call, arguments: Sequence[Vector], count: int) -> Vector:
    if call.function == "cast":
        source = call.arguments[0].type
        assert source is not None
        return cast_vector(arguments[0], source, call.type, count)
    result = IMPLEMENTATIONS[call.function](arguments, call.type, count)
    if isinstance(result, Numbers) and result.data.ndim == 0:
        return Numbers(np.broadcast_to(result.data, (count,)), result.valid)
    return result


def _first_value(vector: Numbers | Strings | Lists) -> Any:
    if isinstance(vector, Numbers):
        return None if vector.valid is not None and not vector.valid[0] else vector.data[0].item()
    value = vector.array[0].as_py()
    return tuple(value) if isinstance(value, list) else value


# -- numbers ---------------------------------------------------------------------------------------------------


def _arithmetic(name: str) -> Implementation:
    def apply(arguments: Sequence[Vector], type_: PropertyType, count: int) -> Vector:
        if type_.is_text:
            return _concat(arguments, type_, count)
        if len(arguments) == 1:
            zero = Constant(0, PropertyType(type_.scalar))
            return apply([zero, arguments[0]], type_, count)
        if type_.scalar in _STORED_AS_INTEGERS:
            (a, b), valid = _integer_pair(arguments, name)
            if type_.scalar in TIMES and name != "*":
                # Only times are added up to times, and days count as their midnights.
                a, b = (side * DAY_MS if is_date(item) else side for side, item in zip((a, b), arguments, strict=True))
            if type_.scalar in INTEGERS and all(map(_is_narrow, arguments)):
                return Numbers(_OPERATIONS[name](a, b), valid)
            result, overflow = _INTEGER_OPERATIONS[name](a, b)
            low, high = RANGES[type_.scalar]
            raise_overflow(overflow | (result < low) | (result > high), valid, name, type_.scalar)
            return Numbers(result, valid)
        (x, y), valid = _float_pair(arguments)
        with np.errstate(all="ignore"):
            return Numbers(_OPERATIONS[name](x, y), valid)

    return apply


def _integer_pair(arguments: Sequence[Vector], name: str) -> tuple[Pair, Mask | None]:
    (a, valid_a), (b, valid_b) = integers(arguments[0], name), integers(arguments[1], name)
    return (a, b), combine_validity(valid_a, valid_b)


def _float_pair(arguments: Sequence[Vector]) -> tuple[Pair, Mask | None]:
    (x, valid_x), (y, valid_y) = numbers(arguments[0]), numbers(arguments[1])
    return (x, y), combine_validity(valid_x, valid_y)


def _is_narrow(vector: Vector) -> bool:
    """True of integers up to 2^31, whose sums and products fit 64 bits."""
    if isinstance(vector, Constant):
        return isinstance(vector.value, int) and abs(vector.value) <= 2**31
    return isinstance(vector, Numbers) and vector.data.dtype in _NARROW


_NARROW: Final = frozenset(map(np.dtype, ("i1", "i2", "i4", "u1", "u2")))


def _add(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> Pair:
    with np.errstate(over="ignore"):
        result = a + b
    return result, ((a ^ result) & (b ^ result)) < 0


def _subtract(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> Pair:
    with np.errstate(over="ignore"):
        result = a - b
    return result, ((a ^ b) & (a ^ result)) < 0


def _multiply(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> Pair:
    with np.errstate(over="ignore"):
        result = np.asarray(a * b)
        large = np.abs(a.astype(np.float64) * b.astype(np.float64)) >= _SAFE_PRODUCT
    overflow = np.zeros(result.shape, np.bool_)
    if large.any():
        first, second = np.broadcast_to(a, result.shape)[large], np.broadcast_to(b, result.shape)[large]
        # Division undoes a product unless it overflowed; the least integer is its own negative.
        overflow[large] = (result[large] // first != second) | ((first == -1) & (second == _I64_MIN))
    return result, overflow


_INTEGER_OPERATIONS: Final[Mapping[str, Callable[[Any, Any], Pair]]] = {"+": _add, "-": _subtract, "*": _multiply}
_OPERATIONS: Final[Mapping[str, np.ufunc]] = {"+": np.add, "-": np.subtract, "*": np.multiply}


def _divide(arguments: Sequence[Vector], type_: PropertyType, count: int) -> Vector:
    (x, y), valid = _float_pair(arguments)
    with np.errstate(all="ignore"):
        return Numbers(x / y, combine_validity(valid, _nonzero(y, count)))


def _remainder(arguments: Sequence[Vector], type_: PropertyType, count: int) -> Vector:
    (x, y), valid = _integer_pair(arguments, "%") if type_.scalar in INTEGERS else _float_pair(arguments)
    with np.errstate(all="ignore"):
        return Numbers(np.fmod(x, y), combine_validity(valid, _nonzero(y, count)))


def _integer_divide(arguments: Sequence[Vector], type_: PropertyType, count: int) -> Vector:
    (a, b), valid = _integer_pair(arguments, "div")
    valid = combine_validity(valid, _nonzero(b, count))
    raise_overflow((a == _I64_MIN) & (b == -1), valid, "div")
    with np.errstate(all="ignore"):
        return Numbers(divide_integers(a, b), valid)


def _nonzero(divisor: npt.NDArray[Any], count: int) -> Mask | None:
    return None if bool((divisor != 0).all()) else np.broadcast_to(divisor != 0, (count,))


def _on_numbers(name: str, on_integers: Callable[[Any], Any] | None, on_floats: Callable[[Any], Any]) -> Implementation:
    """Return a function of one number; integers stay integers if it has a rule for them."""

    def apply(arguments: Sequence[Vector], type_: PropertyType, count: int) -> Vector:
        if type_.scalar in _STORED_AS_INTEGERS and on_integers is not None:
            data, valid = integers(arguments[0], name)
            if name == "abs":
                raise_overflow(data == _I64_MIN, valid, name)
            return Numbers(on_integers(data), valid)
        data, valid = numbers(arguments[0])
        with np.errstate(all="ignore"):
            result = on_floats(data)
        return Numbers(result, valid)

    return apply


def _real(function: Callable[..., Any]) -> Implementation:
    """Return a function of floats that is null where it has no real value."""

    def apply(arguments: Sequence[Vector], type_: PropertyType, count: int) -> Vector:
        parts = [numbers(item) for item in arguments]
        with np.errstate(all="ignore"):
            result = np.broadcast_to(function(*(data for data, _ in parts)), (count,))
        given_nan = np.logical_or.reduce([np.broadcast_to(np.isnan(data), (count,)) for data, _ in parts])
        is_real = ~np.isnan(result) | given_nan
        valid = combine_validity(*(valid for _, valid in parts))
        return Numbers(result, valid if bool(is_real.all()) else combine_validity(valid, is_real))

    return apply


def _power(base: npt.NDArray[Any], exponent: npt.NDArray[Any]) -> npt.NDArray[Any]:
    # A negative power of zero is a division by zero, which has no value.
    powers: npt.NDArray[Any] = np.where((base == 0) & (exponent < 0), np.nan, np.power(base, exponent))
    return powers


def round_half_away(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Round to integers, halves away from zero.

    >>> round_half_away(np.array([0.5, -0.5, 2.5, 0.49999999999999994]))
    array([ 1., -1.,  3.,  0.])
    """
    size = np.abs(values)
    floor = np.floor(size)
    # The difference is exact, which `floor(size + 0.5)` would not be.
    rounded: npt.NDArray[Any] = np.copysign(floor + (size - floor >= 0.5), values)
    return rounded


def _round(arguments: Sequence[Vector], type_: PropertyType, count: int) -> Vector:
    if len(arguments) == 1:
        return _on_numbers("round", lambda data: data, round_half_away)(arguments, type_, count)
    (data, valid), (digits, valid_digits) = numbers(arguments[0]), integers(arguments[1], "round")
    with np.errstate(all="ignore"):
        scale = np.power(10.0, np.abs(digits).astype(np.float64))
        scaled = np.where(digits >= 0, data * scale, data / scale)
        rounded = round_half_away(scaled)
        result = np.where(digits >= 0, rounded / scale, rounded * scale)
        # A number that is too large to be scaled has no decimals to round.
        result = np.where(np.isfinite(scaled) & np.isfinite(result), result, data)
    return Numbers(np.broadcast_to(result, (count,)), combine_validity(valid, valid_digits))


def _extreme(op: CompareOp) -> Implementation:
    is_greatest = op is CompareOp.GT

    def apply(arguments: Sequence[Vector], type_: PropertyType, count: int) -> Vector:
        if type_.is_text:
            arrays = [to_arrow(item, type_, count) for item in arguments]
            kernel = pc.max_element_wise if is_greatest else pc.min_element_wise
            return Strings(kernel(*arrays, skip_nulls=False))
        parts = [materialize(item, count) for item in arguments]
        best, valid = parts[0].data, parts[0].valid  # type: ignore[union-attr]
        # Not-a-number counts as the largest, as in every order.
        ufunc = np.maximum if is_greatest else np.fmin
        for part in parts[1:]:
            assert isinstance(part, Numbers)
            best, valid = ufunc(best, part.data), combine_validity(valid, part.valid)
        return Numbers(best, valid)

    return apply


# -- conditions ------------------------------------------------------------------------------------------------


def _coalesce(arguments: Sequence[Vector], type_: PropertyType, count: int) -> Vector:
    arrays = [to_arrow(item, type_, count) for item in arguments]
    return vector_from_arrow(pc.coalesce(*arrays)) if len(arrays) > 1 else vector_from_arrow(arrays[0])


def _nullif(arguments: Sequence[Vector], type_: PropertyType, count: int) -> Vector:
    equal = compare(CompareOp.EQ, arguments[0], arguments[1], count)
    first = to_arrow(arguments[0], type_, count)
    return vector_from_arrow(pc.if_else(pa.array(equal), pa.nulls(count, first.type), first))


# -- strings ---------------------------------------------------------------------------------------------------


def _on_array(kernel: Callable[[Any], Any]) -> Implementation:
    def apply(arguments: Sequence[Vector], type_: PropertyType, count: int) -> Vector:
        return vector_from_arrow(kernel(_array(arguments[0], count)))

    return apply


def _change_case(of_ascii: Callable[[Any], Any], of_any: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a kernel that looks letters up in the tables of Unicode only where there are other letters than ASCII."""

    def apply(array: Any) -> Any:
        is_ascii = pc.all(pc.string_is_ascii(array)).as_py() is not False
        return (of_ascii if is_ascii else of_any)(array)

    return apply


def _array(vector: Vector, count: int) -> Any:
    values = materialize(vector, count)
    assert isinstance(values, Strings | Lists)
    return values.array


def _concat(arguments: Sequence[Vector], type_: PropertyType, count: int) -> Vector:
    arrays = [_array(item, count) for item in arguments]
    return Strings(pc.binary_join_element_wise(*arrays, "", null_handling="emit_null"))


def _by_constants(kernel: Callable[..., Any]) -> Implementation:
    """Return a function of strings by a kernel with constant parameters, run once for each combination of them."""

    def apply(arguments: Sequence[Vector], type_: PropertyType, count: int) -> Vector:
        array, parameters = _array(arguments[0], count), arguments[1:]
        if all(isinstance(item, Constant) for item in parameters):
            return vector_from_arrow(kernel(array, *(item.value for item in parameters)))  # type: ignore[union-attr]
        columns = [to_arrow_plain(item, count) for item in parameters]
        if count == 0:
            return vector_from_arrow(kernel(array, *(_neutral(None, column.type) for column in columns)))
        codes, _ = pack_codes([encode_dictionary(column) for column in columns], count)
        order = np.argsort(codes, kind="stable")
        pieces = []
        for members in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
            first = int(members[0])
            # Null parameters are taken care of below.
            values = [_neutral(column[first].as_py(), column.type) for column in columns]
            pieces.append(kernel(array.take(pa.array(members)), *values))
        inverse = np.empty(count, np.int64)
        inverse[order] = np.arange(count)
        result = pa.concat_arrays(pieces).take(pa.array(inverse))
        is_known = np.logical_and.reduce([column.is_valid().to_numpy(zero_copy_only=False) for column in columns])
        return vector_from_arrow(pc.if_else(pa.array(is_known), result, pa.nulls(count, result.type)))

    return apply


def _neutral(value: Any, type_: pa.DataType) -> Any:
    if value is not None:
        return value
    return "" if pa.types.is_string(type_) else 0


def _replace(array: Any, pattern: str, replacement: str) -> Any:
    return array if pattern == "" else pc.replace_substring(array, pattern=pattern, replacement=replacement)


def _substring(array: Any, start: int, length: int | None = None) -> Any:
    first = min(max(start, 0), _POSITION_MAX)
    stop = _POSITION_MAX if length is None else min(max(start + max(length, 0), 0), _POSITION_MAX)
    return pc.utf8_slice_codeunits(array, start=first, stop=max(first, stop))


def _split(array: Any, separator: str) -> Any:
    if separator == "":
        # Nothing separates, so the whole is the one part.
        lists: Any = pa.ListArray.from_arrays(pa.array(np.arange(len(array) + 1), pa.int32()), array.fill_null(""))
        return pc.if_else(array.is_valid(), lists, pa.nulls(len(array), lists.type))
    return pc.split_pattern(array, pattern=separator)


# -- lists -----------------------------------------------------------------------------------------------------


def _element(arguments: Sequence[Vector], type_: PropertyType, count: int) -> Vector:
    lists = materialize(arguments[0], count)
    assert isinstance(lists, Lists)
    positions, valid = integers(arguments[1], "element")
    lengths = lists.lengths
    starts = np.cumsum(lengths) - lengths
    offsets = np.where(positions < 0, positions + lengths, positions)
    is_present = (offsets >= 0) & (offsets < lengths)
    is_present = is_present if valid is None else is_present & valid
    indices = pa.array(np.where(is_present, starts + offsets, 0), mask=~is_present)
    return vector_from_arrow(pc.list_flatten(lists.array).take(indices))


_POSITION_MAX: Final = 2**31 - 1
_NOT_STRICT: Final = frozenset({"coalesce", "nullif"})
IMPLEMENTATIONS: Final[Mapping[str, Implementation]] = {
    **{name: _arithmetic(name) for name in _INTEGER_OPERATIONS},
    "/": _divide,
    "%": _remainder,
    "div": _integer_divide,
    "abs": _on_numbers("abs", np.abs, np.abs),
    "round": _round,
    "floor": _on_numbers("floor", lambda data: data, np.floor),
    "ceil": _on_numbers("ceil", lambda data: data, np.ceil),
    "sqrt": _real(np.sqrt),
    "pow": _real(_power),
    "greatest": _extreme(CompareOp.GT),
    "least": _extreme(CompareOp.LT),
    "coalesce": _coalesce,
    "nullif": _nullif,
    "lower": _on_array(_change_case(pc.ascii_lower, pc.utf8_lower)),
    "upper": _on_array(_change_case(pc.ascii_upper, pc.utf8_upper)),
    "trim": _on_array(pc.utf8_trim_whitespace),
    "length": _on_array(lambda strings: pc.utf8_length(strings).cast(pa.int64())),
    "concat": _concat,
    "replace": _by_constants(_replace),
    "substring": _by_constants(_substring),
    "split": _by_constants(_split),
    "size": _on_array(lambda lists: pc.list_value_length(lists).cast(pa.int64())),
    "element": _element,
    **DATE_FUNCTIONS,
}
