"""Envelopes: which entity of which type a JSON object stands for, and what is wrong with its outer shape.

Gathers members type by type; values are looked at later, a column at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from omnigraph.lang.catalog import Catalog, EdgeType, NodeType
from omnigraph.lang.query.words import suggestion
from omnigraph.rules.fit import shown
from omnigraph.rules.violation import Findings, Violation

_NODE_MEMBERS: Final = frozenset({"type", "data"})
_EDGE_MEMBERS: Final = frozenset({"edge", "from", "to", "data"})
_NONE: Final[Mapping[str, object]] = {}


@dataclass(slots=True)
class Gathered:
    """Entities of one type as they came in: the members of `data`, and what the envelope says."""

    type: NodeType | EdgeType
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


class Envelopes:
    """Takes objects apart. `take` returns the type that an object was added to, or None when it was refused."""

    def __init__(self, catalog: Catalog, findings: Findings) -> None:
        self.catalog = catalog
        self.findings = findings
        self._gathered: dict[str, Gathered] = {}
        self._number = 0

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
        """Add one object of the compatible dialect, which passes over what it does not know."""
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
        """Forget what was gathered of a type; the next entity of it starts anew."""
        del self._gathered[gathered.type.table_key]

    def rest(self) -> list[Gathered]:
        """Hand out what is still gathered, in the order of first appearance, and forget it."""
        rest, self._gathered = list(self._gathered.values()), {}
        return rest

    def _node(self, name: object) -> Gathered | None:
        node = self.catalog.nodes.get(name) if isinstance(name, str) else None
        return self._of(node) if node else self._unknown_type("node", name, self.catalog.nodes)

    def _edge(self, name: object, envelope: Mapping[str, object]) -> Gathered | None:
        edge = self.catalog.edge_by_word(name) if isinstance(name, str) else None
        if edge is None:
            return self._unknown_type("edge", name, self.catalog.edges)
        for end in ("from", "to"):
            if not isinstance(envelope.get(end), str):
                found = shown(envelope[end]) if end in envelope else "missing"
                return self._refuse("N4", f"`{end}` of an edge `{edge.name}` is the id of a node, and is {found}", end)
        return self._of(edge)

    def _of(self, type_: NodeType | EdgeType) -> Gathered:
        found = self._gathered.get(type_.table_key)
        if found is None:
            found = self._gathered[type_.table_key] = Gathered(type_, frozenset({"id", *type_.properties}))
        return found

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
                hint = suggestion(name, gathered.type.properties) or "drop it, or add it to the schema"
                self._refuse("N6", f"`{gathered.type.name}` has no property `{name}`; {hint}", name)
            if self.findings.is_full:
                break
        return None

    def _unknown_type(self, kind: str, name: object, known: Mapping[str, object]) -> Gathered | None:
        if not isinstance(name, str):
            return self._refuse("N4", f"{shown(name)} is not the name of a type")
        hint = suggestion(name, known) or f"the schema has {', '.join(sorted(known)[:8]) or 'none'}"
        return self._refuse("N4", f"there is no {kind} type `{name}`; {hint}")

    def _refuse(self, rule: str, message: str, name: str | None = None) -> Gathered | None:
        self.findings.add(Violation(rule, message, property=name, line=self._number))
        return None
