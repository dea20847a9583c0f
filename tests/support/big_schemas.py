"""Generates a schema as large as real ones get: 17 node types, 67 edge types, about 27 KB."""

from __future__ import annotations


def big_schema() -> str:
    """Return the same schema every time."""
    parts = ["interface Coded { code: String @key }\n"]
    parts += [_node(number) for number in range(17)]
    parts += [_edge(number) for number in range(67)]
    return "".join(parts)


def _node(number: int) -> str:
    optional = "".join(
        f'  measure_{index}: F64? @description("Measure {index} of entity {number}, as last reported.")\n'
        for index in range(6)
    )
    return (
        f'node Entity{number} @description("Entity number {number}.") implements Coded {{\n'
        f"  label: String? @index\n  kind: enum(alpha, beta, gamma, delta)\n  amount: I64?\n  seen: DateTime?\n"
        f'  tags: [String]?\n  vector: Vector(768)? @embed(label, model="text-model")\n{optional}'
        f'  @range(amount, 0..1000000)\n  @unique(kind, label)\n  @check(label, "^[a-z]+$")\n}}\n'
    )


def _edge(number: int) -> str:
    source, target = number % 17, (number * 7 + 3) % 17
    return (
        f"// Relation {number}, one of the many that may hold between these two.\n"
        f"edge Relation{number}: Entity{source} -> Entity{target} @card(0..100) {{\n"
        f'  since: Date?\n  weight: F64?\n  note: String? @description("Why.")\n  @unique(src, dst)\n}}\n'
    )
