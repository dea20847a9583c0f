"""`omnigraph branch …`: names of branches. Merges have their own module."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.bind import Destroys, ReadsUri, Writes
from omnigraph.cli.options import Json
from omnigraph.cli.output import print_json
from omnigraph.cli.terminal import echo

BranchName = Annotated[str, typer.Argument(metavar="NAME", help="The branch.")]
NewName = Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")]
From = Annotated[str, typer.Option("--from", metavar="NAME", help="The branch, commit or tag to start from.")]


def create(
    target: Writes,
    name: BranchName,
    from_: From = "main",
    as_json: Json = False,
) -> int:
    target.announce()
    with target.open_to_write() as graph:
        made = graph.branches.create(name, from_)
    if as_json:
        print_json({"uri": graph.uri, "from": from_, "name": made.name, "actor_id": made.actor})
    else:
        echo(f"branch {made.name} starts where {from_} is")
    return 0


def list_branches(target: ReadsUri, as_json: Json = False) -> int:
    with target.open_to_read() as graph:
        names = graph.branches.list()
    if as_json:
        print_json({"branches": names})
    else:
        echo("\n".join(names))
    return 0


def rename(
    target: Writes,
    name: BranchName,
    new_name: NewName,
    as_json: Json = False,
) -> int:
    target.announce()
    with target.open_to_write() as graph:
        made = graph.branches.rename(name, new_name)
    if as_json:
        print_json({"uri": graph.uri, "from": name.strip(), "name": made.name, "actor_id": made.actor})
    else:
        echo(f"branch {name.strip()} is now {made.name}")
    return 0


def delete(
    target: Destroys,
    name: BranchName,
    as_json: Json = False,
) -> int:
    target.announce()
    target.confirm(f"deleting branch `{name}`", as_json=as_json)
    with target.open_to_write() as graph:
        graph.branches.delete(name)
    if as_json:
        print_json({"uri": graph.uri, "name": name, **target.who})
    else:
        echo(f"branch {name} is gone")
    return 0
