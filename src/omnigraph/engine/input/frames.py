"""Data frames (Arrow, pandas, polars, dictionaries) as Arrow batches, whose columns are properties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from omnigraph.engine.arguments import check_type
from omnigraph.engine.json_text import has_json_text
from omnigraph.errors import UsageError
from omnigraph.lang.catalog import EdgeType, Scalar, Type
from omnigraph.limits import RESULT_BATCH_ROWS

if TYPE_CHECKING:
    from omnigraph.engine.input.splits import Columns

_ENDPOINTS: Final = (("from", "to"), ("src", "dst"))


def read_frame(frame: Any) -> pa.RecordBatchReader:
    """Return the rows of a frame as Arrow batches, with texts, lists and floats of the types that files have."""
    if isinstance(frame, pa.RecordBatchReader):
        reader = frame
    else:
        table = pa.table(frame)
        reader = table.to_reader(RESULT_BATCH_ROWS)
    schema = pa.schema([field.with_type(plain_type(field.type)) for field in reader.schema])
    if schema.equals(reader.schema):
        return reader
    return pa.RecordBatchReader.from_batches(schema, (_retyped(batch, schema) for batch in reader))


def _retyped(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        column.view(field.type) if _is_of_instants(column.type) else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _is_of_instants(type_: Any) -> bool:
    return pa.types.is_date64(type_.value_type if pa.types.is_list(type_) else type_)


def plain_type(type_: Any) -> Any:
    """Return the type with the same values that texts and lists have here; polars has the large variants and views."""
    if pa.types.is_date64(type_):
        # Results have it for DateTime; Arrow takes it for whole days wherever it converts it.
        return pa.timestamp("ms")
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_) or pa.types.is_null(type_):
        return pa.string()
    if pa.types.is_float16(type_):
        return pa.float32()
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(plain_type(type_.value_type))
    return type_


def check_frame(schema: pa.Schema, type_: Type, columns: Columns) -> None:
    """Raise `UsageError` for columns whose values no property has, and for edges without endpoints."""
    for field in schema:
        name, column = columns.properties.get(field.name, field.name), field.type
        if pa.types.is_dictionary(column):
            column = column.value_type
        is_blob = name in type_.properties and type_.properties[name].type.scalar is Scalar.BLOB
        item = column.value_type if pa.types.is_list(column) else column
        is_time = pa.types.is_timestamp(item) or pa.types.is_duration(item)
        is_known = has_json_text(column) or is_time or pa.types.is_decimal(column)
        if not is_known and not is_blob:
            raise unsupported_column(field.name, field.type)
    if isinstance(type_, EdgeType) and columns.source is None:
        endpoint_names(type_.name, schema.names)


def unsupported_column(name: str, type_: pa.DataType) -> UsageError:
    """Return the error for a column whose values no property has."""
    return UsageError(
        f"column `{name}` has the Arrow type `{type_}`, which a load does not read; convert it", column=name
    )


def endpoint_names(name: str, columns: Sequence[str]) -> tuple[str, str]:
    """Return the columns with the endpoints of edges."""
    for source, target in _ENDPOINTS:
        if source in columns and target in columns:
            return source, target
    listed = ", ".join(f"`{column}`" for column in columns)
    raise UsageError(f"the frame of edge `{name}` needs the columns `from` and `to`; it has {listed}", type=name)


def frame_name(type_name: str) -> str:
    """Return what messages call the frame with the rows of a type."""
    return f"the frame of {type_name}"


def is_arrow_stream(source: object) -> bool:
    """Return True for anything that other libraries can read as Arrow batches."""
    return hasattr(source, "__arrow_c_stream__")


def as_frame(source: Any) -> Any:
    """Return rows in other forms as a frame: dictionaries, or record batches one after the other.

    >>> as_frame(iter([{"name": "Ada"}])).to_pylist()
    [{'name': 'Ada'}]
    """
    if is_arrow_stream(source) or not isinstance(source, list | tuple | Iterator):
        return source
    rest = iter(source)
    first = next(rest, None)
    if isinstance(first, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(first.schema, chain([first], rest))
    if isinstance(first, Mapping):
        return pa.Table.from_pylist([dict(first), *map(dict, rest)])
    if first is None and not list(rest):
        return pa.table({})
    # What was taken is put back, so that an error names the source as it was.
    return chain([first], rest) if isinstance(source, Iterator) and first is not None else source


def require_frame(name: str, source: Any) -> Any:
    """Return a frame; raise `UsageError` for a source that is none."""
    if is_arrow_stream(source):
        return source
    raise UsageError(
        f"`{name}` is a `{type(source).__name__}`, which is not a data frame; pass a pandas or polars frame, an"
        " Arrow table, record batches or a list of dictionaries",
        type=name,
    )


def check_sources(data: Any, nodes: Mapping[str, Any] | None, edges: Mapping[str, Any] | None) -> None:
    """Raise `UsageError` unless an input is passed as data that names its types, or as frames by type."""
    check_type("nodes", nodes, Mapping | None)
    check_type("edges", edges, Mapping | None)
    if is_arrow_stream(data):
        raise frame_without_type()
    if data is not None and (nodes or edges):
        raise UsageError("pass either `data`, whose records name their types, or `nodes` and `edges`", argument="data")


def frame_without_type() -> UsageError:
    """Return the error for a frame that is passed as data."""
    return UsageError(
        'the rows of a data frame do not name their type; pass it as `nodes={"Type": frame}` or `edges={...}`',
        argument="data",
    )
