"""Records: gathered entities to Arrow tables, column by column, with the ids they are to have.

Collects everything that is wrong, with line numbers; a table comes out only of input that is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.engine.write.envelopes import Envelopes, Gathered
from omnigraph.engine.write.legacy import Aliases
from omnigraph.engine.write.limit import too_large
from omnigraph.engine.write.ndjson import Data, StrictLines, is_records, read_blocks, read_compatible
from omnigraph.ids import new_ulid
from omnigraph.lang.catalog import Catalog, EdgeType, NodeType
from omnigraph.lang.schema.arrow import arrow_schema
from omnigraph.lang.schema.keys import key_ids
from omnigraph.limits import INGEST_CHUNK_RECORDS, WRITE_BYTES_MAX, WRITE_ENTITIES_MAX
from omnigraph.rules.columns import decode_column
from omnigraph.rules.delta import one_array
from omnigraph.rules.fit import shown
from omnigraph.rules.kernels import Column, pc
from omnigraph.rules.violation import Findings, Violation


@dataclass(slots=True)
class Loaded:
    """All entities of one type that an input holds, and the lines they came from."""

    type: NodeType | EdgeType
    parts: list[pa.Table] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    size: int = 0

    @property
    def rows(self) -> pa.Table:
        return pa.concat_tables(self.parts).combine_chunks()

    @property
    def lines(self) -> Any:
        return np.array(self.numbers, np.int64)


class Reader:
    """Reads one input against one catalog."""

    def __init__(self, catalog: Catalog, dialect: str, unit: str, *, is_bounded: bool) -> None:
        self.findings = Findings(unit=unit)
        self.loaded: dict[str, Loaded] = {}
        self._is_strict = dialect == "strict"
        self._is_bounded = is_bounded
        self._envelopes = Envelopes(catalog, self.findings)
        self._aliases = Aliases(self.findings)

    def read(self, data: Data) -> dict[str, Loaded]:
        """Return the tables of an input by type, in table-key order; raises with all that is wrong with it."""
        self._gather(data)
        for gathered in self._envelopes.rest():
            self._convert(gathered)
        if not self.findings.violations:
            self._aliases.apply(self.loaded)
        self.findings.violations.sort(key=lambda one: one.line or 0)
        self.findings.raise_if_any()
        self._check_sizes()
        return dict(sorted(self.loaded.items()))

    def _gather(self, data: Data) -> None:
        """Read the input until it ends, or until it is clear that it will be refused."""
        if is_records(data) or not self._is_strict:
            take = self._envelopes.take if self._is_strict else self._envelopes.take_compatible
            objects = enumerate(data, start=1) if is_records(data) else read_compatible(data, self.findings)
            for number, value in objects:
                gathered = take(number, value)
                if self.findings.is_full or (gathered is not None and self._is_done_with(gathered)):
                    return
            return
        lines = StrictLines(self.findings)
        for block in read_blocks(data):
            if not lines.is_counted(block) or not self._envelopes.take_block(block):
                for number, value in lines.records(block):
                    self._envelopes.take(number, value)
            if self.findings.is_full or True in map(self._is_done_with, self._envelopes.rest()):
                return

    def _is_done_with(self, gathered: Gathered) -> bool:
        """Turn what was gathered of a type into a table once it is much; tell whether it is too much."""
        if self._is_bounded and len(gathered.members) > WRITE_ENTITIES_MAX:
            return True
        if len(gathered.members) >= INGEST_CHUNK_RECORDS:
            self._convert(gathered)
        return False

    def _check_sizes(self) -> None:
        for table_key, loaded in self.loaded.items():
            name, count = loaded.type.name, len(loaded.numbers)
            if self._is_bounded and count > WRITE_ENTITIES_MAX:
                raise too_large(f"keyed entities for {table_key}", WRITE_ENTITIES_MAX, count, name, "entities")
            if self._is_strict and loaded.size > WRITE_BYTES_MAX:
                raise too_large("strict_input_arrow_bytes", WRITE_BYTES_MAX, loaded.size, name, "bytes", "N11")
            if self._is_bounded and loaded.size > WRITE_BYTES_MAX:
                raise too_large(f"keyed write bytes for {table_key}", WRITE_BYTES_MAX, loaded.size, name, "bytes")

    def _convert(self, gathered: Gathered) -> None:
        """Turn what was gathered of a type into a table, unless something in it is wrong."""
        self._envelopes.finish(gathered)
        type_ = gathered.type
        before = len(self.findings.violations)
        columns: dict[str, Column] = {}
        for name, item in type_.properties.items():
            values = [members.get(name) for members in gathered.members]
            columns[name] = self._column(gathered, name, values)
            if not item.type.nullable and columns[name].null_count:
                self._report_missing(gathered, name, values)
        if len(self.findings.violations) > before:
            return
        if isinstance(type_, EdgeType):
            columns["src"] = pa.array(gathered.sources, pa.string())
            columns["dst"] = pa.array(gathered.targets, pa.string())
        columns["id"] = self._ids(gathered, columns)
        schema = arrow_schema(type_)
        table = pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)
        loaded = self.loaded.setdefault(type_.table_key, Loaded(type_))
        loaded.parts.append(table)
        loaded.numbers.extend(gathered.numbers)
        loaded.size += table.nbytes
        if loaded.size > WRITE_BYTES_MAX and (self._is_strict or self._is_bounded) and not self.findings.violations:
            self._check_sizes()

    def _column(self, gathered: Gathered, name: str, values: Sequence[object]) -> Column:
        type_ = gathered.type.properties[name].type
        column, faults = decode_column(values, type_)
        for fault in faults:
            is_lenient = fault.is_wrong_kind and (type_.nullable or type_.is_list)
            if is_lenient and not self._is_strict:
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
            return pa.array([one if one is not None else new_ulid() for one in gathered.ids], pa.string())
        keys = pa.table({name: columns[name] for name in type_.key})
        spelled = one_array(key_ids(type_, keys))
        if gathered.ids.count(None) == len(gathered.ids):
            return spelled
        given = pa.array(gathered.ids, pa.string())
        for row in pc.indices_nonzero(pc.fill_null(pc.not_equal(given, spelled), False)).to_pylist():
            canonical, old = spelled[row].as_py(), gathered.ids[row]
            assert old is not None
            if not self._is_strict and self._aliases.add(type_, old, canonical, keys.slice(row, 1)):
                continue
            message = f"the id of this `{type_.name}` is spelled from its key, `{canonical}`, not `{old}`; drop it"
            self._report("N8", gathered, row, "id", message, old)
        return spelled

    def _report(self, rule: str, gathered: Gathered, row: int, name: str, message: str, value: str | None) -> None:
        line = gathered.numbers[row]
        self.findings.add(Violation(rule, message, gathered.type.table_key, gathered.ids[row], name, value, line))
