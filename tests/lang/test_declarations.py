"""The types of a catalog print as declarations, from which the same catalog can be compiled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omnigraph.lang.catalog import Catalog, EdgeType, NodeType
from omnigraph.lang.diagnostic import Source
from omnigraph.lang.schema import compile_schema
from tests.support.case_file import CASES

DOMAIN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
RICH = r"""
node Asset @merge(theirs) @description("a \"thing\"") {
  a: I32
  b: String
  kind: enum(small, large)?
  labels: [String]? @merge(union)
  text: String? @description("what \\ it says")
  vec: Vector(3)? @embed(text, model="m1")
  @key(a, b)
  @unique(text, kind)
  @index(kind)
  @range(a, -1..10)
  @check(b, "^\\d+$")
}
edge Owns: Asset -> Asset @card(0..3)
edge Near: Asset -> Asset @card(1..) {
  since: Date?
  @unique(src, dst)
}
"""


def compiled(text: str) -> Catalog:
    return compile_schema(Source("s.pg", text), domain=DOMAIN).catalog


def plain(type_: NodeType | EdgeType) -> NodeType | EdgeType:
    properties = {name: replace(item, property_id=0) for name, item in type_.properties.items()}
    return replace(type_, type_id=0, incarnation_id=0, properties=properties)


@pytest.mark.parametrize("text", [RICH, (CASES / "fixtures" / "F.pg").read_text(encoding="utf-8")])
def test_declarations_compile_to_the_same_types(text: str) -> None:
    catalog = compiled(text)
    types: list[NodeType | EdgeType] = [*catalog.nodes.values(), *catalog.edges.values()]
    declared = "".join(f"interface {name} {{}}\n" for name in catalog.interfaces) + "\n".join(map(str, types))
    again = compiled(declared)
    recompiled: list[NodeType | EdgeType] = [*again.nodes.values(), *again.edges.values()]
    assert [*map(plain, recompiled)] == [*map(plain, types)]
