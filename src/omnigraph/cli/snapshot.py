"""`omnigraph snapshot` and `omnigraph export`: a graph as it stands."""

from __future__ import annotations

import sys

import typer

from omnigraph.cli.formats import table
from omnigraph.cli.options import Json, ReadBranch, Snapshot, Store, Types, Uri
from omnigraph.cli.output import print_json
from omnigraph.cli.target import open_to_read
from omnigraph.errors import UsageError


def snapshot(uri: Uri = None, store: Store = None, branch: ReadBranch = None, as_json: Json = False) -> int:
    from omnigraph.engine.history import describe_snapshot

    with open_to_read(uri, store) as graph:
        found = graph.snapshot(branch or "main")
    if as_json:
        print_json(describe_snapshot(found))
        return 0
    typer.echo(f"branch {found.branch}, commit {found.head}, manifest version {found.version}")
    pins = sorted(found.state.pins.items())
    rows = ([*key.split(":"), pin.row_count, pin.version, pin.path] for key, pin in pins)
    for line in table(["kind", "type", "entities", "version", "dataset"], rows):
        typer.echo(line)
    return 0


def export(
    uri: Uri = None,
    store: Store = None,
    branch: ReadBranch = None,
    snapshot_id: Snapshot = None,
    types: Types = None,
) -> int:
    if branch is not None and snapshot_id is not None:
        raise UsageError("`--branch` and `--snapshot` both say what to read; use one of them")
    with open_to_read(uri, store) as graph:
        for chunk in graph.export(branch or "main", snapshot_id, types or None):
            sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()
    return 0
