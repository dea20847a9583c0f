"""Data frames as NDJSON: columns are properties, and `from` and `to` of edges; decoded like any other input."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final

import orjson
import pyarrow as pa

from omnigraph.engine.arguments import check_type
from omnigraph.engine.json_text import DATETIME_FORMAT, JSON_NULL, has_json_text, json_text, quote_texts, string_bytes
from omnigraph.errors import UsageError
from omnigraph.lang.catalog import Kind
from omnigraph.limits import (
    FRAME_BATCH_ROWS,
    RESULT_BATCH_ROWS,
)
from omnigraph.rules.arrow_typing import pc
from omnigraph.rules.coerce import floats_of_decimals, loses_digits
from omnigraph.rules.delta import Locate

_ENDPOINTS: Final = (("from", "to"), ("src", "dst"))


class FrameLines(io.BufferedReader):
    """NDJSON of data frames, encoded while it is read; errors number the rows of each frame.

    `type_names` are the types of the frames, by kind, and `filled_names` those of which rows were read so far: a frame
    without rows has no line that names its type.
    """

    def __init__(self, frames: Sequence[tuple[Kind, str, Any]]) -> None:
        self.type_names: dict[Kind, list[str]] = {"node": [], "edge": []}
        for kind, name, _ in frames:
            self.type_names[kind].append(name)
        self.filled_names: set[str] = set()
        # The line of the text at which each frame begins, as far as it was read.
        self._first_lines: list[int] = []
        self._names = [frame_name(name) for _, name, _ in frames]
        super().__init__(_EncodedBatches(self._encode(frames)))

    @property
    def locate(self) -> Locate | None:
        """Find the frame of a line and the row in it; None for one frame, where they are the same."""
        return self._locate if len(self._names) > 1 else None

    def _locate(self, line: int) -> tuple[str, int]:
        frame = bisect_right(self._first_lines, line) - 1
        return self._names[frame], line - self._first_lines[frame] + 1

    def _encode(self, frames: Sequence[tuple[Kind, str, Any]]) -> Iterator[bytes]:
        next_line = 1
        for kind, name, frame in frames:
            self._first_lines.append(next_line)
            for rows, text in _encode_frame(kind, name, frame):
                self.filled_names.add(name)
                next_line += rows
                yield text


def frame_name(type_name: str) -> str:
    """Return what messages call the frame with the rows of a type."""
    return f"the frame of {type_name}"


class _EncodedBatches(io.RawIOBase):
    """The text of batches, one after the other, as a file."""

    def __init__(self, texts: Iterator[bytes]) -> None:
        self._texts = texts
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            text = next(self._texts, None)
            if text is None:
                return 0
            self._rest = memoryview(text)
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


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

    >>> encode_frames({"Person": pa.table({"name": ["Ada"], "age": [36]})}, None).read()
    b'{"type":"Person","data":{"name":"Ada","age":36}}\\n'
    """
    by_kind: dict[Kind, Mapping[str, Any]] = {"node": nodes or {}, "edge": edges or {}}
    frames = [(kind, name, as_frame(frame)) for kind, of_kind in by_kind.items() for name, frame in of_kind.items()]
    for _, name, frame in frames:
        if not is_arrow_stream(frame):
            raise UsageError(
                f"`{name}` is a `{type(frame).__name__}`, which is not a data frame; pass a pandas or polars frame, an"
                " Arrow table, record batches or a list of dictionaries",
                type=name,
            )
    return FrameLines(frames)


def _encode_frame(kind: Kind, name: str, frame: Any) -> Iterator[tuple[int, bytes]]:
    """Yield the text of some rows of a frame after their number."""
    # Small batches, because reading stops soon after the limits of one write are passed.
    batches = (
        batch.slice(start, FRAME_BATCH_ROWS)
        for batch in read_frame(frame)
        for start in range(0, batch.num_rows, FRAME_BATCH_ROWS)
    )
    for batch in batches:
        texts = {column: _column_text(column, batch.column(column)) for column in batch.schema.names}
        head = f'{{"{"edge" if kind == "edge" else "type"}":{orjson.dumps(name).decode()}'
        parts: list[Any] = [head]
        if kind == "edge":
            for member, column in zip(("from", "to"), _find_endpoints(name, texts), strict=True):
                parts += [f',"{member}":', texts.pop(column)]
        parts.append(',"data":{')
        for index, (column, text) in enumerate(texts.items()):
            parts += [("," if index else "") + orjson.dumps(column).decode() + ":", text]
        yield batch.num_rows, string_bytes(pc.binary_join_element_wise(*parts, "}}\n", ""))


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
    if pa.types.is_date64(type_):
        # The type that results have for DateTime: milliseconds, not only whole days.
        values, type_ = values.view(pa.timestamp("ms")), pa.timestamp("ms")
    if pa.types.is_timestamp(type_):
        zoned = values.cast(pa.timestamp("ms", type_.tz), safe=False)
        utc = zoned if type_.tz is None else zoned.cast(pa.timestamp("ms", "UTC"))
        return quote_texts(pc.strftime(utc, DATETIME_FORMAT))
    if pa.types.is_date(type_):
        return quote_texts(values.cast(pa.string()))
    if pa.types.is_decimal(type_):
        return _decimal_text(name, values)
    if _plain_type(type_) != type_:
        values = values.cast(_plain_type(type_))
    if not has_json_text(values.type):
        raise UsageError(
            f"column `{name}` has the Arrow type `{type_}`, which a load does not read; convert it, or write the"
            " frame to Parquet and `load` that",
            column=name,
        )
    return json_text(values)


def _decimal_text(name: str, decimals: Any) -> Any:
    """Return decimals as integers if all of them are whole, and otherwise as the nearest floats."""
    with suppress(pa.ArrowInvalid):
        return pc.fill_null(decimals.cast(pa.decimal256(76, 0)).cast(pa.string()), JSON_NULL)
    floats = floats_of_decimals(decimals)
    lost = loses_digits(decimals, floats)
    if lost.any():
        value = decimals[int(lost.argmax())].as_py()
        raise UsageError(f"column `{name}` has {value}, which has more digits than a float; round it", column=name)
    return json_text(floats)


def _plain_type(type_: Any) -> Any:
    """Return the type with the same values that texts and lists have here; polars has the large variants and views."""
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_) or pa.types.is_null(type_):
        return pa.string()
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(_plain_type(type_.value_type))
    return type_


def _whole_numbers(values: Any) -> Any:
    """Return floats as integers if all of them are whole: pandas has no other integers with missing values."""
    # Half and single floats cannot be compared with the bound, nor the former cast to integers.
    wide = values.cast(pa.float64())
    is_whole = pc.all(pc.equal(pc.floor(wide), wide)).as_py() is not False
    if not wide.null_count or not is_whole or not pc.all(pc.less(pc.abs(wide), 2**53)).as_py():
        return values
    return wide.cast(pa.int64())
