"""The stored form of a type: its Arrow schema, and the `id` of each row, computed from its key.

Pure, but needs pyarrow: nothing on the compile path imports this module. Ids of columns and of single rows agree value
for value.
"""

from __future__ import annotations

import datetime as dt
import json
import struct
from collections.abc import Mapping
from decimal import Decimal
from math import isfinite
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import DataError
from omnigraph.lang.catalog import FLOATS, INTEGER_RANGES, EdgeType, NodeType, Property, PropertyType, Scalar, Type

PRIMARY_KEY: Final = "lance-schema:unenforced-primary-key"
PROPERTY_ID: Final = "omnigraph.stable_property_id"
BLOB: Final = "omnigraph.blob"

_SCALARS: Final[Mapping[Scalar, pa.DataType]] = {
    Scalar.STRING: pa.string(),
    Scalar.BLOB: pa.large_binary(),
    Scalar.BOOL: pa.bool_(),
    Scalar.I32: pa.int32(),
    Scalar.I64: pa.int64(),
    Scalar.U32: pa.uint32(),
    Scalar.U64: pa.uint64(),
    Scalar.F32: pa.float32(),
    Scalar.F64: pa.float64(),
    Scalar.DATE: pa.date32(),
    Scalar.DATETIME: pa.date64(),
}


def arrow_type(type_: PropertyType) -> pa.DataType:
    """Return the logical Arrow type of a property.

    >>> str(arrow_type(PropertyType(Scalar.VECTOR, dimension=3)))
    'fixed_size_list<item: float>[3]'
    """
    if type_.scalar is Scalar.VECTOR:
        return pa.list_(pa.field("item", pa.float32()), type_.dimension or 0)
    scalar = _SCALARS[type_.scalar]
    return pa.list_(pa.field("item", scalar)) if type_.is_list else scalar


def arrow_schema(type_: NodeType | EdgeType) -> pa.Schema:
    """Return the columns of a type: `id`, for an edge `src` and `dst`, then its other properties in name order.

    A key that is declared as `id: String @key` is the column `id`.
    """
    metadata = {PRIMARY_KEY: "true"}
    if "id" in type_.properties:
        metadata[PROPERTY_ID] = str(type_.properties["id"].property_id)
    fields = [pa.field("id", pa.string(), nullable=False, metadata=metadata)]
    if isinstance(type_, EdgeType):
        fields += [pa.field(name, pa.string(), nullable=False) for name in ("src", "dst")]
    fields += [_field(property_) for name, property_ in sorted(type_.properties.items()) if name != "id"]
    return pa.schema(fields)


def _field(property_: Property) -> pa.Field[Any]:
    metadata = {PROPERTY_ID: str(property_.property_id)}
    if property_.type.scalar is Scalar.BLOB:
        metadata[BLOB] = "true"
    return pa.field(property_.name, arrow_type(property_.type), nullable=property_.type.nullable, metadata=metadata)


_ENDPOINT: Final = PropertyType(Scalar.STRING)
_CONTROL: Final = "[\\x00-\\x1f]"
_CONTROL_CODES: Final = range(0x20)
_EPOCH: Final = dt.date(1970, 1, 1)
_EPOCH_UTC: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
# Dates are stored as days, and instants as milliseconds.
_RANGES: Final = {
    **INTEGER_RANGES,
    Scalar.DATE: INTEGER_RANGES[Scalar.I32],
    Scalar.DATETIME: INTEGER_RANGES[Scalar.I64],
}


def key_member_type(owner: Type, name: str) -> PropertyType:
    """Return the type of a member of a key; the endpoints of an edge are ids."""
    return owner.properties[name].type if name in owner.properties else _ENDPOINT


def key_ids(owner: Type, batch: pa.RecordBatch | pa.Table) -> pa.StringArray:
    """Return the ids of all rows of a batch that holds the key columns of a keyed type."""
    assert owner.key, f"{owner.name} has no key"
    parts = [_format_column(owner, name, batch.column(name)) for name in owner.key]
    if len(parts) == 1:
        return parts[0]
    quoted: list[Any] = [pa.scalar('["')]
    for position, (name, part) in enumerate(zip(owner.key, parts, strict=True)):
        quoted += [pa.scalar('","')] if position else []
        quoted.append(_escape_column(part) if key_member_type(owner, name).is_text else part)
    joined: pa.StringArray = pc.binary_join_element_wise(*quoted, pa.scalar('"]'), pa.scalar(""))
    return joined


def key_id(owner: Type, values: Mapping[str, object]) -> str:
    """Return the id of one owner. Dates may come as `date`, `datetime` or the stored integer.

    >>> from omnigraph.lang.catalog import NodeType, Property
    >>> number = Property("no", PropertyType(Scalar.F64), 1)
    >>> key_id(NodeType("N", 1, 2, {"no": number}, key=("no",)), {"no": 1e21})
    '1000000000000000000000'
    """
    assert owner.key, f"{owner.name} has no key"
    parts = [_format_value(owner, name, values.get(name)) for name in owner.key]
    return parts[0] if len(parts) == 1 else json.dumps(parts, separators=(",", ":"), ensure_ascii=False)


def _format_column(owner: Type, name: str, column: Any) -> pa.StringArray:
    type_ = key_member_type(owner, name)
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if values.null_count:
        raise _null(owner, name)
    values = values.cast(arrow_type(type_))
    if type_.scalar in FLOATS:
        return _format_floats(owner, name, values)
    if type_.scalar in (Scalar.DATE, Scalar.DATETIME):
        values = values.cast(pa.int32() if type_.scalar is Scalar.DATE else pa.int64())
    texts: Any = values.cast(pa.string())
    return texts  # type: ignore[no-any-return]


def _format_floats(owner: Type, name: str, values: Any) -> pa.StringArray:
    if not pc.all(pc.is_finite(values), min_count=0).as_py():
        raise _not_finite(owner, name)
    # Adding a positive zero turns -0.0 into 0.0 and leaves every other number alone.
    digits: Any = pc.cast(pc.add(values, pa.scalar(0.0, values.type)), pa.string())
    exponential = pc.match_substring(digits, "e")
    if not pc.any(exponential, min_count=0).as_py():
        return digits  # type: ignore[no-any-return]
    # No kernel writes an exponent out, so each distinct number that needs one is written out here, once.
    encoded = digits.filter(exponential).dictionary_encode()
    written = pa.array([_positional(text) for text in encoded.dictionary.to_pylist()], pa.string())
    spelled: pa.StringArray = pc.replace_with_mask(digits, exponential, written.take(encoded.indices))
    return spelled


def _positional(digits: str) -> str:
    return format(Decimal(digits), "f")


def _escape_column(texts: pa.StringArray) -> pa.StringArray:
    escaped: pa.StringArray = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    if not pc.any(pc.match_substring_regex(escaped, _CONTROL), min_count=0).as_py():
        return escaped
    for code in _CONTROL_CODES:
        escaped = pc.replace_substring(escaped, chr(code), json.dumps(chr(code))[1:-1])
    return escaped


def _format_value(owner: Type, name: str, value: object) -> str:
    type_ = key_member_type(owner, name)
    if value is None:
        raise _null(owner, name)
    if type_.is_text and isinstance(value, str):
        return value
    if type_.scalar is Scalar.BOOL and isinstance(value, bool):
        return "true" if value else "false"
    if type_.scalar in FLOATS and isinstance(value, int | float) and not isinstance(value, bool):
        return _format_float(owner, name, float(value), type_)
    if type_.scalar is Scalar.DATE:
        value = _days(value)
    elif type_.scalar is Scalar.DATETIME:
        value = _milliseconds(value)
    if isinstance(value, int) and not isinstance(value, bool) and _fits(value, type_.scalar):
        return str(value)
    raise DataError(f"key `{owner.name}.{name}` cannot hold this value as `{type_}`", rule="E4", property=name)


def _format_float(owner: Type, name: str, value: float, type_: PropertyType) -> str:
    if type_.scalar is Scalar.F32:
        try:
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:
            raise DataError(
                f"key `{owner.name}.{name}` is out of range for `{type_}`", rule="E4", property=name
            ) from None
    if not isfinite(value):
        raise _not_finite(owner, name)
    if type_.scalar is Scalar.F32:
        # Python formats 64-bit floats only; the shortest digits at 32 bits come from the kernel that the columns use.
        digits: str = pa.scalar(value + 0.0, pa.float32()).cast(pa.string()).as_py()
    else:
        digits = repr(value + 0.0).removesuffix(".0")
    return _positional(digits) if "e" in digits else digits


def _days(value: object) -> object:
    if isinstance(value, dt.datetime):
        return (_utc(value).date() - _EPOCH).days
    return (value - _EPOCH).days if isinstance(value, dt.date) else value


def _milliseconds(value: object) -> object:
    if isinstance(value, dt.datetime):
        return (_utc(value) - _EPOCH_UTC) // dt.timedelta(milliseconds=1)
    return _days(value) * 86_400_000 if isinstance(value, dt.date) else value  # type: ignore[operator]


def _utc(value: dt.datetime) -> dt.datetime:
    return value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)


def _fits(value: int, scalar: Scalar) -> bool:
    low, high = _RANGES.get(scalar, (0, -1))
    return low <= value <= high


def _null(owner: Type, name: str) -> DataError:
    return DataError(f"key `{owner.name}.{name}` is null; every {owner.kind} needs its key", rule="E4", property=name)


def _not_finite(owner: Type, name: str) -> DataError:
    message = f"key `{owner.name}.{name}` is NaN or infinite; a key holds finite numbers only"
    return DataError(message, rule="E6", property=name)
