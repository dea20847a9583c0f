"""Versions that a foreign tool wrote by path: what each of them did, read from its transaction.

Only looks. Kinds of operations are read from the stored bytes, because Lance's Python classes do not know them all.
"""

from __future__ import annotations

from typing import Final

from omnigraph.store.read.dataset import Dataset

# The field numbers of Lance's transaction message, for operations that a foreign tool may have left.
_OPERATIONS: Final = {
    100: "Append",
    101: "Delete",
    102: "Overwrite",
    103: "CreateIndex",
    104: "Rewrite",
    105: "Merge",
    106: "Restore",
    107: "ReserveFragments",
    108: "Update",
    109: "Project",
    110: "UpdateConfig",
    111: "DataReplacement",
}
_BYTES: Final = 2


def operations(newest: Dataset, since: int) -> list[str | None]:
    """Return the operation of every version after `since`, oldest first; None where it is unknown."""
    tracked = newest.lance.tracked_files().read_all().to_pylist()
    files = {row["version"]: row["path"] for row in tracked if row["type"] == "transaction file"}
    names: list[str | None] = []
    for version in range(since + 1, newest.version + 1):
        file = files.get(version)
        body = newest.store.objects.read_if_exists(f"{newest.ref.directory}/{file}") if file else None
        names.append(_operation(body) if body else None)
    return names


def _operation(body: bytes) -> str | None:
    """Return the operation that a stored transaction holds: the first of its fields with a number from the table."""
    at = 0
    while at < len(body):
        key, at = _number(body, at)
        if key >> 3 in _OPERATIONS:
            return _OPERATIONS[key >> 3]
        value, at = _number(body, at)
        at += value if key & 7 == _BYTES else 0
    return None


def _number(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(body):
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return value, at
