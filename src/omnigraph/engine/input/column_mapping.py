"""Map the columns of a Parquet file, CSV file or DataFrame to the properties of one type.

The fast path casts whole columns with Arrow kernels. A batch in which any value may not fit takes the slow path of an
ingest, value by value, so that errors are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa

from omnigraph import clock
from omnigraph.engine.external_blobs import BlobReader
from omnigraph.engine.input.ndjson.blocks import Part
from omnigraph.engine.input.ndjson.slow_path import Converter, Gathered
from omnigraph.engine.input.splits import Columns, EndpointColumns, endpoint_columns
from omnigraph.engine.input.text_values import read_texts
from omnigraph.errors import DataError, UsageError
from omnigraph.ids import new_ulids
from omnigraph.lang.catalog import TEXT, Catalog, EdgeType, PropertyType, Type
from omnigraph.lang.diagnostic import did_you_mean, join_words
from omnigraph.lang.scalars import FLOATS, INTEGERS, TIMES, Family, Scalar
from omnigraph.lang.schema.arrow_schema import arrow_schema, arrow_type, key_ids
from omnigraph.rules.arrow_typing import Column, Numbers, pc
from omnigraph.rules.coerce import (
    Fault,
    decode_column,
    default_column,
    floats_of_decimals,
    list_column,
    loses_digits,
    reader_type,
    stored_column,
)
from omnigraph.rules.delta import Findings, Violation, one_array
from omnigraph.rules.time_columns import is_in_range

# Types that Arrow can parse from CSV text; the rules parse texts of the others themselves.
_PARSED_BY_ARROW: Final = frozenset({Family.INTEGER, Family.FLOAT, Family.TRUTH})
_CONVERSION_ERRORS: Final = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, DataError)


@dataclass(frozen=True, slots=True)
class InputColumn:
    """A column of the input; `is_text` if its values are text that has to be parsed."""

    column: Column
    is_text: bool

    def __len__(self) -> int:
        return len(self.column)


class ColumnMapper:
    """Maps batches of one source to one type."""

    def __init__(
        self,
        catalog: Catalog,
        type_: Type,
        columns: Columns,
        findings: Findings,
        now_ms: int | None = None,
        blobs: BlobReader | None = None,
    ) -> None:
        self._catalog = catalog
        self._type = type_
        self._columns = columns
        self._findings = findings
        self._now_ms = clock.now_us() // 1_000 if now_ms is None else now_ms
        self._converter = Converter(findings, now_ms=self._now_ms, blobs=blobs)
        # State of the current batch: text columns, line numbers, and rows that were reported already.
        self._texts: frozenset[str] = frozenset()
        self._numbers: Numbers = np.zeros(0, np.int64)
        self._refused: set[int] = set()

    def part(self, table: pa.Table, numbers: Numbers, texts: Collection[str] = ()) -> Part:
        """Map a batch with the given line numbers; `texts` are the columns that hold text."""
        self._texts = frozenset(texts)
        self._numbers, self._refused = numbers, set()
        named = self._named(table)
        try:
            rows = self._convert_columns(named)
        except _CONVERSION_ERRORS:
            rows = None
        return self._convert_rows(named, numbers) if rows is None else Part(self._type, rows, numbers)

    def identify(self, table: pa.Table) -> Column:
        """Return the ids of rows with the columns of a key, or with `id` alone; null where a value does not fit."""
        type_ = self._type
        if not type_.key:
            return one_array(table.column("id")).cast(pa.string())
        key: dict[str, Column] = {}
        for name in type_.key:
            values = InputColumn(one_array(table.column(name)), False)
            if name in type_.ends:
                key[name] = self._endpoint_ids(values, type_.ends[name])
            else:
                key[name], _ = self._fit_key_part(values, type_.properties[name].type)
        return _build_ids(type_, key)

    def _values(self, table: pa.Table, column: str) -> InputColumn:
        return InputColumn(one_array(table.column(column)), column in self._texts)

    def _named(self, table: pa.Table) -> dict[str, InputColumn]:
        """Return the columns by property name; every column must map to one."""
        type_, names = self._type, {"id", *self._type.properties}
        renamed = dict(self._columns.properties)
        duplicates = [
            name for name, count in Counter(renamed.get(c, c) for c in table.column_names).items() if count > 1
        ]
        if duplicates:
            raise UsageError(
                f"two columns map to `{duplicates[0]}`; drop one, or map it to another property", column=duplicates[0]
            )
        named, endpoint_names = self._endpoints(table)
        unknown = [name for name in renamed if name not in table.column_names]
        if unknown:
            raise UsageError(f"no column `{unknown[0]}` to map; check the mapping", column=unknown[0])
        own_columns = [column for column in table.column_names if column not in endpoint_names]
        by_column = {column: renamed.get(column, column) for column in own_columns}
        strangers = [name for name in by_column.values() if name not in names]
        if strangers:
            quoted = join_words([f"`{name}`" for name in strangers], conjunction="or")
            hint = did_you_mean(strangers[0], type_.properties) if len(strangers) == 1 else None
            hint = hint or "drop the column, map it, or add it to the schema"
            raise DataError(f"`{type_.name}` has no property {quoted}; {hint}", rule="N6", property=strangers[0])
        return named | {name: self._values(table, column) for column, name in by_column.items()}

    def _endpoints(self, table: pa.Table) -> tuple[dict[str, InputColumn], set[str]]:
        """Return the endpoints of edges, joined to ids where a key has several columns, and the columns they use."""
        type_ = self._type
        if not isinstance(type_, EdgeType):
            return {}, set()
        source, target = endpoint_columns(type_, self._columns, table.column_names)
        ends = (("src", source, type_.source), ("dst", target, type_.target))
        named = {
            name: self._values(table, end[""]) if "" in end else InputColumn(self._join_key(table, end, node), False)
            for name, end, node in ends
        }
        return named, {*source.values(), *target.values()}

    def _join_key(self, table: pa.Table, end: EndpointColumns, node: str) -> Column:
        """Build node ids from key columns; null where a part of the key is null."""
        type_ = self._catalog.nodes[node]
        if set(end) != set(type_.key):
            raise UsageError(
                f"`{', '.join(end)}` is not the key of `{node}`, which is ({', '.join(type_.key) or 'none'}); name a"
                " column for each property of it, as in `property=column,other=column`, or one column with ids",
                type=node,
            )
        fitted = {}
        for name in type_.key:
            fitted[name], faults = self._fit_key_part(self._values(table, end[name]), type_.properties[name].type)
            for fault in faults:
                message = f"column `{end[name]}` is not a valid `{node}.{name}`, a part of the key: {fault.reason}"
                self._findings.add(Violation("N4", message, property=end[name], line=int(self._numbers[fault.row])))
                self._refused.add(fault.row)
        return _build_ids(type_, fitted)

    # -- fast path: whole columns ------------------------------------------------------------------------------

    def _convert_columns(self, named: dict[str, InputColumn]) -> pa.Table | None:
        type_, count = self._type, len(next(iter(named.values()), []))
        columns: dict[str, Column] = {}
        for name, item in type_.properties.items():
            column = self._fit(named[name], item.type) if name in named else default_column(item, count, self._now_ms)
            if column is None or (column.null_count and not item.type.nullable):
                return None
            columns[name] = column
        if isinstance(type_, EdgeType):
            columns["src"] = self._endpoint_ids(named["src"], type_.source)
            columns["dst"] = self._endpoint_ids(named["dst"], type_.target)
            if columns["src"].null_count or columns["dst"].null_count:
                return None
        columns["id"] = self._ids(named, columns, count)
        schema = arrow_schema(type_)
        return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)

    def _ids(self, named: dict[str, InputColumn], columns: dict[str, Column], count: int) -> Column:
        explicit = named["id"].column if "id" in named else None
        if self._type.key:
            built = one_array(key_ids(self._type, pa.table({name: columns[name] for name in self._type.key})))
            if explicit is not None and not explicit.cast(pa.string()).equals(built):
                raise pa.ArrowInvalid("an id differs from the key")
            return built
        if explicit is not None and explicit.null_count == 0:
            return explicit.cast(pa.string())
        generated: Column = pa.array(new_ulids(count).astype(str), pa.string())
        return generated if explicit is None else pc.coalesce(explicit.cast(pa.string()), generated)

    def _endpoint_ids(self, values: InputColumn, node: str) -> Column:
        """Return endpoints as ids: a value of a single-column key becomes the id that it makes."""
        type_, column = self._catalog.nodes[node], values.column
        if len(type_.key) != 1 or type_.properties[type_.key[0]].type.is_text:
            return column.cast(pa.string())
        name = type_.key[0]
        fitted, faults = self._fit_key_part(values, type_.properties[name].type)
        ids = _build_ids(type_, {name: fitted})
        # A value that does not fit the key is kept as an id; the endpoint rule reports it as missing.
        return pc.coalesce(ids, column.cast(pa.string())) if faults else ids

    def _fit_key_part(self, values: InputColumn, type_: PropertyType) -> tuple[Column, Sequence[Fault]]:
        """Convert a column that is part of a key; null where a value does not fit, with the faults."""
        fitted = self._try_fit(values, type_)
        return decode_column(self._read(values, type_), type_) if fitted is None else (fitted, ())

    def _try_fit(self, values: InputColumn, type_: PropertyType) -> Column | None:
        """Convert a column to the layout of a property; None if a value may not fit."""
        try:
            return self._fit(values, type_)
        except _CONVERSION_ERRORS:
            return None

    def _fit(self, values: InputColumn, type_: PropertyType) -> Column | None:
        """Convert a column to the layout of a property; None, or an Arrow error, if a value may not fit."""
        column = values.column
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if type_.is_list and pa.types.is_list(column.type):
            items = self._fit(InputColumn(column.values, False), type_.item_type)
            return None if items is None else list_column(column.offsets, items, column.is_null())
        if type_.scalar in INTEGERS and (pa.types.is_decimal(column.type) or pa.types.is_floating(column.type)):
            # Spark has decimals for unsigned 64-bit integers, pandas and databases floats; a fraction is an error.
            return column.cast(arrow_type(type_))
        if type_.scalar in FLOATS and pa.types.is_decimal(column.type):
            floats = stored_column(floats_of_decimals(column), type_)
            # What databases call a decimal is a number to us, as long as no digit is lost.
            return None if floats is None or loses_digits(column, floats).any() else floats
        if values.is_text and type_.scalar.facts.family in _PARSED_BY_ARROW and not type_.is_list:
            return stored_column(read_texts(column, reader_type(type_)), type_)
        if type_.scalar is Scalar.DATETIME and pa.types.is_timestamp(column.type):
            truncated = pc.floor_temporal(column, unit="millisecond").cast(pa.timestamp("ms", column.type.tz))
            return _in_range(truncated.view(arrow_type(type_)), type_.scalar)
        stored = arrow_type(type_)
        if _type_family(column.type) == _type_family(stored) in ("binary", "date", "duration"):
            converted = column.cast(stored)
            return _in_range(converted, type_.scalar) if type_.scalar in TIMES else converted
        read = reader_type(type_)
        return stored_column(column.cast(read), type_) if _type_family(column.type) == _type_family(read) else None

    # -- slow path: value by value -----------------------------------------------------------------------------

    def _convert_rows(self, named: dict[str, InputColumn], numbers: Numbers) -> Part:
        type_ = self._type
        types = {name: item.type for name, item in type_.properties.items()}
        lists = {name: self._read(values, types.get(name, TEXT)) for name, values in named.items()}
        names = [name for name in lists if name in type_.properties]
        rows = zip(*(lists[name] for name in names), strict=True) if names else ([] for _ in numbers)
        gathered = Gathered(type_, frozenset({"id", *type_.properties}))
        gathered.members = [dict(zip(names, row, strict=True)) for row in rows]
        gathered.numbers = numbers.tolist()
        ids = lists.get("id", [None] * len(numbers))
        gathered.ids = [None if id_ is None else str(id_) for id_ in ids]
        if isinstance(type_, EdgeType):
            gathered.sources = self._endpoint_ids(named["src"], type_.source).to_pylist()
            gathered.targets = self._endpoint_ids(named["dst"], type_.target).to_pylist()
            gathered = self._drop_incomplete_edges(gathered)
        return self._converter.convert(gathered)

    def _read(self, values: InputColumn, type_: PropertyType) -> list[Any]:
        """Return the values of a column, text parsed; what cannot be parsed is kept for the rules to report."""
        items = _items(values.column)
        if not type_.is_list and _is_other_number(values.column.type, type_):
            rows = (InputColumn(values.column.slice(row, 1), False) for row in range(len(items)))
            fitted = (self._try_fit(row, type_) for row in rows)
            return [item if value is None else value[0].as_py() for item, value in zip(items, fitted, strict=True)]
        if not values.is_text:
            return items
        if type_.is_array:
            return [_parse_json(item) for item in items]
        if type_.scalar.facts.family not in _PARSED_BY_ARROW:
            return items
        # Numbers are parsed by the kernel of the fast path, so one bad value does not change the others.
        encoded = values.column.dictionary_encode()
        distinct = encoded.dictionary
        read = [self._read_word(distinct.slice(index, 1), type_) for index in range(len(distinct))]
        return [None if index is None else read[index] for index in encoded.indices.to_pylist()]

    def _read_word(self, word: Column, type_: PropertyType) -> object:
        fitted = self._try_fit(InputColumn(word, True), type_)
        # A number of another type is left for the rules to report.
        return _parse_json(word[0].as_py()) if fitted is None else fitted[0].as_py()

    def _drop_incomplete_edges(self, gathered: Gathered) -> Gathered:
        """Report edges without an endpoint, with the message of an ingest, and drop them."""
        complete: list[int] = []
        ends: Iterable[tuple[str | None, str | None]] = zip(gathered.sources, gathered.targets, strict=True)
        for row, (source, target) in enumerate(ends):
            if source is not None and target is not None:
                complete.append(row)
                continue
            if row in self._refused:
                continue
            end = "from" if source is None else "to"
            message = f"`{end}` of an edge `{self._type.name}` is the id of a node, and is null"
            self._findings.add(Violation("N4", message, property=end, line=gathered.numbers[row]))
        return gathered if len(complete) == len(gathered.numbers) else gathered.take(complete)


def _in_range(times: Column, scalar: Scalar) -> Column | None:
    return times if is_in_range(times, scalar) else None


def _items(column: Column) -> list[Any]:
    """Return the values of a column; the text of dates if one lies outside the calendar that Python has."""
    try:
        items: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        items = column.cast(pa.string()).to_pylist()
    return items


def _build_ids(type_: Type, keys: dict[str, Column]) -> Column:
    """Build ids from keys; null where a part of the key is null."""
    complete = np.logical_and.reduce([pc.is_valid(column).to_numpy(zero_copy_only=False) for column in keys.values()])
    indices = np.where(complete, np.cumsum(complete) - 1, -1)
    ids = one_array(key_ids(type_, pa.table(keys).filter(pa.array(complete))))
    return ids.take(pa.array(indices, mask=~complete))


def _is_other_number(column: Any, type_: PropertyType) -> bool:
    """Return True for a column of numbers that a property takes where they lose nothing."""
    if type_.scalar in FLOATS:
        return bool(pa.types.is_decimal(column))
    return type_.scalar in INTEGERS and bool(pa.types.is_decimal(column) or pa.types.is_floating(column))


def _parse_json(text: Any) -> object:
    """Parse JSON in a CSV value; return the text itself if it is not JSON."""
    try:
        return text if text is None else orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _type_family(type_: Any) -> str:
    """Return the family of types within which a checked cast is lossless."""
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return f"list of {_type_family(type_.value_type)}"
    families: dict[str, Callable[[Any], bool]] = {
        "integer": pa.types.is_integer,
        "float": pa.types.is_floating,
        "text": lambda type_: pa.types.is_string(type_) or pa.types.is_large_string(type_),
        "binary": lambda type_: pa.types.is_binary(type_) or pa.types.is_large_binary(type_),
        "date": pa.types.is_date32,
        "duration": pa.types.is_duration,
    }
    return next((name for name, is_one in families.items() if is_one(type_)), str(type_))
