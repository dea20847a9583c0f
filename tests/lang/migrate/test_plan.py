"""Plans as values: verdict, JSON, text, places, and what holds for every schema."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.lang.diagnostic import LanguageError, Source, Span
from omnigraph.lang.migrate import MigrationPlan, SchemaPlan, Step, plan_migration
from omnigraph.lang.schema import SchemaIR
from tests.support.big_schemas import big_schema
from tests.support.schema_compiling import FIXTURE, compiled


def plan(new: str, old: str = FIXTURE, allow_data_loss: bool = False) -> MigrationPlan:
    return plan_migration(compiled(old).ir, Source("new.pg", new), allow_data_loss=allow_data_loss)


@pytest.mark.parametrize("text", ["", FIXTURE, big_schema()])
def test_plan_same_schema_is_empty_and_supported(text: str) -> None:
    found = plan(text, text)
    assert (found.supported, found.steps) == (True, ())
    assert found.to_json() == {"supported": True, "steps": []}
    assert found.render() == "No changes."


def test_plan_after_storage_is_the_same() -> None:
    stored = SchemaIR.from_json(compiled(FIXTURE).ir.to_json())
    assert plan_migration(stored, Source("new.pg", FIXTURE)).steps == ()


def test_plan_refused_says_so_in_every_form() -> None:
    found = plan(FIXTURE.replace("teu: I32?", "teu: String?").replace("berths: I32?", "berths: I32?  flag: Bool?"))
    assert not found.supported
    [step] = [step for step in found.steps if step.kind == "unsupported_change"]
    assert step.message == "[OG-MF-106] type of `Vessel.teu` changes from `I32?` to `String?`"
    assert step.to_json() == {
        "kind": "unsupported_change",
        "entity": "node:Vessel.teu",
        "reason": "type of `Vessel.teu` changes from `I32?` to `String?`",
        "code": "OG-MF-106",
    }
    [refusal] = found.refusals
    assert "teu: String?" in refusal.render()
    assert refusal.hint is not None
    assert found.render().splitlines() == [
        "Not supported: 1 of 2 steps refused.",
        "  + add Port.flag: Bool?",
        "  ! node:Vessel.teu: [OG-MF-106] type of `Vessel.teu` changes from `I32?` to `String?`",
    ]


def test_plan_of_a_server_renders_like_that_of_a_graph() -> None:
    found = plan(FIXTURE.replace("teu: I32?", "teu: String?").replace("berths: I32?", "berths: I32?  flag: Bool?"))
    served = SchemaPlan.from_json(found.to_json())
    assert (served.to_json(), served.render(), served.supported) == (found.to_json(), found.render(), False)


def test_plan_refused_without_code_has_no_code_member() -> None:
    found = plan(FIXTURE.replace("CallsAt: Vessel -> Port", "CallsAt: Vessel -> Vessel"))
    [step] = found.steps
    assert "code" not in step.to_json()
    assert step.message == "the endpoints of `CallsAt` cannot change; add a new edge type instead"


def test_plan_renders_what_a_step_does_to_rows() -> None:
    old = "interface I { i: I32? } node A implements I { a: I32  b: I32?  c: String? } edge E: A -> A @card(0..1)"
    new = "node A { a: I64?  b: I32  c: String? @unique  d: I32 @default(7) i: I32? @key(b) } edge E: A -> A"
    lines = plan(new, old).render().splitlines()
    assert lines == [
        "Supported: 10 steps, 5 instant. 2 of them drop what the schema leaves out.",
        "  ~ change the interfaces of node A",
        "  ~ make A.a optional",
        "  ~ widen A.a from I32 to I64?; rewrites node:A",
        "  ~ make A.b required; checks the rows of node:A",
        "  + add A.d: I32 @default(7); rewrites node:A",
        "  ~ update the annotations of A.i",
        "  + add @key(b) to node A; rewrites node:A, edge:E",
        "  + add @unique(c) to node A; checks the rows of node:A",
        "  - drop @card(0..1) from edge E",
        "  - drop interface I",
    ]


def test_plan_steps_survive_json() -> None:
    old = "node A { a: I32  b: I32? } edge E: A -> A"
    new = 'node B @rename_from("A") { a: I64  c: I32 @default(7) @range(c, 0..9) } edge E: B -> B { @key(src, dst) }'
    for step in plan(new, old).steps:
        assert replace(step, span=Span(0, 0)) == Step.from_json(step.to_json())


def test_plan_renders_every_supported_kind() -> None:
    old = "node A { a: I32? b: enum(x)? c: I32? d: I32? } node B {} edge E: A -> A"
    new = (
        'node C @rename_from("A") @description("d") { z: I32? @rename_from("a") b: enum(x, y)? c: I32? @index '
        'n: F64? @description("n") } edge E: C -> C edge F: C -> C'
    )
    lines = plan(new, old).render().splitlines()
    assert lines == [
        "Supported: 9 steps, all instant. 2 of them drop what the schema leaves out.",
        "  ~ rename node A to C",
        "  ~ update the annotations of node C",
        "  ~ extend C.b by y",
        "  + add C.n: F64?",
        "  ~ rename C.a to z",
        "  - drop C.d (soft)",
        "  + add @index(c) to node C",
        "  + add edge F",
        "  - drop node B (soft)",
    ]


def test_plan_with_data_loss_makes_every_drop_hard() -> None:
    steps = plan("node A { a: I32? }", "node A { a: I32? b: I32? } node B {}", allow_data_loss=True).steps
    assert [(step.kind, step.mode) for step in steps] == [("drop_property", "hard"), ("drop_type", "hard")]


def test_plan_one_of_two_forms_of_an_index_removed_is_metadata() -> None:
    found = plan("node A { a: I32 @index }", "node A { a: I32 @index @index(a) }")
    assert [step.kind for step in found.steps] == ["update_type_metadata"]


def test_plan_bad_source_raises_with_places() -> None:
    with pytest.raises(LanguageError) as caught:
        plan("node A {\n  a: [Blob]\n}")
    assert "new.pg:2:7" in caught.value.render()


PROPERTIES = st.dictionaries(
    st.sampled_from("abcd"), st.sampled_from(["I32", "I32?", "String? @index", "enum(x)", "enum(x, y)", "F64? @unique"])
)
SCHEMAS = st.dictionaries(st.sampled_from("ABC"), PROPERTIES).map(
    lambda types: "\n".join(
        f"node {name} {{ {' '.join(f'{key}: {type_}' for key, type_ in body.items())} }}"
        for name, body in types.items()
    )
)


@pytest.mark.slow
@given(SCHEMAS, SCHEMAS)
def test_plan_is_empty_exactly_when_shapes_are_equal(old: str, new: str) -> None:
    found = plan(new, old)
    assert (found.steps == ()) == (compiled(old).shape_hash == compiled(new).shape_hash)
    assert found.supported == (not found.refusals)
    assert found.compiled.ir.next_identity_id >= compiled(old).ir.next_identity_id


@pytest.mark.slow
@given(SCHEMAS, SCHEMAS)
def test_plan_keeps_every_identity_of_what_keeps_its_name(old: str, new: str) -> None:
    before, after = compiled(old).ir.identities.nodes, plan(new, old).compiled.ir.identities.nodes
    for name in before.keys() & after.keys():
        assert before[name].type_id == after[name].type_id
        for key in before[name].property_ids.keys() & after[name].property_ids.keys():
            assert before[name].property_ids[key] == after[name].property_ids[key]
