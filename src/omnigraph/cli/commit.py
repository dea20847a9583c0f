"""`omnigraph commit …`: history."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from omnigraph.cli.formats import plain, table
from omnigraph.cli.options import Json, ReadBranch, Store, Uri
from omnigraph.cli.output import print_json
from omnigraph.cli.target import open_to_read

CommitId = Annotated[str, typer.Argument(metavar="ID", help="The commit.")]


def list_commits(uri: Uri = None, store: Store = None, branch: ReadBranch = None, as_json: Json = False) -> int:
    from omnigraph.engine.history import describe_commit

    with open_to_read(uri, store) as graph:
        commits = [describe_commit(graph.core, one) for one in graph.commits(branch or "main")]
    if as_json:
        print_json({"commits": commits})
        return 0
    shown = ("graph_commit_id", "kind", "graph_branch", "actor_id", "created_at")
    rows = ([_when(one[name]) if name == "created_at" else one[name] for name in shown] for one in commits)
    for line in table(["commit", "kind", "branch", "actor", "created"], rows):
        typer.echo(line)
    return 0


def show(commit_id: CommitId, store: Store = None, as_json: Json = False) -> int:
    from omnigraph.engine.history import describe_commit

    with open_to_read(None, store) as graph:
        found = describe_commit(graph.core, graph.commit(commit_id))
    if as_json:
        print_json(found)
        return 0
    width = max(map(len, found))
    for name, value in found.items():
        typer.echo(f"{name:<{width}}  {_when(value) if name == 'created_at' else plain(value)}")
    return 0


def _when(microseconds: object) -> str:
    assert isinstance(microseconds, int)
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC).isoformat(timespec="milliseconds")
