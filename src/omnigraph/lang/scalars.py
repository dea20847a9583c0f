"""The scalar types: one entry says everything of a type that needs no library.

What needs one follows from the entry: columns in `lang.schema.arrow_schema`, their values in `rules.coerce`, columns of
Spark in `spark.datasource.options`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Final, Literal

from omnigraph.lang import times

# The words for types in descriptions of parameters; `list` stands beside the word of its items.
ParameterKind = Literal[
    "string", "bool", "int", "bigint", "float", "date", "datetime", "duration", "blob", "vector", "list"
]


class Family(Enum):
    """What values of a type are like: which of them compare with each other, and how inputs write them."""

    TEXT = auto()
    BYTES = auto()
    TRUTH = auto()
    INTEGER = auto()
    FLOAT = auto()
    TIME = auto()
    VECTOR = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarFacts:
    """What there is to know of a type.

    Attributes:
        family: What its values are like.
        arrow: The type of a column, by Arrow's name; of a vector that of its numbers.
        spark: The type in Spark, as its schemas write it; Spark has no unsigned integers.
        kind: The word for it in descriptions of parameters.
        meaning: What editors show a reader of a schema.
        range: The least and the greatest integer that is stored, for types that are stored as integers.
        time: How values are written and read, if they are stored as integers and written as text.
        filter_word: The type as filter texts name it, if storage takes no typed filter on columns of `arrow`.
        wider: Types that hold each value exactly, so that a migration may change a property to them.
        casts: Types that `cast` converts to, besides String.
        document_type: The type of an attribute in GraphML, which has no unsigned types; a text keeps all digits.
        other_names: What other languages call it.
    """

    family: Family
    arrow: str
    spark: str
    kind: ParameterKind
    meaning: str
    range: tuple[int, int] | None = None
    time: times.TimeForm | None = None
    filter_word: str | None = None
    wider: frozenset[Scalar] = frozenset()
    casts: frozenset[Scalar] = frozenset()
    document_type: str = "string"
    other_names: tuple[str, ...] = ()


class Scalar(StrEnum):
    """The base types, by their spelling in a schema."""

    STRING = "String"
    BLOB = "Blob"
    BOOL = "Bool"
    I32 = "I32"
    I64 = "I64"
    U32 = "U32"
    U64 = "U64"
    F32 = "F32"
    F64 = "F64"
    DATE = "Date"
    DATETIME = "DateTime"
    DURATION = "Duration"
    VECTOR = "Vector"

    @property
    def facts(self) -> ScalarFacts:
        return FACTS[self]

    @property
    def literal_call(self) -> str:
        """The function that makes a literal of a text: `date` in `date("2024-01-31")`."""
        return self.value.lower()


_INTEGERS: Final = frozenset({Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64})
_NUMBERS: Final = _INTEGERS | {Scalar.F32, Scalar.F64}
_SMALL_NAMES: Final = ("int", "integer", "number", "i32")
FACTS: Final[Mapping[Scalar, ScalarFacts]] = {
    Scalar.STRING: ScalarFacts(
        family=Family.TEXT, arrow="string", spark="string", kind="string", meaning="A text.",
        other_names=("str", "text", "varchar", "uuid"),
    ),
    Scalar.BLOB: ScalarFacts(
        family=Family.BYTES, arrow="large_binary", spark="binary", kind="blob", meaning="Bytes of any size.",
        other_names=("bytes", "binary"),
    ),
    Scalar.BOOL: ScalarFacts(
        family=Family.TRUTH, arrow="bool", spark="boolean", kind="bool", meaning="`true` or `false`.",
        casts=_INTEGERS, document_type="boolean",
    ),
    Scalar.I32: ScalarFacts(
        family=Family.INTEGER, arrow="int32", spark="integer", kind="int", meaning="A 32-bit integer.",
        range=(-(2**31), 2**31 - 1), casts=_NUMBERS, wider=frozenset({Scalar.I64, Scalar.F64}),
        document_type="int", other_names=_SMALL_NAMES,
    ),
    Scalar.I64: ScalarFacts(
        family=Family.INTEGER, arrow="int64", spark="long", kind="bigint", meaning="A 64-bit integer.",
        range=(-(2**63), 2**63 - 1), casts=_NUMBERS,
        document_type="long", other_names=(*_SMALL_NAMES, "long", "bigint", "int64", "i64"),
    ),
    Scalar.U32: ScalarFacts(
        family=Family.INTEGER, arrow="uint32", spark="long", kind="int",
        meaning="A 32-bit integer that is not negative.",
        range=(0, 2**32 - 1), casts=_NUMBERS, wider=frozenset({Scalar.U64, Scalar.I64, Scalar.F64}),
        filter_word="UInt32", document_type="long",
    ),
    Scalar.U64: ScalarFacts(
        family=Family.INTEGER, arrow="uint64", spark="decimal(20,0)", kind="bigint",
        meaning="A 64-bit integer that is not negative.",
        range=(0, 2**64 - 1), casts=_NUMBERS, filter_word="UInt64",
    ),
    Scalar.F32: ScalarFacts(
        family=Family.FLOAT, arrow="float32", spark="float", kind="float", meaning="A 32-bit float.",
        casts=_NUMBERS, wider=frozenset({Scalar.F64}), document_type="float",
    ),
    Scalar.F64: ScalarFacts(
        family=Family.FLOAT, arrow="float64", spark="double", kind="float", meaning="A 64-bit float.",
        casts=_NUMBERS, document_type="double", other_names=("float", "double", "real", "f64"),
    ),
    Scalar.DATE: ScalarFacts(
        family=Family.TIME, arrow="date32", spark="date", kind="date", meaning="A day.",
        range=times.DATE_RANGE, time=times.DATE, casts=frozenset({Scalar.DATETIME}),
    ),
    Scalar.DATETIME: ScalarFacts(
        family=Family.TIME, arrow="date64", spark="timestamp", kind="datetime", meaning="An instant, in milliseconds.",
        range=times.DATETIME_RANGE, time=times.DATETIME, casts=frozenset({Scalar.DATE}),
        filter_word="Date64", other_names=("timestamp",),
    ),
    Scalar.DURATION: ScalarFacts(
        family=Family.TIME, arrow="duration[ms]", spark="interval day to second", kind="duration",
        meaning="A length of time, in milliseconds.", range=times.DURATION_RANGE, time=times.DURATION,
        filter_word="Duration(Millisecond)", other_names=("interval", "timedelta"),
    ),
    Scalar.VECTOR: ScalarFacts(
        family=Family.VECTOR, arrow="float32", spark="float", kind="vector",
        meaning="A vector of 32-bit floats with this many dimensions: `Vector(384)`.",
    ),
}  # fmt: skip


def _of(*families: Family) -> frozenset[Scalar]:
    return frozenset(scalar for scalar in Scalar if scalar.facts.family in families)


INTEGERS: Final = _of(Family.INTEGER)
FLOATS: Final = _of(Family.FLOAT)
NUMBERS: Final = INTEGERS | FLOATS
# What is stored as an integer and written as text.
TIME_FORMS: Final[Mapping[Scalar, times.TimeForm]] = {
    scalar: scalar.facts.time for scalar in Scalar if scalar.facts.time is not None
}
TIMES: Final = frozenset(TIME_FORMS)
# What has an order, and so a least and a greatest value.
ORDERED: Final = NUMBERS | TIMES | _of(Family.TEXT)
# Single values that can be compared, and so be a key.
PLAIN: Final = ORDERED | _of(Family.TRUTH)
RANGES: Final[Mapping[Scalar, tuple[int, int]]] = {
    scalar: scalar.facts.range for scalar in Scalar if scalar.facts.range is not None
}
# The functions that make a literal of a text: `date` in `date("2024-01-31")`.
LITERAL_CALLS: Final[Mapping[str, Scalar]] = {scalar.literal_call: scalar for scalar in TIME_FORMS}


def cast_targets(source: Scalar) -> frozenset[Scalar]:
    """Return the types that values of a type can be cast to besides their own; a text may hold any plain value."""
    if source not in PLAIN:
        return frozenset()
    if source is Scalar.STRING:
        return PLAIN - {Scalar.STRING}
    return source.facts.casts | {Scalar.STRING}


def narrow_float(value: float, scalar: Scalar) -> float:
    """Return a float as a type stores it; raises `OverflowError` if it is too large.

    >>> narrow_float(0.1, Scalar.F32), narrow_float(0.1, Scalar.F64)
    (0.10000000149011612, 0.1)
    """
    if scalar is not Scalar.F32:
        return value
    single: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return single


def readable(value: object, scalar: Scalar) -> object:
    """Return a stored value, or a list of them, as the text that a query shows; unchanged where it is no time.

    >>> readable(19756, Scalar.DATE), readable([1704164645000, None], Scalar.DATETIME)
    ('2024-02-03', ['2024-01-02T03:04:05.000Z', None])
    >>> readable(10**15, Scalar.DATETIME), readable("x", Scalar.DATE), readable(7, Scalar.I64)
    (1000000000000000, 'x', 7)
    """
    form = TIME_FORMS.get(scalar)
    if isinstance(value, list):
        return [readable(item, scalar) for item in value]
    if form is None or not isinstance(value, int) or isinstance(value, bool):
        return value
    text = form.write(value)
    return value if text is None else text
