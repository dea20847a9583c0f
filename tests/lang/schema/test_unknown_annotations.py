"""Unknown annotations: refused where they are new, kept where an earlier release accepted them, and removable."""

from __future__ import annotations

import pytest

from omnigraph.lang.diagnostic import LanguageError, Source
from omnigraph.lang.migrate import MigrationPlan, plan_migration
from omnigraph.lang.schema import SchemaIR
from tests.support.earlier_schemas import unknown_annotations_accepted
from tests.support.schema_compiling import compiled, refused

OLD = "interface I { i: I32? @odd } node A @audited implements I { n: I32? @unqiue @shiny(7) } edge E: A -> A @sort"


@pytest.fixture
def accepted() -> SchemaIR:
    with unknown_annotations_accepted():
        ir = compiled(OLD).ir
    # As it comes from storage: the stored form knows nothing of rules.
    return SchemaIR.from_json(ir.to_json())


def plan(accepted: SchemaIR, text: str) -> MigrationPlan:
    return plan_migration(accepted, Source("new.pg", text))


def test_accepted_annotations_stay_legal_and_are_noted(accepted: SchemaIR) -> None:
    found = plan(accepted, OLD)
    assert (found.supported, found.steps) == (True, ())
    assert [(note.code, OLD[note.span.start : note.span.end]) for note in found.notes] == [
        ("S29", "@odd"),
        ("S29", "@audited"),
        ("S29", "@unqiue"),
        ("S29", "@shiny(7)"),
        ("S29", "@sort"),
    ]


def test_accepted_annotations_can_all_be_removed(accepted: SchemaIR) -> None:
    found = plan(accepted, "interface I { i: I32? } node A implements I { n: I32? } edge E: A -> A")
    assert found.supported
    instant = {"effect": "instant"}
    assert [step.to_json() for step in found.steps] == [
        {"kind": "update_property_metadata", "type_kind": "interface", "type_name": "I", "property_name": "i"}
        | instant,
        {"kind": "update_type_metadata", "type_kind": "node", "name": "A"} | instant,
        {"kind": "update_property_metadata", "type_kind": "node", "type_name": "A", "property_name": "i"} | instant,
        {"kind": "update_property_metadata", "type_kind": "node", "type_name": "A", "property_name": "n"} | instant,
        {"kind": "update_type_metadata", "type_kind": "edge", "name": "E"} | instant,
    ]
    assert "audited" not in str(found.compiled.ir.to_json())


def test_accepted_annotation_survives_a_rename(accepted: SchemaIR) -> None:
    new = OLD.replace("node A @audited", 'node B @audited @rename_from("A")').replace("A -> A", "B -> B")
    new = new.replace("n: I32? @unqiue", 'm: I32? @rename_from("n") @unqiue')
    assert [step.kind for step in plan(accepted, new).steps] == ["rename_type", "rename_property"]


def test_accepted_annotation_with_another_value_is_refused(accepted: SchemaIR) -> None:
    found = plan(accepted, OLD.replace("@shiny(7)", "@shiny(8)"))
    [refusal] = found.refusals
    assert refusal.message == "the unknown annotations of `A.n` can be removed, but not changed"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("n: I32? @unqiue", "m: I32? @unqiue  n: I32? @unqiue"),
        ("edge E: A -> A @sort", "edge E: A -> A @sort @audited"),
        ("node A @audited", "node C @audited {} node A @audited"),
    ],
)
def test_accepted_annotation_at_another_place_is_unknown(accepted: SchemaIR, old: str, new: str) -> None:
    assert old in OLD
    [diagnostic] = refused(OLD.replace(old, new), accepted)
    assert diagnostic.code == "S32"


def test_annotation_of_a_new_graph_is_refused_with_its_place() -> None:
    with pytest.raises(LanguageError) as raised:
        compiled(OLD)
    assert [(one.code, OLD[one.span.start : one.span.end]) for one in raised.value.diagnostics] == [
        ("S32", "@odd"),
        ("S32", "@audited"),
        ("S32", "@unqiue"),
        ("S32", "@shiny(7)"),
        ("S32", "@sort"),
    ]
    assert raised.value.diagnostics[2].hint == "did you mean `@unique`?"
