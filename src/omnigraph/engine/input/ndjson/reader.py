"""Input of an ingest: from a path, bytes, a file object or dictionaries to numbered JSON objects.

Knows JSON and lines, not graphs. The strict dialect is exact: one object a line, and no member twice at any depth.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final, TypeAlias

import orjson
import pyarrow as pa

from omnigraph import clock
from omnigraph.engine.external_blobs import BlobReader
from omnigraph.engine.input.ndjson.blocks import Lines, Loaded, Part, blocks_of
from omnigraph.engine.input.ndjson.fast_path import Scanner
from omnigraph.engine.input.ndjson.slow_path import Converter, Envelopes
from omnigraph.engine.json_text import count_outside_strings, find_repeated_member
from omnigraph.errors import UsageError
from omnigraph.lang.catalog import Catalog, TypeKey
from omnigraph.limits import (
    DECODE_BLOCK_BYTES,
    DECODE_ODD_LINES,
    INGEST_LINE_BYTES_MAX,
    INGEST_LINE_TOKENS_MAX,
    LOAD_LINE_BYTES_MAX,
)
from omnigraph.rules.delta import Findings, Violation

# A path, bytes, a file object, or an iterable of dictionaries; a file object has no better type than `Any`.
Data: TypeAlias = Any
Numbered: TypeAlias = tuple[int, Any]
_BLANK: Final = b" \t\r\n"
BOM: Final = b"\xef\xbb\xbf"
# How gzip and Zstandard files begin, and what to say about them.
COMPRESSED: Final = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
COMPRESSED_INPUT: Final = (
    "this is compressed data, not lines of JSON; decompress it first, or use a load, which reads `.gz`"
)
_TOKENS: Final = b"{}[]:,"


def read_blocks(data: Data) -> Iterator[bytes]:
    """Yield an input in pieces that end with a line; of a line that is too long only as much as shows that it is."""
    with _stream(data) as stream:
        line = b""
        while raw := as_bytes(stream.read(DECODE_BLOCK_BYTES)):
            cut = raw.rfind(b"\n") + 1
            if cut:
                yield line + raw[:cut]
                line = raw[cut:]
            elif len(line) <= INGEST_LINE_BYTES_MAX:
                line += raw
        if line:
            yield line


def line_too_long(number: int, limit: int) -> Violation:
    """Return the refusal of a line."""
    remedy = "give large blobs as Parquet"
    if limit < LOAD_LINE_BYTES_MAX:
        remedy = f"`load` the file, which takes lines of {LOAD_LINE_BYTES_MAX} bytes"
    message = f"the line is longer than {limit} bytes; {remedy}"
    return Violation("N11", message, line=number)


def parse_lines(lines: Lines, findings: Findings, line_bytes_max: int | None = None) -> Iterator[Numbered]:
    """Yield the object of each line that is not blank, with the number of the line, one by one."""
    limit = INGEST_LINE_BYTES_MAX if line_bytes_max is None else line_bytes_max
    for number, raw in lines.each():
        line = raw.strip(_BLANK) if number != 1 else raw.removeprefix(BOM).strip(_BLANK)
        if len(line) > limit:
            findings.add(line_too_long(number, limit))
        elif line:
            value, problem = _parse(line)
            if problem is None:
                yield number, value
            else:
                findings.add(Violation(*problem, line=number))
        if findings.is_full:
            return


def read_compatible(data: Data, findings: Findings) -> Iterator[Numbered]:
    """Yield JSON objects separated by any white space, with their numbers; of a repeated member the last one wins."""
    if is_records(data):
        yield from enumerate(records(data), start=1)
        return
    with _stream(data) as stream:
        number = 0
        while raw := as_bytes(stream.readline()):
            line = raw.removeprefix(BOM).strip(_BLANK) if number == 0 else raw.strip(_BLANK)
            if not line:
                continue
            try:
                value = orjson.loads(line)
            except orjson.JSONDecodeError:
                # An object may span lines, or share one: from here on the text is read as a whole.
                yield from _objects(line + b"\n" + as_bytes(stream.read()), number, findings)
                return
            number += 1
            yield number, value


def is_records(data: Data) -> bool:
    """Return True if the input consists of dictionaries instead of text."""
    return not isinstance(data, str | Path | bytes) and not hasattr(data, "readline")


def records(data: Data) -> Iterable[Any]:
    """Return an input of dictionaries; raises for other values."""
    if not isinstance(data, Iterable):
        raise UsageError(
            f"`{type(data).__name__}` cannot be read as input; pass a path, bytes, a file object or dictionaries",
            argument="data",
        )
    return data


def _stream(data: Data) -> Any:
    if isinstance(data, bytes):
        return io.BytesIO(data)
    if not isinstance(data, str | Path):
        # A file object is closed by the caller.
        return nullcontext(data)
    try:
        return Path(data).open("rb")
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error) or "it cannot be opened").lower()
        raise UsageError(f"cannot read `{data}`: {reason}; check the path", path=str(data)) from error


def as_bytes(raw: str | bytes) -> bytes:
    return raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw


def _parse(line: bytes) -> tuple[Any, tuple[str, str] | None]:
    if len(line) > INGEST_LINE_TOKENS_MAX and (tokens := count_outside_strings(line, _TOKENS)) > INGEST_LINE_TOKENS_MAX:
        return None, (
            "N11",
            f"the line has {tokens} brackets, commas and colons; the limit is {INGEST_LINE_TOKENS_MAX}; split it",
        )
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return None, _why(line, error)
    if (name := find_repeated_member(line, value)) is not None:
        return None, ("N2", f"duplicate member `{name}` in an object; keep one of them")
    return value, None


def _why(line: bytes, error: orjson.JSONDecodeError) -> tuple[str, str]:
    try:
        text = line.decode()
        _, end = json.JSONDecoder().raw_decode(text)
        if text[end:].strip():
            return (
                "N2",
                f"the line has more than one JSON value, the second at character {end + 1}; use a line for each",
            )
    except (ValueError, RecursionError):
        pass
    if line.startswith(COMPRESSED):
        return "N1", COMPRESSED_INPUT
    try:
        line.decode()
    except UnicodeDecodeError as wrong:
        return "N1", f"byte {wrong.start + 1} is not UTF-8 text; save the input as UTF-8"
    reason = str(error).partition(": line")[0]
    return "N1", f"this is not valid JSON: {reason} at character {error.pos + 1}; write one JSON object per line"


def _objects(raw: bytes, number: int, findings: Findings) -> Iterator[Numbered]:
    decoder = json.JSONDecoder(parse_constant=_reject_constant)
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        findings.add(Violation("N1", f"the input is not valid UTF-8: {error.reason}", line=number + 1))
        return
    position, end = 0, len(text)
    while True:
        while position < end and text[position] in " \t\r\n":
            position += 1
        if position == end:
            return
        number += 1
        try:
            value, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            reason = str(error).partition(": line")[0].lower()
            findings.add(Violation("N1", f"this is not valid JSON: {reason}", line=number))
            return
        yield number, value


def _reject_constant(word: str) -> object:
    raise ValueError(f"{word} is not a JSON value")


def decode(
    buffer: bytes | memoryview | pa.Buffer,
    catalog: Catalog,
    *,
    first_line: int,
    findings: Findings,
    line_bytes_max: int | None = None,
    now_ms: int | None = None,
    blobs: BlobReader | None = None,
) -> dict[TypeKey, Loaded]:
    """Return the entities of a buffer by type, in table-key order, without those that break a rule.

    The buffer holds whole lines of the strict dialect, the first of which has the number `first_line`. A line may be as
    long as in an ingest, or `line_bytes_max`. `now_ms` is what the default `now()` means. Once the findings are full,
    decoding stops.
    """
    now_ms = clock.now_us() // 1_000 if now_ms is None else now_ms
    envelopes, scanner = Envelopes(catalog, findings), Scanner(catalog, now_ms)
    converter = Converter(findings, now_ms=now_ms, blobs=blobs)
    loaded: dict[TypeKey, Loaded] = {}
    raw: Any = buffer
    for lines in blocks_of(raw, first_line):
        if findings.is_full:
            break
        parts, others = scanner.scan(lines) if len(lines) > DECODE_ODD_LINES else ([], [lines])
        for part in parts:
            add_part(loaded, part)
        for odd in others:
            for number, value in parse_lines(odd, findings, line_bytes_max):
                envelopes.take(number, value)
            for gathered in envelopes.take_all():
                add_part(loaded, converter.convert(gathered))
    return dict(sorted(loaded.items()))


def add_part(loaded: dict[TypeKey, Loaded], part: Part) -> None:
    """Add entities to those of their type."""
    loaded.setdefault(part.type.table_key, Loaded(part.type)).add(part)
