"""What the command line prints: text for people, JSON for programs.

Results go to standard output, refusals to standard error; with `--json` all goes to standard output.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from omnigraph.cli.terminal import echo, echo_styled, escape_controls
from omnigraph.errors import Effect, OmniGraphError, OutputError
from omnigraph.limits import DIAGNOSTICS_MAX, FINDINGS_SHOWN_MAX

if TYPE_CHECKING:
    from omnigraph.lang.diagnostic import Diagnostic

_COLOURS = {"error": "red", "warning": "yellow", "info": "blue"}


def print_json(value: object) -> None:
    """Print one JSON document."""
    echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_error(error: OmniGraphError, *, as_json: bool) -> int:
    """Print why a command failed, and return its exit status."""
    if as_json:
        # What standard output does not take, it does not take about itself either.
        echo(
            escape_controls(json.dumps(error.to_json(), indent=2, ensure_ascii=False)),
            err=isinstance(error, OutputError),
        )
        return error.kind.exit_status
    diagnostics: tuple[Diagnostic, ...] = getattr(error, "diagnostics", ())
    if diagnostics:
        print_diagnostics(diagnostics)
    else:
        findings = _findings(error)
        for code, message in findings[:FINDINGS_SHOWN_MAX]:
            echo_styled(f"error[{code}]", "red", f": {message}")
        is_cut = bool(error.context.get("violations_truncated"))
        echo_rest([code for code, _ in findings[FINDINGS_SHOWN_MAX:]], is_cut=is_cut)
    if error.code == "request.unauthorized":
        echo("give a token: set OMNIGRAPH_BEARER_TOKEN, or keep one with `omnigraph login NAME`", err=True)
    if error.effect is not Effect.NONE:
        echo(f"effect: {error.effect.value}", err=True)
    return error.kind.exit_status


def _findings(error: OmniGraphError) -> list[tuple[str, str]]:
    """Return code and message of all that is known to be wrong; bad data is told by rule and line."""
    violations = error.context.get("violations")
    if not isinstance(violations, list) or not violations:
        return [(str(error.context.get("rule", error.code)), error.message)]
    return [(one["rule"], f"{_place(one)}{one['message']}") for one in violations]


def _place(violation: Mapping[str, object]) -> str:
    if violation.get("line") is None:
        return ""
    file = f"`{violation['file']}` " if "file" in violation else ""
    return f"{file}line {violation['line']}: "


def print_diagnostics(diagnostics: Sequence[Diagnostic]) -> None:
    """Print the first findings with their source lines, coloured on a terminal, and how many more there are."""
    for diagnostic in diagnostics[:FINDINGS_SHOWN_MAX]:
        head, *rest = diagnostic.render().split("\n")
        echo_styled(head, _COLOURS[diagnostic.severity], "\n".join(["", *rest, ""]))
    echo_rest([one.code for one in diagnostics[FINDINGS_SHOWN_MAX:]], is_cut=len(diagnostics) >= DIAGNOSTICS_MAX)


def echo_rest(codes: Sequence[str], *, is_cut: bool) -> None:
    """Say how many findings are not shown, by code; `is_cut` when even these are not all."""
    if codes:
        counts = ", ".join(f"{count} × {code}" for code, count in sorted(Counter(codes).items()))
        least = "at least " if is_cut else ""
        echo(f"and {least}{len(codes)} more: {counts}; --json lists them", err=True)


def plural(count: int, noun: str) -> str:
    """Say how many.

    >>> plural(1, "query"), plural(2, "query"), plural(0, "warning")
    ('1 query', '2 queries', '0 warnings')
    """
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count} {noun if count == 1 else many}"
