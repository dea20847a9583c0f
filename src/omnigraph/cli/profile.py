"""`omnigraph profile …`, `login`, `logout`, `graphs list` and `alias`: commands that use `config.yaml`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from omnigraph import settings
from omnigraph.cli.app import Reads
from omnigraph.cli.config import Profile, read_config, remove_token, store_token, token_for
from omnigraph.cli.options import Format, Json, Shape, argument
from omnigraph.cli.output import Output, echo, table
from omnigraph.cli.query import print_result
from omnigraph.cli.target import Capability, Flags, Served, Target
from omnigraph.errors import UsageError

ServerName = Annotated[str, argument("NAME", "The server, by its name in `config.yaml`.")]
ProfileName = Annotated[str | None, argument("NAME", "The profile; `OMNIGRAPH_PROFILE` if unset.")]
AliasName = Annotated[str, argument("NAME", "The alias, by its name in `config.yaml`.")]
Values = Annotated[list[str] | None, argument("VALUE", "Values of its parameters, in order.")]


def list_profiles() -> Output:
    profiles = sorted(read_config().profiles.items())
    rows = ([name, *profile.location, profile.default_graph or ""] for name, profile in profiles)
    document = {"profiles": [_list_entry(name, profile) for name, profile in profiles]}
    return Output(document, table(["profile", "kind", "place", "graph"], rows))


def _list_entry(name: str, profile: Profile) -> dict[str, object]:
    kind, location = profile.location
    return {
        "name": name,
        **_profile_json(profile),
        "binding": f"{kind}: {location}",
        "scope_kind": kind,
        "target": location,
        # A file with a malformed profile is refused as a whole.
        "valid": True,
        "error": None,
        "default_graph": profile.default_graph,
        "active": name == settings.read("OMNIGRAPH_PROFILE"),
    }


def show_profile(name: ProfileName = None) -> Output:
    config, profile_name = read_config(), name or settings.read("OMNIGRAPH_PROFILE")
    if not profile_name:
        raise UsageError("no profile was given; choose one from `omnigraph profile list`")
    if profile_name not in config.profiles:
        raise UsageError(f"there is no profile `{profile_name}`; see `omnigraph profile list`", profile=profile_name)
    profile = config.profiles[profile_name]
    members = {"name": profile_name, **_profile_json(profile)}
    kind, location = profile.location
    endpoint = config.servers.get(location) if kind == "server" else location if kind == "store" else None
    graph = profile.default_graph or config.defaults.default_graph
    about = {"scope_kind": kind, "target": location, "endpoint": endpoint, "default_graph": graph}
    lines = (f"{member:<13}  {value}" for member, value in members.items())
    return Output({**members, **about, "output_format": config.defaults.output}, lines)


def login(name: ServerName, as_json: Json = False) -> int:
    if "://" in name:
        raise UsageError(f"tokens are stored by server name; give `{name}` a name in `config.yaml`", server=name)
    if sys.stdin.isatty():
        token = str(typer.prompt(f"token for {name}", hide_input=True, err=True)).strip()
    else:
        token = sys.stdin.readline().strip()
    if not token:
        raise UsageError("the token is empty; type it at the prompt, or pass it on standard input")
    is_declared = name in read_config().servers
    path = store_token(name, token)
    document = {"server": name, "credentials_path": str(path), "declared": is_declared}
    status = Output(document, [f"stored the token for {name} in {path}"]).print(as_json=as_json)
    if not is_declared:
        note = f"`{name}` is not in the `servers` of `config.yaml`; the token is used once its URL is added there"
        echo(f"note: {note}", err=True)
    return status


def logout(name: ServerName) -> Output:
    path, existed = remove_token(name)
    line = f"removed the token for {name}" if existed else f"there was no token for {name}"
    return Output({"server": name, "credentials_path": str(path), "removed": existed}, [line])


def list_graphs(target: Reads) -> Output:
    from omnigraph.client import served_graphs

    location = target.location
    assert isinstance(location, Served), "a command that asks a server was given one"
    graphs = served_graphs(location.url, token=token_for(location.url, read_config()))
    rows = ([graph["graph_id"], graph["uri"]] for graph in graphs)
    return Output({"graphs": graphs}, table(["graph", "uri"], rows))


def alias(name: AliasName, values: Values = None, shape: Shape = None, as_json: Json = False) -> int:
    config = read_config()
    if name not in config.aliases:
        names = ", ".join(f"`{known_alias}`" for known_alias in sorted(config.aliases)) or "none"
        raise UsageError(f"there is no alias `{name}` in `config.yaml`; it has {names}", alias=name)
    definition, arguments = config.aliases[name], values or []
    if len(arguments) > len(definition.args):
        raise UsageError(
            f"alias `{name}` takes {len(definition.args)} values, but {len(arguments)} were given", alias=name
        )
    params = {**definition.params, **dict(zip(definition.args, arguments, strict=False))}
    graph = definition.graph or config.defaults.default_graph
    target = Target("omnigraph alias", Capability.ANY, Flags(server=definition.server, graph=graph))
    with target.connect() as served:
        result = served.invoke(definition.query, params)
    format_ = shape or (Format(definition.format) if definition.format else None)
    return print_result(result, {"branch": result.branch}, format_, as_json)


def _profile_json(profile: Profile) -> dict[str, str]:
    return {name: value for name, value in asdict(profile).items() if value is not None}
