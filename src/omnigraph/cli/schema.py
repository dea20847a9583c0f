"""`omnigraph init` and `schema …`: create graphs, and show, plan, apply and infer schemas."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from omnigraph.cli.app import Reads, Writes
from omnigraph.cli.load import Delimiter, Edges, Nodes, files_by_type, separator
from omnigraph.cli.options import Branch, Json, Master, Message, Snapshot, Where, argument, option, switch
from omnigraph.cli.output import Output, echo, print_diagnostics, print_json, progress_bar, write_atomically
from omnigraph.cli.query import compile_new_schema
from omnigraph.errors import OmniGraphError, UsageError

if TYPE_CHECKING:
    from omnigraph.lang.migrate import MigrationPlan
    from omnigraph.public_values import SchemaReceipt


SchemaFile = Annotated[Path | None, option("--schema", "FILE", "The new schema.")]
SchemaArgument = Annotated[str | None, argument("SCHEMA", "The file of the schema, instead of `--schema`.")]
DataLoss = Annotated[bool, switch("--allow-data-loss", "Allow steps that delete data for good, in history too.")]


def _schema_path(option: Path | None, argument: str | None) -> Path:
    """Return the file of a schema, which is given after `--schema` or as an argument."""
    if option is not None and argument is not None:
        raise UsageError(f"two schemas were given, `{option}` and `{argument}`; give one of them")
    if option is None and argument is None:
        raise UsageError("no schema was given; name its file after the graph, or with `--schema FILE`")
    return option if option is not None else Path(argument or "")


def plan(
    target: Reads,
    schema_file: SchemaArgument = None,
    schema: SchemaFile = None,
    against: Annotated[Path | None, option("--against", "FILE", "Plan from this schema instead of a graph's.")] = None,
    allow_data_loss: DataLoss = False,
    branch: Branch = "main",
    as_json: Json = False,
) -> int:
    schema = _schema_path(schema, schema_file)
    if target.is_named if against is not None else not target.is_known:
        raise UsageError("no schema to plan from; give a graph with `--store URI`, or a schema with `--against FILE`")
    if against is not None:
        migration, uri = _offline(schema, against, allow_data_loss), str(against)
    else:
        with target.store_to_read() as graph:
            migration = graph.schema.plan(schema, allow_data_loss=allow_data_loss, branch=branch)
            uri = graph.uri
    if as_json:
        print_json({"uri": uri, **migration.to_json(), "step_count": len(migration.steps)})
    else:
        echo(migration.render())
        print_diagnostics((*migration.refusals, *migration.notes))
    return 0 if migration.supported else 1


def _offline(schema: Path, against: Path, allow_data_loss: bool) -> MigrationPlan:
    from omnigraph.lang.migrate import plan_migration
    from omnigraph.source_files import read_source

    accepted = compile_new_schema(read_source(against, "S1")).ir
    return plan_migration(accepted, read_source(schema, "S1"), allow_data_loss=allow_data_loss)


def apply(
    target: Writes,
    schema_file: SchemaArgument = None,
    schema: SchemaFile = None,
    allow_data_loss: DataLoss = False,
    allow_drops: Annotated[
        bool, switch("--allow-drops", "Do not ask before types, properties and rules are dropped.")
    ] = False,
    queries: Annotated[
        Path | None, option("--queries", "DIR", "Refuse a schema that breaks a stored query in this directory.")
    ] = None,
    branch: Branch = "main",
    message: Message = None,
    engine: Where = "auto",
    master: Master = None,
) -> Output:
    from omnigraph import pipeline

    schema = _schema_path(schema, schema_file)
    target.announce()
    options: dict[str, Any] = {"allow_data_loss": allow_data_loss, "branch": branch, "message": message}
    if target.is_served:
        if queries is not None:
            raise UsageError("a server checks its own stored queries; leave out `--queries`, or add `--store URI`")
        with target.connect() as served:
            uri = served.uri
            receipt = _confirming_drops(partial(served.schema.apply, schema, **options), allow_drops)
    else:
        from omnigraph.cluster.ledger import refuse_managed

        refuse_managed(target.address, "omnigraph schema apply")
        options |= {"queries": queries, "engine": engine, "master": master}
        with target.store_to_write() as graph:
            uri = graph.uri
            receipt = _confirming_drops(partial(pipeline.apply_schema, graph, schema, **options), allow_drops)
    lines = [step.render() for step in receipt.steps]
    lines.append(f"applied, commit {receipt.commit.commit_id}" if receipt.commit else "no changes, nothing applied")
    if receipt.purge_pending:
        lines.append(f"the next cleanup purges: {', '.join(receipt.purge_pending)}")
    return Output({"uri": uri, **receipt.to_json()}, lines)


def _confirming_drops(apply_schema: Callable[..., SchemaReceipt], allow_drops: bool) -> SchemaReceipt:
    """Apply a schema; ask before it drops something, and refuse that without a terminal."""
    try:
        return apply_schema(allow_drops=allow_drops)
    except OmniGraphError as error:
        if error.code != "schema.drops" or not sys.stdin.isatty():
            raise
        from omnigraph.lang.migrate import Step

        drops = error.context["drops"]
        assert isinstance(drops, list)
        echo("\n".join(Step.from_json(step).render() for step in drops), err=True)
        question = "The new schema leaves this out. Type yes to drop it"
        answer = str(typer.prompt(question, default="no", err=True))
        if answer.strip().lower() not in ("yes", "y"):
            raise UsageError("the drops were not confirmed; nothing was applied") from None
    return apply_schema(allow_drops=True)


Diagram = Annotated[
    Literal["pg", "mermaid", "dot"], option("--format", "NAME", "Text (pg), or a diagram: mermaid or dot.")
]


def show(target: Reads, branch: Branch = "main", at: Snapshot = None, format_: Diagram = "pg") -> Output:
    with target.open_to_read() as graph:
        source = text = graph.schema.read(branch, at=at)
    if format_ != "pg":
        from omnigraph.lang.diagnostic import Source
        from omnigraph.lang.schema.render import render_dot, render_mermaid

        render = render_mermaid if format_ == "mermaid" else render_dot
        text = render(compile_new_schema(Source("schema.pg", source)).catalog)
    return Output({"schema_source": source}, [text.removesuffix("\n")])


def infer(
    files: Annotated[
        list[str] | None,
        argument("FILES", "NDJSON, Parquet or CSV: files, directories, globs or addresses of objects."),
    ] = None,
    node: Nodes = None,
    edge: Edges = None,
    delimiter: Delimiter = None,
    out: Annotated[Path | None, option("--out", "FILE", "Write the schema to this new file.")] = None,
    engine: Where = "auto",
    master: Master = None,
) -> Output:
    from omnigraph.pipeline import infer_schema

    if out is not None and out.exists():
        raise UsageError(f"`{out}` exists already; choose another file", path=str(out))
    nodes, edges = files_by_type("--node", node), files_by_type("--edge", edge)
    with progress_bar():
        inferred = infer_schema(
            files or [], nodes=nodes, edges=edges, delimiter=separator(delimiter), engine=engine, master=master
        )
    line = inferred.source.removesuffix("\n")
    if out is not None:
        write_atomically(out, [inferred.source.encode()])
        line = f"wrote {out}; create a graph with: omnigraph init GRAPH --schema {out}"
    document = {"schema_source": inferred.source, "engine": inferred.engine, "file": str(out) if out else None}
    return Output(document, [line])


def init(
    target: Writes,
    schema_file: SchemaArgument = None,
    schema: Annotated[Path | None, option("--schema", "FILE", "The schema of the new graph.")] = None,
    force: Annotated[
        bool, switch("--force", "Replace a leftover `_schema.pg`; an existing graph is never replaced.")
    ] = False,
    as_json: Json = False,
) -> int:
    from omnigraph.cluster.ledger import refuse_inside_cluster
    from omnigraph.graph import init as init_graph
    from omnigraph.source_files import read_source

    schema = _schema_path(schema, schema_file)
    target.announce()
    refuse_inside_cluster(target.address, "omnigraph init")
    with init_graph(target.address, schema, actor=target.actor, force=force) as graph:
        catalog = graph.schema.catalog
        summary = {"uri": graph.uri, "node_types": len(catalog.nodes), "edge_types": len(catalog.edges)}
    if as_json:
        print_json(summary)
    else:
        types = f"{summary['node_types']} node and {summary['edge_types']} edge types"
        echo(f"created a graph with {types} at {summary['uri']}")
        # Remarks on what was accepted, such as a range that nothing satisfies.
        print_diagnostics(compile_new_schema(read_source(schema, "S1")).notes)
    return 0
