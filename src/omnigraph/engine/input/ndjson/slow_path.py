"""NDJSON decoded object by object: gathered by type, then converted column by column, with every error reported.

The reference for what a line means: the fast path takes over only lines that it decodes to the same rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from omnigraph import clock
from omnigraph.engine.external_blobs import BlobReader
from omnigraph.engine.input.ndjson.blocks import Part
from omnigraph.ids import new_ulids
from omnigraph.lang.catalog import FLOATS, INTEGERS, Catalog, EdgeType, NodeType, PropertyType, Type, TypeKey
from omnigraph.lang.diagnostic import did_you_mean
from omnigraph.lang.scalars import TIMES, Family
from omnigraph.lang.schema.arrow_schema import arrow_schema, key_ids
from omnigraph.rules.arrow_typing import Column, arrays, pc
from omnigraph.rules.coerce import Misfit, decode_column, fill_absent, fit, from_fitted, shown
from omnigraph.rules.delta import Findings, Violation, one_array

if TYPE_CHECKING:
    from omnigraph.engine.input.ndjson.blocks import Loaded


_NODE_MEMBERS: Final = frozenset({"type", "data"})
_EDGE_MEMBERS: Final = frozenset({"edge", "from", "to", "data"})
_NONE: Final[Mapping[str, object]] = {}


@dataclass(slots=True)
class Gathered:
    """Entities of one type in input order: the members of `data`, and those of the envelope."""

    type: Type
    known: frozenset[str]
    numbers: list[int] = field(default_factory=list)
    members: list[Mapping[str, Any]] = field(default_factory=list)
    ids: list[str | None] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)

    def take(self, rows: list[int]) -> Gathered:
        """Return some of the entities."""
        chosen = Gathered(self.type, self.known)
        chosen.numbers = [self.numbers[row] for row in rows]
        chosen.members = [self.members[row] for row in rows]
        chosen.ids = [self.ids[row] for row in rows]
        if isinstance(self.type, EdgeType):
            chosen.sources = [self.sources[row] for row in rows]
            chosen.targets = [self.targets[row] for row in rows]
        return chosen


@dataclass
class Envelopes:
    """Takes objects apart. `take` returns the type that an object was added to, or None when it was refused."""

    catalog: Catalog
    findings: Findings
    _gathered: dict[TypeKey, Gathered] = field(default_factory=dict)
    _number: int = 0

    def take(self, number: int, value: Any) -> Gathered | None:
        """Add one object of the strict dialect."""
        self._number = number
        if type(value) is not dict and not isinstance(value, Mapping):
            return self._refuse("N3", f"{shown(value)} is not a JSON object with a `type` or an `edge`")
        is_node, is_edge = "type" in value, "edge" in value
        if is_node == is_edge:
            both = "both `type` and `edge`" if is_node else "neither `type` nor `edge`"
            return self._refuse("N3", f"the object has {both}; it needs exactly one of them")
        allowed = _NODE_MEMBERS if is_node else _EDGE_MEMBERS
        if not value.keys() <= allowed:
            extra = next(name for name in value if name not in allowed)
            return self._refuse("N5", f"there is no member `{extra}` beside `data`; properties go into `data`")
        data = value.get("data", _NONE)
        if type(data) is not dict and not isinstance(data, Mapping):
            return self._refuse("N5", f"`data` is {shown(data)}, not an object")
        gathered = self._node(value["type"]) if is_node else self._edge(value["edge"], value)
        if gathered is None:
            return None
        if not data.keys() <= gathered.known:
            return self._unknown(gathered, data)
        entity_id = data.get("id")
        if (entity_id is None and "id" not in data) or isinstance(entity_id, str):
            return self._add(gathered, data, entity_id, value)
        return self._refuse("N7", f"`id` is {shown(entity_id)}, not a text", "id")

    def take_compatible(self, number: int, value: Any) -> Gathered | None:
        """Add one object of the compatible dialect, which ignores unknown members."""
        self._number = number
        if not isinstance(value, Mapping) or ("type" not in value and "edge" not in value):
            return self._refuse("N3", "the record has neither `type` nor `edge`; it needs one of them")
        is_node = "type" in value
        data = value.get("data")
        if not isinstance(data, Mapping):
            data = _NONE
        gathered = self._node(value["type"]) if is_node else self._edge(value["edge"], value)
        if gathered is None:
            return None
        entity_id = data.get("id")
        if entity_id is not None and not isinstance(entity_id, str):
            if is_node:
                return self._refuse("N7", f"`id` is {shown(entity_id)}, not a text", "id")
            entity_id = None
        return self._add(gathered, data, entity_id, value)

    def finish(self, gathered: Gathered) -> None:
        """Drop the gathered entities of a type; the next entity starts again."""
        del self._gathered[gathered.type.table_key]

    def take_all(self) -> list[Gathered]:
        """Return the remaining gathered entities, in the order of first appearance, and drop them."""
        gathered, self._gathered = list(self._gathered.values()), {}
        return gathered

    def _node(self, name: object) -> Gathered | None:
        node = self.catalog.nodes.get(name) if isinstance(name, str) else None
        return self._of(node) if node else self._unknown_type("node", name, self.catalog.nodes)

    def _edge(self, name: object, envelope: Mapping[str, object]) -> Gathered | None:
        edge = self.catalog.edge_by_word(name) if isinstance(name, str) else None
        if edge is None:
            return self._unknown_type("edge", name, self.catalog.edges)
        for end in ("from", "to"):
            if not isinstance(envelope.get(end), str):
                actual = shown(envelope[end]) if end in envelope else "missing"
                return self._refuse("N4", f"`{end}` of an edge `{edge.name}` is the id of a node, and is {actual}", end)
        return self._of(edge)

    def _of(self, type_: Type) -> Gathered:
        gathered = self._gathered.get(type_.table_key)
        if gathered is None:
            gathered = self._gathered[type_.table_key] = Gathered(type_, frozenset({"id", *type_.properties}))
        return gathered

    def _add(
        self, gathered: Gathered, data: Mapping[str, object], entity_id: str | None, envelope: Mapping[str, Any]
    ) -> Gathered:
        gathered.numbers.append(self._number)
        gathered.members.append(data)
        gathered.ids.append(entity_id)
        if isinstance(gathered.type, EdgeType):
            gathered.sources.append(envelope["from"])
            gathered.targets.append(envelope["to"])
        return gathered

    def _unknown(self, gathered: Gathered, data: Mapping[str, object]) -> Gathered | None:
        for name in data:
            if name not in gathered.known:
                hint = did_you_mean(name, gathered.type.properties) or "drop it, or add it to the schema"
                self._refuse("N6", f"`{gathered.type.name}` has no property `{name}`; {hint}", name)
            if self.findings.is_full:
                break
        return None

    def _unknown_type(self, kind: str, name: object, types: Mapping[str, object]) -> Gathered | None:
        if not isinstance(name, str):
            return self._refuse("N4", f"{shown(name)} is not the name of a type")
        hint = did_you_mean(name, types) or f"the schema has {', '.join(sorted(types)[:8]) or 'none'}"
        return self._refuse("N4", f"there is no {kind} type `{name}`; {hint}")

    def _refuse(self, rule: str, message: str, name: str | None = None) -> Gathered | None:
        self.findings.add(Violation(rule, message, property=name, line=self._number))
        return None


@dataclass
class Aliases:
    """Old ids of the nodes of one load."""

    findings: Findings
    _ids: dict[str, dict[str, set[str]]] = field(default_factory=dict)

    def add(self, node: NodeType, old: str, canonical: str, key: pa.Table) -> bool:
        """Take an old id, if it means the key of the node; return whether it does."""
        if not _means(node, old, key):
            return False
        self._ids.setdefault(node.name, {}).setdefault(old, set()).add(canonical)
        return True

    def apply(self, loaded: dict[TypeKey, Loaded]) -> None:
        """Point the edges of a load at the ids that its nodes have now; one old id of two nodes is refused."""
        for name, aliases in self._ids.items():
            canonical = set().union(
                *(part.rows.column("id").to_pylist() for part in loaded[TypeKey.of("node", name)].parts)
            )
            for old, nodes in aliases.items():
                if old in canonical or len(nodes) > 1:
                    named = ", ".join(f"`{entities}`" for entities in sorted(nodes | ({old} & canonical)))
                    message = f"the old id `{old}` of `{name}` means more than one node: {named}; give each its own"
                    self.findings.add(Violation("N8", message, TypeKey.of("node", name), old))
        if self.findings.violations:
            return
        for entities in loaded.values():
            for column, end in entities.type.ends.items():
                if end in self._ids:
                    entities.parts = [
                        replace(part, rows=_pointed(part.rows, column, self._ids[end])) for part in entities.parts
                    ]
            if entities.type.ends.keys() & set(entities.type.key):
                entities.parts = [replace(part, rows=with_key_ids(part.type, part.rows)) for part in entities.parts]


def with_key_ids(type_: Type, rows: pa.Table) -> pa.Table:
    """Return rows with the ids that their keys make."""
    position = rows.schema.get_field_index("id")
    return rows.set_column(position, rows.schema.field(position), one_array(key_ids(type_, rows)))


def _pointed(rows: pa.Table, column: str, aliases: dict[str, set[str]]) -> pa.Table:
    old = pa.array(list(aliases), pa.string())
    new = pa.array([next(iter(canonical)) for canonical in aliases.values()], pa.string())
    ends = one_array(rows.column(column))
    indices: Column = pc.index_in(ends, value_set=old)
    pointed = pc.coalesce(new.take(indices), ends)
    position = rows.schema.get_field_index(column)
    return rows.set_column(position, rows.schema.field(position), pointed)


def _means(node: NodeType, old: str, key: pa.Table) -> bool:
    if len(node.key) > 1:
        try:
            parts = json.loads(old)
        except ValueError:
            parts = None
        if isinstance(parts, list) and len(parts) == len(node.key) and all(isinstance(part, str) for part in parts):
            return all(_member(node, name, part, key) for name, part in zip(node.key, parts, strict=True))
    return any(_member(node, name, old, key) for name in node.key)


def _member(node: NodeType, name: str, text: str, key: pa.Table) -> bool:
    """Return True if a string, parsed as the type of a key property, equals its value."""
    type_ = node.properties[name].type
    try:
        value = fit(_read(text, type_), type_)
        column = from_fitted([value], type_)
    except (Misfit, ValueError, OverflowError):
        return False
    return bool(pc.equal(column, one_array(key.column(name)))[0].as_py())


def _read(text: str, type_: PropertyType) -> Any:
    if type_.scalar in INTEGERS:
        return int(text)
    if type_.scalar in FLOATS:
        return float(text)
    if type_.scalar.facts.family is Family.TRUTH:
        return {"true": True, "false": False}.get(text)
    if type_.scalar in TIMES and text.removeprefix("-").isdecimal() and len(text) != 8:
        return int(text)
    return text


@dataclass
class Converter:
    """Turns gathered entities into tables: strictly without aliases, as the compatible dialect does with them."""

    findings: Findings
    aliases: Aliases | None = None
    now_ms: int = field(default_factory=lambda: clock.now_us() // 1_000)
    blobs: BlobReader | None = None
    _bad: set[int] = field(default_factory=set)

    def convert(self, gathered: Gathered) -> Part:
        """Return the gathered entities of a type as a table, without invalid rows."""
        self._bad = set()
        type_ = gathered.type
        columns: dict[str, Column] = {}
        for name, item in type_.properties.items():
            values = [members.get(name) for members in gathered.members]
            columns[name] = self._column(gathered, name, values)
            if item.default is not None:
                is_absent = np.array([name not in members for members in gathered.members], bool)
                columns[name] = fill_absent(columns[name], is_absent, item, self.now_ms)
            if not item.type.nullable and columns[name].null_count:
                self._report_missing(gathered, name, values)
        if isinstance(type_, EdgeType):
            columns["src"] = pa.array(gathered.sources, pa.string())
            columns["dst"] = pa.array(gathered.targets, pa.string())
        if not self._bad:
            columns["id"] = self._ids(gathered, columns)
        if self._bad:
            return self.convert(gathered.take([row for row in range(len(gathered.ids)) if row not in self._bad]))
        schema = arrow_schema(type_)
        rows = pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)
        return Part(type_, rows, np.array(gathered.numbers, np.int64))

    def _column(self, gathered: Gathered, name: str, values: Sequence[object]) -> Column:
        type_ = gathered.type.properties[name].type
        if self.blobs is not None and type_.is_blob:
            values = self.blobs.resolve(values)
        column, faults = decode_column(values, type_)
        for fault in faults:
            is_lenient = fault.is_wrong_kind and (type_.nullable or type_.is_list)
            if is_lenient and self.aliases is not None:
                continue
            rule = "N9" if is_lenient else "N10"
            message = f"`{gathered.type.name}.{name}` cannot hold this value: {fault.reason}"
            self._report(rule, gathered, fault.row, name, message, shown(fault.value))
        return column

    def _report_missing(self, gathered: Gathered, name: str, values: Sequence[object]) -> None:
        for row, value in enumerate(values):
            # A default replaces a value that is not mentioned, never a null.
            is_filled = gathered.type.properties[name].default is not None and name not in gathered.members[row]
            if value is None and not is_filled:
                message = f"`{gathered.type.name}.{name}` is not optional, and has no value"
                self._report("N10", gathered, row, name, message, None)

    def _ids(self, gathered: Gathered, columns: dict[str, Column]) -> Column:
        """Return the ids: derived from the key, from the input, or new."""
        type_ = gathered.type
        if not type_.key:
            return with_fresh_ids(pa.array(gathered.ids, pa.string()))
        keys = pa.Table.from_arrays([columns[name] for name in type_.key], names=list(type_.key))
        derived = one_array(key_ids(type_, keys))
        if gathered.ids.count(None) == len(gathered.ids):
            return derived
        stated = pa.array(gathered.ids, pa.string())
        for row in pc.indices_nonzero(pc.fill_null(pc.not_equal(stated, derived), False)).to_pylist():
            canonical, old = derived[row].as_py(), gathered.ids[row]
            assert old is not None
            # Nothing refers to an edge by its id, and the ids of its nodes may still change.
            if self.aliases is not None and (
                isinstance(type_, EdgeType) or self.aliases.add(type_, old, canonical, keys.slice(row, 1))
            ):
                continue
            message = f"the id of this `{type_.name}` is derived from its key, `{canonical}`, not `{old}`; drop it"
            self._report("N8", gathered, row, "id", message, old)
        return derived

    def _report(self, rule: str, gathered: Gathered, row: int, name: str, message: str, value: str | None) -> None:
        self._bad.add(row)
        line = gathered.numbers[row]
        self.findings.add(Violation(rule, message, gathered.type.table_key, gathered.ids[row], name, value, line))


def with_fresh_ids(stated: Column) -> Column:
    """Return a column of ids with new ones where the input has none."""
    if not stated.null_count:
        return stated
    ulids = new_ulids(stated.null_count)
    offsets = np.arange(len(ulids) + 1, dtype=np.int32) * ulids.itemsize
    buffers = [None, arrays.py_buffer(offsets), arrays.py_buffer(ulids)]
    new_ids = arrays.Array.from_buffers(pa.string(), len(ulids), buffers)
    return new_ids if stated.null_count == len(stated) else pc.replace_with_mask(stated, stated.is_null(), new_ids)
