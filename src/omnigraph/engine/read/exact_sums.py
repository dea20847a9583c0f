"""Exact sums of 64-bit integers, vectorised: values are split into limbs whose sums cannot overflow.

A value is the sum of its limbs, limb `i` shifted by `i * bits`; the last limb carries the sign. Each limb is summed on
its own in 64-bit integers, and the limb sums are put together with carries, as in long addition. Nothing rounds, so a
sum does not depend on the order of rows, nor on the plan that adds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from omnigraph.errors import ArithmeticOverflow
from omnigraph.lang.types import Scalar

Integers = npt.NDArray[np.int64]
# Sums of limbs stay below this, which leaves room for the carries.
_SUM_BITS: Final = 61
_VALUE_BITS: Final = 64


@dataclass(frozen=True, slots=True)
class ExactSums:
    """One exact sum per group: `top * 2^shift + low`, with 0 <= low < 2^shift."""

    top: Integers
    low: npt.NDArray[np.uint64]
    shift: int
    is_unsigned: bool

    def integers(self, function: str) -> npt.NDArray[Any]:
        """Return the sums as I64 or U64; raises ArithmeticOverflow where one does not fit."""
        if not bool(self._fits().all()):
            raise overflow(function, Scalar.U64 if self.is_unsigned else Scalar.I64)
        return self._wrapped()

    def floats(self) -> npt.NDArray[np.float64]:
        """Return the sums as floats, for averages."""
        # The two parts of a small negative sum would cancel out; those of a sum beyond 64 bits add up.
        large = self.top.astype(np.float64) * 2.0**self.shift + self.low.astype(np.float64)
        return np.where(self._fits(), self._wrapped().astype(np.float64), large)

    def _fits(self) -> npt.NDArray[np.bool_]:
        bits = (64 if self.is_unsigned else 63) - self.shift
        lowest = 0 if self.is_unsigned else -(2**bits)
        fits: npt.NDArray[np.bool_] = (self.top >= lowest) & (self.top < 2**bits)
        return fits

    def _wrapped(self) -> npt.NDArray[Any]:
        """Return the sums modulo 2^64."""
        with np.errstate(over="ignore"):
            whole = (self.top.astype(np.uint64) << np.uint64(self.shift)) + self.low
        return whole if self.is_unsigned else whole.view(np.int64)


def overflow(function: str, scalar: Scalar) -> ArithmeticOverflow:
    """Return the error of a sum that does not fit its type."""
    return ArithmeticOverflow(overflow_message(function, scalar), function=function, type=scalar.value)


def overflow_message(function: str, scalar: Scalar) -> str:
    return f"a result of `{function}` does not fit {scalar.value}; add up fewer values, or use `avg`"


def limb_bits(count: float) -> int:
    """Return how many bits a limb may have when so many values are added.

    >>> limb_bits(1), limb_bits(2.0**20), limb_bits(2.0**62)
    (61, 41, 1)
    """
    return max(1, _SUM_BITS - int(np.ceil(np.log2(max(count, 1.0)))))


def split_limbs(values: npt.NDArray[Any], bits: int) -> list[Integers]:
    """Return the limbs of integers, lowest first; of signed ones the last is negative where the value is."""
    wide = values if values.dtype == np.uint64 else values.astype(np.int64)
    mask = wide.dtype.type((1 << bits) - 1)
    shifts = range(0, _VALUE_BITS, bits)
    limbs = [((wide >> wide.dtype.type(shift)) & mask).astype(np.int64) for shift in shifts[:-1]]
    return [*limbs, (wide >> wide.dtype.type(shifts[-1])).astype(np.int64)]


def join_limbs(sums: Sequence[Integers], bits: int, is_unsigned: bool) -> ExactSums:
    """Put the sums of limbs together; `sums` are in the order of `split_limbs`."""
    low = np.zeros(len(sums[0]), np.uint64)
    carry: Integers = np.zeros(len(sums[0]), np.int64)
    mask = np.int64((1 << bits) - 1)
    for place, limb in enumerate(sums[:-1]):
        total = limb + carry
        low |= (total & mask).astype(np.uint64) << np.uint64(place * bits)
        carry = total >> np.int64(bits)
    return ExactSums(sums[-1] + carry, low, bits * (len(sums) - 1), is_unsigned)
