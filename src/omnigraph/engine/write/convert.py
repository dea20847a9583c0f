"""Gathered members to Arrow tables, a column at a time, with the ids that the entities are to have.

The reference for every faster way: each value that does not fit is found and told, and its row left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from omnigraph.engine.write.envelopes import Gathered
from omnigraph.engine.write.legacy import Aliases
from omnigraph.engine.write.loaded import Part
from omnigraph.ids import new_ulids
from omnigraph.lang.catalog import EdgeType, NodeType
from omnigraph.lang.schema.arrow import arrow_schema
from omnigraph.lang.schema.keys import key_ids
from omnigraph.rules.columns import decode_column
from omnigraph.rules.delta import one_array
from omnigraph.rules.fit import shown
from omnigraph.rules.kernels import Column, arrays, pc
from omnigraph.rules.violation import Findings, Violation


class Converter:
    """Turns gathered entities into tables: strictly without aliases, as the compatible dialect does with them."""

    def __init__(self, findings: Findings, aliases: Aliases | None = None) -> None:
        self._findings = findings
        self._aliases = aliases
        self._bad: set[int] = set()

    def convert(self, gathered: Gathered) -> Part:
        """Return what was gathered of a type as a table, without the rows in which something is wrong."""
        self._bad = set()
        type_ = gathered.type
        columns: dict[str, Column] = {}
        for name, item in type_.properties.items():
            values = [members.get(name) for members in gathered.members]
            columns[name] = self._column(gathered, name, values)
            if not item.type.nullable and columns[name].null_count:
                self._report_missing(gathered, name, values)
        if not self._bad:
            columns["id"] = self._ids(gathered, columns)
        if self._bad:
            return self.convert(gathered.take([row for row in range(len(gathered.ids)) if row not in self._bad]))
        if isinstance(type_, EdgeType):
            columns["src"] = pa.array(gathered.sources, pa.string())
            columns["dst"] = pa.array(gathered.targets, pa.string())
        schema = arrow_schema(type_)
        rows = pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)
        return Part(type_, rows, np.array(gathered.numbers, np.int64))

    def _column(self, gathered: Gathered, name: str, values: Sequence[object]) -> Column:
        type_ = gathered.type.properties[name].type
        column, faults = decode_column(values, type_)
        for fault in faults:
            is_lenient = fault.is_wrong_kind and (type_.nullable or type_.is_list)
            if is_lenient and self._aliases is not None:
                continue
            rule = "N9" if is_lenient else "N10"
            message = f"`{gathered.type.name}.{name}` cannot hold this value: {fault.reason}"
            self._report(rule, gathered, fault.row, name, message, shown(fault.value))
        return column

    def _report_missing(self, gathered: Gathered, name: str, values: Sequence[object]) -> None:
        for row, value in enumerate(values):
            if value is None:
                message = f"`{gathered.type.name}.{name}` is not optional, and has no value"
                self._report("N10", gathered, row, name, message, None)

    def _ids(self, gathered: Gathered, columns: dict[str, Column]) -> Column:
        """Return the ids: spelled from the key, given, or fresh."""
        type_ = gathered.type
        if not isinstance(type_, NodeType) or not type_.key:
            return with_fresh_ids(pa.array(gathered.ids, pa.string()))
        keys = pa.Table.from_arrays([columns[name] for name in type_.key], names=list(type_.key))
        spelled = one_array(key_ids(type_, keys))
        if gathered.ids.count(None) == len(gathered.ids):
            return spelled
        given = pa.array(gathered.ids, pa.string())
        for row in pc.indices_nonzero(pc.fill_null(pc.not_equal(given, spelled), False)).to_pylist():
            canonical, old = spelled[row].as_py(), gathered.ids[row]
            assert old is not None
            if self._aliases is not None and self._aliases.add(type_, old, canonical, keys.slice(row, 1)):
                continue
            message = f"the id of this `{type_.name}` is spelled from its key, `{canonical}`, not `{old}`; drop it"
            self._report("N8", gathered, row, "id", message, old)
        return spelled

    def _report(self, rule: str, gathered: Gathered, row: int, name: str, message: str, value: str | None) -> None:
        self._bad.add(row)
        line = gathered.numbers[row]
        self._findings.add(Violation(rule, message, gathered.type.table_key, gathered.ids[row], name, value, line))


def with_fresh_ids(given: Column) -> Column:
    """Return a column of ids with a fresh one wherever none is given."""
    if not given.null_count:
        return given
    ulids = new_ulids(given.null_count)
    offsets = np.arange(len(ulids) + 1, dtype=np.int32) * ulids.itemsize
    buffers = [None, arrays.py_buffer(offsets), arrays.py_buffer(ulids)]
    fresh = arrays.Array.from_buffers(pa.string(), len(ulids), buffers)
    return fresh if given.null_count == len(given) else pc.replace_with_mask(given, given.is_null(), fresh)
