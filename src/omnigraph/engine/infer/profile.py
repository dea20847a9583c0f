"""Profiles of columns and tables: types of values, nulls, distinct values and samples of them; those of parts merge.

Samples of different columns keep the same hashes, so they can be compared; a sample that keeps all hashes is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.key_buckets.hashes import Hashes, hash_column
from omnigraph.lang.query.functions import common_scalar
from omnigraph.lang.scalars import FLOATS, INTEGERS, PLAIN, RANGES, TIME_FORMS, Scalar
from omnigraph.lang.schema.arrow_schema import SCALARS
from omnigraph.limits import INFER_ENUM_VALUES_MAX, INFER_SKETCH_VALUES
from omnigraph.rules.arrow_typing import Column, Numbers, pc
from omnigraph.rules.delta import one_array
from omnigraph.rules.time_columns import parse_times

_HASHES: Final = 2**64


@dataclass(frozen=True, slots=True)
class Sketch:
    """Distinct hashes below `bound`, sorted, and the number of occurrences of each."""

    hashes: Hashes = field(default_factory=lambda: np.zeros(0, np.uint64))
    counts: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))
    bound: int = _HASHES

    @classmethod
    def of(cls, hashes: Hashes) -> Sketch:
        """Return the sketch of the values with these hashes.

        >>> Sketch.of(np.array([7, 3, 7], np.uint64)).distinct
        2
        """
        distinct, counts = np.unique(hashes, return_counts=True)
        return _cut(distinct, counts, _HASHES)

    def merge(self, other: Sketch) -> Sketch:
        distinct, positions = np.unique(np.concatenate([self.hashes, other.hashes]), return_inverse=True)
        counts = np.zeros(len(distinct), np.int64)
        np.add.at(counts, positions, np.concatenate([self.counts, other.counts]))
        return _cut(distinct, counts, min(self.bound, other.bound))

    @property
    def is_exact(self) -> bool:
        return self.bound == _HASHES

    @property
    def distinct(self) -> int:
        """The number of distinct values, estimated if the sketch is not exact."""
        return len(self.hashes) if self.is_exact else round(len(self.hashes) * (_HASHES / self.bound))

    @property
    def has_duplicates(self) -> bool:
        return bool((self.counts > 1).any())

    def is_within(self, other: Sketch) -> bool:
        """Return True if all values that both samples could hold, and at least one, are in the other.

        >>> few, many = (Sketch.of(np.arange(n, dtype=np.uint64)) for n in (3, 5))
        >>> few.is_within(many), many.is_within(few), Sketch().is_within(many)
        (True, False, False)
        """
        bound = min(self.bound, other.bound)
        comparable = self.hashes if bound == _HASHES else self.hashes[self.hashes < np.uint64(bound)]
        return len(comparable) > 0 and bool(np.isin(comparable, other.hashes, assume_unique=True).all())


def _cut(distinct: Hashes, counts: Numbers, bound: int) -> Sketch:
    """Keep hashes below the bound, and at most as many as a sketch holds."""
    if bound < _HASHES:
        keep = distinct < np.uint64(bound)
        distinct, counts = distinct[keep], counts[keep]
    if len(distinct) > INFER_SKETCH_VALUES:
        bound = int(distinct[INFER_SKETCH_VALUES])
        distinct, counts = distinct[:INFER_SKETCH_VALUES], counts[:INFER_SKETCH_VALUES]
    return Sketch(distinct, counts, bound)


SEED: Final = "omnigraph.infer"
# As JSON writes numbers; a leading zero, as in `007`, or more than 18 digits, as in account numbers, make a text.
_INTEGER: Final = r"^-?(0|[1-9][0-9]{0,17})$"
_NUMBER: Final = r"^-?(0|[1-9][0-9]{0,17})(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
# `True` and `False`, as pandas writes them, are read as well.
_TRUTH: Final = r"^(?i:true|false)$"
# The types of columns that no property has, and the type of a property that holds their values.
_HELD_AS: Final[tuple[tuple[Any, pa.DataType], ...]] = (
    (pa.types.is_signed_integer, pa.int32()),
    (pa.types.is_unsigned_integer, pa.uint32()),
    (pa.types.is_floating, pa.float32()),
    (pa.types.is_large_string, pa.string()),
    (pa.types.is_binary, pa.large_binary()),
    (pa.types.is_timestamp, pa.date64()),
    (pa.types.is_duration, pa.duration("ms")),
    (lambda type_: pa.types.is_decimal(type_) and type_.scale == 0 and type_.precision <= 18, pa.int64()),
)


@dataclass(slots=True)
class ColumnProfile:
    """A column: how many values it has, their type, and which they are.

    `words` are the distinct texts, or None if there are more than an enum may have. `lengths` are the shortest and the
    longest list. A text may have to stay text although all values read as something narrower: `is_text`.
    """

    values: int = 0
    type: ValueType | None = None
    is_text: bool = False
    sketch: Sketch = field(default_factory=Sketch)
    words: frozenset[str] | None = frozenset()
    lengths: tuple[int, int] | None = None
    example: str = ""

    def merge(self, other: ColumnProfile) -> ColumnProfile:
        if not self.values or not other.values:
            return self if self.values else other
        assert self.type is not None
        assert other.type is not None
        is_text = self.is_text and other.is_text
        words = None if self.words is None or other.words is None else _cap(self.words | other.words)
        lengths = [*(self.lengths or ()), *(other.lengths or ())]
        return ColumnProfile(
            self.values + other.values,
            join_texts(self.type, other.type) if is_text else self.type.join(other.type),
            is_text,
            self.sketch.merge(other.sketch),
            words,
            (min(lengths), max(lengths)) if lengths else None,
            min(self.example, other.example),
        )

    @property
    def is_vector(self) -> bool:
        """True for lists of floats that all have one length."""
        is_floats = self.type is not None and self.type.is_list and self.type.scalar in FLOATS
        return is_floats and self.lengths is not None and self.lengths[0] == self.lengths[1] > 1


@dataclass(slots=True)
class TableProfile:
    """A table by its columns, in the order in which they were met."""

    rows: int = 0
    columns: dict[str, ColumnProfile] = field(default_factory=dict)

    def merge(self, other: TableProfile) -> TableProfile:
        columns = {
            name: self.columns.get(name, ColumnProfile()).merge(other.columns.get(name, ColumnProfile()))
            for name in [*self.columns, *other.columns]
        }
        return TableProfile(self.rows + other.rows, columns)

    def nulls(self, name: str) -> int:
        return self.rows - self.columns[name].values


def profile_column(column: Column, *, is_text: bool, is_json: bool) -> ColumnProfile:
    """Return the profile of a column: text that has to be read, JSON, or typed values."""
    values = _plain_values(column)
    if not len(values):
        return ColumnProfile()
    if pa.types.is_string(values.type) and (is_text or is_json):
        type_ = type_of_text(values, has_numbers=is_text)
    else:
        type_ = type_of_column(values)
        is_text = False
    is_read = is_text or (is_json and pa.types.is_string(values.type))
    if type_.scalar is None or not type_.is_plain:
        return ColumnProfile(
            len(values), type_, is_read, words=None, lengths=_lengths(values) if type_.is_list else None
        )
    texts = _texts(values)
    words = _cap(frozenset(pc.unique(texts.slice(0, 10 * INFER_ENUM_VALUES_MAX)).to_pylist()))
    if words is not None:
        words = _cap(frozenset(pc.unique(texts).to_pylist()))
    sketch = Sketch.of(hash_column(texts, SEED))
    return ColumnProfile(len(values), type_, is_read, sketch, words, None, pc.min(texts).as_py() or "")


def hash_values(column: Column) -> Hashes:
    """Return the hashes of the values of a column that are not null, as its profile has them."""
    return hash_column(_texts(_plain_values(column)), SEED)


def _plain_values(column: Column) -> Column:
    """Return the values that are not null, without a dictionary."""
    values = one_array(column)
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    return values.drop_null()


def _texts(values: Column) -> Column:
    return values if pa.types.is_string(values.type) else one_array(values.cast(pa.string()))


def _lengths(values: Column) -> tuple[int, int]:
    bounds = pc.min_max(pc.list_value_length(values)).as_py()
    return bounds["min"], bounds["max"]


def _cap(words: frozenset[str]) -> frozenset[str] | None:
    return words if len(words) <= INFER_ENUM_VALUES_MAX else None


@dataclass(frozen=True, slots=True)
class ValueType:
    """The type of some values; `scalar` is None if no property can hold them, for the `reason`."""

    scalar: Scalar | None
    is_list: bool = False
    reason: str = ""

    @property
    def is_plain(self) -> bool:
        """True of single values that can be compared."""
        return self.scalar in PLAIN and not self.is_list

    def join(self, other: ValueType) -> ValueType:
        """Return the narrowest type that holds the values of both.

        >>> integers = ValueType(Scalar.I64)
        >>> integers.join(ValueType(Scalar.F64)).scalar, integers.join(ValueType(Scalar.DATE)).scalar
        (<Scalar.F64: 'F64'>, None)
        """
        if self == other or self.scalar is None or (other == EMPTY_LISTS and self.is_list):
            return self
        if other.scalar is None or (self == EMPTY_LISTS and other.is_list):
            return other
        joined = _join_scalars(self.scalar, other.scalar) if self.is_list == other.is_list else None
        return (
            ValueType(joined, self.is_list) if joined is not None else ValueType(None, reason="values of several types")
        )


TEXTS: Final = ValueType(Scalar.STRING)
# Lists without any item, which fit any list.
EMPTY_LISTS: Final = ValueType(Scalar.STRING, True, "no items")


def _join_scalars(first: Scalar, second: Scalar) -> Scalar | None:
    joined = common_scalar([first, second])
    # No integer holds both negative values and the largest ones.
    is_too_large = joined in INTEGERS and RANGES[joined][1] < max(RANGES[first][1], RANGES[second][1])
    return None if is_too_large else joined


def join_texts(first: ValueType, second: ValueType) -> ValueType:
    """Join the types of two parts of a column of text, which can always stay text."""
    joined = first.join(second)
    return joined if joined.scalar is not None else TEXTS


def type_of_column(column: Column) -> ValueType:
    """Return the type of a typed column that holds a value."""
    type_: Any = column.type
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        if pa.types.is_null(type_.value_type):
            return EMPTY_LISTS
        item = type_of_column(pa.nulls(0, type_.value_type))
        return (
            ValueType(item.scalar, True, item.reason) if not item.is_list else ValueType(None, reason="lists of lists")
        )
    held_as = type_ if type_ in SCALARS else next((stored for is_type, stored in _HELD_AS if is_type(type_)), None)
    return ValueType(None, reason=f"values of the type `{type_}`") if held_as is None else ValueType(SCALARS[held_as])


def type_of_text(values: Column, *, has_numbers: bool) -> ValueType:
    """Return the narrowest type as which all texts read; CSV has numbers, JSON writes its own."""
    if has_numbers:
        if _all_match(values, _INTEGER) and _casts(values, pa.int64()):
            return ValueType(Scalar.I64)
        if _all_match(values, _NUMBER) and _casts(values, pa.float64()):
            return ValueType(Scalar.F64)
        if _all_match(values, _TRUTH):
            return ValueType(Scalar.BOOL)
    if _all_match(values, "^base64:"):
        return ValueType(Scalar.BLOB)
    for scalar, form in TIME_FORMS.items():
        if _all_match(values, form.shape) and parse_times(values, scalar) is not None:
            return ValueType(scalar)
    return TEXTS


def _all_match(values: Column, pattern: str) -> bool:
    # Most columns fail at their first value, which is cheaper to look at alone.
    first = values.slice(0, 1)
    return all(pc.all(pc.match_substring_regex(part, pattern)).as_py() is True for part in (first, values))


def _casts(values: Column, type_: pa.DataType) -> bool:
    try:
        numbers = values.cast(type_)
    except pa.ArrowInvalid:
        return False
    return not pa.types.is_floating(type_) or pc.all(pc.is_finite(numbers)).as_py() is True
