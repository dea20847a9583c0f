"""Mapping: the columns of a Parquet file, CSV file or DataFrame to the layout of one type.

Whole columns go through kernels; a batch in which something is unusual is converted as an ingest would, value by value,
so that what is wrong is told in the same words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa

from omnigraph.engine.write.ndjson.blocks import Part, Type
from omnigraph.engine.write.ndjson.slow_path import Converter, Gathered
from omnigraph.errors import DataError, UsageError
from omnigraph.ids import new_ulids
from omnigraph.lang.catalog import INTEGERS, NUMBERS, Catalog, EdgeType, NodeType, PropertyType, Scalar
from omnigraph.lang.schema.arrow_schema import arrow_schema, arrow_type
from omnigraph.lang.schema.key_ids import key_ids
from omnigraph.lang.suggestions import did_you_mean
from omnigraph.pipeline.bulk_load.splits import Columns, End, end_columns
from omnigraph.rules.arrow_typing import Column, Numbers, pc
from omnigraph.rules.coerce_column import Fault, decode_column, list_column, reader_type, stored_column
from omnigraph.rules.delta import one_array
from omnigraph.rules.violations import Findings, Violation

# What a text of a CSV file can be read as by a kernel.
_NUMBERS: Final = NUMBERS | {Scalar.BOOL}
# What the rules read from texts themselves.
_SPELLED: Final = frozenset({Scalar.DATE, Scalar.DATETIME, Scalar.BLOB})
_TEXT: Final = PropertyType(Scalar.STRING)
_UNFIT: Final = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, DataError)


@dataclass(frozen=True, slots=True)
class Values:
    """A column of an input. `is_text` when its values are spelled as texts, whatever they stand for."""

    column: Column
    is_text: bool

    def __len__(self) -> int:
        return len(self.column)


class Mapper:
    """Takes batches of one source to the layout of one type. `is_text` when the values of all columns are texts."""

    def __init__(
        self, catalog: Catalog, type_: Type, columns: Columns, findings: Findings, *, is_text: bool = False
    ) -> None:
        self._catalog = catalog
        self._type = type_
        self._columns = columns
        self._findings = findings
        self._converter = Converter(findings)
        self._is_text = is_text
        # Of the batch at hand: columns of texts, lines, and rows of which something was reported already.
        self._texts: frozenset[str] = frozenset()
        self._numbers: Numbers = np.zeros(0, np.int64)
        self._refused: set[int] = set()

    def part(self, table: pa.Table, numbers: Numbers, texts: Collection[str] = ()) -> Part:
        """Return the entities of a batch, whose rows have these line numbers; some columns may hold texts."""
        self._texts = frozenset(table.column_names if self._is_text else texts)
        self._numbers, self._refused = numbers, set()
        named = self._named(table)
        try:
            rows = self._whole(named)
        except _UNFIT:
            rows = None
        return self._one_by_one(named, numbers) if rows is None else Part(self._type, rows, numbers)

    def _values(self, table: pa.Table, column: str) -> Values:
        return Values(one_array(table.column(column)), column in self._texts)

    def _named(self, table: pa.Table) -> dict[str, Values]:
        """Return the columns by the names that the type has for them; every column must have one."""
        type_, known = self._type, {"id", *self._type.properties}
        renamed = dict(self._columns.properties)
        twice = [name for name, count in Counter(renamed.get(c, c) for c in table.column_names).items() if count > 1]
        if twice:
            raise UsageError(f"two columns are `{twice[0]}`; drop one, or map it to another property", column=twice[0])
        named, taken = self._named_ends(table)
        missing = [name for name in renamed if name not in table.column_names]
        if missing:
            raise UsageError(f"there is no column `{missing[0]}` to map; check the mapping", column=missing[0])
        for column in table.column_names:
            name = renamed.get(column, column)
            if column in taken:
                continue
            if name not in known:
                hint = did_you_mean(name, type_.properties) or "drop the column, map it, or add it to the schema"
                raise DataError(f"`{type_.name}` has no property `{name}`; {hint}", rule="N6", property=name)
            named[name] = self._values(table, column)
        return named

    def _named_ends(self, table: pa.Table) -> tuple[dict[str, Values], set[str]]:
        """Return the ends of edges, as ids where they are spread over several columns, and the columns they take."""
        type_ = self._type
        if not isinstance(type_, EdgeType):
            return {}, set()
        source, target = end_columns(type_, self._columns, table.column_names)
        ends = (("src", source, type_.source), ("dst", target, type_.target))
        named = {
            name: self._values(table, end[""]) if "" in end else Values(self._joined(table, end, node), False)
            for name, end, node in ends
        }
        return named, {*source.values(), *target.values()}

    def _joined(self, table: pa.Table, end: End, node: str) -> Column:
        """Return the ids of the nodes whose keys are in some columns; null where one of these is."""
        type_ = self._catalog.nodes[node]
        if set(end) != set(type_.key):
            raise UsageError(
                f"`{', '.join(end)}` is not the key of `{node}`, which is ({', '.join(type_.key) or 'none'}); name a"
                " column for each property of it, as in `property=column,other=column`, or one column with ids",
                type=node,
            )
        fitted = {}
        for name in type_.key:
            fitted[name], faults = self._fitted_part(self._values(table, end[name]), type_.properties[name].type)
            for fault in faults:
                message = f"column `{end[name]}` is no `{node}.{name}`, a part of the key: {fault.reason}"
                self._findings.add(Violation("N4", message, property=end[name], line=int(self._numbers[fault.row])))
                self._refused.add(fault.row)
        return _ids_of_keys(type_, fitted)

    # -- whole columns -----------------------------------------------------------------------------------------

    def _whole(self, named: dict[str, Values]) -> pa.Table | None:
        type_, count = self._type, len(next(iter(named.values()), []))
        columns: dict[str, Column] = {}
        for name, item in type_.properties.items():
            column = self._fitted(named[name], item.type) if name in named else _nulls(count, item.type)
            if column is None or (column.null_count and not item.type.nullable):
                return None
            columns[name] = column
        if isinstance(type_, EdgeType):
            columns["src"] = self._ends(named["src"], type_.source)
            columns["dst"] = self._ends(named["dst"], type_.target)
            if columns["src"].null_count or columns["dst"].null_count:
                return None
        columns["id"] = self._ids(named, columns, count)
        schema = arrow_schema(type_)
        return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)

    def _ids(self, named: dict[str, Values], columns: dict[str, Column], count: int) -> Column:
        given = named["id"].column if "id" in named else None
        if isinstance(self._type, NodeType) and self._type.key:
            spelled = one_array(key_ids(self._type, pa.table({name: columns[name] for name in self._type.key})))
            if given is not None and not given.cast(pa.string()).equals(spelled):
                raise pa.ArrowInvalid("an id differs from the key")
            return spelled
        if given is not None and given.null_count == 0:
            return given.cast(pa.string())
        fresh: Column = pa.array(new_ulids(count).astype(str), pa.string())
        return fresh if given is None else pc.coalesce(given.cast(pa.string()), fresh)

    def _ends(self, values: Values, node: str) -> Column:
        """Return ends as ids: what a key of one column holds is spelled as the id that it makes."""
        type_, column = self._catalog.nodes[node], values.column
        if len(type_.key) != 1 or type_.properties[type_.key[0]].type.is_text:
            return column.cast(pa.string())
        name = type_.key[0]
        fitted, faults = self._fitted_part(values, type_.properties[name].type)
        ids = _ids_of_keys(type_, {name: fitted})
        # What is no key may still be meant as an id, of a node that is not there.
        return pc.coalesce(ids, column.cast(pa.string())) if faults else ids

    def _fitted_part(self, values: Values, type_: PropertyType) -> tuple[Column, Sequence[Fault]]:
        """Return a column that is a part of a key in its own layout, null where a value does not fit, and why not."""
        try:
            fitted = self._fitted(values, type_)
        except _UNFIT:
            fitted = None
        if fitted is not None:
            return fitted, ()
        return decode_column(self._read(values, type_), type_)

    def _fitted(self, values: Values, type_: PropertyType) -> Column | None:
        """Return a column in a property's own layout; None, or an error of Arrow, when a value may not fit."""
        column = values.column
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if type_.is_list and pa.types.is_list(column.type):
            items = self._fitted(Values(column.values, False), PropertyType(type_.scalar))
            return None if items is None else list_column(column.offsets, items, column.is_null())
        if type_.scalar in INTEGERS and pa.types.is_decimal(column.type):
            # Spark has no other home for unsigned numbers of 64 bits.
            return column.cast(arrow_type(type_))
        if values.is_text and type_.scalar in _NUMBERS and not type_.is_list:
            return stored_column(column.cast(reader_type(type_)), type_)
        if type_.scalar is Scalar.DATETIME and pa.types.is_timestamp(column.type):
            whole = pc.floor_temporal(column, unit="millisecond").cast(pa.timestamp("ms", column.type.tz))
            return whole.cast(pa.int64()).view(pa.date64())
        stored = arrow_type(type_)
        if _family(column.type) == _family(stored) in ("binary", "date"):
            return column.cast(stored)
        read = reader_type(type_)
        return stored_column(column.cast(read), type_) if _family(column.type) == _family(read) else None

    # -- value by value ----------------------------------------------------------------------------------------

    def _one_by_one(self, named: dict[str, Values], numbers: Numbers) -> Part:
        type_ = self._type
        types = {name: item.type for name, item in type_.properties.items()}
        lists = {name: self._read(values, types.get(name, _TEXT)) for name, values in named.items()}
        names = [name for name in lists if name in type_.properties]
        rows = zip(*(lists[name] for name in names), strict=True) if names else ([] for _ in numbers)
        gathered = Gathered(type_, frozenset({"id", *type_.properties}))
        gathered.members = [dict(zip(names, row, strict=True)) for row in rows]
        gathered.numbers = numbers.tolist()
        ids = lists.get("id", [None] * len(numbers))
        gathered.ids = [None if one is None else str(one) for one in ids]
        if isinstance(type_, EdgeType):
            gathered.sources = self._ends(named["src"], type_.source).to_pylist()
            gathered.targets = self._ends(named["dst"], type_.target).to_pylist()
            gathered = self._without_half_edges(gathered)
        return self._converter.convert(gathered)

    def _read(self, values: Values, type_: PropertyType) -> list[Any]:
        """Return the values of a column; texts as what they stand for, or as they are, for the rules to refuse."""
        items: list[Any] = values.column.to_pylist()
        if not values.is_text or type_.is_text or (type_.scalar in _SPELLED and not type_.is_list):
            return items
        if type_.is_list or type_.scalar not in _NUMBERS:
            return [_parsed(one) for one in items]
        # Numbers are read by the kernel that reads whole columns, so that a wrong one changes nothing about others.
        encoded = values.column.dictionary_encode()
        words = encoded.dictionary
        read = [self._read_word(words.slice(place, 1), type_) for place in range(len(words))]
        return [None if place is None else read[place] for place in encoded.indices.to_pylist()]

    def _read_word(self, word: Column, type_: PropertyType) -> object:
        try:
            fitted = self._fitted(Values(word, True), type_)
        except _UNFIT:
            fitted = None
        # What is a number of another kind is refused as such.
        return _parsed(word[0].as_py()) if fitted is None else fitted[0].as_py()

    def _without_half_edges(self, gathered: Gathered) -> Gathered:
        """Report edges without an end, in the words of an ingest, and leave them out."""
        whole: list[int] = []
        ends: Iterable[tuple[str | None, str | None]] = zip(gathered.sources, gathered.targets, strict=True)
        for row, (source, target) in enumerate(ends):
            if source is not None and target is not None:
                whole.append(row)
                continue
            if row in self._refused:
                continue
            end = "from" if source is None else "to"
            message = f"`{end}` of an edge `{self._type.name}` is the id of a node, and is null"
            self._findings.add(Violation("N4", message, property=end, line=gathered.numbers[row]))
        return gathered if len(whole) == len(gathered.numbers) else gathered.take(whole)


def _ids_of_keys(type_: NodeType, keys: dict[str, Column]) -> Column:
    """Return the ids that keys make; null where a part of the key is."""
    complete = np.logical_and.reduce([pc.is_valid(one).to_numpy(zero_copy_only=False) for one in keys.values()])
    places = np.where(complete, np.cumsum(complete) - 1, -1)
    ids = one_array(key_ids(type_, pa.table(keys).filter(pa.array(complete))))
    return ids.take(pa.array(places, mask=~complete))


def _nulls(count: int, type_: PropertyType) -> Column:
    nothing: Any = pa.nulls(count)
    column: Column = nothing.cast(arrow_type(type_))
    return column


def _parsed(text: Any) -> object:
    """Return the JSON that a text of a CSV file holds, or the text itself."""
    try:
        return text if text is None else orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _family(type_: Any) -> str:
    """Return the kind of values between which a checked cast changes nothing."""
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return f"list of {_family(type_.value_type)}"
    families: dict[str, Callable[[Any], bool]] = {
        "integer": pa.types.is_integer,
        "float": pa.types.is_floating,
        "text": lambda one: pa.types.is_string(one) or pa.types.is_large_string(one),
        "binary": lambda one: pa.types.is_binary(one) or pa.types.is_large_binary(one),
        "date": pa.types.is_date32,
    }
    return next((name for name, is_one in families.items() if is_one(type_)), str(type_))
