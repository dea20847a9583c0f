"""Rows of files without a schema: NDJSON by the types that its lines name, Parquet and CSV as the table they are."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.json

from omnigraph.engine.input.line_ranges import line_offset, read_lines
from omnigraph.engine.input.ndjson.blocks import Lines, blocks_of
from omnigraph.engine.input.ndjson.fast_path import Head, cut, is_unicode, sort_lines
from omnigraph.engine.input.ndjson.reader import parse_lines
from omnigraph.engine.input.read_split import read_tables
from omnigraph.engine.input.splits import Split
from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import LOAD_LINE_BYTES_MAX
from omnigraph.rules.arrow_typing import Column, arrays, pc
from omnigraph.rules.delta import Findings, Violation, one_array

_ENDPOINTS: Final = ("from", "to")
_NAMES_TYPE: Final = (
    'a line of NDJSON names its type: `{"type": "A", "data": {…}}`, or `{"edge": "E", "from": …, "to": …}`; convert'
    " other lines to Parquet or CSV, whose files are tables"
)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one table; `texts` are the columns whose text has to be read, all strings if it is JSON."""

    key: TypeKey
    table: pa.Table
    texts: Collection[str] = ()
    is_json: bool = False


def read_rows(split: Split) -> Iterator[Rows]:
    """Yield the rows of a split; raises `DataError` at its end if any of them is malformed."""
    findings = Findings(locate=partial(_locate, split))
    if split.format == "ndjson":
        for block in read_lines(split, findings):
            for lines in blocks_of(block.complete, block.first):
                yield from _sort_lines(lines, findings)
    else:
        assert split.table_key is not None
        for rows, texts in read_tables(split, findings):
            yield Rows(split.table_key, rows.table, texts)
    findings.raise_if_any()


def _locate(split: Split, line: int) -> tuple[str, int]:
    return split.shown_name, line + (line_offset(split) if split.format == "ndjson" else 0)


def _sort_lines(lines: Lines, findings: Findings) -> Iterator[Rows]:
    """Yield the lines of a block by type."""
    groups, irregular = sort_lines(lines, lambda name, is_edge: TypeKey.of("edge" if is_edge else "node", name))
    left = [irregular]
    for head, group in groups:
        table = _read_alike(head, group)
        if table is None:
            left.append(group)
        else:
            yield Rows(head.key, table, is_json=True)
    records: dict[TypeKey, list[Mapping[str, Any]]] = {}
    for some in left:
        for number, record in parse_lines(some, findings, LOAD_LINE_BYTES_MAX):
            key = _key_of(record)
            if key is None:
                findings.add(Violation("N3", _NAMES_TYPE, line=number))
            else:
                records.setdefault(key, []).append(record)
    for key in sorted(records):
        yield Rows(key, _read_records(key, records[key]), is_json=True)


def _key_of(record: object) -> TypeKey | None:
    if isinstance(record, Mapping):
        for member, kind in (("type", "node"), ("edge", "edge")):
            if isinstance(record.get(member), str) and record[member]:
                return TypeKey.of(kind, record[member])
    return None


def _read_alike(head: Head, lines: Lines) -> pa.Table | None:
    """Return lines that begin alike as a table; None if they have to be read one by one."""
    texts = cut(head, lines)
    if texts is None or not is_unicode(texts):
        return None
    try:
        table = _read_json(texts.buffers()[2])
    except pa.ArrowInvalid:
        # Arrow's reader takes one type a member, and no member twice.
        return None
    return _as_columns(head.key, table) if table.num_rows == len(lines) else None


def _read_json(text: pa.Buffer) -> pa.Table:
    options: Any = {"read_options": pyarrow.json.ReadOptions(use_threads=False, block_size=max(len(text) + 1, 1024))}
    table = pyarrow.json.read_json(arrays.BufferReader(text), **options)
    schema = pa.schema([field.with_type(_without_instants(field.type)) for field in table.schema])
    if schema.equals(table.schema):
        return table
    # Arrow turns what looks like an instant into one, also a day, and forgets which it was.
    parse = pyarrow.json.ParseOptions(explicit_schema=schema)
    return pyarrow.json.read_json(arrays.BufferReader(text), parse_options=parse, **options)


def _without_instants(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(type_):
        return pa.string()
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_without_instants(field.type)) for field in type_])
    if pa.types.is_list(type_):
        return pa.list_(_without_instants(type_.value_type))
    return type_


def _as_columns(key: TypeKey, table: pa.Table) -> pa.Table:
    """Return the members of `data` as columns, and the endpoints of edges."""
    if key.kind == "node":
        return _with_rows(dict(zip(table.column_names, table.columns, strict=True)), table.num_rows)
    columns: dict[str, Column] = {
        end: one_array(table.column(end)).cast(pa.string()) for end in _ENDPOINTS if end in table.column_names
    }
    if "data" in table.column_names and pa.types.is_struct(table.schema.field("data").type):
        data = one_array(table.column("data"))
        columns |= {field.name: pc.struct_field(data, [index]) for index, field in enumerate(data.type)}
    return _with_rows(columns, table.num_rows)


def _read_records(key: TypeKey, records: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return objects as columns, whatever types their members have."""
    columns: dict[str, Column] = {}
    for end in _ENDPOINTS if key.kind == "edge" else ():
        values = [record.get(end) for record in records]
        columns[end] = pa.array([None if value is None else str(value) for value in values], pa.string())
    data = [members if isinstance(members := record.get("data"), Mapping) else {} for record in records]
    for name in dict.fromkeys(name for members in data for name in members):
        columns[name] = _array_or_struct([members.get(name) for members in data])
    return _with_rows(columns, len(records))


def _with_rows(columns: Mapping[str, Any], count: int) -> pa.Table:
    """Return columns as a table, which needs one to have rows."""
    return pa.table({**columns} or {"": pa.nulls(count)})


def _array_or_struct(values: list[Any]) -> Column:
    """Return values as an array; values of several types as objects, which no property holds."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else {"several types": str(value)} for value in values])
