"""A stored schema reads back as it was, and nothing else reads at all."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.lang.diagnostic import LanguageError
from omnigraph.lang.schema import SchemaIR, catalog_of
from tests.support.big_schemas import big_schema
from tests.support.earlier_schemas import unknown_annotations_accepted
from tests.support.schema_compiling import FIXTURE, compiled, refused

STORED: dict[str, Any] = json.loads(json.dumps(compiled(FIXTURE).ir.to_json()))


@pytest.mark.parametrize(
    "text", ["", FIXTURE, big_schema(), 'node A @x("y", z=1) { v: Vector(2) @embed(t) t: String @a(b) }']
)
def test_ir_json_round_trips(text: str) -> None:
    with unknown_annotations_accepted():
        first = compiled(text)
    read = SchemaIR.from_json(json.loads(json.dumps(first.ir.to_json())))
    assert read == first.ir
    assert read.hash == first.ir.hash
    assert catalog_of(read) == first.catalog


KEYED = "node A {} edge E: A -> A { n: I32  @key(src, dst, n) }"
MARKED = "node A {} edge E: A -> A { n: I32 @key }"
FILLED = """node A {
  a: I32 @default(-7)  b: F64 @default(3)  c: [String]? @default(["x"])  d: Bool @default(true)
  e: DateTime @default(now())  f: String @default(uuid())  g: [I64] @default([])
}"""


@pytest.mark.parametrize("text", [KEYED, MARKED, FILLED])
def test_ir_that_earlier_releases_would_misread_has_a_later_version(text: str) -> None:
    first = compiled(text)
    stored = json.loads(json.dumps(first.ir.to_json()))
    assert stored["ir_version"] == 3
    read = SchemaIR.from_json(stored)
    assert (read, catalog_of(read)) == (first.ir, first.catalog)
    with pytest.raises(LanguageError, match="I7"):
        SchemaIR.from_json({**stored, "ir_version": 2})


def test_ir_of_other_schemas_keeps_its_version_and_hash() -> None:
    assert STORED["ir_version"] == 2


@pytest.mark.parametrize(
    "value",
    [{}, {"kind": "later"}, {"kind": "value"}, {"kind": "value", "value": None}, {"kind": "now", "value": 1}, 7],
)
def test_ir_with_a_malformed_default_is_refused(value: object) -> None:
    stored = json.loads(json.dumps(compiled(FILLED).ir.to_json()))
    stored["nodes"][0]["properties"][0]["default"] = value
    with pytest.raises(LanguageError, match="I7"):
        SchemaIR.from_json(stored)


def set_(path: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(stored: dict[str, Any]) -> None:
        *parents, last = (int(part) if part.isdigit() else part for part in path.split("."))
        target: Any = stored
        for part in parents:
            target = target[part]
        target[last] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        set_("ir_version", 1),
        set_("ir_version", 3),
        set_("ir_version", 4),
        set_("ir_version", None),
        set_("identity_domain", "x"),
        set_("identity_domain", 7),
        set_("next_identity_id", 1),
        set_("next_identity_id", 2**64),
        set_("next_identity_id", 100.0),
        set_("next_identity_id", True),
        set_("nodes.0.type_id", 1),
        set_("nodes.0.type_id", "2"),
        set_("nodes.0.type_id", -5),
        set_("nodes.0.name", "Zulu"),
        set_("nodes.0.extra", 1),
        set_("nodes.0.table_incarnation_id", None),
        set_("interfaces.0.table_incarnation_id", 99),
        set_("nodes.0.properties.0.property_id", 1),
        set_("nodes.0.properties.0.name", "zzz"),
        set_("nodes.0.properties.0.declared", "elsewhere"),
        set_("nodes.0.properties.0.type.scalar", "Int"),
        set_("nodes.0.properties.0.type.nullable", 1),
        set_("nodes.0.implements.0.type_id", 9),
        set_("nodes.0.implements.0.type_id", 1.0),
        set_("nodes.0.implements.0.type_id", True),
        set_("nodes.0.implements.0.name", "Gone"),
        set_("nodes.0.constraints.0.columns.0.name", "gone"),
        set_("nodes.0.constraints.0.columns", None),
        set_("edges.0.source", {"name": "Gone"}),
        set_("edges.0.cardinality", []),
        set_("edges", {}),
        set_("nodes", None),
        lambda stored: stored.pop("edges"),
        lambda stored: stored["nodes"].reverse(),
        lambda stored: stored["nodes"].append(stored["nodes"][-1]),
        lambda stored: stored["nodes"][0]["properties"].reverse(),
    ],
)
def test_ir_changed_by_hand_is_i7(change: Callable[[dict[str, Any]], None]) -> None:
    stored = copy.deepcopy(STORED)
    change(stored)
    with pytest.raises(LanguageError) as caught:
        SchemaIR.from_json(stored)
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == ["I7"]
    assert "malformed schema IR" in caught.value.render()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted(STORED)), inner, max_size=6),
    max_leaves=8,
)


@pytest.mark.slow
@given(JSON, st.sampled_from(sorted(STORED)))
def test_ir_any_json_is_i7_never_another_error(value: object, member: str) -> None:
    for stored in (value, {**STORED, member: value}):
        assert _codes(stored) in (["I7"], [])


def _codes(stored: object) -> list[str]:
    try:
        ir = SchemaIR.from_json(stored)
    except LanguageError as error:
        return [diagnostic.code for diagnostic in error.diagnostics]
    return [] if ir.to_json() == stored else ["changed in reading"]


def test_identity_counter_exhausted_is_i7_at_the_new_type() -> None:
    accepted = replace(compiled("node A {}").ir, next_identity_id=2**64 - 2)
    assert compiled("node A {}", accepted).ir == accepted
    [diagnostic] = refused("node A {}\nnode B {}", accepted)
    place = diagnostic.source.position(diagnostic.span.start)
    assert (diagnostic.code, place.line, place.column) == ("I7", 2, 6)


def test_identity_dropped_and_added_again_is_new() -> None:
    first = compiled("node A { x: I32? }").ir
    without = compiled("node A {}", first).ir
    again = compiled("node A { x: I32? }", without).ir
    assert first.identities.nodes["A"].property_ids == {"x": 2}
    assert again.identities.nodes["A"].property_ids == {"x": 4}
    assert again.next_identity_id == 5


def test_identity_of_injected_hint_in_a_new_node_is_new() -> None:
    first = compiled("interface I { p: I32 } node A implements I {}").ir
    text = 'interface I { q: I32 @rename_from("p") } node A implements I {} node B implements I {}'
    second = compiled(text, first).ir
    assert second.identities.nodes["A"].property_ids["q"] == first.identities.nodes["A"].property_ids["p"]
    assert second.identities.nodes["B"].property_ids["q"] >= first.next_identity_id


def test_ir_merge_rules_come_back_and_absent_ones_leave_no_trace() -> None:
    with_rules = compiled("node A @merge(ours) { n: I32 @merge(max) }\nedge E: A -> A @merge(theirs)").ir
    assert SchemaIR.from_json(with_rules.to_json()) == with_rules
    encoded = json.dumps(with_rules.to_json())
    assert [encoded.count(f'"merge": "{rule}"') for rule in ("ours", "max", "theirs")] == [1, 1, 1]
    without = compiled("node A { n: I32 }\nedge E: A -> A").ir
    assert '"merge"' not in json.dumps(without.to_json())
    assert without.hash != with_rules.hash


@pytest.mark.parametrize("rule", ["biggest", None])
def test_ir_merge_rule_unknown_is_malformed(rule: str | None) -> None:
    stored: Any = compiled("node A { n: I32 @merge(max) }").ir.to_json()
    stored["nodes"][0]["properties"][0]["merge"] = rule
    with pytest.raises(LanguageError):
        SchemaIR.from_json(stored)
