"""`omnigraph schema …` and `omnigraph init`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.app import ReadsUri, WritesUri
from omnigraph.cli.options import DataLoss, Json, SchemaFile
from omnigraph.cli.output import echo, print_diagnostics, print_json
from omnigraph.errors import UsageError

if TYPE_CHECKING:
    from omnigraph.lang.migrate import MigrationPlan


StoredQueriesOf = Annotated[
    Path | None,
    typer.Option("--queries", metavar="DIR", help="Reject a schema that breaks a stored query of this directory."),
]
Old = Annotated[
    Path | None, typer.Option("--against", metavar="FILE", help="Plan from this schema instead of a graph's.")
]


def plan(
    target: ReadsUri,
    schema: SchemaFile,
    against: Old = None,
    allow_data_loss: DataLoss = False,
    as_json: Json = False,
) -> int:
    if target.is_named if against is not None else not target.is_known:
        raise UsageError("no schema to plan from; give a graph with `--store URI`, or a schema with `--against FILE`")
    if against is not None:
        migration, uri = _offline(schema, against, allow_data_loss), str(against)
    else:
        with target.store_to_read() as graph:
            migration, uri = graph.schema.plan(schema, allow_data_loss=allow_data_loss), graph.uri
    if as_json:
        print_json({"uri": uri, **migration.to_json(), "step_count": len(migration.steps)})
    else:
        echo(migration.render())
        print_diagnostics(migration.refusals)
    return 0 if migration.supported else 1


def _offline(schema: Path, against: Path, allow_data_loss: bool) -> MigrationPlan:
    # The compilers are imported here so that `--help` and `version` do not pay for them.
    from omnigraph.ids import new_ulid
    from omnigraph.lang.migrate import plan_migration
    from omnigraph.lang.schema import compile_schema
    from omnigraph.source_files import read_source

    accepted = compile_schema(read_source(against, "S1"), domain=new_ulid()).ir
    return plan_migration(accepted, read_source(schema, "S1"), allow_data_loss=allow_data_loss)


def apply(
    target: WritesUri,
    schema: SchemaFile,
    allow_data_loss: DataLoss = False,
    queries: StoredQueriesOf = None,
    as_json: Json = False,
) -> int:
    target.announce()
    if target.is_served:
        if queries is not None:
            raise UsageError("a server checks its own stored queries; leave out `--queries`, or add `--store URI`")
        with target.connect() as served:
            uri, receipt = served.uri, served.schema.apply(schema, allow_data_loss=allow_data_loss)
    else:
        with target.store_to_write() as graph:
            uri = graph.uri
            receipt = graph.schema.apply(schema, allow_data_loss=allow_data_loss, queries=queries)
    if as_json:
        print_json({"uri": uri, **receipt.to_json()})
        return 0
    for step in receipt.steps:
        echo(step.render())
    echo(f"applied, commit {receipt.commit.commit_id}" if receipt.commit else "no changes, nothing applied")
    if receipt.purge_pending:
        echo(f"the next cleanup purges: {', '.join(receipt.purge_pending)}")
    return 0


def show(target: ReadsUri, as_json: Json = False) -> int:
    with target.open_to_read() as graph:
        source = graph.schema.source
    if as_json:
        print_json({"schema_source": source})
    else:
        echo(source, nl=not source.endswith("\n"))
    return 0


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
        catalog = graph.schema.catalog
        summary = {"uri": graph.uri, "node_types": len(catalog.nodes), "edge_types": len(catalog.edges)}
    if as_json:
        print_json(summary)
    else:
        types = f"{summary['node_types']} node and {summary['edge_types']} edge types"
        echo(f"created a graph with {types} at {summary['uri']}")
    return 0
