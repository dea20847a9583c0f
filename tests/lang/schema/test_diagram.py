"""Diagrams of a schema."""

from __future__ import annotations

from omnigraph.lang.schema.render import render_dot, render_mermaid
from tests.support.query_fixtures import catalog_from

SCHEMA = """
node Person { name: String @key  nick: String? @unique  tags: [String]  kind: enum(a, b)?  face: Vector(3)? }
node Team { name: String @key }
edge Knows: Person -> Person { since: Date  weight: F32? }
edge LeadBy: Team -> Person @card(0..1)
edge Owns: Team -> Person @card(1..)
"""


def test_mermaid_shows_types_keys_and_cardinalities() -> None:
    assert render_mermaid(catalog_from(SCHEMA)).splitlines() == [
        "erDiagram",
        "  Person {",
        '    Vector(3) face "optional"',
        '    enum kind "optional"',
        "    String name PK",
        '    String nick UK "optional"',
        "    String[] tags",
        "  }",
        "  Team {",
        "    String name PK",
        "  }",
        '  Person }o--o{ Person : "Knows (since, weight)"',
        '  Team }o--o| Person : "LeadBy"',
        '  Team }o--|{ Person : "Owns"',
    ]


def test_dot_escapes_what_records_give_a_meaning() -> None:
    lines = render_dot(catalog_from("node A { k: String @key  e: enum(x, y)? }\nedge E: A -> A")).splitlines()
    assert lines[2] == '  "A" [label="{A|e:\\ enum(x,\\ y)?\\lk:\\ String\\ @key\\l}"];'
    assert lines[3] == '  "A" -> "A" [label="E"];'
    assert lines[-1] == "}"
