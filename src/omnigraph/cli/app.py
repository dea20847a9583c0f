"""Entry point: builds the Typer application, runs the command, and turns errors into messages and exit codes.

Also adds the shared target options (`--store`, `--server`, …) to commands and passes them the resolved `Target`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields
from functools import cache, partial
from inspect import Parameter, Signature
from itertools import zip_longest
from typing import Annotated, Any, Final, Literal, TypeVar, cast, get_type_hints

import typer
from typer.core import TyperCommand
from typer.exceptions import TyperException
from typer.models import ArgumentInfo

from omnigraph import __version__
from omnigraph.cli.commands import COMMANDS, GROUPS, Command, find_command
from omnigraph.cli.conversion import PlainValue
from omnigraph.cli.git_words import ARGUMENT_WORDS, GIT_WORDS, GROUP_WORDS
from omnigraph.cli.graph_argument import place_arguments, reject_graph_alone
from omnigraph.cli.options import Json, OptionGroup
from omnigraph.cli.output import (
    Output,
    discard_output,
    echo,
    hide_text,
    open_missing_streams,
    output_error,
    print_error,
    reason_of,
)
from omnigraph.cli.startup import tune_for_short_process
from omnigraph.cli.target import Capability, Flags, Target, accepts_flag, why_rejected
from omnigraph.display import truncate
from omnigraph.errors import Effect, GraphError, OmniGraphError, OutputError, UsageError
from omnigraph.extras import missing_extra
from omnigraph.manifest.catalog_format import FORMAT_STAMP

T = TypeVar("T")
# The environment variable by which shells request completions; Click derives its name from the command's name.
VARIABLE: Final = "_OMNIGRAPH_COMPLETE"


ShellName = Annotated[
    Literal["bash", "zsh", "fish", "powershell"], typer.Argument(metavar="SHELL", help="bash, zsh, fish or powershell.")
]


def completion(shell: ShellName) -> int:
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    echo(get_completion_script(prog_name="omnigraph", complete_var=VARIABLE, shell=shell))
    return 0


def version() -> int:
    echo(f"omnigraph {__version__}\ninternal-schema {FORMAT_STAMP}")
    return 0


_FLAGS: Final[Mapping[str, tuple[str, str, str]]] = {
    "store": ("--store", "URI", "URI of the graph: a path, `s3://…`, `gs://…` or `az://…`."),
    "server": ("--server", "NAME", "Server, by its name in `config.yaml` or its URL."),
    "graph": ("--graph", "ID", "ID of the graph {where}."),
    "cluster": ("--cluster", "CLUSTER", "Cluster of the graph, as applied: a folder, its storage, or a name."),
    "profile": ("--profile", "NAME", "Profile of `config.yaml` to use."),
    "actor": ("--as", "ACTOR", "Actor to record in the commit."),
}
_SWITCHES: Final = {
    "yes": ("--yes", "Do not ask before destructive changes to a remote graph."),
    "quiet": ("--quiet", "Print only errors, and the JSON of `--json`."),
}
# Of commands that may start Spark.
_CONF: Final = typer.Option("--conf", metavar="KEY=VALUE", help="Setting of the Spark that is started; repeatable.")
# Alias of `--store`.
_URI: Final = "--uri"
# Short for `--quiet`.
_QUIET: Final = "-q"
# Every option that commands share, and how many values it takes.
SHARED_OPTIONS: Final = {
    **{option: 1 for option, _, _ in _FLAGS.values()},
    _URI: 1,
    **{option: 0 for option, _ in _SWITCHES.values()},
    _QUIET: 0,
}


@dataclass(frozen=True, slots=True)
class TargetUse:
    """How a command uses its target."""

    writes: bool = False
    destroys: bool = False


Reads = Annotated[Target, TargetUse()]
Writes = Annotated[Target, TargetUse(writes=True)]
Destroys = Annotated[Target, TargetUse(writes=True, destroys=True)]


def bind_target(path: str, capability: Capability, run: Callable[..., int | Output]) -> Callable[..., int]:
    """Add the shared options to a command, which receives them as one `Target`, and `--json` if it returns `Output`."""
    groups, parameters = _groups(_hints(run)), own_parameters(run)
    hints = {parameter.name: parameter.annotation for parameter in parameters}
    use = _metadata(hints.get("target"), TargetUse)
    positionals = [name for name, hint in hints.items() if _metadata(hint, ArgumentInfo) is not None]
    added = _parameters(capability, use)
    if "master" in hints:
        hint = Annotated[list[str] | None, _CONF]
        added.insert(0, Parameter("conf", Parameter.KEYWORD_ONLY, default=None, annotation=hint))
    if _hints(run)["return"] is Output:
        added.insert(0, Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=Json))

    def call(**values: Any) -> int:
        shared = {parameter.name.removeprefix("scope_"): values.pop(parameter.name) for parameter in added}
        yes, quiet = shared.pop("yes", False), shared.pop("quiet", False)
        conf, as_json = shared.pop("conf", None), values.get("as_json", shared.pop("as_json", False))
        shared["store"] = _single_store(shared.get("store"), shared.pop("store_uri", None))
        if use is not None:
            if "uri" in shared:
                shared["uri"] = place_arguments(positionals, values, shared["uri"])
            values["target"] = target = Target(path, capability, Flags(**shared), yes, quiet, as_json)
            if positionals and not target.is_known:
                reject_graph_alone(path, {name: values[name] for name in positionals}, hints)
        if conf:
            values["master"] = values["master"] or "local[*]"
        for name, group in groups.items():
            values[name] = group(**{member.name: values.pop(member.name) for member in fields(group)})
        writes = use is not None and use.writes
        with _spark_options(conf), hide_text(quiet=writes and quiet), _report_effect() if writes else nullcontext():
            result = run(**values)
            return result if isinstance(result, int) else result.print(as_json=as_json)

    shown = [parameter for parameter in parameters if parameter.name != "target"]
    call.__signature__ = Signature([*shown, *added])  # type: ignore[attr-defined]
    return call


def own_parameters(run: Callable[..., int | Output]) -> list[Parameter]:
    """Return the parameters of a command, with those of its groups; their order only matters for the help text."""
    hints, parameters = _hints(run), []
    groups = _groups(hints)
    for parameter in Signature.from_callable(run).parameters.values():
        if (group := groups.get(parameter.name)) is None:
            parameters.append(parameter.replace(annotation=hints[parameter.name], kind=Parameter.KEYWORD_ONLY))
            continue
        of_group = _hints(cast(Hashable, group))
        parameters += [
            Parameter(item.name, Parameter.KEYWORD_ONLY, default=item.default, annotation=of_group[item.name])
            for item in fields(group)
        ]
    return parameters


@cache
def _hints(annotated: Any) -> dict[str, Any]:
    return get_type_hints(annotated, include_extras=True)


def _groups(hints: Mapping[str, Any]) -> dict[str, type[OptionGroup]]:
    return {name: hint for name, hint in hints.items() if isinstance(hint, type) and issubclass(hint, OptionGroup)}


def _spark_options(conf: Sequence[str] | None) -> AbstractContextManager[None]:
    if not conf:
        return nullcontext()
    from omnigraph.spark.session import with_process_options

    options: dict[str, str] = {}
    for text in conf:
        name, _, value = text.partition("=")
        if not re.fullmatch(r"spark\.[\w.-]+", name) or not value:
            raise UsageError(
                f"`--conf {text}` is not a setting of Spark; write `--conf spark.NAME=VALUE`", option="--conf"
            )
        options[name] = value
    return with_process_options(options)


@contextmanager
def _report_effect() -> Iterator[None]:
    """Run a write command; if its output fails, the error's `effect` says whether the write was applied."""
    from omnigraph.manifest.publish import Publication, watched

    publication = Publication()
    try:
        with watched(publication):
            yield
    except OutputError as error:
        # A server, or an operation without a publish, may have applied it unnoticed.
        error.effect = Effect.APPLIED if publication.close() is not None else Effect.UNKNOWN
        raise


def _metadata(hint: object, kind: type[T]) -> T | None:
    return next((item for item in getattr(hint, "__metadata__", ()) if isinstance(item, kind)), None)


class _GraphFirst(TyperCommand):
    """Shows the graph before the arguments of the command, where it is to be typed; values need no pydantic."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for parameter in self.params:
            parameter.get_runtime_param = partial(PlainValue, parameter.get_runtime_param)  # type: ignore[attr-defined]

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        options, *arguments = super().collect_usage_pieces(ctx)
        return [options, *sorted(arguments, key=lambda piece: piece != "[GRAPH]")]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and options, without the Python types that Typer would add."""
        records: dict[str, list[tuple[str, str]]] = {"argument": [], "option": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                records[parameter.param_type_name].append((record[0].partition(" <")[0], record[1]))
        records["argument"].sort(key=lambda record: record[0] != "GRAPH")
        for kind, rows in records.items():
            if rows:
                with formatter.section(f"{kind.capitalize()}s"):
                    formatter.write_dl(rows)


def _parameters(capability: Capability, use: TargetUse | None) -> list[Parameter]:
    parameters = []
    if use is not None and accepts_flag(capability, "store"):
        hint = typer.Argument(metavar="GRAPH", help="The graph: a path, `s3://…`, `gs://…` or `az://…`.")
        parameters.append(_parameter("uri", str | None, hint, None))
    where = "on the server" if accepts_flag(capability, "server") else "in the cluster"
    for name, (option, metavar, text) in _FLAGS.items():
        if use is not None and (use.writes if name == "actor" else accepts_flag(capability, name)):
            hint = typer.Option(option, metavar=metavar, help=text.format(where=where))
            parameters.append(_parameter(name, str | None, hint, None))
    if use is not None and accepts_flag(capability, "store"):
        parameters.append(_parameter("store_uri", str | None, typer.Option(_URI, metavar="URI", hidden=True), None))
    for name, (option, text) in _SWITCHES.items():
        shown = use is not None and (use.destroys if name == "yes" else use.writes)
        spellings = (option, _QUIET) if name == "quiet" else (option,)
        parameters.append(_parameter(name, bool, typer.Option(*spellings, help=text, hidden=not shown), False))
    return parameters


def _single_store(store: str | None, uri: str | None) -> str | None:
    if store is not None and uri is not None and store != uri:
        raise UsageError(f"two graphs were given, `{store}` and `{uri}`; give one of them")
    return store if store is not None else uri


def _parameter(name: str, kind: Any, hint: Any, default: Any) -> Parameter:
    return Parameter(f"scope_{name}", Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, hint])


INTERRUPTED: Final = 130
# Anywhere on the command line: print the traceback of an error before its message.
DEBUG: Final = "--debug"
# The message of an error that is not ours may be long.
BUG_REASON_WIDTH: Final = 300
# Converting flags would load pydantic, which takes as long as the rest of the start-up.
_NO_CONVERSION: Any = {"context_settings": {"default_map": {"help": False}, "help_option_names": ["--help", "-h"]}}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    if arguments is None:
        open_missing_streams()
        tune_for_short_process()
    words = list(sys.argv[1:] if arguments is None else arguments)
    command_line = put_command_first([word for word in words if word != DEBUG])
    # Read from the raw arguments, because they may not parse.
    as_json, is_debugging = "--json" in command_line, DEBUG in words
    try:
        app = build(command_line, find_command(command_line)[0])
        status = app(command_line or ["--help"], standalone_mode=False, prog_name="omnigraph")
    except TyperException as error:
        return _print_failure(_usage_error(error), as_json=as_json)
    except OmniGraphError as error:
        print_traceback(is_debugging)
        return _print_failure(error, as_json=as_json)
    except BrokenPipeError:
        # The reader closed the pipe, as `head` does.
        discard_output()
        return 1
    except OSError as error:
        return _print_failure(_system_error(error), as_json=as_json)
    except (typer.Abort, KeyboardInterrupt):
        status = INTERRUPTED
    except Exception as error:  # noqa: BLE001 - a traceback is shown only on request
        print_traceback(is_debugging)
        return _print_failure(_unexpected_error(error), as_json=as_json)
    if status == INTERRUPTED:
        # Typer exits with this status after an interrupt, without a message.
        echo("stopped", err=True)
    return status if isinstance(status, int) else 0


def _print_failure(error: OmniGraphError, *, as_json: bool) -> int:
    try:
        return print_error(error, as_json=as_json)
    except OutputError as unprinted:
        print_error(error, as_json=False)
        return print_error(unprinted, as_json=False)


def print_traceback(is_debugging: bool) -> None:
    """Print where the current error was raised, if the command line asks for it."""
    if is_debugging:
        from traceback import format_exc

        echo(format_exc(), err=True)


def _unexpected_error(error: Exception) -> OmniGraphError:
    """Convert an error that should not happen: a missing library, or a bug."""
    if isinstance(error, ModuleNotFoundError) and (missing := missing_extra(error, "commands of this kind")):
        return missing
    reason = " ".join(str(error).split())
    what = f"{type(error).__name__}: {truncate(reason, BUG_REASON_WIDTH)}" if reason else type(error).__name__
    return GraphError(
        f"this is a bug in OmniGraph ({what}); repeat the command with `{DEBUG}` to see where, and please report it",
        code="internal.bug",
        effect=Effect.UNKNOWN,
    )


def _system_error(error: OSError) -> OmniGraphError:
    """Convert an `OSError` that no caller handled."""
    if error.filename is None:
        # Typer prints help itself.
        discard_output()
        return output_error(error)
    path = str(error.filename)
    return UsageError(f"cannot use `{path}`: {reason_of(error)}; check the path", path=path)


def put_command_first(arguments: Sequence[str]) -> list[str]:
    """Move options in front of the command behind it, and replace an alias by the command.

    >>> put_command_first(["--store", "g.omni", "--quiet", "branch", "list", "--json"])
    ['branch', 'list', '--store', 'g.omni', '--quiet', '--json']
    >>> put_command_first(["query", "lint", "--query", "q.gq"])
    ['lint', '--query', 'q.gq']
    >>> put_command_first(["commit", "list", "--graph", "--limit", "5", "--graph", "supply"])
    ['commit', 'list', '--draw', '--limit', '5', '--graph', 'supply']
    >>> put_command_first(["explain", "g.omni", "q.gq", "--profile"])
    ['explain', 'g.omni', 'q.gq', '--analyze']
    """
    end = 0
    while end < len(arguments) and arguments[end].partition("=")[0] in SHARED_OPTIONS:
        end += 1 if "=" in arguments[end] or SHARED_OPTIONS[arguments[end]] == 0 else 2
    front, rest = arguments[:end], arguments[end:]
    command, count = find_command(rest)
    words = command.words if command else ()
    options = rest[count:]
    if words in _SWITCHES_OF:
        option, switch = _SWITCHES_OF[words]
        options = [
            switch if text == option and following.startswith("-") else text
            for text, following in zip_longest(options, options[1:], fillvalue="-")
        ]
    return [*words, *front, *options]


# Options that are a switch unless a value follows: `--graph` draws history as in git, and `explain --profile` is the
# former name of `--analyze`. With a value they name a graph or a profile, as everywhere.
_SWITCHES_OF: Final = {("commit", "list"): ("--graph", "--draw"), ("explain",): ("--profile", "--analyze")}


def build(arguments: Sequence[str] = (), only: Command | None = None) -> typer.Typer:
    """Build the application, with `only` one command if it is known; imports what the arguments could mean."""
    # Completion may concern any command.
    is_asked = VARIABLE in os.environ
    commands = COMMANDS if only is None or is_asked else (only,)
    names = {command.words[0] for command in commands}
    # Rich panels would double the start-up time of `--help`.
    plain = {"rich_markup_mode": None, "add_completion": is_asked, "pretty_exceptions_enable": False, **_NO_CONVERSION}
    summary = "A typed property graph on open Lance datasets."
    app = typer.Typer(help=summary, **plain)
    app.callback()(lambda: None)
    groups = {name: typer.Typer(help=about, **plain) for name, about in GROUPS.items() if name in names}
    for name, group in groups.items():
        app.add_typer(group, name=name)
    for command in commands:
        owner = groups[command.words[0]] if len(command.words) > 1 else app
        text = f"{command.summary}\n\n\b\nExample:\n  {command.example}"
        is_meant = is_asked or set(command.words) <= set(arguments)
        run = bind_target(command.path, command.capability, command.run) if is_meant else _not_loaded
        about: dict[str, Any] = {"help": text, "short_help": command.summary, "hidden": command.is_former_name}
        owner.command(command.words[-1], cls=_GraphFirst, **about, **_NO_CONVERSION)(run)
    return app


_UNKNOWN_COMMAND: Final = re.compile(r"No such command '([^']*)'")


def _git_hint(path: str, message: str) -> str | None:
    """Return what to write instead of a word of git, if that was typed."""
    unknown = _UNKNOWN_COMMAND.search(message)
    if unknown is None:
        return ARGUMENT_WORDS.get(path) if message.startswith("Missing argument") else None
    return GIT_WORDS.get(unknown[1]) if path == "omnigraph" else GROUP_WORDS.get(path)


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
    # Typer wraps its messages for a terminal, and mentions pydantic.
    message = " ".join(error.format_message().replace("Value error, ", "").split())
    git_hint = _git_hint(path, message)
    if git_hint is not None:
        message, _, _ = message.partition(" Did you mean")
        return UsageError(f"{message.removesuffix('.')}; {git_hint}", command=path)
    if command and "unexpected extra argument" in message and accepts_flag(command.capability, "store"):
        next_step = f"The graph comes first, or after `--store`. {next_step}"
    return UsageError(f"{message}{'' if message.endswith(('.', '?')) else '.'} {next_step}", command=path)
