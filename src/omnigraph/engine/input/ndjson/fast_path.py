"""Vectorised decoding of NDJSON: lines of one type that begin alike go to Arrow's JSON reader in one batch.

Invariant: a line is decoded here only if the slow path would return the same row. What the reader forgives is checked
on its output; all other lines are handed back, and the slow path reads them or says what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.json

from omnigraph.engine.input.ndjson.blocks import Lines, Part
from omnigraph.engine.input.ndjson.slow_path import with_fresh_ids
from omnigraph.lang.catalog import Catalog, EdgeType, Property, Type, TypeKey
from omnigraph.lang.scalars import TIMES
from omnigraph.lang.schema.arrow_schema import arrow_schema, key_ids
from omnigraph.limits import DECODE_BATCH_LINES, DECODE_HEADS_MAX, DECODE_ODD_LINES, INGEST_LINE_TOKENS_MAX
from omnigraph.rules.arrow_typing import Column, Numbers, arrays, pc
from omnigraph.rules.coerce import fill_absent, has_negative_zero, reader_type, stored_column
from omnigraph.rules.delta import one_array

_HEAD: Final = re.compile(
    rb'[ \t]*\{[ \t]*"type"[ \t]*:[ \t]*"([^"\\]+)"[ \t]*,[ \t]*"data"[ \t]*:[ \t]*\{'
    rb'|[ \t]*\{[ \t]*"edge"[ \t]*:[ \t]*"([^"\\]+)"[ \t]*,'
)
_OPEN, _CLOSE, _RETURN, _LINE_END = b"{}\r\n"


@dataclass(frozen=True, slots=True)
class Head:
    """The first bytes of lines of one type: up to the opening brace of `data` (node), or past the edge name."""

    text: bytes
    key: TypeKey


# Returns the key of the type that a line names, with True for an edge; None for an unknown type.
FindType: TypeAlias = Callable[[str, bool], TypeKey | None]


def sort_lines(lines: Lines, find_type: FindType) -> tuple[list[tuple[Head, Lines]], Lines]:
    """Return the lines of each head, and the lines without one. The lines are those of a whole block."""
    # The lines of a block follow each other, so that their starts alone say where they are.
    texts = _binary(np.append(lines.starts, len(lines.data)), lines.data)
    # A line that is so long may hold too many tokens, and one without an end has no room for one.
    unsorted = (lines.ends - lines.starts <= INGEST_LINE_TOKENS_MAX) & (lines.ends < len(lines.data))
    irregular = ~unsorted
    groups: list[tuple[Head, Lines]] = []
    for _ in range(DECODE_HEADS_MAX):
        if not unsorted.any():
            break
        first = int(unsorted.argmax())
        head = _head(lines.data[lines.starts[first] : lines.ends[first]].tobytes(), find_type)
        if head is None:
            unsorted[first], irregular[first] = False, True
            continue
        begun = pc.starts_with(texts, pattern=head.text).to_numpy(zero_copy_only=False) & unsorted
        groups.append((head, lines.take(begun)))
        unsorted &= ~begun
    return groups, lines.take(irregular | unsorted)


def _head(text: bytes, find_type: FindType) -> Head | None:
    match = _HEAD.match(text)
    if match is None:
        return None
    key = find_type((match[1] or match[2]).decode(errors="replace"), match[1] is None)
    return None if key is None else Head(match[0], key)


def cut(head: Head, lines: Lines) -> Column | None:
    """Return what a JSON reader is to read of each line: the data of a node, an edge without its name.

    Each of them begins with an opening brace and ends with a closing one and a line end. So no line can be a part of a
    value that began on another one, and as many values as lines mean one value a line. None if a line does not end so.
    """
    # The last byte of a head is the brace that opens the data, or a comma that makes room for the brace of the edge.
    starts = lines.starts + len(head.text) - 1
    ends = lines.ends - (lines.data[lines.ends - 1] == _RETURN)
    if head.key.kind == "node":
        # The last brace belongs to the envelope, and makes room for the line end.
        ends = ends - 1
        if not _is_everywhere(_CLOSE, lines.data, ends):
            return None
    if not _is_everywhere(_CLOSE, lines.data, ends - 1):
        return None
    count = len(lines)
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2], offsets[1::2] = starts, ends + 1
    pieces = _binary(offsets, lines.data)
    objects = pieces.take(pa.array(np.arange(0, 2 * count - 1, 2, dtype=np.int32)))
    bounds = np.frombuffer(objects.buffers()[1], np.int32)[: count + 1]
    text = np.frombuffer(objects.buffers()[2], np.uint8)
    text[bounds[:-1]] = _OPEN
    text[bounds[1:] - 1] = _LINE_END
    return objects


def _is_everywhere(byte: int, data: Numbers, positions: Numbers) -> bool:
    return bool((data[positions] == byte).all())


def _binary(offsets: Numbers, data: Numbers) -> Column:
    buffers = [None, arrays.py_buffer(offsets.astype(np.int32, copy=False)), arrays.py_buffer(data)]
    return arrays.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


_SPLIT: Final = 8
_TRIES: Final = 4
_AFTER_LINES: Final = 8_192
_ROW: Final = re.compile(r" in row (\d+)")
_INTEGER_ZERO: Final = re.compile(rb"-0(?![.0-9eE])")
_CHANGED: Final = re.compile(
    r"Column\(/(?:data/)?([^/)]+)(?:/\[\])?\) changed from (string|number) to (string|number) "
)


@dataclass(frozen=True, slots=True)
class Form:
    """What the `data` of lines is assumed to hold: possibly an id, and dates written as numbers."""

    has_id: bool = False
    numbered: frozenset[str] = frozenset()


@dataclass
class Scanner:
    """Reads blocks of lines. A form that was right once is tried first the next time."""

    catalog: Catalog
    now_ms: int
    _forms: dict[TypeKey, Form] = field(default_factory=dict)

    def scan(self, lines: Lines) -> tuple[list[Part], list[Lines]]:
        """Return the entities of all lines of a block that are beyond doubt, and the other lines."""
        sorted_, irregular = sort_lines(lines, self._find_type)
        parts: list[Part] = []
        left = [irregular] if len(irregular) else []
        for head, group in sorted_:
            todo = list(_split(group, DECODE_BATCH_LINES))
            while todo:
                lines = todo.pop()
                decoded = self._part(head, lines) if len(lines) > DECODE_ODD_LINES else None
                if isinstance(decoded, Part):
                    parts.append(decoded)
                elif len(lines) <= DECODE_ODD_LINES:
                    left.append(lines)
                else:
                    todo += _around(lines, decoded)
        return parts, left

    def _find_type(self, name: str, is_edge: bool) -> TypeKey | None:
        type_ = self.catalog.edge_by_word(name) if is_edge else self.catalog.nodes.get(name)
        return None if type_ is None else type_.table_key

    def _part(self, head: Head, lines: Lines) -> Part | int | None:
        """Return the entities of lines with one head; if there is doubt, the row where it began, or None if unknown."""
        texts = cut(head, lines)
        if texts is None or not is_unicode(texts):
            return None
        type_ = self.catalog.type_of(head.key)
        form = self._forms.get(head.key, Form())
        for _ in range(_TRIES):
            try:
                table = _read(texts, type_, form)
            except pa.ArrowInvalid as error:
                before, form = form, _corrected(form, type_, str(error))
                if form == before:
                    row = _ROW.search(str(error))
                    return int(row[1]) if row else None
                continue
            rows = _rows(type_, texts, table, self.now_ms) if _is_one_each(texts, table) else None
            if rows is None:
                return None
            self._forms[head.key] = form
            return Part(type_, rows, lines.numbers)
        return None


def _around(lines: Lines, row: int | None) -> list[Lines]:
    """Return lines in smaller parts: before, at and after a row that is known to be irregular, or equal shares."""
    if row is None or row >= len(lines):
        return list(_split(lines, max(len(lines) // _SPLIT, DECODE_ODD_LINES)))
    start = row - row % DECODE_ODD_LINES
    stop = start + DECODE_ODD_LINES
    # The remaining lines are split into pieces, so that the next irregular row does not cost reading all of them again.
    after = _split(lines.take(slice(stop, None)), _AFTER_LINES)
    return [lines.take(slice(start)), lines.take(slice(start, stop)), *after]


def _split(lines: Lines, count: int) -> Iterator[Lines]:
    for start in range(0, len(lines), count):
        yield lines.take(slice(start, start + count))


def is_unicode(texts: Column) -> bool:
    buffer = texts.buffers()[2]
    offsets = arrays.py_buffer(np.array([0, buffer.size], np.int32))
    try:
        arrays.Array.from_buffers(pa.string(), 1, [None, offsets, buffer]).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _read(texts: Column, type_: Type, form: Form) -> pa.Table:
    fields: list[Any] = [
        pa.field(name, reader_type(item.type, "number" if name in form.numbered else "string"))
        for name, item in type_.properties.items()
    ]
    if form.has_id and "id" not in type_.properties:
        fields.append(pa.field("id", pa.string()))
    if isinstance(type_, EdgeType):
        fields = [pa.field("from", pa.string()), pa.field("to", pa.string()), pa.field("data", pa.struct(fields))]
    buffer = texts.buffers()[2]
    return pyarrow.json.read_json(
        arrays.BufferReader(buffer),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=buffer.size + 1),
        # The reader refuses a member that comes twice by itself.
        parse_options=pyarrow.json.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="error"),
    )


def _is_one_each(texts: Column, table: pa.Table) -> bool:
    return table.num_rows == len(texts)


def _corrected(form: Form, type_: Type, message: str) -> Form:
    """Return the form that avoids an error of the reader, if it is one about the form; it only saves time."""
    if "unexpected field" in message:
        return replace(form, has_id=True)
    match = _CHANGED.search(message)
    if match is None or match[1] not in type_.properties or type_.properties[match[1]].type.scalar not in TIMES:
        return form
    return replace(form, numbered=form.numbered ^ {match[1]})


def _rows(type_: Type, texts: Column, table: pa.Table, now_ms: int) -> pa.Table | None:
    """Return the parsed rows with the columns of the type; None unless all rows are valid."""
    read: dict[str, Column] = {name: one_array(table.column(name)) for name in table.column_names}
    if isinstance(type_, EdgeType):
        data = read.pop("data")
        if read["from"].null_count or read["to"].null_count or not _is_absent(texts, data, b'"data"'):
            return None
        read["src"], read["dst"] = read.pop("from"), read.pop("to")
        read |= {field.name: column for field, column in zip(data.type, data.flatten(), strict=True)}
    if any(map(has_negative_zero, read.values())) and _INTEGER_ZERO.search(texts.buffers()[2].to_pybytes()):
        # The reader keeps the sign of an integer zero, which has none.
        return None
    columns = dict(read)
    for name, item in type_.properties.items():
        columns[name] = stored_column(read[name], item.type)
        if columns[name] is not None and item.default is not None:
            if not _is_absent(texts, columns[name], f'"{name}"'.encode()):
                return None
            is_absent = np.asarray(columns[name].is_null().to_numpy(zero_copy_only=False), bool)
            columns[name] = fill_absent(columns[name], is_absent, item, now_ms)
        if columns[name] is None or _is_missing(columns[name], item):
            return None
    columns["id"] = _ids(type_, texts, columns)
    if columns["id"] is None:
        return None
    schema = arrow_schema(type_)
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def _is_missing(column: Column, item: Property) -> bool:
    return bool(column.null_count) and not item.type.nullable


def _ids(type_: Type, texts: Column, columns: dict[str, Column]) -> Column | None:
    stated = columns.get("id")
    if stated is not None and not _is_absent(texts, stated, b'"id"'):
        return None
    if not type_.key:
        return with_fresh_ids(pa.nulls(len(texts), pa.string()) if stated is None else stated)
    canonical = one_array(key_ids(type_, pa.table({name: columns[name] for name in type_.key})))
    return canonical if stated is None or _is_same(stated, canonical) else None


def _is_same(stated: Column, canonical: Column) -> bool:
    return bool(pc.all(pc.equal(stated, canonical), min_count=0).as_py())


def _is_absent(texts: Column, column: Column, name: bytes) -> bool:
    """Return True if a member is certainly missing, instead of null, in every row where its column is null."""
    if not column.null_count:
        return True
    missing = texts.filter(column.is_null())
    # Without an escape a name has one spelling.
    named = pc.or_(pc.match_substring(missing, name), pc.match_substring(missing, b"\\"))
    return not pc.any(named).as_py()
