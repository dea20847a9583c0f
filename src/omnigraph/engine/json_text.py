"""JSON text: vectorised encoding of Arrow columns, and duplicate members, which the parser accepts silently.

Pure. They are found by counting; only a text that has such a member is parsed a second time, to name it.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa

from omnigraph.lang.schema.arrow_schema import PHYSICAL
from omnigraph.rules.arrow_typing import pc
from omnigraph.rules.coerce import BLOB_PREFIX
from omnigraph.rules.time_columns import time_texts

_RECORD_OPTIONS: Final = orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
_STRING: Final = re.compile(rb'"[^"]*+"')


def encode_record(record: Any) -> bytes:
    """Return a dictionary as a line of NDJSON.

    >>> encode_record({"type": "Photo", "data": {"raw": b"hi"}})
    b'{"type":"Photo","data":{"raw":"base64:aGk="}}\\n'
    """
    try:
        return orjson.dumps(record, default=_encode_value, option=_RECORD_OPTIONS)
    except TypeError:
        # Integers and texts that orjson refuses are left for the rules to report.
        return json.dumps(record, default=_encode_value).encode() + b"\n"


def _encode_value(value: Any) -> str:
    return f"{BLOB_PREFIX}{b64encode(value).decode()}" if isinstance(value, bytes) else str(value)


def find_repeated_member(text: bytes, value: object) -> str | None:
    """Return the name of a member that an object of a JSON text has twice, or None; `value` is the parsed text.

    >>> find_repeated_member(b'{"a": 1, "b": {"a": 2, "a": 3}}', {"a": 1, "b": {"a": 3}})
    'a'
    """
    # Each member has a colon outside of strings, so fewer members than colons means that one was overwritten.
    members = _count_members(value, text)
    if _is_surely_complete(text, members) or count_outside_strings(text, b":") == members:
        return None
    return _repeated_name(text)


def count_outside_strings(text: bytes, characters: bytes) -> int:
    """Return how many of some characters a JSON text has outside of its strings."""
    # Escaped backslashes first: what is left before a quote then escapes it.
    without_escaped_quotes = text.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in text else text
    bare = _STRING.sub(b"", without_escaped_quotes)
    return len(bare) - len(bare.translate(None, characters))


def _is_surely_complete(text: bytes, members: int) -> bool:
    """Return True only if there is no duplicate member; False is inconclusive.

    Where nothing is escaped and no blank stands before a colon, a quote followed by a colon ends the name of a member
    or begins a string. So a text has at least as many of them as members, and equal numbers mean that none was lost.
    """
    is_odd = b"\\" in text or b" :" in text or b"\t:" in text or b"\r:" in text or b"\n:" in text
    return not is_odd and text.count(b'":') == members


def _count_members(value: Any, text: bytes) -> int:
    """Return how many members all objects of a parsed value have."""
    data = value.get("data") if type(value) is dict else None
    if type(data) is dict and text.count(b"{") == 2:
        return len(value) + len(data)
    total, stack = 0, [value]
    while stack:
        item = stack.pop()
        if type(item) is dict:
            total += len(item)
            stack.extend(item.values())
        elif type(item) is list:
            stack.extend(item)
    return total


def _repeated_name(text: bytes) -> str:
    names: list[str] = []

    def note_repeats(members: list[tuple[str, object]]) -> None:
        distinct: set[str] = set()
        for name, _ in members:
            if name in distinct:
                names.append(name)
                break
            distinct.add(name)

    try:
        json.loads(text, object_pairs_hook=note_repeats, parse_int=str, parse_float=str)
    except RecursionError:
        return "…"
    return names[0]


JSON_NULL: Final = "null"

_SHORT_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_CONTROLS: Final = "".join(chr(code) for code in range(0x20))


def json_text(values: pa.Array[Any]) -> pa.Array[Any]:
    """Return a string array of JSON values; no entry is null, since null itself has a text.

    Dates are written as their stored integers, 32-bit floats are widened, and NaN and infinities, which JSON lacks,
    become strings.

    >>> json_text(pa.array(["say \\"hi\\"", None])).to_pylist()
    ['"say \\\\"hi\\\\""', 'null']
    >>> json_text(pa.array([[1.0, None], [], None])).to_pylist()
    ['[1.0,null]', '[]', 'null']
    """
    text: pa.Array[Any] = pc.fill_null(_encode(values), JSON_NULL)
    return text


def iso_json_text(values: pa.Array[Any]) -> pa.Array[Any]:
    """Return a string array of JSON values, as `json_text`, but with dates and instants in ISO 8601.

    >>> iso_json_text(pa.array([[19753], None], pa.list_(pa.int32())).cast(pa.list_(pa.date32()))).to_pylist()
    ['["2024-01-31"]', 'null']
    """
    type_ = values.type
    text: pa.Array[Any]
    if pa.types.is_list(type_) and type_.value_type in PHYSICAL:
        lists: Any = values
        text = pc.fill_null(join_lists(lists, iso_json_text(lists.flatten())), JSON_NULL)
    elif type_ in PHYSICAL:
        text = quote_texts(time_texts(values))
    else:
        text = json_text(values)
    return text


def value_texts(values: pa.Array[Any]) -> pa.Array[Any]:
    """Return the JSON text of stored values: as `json_text`, with blobs as `base64:` texts.

    >>> value_texts(pa.array([b"a", None], pa.large_binary())).to_pylist()
    ['"base64:YQ=="', 'null']
    """
    if not pa.types.is_large_binary(values.type):
        return json_text(values)
    encoded = [None if value is None else f"{BLOB_PREFIX}{b64encode(value).decode()}" for value in values.to_pylist()]
    return json_text(pa.array(encoded, pa.string()))


def has_json_text(type_: pa.DataType) -> bool:
    """Return True if `json_text` encodes values of an Arrow type."""
    if pa.types.is_fixed_size_list(type_) or pa.types.is_list(type_):
        return has_json_text(type_.value_type)
    is_number = pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_boolean(type_)
    return is_number or pa.types.is_string(type_) or type_ in PHYSICAL


def _encode(values: pa.Array[Any]) -> Any:
    type_ = values.type
    if pa.types.is_string(type_):
        return _encode_strings(values)
    if pa.types.is_floating(type_):
        return _encode_floats(values)
    if pa.types.is_fixed_size_list(type_) or pa.types.is_list(type_):
        lists: Any = values
        return join_lists(lists, json_text(lists.flatten()))
    assert has_json_text(type_), f"no JSON text for {type_}"
    return pc.cast(values.view(PHYSICAL.get(type_, type_)), pa.string())


def _encode_strings(values: pa.Array[Any]) -> Any:
    escaped = pc.replace_substring(pc.replace_substring(values, "\\", "\\\\"), '"', '\\"')
    # Control characters are rare, so one look at all values spares a pass for each of the thirty-two.
    if pc.any(pc.match_substring_regex(escaped, "[\\x00-\\x1f]")).as_py():
        for control in _CONTROLS:
            escaped = pc.replace_substring(escaped, control, _SHORT_ESCAPES.get(control, f"\\u{ord(control):04x}"))
    return pc.binary_join_element_wise('"', escaped, '"', "")


def _encode_floats(values: pa.Array[Any]) -> Any:
    text = pc.cast(pc.cast(values, pa.float64()), pa.string())
    # Arrow writes 1.0 as `1`; readers that distinguish integers from floats need the point.
    is_integral = pc.match_substring_regex(text, r"^-?\d+$")
    text = pc.if_else(is_integral, pc.binary_join_element_wise(text, ".0", ""), text)
    if pc.all(pc.is_finite(values)).as_py() is not False:
        return text
    names = pc.if_else(pc.is_nan(values), '"NaN"', pc.if_else(pc.greater(values, 0), '"Infinity"', '"-Infinity"'))
    return pc.if_else(pc.is_finite(values), text, names)


def join_lists(values: Any, items: Any, separator: str = ",") -> Any:
    """Return each list as the texts of its items in brackets, null for none; `items` has the texts of all lists."""
    # Flattening skips the values of null lists, so the offsets must skip them as well.
    lengths = pc.if_else(pc.is_valid(values), pc.list_value_length(values), 0)
    ends = np.cumsum(lengths.to_numpy(zero_copy_only=False), dtype=np.int32)
    offsets: Any = pa.array(np.concatenate([[0], ends]), pa.int32())
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, items), separator)
    text = pc.binary_join_element_wise("[", joined, "]", "")
    return pc.if_else(pc.is_null(values), pa.scalar(None, pa.string()), text)


def string_bytes(lines: pa.Array[Any]) -> bytes:
    """Return the data buffer of a string array: its values, concatenated."""
    _, offsets, data = lines.buffers()
    bounds = pa.Array.from_buffers(pa.int32(), len(lines) + 1, [None, offsets], offset=lines.offset)
    start, end = bounds[0].as_py(), bounds[-1].as_py()
    return bytes(memoryview(data)[start:end]) if data is not None else b""


def quote_texts(texts: Any) -> Any:
    """Return texts that need no escapes as JSON strings, and null for none."""
    return pc.fill_null(pc.binary_join_element_wise('"', texts, '"', ""), JSON_NULL)
