"""`omnigraph branch …`: names of branches. Merges have their own module."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.options import Actor, Json, Quiet, Store, Uri, Yes
from omnigraph.cli.output import print_json
from omnigraph.cli.target import address, announce, confirm, open_to_read, open_to_write

BranchName = Annotated[str, typer.Argument(metavar="NAME", help="The branch.")]
NewName = Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")]
From = Annotated[str, typer.Option("--from", metavar="NAME", help="The branch, commit or tag to start from.")]


def create(
    name: BranchName,
    store: Store = None,
    from_: From = "main",
    actor: Actor = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> int:
    announce("branch create", address(None, store), quiet=quiet)
    with open_to_write(None, store, actor) as graph:
        made = graph.branches.create(name, from_)
    if as_json:
        print_json({"uri": graph.uri, "from": from_, "name": made.name, "actor_id": actor})
    else:
        typer.echo(f"branch {made.name} starts where {from_} is")
    return 0


def list_branches(uri: Uri = None, store: Store = None, as_json: Json = False) -> int:
    with open_to_read(uri, store) as graph:
        names = graph.branches.list()
    if as_json:
        print_json({"branches": names})
    else:
        typer.echo("\n".join(names))
    return 0


def rename(
    name: BranchName,
    new_name: NewName,
    store: Store = None,
    actor: Actor = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> int:
    announce("branch rename", address(None, store), quiet=quiet)
    with open_to_write(None, store, actor) as graph:
        made = graph.branches.rename(name, new_name)
    if as_json:
        print_json({"uri": graph.uri, "from": name.strip(), "name": made.name, "actor_id": actor})
    else:
        typer.echo(f"branch {name.strip()} is now {made.name}")
    return 0


def delete(
    name: BranchName,
    store: Store = None,
    actor: Actor = None,
    yes: Yes = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> int:
    place = address(None, store)
    announce("branch delete", place, quiet=quiet)
    confirm(f"deleting branch `{name}`", place, yes=yes, as_json=as_json)
    with open_to_write(None, store, actor) as graph:
        graph.branches.delete(name)
    if as_json:
        print_json({"uri": graph.uri, "name": name, "actor_id": actor})
    else:
        typer.echo(f"branch {name} is gone")
    return 0
