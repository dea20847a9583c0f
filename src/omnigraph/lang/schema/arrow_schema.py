"""The Arrow schema of a node or edge type.

Pure, but needs pyarrow: nothing on the compile path imports this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from omnigraph.lang.catalog import EdgeType, NodeType, Property, PropertyType, Scalar

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
    """Return the columns of a type: `id`, for an edge `src` and `dst`, then its properties in name order."""
    fields = [pa.field("id", pa.string(), nullable=False, metadata={PRIMARY_KEY: "true"})]
    if isinstance(type_, EdgeType):
        fields += [pa.field(name, pa.string(), nullable=False) for name in ("src", "dst")]
    fields += [_field(property_) for _, property_ in sorted(type_.properties.items())]
    return pa.schema(fields)


def _field(property_: Property) -> pa.Field[Any]:
    metadata = {PROPERTY_ID: str(property_.property_id)}
    if property_.type.scalar is Scalar.BLOB:
        metadata[BLOB] = "true"
    return pa.field(property_.name, arrow_type(property_.type), nullable=property_.type.nullable, metadata=metadata)
