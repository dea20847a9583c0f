"""Gives every command the flags that say on which graph it works, and hands it what they come to.

A command that takes a `target` has those flags that it can use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import Annotated, Any, Final, get_type_hints

import typer

from omnigraph.cli.scope import Capability, Flags, takes
from omnigraph.cli.target import Target
from omnigraph.errors import Effect, OutputError, UsageError

_FLAGS: Final[Mapping[str, tuple[str, str, str]]] = {
    "store": ("--store", "URI", "The graph, as a path, `file://…` or `s3://…`."),
    "server": ("--server", "NAME", "The server, by its name in `config.yaml` or by its address."),
    "graph": ("--graph", "ID", "Which graph of the server."),
    "profile": ("--profile", "NAME", "The place that `config.yaml` has under this name."),
    "actor": ("--as", "ACTOR", "Who is doing this; kept in history."),
}
_SWITCHES: Final = {
    "yes": ("--yes", "Do not ask before destructive work on a graph that is not local."),
    "quiet": ("--quiet", "Do not say on standard error which graph is written."),
}
# Another word for `--store`.
_URI: Final = "--uri"
# Every option that commands share, and how many values it takes.
SHARED: Final = {
    **{option: 1 for option, _, _ in _FLAGS.values()},
    _URI: 1,
    **{option: 0 for option, _ in _SWITCHES.values()},
}


@dataclass(frozen=True, slots=True)
class Wants:
    """What a command does to its target, and whether it may be named first, without an option."""

    uri: bool = False
    writes: bool = False
    destroys: bool = False


Reads = Annotated[Target, Wants()]
ReadsUri = Annotated[Target, Wants(uri=True)]
Writes = Annotated[Target, Wants(writes=True)]
WritesUri = Annotated[Target, Wants(uri=True, writes=True)]
Destroys = Annotated[Target, Wants(writes=True, destroys=True)]
DestroysUri = Annotated[Target, Wants(uri=True, writes=True, destroys=True)]


def bind(path: str, capability: Capability, run: Callable[..., int]) -> Callable[..., int]:
    """Return a command with the flags that it shares with others; of these, it is handed a target."""
    hints = get_type_hints(run, include_extras=True)
    # Options have names, so their order is for people to read; as keywords they may stand in any.
    own = [
        one.replace(annotation=hints[one.name], kind=Parameter.KEYWORD_ONLY)
        for one in Signature.from_callable(run).parameters.values()
    ]
    wants = _wants(hints.get("target"))
    added = [one for one in _parameters(capability, wants) if _option(one) not in set(map(_option, own))]

    def call(**values: Any) -> int:
        given = {one.name.removeprefix("scope_"): values.pop(one.name) for one in added}
        yes, quiet = given.pop("yes", False), given.pop("quiet", False)
        given["store"] = _same_store(given.get("store"), given.pop("store_uri", None))
        if wants is not None:
            values["target"] = Target(path, capability, Flags(**given), yes, quiet)
        return _run_watched(run, values) if wants is not None and wants.writes else run(**values)

    shown = [one for one in own if one.name != "target"]
    call.__signature__ = Signature([*shown, *added])  # type: ignore[attr-defined]
    return call


def _run_watched(run: Callable[..., int], values: Mapping[str, Any]) -> int:
    """Run a command that writes; if its output fails, the error says what it had done by then."""
    from omnigraph.manifest.publication import Publication, watched

    publication = Publication()
    try:
        with watched(publication):
            return run(**values)
    except OutputError as error:
        # A server, and work without a publish, may have done it without our knowing.
        error.effect = Effect.APPLIED if publication.close() is not None else Effect.UNKNOWN
        raise


def _wants(hint: object) -> Wants | None:
    return next((one for one in getattr(hint, "__metadata__", ()) if isinstance(one, Wants)), None)


def _parameters(capability: Capability, wants: Wants | None) -> list[Parameter]:
    made = []
    if wants is not None and wants.uri:
        hint = typer.Argument(metavar="[URI]", help="The graph: a path, `file://…` or `s3://…`.")
        made.append(_parameter("uri", str | None, hint, None))
    for name, (option, metavar, text) in _FLAGS.items():
        if wants is not None and (wants.writes if name == "actor" else takes(capability, name)):
            made.append(_parameter(name, str | None, typer.Option(option, metavar=metavar, help=text), None))
    if wants is not None and takes(capability, "store"):
        made.append(_parameter("store_uri", str | None, typer.Option(_URI, metavar="URI", hidden=True), None))
    for name, (option, text) in _SWITCHES.items():
        shown = wants is not None and (wants.destroys if name == "yes" else wants.writes)
        made.append(_parameter(name, bool, typer.Option(option, help=text, hidden=not shown), False))
    return made


def _same_store(store: str | None, uri: str | None) -> str | None:
    if store is not None and uri is not None and store != uri:
        raise UsageError(f"two graphs were given, `{store}` and `{uri}`; give one of them")
    return store if store is not None else uri


def _parameter(name: str, kind: Any, hint: Any, default: Any) -> Parameter:
    return Parameter(f"scope_{name}", Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, hint])


def _option(parameter: Parameter) -> str:
    """Return the option that a parameter is read from; its own name if there is none."""
    for one in getattr(parameter.annotation, "__metadata__", ()):
        if isinstance(getattr(one, "default", None), str):
            return str(one.default)
    return parameter.name
