"""Inputs that break one rule each: by code, with the mode in which they do, for every way in which data is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omnigraph.limits import INGEST_LINE_BYTES_MAX, WRITE_ENTITIES_MAX
from tests.support.pipeline_fixtures import lines_of


@dataclass(frozen=True, slots=True)
class Bad:
    """An input of which line `line` breaks a rule; without one, something that was there before does."""

    code: str
    name: str
    raw: bytes
    mode: str = "append"
    line: int | None = 1


def _person(name: str, **values: object) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, **values}}


def _edge(kind: str, start: object, end: object, **values: object) -> dict[str, Any]:
    return {"edge": kind, "from": start, "to": end, "data": values}


def _lines(*records: object) -> bytes:
    return lines_of(records)


_LONG = b'{"type":"Person","data":{"name":"' + b"x" * INGEST_LINE_BYTES_MAX + b'"}}\n'
_MANY = b'{"type":"Person","data":{"name":"a","team":[' + b"0," * 140_000 + b"0]}}\n"

# What a line looks like. Each of these may stand between others, and is told with them.
LINES = (
    Bad("N1", "cut off", b'{"type":"Person"\n'),
    Bad("N1", "not UTF-8", b'{"type":"Person","data":{"name":"\xff"}}\n'),
    Bad("N2", "two values", b'{"type":"Person","data":{"name":"y"}} {}\n'),
    Bad("N2", "member twice", b'{"type":"Person","data":{"name":"y","name":"z"}}\n'),
    Bad("N3", "both kinds", _lines({"type": "Person", "edge": "Knows", "data": {"name": "y"}})),
    Bad("N3", "neither kind", _lines({"data": {"name": "y"}})),
    Bad("N4", "unknown node type", _lines({"type": "Robot", "data": {}})),
    Bad("N4", "unknown edge type", _lines(_edge("Likes", "ann", "bob"))),
    Bad("N4", "end is no text", _lines(_edge("Knows", 7, "bob"))),
    Bad("N5", "unknown member", _lines({**_person("y"), "x": 1})),
    Bad("N5", "data is no object", _lines({"type": "Person", "data": [1]})),
    Bad("N6", "unknown property", _lines(_person("y", zip=1))),
    Bad("N6", "reserved name", _lines(_person("y", _tombstone=True))),
    Bad("N6", "ends in the data", _lines(_edge("Knows", "ann", "bob", src="ann"))),
    Bad("N7", "id is no text", _lines(_person("y", id=7))),
    Bad("N8", "id is not the key", _lines(_person("y", id="z"))),
    Bad("N9", "text for a number", _lines(_person("y", level="7"))),
    Bad("N10", "null where none may be", _lines({"type": "Note", "data": {"text": None}})),
    Bad("N10", "number out of range", _lines(_person("y", level=3_000_000_000))),
    Bad("N10", "no such day", _lines(_edge("Knows", "ann", "bob", since="2024-02-30"))),
    Bad("N11", "too many tokens", _MANY),
)
# What an entity is, or is to others.
ENTITIES = (
    Bad("E5", "unique value that is there", _lines(_person("y1", email="ann@x"))),
    Bad("E5", "unique pair twice", _lines(_person("y2", team="b", level=5), _person("y3", team="b", level=5)), line=2),
    Bad("E5", "key twice", _lines(_person("y4"), _person("y4")), line=2),
    Bad("E7", "not among the words", _lines(_person("y5", role="boss"))),
    Bad("E8", "out of the range", _lines(_person("y6", level=10))),
    Bad("E8", "not like the pattern", _lines(_person("y7", team="RED"))),
    Bad("E9", "no such start", _lines(_edge("Knows", "nobody", "ann", id="y8"))),
    Bad("E9", "no such end", _lines(_edge("Wrote", "ann", "n404", id="y9"))),
    Bad("E10", "too many", _lines(*[_edge("Wrote", "ann", "n1", id=f"w{place}") for place in (7, 8)])),
    Bad("E11", "id that is there", _lines(_edge("Reports", "ann", "bob", id="r1"))),
)
# What concerns an input as a whole, or a mode of its own.
WHOLE = (
    Bad("E5", "key twice in a merge", _lines(_person("y"), _person("y")), "merge", 2),
    Bad("E9", "ends that an overwrite removes", _lines(_person("y")), "overwrite", None),
    Bad("E10", "too few after a merge", _lines(_edge("Reports", "ann", "bob", id="r1")), "merge", None),
    Bad("E10", "too few after an overwrite of edges", _lines(_edge("Reports", "ann", "bob")), "overwrite", None),
    Bad(
        "E10",
        "too few after an overwrite of nodes and edges",
        _lines(_person("ann"), _person("bob"), _edge("Reports", "ann", "bob")),
        "overwrite",
        None,
    ),
)
# Only what is written in one piece is bounded.
BOUNDED = (
    Bad("N11", "line too long", _LONG),
    Bad("E12", "too many entities", _lines(*map(_person, map(str, range(WRITE_ENTITIES_MAX + 1)))), line=None),
)
# Rules of queries and of embedding, of which an input knows nothing. E6 is about numbers that are not finite in a key:
# an input cannot bring them so far, because N9 or N10 refuse them as values first.
ELSEWHERE = {"E1", "E2", "E3", "E4", "E6", "E13"}
EVERY = {*(f"N{number}" for number in range(1, 12)), *(f"E{number}" for number in range(1, 14))}
