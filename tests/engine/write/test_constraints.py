"""Every constraint against every writer: each cell is refused by its code and changes nothing, and has a mutant.

A cell names the check that stands there. Of a rule, the mutant is a list of rules without it; what the reader or the
language refuses before rules are asked has its mutants in the tests of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from omnigraph.engine.schema_data import DataCheck
from omnigraph.errors import OmniGraphError
from omnigraph.graph import Graph
from omnigraph.lang.diagnostic import LanguageError
from omnigraph.rules.validate import RULES
from tests.support.rule_seams import without_rule
from tests.support.write_fixtures import create, load, refused, run

pytestmark = pytest.mark.slow

SCHEMA = """
node P {
  k: String @key  need: String  e: enum(a, b)?  n: I32?  c: String?  u: String?  d: Date?  v: Vector(2)?
  @range(n, 0..9)  @check(c, "^x")  @unique(u)  @unique(n, d)
}
node Pair { day: Date  no: I32  @key(day, no) }
node Note { text: String? }
edge One: P -> P @card(0..1) { w: String?  e: enum(a, b)?  @unique(w)  @unique(src, dst) }
edge Two: P -> P @card(1..2)
edge Any: P -> Note
"""
DATA = (
    '{"type":"P","data":{"k":"a","need":"x","u":"taken","n":1,"d":"2024-01-01"}}',
    '{"type":"P","data":{"k":"b","need":"x"}}',
    '{"type":"Pair","data":{"day":"2024-01-01","no":1}}',
    '{"type":"Note","data":{"id":"n1"}}',
    '{"edge":"One","from":"a","to":"b","data":{"id":"o1","w":"taken"}}',
    '{"edge":"Two","from":"a","to":"b","data":{"id":"t1"}}',
    '{"edge":"Any","from":"b","to":"n1","data":{"id":"y1"}}',
)
READER = "reader"
MODES = ("append", "merge", "overwrite")


def node(**data: object) -> str:
    members = "".join(f',"{name}":{value}' for name, value in data.items())
    return f'{{"type":"P","data":{{"k":"z","need":"x"{members}}}}}'


def edge(name: str, source: str, target: str, data: str = "") -> str:
    return f'{{"edge":"{name}","from":"{source}","to":"{target}","data":{{{data}}}}}'


@dataclass(frozen=True)
class Cell:
    """One constraint broken by one writer."""

    constraint: str
    writer: str
    check: str
    code: str
    act: Callable[[Graph], object]
    words: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.constraint}-{self.writer}"


def insert(**values: str) -> str:
    members = " ".join(f"{name}: {value}" for name, value in ({"k": '"z"', "need": '"x"'} | values).items())
    return f"insert P {{{members}}}"


# The rule, its code, words of its message, statements that break it, and lines that break it in any mode.
TABLE: dict[str, tuple[str, str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "enum": (
        "enum_values", "E7", ("q", "a, b"),
        (insert(e="$x"), 'update P set {e: $x} where k = "a"'), (node(e='"q"'),),
    ),
    "enum of an edge": (
        "enum_values", "E7", ("q",),
        ('insert One {from: "b" to: "b" e: $x}',), (*DATA[:2], edge("One", "b", "b", '"e":"q"')),
    ),
    "range": (
        "ranges", "E8", ("@range(n, 0..9)", "10"),
        (insert(n="10"), 'update P set {n: 10} where k = "a"'), (node(n=10),),
    ),
    "check": (
        "checks", "E8", ("^x", "y"), (insert(c='"y"'), 'update P set {c: "y"} where k = "a"'), (node(c='"y"'),),
    ),
    "end": (
        "endpoints", "E9", ("`to` is `none`", "first"),
        ('insert Any {from: "a" to: "none"}',), (edge("Any", "a", "none"),),
    ),
    "start": (
        "endpoints", "E9", ("`from` is `none`",),
        ('insert Any {from: "none" to: "n1"}',), (edge("Any", "none", "n1"),),
    ),
    "at most": (
        "cardinality", "E10", ("@card(0..1)", "2 edges"),
        ('insert One {from: "b" to: "b"} insert One {from: "b" to: "a"}',),
        (edge("One", "b", "b"), edge("One", "b", "a")),
    ),
}  # fmt: skip
# Constraints that look at what is committed, or at a whole write: lines by mode.
BY_MODE: dict[str, tuple[str, str, tuple[str, ...], tuple[str, ...], dict[str, tuple[str, ...]]]] = {
    "unique": (
        "unique", "E5", ("P.(u)", "taken"), (insert(u='"taken"'), 'update P set {u: "taken"} where k = "b"'),
        {"append": (node(u='"taken"'),), "merge": (node(u='"taken"'),),
         "overwrite": (*DATA[:2], node(u='"taken"'))},
    ),
    "unique tuple with a date": (
        "unique", "E5", ("P.(d, n)", "2024-01-01"), (insert(n="1", d='date("2024-01-01")'),),
        {mode: (*(DATA[:2] if mode == "overwrite" else ()), node(n=1, d='"2024-01-01"')) for mode in MODES},
    ),
    "unique of edges": (
        "unique", "E5", ("One.(w)",), ('insert One {from: "b" to: "b" w: "taken"}',),
        {mode: (edge("One", "b", "b", '"id":"o9","w":"taken"'),
                *(DATA[4:5] if mode == "overwrite" else ())) for mode in MODES},
    ),
    "unique ends": (
        "unique", "E5", ("One.(dst, src)",),
        ('insert One {from: "b" to: "b"} insert One {from: "b" to: "b"}',),
        {mode: (edge("One", "b", "b"), edge("One", "b", "b")) for mode in MODES},
    ),
    "key twice": (
        "distinct_ids", "E5", ("(k)", "twice"), (),
        {mode: (*(DATA[:2] if mode == "overwrite" else ()), node(), node()) for mode in MODES},
    ),
    "composite key twice": (
        "distinct_ids", "E5", ("(day, no)", "twice"), (),
        dict.fromkeys(MODES, ('{"type":"Pair","data":{"day":"2024-01-02","no":1}}',) * 2),
    ),
    "id twice": (
        "distinct_ids", "E11", ("n9", "merge"), (),
        {mode: ('{"type":"Note","data":{"id":"n9"}}', DATA[3], '{"type":"Note","data":{"id":"n9"}}')[::2]
         if mode == "append" else (DATA[3], *('{"type":"Note","data":{"id":"n9"}}',) * 2)
         for mode in ("append", "overwrite")},
    ),
    "id taken": ("new_ids", "E11", ("n1", "merge"), (), {"append": (DATA[3],)}),
    "key taken": ("new_ids", "E11", ("`a`",), (), {"append": ('{"type":"P","data":{"k":"a","need":"x"}}',)}),
    "edge left alone": ("orphans", "E9", ("y1", "n1"), (), {"overwrite": ('{"type":"Note","data":{"id":"n2"}}',)}),
    "at least": (
        "cardinality", "E10", ("@card(1..2)", "0 edges"), ('delete Two where from = "a"',),
        {"merge": (edge("Two", "b", "b", '"id":"t1"'),)},
    ),
    "at least, end deleted": ("cardinality", "E10", ("0 edges",), ('delete P where k = "b"',), {}),
    "required": ("required", "E4", ("need",), ('update P set {need: $null} where k = "a"',), {}),
    "required, read": (READER, "N10", ("need",), (), dict.fromkeys(MODES, ('{"type":"P","data":{"k":"z"}}',))),
    "vector, read": (READER, "N10", ("v", "2"), (), dict.fromkeys(MODES, (node(v="[1]"),))),
}  # fmt: skip


def cells() -> Iterator[Cell]:
    for constraint, (check, code, words, bodies, lines) in TABLE.items():
        yield from _of(constraint, check, code, words, bodies, dict.fromkeys(MODES, lines))
    for constraint, row in BY_MODE.items():
        yield from _of(constraint, *row)


def _of(
    constraint: str,
    check: str,
    code: str,
    words: tuple[str, ...],
    bodies: tuple[str, ...],
    lines: dict[str, tuple[str, ...]],
) -> Iterator[Cell]:
    for body in bodies:
        params = ", ".join(f"${name}: String?" for name in ("x", "null") if f"${name}" in body)

        def mutate(graph: Graph, body: str = body, params: str = params) -> object:
            return run(graph, body, params, **({"x": "q"} if "$x" in body else {}))

        yield Cell(constraint, body.split()[0], check, code, mutate, words)
    for mode, own in lines.items():

        def ingest(graph: Graph, mode: str = mode, own: tuple[str, ...] = own) -> object:
            if mode == "overwrite":
                # What is replaced must not strand the edges that stay, or the mutant would fail elsewhere.
                own = (*own, *(DATA[3:4] if not any('"Note"' in line for line in own) else ()))
            return load(graph, *own, mode=mode)

        yield Cell(constraint, mode, check, code, ingest, words)


CELLS = list(cells())


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return create(tmp_path / "g", SCHEMA, *DATA)


@pytest.mark.parametrize("cell", CELLS, ids=lambda one: one.name)
def test_write_that_breaks_a_constraint_is_refused(graph: Graph, cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    error = refused(graph, cell.code, lambda: cell.act(graph))
    for words in cell.words:
        assert words in error.message, error.message
    if cell.check == READER:
        return
    # The mutant: without its rule the same write is not refused by that code any more.
    without_rule(monkeypatch, cell.check)
    assert let_through(graph, cell)


def let_through(graph: Graph, cell: Cell) -> bool:
    """Tell whether a write passes the rules; what goes wrong further on does not matter."""
    try:
        cell.act(graph)
    except OmniGraphError as error:
        return error.context.get("rule") != cell.code
    except AssertionError:
        return True
    return True


def test_cells_name_every_rule() -> None:
    # Vectors that are not finite cannot come in by a line, and statements refuse them before the rules are asked.
    assert {cell.check for cell in CELLS} - {READER} == {rule.__name__ for rule in RULES} - {"finite_vectors"}


# What a schema adds, and lines that break it; without lines the data breaks it already.
APPLIES: dict[str, tuple[str, str, tuple[str, ...], str]] = {
    "unique": ("@unique(u)", "@unique(u)  @unique(d)", (node(d='"2024-01-01"'),), "E5"),
    "range": ("@range(n, 0..9)", "@range(n, 0..5)", (node(n="6"),), "E8"),
    "check": ('"^x"', '"^xy"', (node(c='"x"'),), "E8"),
    "required": ("u: String?", "u: String", (), "E4"),
    "at most": (
        "edge Two: P -> P @card(1..2)",
        "edge Two: P -> P @card(1..1)",
        (edge("Two", "a", "a"),),
        "E10",
    ),
    "key": ("@key(day, no)", "@key(day)", ('{"type":"Pair","data":{"day":"2024-01-01","no":2}}',), "E5"),
}


@pytest.mark.parametrize("is_mutant", [False, True])
@pytest.mark.parametrize("constraint", APPLIES)
def test_apply_of_a_constraint_that_data_breaks_is_refused(
    graph: Graph, constraint: str, is_mutant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after, lines, rule = APPLIES[constraint]
    assert before in SCHEMA
    if lines:
        load(graph, *lines)
    if is_mutant:
        monkeypatch.setattr(DataCheck, "run", lambda *_: None)
        monkeypatch.setattr(DataCheck, "check_key", lambda *_: None)
        assert graph.schema.apply(SCHEMA.replace(before, after)).applied
        return
    with pytest.raises(OmniGraphError) as caught:
        graph.schema.apply(SCHEMA.replace(before, after))
    assert (caught.value.context["rule"], caught.value.effect) == (rule, "none")
    assert graph.schema.source == SCHEMA


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ("e: enum(a, b)?  n", "e: enum(a)?  n", "OG-MF-106"),
        ("edge Any: P -> Note", "edge Any: P -> P", "OG-MF-100"),
    ],
)
def test_apply_of_what_no_migration_does_is_refused(graph: Graph, before: str, after: str, code: str) -> None:
    assert before in SCHEMA
    with pytest.raises(LanguageError) as caught:
        graph.schema.apply(SCHEMA.replace(before, after))
    assert {one.code for one in caught.value.diagnostics} == {code}
    assert graph.schema.source == SCHEMA
