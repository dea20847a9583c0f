"""Profiles of columns and tables: types, nulls and distinct values. Those of parts merge into that of the whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from omnigraph.lang.catalog import FLOATS, Scalar
from omnigraph.limits import INFER_ENUM_VALUES_MAX
from omnigraph.pipeline.infer.sketch import Sketch
from omnigraph.pipeline.infer.value_types import ValueType, join_texts, type_of_column, type_of_text
from omnigraph.pipeline.key_buckets.hashes import Hashes, hash_column
from omnigraph.rules.arrow_typing import Column, pc
from omnigraph.rules.delta import one_array

SEED: Final = "omnigraph.infer"


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
        """Return the profile of both parts."""
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
        """Return the profile of both parts."""
        columns = {
            name: self.columns.get(name, ColumnProfile()).merge(other.columns.get(name, ColumnProfile()))
            for name in [*self.columns, *other.columns]
        }
        return TableProfile(self.rows + other.rows, columns)

    def nulls(self, name: str) -> int:
        return self.rows - self.columns[name].values


def profile_column(column: Column, *, is_text: bool, is_json: bool) -> ColumnProfile:
    """Return the profile of a column: text that has to be read, JSON, or typed values."""
    values = one_array(column)
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    values = values.drop_null()
    if not len(values):
        return ColumnProfile()
    if pa.types.is_string(values.type) and (is_text or is_json):
        type_ = type_of_text(values, has_numbers=is_text)
    else:
        type_ = type_of_column(values)
        is_text = False
    is_read = is_text or (is_json and pa.types.is_string(values.type))
    if type_.scalar is None or type_.scalar is Scalar.BLOB or type_.is_list:
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
    values = one_array(column)
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    return hash_column(_texts(values.drop_null()), SEED)


def _texts(values: Column) -> Column:
    return values if pa.types.is_string(values.type) else one_array(values.cast(pa.string()))


def _lengths(values: Column) -> tuple[int, int]:
    bounds = pc.min_max(pc.list_value_length(values)).as_py()
    return bounds["min"], bounds["max"]


def _cap(words: frozenset[str]) -> frozenset[str] | None:
    return words if len(words) <= INFER_ENUM_VALUES_MAX else None
