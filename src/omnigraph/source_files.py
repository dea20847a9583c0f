"""Reads source files, policies and token files, with a limit on their size.

The languages are pure and read no files themselves.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from omnigraph.errors import UsageError
from omnigraph.lang.diagnostic import Source, decode_source
from omnigraph.limits import SOURCE_BYTES_MAX

if TYPE_CHECKING:
    from omnigraph.lang.format import LanguageName

# A text, the path of a file that holds it, or a `Source`, which is always text.
SourceInput: TypeAlias = str | os.PathLike[str] | Source

# Without O_NONBLOCK, opening a pipe that has no writer blocks forever.
_OPEN_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


def read_bounded(path: Path, bytes_max: int) -> bytes:
    """Return the content of a file, cut after `bytes_max + 1` bytes, so that callers can detect an excess."""
    try:
        with path.open("rb") as file:
            return file.read(bytes_max + 1)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def read_regular_file(path: Path, bytes_max: int) -> tuple[bytes, os.stat_result]:
    """Read a file like `read_bounded` and return its status as well; rejects pipes, devices and directories.

    For files that a server reloads while it runs: it never blocks, and the status is that of the opened file, so a
    replacement in between cannot mix the two.
    """
    try:
        descriptor = os.open(path, _OPEN_FLAGS)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise UsageError(f"`{path}` is not a regular file; check the path", path=str(path))
            return file.read(bytes_max + 1), status
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError | ValueError) -> UsageError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return UsageError(f"cannot read `{path}`: {reason.lower()}; check the path", path=str(path))


def read_source(path: Path, code: str) -> Source:
    """Read a schema or query file; `code` is the diagnostic for invalid UTF-8 or an oversized file: `S1` or `Q000`."""
    return decode_source(str(path), read_bounded(path, SOURCE_BYTES_MAX), code)


def schema_source(schema: SourceInput) -> Source:
    """Return the source of a schema that is passed as text or as the path of a `.pg` file."""
    return _resolve_source("schema", schema, "schema.pg", "S1")


def query_source(query: SourceInput) -> Source:
    """Return the source of queries that are passed as text or as the path of a `.gq` file.

    A server passes a `Source`, so that the text of a request is never taken for a path.
    """
    return _resolve_source("source", query, "query.gq", "Q000")


def format_source(source: SourceInput, *, language: LanguageName | None = None) -> str:
    """Return a schema or queries in the layout of `omnigraph fmt`; tokens and comments stay as they are.

    Args:
        source: The text, or the path of a `.pg` or `.gq` file.
        language: `pg` or `gq`; the ending of a path says it as well.

    Returns:
        The formatted text. Nothing is written.

    Raises:
        LanguageError: The source does not parse.
        UsageError: The language is neither given nor clear from the ending.

    Example:
        >>> format_source("node A{name:String@key}", language="pg")
        'node A { name: String @key }\\n'
    """
    from omnigraph.lang.format import LANGUAGES
    from omnigraph.lang.format import format_source as format_parsed

    is_path = not isinstance(source, str | Source) or (isinstance(source, str) and "{" not in source)
    ending = os.path.splitext(source.name if isinstance(source, Source) else os.fspath(source))[1] if is_path else ""
    named = language if language is not None else next((name for name in LANGUAGES if ending == f".{name}"), None)
    if named not in LANGUAGES:
        raise UsageError(f'the language is {language or "not known"}; pass `language="pg"` or `language="gq"`')
    return format_parsed(schema_source(source) if named == "pg" else query_source(source), named)


def _resolve_source(argument: str, value: SourceInput, name: str, code: str) -> Source:
    if isinstance(value, Source):
        return value
    if isinstance(value, str):
        # Every schema and query has a brace, so no text is taken for a path.
        is_path = "{" not in value and value.strip().endswith(Path(name).suffix)
        return read_source(Path(value.strip()), code) if is_path else Source(name, value)
    if isinstance(value, os.PathLike):
        return read_source(Path(value), code)
    raise UsageError(f"`{argument}` must be a string or a path, got `{type(value).__name__}`", argument=argument)
