"""What the command line prints: text for people, JSON for programs.

Results go to standard output, refusals to standard error; with `--json` all goes to standard output.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

from omnigraph.errors import Effect, OmniGraphError

if TYPE_CHECKING:
    from omnigraph.lang.diagnostic import Diagnostic

_COLOURS = {"error": "red", "warning": "yellow", "info": "blue"}


def print_json(value: object) -> None:
    """Print one JSON document."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_error(error: OmniGraphError, *, as_json: bool) -> int:
    """Print why a command failed, and return its exit status."""
    if as_json:
        print_json(error.to_json())
        return error.kind.exit_status
    diagnostics: tuple[Diagnostic, ...] = getattr(error, "diagnostics", ())
    if diagnostics:
        print_diagnostics(diagnostics)
    else:
        for code, message in _findings(error):
            typer.echo(f"{typer.style(f'error[{code}]', fg='red', bold=True)}: {message}", err=True)
    if error.effect is not Effect.NONE:
        typer.echo(f"effect: {error.effect.value}", err=True)
    return error.kind.exit_status


def _findings(error: OmniGraphError) -> list[tuple[object, object]]:
    """Return code and message of all that is known to be wrong; bad data is told by rule and line."""
    violations = error.context.get("violations")
    if not isinstance(violations, list) or not violations:
        return [(error.context.get("rule", error.code), error.message)]
    lines = ("" if one.get("line") is None else f"line {one['line']}: " for one in violations)
    return [(one["rule"], f"{line}{one['message']}") for one, line in zip(violations, lines, strict=True)]


def print_diagnostics(diagnostics: Iterable[Diagnostic]) -> None:
    """Print findings with their source lines, coloured on a terminal."""
    for diagnostic in diagnostics:
        head, *rest = diagnostic.render().split("\n")
        colour = _COLOURS[diagnostic.severity]
        typer.echo("\n".join([typer.style(head, fg=colour, bold=True), *rest, ""]), err=True)


def plural(count: int, noun: str) -> str:
    """Say how many.

    >>> plural(1, "query"), plural(2, "query"), plural(0, "warning")
    ('1 query', '2 queries', '0 warnings')
    """
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count} {noun if count == 1 else many}"
