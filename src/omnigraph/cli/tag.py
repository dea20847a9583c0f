"""`omnigraph tag …`: names of commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.bind import ReadsUri, Writes
from omnigraph.cli.formats import table, when
from omnigraph.cli.options import Json, ReadBranch
from omnigraph.cli.output import print_json
from omnigraph.cli.terminal import echo

if TYPE_CHECKING:
    from omnigraph.client.values import Tag as ServedTag
    from omnigraph.manifest.model import Tag

TagName = Annotated[str, typer.Argument(metavar="NAME", help="The tag.")]
At = Annotated[str | None, typer.Option("--at", metavar="ID", help="The commit to name; the newest if unset.")]


def create(
    target: Writes,
    name: TagName,
    at: At = None,
    branch: ReadBranch = None,
    as_json: Json = False,
) -> int:
    target.announce()
    with target.open_to_write() as graph:
        made = graph.tags.create(name, at, branch or "main")
    if as_json:
        print_json({"uri": graph.uri, **_json(made)})
    else:
        echo(f"tag {made.name} names commit {made.commit_id}")
    return 0


def list_tags(target: ReadsUri, as_json: Json = False) -> int:
    with target.open_to_read() as graph:
        tags = graph.tags.list()
    if as_json:
        print_json({"tags": [_json(one) for one in tags]})
        return 0
    rows = ([one.name, one.commit_id, one.actor, when(one.created_at_us)] for one in tags)
    for line in table(["tag", "commit", "actor", "created"], rows):
        echo(line)
    return 0


def delete(target: Writes, name: TagName, as_json: Json = False) -> int:
    target.announce()
    with target.open_to_write() as graph:
        graph.tags.delete(name)
    if as_json:
        print_json({"uri": graph.uri, "name": name.strip(), **target.who})
    else:
        echo(f"tag {name.strip()} is gone")
    return 0


def _json(tag: Tag | ServedTag) -> dict[str, object]:
    return {
        "name": tag.name,
        "graph_commit_id": tag.commit_id,
        "actor_id": tag.actor,
        "created_at": tag.created_at_us,
    }
