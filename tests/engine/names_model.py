"""A model of names in the past, written from the rule and not from the code.

A world is a history of schemas and rows. Types and properties have identities of the model's own: a rename keeps one, a
drop ends it, and whatever is created gets a new one. What a read must show follows from the identities alone.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import Any

import orjson

import omnigraph as og

Rows = dict[str, dict[int, object]]
TYPES = ("A", "B", "C")
PROPERTIES = ("p", "q", "r")


@dataclass
class Type:
    """A type in a schema: its identity, and its properties by name."""

    identity: int
    properties: dict[str, int] = field(default_factory=dict)


@dataclass
class Moment:
    """One commit: the schema and the rows that it left, by identity."""

    commit: str
    types: dict[str, Type]
    rows: dict[int, Rows]


class World:
    """A graph and the model of its history."""

    def __init__(self, graph: og.Graph, seed: int) -> None:
        self.graph = graph
        self.random = Random(seed)
        self.types: dict[str, Type] = {"A": Type(0, {"p": 1})}
        self.rows: dict[int, Rows] = {0: {}}
        self.purged: set[int] = set()
        self.moments: list[Moment] = []
        self._next = 2

    @staticmethod
    def first_schema() -> str:
        return "node A { k: String @key\n p: String? }"

    def step(self) -> None:
        """Change the schema or the data, as one commit."""
        act = self.random.choice([self._write, self._write, self._rename, self._drop, self._add])
        before = self.graph.snapshot().head
        act()
        commit = self.graph.snapshot().head
        if commit != before:
            self.moments.append(Moment(str(commit), deepcopy(self.types), deepcopy(self.rows)))

    # -- changes -----------------------------------------------------------------------------------------------

    def _write(self) -> None:
        lines = []
        for name, type_ in self.types.items():
            rows = self.rows[type_.identity]
            for key in self.random.sample("uvwxyz", 2):
                values = {
                    one: f"{name}.{one}.{self._fresh()}" for one in type_.properties if self.random.random() < 0.7
                }
                rows[key] = {type_.properties[one]: value for one, value in values.items()}
                lines.append({"type": name, "data": {"k": key, **values}})
        self.graph.ingest(lines)
        if self.random.random() < 0.4:
            name = self.random.choice(sorted(self.types))
            key = self.random.choice("uvwxyz")
            if key in self.rows[self.types[name].identity]:
                del self.rows[self.types[name].identity][key]
                self.graph.mutate(f'query d() {{ delete {name} where k = "{key}" }}')

    def _rename(self) -> None:
        hints: dict[str, str] = {}
        if self.random.random() < 0.5:
            old = self.random.choice(sorted(self.types))
            free = [one for one in TYPES if one not in self.types]
            if not free:
                return
            new = self.random.choice(free)
            self.types[new] = self.types.pop(old)
            hints[new] = old
        else:
            name = self.random.choice(sorted(self.types))
            properties = self.types[name].properties
            free = [one for one in PROPERTIES if one not in properties]
            if not properties or not free:
                return
            old, new = self.random.choice(sorted(properties)), self.random.choice(free)
            properties[new] = properties.pop(old)
            hints[f"{name}.{new}"] = old
        self._apply(hints)

    def _drop(self) -> None:
        hard = self.random.random() < 0.4
        if len(self.types) > 1 and self.random.random() < 0.4:
            gone = self.types.pop(self.random.choice(sorted(self.types)))
            dropped = {gone.identity}
        else:
            properties = self.types[self.random.choice(sorted(self.types))].properties
            if not properties:
                return
            dropped = {properties.pop(self.random.choice(sorted(properties)))}
        if hard:
            self.purged |= dropped
        self._apply({}, hard)

    def _add(self) -> None:
        name = self.random.choice(TYPES)
        if name not in self.types:
            self.types[name] = Type(self._fresh(), {"p": self._fresh()})
            self.rows[self.types[name].identity] = {}
        else:
            free = [one for one in PROPERTIES if one not in self.types[name].properties]
            if not free:
                return
            self.types[name].properties[self.random.choice(free)] = self._fresh()
        self._apply({})

    def _fresh(self) -> int:
        self._next += 1
        return self._next

    def _apply(self, hints: dict[str, str], hard: bool = False) -> None:
        parts = []
        for name, type_ in sorted(self.types.items()):
            hint = f' @rename_from("{hints[name]}")' if name in hints else ""
            lines = ["k: String @key"]
            for one in sorted(type_.properties):
                renamed = hints.get(f"{name}.{one}")
                lines.append(f"{one}: String?" + (f' @rename_from("{renamed}")' if renamed else ""))
            parts.append(f"node {name}{hint} {{ " + "\n".join(lines) + " }")
        self.graph.schema.apply("\n".join(parts), allow_data_loss=hard)

    # -- what must be seen -------------------------------------------------------------------------------------

    def expected(self, moment: Moment, then: bool) -> dict[str, dict[str, dict[str, object]]]:
        """Return all rows of a moment by the names of a schema: of today, or of then without what is purged."""
        types = moment.types if then else self.types
        return {
            name: {
                key: {
                    one: row.get(identity) for one, identity in type_.properties.items() if identity not in self.purged
                }
                for key, row in moment.rows.get(type_.identity, {}).items()
            }
            for name, type_ in types.items()
            if type_.identity not in self.purged
        }

    def changes(self, a: Moment, b: Moment) -> set[tuple[str, str, str]]:
        """Return (type, id, op) of what differs between two moments, by the names of today."""
        before, after = self.expected(a, False), self.expected(b, False)
        found = set()
        for name in self.types:
            old, new = before[name], after[name]
            found |= {(name, key, "insert") for key in new.keys() - old.keys()}
            found |= {(name, key, "delete") for key in old.keys() - new.keys()}
            found |= {(name, key, "update") for key in old.keys() & new.keys() if old[key] != new[key]}
        return found

    # -- what is seen ------------------------------------------------------------------------------------------

    def mismatch(self) -> str | None:
        """Return the first difference between the model and what the graph shows of its past, or None."""
        for moment in self.moments:
            for names in ("now", "then"):
                expected = self.expected(moment, names == "then")
                for way in (self._queried, self._exported):
                    seen = way(moment, names, expected)
                    if seen != expected:
                        return f"{way.__name__} at {moment.commit}, names={names}: {seen} instead of {expected}"
        for _ in range(4):
            a, b = self.random.choice(self.moments), self.random.choice(self.moments)
            found = self.graph.diff(a.commit, b.commit).changes.to_pylist()
            seen_changes = {(one["type_name"], one["id"], one["op"]) for one in found}
            if seen_changes != self.changes(a, b):
                return f"diff {a.commit} {b.commit}: {seen_changes} instead of {self.changes(a, b)}"
        return None

    def _queried(self, moment: Moment, names: Any, expected: dict[str, Any]) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        types = moment.types if names == "then" else self.types
        for name in expected:
            columns = [one for one, identity in types[name].properties.items() if identity not in self.purged]
            listed = ", ".join(["$n.k", *(f"$n.{one}" for one in columns)])
            source = f"query q() {{ match {{ $n: {name} }} return {{ {listed} }} }}"
            found = self.graph.query(source, at=moment.commit, names=names).to_json_rows()
            seen[name] = {row["n.k"]: {one: row[f"n.{one}"] for one in columns} for row in found}
        return seen

    def _exported(self, moment: Moment, names: Any, expected: dict[str, Any]) -> dict[str, Any]:
        seen: dict[str, Any] = {name: {} for name in expected}
        for line in b"".join(self.graph.export(at=moment.commit, names=names)).splitlines():
            record = orjson.loads(line)
            data = {name: value for name, value in record["data"].items() if name not in ("id", "k")}
            seen.setdefault(record["type"], {})[record["data"]["k"]] = data
        return seen
