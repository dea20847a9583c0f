"""Legacy ids: what older exports called a keyed node, and how its edges find it under the id it has now.

Only the compatible dialect knows them. An old id is taken if it means the node's key, in any spelling of its type.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.lang.catalog import EdgeType, NodeType
from omnigraph.lang.types import FLOATS, INTEGERS, PropertyType, Scalar
from omnigraph.rules.columns import from_fitted
from omnigraph.rules.delta import one_array
from omnigraph.rules.fit import Misfit, fit
from omnigraph.rules.kernels import Column, pc
from omnigraph.rules.violation import Findings, Violation

if TYPE_CHECKING:
    from omnigraph.engine.write.loaded import Loaded


class Aliases:
    """Old ids of the nodes of one load."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._ids: dict[str, dict[str, set[str]]] = {}

    def add(self, node: NodeType, old: str, canonical: str, key: pa.Table) -> bool:
        """Take an old id, if it means the key of the node; return whether it does."""
        if not _means(node, old, canonical, key):
            return False
        self._ids.setdefault(node.name, {}).setdefault(old, set()).add(canonical)
        return True

    def apply(self, loaded: dict[str, Loaded]) -> None:
        """Point the edges of a load at the ids that its nodes have now; one old id of two nodes is refused."""
        for name, aliases in self._ids.items():
            canonical = set().union(*(part.rows.column("id").to_pylist() for part in loaded[f"node:{name}"].parts))
            for old, nodes in aliases.items():
                if old in canonical or len(nodes) > 1:
                    named = ", ".join(f"`{one}`" for one in sorted(nodes | ({old} & canonical)))
                    message = f"the old id `{old}` of `{name}` means more than one node: {named}; give each its own"
                    self._findings.add(Violation("N8", message, f"node:{name}", old))
        if self._findings.violations:
            return
        for one in loaded.values():
            if isinstance(one.type, EdgeType):
                for column, end in (("src", one.type.source), ("dst", one.type.target)):
                    if end in self._ids:
                        one.parts = [
                            replace(part, rows=_pointed(part.rows, column, self._ids[end])) for part in one.parts
                        ]


def _pointed(rows: pa.Table, column: str, aliases: dict[str, set[str]]) -> pa.Table:
    old = pa.array(list(aliases), pa.string())
    new = pa.array([next(iter(one)) for one in aliases.values()], pa.string())
    ends = one_array(rows.column(column))
    places: Column = pc.index_in(ends, value_set=old)
    pointed = pc.coalesce(new.take(places), ends)
    place = rows.schema.get_field_index(column)
    return rows.set_column(place, rows.schema.field(place), pointed)


def _means(node: NodeType, old: str, canonical: str, key: pa.Table) -> bool:
    if len(node.key) > 1:
        try:
            parts = json.loads(old)
        except ValueError:
            parts = None
        if isinstance(parts, list) and len(parts) == len(node.key) and all(isinstance(one, str) for one in parts):
            return all(_member(node, name, part, key) for name, part in zip(node.key, parts, strict=True))
    return any(_member(node, name, old, key) for name in node.key)


def _member(node: NodeType, name: str, text: str, key: pa.Table) -> bool:
    """Tell whether a text, read as the type of a key member, is its value."""
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
    if type_.scalar is Scalar.BOOL:
        return {"true": True, "false": False}.get(text)
    if type_.scalar in (Scalar.DATE, Scalar.DATETIME) and text.removeprefix("-").isdecimal() and len(text) != 8:
        return int(text)
    return text
