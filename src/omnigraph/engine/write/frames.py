"""Data frames as input of an ingest: pandas, polars, Arrow tables and readers, encoded as NDJSON column by column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson
import pyarrow as pa

from omnigraph.engine.arguments import check_type
from omnigraph.engine.json_text import JSON_NULL, json_text
from omnigraph.errors import UsageError
from omnigraph.limits import RESULT_BATCH_ROWS
from omnigraph.rules.arrow_typing import pc

_ENDPOINTS: Final = (("from", "to"), ("src", "dst"))
_DATETIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"


class FrameLines(bytes):
    """NDJSON of data frames; errors number its rows, frame after frame."""


def is_arrow_stream(source: object) -> bool:
    """Return True for anything that other libraries can read as Arrow batches."""
    return hasattr(source, "__arrow_c_stream__")


def read_frame(frame: Any) -> pa.RecordBatchReader:
    """Return the rows of a frame as Arrow batches."""
    if isinstance(frame, pa.RecordBatchReader):
        return frame
    table = pa.table(frame)
    columns = [_whole_numbers(column) if pa.types.is_floating(column.type) else column for column in table.columns]
    return pa.table(columns, names=table.column_names).to_reader(RESULT_BATCH_ROWS)


def resolve_input(data: Any, nodes: Mapping[str, Any] | None, edges: Mapping[str, Any] | None) -> Any:
    """Return the input of an ingest that is passed as data or as frames by type."""
    check_type("nodes", nodes, Mapping | None)
    check_type("edges", edges, Mapping | None)
    if is_arrow_stream(data):
        raise UsageError(
            'the rows of a data frame do not name their type; pass it as `nodes={"Type": frame}` or `edges={...}`',
            argument="data",
        )
    if not nodes and not edges:
        return data
    if data is not None:
        raise UsageError("pass either `data`, whose records name their types, or `nodes` and `edges`", argument="data")
    return encode_frames(nodes, edges)


def encode_frames(nodes: Mapping[str, Any] | None, edges: Mapping[str, Any] | None) -> FrameLines:
    """Return the rows of frames as NDJSON; the columns of a frame are properties, and `from` and `to` of edges.

    >>> encode_frames({"Person": pa.table({"name": ["Ada"], "age": [36]})}, None)
    b'{"type":"Person","data":{"name":"Ada","age":36}}\\n'
    """
    lines: list[bytes] = []
    for kind, frames in (("type", nodes), ("edge", edges)):
        for name, frame in (frames or {}).items():
            lines += _encode_frame(kind, name, frame)
    return FrameLines(b"".join(lines))


def _encode_frame(kind: str, name: str, frame: Any) -> Iterator[bytes]:
    if not is_arrow_stream(frame):
        raise UsageError(
            f"`{name}` is a `{type(frame).__name__}`, which is not a data frame; pass a pandas or polars frame, an"
            " Arrow table or a record batch reader",
            type=name,
        )
    for batch in read_frame(frame):
        texts = {column: _column_text(column, batch.column(column)) for column in batch.schema.names}
        head = f'{{"{kind}":{orjson.dumps(name).decode()}'
        parts: list[Any] = [head]
        if kind == "edge":
            for member, column in zip(("from", "to"), _find_endpoints(name, texts), strict=True):
                parts += [f',"{member}":', texts.pop(column)]
        parts.append(',"data":{')
        for index, (column, text) in enumerate(texts.items()):
            parts += [("," if index else "") + orjson.dumps(column).decode() + ":", text]
        rows = pc.binary_join_element_wise(*parts, "}}\n", "")
        ends: Any = pa.array([0, len(rows)], pa.int32())
        yield bytes(pc.binary_join(pa.ListArray.from_arrays(ends, rows), "")[0].as_buffer())


def _find_endpoints(name: str, columns: Mapping[str, Any]) -> tuple[str, str]:
    for source, target in _ENDPOINTS:
        if source in columns and target in columns:
            return source, target
    listed = ", ".join(f"`{column}`" for column in columns)
    raise UsageError(f"the frame of edge `{name}` needs the columns `from` and `to`; it has {listed}", type=name)


def _column_text(name: str, values: Any) -> Any:
    """Return the JSON text of each value of a column."""
    type_ = values.type
    if pa.types.is_dictionary(type_):
        values, type_ = values.dictionary_decode(), type_.value_type
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        values = values.cast(pa.string())
    elif pa.types.is_timestamp(type_):
        zoned = values.cast(pa.timestamp("ms", type_.tz), safe=False)
        utc = zoned if type_.tz is None else zoned.cast(pa.timestamp("ms", "UTC"))
        return _quote(pc.strftime(utc, _DATETIME_FORMAT))
    elif pa.types.is_date(type_):
        return _quote(values.cast(pa.date32()).cast(pa.string()))
    elif pa.types.is_large_list(type_):
        values = values.cast(pa.list_(type_.value_type))
    elif pa.types.is_null(type_):
        values = values.cast(pa.string())
    try:
        return json_text(values)
    except AssertionError:
        raise UsageError(
            f"column `{name}` has the Arrow type `{type_}`, which `ingest` does not read; convert it, or write the"
            " frame to Parquet and `load` that",
            column=name,
        ) from None


def _whole_numbers(values: Any) -> Any:
    """Return floats as integers if all of them are whole: pandas has no other integers with missing values."""
    is_whole = pc.all(pc.equal(pc.floor(values), values)).as_py() is not False
    if not values.null_count or not is_whole or not pc.all(pc.less(pc.abs(values), 2**53)).as_py():
        return values
    return values.cast(pa.int64())


def _quote(texts: Any) -> Any:
    return pc.fill_null(pc.binary_join_element_wise('"', texts, '"', ""), JSON_NULL)
