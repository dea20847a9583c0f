"""Predicates of updates and deletes: one comparison, as a typed Lance filter and as a mask over pending rows.

Numbers compare by exact value, so a constant is first folded into the column's own type; Lance refuses any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, isnan
from typing import Any, Final

import numpy as np
import pyarrow as pa

from omnigraph.lang.query.ir import CompareOp
from omnigraph.lang.schema.arrow import arrow_type
from omnigraph.lang.types import FLOATS, INTEGERS, PropertyType, Scalar
from omnigraph.rules.columns import from_fitted
from omnigraph.rules.fit import RANGES
from omnigraph.rules.kernels import Column, Numbers, pc
from omnigraph.store.lookup import is_filterable

_COMPARE: Final = {
    CompareOp.EQ: "equal",
    CompareOp.NE: "not_equal",
    CompareOp.GT: "greater",
    CompareOp.LT: "less",
    CompareOp.GE: "greater_equal",
    CompareOp.LE: "less_equal",
}
# How filter texts call the types that typed filters cannot name.
_WORDS: Final = {"uint32": "UInt32", "uint64": "UInt64", "date64[ms]": "Date64"}


@dataclass(frozen=True, slots=True)
class ColumnTest:
    """A comparison of one column with a constant of its type. Without a constant: any value, or none at all."""

    column: str
    stored: pa.DataType
    op: CompareOp | None
    constant: Any = None

    @property
    def is_never(self) -> bool:
        return self.op is None and self.constant is None

    def condition(self) -> Any:
        """Return the test as a filter for Lance."""
        if not is_filterable(self.stored):
            return self._text()
        field = pc.field(self.column)
        if self.op is None:
            return field.is_valid()
        if pa.types.is_floating(self.constant.type) and self.constant.as_py() == 0:
            return self._zero(field)
        return getattr(pc, _COMPARE[self.op])(field, self.constant)

    def _text(self) -> str:
        if self.op is None:
            return f"`{self.column}` IS NOT NULL"
        number = self.constant.cast(pa.int64() if pa.types.is_date64(self.stored) else self.stored).as_py()
        return f"`{self.column}` {self.op} arrow_cast({number}, '{_WORDS[str(self.stored)]}')"

    def _zero(self, field: Any) -> Any:
        """Return the comparison with zero, which has two signs that the filter engine tells apart and we do not."""
        below, above = (pa.scalar(number, self.constant.type) for number in (-0.0, 0.0))
        return {
            CompareOp.EQ: (field >= below) & (field <= above),
            CompareOp.NE: (field < below) | (field > above),
            CompareOp.GT: field > above,
            CompareOp.LT: field < below,
            CompareOp.GE: field >= below,
            CompareOp.LE: field <= above,
        }[self.op or CompareOp.EQ]

    def mask(self, rows: pa.Table) -> Numbers:
        """Return for each row whether it passes; null does not."""
        column: Column = rows.column(self.column)
        if self.op is None:
            return np.asarray(pc.is_valid(column)) & (not self.is_never)
        passed = getattr(pc, _COMPARE[self.op])(column, self.constant)
        return np.asarray(pc.fill_null(passed, False), bool)


def comparison(column: str, type_: PropertyType, op: CompareOp, value: Any) -> ColumnTest:
    """Return the test that compares a column with a value that `fit` or a parameter gave; null passes nothing."""
    if value is None or type_.is_list or type_.scalar is Scalar.VECTOR or (isinstance(value, float) and isnan(value)):
        return ColumnTest(column, arrow_type(type_), None)
    if type_.scalar in INTEGERS:
        return _folded(column, type_, *_integer(op, value, *RANGES[type_.scalar]))
    if type_.scalar in FLOATS:
        width = np.float32 if type_.scalar is Scalar.F32 else np.float64
        return _folded(column, type_, *_float(op, value, width))
    return ColumnTest(column, arrow_type(type_), op, from_fitted([value], type_)[0])


def _folded(column: str, type_: PropertyType, verdict: bool | CompareOp, value: Any) -> ColumnTest:
    if isinstance(verdict, CompareOp):
        return ColumnTest(column, arrow_type(type_), verdict, pa.scalar(value, arrow_type(type_)))
    return ColumnTest(column, arrow_type(type_), None, True if verdict else None)


def _integer(op: CompareOp, value: float, low: int, high: int) -> tuple[bool | CompareOp, Any]:
    """Return a comparison with an integer in range that means the same, or a verdict for every value."""
    if value in (float("inf"), float("-inf")):
        value = high + 1 if value > 0 else low - 1
    if value != floor(value):
        if op in (CompareOp.EQ, CompareOp.NE):
            return op is CompareOp.NE, None
        # Between two integers, `less` and `greater` mean the nearest one on their side, itself included.
        op, value = (CompareOp.GT, floor(value)) if op in (CompareOp.GT, CompareOp.GE) else (CompareOp.LE, floor(value))
    value = int(value)
    if low <= value <= high:
        return op, value
    above = value > high
    if op in (CompareOp.EQ, CompareOp.NE):
        return op is CompareOp.NE, None
    return (op in (CompareOp.LT, CompareOp.LE)) is above, None


def _float(op: CompareOp, value: Any, width: Any) -> tuple[bool | CompareOp, Any]:
    """Return a comparison with a float that means the same; an integer may lie between two of them."""
    with np.errstate(over="ignore"):
        if isinstance(value, float):
            return op, float(width(value))
        try:
            number = width(value)
        except OverflowError:
            number = width("inf") if value > 0 else width("-inf")
    # Python compares a float with an integer exactly; numpy would round the integer first.
    if float(number) == value:
        return op, float(number)
    if op in (CompareOp.EQ, CompareOp.NE):
        return op is CompareOp.NE, None
    below = number if float(number) < value else np.nextafter(number, width("-inf"))
    return (CompareOp.GT if op in (CompareOp.GT, CompareOp.GE) else CompareOp.LE), float(below)
