"""Passes over the input of an inference: files read as tables of columns, and profiled by tasks on threads or Spark.

Every scan holds one batch and the merged results, whose size does not depend on the number of rows.

NDJSON is sorted by the types that its lines name; Parquet and CSV hold the table that their file is.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import add
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.json

from omnigraph.engine.infer.profile import ColumnProfile, Sketch, TableProfile, hash_values, profile_column
from omnigraph.engine.input.read_split import read_lines, read_tables
from omnigraph.engine.input.splits import Split
from omnigraph.engine.key_buckets.hashes import Hashes
from omnigraph.engine.tasks import Runner
from omnigraph.errors import DataError
from omnigraph.lang.catalog import NodeType, Property, PropertyType, TypeKey
from omnigraph.lang.schema.arrow_schema import key_ids
from omnigraph.rules.arrow_typing import Column, arrays, pc
from omnigraph.rules.delta import Findings, one_array

_HEAD: Final = rb'^[ \t]*\{[ \t]*"(?P<kind>type|edge)"[ \t]*:[ \t]*"(?P<name>[^"\\]+)"'
_BLANK: Final = rb"^\s*$"
_BOM: Final = b"\xef\xbb\xbf"
ENDPOINTS: Final = ("from", "to")


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one table; `texts` are the columns whose text has to be read, all strings if it is JSON."""

    key: TypeKey
    table: pa.Table
    texts: Collection[str] = ()
    is_json: bool = False


def read_rows(split: Split) -> Iterator[Rows]:
    if split.format == "ndjson":
        for buffer, _ in read_lines(split):
            yield from _sort_lines(buffer.removeprefix(_BOM) if split.is_first else buffer)
        return
    assert split.table_key is not None
    findings = Findings()
    for rows, texts in read_tables(split, findings):
        yield Rows(split.table_key, rows.table, texts)
    findings.raise_if_any()


def _sort_lines(buffer: bytes) -> Iterator[Rows]:
    """Yield the lines of a block by type, in the order of their names."""
    lines = _split_lines(buffer)
    lines = lines.filter(pc.invert(pc.match_substring_regex(lines, _BLANK)))
    heads = pc.extract_regex(lines, _HEAD)
    is_odd = heads.is_null()
    if pc.any(is_odd).as_py():
        # A line that does not begin with its type is written again, so that it does.
        lines = pc.replace_with_mask(
            lines, is_odd, pa.array(map(_put_type_first, lines.filter(is_odd).to_pylist()), pa.binary())
        )
        heads = pc.extract_regex(lines, _HEAD)
    names = pc.binary_join_element_wise(heads.field("kind"), heads.field("name"), b":").dictionary_encode()
    named = (name.decode().partition(":") for name in names.dictionary.to_pylist())
    keys = [TypeKey.of("edge" if kind == "edge" else "node", name) for kind, _, name in named]
    for index in sorted(range(len(keys)), key=keys.__getitem__):
        chosen = lines.filter(pc.equal(names.indices, index))
        yield Rows(keys[index], _read_objects(keys[index], chosen), is_json=True)


def _split_lines(buffer: bytes) -> Column:
    data = np.frombuffer(buffer, np.uint8)
    ends = np.flatnonzero(data == ord("\n")) + 1
    offsets = np.concatenate([[0], ends, [len(data)] if not buffer.endswith(b"\n") and buffer else []]).astype(np.int32)
    buffers = [None, arrays.py_buffer(offsets), arrays.py_buffer(buffer)]
    return arrays.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _put_type_first(line: bytes) -> bytes:
    record = _parse(line)
    kind = next((kind for kind in ("type", "edge") if isinstance(record.get(kind), str)), None)
    if kind is None:
        raise DataError(
            'a line of NDJSON names its type: `{"type": "A", "data": {…}}`, or `{"edge": "E", "from": …, "to": …}`'
            "; convert other lines to Parquet or CSV, whose files are tables",
            rule="N3",
        )
    return orjson.dumps({kind: record.pop(kind), **record}, option=orjson.OPT_APPEND_NEWLINE)


def _parse(line: bytes) -> dict[str, Any]:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise DataError(f"a line is not JSON: {error}; correct it", rule="N1") from None
    if not isinstance(record, dict):
        raise DataError("a line is not a JSON object; correct it", rule="N1")
    return record


def _read_objects(key: TypeKey, lines: Column) -> pa.Table:
    """Return the data of the lines of one type, and the endpoints of edges, as columns."""
    text = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines), b"")[0].as_buffer()
    try:
        table = _read_json(text)
    except pa.ArrowInvalid:
        # Arrow's reader takes one type a member; other objects are read one by one.
        table = _read_mixed(lines)
    columns: dict[str, Column] = {}
    if key.kind == "edge":
        columns = {
            end: one_array(table.column(end)).cast(pa.string()) for end in ENDPOINTS if end in table.column_names
        }
    if "data" in table.column_names and pa.types.is_struct(table.schema.field("data").type):
        data = one_array(table.column("data"))
        columns |= {field.name: pc.struct_field(data, [index]) for index, field in enumerate(data.type)}
    # A table needs a column to have rows.
    return pa.table(columns or {"": pa.nulls(len(lines))})


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


def _read_mixed(lines: Column) -> pa.Table:
    records = [_parse(line) for line in lines.to_pylist()]
    data: list[dict[str, Any]] = [
        members if isinstance(members := record.get("data"), dict) else {} for record in records
    ]
    names = dict.fromkeys(name for members in data for name in members)
    fields = {name: _array_or_struct([members.get(name) for members in data]) for name in names}
    ends = {end: [record.get(end) for record in records] for end in ENDPOINTS}
    columns = {
        end: pa.array([None if value is None else str(value) for value in values], pa.string())
        for end, values in ends.items()
    }
    struct = pa.StructArray.from_arrays(list(fields.values()), list(fields)) if fields else pa.nulls(len(records))
    return pa.table({**columns, "data": struct})


def _array_or_struct(values: list[Any]) -> Column:
    """Return values as an array; values of several types as objects, which no property holds."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else {"several types": str(value)} for value in values])


T = TypeVar("T")
Results: TypeAlias = dict[Any, T]
Merge: TypeAlias = Callable[[T, T], T]


@dataclass(frozen=True, slots=True)
class Probe:
    """Columns of a table whose values are looked at together, as the id of a node: `types` are those of a key."""

    key: TypeKey
    columns: tuple[str, ...]
    types: tuple[PropertyType, ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """What is read, and where tasks run."""

    runner: Runner
    splits: Sequence[Split]
    frames: Mapping[TypeKey, Any]

    def profile_tables(self) -> dict[TypeKey, TableProfile]:
        return self._run("reading the input", profile_rows, TableProfile.merge)

    def sketch_ids(self, probes: Sequence[Probe]) -> dict[Probe, Sketch]:
        """Return the sketches of the ids that columns make together."""
        scan = self._only({probe.key for probe in probes})
        return scan._run("comparing keys", partial(_sketch_rows, probes), Sketch.merge)

    def find_duplicates(self, probe: Probe, low: int, high: int) -> bool:
        """Return True if two rows have the same hash in a range."""
        scan = self._only({probe.key})
        parts = scan._run("checking a key", partial(_hash_rows, probe, low, high), add)
        hashes = np.concatenate([np.zeros(0, np.uint64), *parts.get(probe, [])])
        return len(np.unique(hashes)) < len(hashes)

    def _only(self, keys: set[TypeKey]) -> Scan:
        """Return the scan of the inputs that may hold these tables; a split of NDJSON may hold any."""
        splits = [split for split in self.splits if split.table_key is None or split.table_key in keys]
        return replace(self, splits=splits, frames={key: self.frames[key] for key in self.frames if key in keys})

    def _run(self, stage: str, work: Callable[[Rows], Results[T]], merge: Merge[T]) -> Results[T]:
        tasks = partial(_scan_split, work, merge)
        parts = self.runner.run(stage, tasks, self.splits, [split.size for split in self.splits]) if self.splits else []
        for key, frame in self.frames.items():
            parts += _scan_frame(self.runner, stage, key, frame, work, merge)
        return _merge_all(parts, merge)


def _scan_split(work: Callable[[Rows], Results[T]], merge: Merge[T], split: Split) -> Results[T]:
    return _merge_all(map(work, read_rows(split)), merge)


def _scan_frame(
    runner: Runner, stage: str, key: TypeKey, frame: Any, work: Callable[[Rows], Results[T]], merge: Merge[T]
) -> list[Results[T]]:
    def scan(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = (Rows(key, pa.Table.from_batches([batch])) for batch in batches)
        yield pa.RecordBatch.from_pydict({"result": [pickle.dumps(_merge_all(map(work, tables), merge))]})

    return [pickle.loads(bytes(result)) for result in runner.map_frame(stage, frame, scan, "result binary")]


def _merge_all(parts: Any, merge: Merge[T]) -> Results[T]:
    merged: Results[T] = {}
    for part in parts:
        for key, value in part.items():
            merged[key] = merge(merged[key], value) if key in merged else value
    return merged


def profile_rows(rows: Rows) -> dict[TypeKey, TableProfile]:
    columns: dict[str, ColumnProfile] = {}
    for name, column in zip(rows.table.column_names, rows.table.columns, strict=True):
        if name:
            columns[name] = profile_column(column, is_text=name in rows.texts, is_json=rows.is_json)
    return {rows.key: TableProfile(rows.table.num_rows, columns)}


def _sketch_rows(probes: Sequence[Probe], rows: Rows) -> dict[Probe, Sketch]:
    return {probe: Sketch.of(_hash_ids(probe, rows)) for probe in probes if probe.key == rows.key}


def _hash_rows(probe: Probe, low: int, high: int, rows: Rows) -> dict[Probe, list[Hashes]]:
    if probe.key != rows.key:
        return {}
    hashes = _hash_ids(probe, rows)
    return {probe: [hashes[(hashes >= np.uint64(low)) & (hashes <= np.uint64(high))]]}


def _hash_ids(probe: Probe, rows: Rows) -> Hashes:
    table = rows.table
    if not set(probe.columns) <= set(table.column_names):
        return np.zeros(0, np.uint64)
    if len(probe.columns) == 1:
        return hash_values(table.column(probe.columns[0]))
    parts = zip(probe.columns, probe.types, strict=True)
    properties = {name: Property(name, type_, number) for number, (name, type_) in enumerate(parts, start=1)}
    return hash_values(key_ids(NodeType(probe.key.name, 1, 1, properties, key=probe.columns), table))
