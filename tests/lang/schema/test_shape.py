"""The shape hash sees what a schema says and nothing else; the catalog says the same."""

from __future__ import annotations

import pytest

from omnigraph.errors import UsageError
from omnigraph.lang.catalog import Cardinality, CheckRule, Embed, RangeRule
from omnigraph.lang.diagnostic import Severity, Source
from omnigraph.lang.schema import compile_schema
from tests.support.schema_compiling import FIXTURE, compiled

BASE = "node A { a: I32 b: String? @index c: enum(x, y) @unique(a, b) @range(a, 0..9) } edge E: A -> A { w: F64? }"


@pytest.mark.parametrize(
    "same",
    [
        "edge E: A->A{w:F64?}node A{c:enum(y,x)b:String?@index a:I32 @range(a,0.0..9.0)@unique(b,a,b)}",
        BASE.replace("node A", '// hello\nnode /* A */ A @rename_from("Z")'),
        BASE.replace("a: I32", 'a: I32 @rename_from("z")').replace("@unique(a, b)", "@unique(a, b) @unique(b, a)"),
        BASE.replace("edge E: A -> A", "edge E: A -> A @card(0..)"),
    ],
)
def test_shape_hash_other_spelling_is_equal(same: str) -> None:
    assert compiled(same).shape_hash == compiled(BASE).shape_hash
    assert compiled(same).ir.hash == compiled(BASE).ir.hash


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a: I32", "a: I64"),
        ("a: I32", "a: I32?"),
        ("a: I32", 'a: I32 @description("d")'),
        ("String? @index", "String?"),
        ("String? @index", "String? @index(b)"),
        ("enum(x, y)", "enum(x, y, z)"),
        ("0..9", "0.."),
        ("0..9", "..9"),
        ("-> A", "-> A @card(0..1)"),
        ("node A", "interface I {} node A implements I"),
    ],
)
def test_shape_hash_other_meaning_differs(old: str, new: str) -> None:
    assert old in BASE
    assert compiled(BASE.replace(old, new)).shape_hash != compiled(BASE).shape_hash


def test_shape_hash_is_a_prefixed_sha256() -> None:
    prefix, _, digest = compiled(BASE).shape_hash.partition(":")
    assert (prefix, len(digest)) == ("sha256", 64)


def test_catalog_range_without_lower_bound_is_a_maximum() -> None:
    node = compiled("node A { a: I32 @range(a, ..9) @range(a, -1.5..) }").catalog.nodes["A"]
    assert set(node.ranges) == {RangeRule("a", None, 9), RangeRule("a", -1.5, None)}


def test_catalog_fixture_holds_every_part() -> None:
    catalog = compiled(FIXTURE).catalog
    port = catalog.nodes["Port"]
    assert port.key == ("code",)
    assert port.index == (("code",),)
    assert port.implements == ("Coded",)
    assert list(port.properties) == ["berths", "code", "country"]
    assert catalog.interfaces == ("Coded",)
    assert catalog.nodes["Vessel"].properties["vec"].type.dimension == 3
    found = catalog.edge_by_word("cALLSAT")
    assert found is not None
    assert (found.source, found.target, found.cardinality) == ("Vessel", "Port", Cardinality(0, None))


def test_catalog_texts_checks_and_embeddings_are_kept() -> None:
    text = """node A @description("d") @instruction("i") {
      t: String @description("p")
      v: Vector(2) @embed("t", model="m")
      @check(t, "^\\\\w+$")
    }"""
    node = compiled(text).catalog.nodes["A"]
    assert (node.description, node.instruction, node.properties["t"].description) == ("d", "i", "p")
    assert node.checks == (CheckRule("t", r"^\w+$"),)
    assert node.properties["v"].embed == Embed("t", "m")


def test_catalog_composite_key_is_ordered_by_property_id_not_by_name() -> None:
    first = compiled("node A { m: String z: String @key(m, z) }")
    renamed = 'node A { y: String @rename_from("m") a: String @rename_from("z") @key(a, y) }'
    assert compiled(renamed, first.ir).catalog.nodes["A"].key == ("y", "a")
    assert compiled(renamed).catalog.nodes["A"].key == ("a", "y")


def test_compile_notes_are_not_errors() -> None:
    notes = compiled('node A @rename_from("B") { a: I32 @range(a, 5..1) }').notes
    assert [(note.code, note.severity) for note in notes] == [("S29", Severity.WARNING), ("I8", Severity.INFO)]


def test_compile_domain_that_is_no_ulid_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="ULID"):
        compile_schema(Source("s.pg", ""), domain="here")


def test_compile_accepted_of_another_graph_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="another graph"):
        compile_schema(Source("s.pg", ""), domain="01JAZ5V9X0000000000000000B", accepted=compiled("").ir)
