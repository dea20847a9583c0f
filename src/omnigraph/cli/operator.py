"""`omnigraph profile …`, `login`, `logout`, `graphs list` and `alias`: what an operator has written down."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from omnigraph.cli.bind import Reads
from omnigraph.cli.config import Profile, read_config
from omnigraph.cli.credentials import ANY_SERVER, forget_token, keep_token, token_for
from omnigraph.cli.formats import table
from omnigraph.cli.options import Format, Json, Shape
from omnigraph.cli.output import print_json
from omnigraph.cli.result import print_result
from omnigraph.cli.scope import Served
from omnigraph.errors import UsageError

ServerName = Annotated[str, typer.Argument(metavar="NAME", help="The server, by its name in `config.yaml`.")]
ProfileName = Annotated[str | None, typer.Argument(metavar="[NAME]", help="The profile; `OMNIGRAPH_PROFILE` if unset.")]
AliasName = Annotated[str, typer.Argument(metavar="NAME", help="The alias, by its name in `config.yaml`.")]
Values = Annotated[list[str] | None, typer.Argument(metavar="[VALUE]...", help="Its arguments, in order.")]
Token = Annotated[str | None, typer.Option("--token", metavar="TOKEN", help="The token; asked for, or read, if unset.")]


def list_profiles(as_json: Json = False) -> int:
    found = {name: _told(one) for name, one in sorted(read_config().profiles.items())}
    if as_json:
        print_json({"profiles": [{"name": name, **one} for name, one in found.items()]})
        return 0
    rows = ([name, *next(iter(one.items())), one.get("default_graph", "")] for name, one in found.items())
    for line in table(["profile", "kind", "place", "graph"], rows):
        typer.echo(line)
    return 0


def show_profile(name: ProfileName = None, as_json: Json = False) -> int:
    from omnigraph import settings

    config, wanted = read_config(), name or settings.read("OMNIGRAPH_PROFILE")
    if not wanted:
        raise UsageError("no profile was given; name one of `omnigraph profile list`")
    if wanted not in config.profiles:
        raise UsageError(f"there is no profile `{wanted}`; see `omnigraph profile list`", profile=wanted)
    found = {"name": wanted, **_told(config.profiles[wanted])}
    if as_json:
        print_json(found)
        return 0
    for member, value in found.items():
        typer.echo(f"{member:<13}  {value}")
    return 0


def login(name: ServerName, token: Token = None) -> int:
    servers = read_config().servers
    if name not in servers:
        known = ", ".join(f"`{one}`" for one in sorted(servers)) or "none"
        raise UsageError(
            f"there is no server `{name}` in `config.yaml`, which knows {known}; give it a name there, or put the token"
            f" into `{ANY_SERVER}`",
            server=name,
        )
    if token is None:
        asks = sys.stdin.isatty()
        token = typer.prompt(f"token for {name}", hide_input=True, err=True) if asks else sys.stdin.readline()
    given = str(token).strip()
    if not given:
        raise UsageError("the token is empty; give it with `--token`, or on standard input")
    typer.echo(f"the token for {name} is kept in {keep_token(name, given)}")
    return 0


def logout(name: ServerName) -> int:
    was_there = forget_token(name)
    typer.echo(f"the token for {name} is gone" if was_there else f"there was no token for {name}")
    return 0


def list_graphs(target: Reads, as_json: Json = False) -> int:
    from omnigraph.client import served_graphs

    place = target.place
    assert isinstance(place, Served), "a command that asks a server was given one"
    found = served_graphs(place.url, token=token_for(place.url, read_config()))
    if as_json:
        print_json({"graphs": found})
        return 0
    for line in table(["graph", "uri"], ([one["graph_id"], one["uri"]] for one in found)):
        typer.echo(line)
    return 0


def alias(name: AliasName, values: Values = None, shape: Shape = None, as_json: Json = False) -> int:
    from omnigraph.cli.scope import Capability, Flags
    from omnigraph.cli.target import Target

    config = read_config()
    if name not in config.aliases:
        known = ", ".join(f"`{one}`" for one in sorted(config.aliases)) or "none"
        raise UsageError(f"there is no alias `{name}` in `config.yaml`, which knows {known}", alias=name)
    found, given = config.aliases[name], values or []
    if len(given) > len(found.args):
        raise UsageError(f"alias `{name}` takes {len(found.args)} values, and {len(given)} were given", alias=name)
    params = {**found.params, **dict(zip(found.args, given, strict=False))}
    graph = found.graph or config.defaults.default_graph
    target = Target("omnigraph alias", Capability.ANY, Flags(server=found.server, graph=graph))
    with target.connect() as served:
        result = served.invoke(found.query, params)
    wanted = shape or (Format(found.format) if found.format else None)
    return print_result(result, {"branch": result.branch}, wanted, as_json)


def _told(profile: Profile) -> dict[str, str]:
    return {name: value for name, value in asdict(profile).items() if value is not None}
