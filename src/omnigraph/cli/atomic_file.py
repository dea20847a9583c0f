"""Atomic, durable file writes for command output.

Files of a graph are written by the store.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from omnigraph.errors import UsageError


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
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"cannot write `{path}`: {reason}; check the path", path=str(path)) from None
    finally:
        # A failure to remove the temporary file must not mask the first error.
        with suppress(OSError):
            part.unlink(missing_ok=True)
    disk.sync([], [""])
