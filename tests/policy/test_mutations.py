"""What a mutation of a restricted actor does and tells is what it would on a graph without the hidden types."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engine.write import write_authorization
from omnigraph.errors import PolicyDenied
from omnigraph.graph import Graph
from omnigraph.policy import load_bundle
from tests.support.visibility_oracle import edge, node, outcome, text

pytestmark = pytest.mark.slow

NAMED = "interface Named { name: String @key\n  age: I64?\n  note: String? }\n"
VISIBLE = "node Person implements Named {}\nnode City implements Named {}\nedge Knows: Person -> Person { w: F64? }\n"
HIDDEN = """node Salary implements Named {}
edge Paid: Salary -> Person { w: F64? }
edge Follows: Person -> Person { w: F64? }
"""
TYPES = "[Person, City, Knows]"
RULES = f"""
version: 1
groups: {{ann: [ann], bob: [bob], root: [root]}}
rules:
  - {{id: a, allow: {{actors: {{group: ann}}, actions: [read, export, change], types: {TYPES}}}}}
  - {{id: b, allow: {{actors: {{group: bob}}, actions: [read], types: {TYPES}}}}}
  - {{id: c, allow: {{actors: {{group: bob}}, actions: [change]}}}}
  - {{id: r, allow: {{actors: {{group: root}}, actions: [read, export, change]}}}}
"""
SHOWN = [
    *(node("Person", name=f"p{number}", age=number) for number in range(4)),
    node("City", name="rome", age=2000),
    edge("Knows", "k0", "p0", "p1", w=1.0),
    edge("Knows", "k1", "p1", "p2", w=2.0),
]
SECRET = [
    node("Salary", name="canary", age=987654, note="hush"),
    node("Salary", name="p3", age=3),
    edge("Paid", "h0", "canary", "p0", w=7.0),
    edge("Follows", "h1", "p0", "p3", w=9.0),
    edge("Follows", "h2", "p2", "p3", w=9.0),
]
PATTERNS = {
    "interface": "$x: Named",
    "condition": "$x: Named  $x.age > 2500",
    "any edge": "$p: Person  $p _ $x",
    "any edge back": "$p: Person  $x _ $p",
    "both ways": "$p: Person  $p <_> $x",
    "edge variable": "$p: Person  $p $e:_ $x",
    "several hops": "$p: Person  $p _{1,3} $x",
    "path": "$p: Person  path $q = shortest $p _{1,} $x",
    "weighted path": "$p: Person  path $q = shortest $p _{1,} $x by w",
    "negation": "$x: Person  not { $x _ $y }",
    "optional": "$x: Person  optional { $x _ $y }",
    "named hidden": "$x: Salary",
    "named hidden edge": "$p: Person  $p follows $x",
}
STATEMENTS = [
    'insert Person { name: "z" + $x.name, age: $x.age, note: type($x) }',
    'insert Person { name: "z" + $x.@id }',
    'insert Person { name: "n" }',
    'create City { name: "c" + $x.name }',
    "upsert Person { name: $x.name, age: 5 }",
    "insert Knows { from: $p, to: $x }",
    "update $x set { age: 77 }",
    "delete $x",
    "delete $e",
    "update $e set { w: 1.5 }",
    'insert Person { name: "e" + cast($e.w as String) }',
]
PLAIN = [
    'insert Person { name: "p9", age: 1 }',
    'create Person { name: "canary" }',
    'create Person { name: "p1" }',
    'upsert City { name: "oslo", age: 4 }',
    'insert Salary { name: "s" }',
    'insert Knows { from: "p3", to: "canary" }',
    'insert Follows { from: "p0", to: "p1" }',
    "update Person set { age: 9 } where age > 1",
    "update Person set { age: age + 1 } where age > 1 and name is not null",
    'update Knows set { w: 3.0 } where from = "p0"',
    'delete Knows where from = "p1"',
    'delete Person where name = "p3"',
    'delete Person where age >= 0 and name != "p1"',
    "delete Salary where age > 0",
    'delete Person where name = "p0"  match { $x: City } delete $x',
    'insert City { name: "a" }  match { $x: Person } insert City { name: "b" + $x.name }',
    'update Person set { age: 1 } where name = "p0"  match { $p: Person $p _ $x } update $x set { age: 2 }',
]
FORMS = [
    *PLAIN,
    *(f"match {{ {pattern} }} {statement}" for pattern, statement in product(PATTERNS.values(), STATEMENTS)),
]


def open_pair(root: Path) -> tuple[Graph, Graph]:
    """Return two graphs as `ann` sees them: one with hidden types, and one that never had them."""
    made = []
    for name, schema, data in (("whole", VISIBLE + HIDDEN, [*SHOWN, *SECRET]), ("small", VISIBLE, SHOWN)):
        og.init(root / f"{name}.omni", NAMED + schema).load(data)
        made.append(og.open(root / f"{name}.omni", actor="ann", policy=load_bundle(RULES)))
    return made[0], made[1]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Graph, Graph]]:
    whole, small = open_pair(tmp_path_factory.mktemp("mutations"))
    with whole, small:
        yield whole, small


def compare(pair: tuple[Graph, Graph], forms: list[str], *, dry_run: bool) -> list[str]:
    """Return the forms that tell, or leave behind, something else than without the hidden types."""
    different = []
    for form in forms:
        told: list[Any] = []
        for graph in pair:
            receipt = outcome(lambda graph=graph, form=form: graph.mutate(form, dry_run=dry_run).to_json())  # type: ignore[misc]
            told.append((receipt, [] if dry_run else sorted(map(str, visible_rows(graph)))))
        if told[0] != told[1] or any(value in str(told[0]) for value in ("987654", "hush")):
            different.append(form)
    return different


def visible_rows(graph: Graph) -> Any:
    """Return what `ann` can export, without the ids of keyless entities, which differ."""
    rows: Any = text(graph.export())
    return [{**row, "data": {**row["data"], "id": None}} if "edge" in row else row for row in rows]


def test_dry_runs_of_all_forms_tell_the_same_as_without_hidden_types(pair: tuple[Graph, Graph]) -> None:
    assert compare(pair, FORMS, dry_run=True) == []


def test_writes_of_all_forms_do_the_same_as_without_hidden_types(tmp_path: Path) -> None:
    whole, small = open_pair(tmp_path)
    with whole, small:
        # Every ninth, so that the graph is not empty soon; with what deletes nodes at the end.
        assert compare((whole, small), [*FORMS[len(PLAIN) :: 9], *PLAIN], dry_run=False) == []
        assert whole.acting_as("root").query("match { $s: Salary } return { count($s) as n }").rows() == [{"n": 2}]
        assert og.open(whole.uri).maintenance.verify().is_sound


def test_mutant_that_matches_hidden_types_is_caught(pair: tuple[Graph, Graph], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        write_authorization, "readable_view", lambda session, snapshot, _: session.full_view_of(snapshot)
    )
    different = compare(pair, FORMS, dry_run=True)
    for pattern in ("$x: Named", "_ $x", "<_>", "path", "not {", "$e:_"):
        assert any(pattern in form for form in different), pattern


def test_patterns_leave_out_types_that_may_only_be_changed(pair: tuple[Graph, Graph]) -> None:
    """A pattern matches what a query matches; to name such a type is denied, to insert it is allowed."""
    bob = pair[0].acting_as("bob")
    matched = bob.query("match { $x: Named } return { count($x) as n }").rows()[0]["n"]
    assert (
        bob.mutate('match { $x: Named } insert Salary { name: "s" + $x.name }', dry_run=True).affected_nodes == matched
    )
    assert bob.mutate("match { $x: City } delete $x", dry_run=True).affected_nodes == 1
    with pytest.raises(PolicyDenied, match="`read` of `Salary`"):
        bob.mutate('match { $x: Salary } insert City { name: "c" + $x.name }', dry_run=True)


def test_cascade_deletes_hidden_edges_and_does_not_count_them(tmp_path: Path) -> None:
    whole, small = open_pair(tmp_path)
    with whole, small:
        receipt = whole.mutate('match { $x: Person { name: "p0" } } delete $x')
        assert (receipt.affected_nodes, receipt.affected_edges) == (1, 1)
        root = whole.acting_as("root")
        assert root.query("match { $p: Person $p follows $q } return { $p.name }").rows() == [{"p.name": "p2"}]
        assert root.query("match { $s: Salary $s paid $q } return { $s.name }").rows() == []
