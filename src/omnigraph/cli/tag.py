"""`omnigraph tag …`: names of commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.formats import table, when
from omnigraph.cli.options import Actor, Json, Quiet, ReadBranch, Store, Uri
from omnigraph.cli.output import print_json
from omnigraph.cli.target import address, announce, open_to_read, open_to_write

if TYPE_CHECKING:
    from omnigraph.manifest.model import Tag

TagName = Annotated[str, typer.Argument(metavar="NAME", help="The tag.")]
At = Annotated[str | None, typer.Option("--at", metavar="ID", help="The commit to name; the newest if unset.")]


def create(
    name: TagName,
    store: Store = None,
    at: At = None,
    branch: ReadBranch = None,
    actor: Actor = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> int:
    announce("tag create", address(None, store), quiet=quiet)
    with open_to_write(None, store, actor) as graph:
        made = graph.tags.create(name, at, branch or "main")
    if as_json:
        print_json({"uri": graph.uri, **_json(made)})
    else:
        typer.echo(f"tag {made.name} names commit {made.commit_id}")
    return 0


def list_tags(uri: Uri = None, store: Store = None, as_json: Json = False) -> int:
    with open_to_read(uri, store) as graph:
        tags = graph.tags.list()
    if as_json:
        print_json({"tags": [_json(one) for one in tags]})
        return 0
    rows = ([one.name, one.commit_id, one.actor, when(one.created_at_us)] for one in tags)
    for line in table(["tag", "commit", "actor", "created"], rows):
        typer.echo(line)
    return 0


def delete(name: TagName, store: Store = None, actor: Actor = None, quiet: Quiet = False, as_json: Json = False) -> int:
    announce("tag delete", address(None, store), quiet=quiet)
    with open_to_write(None, store, actor) as graph:
        graph.tags.delete(name)
    if as_json:
        print_json({"uri": graph.uri, "name": name.strip(), "actor_id": actor})
    else:
        typer.echo(f"tag {name.strip()} is gone")
    return 0


def _json(tag: Tag) -> dict[str, object]:
    return {
        "name": tag.name,
        "graph_commit_id": tag.commit_id,
        "actor_id": tag.actor,
        "created_at": tag.created_at_us,
    }
