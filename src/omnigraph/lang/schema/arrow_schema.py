"""The stored form of a type: its Arrow schema, and the `id` of each row, computed from its key.

Pure, but needs pyarrow: nothing on the compile path imports this module. Ids of columns and of single rows agree value
for value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from math import isfinite
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import DataError
from omnigraph.lang.catalog import TEXT, EdgeType, NodeType, Property, PropertyType, Type
from omnigraph.lang.scalars import FLOATS, RANGES, TIME_FORMS, TIMES, Family, Scalar, narrow_float

PRIMARY_KEY: Final = "lance-schema:unenforced-primary-key"
PROPERTY_ID: Final = "omnigraph.stable_property_id"
BLOB: Final = "omnigraph.blob"

# A column of single values, by the type of the values.
ARROW_TYPES: Final[Mapping[Scalar, pa.DataType]] = {
    scalar: pa.type_for_alias(scalar.facts.arrow)  # type: ignore[call-overload]  # of each name its own type
    for scalar in Scalar
}
# The type of what a column holds; a vector holds floats.
SCALARS: Final[Mapping[pa.DataType, Scalar]] = {ARROW_TYPES[scalar]: scalar for scalar in reversed(Scalar)}
# The types of columns that are stored as integers, with the integers; values are read and compared as those.
PHYSICAL: Final[Mapping[pa.DataType, pa.DataType]] = {
    type_: pa.int32() if type_.bit_width == 32 else pa.int64() for type_ in (ARROW_TYPES[scalar] for scalar in TIMES)
}


def arrow_type(type_: PropertyType) -> pa.DataType:
    """Return the logical Arrow type of a property.

    >>> str(arrow_type(PropertyType(Scalar.VECTOR, dimension=3)))
    'fixed_size_list<item: float>[3]'
    """
    if type_.is_vector:
        return pa.list_(pa.field("item", arrow_type(type_.item_type)), type_.dimension or 0)
    scalar = ARROW_TYPES[type_.scalar]
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
    if property_.type.is_blob:
        metadata[BLOB] = "true"
    return pa.field(property_.name, arrow_type(property_.type), nullable=property_.type.nullable, metadata=metadata)


_CONTROL: Final = "[\\x00-\\x1f]"
_CONTROL_CODES: Final = range(0x20)


def key_member_type(owner: Type, name: str) -> PropertyType:
    """Return the type of a member of a key; the endpoints of an edge are ids."""
    return owner.properties[name].type if name in owner.properties else TEXT


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
    stored = arrow_type(type_)
    values = values.cast(stored)
    if type_.scalar in FLOATS:
        return _format_floats(owner, name, values)
    texts: Any = values.cast(PHYSICAL.get(stored, stored)).cast(pa.string())
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
    if isinstance(value, bool):
        if type_.scalar.facts.family is Family.TRUTH:
            return "true" if value else "false"
    elif type_.scalar in FLOATS and isinstance(value, int | float):
        return _format_float(owner, name, float(value), type_)
    else:
        form, (low, high) = TIME_FORMS.get(type_.scalar), RANGES.get(type_.scalar, (0, -1))
        with suppress(ValueError):
            stored = value if form is None or isinstance(value, int) else form.convert(value)
            if isinstance(stored, int) and low <= stored <= high:
                return str(stored)
    raise DataError(f"key `{owner.name}.{name}` cannot hold this value as `{type_}`", rule="E4", property=name)


def _format_float(owner: Type, name: str, value: float, type_: PropertyType) -> str:
    try:
        value = narrow_float(value, type_.scalar)
    except OverflowError:
        message = f"key `{owner.name}.{name}` is out of range for `{type_}`"
        raise DataError(message, rule="E4", property=name) from None
    if not isfinite(value):
        raise _not_finite(owner, name)
    # Python formats 64-bit floats only; the shortest digits at any width come from the kernel that the columns use.
    digits: str = pa.scalar(value + 0.0, arrow_type(type_)).cast(pa.string()).as_py()
    return _positional(digits) if "e" in digits else digits


def _null(owner: Type, name: str) -> DataError:
    return DataError(f"key `{owner.name}.{name}` is null; every {owner.kind} needs its key", rule="E4", property=name)


def _not_finite(owner: Type, name: str) -> DataError:
    message = f"key `{owner.name}.{name}` is NaN or infinite; a key holds finite numbers only"
    return DataError(message, rule="E6", property=name)
