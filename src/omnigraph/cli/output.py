"""The output of commands: tables, text and progress for people, JSON for programs, and atomic writes of files.

Results go to standard output, errors to standard error; with `--json` both go to standard output.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from omnigraph.cli.options import Format
from omnigraph.display import TRUNCATED, Cells, display_width, format_value, inflect, pad_right, table_lines, truncate
from omnigraph.errors import Effect, OmniGraphError, OutputError, UsageError
from omnigraph.limits import DIAGNOSTICS_MAX, FINDINGS_SHOWN_MAX

if TYPE_CHECKING:
    from omnigraph.lang.diagnostic import Diagnostic
    from omnigraph.public_values import Commit


# C0 except tab and line feed, DEL, C1, bidirectional controls, and Unicode line separators.
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escape_controls(text: str) -> str:
    """Escape the characters of a text that could control a terminal.

    >>> escape_controls("a\\x1b[31mb\\x9bc\\td")
    'a\\\\u001b[31mb\\\\u009bc\\td'
    """
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


_IS_QUIET: ContextVar[bool] = ContextVar("is_quiet", default=False)


@contextmanager
def hide_text(*, quiet: bool) -> Iterator[None]:
    """Print neither tables nor messages of success to standard output; JSON and errors are printed as ever."""
    token = _IS_QUIET.set(quiet)
    try:
        yield
    finally:
        _IS_QUIET.reset(token)


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text; on standard error, or to a terminal, without control characters."""
    if _IS_QUIET.get() and not err:
        return
    _print(text, err=err, nl=nl)


def echo_lines(lines: Iterable[str], *, err: bool = False) -> None:
    for line in lines:
        echo(line, err=err)


def _print(text: str, *, err: bool = False, nl: bool = True) -> None:
    if err:
        # A message that cannot be printed must not change the exit status.
        with suppress(OSError):
            typer.echo(escape_controls(text), err=True, nl=nl)
        return
    with report_output_errors():
        if sys.stdout.isatty():
            typer.echo(escape_controls(text), nl=nl)
        else:
            # Without `color`, Typer strips escape sequences from redirected output, which may be data.
            typer.echo(text, nl=nl, color=True)


@contextmanager
def report_output_errors() -> Iterator[None]:
    """Raise `OutputError` if standard output cannot be written; a closed pipe is not an error."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_output()
        raise output_error(error) from None


def output_error(error: OSError) -> OutputError:
    return OutputError(
        f"cannot write to standard output: {reason_of(error)}; the output is incomplete. Free some space, or redirect"
        " the output elsewhere"
    )


def reason_of(error: Exception) -> str:
    """Return why a file could not be read or written, without its path."""
    return (getattr(error, "strerror", None) or str(error)).lower()


def discard_output() -> None:
    """Discard unprinted output, so that the interpreter does not try to write it at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def open_missing_streams() -> None:
    """Replace closed standard streams, before a new file gets their descriptor.

    Standard output is replaced by a read-only file, so that printing to it fails as on a full disk. Errors that cannot
    be printed are dropped.
    """
    for name, mode, flags in (("stdin", "r", os.O_RDONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.open(os.devnull, flags), mode, encoding="utf-8"))  # noqa: SIM115 - stays open


def echo_styled(head: str, colour: str, rest: str = "") -> None:
    """Print a message on standard error whose beginning is coloured on a terminal."""
    styled = typer.style(escape_controls(head), fg=colour, bold=True)
    is_colourless = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    with suppress(OSError):
        typer.echo(styled + escape_controls(rest), err=True, color=False if is_colourless else None)


def echo_bytes(chunks: Iterable[bytes]) -> None:
    """Write bytes to standard output as they are; to a terminal as text without control characters."""
    if not sys.stdout.isatty():
        for chunk in chunks:
            with report_output_errors():
                sys.stdout.buffer.write(chunk)
        with report_output_errors():
            sys.stdout.buffer.flush()
        return
    # A character may be split across two chunks.
    from codecs import getincrementaldecoder

    decoder = getincrementaldecoder("utf-8")("backslashreplace")
    for chunk in chunks:
        echo(decoder.decode(chunk), nl=False)
    echo(decoder.decode(b"", final=True), nl=False)


_COLOURS = {"error": "red", "warning": "yellow", "info": "blue"}


def print_json(value: object) -> None:
    _print(json.dumps(value, indent=2, ensure_ascii=False))


@dataclass(frozen=True, slots=True)
class Output:
    """What a command prints: a document with `--json`, otherwise lines of text; and its exit status."""

    document: object
    lines: Iterable[str]
    status: int = 0

    def print(self, *, as_json: bool) -> int:
        if as_json:
            print_json(self.document)
        else:
            echo_lines(self.lines)
        return self.status


def commit_line(commit: Commit | None) -> str:
    """Return the last line of a report on a write that may find nothing to do."""
    return "nothing to do" if commit is None else f"commit {commit.commit_id}"


def print_error(error: OmniGraphError, *, as_json: bool) -> int:
    """Print why a command failed, and return its exit status."""
    if as_json:
        # What standard output does not take, it does not take about itself either.
        _print(
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
        echo_remaining([code for code, _ in findings[FINDINGS_SHOWN_MAX:]], is_cut=is_cut)
    if error.code == "request.unauthorized":
        echo("set OMNIGRAPH_BEARER_TOKEN, or store a token with `omnigraph login NAME`", err=True)
    if error.effect is not Effect.NONE:
        echo(f"effect: {error.effect.value}", err=True)
    return error.kind.exit_status


def _findings(error: OmniGraphError) -> list[tuple[str, str]]:
    """Return the code and message of each finding; violations of data rules have their rule and line."""
    violations = error.context.get("violations")
    if not isinstance(violations, list) or not violations:
        return [(str(error.context.get("rule", error.code)), error.message)]
    return [(violation["rule"], f"{_violation_position(violation)}{violation['message']}") for violation in violations]


def _violation_position(violation: Mapping[str, object]) -> str:
    if violation.get("line") is None:
        return ""
    file = f"`{violation['file']}` " if "file" in violation else ""
    return f"{file}line {violation['line']}: "


def print_diagnostics(diagnostics: Sequence[Diagnostic]) -> None:
    """Print the first findings with their source lines, coloured on a terminal, and how many more there are."""
    for diagnostic in diagnostics[:FINDINGS_SHOWN_MAX]:
        head, *rest = diagnostic.render().split("\n")
        echo_styled(head, _COLOURS[diagnostic.severity], "\n".join(["", *rest, ""]))
    echo_remaining(
        [diagnostic.code for diagnostic in diagnostics[FINDINGS_SHOWN_MAX:]], is_cut=len(diagnostics) >= DIAGNOSTICS_MAX
    )


def echo_remaining(codes: Sequence[str], *, is_cut: bool) -> None:
    """Print how many findings are not shown, by code; `is_cut` if there may be more."""
    if codes:
        counts = ", ".join(f"{count} × {code}" for code, count in sorted(Counter(codes).items()))
        least = "at least " if is_cut else ""
        echo(f"and {least}{len(codes)} more: {counts}; --json lists them", err=True)


def plural(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> plural(1, "query"), plural(2, "query"), plural(0, "warning")
    ('1 query', '2 queries', '0 warnings')
    """
    return f"{count} {inflect(noun, count)}"


Row = Mapping[str, Any]
Metadata = Mapping[str, object]


def render(
    shape: Format, columns: Sequence[str], rows: Sequence[Row], metadata: Metadata, cells: Cells = TRUNCATED
) -> Iterator[str]:
    """Yield the lines of a result in one format; `cells` are those of a table."""
    match shape:
        case Format.TABLE:
            yield from table(columns, ([row[name] for name in columns] for row in rows), cells)
            yield f"({metadata['row_count']} row{'' if metadata['row_count'] == 1 else 's'})"
        case Format.KV:
            yield from _kv(columns, rows)
        case Format.CSV:
            yield _csv(columns, rows)
        case Format.JSONL:
            yield from (json.dumps(row, ensure_ascii=False) for row in rows)
        case Format.JSON:
            yield json.dumps({**metadata, "columns": list(columns), "rows": list(rows)}, indent=2, ensure_ascii=False)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], cells: Cells = TRUNCATED) -> Iterator[str]:
    """Yield the lines of a table that fits the terminal."""
    return table_lines(columns, rows, cells, terminal_width())


def short_json(value: object) -> str:
    """Return a value as JSON, cut to the width of a table cell."""
    return truncate(json.dumps(value, ensure_ascii=False))


def terminal_width() -> int | None:
    """Return how many characters a line may have: `COLUMNS`, else the width of the terminal; None in a file or pipe."""
    if not sys.stdout.isatty() and not os.environ.get("COLUMNS"):
        return None
    return shutil.get_terminal_size().columns


def format_time(microseconds: object) -> str:
    """Format a timestamp in ISO 8601, in UTC, to the second.

    >>> format_time(1_700_000_000_987_000)
    '2023-11-14T22:13:20Z'
    """
    assert isinstance(microseconds, int)
    return f"{datetime.fromtimestamp(microseconds / 1_000_000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _kv(columns: Sequence[str], rows: Sequence[Row]) -> Iterator[str]:
    width = max(map(display_width, columns), default=0)
    for number, row in enumerate(rows):
        if number:
            yield ""
        for name in columns:
            yield f"{pad_right(name, width)}  {format_value(row[name])}"


def _csv(columns: Sequence[str], rows: Sequence[Row]) -> str:
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(["" if row[name] is None else format_value(row[name]) for name in columns] for row in rows)
    return lines.getvalue().removesuffix("\n")


def metadata_line(metadata: Metadata) -> str:
    """Return the line that describes a result in front of its rows as `jsonl`."""
    shown = ("query_name", "target", "row_count")
    return json.dumps({"kind": "metadata", **{name: metadata[name] for name in shown}}, ensure_ascii=False)


@contextmanager
def progress_bar() -> Iterator[None]:
    """Show a progress bar for each running stage; nothing if standard error is not a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    # Imported here, because loading it takes longer than many commands do.
    from rich.console import Console
    from rich.filesize import decimal
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    from omnigraph.engine.tasks import Unit, reporting_to

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[amount]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(stage: str, done: int, total: int, unit: Unit) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, amount="")
            write = decimal if unit == "bytes" else str
            amount = f"{write(done)}/{write(total)}" if total else ""
            is_open = not total or done < total
            bars.update(tasks[stage], completed=done, total=total or None, amount=amount, visible=is_open)

        with reporting_to(show):
            yield


def write_atomically(path: Path, chunks: Iterable[bytes]) -> None:
    """Write a file atomically: after a crash it has either its old or its complete new content."""
    # Imported here so that `--help` does not pay for them.
    from omnigraph.ids import new_ulid
    from omnigraph.store.objects.durability import Disk
    from omnigraph.store.objects.uri import Location

    directory = path.absolute().parent
    part = directory / f".{path.name}.{new_ulid()}.part"
    disk = Disk(Location.parse(str(directory)))
    try:
        with part.open("xb") as file:
            file.writelines(chunks)
        disk.sync([str(part)], [])
        os.replace(part, path)
    except OSError as error:
        raise UsageError(f"cannot write `{path}`: {reason_of(error)}; check the path", path=str(path)) from None
    finally:
        # A failure to remove the temporary file must not mask the first error.
        with suppress(OSError):
            part.unlink(missing_ok=True)
    disk.sync([], [""])
