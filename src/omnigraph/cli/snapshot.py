"""`omnigraph snapshot` and `omnigraph export`: a graph as it stands."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.bind import ReadsUri
from omnigraph.cli.describe import snapshot_of
from omnigraph.cli.formats import table
from omnigraph.cli.load import Engine, Master, Where
from omnigraph.cli.options import Json, Names, Naming, ReadBranch, Snapshot, Types
from omnigraph.cli.output import plural, print_json
from omnigraph.cli.terminal import echo, echo_bytes
from omnigraph.errors import UsageError

if TYPE_CHECKING:
    from omnigraph.cli.target import Target


class FileFormat(StrEnum):
    """The formats of an export."""

    NDJSON = "ndjson"
    PARQUET = "parquet"
    CSV = "csv"


FileShape = Annotated[FileFormat, typer.Option("--format", metavar="NAME", help="ndjson, parquet or csv.")]
Jsonl = Annotated[bool, typer.Option("--jsonl", hidden=True, help="NDJSON, which is the default.")]
Out = Annotated[
    str | None, typer.Option("--out", metavar="DIR", help="Write files to this new directory or `s3://…` address.")
]


def snapshot(target: ReadsUri, branch: ReadBranch = None, as_json: Json = False) -> int:
    with target.open_to_read() as graph:
        found = snapshot_of(graph.snapshot(branch or "main"))
    if as_json:
        print_json(found)
        return 0
    state = f"commit {found['graph_commit_id']}, manifest version {found['graph_manifest_version']}"
    echo(f"branch {found['graph_branch']}, {state}")
    shown = ("entity_kind", "type_name", "entity_count", "published_dataset_version", "dataset_path")
    rows = ([one.get(name, "") for name in shown] for one in found["datasets"])
    for line in table(["kind", "type", "entities", "version", "dataset"], rows):
        echo(line)
    return 0


def export(
    target: ReadsUri,
    branch: ReadBranch = None,
    snapshot_id: Snapshot = None,
    names: Names = Naming.NOW,
    types: Types = None,
    format_: FileShape = FileFormat.NDJSON,
    jsonl: Jsonl = False,
    out: Out = None,
    engine: Where = Engine.AUTO,
    master: Master = None,
) -> int:
    if jsonl and format_ is not FileFormat.NDJSON:
        raise UsageError(f"`--jsonl` and `--format {format_.value}` are two formats; give one of them")
    if branch is not None and snapshot_id is not None:
        raise UsageError("`--branch` and `--snapshot` both say what to read; use one of them")
    if out is not None:
        return _export_files(target, branch, snapshot_id, names, types, format_, out, engine, master)
    if format_ is not FileFormat.NDJSON or engine is not Engine.AUTO or master is not None:
        raise UsageError("standard output takes NDJSON, written in process; name a directory with `--out DIR`")
    with target.open_to_read() as graph:
        echo_bytes(graph.export(branch or "main", snapshot_id, types or None, names=names.value))
    return 0


def _export_files(
    target: Target,
    branch: str | None,
    snapshot_id: str | None,
    names: Naming,
    types: list[str] | None,
    format_: FileFormat,
    out: str,
    engine: Engine,
    master: str | None,
) -> int:
    from omnigraph import pipeline
    from omnigraph.pipeline.progress import bar

    # Executors open versions by path, so what was just published may have to be put in its place first.
    with target.store_to_write() as graph, bar() as watcher:
        report = pipeline.export(
            graph,
            out,
            format_.value,
            types=types or None,
            branch=branch or "main",
            at=snapshot_id,
            names=names.value,
            engine=engine.value,
            master=master,
            watcher=watcher,
        )
    entities = plural(sum(report.entities.values()), "entity")
    echo(f"{entities} in {plural(report.files, 'file')} of {report.out}, commit {report.commit_id}")
    return 0
