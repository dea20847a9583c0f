"""Mutations and ingests run the same list of rules, all of it, and every rule of it makes a difference."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from omnigraph.errors import OmniGraphError
from omnigraph.graph import Graph
from omnigraph.rules import validate as validation
from omnigraph.rules.delta import Changes, Committed, Findings
from omnigraph.rules.validate import RULES
from tests.support.rule_seams import replace_rules, without_rule
from tests.support.write_fixtures import create, load, run

SCHEMA = """
node N { k: String @key  e: enum(a, b)?  n: I32?  c: String?  u: String? @unique  @range(n, 0..9)  @check(c, "^x") }
node M { k: String @key  v: Vector(2) @embed(k) }
node Note { text: String }
edge E: N -> N @card(0..1)
"""
DATA = ('{"type":"N","data":{"k":"a","u":"taken"}}', '{"type":"Note","data":{"id":"n","text":"t"}}')
EDGE = '{"edge":"E","from":"a","to":"a"}'

# What breaks each rule, as statements and as lines. Where one of them cannot, another check stands before the rule:
# a mutation never holds an id twice and always takes edges along, and an ingest reads values before rules see them.
BREAKS: dict[str, tuple[str | None, tuple[str, tuple[str, ...]] | None]] = {
    "required": ('insert M {k: "m"}', None),
    "finite_vectors": (None, None),
    "enum_values": ("insert N {k: \"z\" e: $x}", ("append", ('{"type":"N","data":{"k":"z","e":"q"}}',))),
    "ranges": ('insert N {k: "z" n: 10}', ("merge", ('{"type":"N","data":{"k":"z","n":10}}',))),
    "checks": ('insert N {k: "z" c: "y"}', ("append", ('{"type":"N","data":{"k":"z","c":"y"}}',))),
    "distinct_ids": (None, ("merge", ('{"type":"N","data":{"k":"z"}}',) * 2)),
    "new_ids": (None, ("append", ('{"type":"Note","data":{"id":"n","text":"u"}}',))),
    "unique": ('insert N {k: "z" u: "taken"}', ("merge", ('{"type":"N","data":{"k":"z","u":"taken"}}',))),
    "endpoints": ('insert E {from: "a" to: "none"}', ("append", (EDGE.replace('"to":"a"', '"to":"none"'),))),
    "orphans": (None, ("overwrite", ('{"type":"N","data":{"k":"other"}}',))),
    "cardinality": ('insert E {from: "a" to: "a"} insert E {from: "a" to: "a"}', ("append", (EDGE, EDGE))),
}  # fmt: skip


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return create(tmp_path / "g", SCHEMA, *DATA)


def attempt(action: Callable[[], object]) -> bool:
    """Return whether an action is refused by a rule; a crash further on counts as let through."""
    try:
        action()
    except OmniGraphError as error:
        return "violations" in error.context
    except AssertionError:
        return False
    return False


def test_breaks_name_every_rule() -> None:
    assert set(BREAKS) == {rule.__name__ for rule in RULES}


def test_both_writers_run_every_rule(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def spy(rule: validation.Rule) -> validation.Rule:
        def check(changes: Changes, committed: Committed, findings: Findings) -> None:
            ran.append(rule.__name__)
            rule(changes, committed, findings)

        check.__name__ = rule.__name__
        return check

    replace_rules(monkeypatch, spy)
    actions = (partial(run, graph, 'insert N {k: "b"}'), partial(load, graph, '{"type":"N","data":{"k":"c"}}'))
    for action in actions:
        ran.clear()
        action()
        assert ran == [rule.__name__ for rule in RULES]


@pytest.mark.parametrize("name", [name for name, (body, _) in BREAKS.items() if body])
def test_mutation_without_a_rule_lets_its_breach_through(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    body = BREAKS[name][0]
    assert body is not None
    params, values = ("$x: String", {"x": "q"}) if "$x" in body else ("", {})
    assert attempt(lambda: run(graph, body, params, **values))
    without_rule(monkeypatch, name)
    assert not attempt(lambda: run(graph, body, params, **values))


@pytest.mark.parametrize("name", [name for name, (_, lines) in BREAKS.items() if lines])
def test_ingest_without_a_rule_lets_its_breach_through(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    broken = BREAKS[name][1]
    assert broken is not None
    mode, lines = broken
    if name == "orphans":
        load(graph, EDGE)
    assert attempt(lambda: load(graph, *lines, mode=mode))
    without_rule(monkeypatch, name)
    assert not attempt(lambda: load(graph, *lines, mode=mode))
