"""`omnigraph blob …`: the bytes of one property of one entity."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.bind import Reads
from omnigraph.cli.options import Json, Names, Naming, ReadBranch, Snapshot
from omnigraph.cli.output import print_json
from omnigraph.cli.terminal import echo, echo_bytes
from omnigraph.cli.whole import write_whole
from omnigraph.errors import GraphError, UsageError
from omnigraph.limits import BLOB_READ_BYTES_MAX

if TYPE_CHECKING:
    from omnigraph.client import Graph as ServedGraph
    from omnigraph.client.graph import Blob as ServedBlob
    from omnigraph.engine.blob import Blob
    from omnigraph.graph import Graph

Entity = Annotated[str, typer.Argument(metavar="ENTITY", help="`node` or `edge`.")]
TypeName = Annotated[str, typer.Argument(metavar="TYPE", help="The type.")]
EntityId = Annotated[str, typer.Argument(metavar="ID", help="The id of the entity.")]
PropertyName = Annotated[str, typer.Argument(metavar="PROPERTY", help="The property that holds the blob.")]
Offset = Annotated[int, typer.Option("--offset", metavar="N", help="The first byte to read.")]
Length = Annotated[int | None, typer.Option("--length", metavar="N", help="Most bytes to read; all if unset.")]
Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="A file for the bytes, not standard output.")]

_OFFSET_MAX = 2**63 - 1


def get(
    target: Reads,
    entity: Entity,
    type_name: TypeName,
    entity_id: EntityId,
    property_name: PropertyName,
    branch: ReadBranch = None,
    snapshot: Snapshot = None,
    names: Names = Naming.NOW,
    offset: Offset = 0,
    length: Length = None,
    out: Out = None,
) -> int:
    if offset < 0 or (length is not None and length < 1) or offset + (length or 0) > _OFFSET_MAX:
        raise UsageError(
            f"`--offset {offset}`{'' if length is None else f' `--length {length}`'} is not a range of bytes; an"
            " offset counts from 0, and a length from 1",
            offset=offset,
            length=length,
        )
    with target.open_to_read() as graph:
        found = _find(graph, entity, type_name, entity_id, property_name, branch, snapshot, names)
        chunks = _chunks(found, offset, length)
        if out is not None:
            write_whole(out, chunks)
            return 0
        echo_bytes(chunks)
    return 0


def stat(
    target: Reads,
    entity: Entity,
    type_name: TypeName,
    entity_id: EntityId,
    property_name: PropertyName,
    branch: ReadBranch = None,
    snapshot: Snapshot = None,
    names: Names = Naming.NOW,
    as_json: Json = False,
) -> int:
    with target.open_to_read() as graph:
        found = _find(graph, entity, type_name, entity_id, property_name, branch, snapshot, names)
    shown = {"snapshot_commit_id": found.snapshot_commit_id, "etag": found.etag, "length": found.length}
    if as_json:
        asked = {"branch": branch, "snapshot": snapshot}
        print_json(
            {
                "selector": {"entity": entity, "type": type_name, "id": entity_id, "property": property_name},
                "kind": "managed",
                "size": found.length,
                **shown,
                "target": {
                    **{name: value for name, value in asked.items() if value is not None},
                    "resolved_snapshot": found.snapshot_commit_id,
                },
            }
        )
        return 0
    for name, value in shown.items():
        echo(f"{name:<18}  {value}")
    return 0


def _find(
    graph: Graph | ServedGraph,
    entity: str,
    type_name: str,
    entity_id: str,
    property_name: str,
    branch: str | None,
    snapshot: str | None,
    names: Naming,
) -> Blob | ServedBlob:
    if branch is not None and snapshot is not None:
        raise UsageError("`--branch` and `--snapshot` both say what to read; use one of them")
    return graph.blob(
        type_name,
        entity_id,
        property_name,
        entity=entity,
        branch=branch or "main",
        at=snapshot,
        names=names.value,
    )


def _chunks(blob: Blob | ServedBlob, offset: int, length: int | None) -> Iterator[bytes]:
    """Yield the bytes of a range whose end may lie past that of the blob."""
    end = blob.length if length is None else min(blob.length, offset + length)
    if offset >= blob.length and (offset or blob.length):
        raise GraphError(
            f"the blob has {blob.length} bytes, and none of them is at or after {offset}; read from a smaller offset",
            code="blob.range",
            start=offset,
            end=max(offset, end),
            length=blob.length,
        )
    for start in range(offset, end, BLOB_READ_BYTES_MAX):
        yield blob.read(start, min(end, start + BLOB_READ_BYTES_MAX))
