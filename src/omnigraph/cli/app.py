"""From arguments to a command, and from any failure to a message and an exit status.

Builds the Typer application from the table of commands; the commands import what they need when they run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import Annotated, Any, Final, get_type_hints

import typer
from typer.exceptions import TyperException

from omnigraph.cli.commands import COMMANDS, GROUPS, find_command
from omnigraph.cli.completion import VARIABLE
from omnigraph.cli.output import print_error
from omnigraph.cli.startup import tune_for_short_process
from omnigraph.cli.target import Capability, Flags, Target, accepts_flag, why_rejected
from omnigraph.cli.terminal import discard_output, echo, open_missing_streams, output_error
from omnigraph.errors import Effect, OmniGraphError, OutputError, UsageError

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
SHARED_OPTIONS: Final = {
    **{option: 1 for option, _, _ in _FLAGS.values()},
    _URI: 1,
    **{option: 0 for option, _ in _SWITCHES.values()},
}


@dataclass(frozen=True, slots=True)
class TargetUse:
    """What a command does to its target, and whether it may be named first, without an option."""

    uri: bool = False
    writes: bool = False
    destroys: bool = False


Reads = Annotated[Target, TargetUse()]
ReadsUri = Annotated[Target, TargetUse(uri=True)]
Writes = Annotated[Target, TargetUse(writes=True)]
WritesUri = Annotated[Target, TargetUse(uri=True, writes=True)]
Destroys = Annotated[Target, TargetUse(writes=True, destroys=True)]
DestroysUri = Annotated[Target, TargetUse(uri=True, writes=True, destroys=True)]


def bind_target(path: str, capability: Capability, run: Callable[..., int]) -> Callable[..., int]:
    """Return a command with the flags that it shares with others; of these, it is handed a target."""
    hints = get_type_hints(run, include_extras=True)
    # Options have names, so their order is for people to read; as keywords they may stand in any.
    own = [
        one.replace(annotation=hints[one.name], kind=Parameter.KEYWORD_ONLY)
        for one in Signature.from_callable(run).parameters.values()
    ]
    wants = _target_use(hints.get("target"))
    added = [one for one in _parameters(capability, wants) if _option(one) not in set(map(_option, own))]

    def call(**values: Any) -> int:
        given = {one.name.removeprefix("scope_"): values.pop(one.name) for one in added}
        yes, quiet = given.pop("yes", False), given.pop("quiet", False)
        given["store"] = _single_store(given.get("store"), given.pop("store_uri", None))
        if wants is not None:
            values["target"] = Target(path, capability, Flags(**given), yes, quiet)
        return _run_write(run, values) if wants is not None and wants.writes else run(**values)

    shown = [one for one in own if one.name != "target"]
    call.__signature__ = Signature([*shown, *added])  # type: ignore[attr-defined]
    return call


def _run_write(run: Callable[..., int], values: Mapping[str, Any]) -> int:
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


def _target_use(hint: object) -> TargetUse | None:
    return next((one for one in getattr(hint, "__metadata__", ()) if isinstance(one, TargetUse)), None)


def _parameters(capability: Capability, wants: TargetUse | None) -> list[Parameter]:
    made = []
    if wants is not None and wants.uri:
        hint = typer.Argument(metavar="[URI]", help="The graph: a path, `file://…` or `s3://…`.")
        made.append(_parameter("uri", str | None, hint, None))
    for name, (option, metavar, text) in _FLAGS.items():
        if wants is not None and (wants.writes if name == "actor" else accepts_flag(capability, name)):
            made.append(_parameter(name, str | None, typer.Option(option, metavar=metavar, help=text), None))
    if wants is not None and accepts_flag(capability, "store"):
        made.append(_parameter("store_uri", str | None, typer.Option(_URI, metavar="URI", hidden=True), None))
    for name, (option, text) in _SWITCHES.items():
        shown = wants is not None and (wants.destroys if name == "yes" else wants.writes)
        made.append(_parameter(name, bool, typer.Option(option, help=text, hidden=not shown), False))
    return made


def _single_store(store: str | None, uri: str | None) -> str | None:
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


INTERRUPTED: Final = 130
# A flag that has a value is not converted, and conversion is what loads pydantic: as long as starting takes otherwise.
_NO_CONVERSION: Any = {"context_settings": {"default_map": {"help": False}, "help_option_names": ["--help", "-h"]}}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    if arguments is None:
        open_missing_streams()
        tune_for_short_process()
    given = put_command_first(list(sys.argv[1:] if arguments is None else arguments))
    # Asked of the arguments themselves, because a call that does not parse has no other answer.
    as_json = "--json" in given
    try:
        status = build(given)(given or ["--help"], standalone_mode=False, prog_name="omnigraph")
    except TyperException as error:
        return _print_failure(_usage_error(error), as_json=as_json)
    except OmniGraphError as error:
        return _print_failure(error, as_json=as_json)
    except BrokenPipeError:
        # The reader of our output has seen enough.
        discard_output()
        return 1
    except OSError as error:
        return _print_failure(_system_error(error), as_json=as_json)
    except (typer.Abort, KeyboardInterrupt):
        status = INTERRUPTED
    if status == INTERRUPTED:
        # Typer answers an interrupt with this status and without a word.
        echo("stopped", err=True)
    return status if isinstance(status, int) else 0


def _print_failure(error: OmniGraphError, *, as_json: bool) -> int:
    try:
        return print_error(error, as_json=as_json)
    except OutputError as unprinted:
        print_error(error, as_json=False)
        return print_error(unprinted, as_json=False)


def _system_error(error: OSError) -> OmniGraphError:
    """Return the refusal that a system call stands for, where nothing closer to it knew what it was about."""
    if error.filename is None:
        # Typer prints help itself.
        discard_output()
        return output_error(error)
    reason = (error.strerror or str(error)).lower()
    return UsageError(f"cannot use `{error.filename}`: {reason}; check the path", path=str(error.filename))


def put_command_first(given: Sequence[str]) -> list[str]:
    """Return arguments with the command under its own name first, and the options before it moved behind it.

    >>> hoist(["--store", "g.omni", "--quiet", "branch", "list", "--json"])
    ['branch', 'list', '--store', 'g.omni', '--quiet', '--json']
    >>> hoist(["query", "lint", "--query", "q.gq"])
    ['lint', '--query', 'q.gq']
    """
    end = 0
    while end < len(given) and given[end].partition("=")[0] in SHARED_OPTIONS:
        end += 1 if "=" in given[end] or SHARED_OPTIONS[given[end]] == 0 else 2
    front, rest = given[:end], given[end:]
    command, count = find_command(rest)
    return [*(command.words if command else ()), *front, *rest[count:]]


def build(given: Sequence[str] = ()) -> typer.Typer:
    """Return the application with every command of the table; only those that could be meant are loaded."""
    # A shell that completes may ask about any command.
    is_asked = VARIABLE in os.environ
    # Rich panels would double the start-up time of `--help`.
    plain = {"rich_markup_mode": None, "add_completion": is_asked, "pretty_exceptions_enable": False, **_NO_CONVERSION}
    summary = "A typed property graph on open Lance datasets."
    app = typer.Typer(help=summary, **plain)
    app.callback()(lambda: None)
    groups = {name: typer.Typer(help=about, **plain) for name, about in GROUPS.items()}
    for name, group in groups.items():
        app.add_typer(group, name=name)
    for command in COMMANDS:
        owner = groups[command.words[0]] if len(command.words) > 1 else app
        text = f"{command.summary}\n\n\b\nExample:\n  {command.example}"
        is_meant = is_asked or set(command.words) <= set(given)
        run = bind_target(command.path, command.capability, command.run) if is_meant else _not_loaded
        owner.command(command.words[-1], help=text, short_help=command.summary, **_NO_CONVERSION)(run)
    return app


def _not_loaded() -> int:
    raise AssertionError("a command that is called is among the arguments")


def _usage_error(error: TyperException) -> UsageError:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "omnigraph"
    command = next((c for c in COMMANDS if c.path == path), None)
    option = getattr(error, "option_name", None)
    if command and option:
        reason = command.retired.get(option) or why_rejected(path, command.capability, option)
        if reason is not None:
            return UsageError(reason, command=path, option=option)
    next_step = f"Example: {command.example}" if command else f"See `{path} --help`"
    # Typer breaks lines for a terminal, and tells of the library that it converts values with.
    message = " ".join(error.format_message().replace("Value error, ", "").split())
    if command and "unexpected extra argument" in message and accepts_flag(command.capability, "store"):
        next_step = f"Name the graph with `--store URI`. {next_step}"
    return UsageError(f"{message}{'' if message.endswith(('.', '?')) else '.'} {next_step}", command=path)
