"""The only reader of source files.

Stands on the languages, which themselves read nothing.
"""

from __future__ import annotations

from pathlib import Path

from omnigraph.errors import UsageError
from omnigraph.lang.decode import decode_source
from omnigraph.lang.source import Source
from omnigraph.limits import SOURCE_BYTES_MAX


def read_source(path: Path, code: str) -> Source:
    """Read a schema or query file; `code` is the diagnostic for bytes that cannot be a source: `S1` or `Q000`."""
    try:
        with path.open("rb") as file:
            # One byte past the limit is enough to know that the limit is broken.
            data = file.read(SOURCE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"cannot read `{path}`: {reason.lower()}; check the path", path=str(path)) from None
    return decode_source(str(path), data, code)
