"""`omnigraph init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from omnigraph.cli.bind import WritesUri
from omnigraph.cli.options import Json
from omnigraph.cli.output import print_json
from omnigraph.cli.terminal import echo

Schema = Annotated[Path, typer.Option("--schema", metavar="FILE", help="The schema of the new graph.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a stray `_schema.pg`; never a graph.")]


def init(
    target: WritesUri,
    schema: Schema,
    force: Force = False,
    as_json: Json = False,
) -> int:
    from omnigraph.graph import init as init_graph

    target.announce()
    with init_graph(target.address, schema, actor=target.actor, force=force) as graph:
        catalog = graph.core.view().catalog
        made = {"uri": graph.uri, "node_types": len(catalog.nodes), "edge_types": len(catalog.edges)}
    if as_json:
        print_json(made)
    else:
        echo(f"created a graph with {made['node_types']} node and {made['edge_types']} edge types at {made['uri']}")
    return 0
