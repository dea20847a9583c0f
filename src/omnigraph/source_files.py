"""Reads source files, policies and token files, with a limit on their size.

The languages are pure and read no files themselves.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from omnigraph.errors import UsageError
from omnigraph.lang.diagnostic import Source, decode_source
from omnigraph.limits import SOURCE_BYTES_MAX

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
