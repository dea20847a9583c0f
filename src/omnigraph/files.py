"""The only reader of source files and policies.

Stands on the languages, which themselves read nothing.
"""

from __future__ import annotations

from pathlib import Path

from omnigraph.errors import UsageError
from omnigraph.lang.decode import decode_source
from omnigraph.lang.source import Source
from omnigraph.limits import SOURCE_BYTES_MAX


def read_bounded(path: Path, bytes_max: int) -> bytes:
    """Return a file; of one beyond the limit one byte more, which is enough to know that the limit is broken."""
    try:
        with path.open("rb") as file:
            return file.read(bytes_max + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"cannot read `{path}`: {reason.lower()}; check the path", path=str(path)) from None


def read_source(path: Path, code: str) -> Source:
    """Read a schema or query file; `code` is the diagnostic for bytes that cannot be a source: `S1` or `Q000`."""
    return decode_source(str(path), read_bounded(path, SOURCE_BYTES_MAX), code)
