"""`omnigraph snapshot`, `export`, `clone` and `blob …`: read the state of a branch, and copy data out."""

from __future__ import annotations

from collections.abc import Iterator
from os.path import isdir, splitext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

from omnigraph.cli.app import Reads
from omnigraph.cli.options import Master, ReadBranch, ReadState, Snapshot, Types, Where, argument, option, switch
from omnigraph.cli.output import Output, echo, echo_bytes, plural, progress_bar, table, write_atomically
from omnigraph.errors import GraphError, UsageError
from omnigraph.limits import BLOB_READ_BYTES_MAX

if TYPE_CHECKING:
    from omnigraph.client.graph import Blob as ServedBlob
    from omnigraph.engine.entity_lookup import Blob


def snapshot(target: Reads, branch: ReadBranch = None, at: Snapshot = None) -> Output:
    with target.open_to_read() as graph:
        document = graph.snapshot(branch or "main", at=at).to_json()
    head = (
        f"commit {document['graph_commit_id']}, manifest version {document['graph_manifest_version']}, format"
        f" {document['internal_schema_version']}"
    )
    members = ("entity_kind", "type_name", "entity_count", "published_dataset_version", "dataset_path")
    rows = ([dataset.get(name, "") for name in members] for dataset in document["datasets"])
    datasets = table(["kind", "type", "entities", "version", "dataset"], rows)
    return Output(document, (f"branch {document['graph_branch']}, {head}", *datasets))


def export(
    target: Reads,
    state: ReadState,
    types: Types = None,
    format_: Annotated[
        Literal["ndjson", "parquet", "csv", "graphml", "gexf", "dot", "cypher"],
        option("--format", "NAME", "Output format: ndjson, parquet, csv, graphml, gexf, dot or cypher."),
    ] = "ndjson",
    jsonl: Annotated[bool, switch("--jsonl", "NDJSON, which is the default.", hidden=True)] = False,
    out: Annotated[
        str | None, option("--out", "DIR", "New directory, or `s3://…`, `gs://…` or `az://…` prefix, for the files.")
    ] = None,
    engine: Where = "auto",
    master: Master = None,
) -> int:
    if jsonl and format_ != "ndjson":
        raise UsageError(f"`--jsonl` and `--format {format_}` are two formats; give one of them")
    if out is None:
        if format_ == "parquet" or format_ == "csv" or engine != "auto" or master is not None:
            raise UsageError(
                f"{format_} goes to files, and so does what Spark exports; name a directory with `--out DIR`"
            )
        with target.open_to_read() as graph:
            chunks = graph.export(types=types or None, **state.arguments, format=format_)
            echo_bytes(chunks)
        return 0
    if format_ not in ("ndjson", "parquet", "csv"):
        raise UsageError(f"`--format {format_}` writes one document; redirect standard output to a file")
    from omnigraph import pipeline

    _check_folder_name(str(out), format_)
    # Executors open versions by path, so pending links of the last publish have to be finished first.
    with target.store_to_write() as stored, progress_bar():
        report = pipeline.export(
            stored, out, format_, types=types or None, **state.arguments, engine=engine, master=master
        )
    entities = plural(sum(report.entities.values()), "entity")
    echo(f"{entities} in {plural(report.files, 'file')} of {report.out}, commit {report.commit_id}")
    return 0


# Endings of files that a directory is hardly called by.
_FILE_ENDINGS: Final = {
    "arrow", "avro", "csv", "cypher", "db", "dot", "feather", "gexf", "graphml", "gv", "gz",
    "html", "json", "jsonl", "md", "ndjson", "orc", "parq", "parquet", "sql", "sqlite",
    "tar", "tsv", "txt", "xls", "xlsx", "xml", "yaml", "yml", "zip", "zst",
}  # fmt: skip


def _check_folder_name(out: str, format_: str) -> None:
    """Raise for a directory that is called like a file of another format."""
    ending = splitext(out.rstrip("/"))[1].lower().removeprefix(".")
    if ending not in _FILE_ENDINGS or ending == format_ or isdir(out):
        return
    remedy = f"add `--format {ending}`" if ending in ("parquet", "csv") else "name a directory"
    if ending in ("graphml", "gexf", "dot", "cypher"):
        remedy = f"write `--format {ending} > {out}`"
    raise UsageError(
        f"`--out {out}` is called like a file, but {format_} goes to a directory with files for each type; {remedy}."
        " Directories are written as ndjson, parquet or csv, standard output as ndjson, graphml, gexf, dot or cypher",
        path=out,
    )


Entity = Annotated[str, argument("ENTITY", "`node` or `edge`.")]
TypeName = Annotated[str, argument("TYPE", "Name of the type.")]
EntityId = Annotated[str, argument("ID", "The id of the entity.")]
PropertyName = Annotated[str, argument("PROPERTY", "The property that holds the blob.")]

_OFFSET_MAX = 2**63 - 1


def get(
    target: Reads,
    entity: Entity,
    type_name: TypeName,
    entity_id: EntityId,
    property_name: PropertyName,
    state: ReadState,
    offset: Annotated[int, option("--offset", "N", "First byte to read.")] = 0,
    length: Annotated[int | None, option("--length", "N", "Number of bytes to read; default all.")] = None,
    out: Annotated[Path | None, option("--out", "FILE", "Write to this file, not to standard output.")] = None,
) -> int:
    if offset < 0 or (length is not None and length < 1) or offset + (length or 0) > _OFFSET_MAX:
        raise UsageError(
            f"`--offset {offset}`{'' if length is None else f' `--length {length}`'} is not a range of bytes; an"
            " offset counts from 0, and a length from 1",
            offset=offset,
            length=length,
        )
    with target.open_to_read() as graph:
        blob = graph.blob(type_name, entity_id, property_name, entity=entity, **state.arguments)
        chunks = _chunks(blob, offset, length)
        if out is not None:
            write_atomically(out, chunks)
            return 0
        echo_bytes(chunks)
    return 0


def stat(
    target: Reads,
    entity: Entity,
    type_name: TypeName,
    entity_id: EntityId,
    property_name: PropertyName,
    state: ReadState,
) -> Output:
    with target.open_to_read() as graph:
        blob = graph.blob(type_name, entity_id, property_name, entity=entity, **state.arguments)
    description = {"snapshot_commit_id": blob.snapshot_commit_id, "etag": blob.etag, "length": blob.length}
    named = {name: value for name, value in (("branch", state.branch), ("at", state.at)) if value is not None}
    document = {
        "selector": {"entity": entity, "type": type_name, "id": entity_id, "property": property_name},
        "kind": "managed",
        "size": blob.length,
        **description,
        "target": {**named, "resolved_snapshot": blob.snapshot_commit_id},
    }
    return Output(document, (f"{name:<18}  {value}" for name, value in description.items()))


def _chunks(blob: Blob | ServedBlob, offset: int, length: int | None) -> Iterator[bytes]:
    """Yield the bytes of a range; its end may be past the end of the blob."""
    end = blob.length if length is None else min(blob.length, offset + length)
    if offset >= blob.length and (offset or blob.length):
        raise GraphError(
            f"offset {offset} is past the end of the blob, which has {blob.length} bytes; use a smaller offset",
            code="blob.range",
            start=offset,
            end=max(offset, end),
            length=blob.length,
        )
    for start in range(offset, end, BLOB_READ_BYTES_MAX):
        yield blob.read(start, min(end, start + BLOB_READ_BYTES_MAX))


Source = Annotated[str, argument("SOURCE", "The graph: a path, `s3://…`, `gs://…` or `az://…`.")]
Destination = Annotated[str, argument("TARGET", "URI of the copy: a path, `s3://…`, `gs://…` or `az://…`.")]
Update = Annotated[bool, switch("--update", "Update an earlier clone; copies only new files.")]


def clone(source: Source, destination: Destination, update: Update = False) -> Output:
    from omnigraph.graph import open as open_graph

    with open_graph(source, read_only=True) as graph, progress_bar():
        report = graph.clone(destination, update=update)
    copied = f"{plural(report.copied_files, 'file')} of {report.copied_bytes} bytes copied"
    return Output(report.to_json(), [f"{report.target} is at commit {report.commit}, verified; {copied}"])
