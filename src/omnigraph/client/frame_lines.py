"""Data frames as NDJSON, which a server reads: columns are properties, and `from` and `to` of edges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import orjson
import pyarrow as pa

from omnigraph.engine.input.frames import as_frame, endpoint_names, read_frame, require_frame, unsupported_column
from omnigraph.engine.json_text import JSON_NULL, has_json_text, json_text, quote_texts, string_bytes
from omnigraph.errors import UsageError
from omnigraph.lang.schema.arrow_schema import PHYSICAL
from omnigraph.limits import FRAME_BATCH_ROWS
from omnigraph.rules.arrow_typing import pc
from omnigraph.rules.coerce import floats_of_decimals, loses_digits
from omnigraph.rules.time_columns import time_texts


def encode_frames(
    nodes: Mapping[str, Any] | None, edges: Mapping[str, Any] | None, *, is_overwriting: bool = False
) -> Iterator[bytes]:
    """Yield the rows of frames as lines of NDJSON, many at a time.

    >>> list(encode_frames({"Person": pa.table({"name": ["Ada"], "age": [36]})}, None))
    [b'{"type":"Person","data":{"name":"Ada","age":36}}\\n']
    """
    for member, frames in (("type", nodes), ("edge", edges)):
        for name, source in (frames or {}).items():
            is_empty = True
            for text in _encode_frame(member, name, require_frame(name, as_frame(source))):
                is_empty = False
                yield text
            if is_empty and is_overwriting:
                # The server would keep the entities of a type that no line names.
                raise UsageError(
                    f"the frame of `{name}` has no rows, so no line of it names the type to a server, which would keep"
                    " its entities; load it into the graph itself, or delete the entities with a mutation",
                    type=name,
                )


def _encode_frame(member: str, name: str, frame: Any) -> Iterator[bytes]:
    head = f'{{"{member}":{orjson.dumps(name).decode()}'
    for batch in read_frame(frame):
        for start in range(0, batch.num_rows, FRAME_BATCH_ROWS):
            rows = batch.slice(start, FRAME_BATCH_ROWS)
            texts = {column: _column_text(column, rows.column(column)) for column in rows.schema.names}
            parts: list[Any] = [head]
            ends = endpoint_names(name, list(texts)) if member == "edge" else ()
            for end, column in zip(("from", "to"), ends, strict=False):
                parts += [f',"{end}":', texts.pop(column)]
            parts.append(',"data":{')
            for index, (column, text) in enumerate(texts.items()):
                parts += [("," if index else "") + orjson.dumps(column).decode() + ":", text]
            yield string_bytes(pc.binary_join_element_wise(*parts, "}}\n", ""))


def _column_text(name: str, values: Any) -> Any:
    """Return the JSON text of each value of a column."""
    type_ = values.type
    if pa.types.is_dictionary(type_):
        values, type_ = values.dictionary_decode(), type_.value_type
    if pa.types.is_timestamp(type_):
        values = values.cast(pa.timestamp("ms", type_.tz), safe=False).view(pa.date64())
    if pa.types.is_duration(type_):
        values = _milliseconds(name, values)
    if values.type in PHYSICAL:
        return quote_texts(time_texts(values))
    if pa.types.is_decimal(type_):
        return _decimal_text(name, values)
    if pa.types.is_floating(type_):
        values = _whole_numbers(values)
    if not has_json_text(values.type):
        raise unsupported_column(name, type_)
    return json_text(values)


def _milliseconds(name: str, durations: Any) -> Any:
    try:
        return durations.cast(pa.duration("ms"))
    except pa.ArrowInvalid:
        message = f"column `{name}` has durations that are finer than a millisecond; round them"
        raise UsageError(message, column=name) from None


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


def _whole_numbers(values: Any) -> Any:
    """Return floats as integers if all of them are whole: pandas has no other integers with missing values."""
    # Half and single floats cannot be compared with the bound, nor the former cast to integers.
    wide = values.cast(pa.float64())
    is_whole = pc.all(pc.equal(pc.floor(wide), wide)).as_py() is not False
    if not wide.null_count or not is_whole or not pc.all(pc.less(pc.abs(wide), 2**53)).as_py():
        return values
    return wide.cast(pa.int64())
