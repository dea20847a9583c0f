"""Terminal output: every print of the command line, with control characters escaped.

Files and pipes get data as it is. A terminal gets control characters as `\\u001b`, which is also how JSON spells them;
so do messages of errors, wherever they go.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import typer

from omnigraph.errors import OutputError

# C0 but tab and line feed, DEL, C1, and what turns the direction of text or breaks lines unseen.
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escape_controls(text: str) -> str:
    """Return a text in which no character can act on a terminal.

    >>> escape_controls("a\\x1b[31mb\\x9bc\\td")
    'a\\\\u001b[31mb\\\\u009bc\\td'
    """
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text; on standard error, or to a terminal, without control characters."""
    if err:
        # Messages that cannot be shown must not change how the command ends.
        with suppress(OSError):
            typer.echo(escape_controls(text), err=True, nl=nl)
        return
    with report_output_errors():
        if sys.stdout.isatty():
            typer.echo(escape_controls(text), nl=nl)
        else:
            # Without `color`, Typer takes colours out of what goes to a file, and with them a part of the data.
            typer.echo(text, nl=nl, color=True)


@contextmanager
def report_output_errors() -> Iterator[None]:
    """Raise `OutputError` where standard output cannot be written; a reader that left early is no error."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_output()
        raise output_error(error) from None


def output_error(error: OSError) -> OutputError:
    """Return the refusal of a command whose output cannot be written."""
    reason = (error.strerror or str(error)).lower()
    return OutputError(
        f"cannot write to standard output: {reason}; what was printed is not whole. Free some space, or send the output"
        " elsewhere"
    )


def discard_output() -> None:
    """Let go of what could not be printed: the interpreter must not try to write the rest when it ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def open_missing_streams() -> None:
    """Put something in the place of standard streams that were closed, before a new file gets their descriptor.

    What is printed to a closed output is an error, as for a full one: its stand-in can only be read. There is nowhere
    left to report that errors cannot be printed.
    """
    for name, mode, flags in (("stdin", "r", os.O_RDONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.open(os.devnull, flags), mode, encoding="utf-8"))  # noqa: SIM115 - stays open


def echo_styled(head: str, colour: str, rest: str = "") -> None:
    """Print a message on standard error whose beginning is coloured on a terminal."""
    styled = typer.style(escape_controls(head), fg=colour, bold=True)
    with suppress(OSError):
        typer.echo(styled + escape_controls(rest), err=True, color=False if is_colourless() else None)


def is_colourless() -> bool:
    """Return True if the environment asks for no colours."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def echo_bytes(chunks: Iterable[bytes]) -> None:
    """Write bytes to standard output as they are; to a terminal as text without control characters."""
    if not sys.stdout.isatty():
        for chunk in chunks:
            with report_output_errors():
                sys.stdout.buffer.write(chunk)
        with report_output_errors():
            sys.stdout.buffer.flush()
        return
    # A character may lie across two chunks.
    from codecs import getincrementaldecoder

    decoder = getincrementaldecoder("utf-8")("backslashreplace")
    for chunk in chunks:
        echo(decoder.decode(chunk), nl=False)
    echo(decoder.decode(b"", final=True), nl=False)
