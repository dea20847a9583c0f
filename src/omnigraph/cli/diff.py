"""`omnigraph diff`: what differs between two states of a graph."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.bind import Reads
from omnigraph.cli.formats import table
from omnigraph.cli.options import Json, Kinds, Names, Naming, Ops, Types
from omnigraph.cli.output import plural, print_json
from omnigraph.cli.terminal import echo

A = Annotated[str, typer.Argument(metavar="A", help="A branch, tag or commit.")]
B = Annotated[str, typer.Argument(metavar="B", help="The branch, tag or commit to get to.")]


def diff(
    target: Reads,
    a: A,
    b: B,
    kinds: Kinds = None,
    types: Types = None,
    ops: Ops = None,
    names: Names = Naming.NOW,
    as_json: Json = False,
) -> int:
    with target.open_to_read() as graph:
        found = graph.diff(a, b, kinds=kinds, types=types, ops=ops, names=names.value)
    if as_json:
        print_json(found.to_json())
        return 0
    changes = found.changes.select(["op", "kind", "type_name", "id", "from", "to"]).to_pylist()
    if changes:
        rows = (["" if value is None else value for value in row.values()] for row in changes)
        for line in table(["op", "kind", "type", "id", "from", "to"], rows):
            echo(line)
    stats = found.stats()
    counts = ", ".join(plural(stats[f"{op}s"], op) for op in ("insert", "update", "delete"))
    echo(f"{counts} in {plural(stats['types_affected'], 'type')}")
    return 0
