"""The only reader of source files, policies and files of tokens.

Stands on the languages, which themselves read nothing.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from omnigraph.errors import UsageError
from omnigraph.lang.diagnostic import decode_source
from omnigraph.lang.source import Source
from omnigraph.limits import SOURCE_BYTES_MAX

# Opening a pipe waits for its writer otherwise, for ever if there is none.
_OPEN_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


def read_bounded(path: Path, bytes_max: int) -> bytes:
    """Return a file; of one beyond the limit one byte more, which is enough to know that the limit is broken."""
    try:
        with path.open("rb") as file:
            return file.read(bytes_max + 1)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def read_regular_file(path: Path, bytes_max: int) -> tuple[bytes, os.stat_result]:
    """Return a file as `read_bounded` does, with its status; refuses pipes, devices and folders, and never waits.

    For what a server reads again while it runs. The status is that of the open file, so that it cannot be exchanged
    in between.
    """
    try:
        descriptor = os.open(path, _OPEN_FLAGS)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise UsageError(f"`{path}` is not a regular file; put a file in its place", path=str(path))
            return file.read(bytes_max + 1), status
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError | ValueError) -> UsageError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return UsageError(f"cannot read `{path}`: {reason.lower()}; check the path", path=str(path))


def read_source(path: Path, code: str) -> Source:
    """Read a schema or query file; `code` is the diagnostic for bytes that cannot be a source: `S1` or `Q000`."""
    return decode_source(str(path), read_bounded(path, SOURCE_BYTES_MAX), code)
