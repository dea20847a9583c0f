"""Property types as Spark types, lossless in both directions. Pure.

Columns come back from Spark as from any file, through `bulk_load.column_mapping`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from omnigraph.engine.write.ndjson.blocks import Type
from omnigraph.errors import UsageError
from omnigraph.lang.catalog import Catalog, EdgeType, NodeType, PropertyType, Scalar
from omnigraph.lang.suggestions import did_you_mean
from omnigraph.rules.arrow_typing import Column
from omnigraph.rules.coerce_column import list_column

# In the notation of Spark schemas. Spark has no unsigned integers, no vectors, and no timestamps in milliseconds.
SPARK_TYPES: Final = {
    Scalar.STRING: "string",
    Scalar.BLOB: "binary",
    Scalar.BOOL: "boolean",
    Scalar.I32: "integer",
    Scalar.I64: "long",
    Scalar.U32: "long",
    Scalar.U64: "decimal(20,0)",
    Scalar.F32: "float",
    Scalar.F64: "double",
    Scalar.DATE: "date",
    Scalar.DATETIME: "timestamp",
    Scalar.VECTOR: "float",
}
_MILLISECONDS: Final = pa.timestamp("ms", "UTC")
_MICROSECONDS: Final = pa.timestamp("us", "UTC")


def find_type(catalog: Catalog, name: str) -> Type:
    """Return the type of a name such as `Person`, or `node:Person`."""
    kind, _, bare = name.strip().rpartition(":")
    matches: list[Type] = []
    if kind in ("", "node") and bare in catalog.nodes:
        matches.append(catalog.nodes[bare])
    if kind in ("", "edge") and (edge := catalog.edge_by_word(bare)) is not None:
        matches.append(edge)
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UsageError(f"`{name}` is a node type and an edge type; write `node:{name}` or `edge:{name}`", type=name)
    known = [*catalog.nodes, *catalog.edges]
    hint = did_you_mean(bare, known) or f"the graph has {', '.join(sorted(known)) or 'none'}"
    raise UsageError(f"there is no type `{name}`; {hint}", type=name)


def column_names(type_: Type) -> list[str]:
    """Return the columns of a type in order."""
    ends = ["src", "dst"] if isinstance(type_, EdgeType) else []
    return ["id", *ends, *sorted(type_.properties)]


def spark_fields(type_: Type, columns: Sequence[str]) -> list[dict[str, object]]:
    """Return columns as fields of a Spark schema in JSON; metadata has the type of each in the graph."""
    fields: list[dict[str, object]] = []
    key = type_.key if isinstance(type_, NodeType) else ()
    for name in columns:
        property_ = type_.properties.get(name)
        if property_ is None:
            fields.append(spark_field(name, "string", nullable=False, metadata={"omnigraph.type": "String"}))
            continue
        metadata: dict[str, object] = {"omnigraph.type": str(property_.type)}
        if name in key:
            metadata["omnigraph.key"] = True
        fields.append(
            spark_field(name, _spark_type(property_.type), nullable=property_.type.nullable, metadata=metadata)
        )
    return fields


def spark_field(name: str, type_: object, *, nullable: bool, metadata: dict[str, object]) -> dict[str, object]:
    """Return a field of a Spark schema in JSON."""
    return {"name": name, "type": type_, "nullable": nullable, "metadata": metadata}


def _spark_type(type_: PropertyType) -> object:
    word = SPARK_TYPES[type_.scalar]
    is_vector = type_.scalar is Scalar.VECTOR
    return {"type": "array", "elementType": word, "containsNull": not is_vector} if is_vector or type_.is_list else word


def to_spark_column(column: Column, type_: PropertyType, target: pa.DataType) -> Column:
    """Convert a stored column to `target`, the Arrow type that Spark uses for it.

    >>> to_spark_column(pa.array([2**64 - 1], pa.uint64()), PropertyType(Scalar.U64), pa.decimal128(20, 0)).to_pylist()
    [Decimal('18446744073709551615')]
    """
    if type_.scalar is not Scalar.DATETIME:
        return column.cast(target)
    if type_.is_list:
        items = to_spark_column(column.values, PropertyType(Scalar.DATETIME), _MICROSECONDS)
        return list_column(column.offsets, items, column.is_null()).cast(target)
    return column.view(_MILLISECONDS).cast(target)
