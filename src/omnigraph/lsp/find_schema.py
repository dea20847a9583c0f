"""Finds the schema that the queries of a `.gq` file are checked against."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_PREFERRED: Final = "schema.pg"


def find_schema(query: Path, root: Path | None, configured: str | None) -> Path | None:
    """Return the schema of a query file, or None if there is none.

    Args:
        query: The `.gq` file.
        root: The folder that is open in the editor; the search ends there.
        configured: The setting of the editor, relative to `root`; it wins over the search.
    """
    if configured:
        path = Path(configured).expanduser()
        return path if path.is_absolute() or root is None else root / path
    for folder in query.parents:
        schemas = sorted(path for path in folder.glob("*.pg") if path.is_file())
        if schemas:
            preferred = folder / _PREFERRED
            return preferred if preferred in schemas else schemas[0]
        if root is None or folder == root:
            # Without a folder, only the one of the file is searched.
            return None
    return None
