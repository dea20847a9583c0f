"""Base paths: where a fork looks for the files that it inherits, and how they follow a graph to another root.

Lance writes absolute paths into the manifest of every fork. Everything that a fork of ours inherits lies in its own
dataset, so a path is known by its end, and is read below whatever root the graph was opened at.
"""

from __future__ import annotations

from typing import Final

from omnigraph.errors import StorageError, StorageKind
from omnigraph.store.protobuf import Parts, read_message, write_message

# Field numbers of Lance's messages: the base paths of a manifest, and the path of a base path.
_BASE_PATHS: Final = 18
_PATH: Final = 4


def manifest_message(file: bytes) -> bytes:
    """Return the protobuf message of a manifest file."""
    # The file ends in the position of the message, two version numbers and `LANC`; a length precedes the message.
    position = int.from_bytes(file[-16:-8], "little")
    length = int.from_bytes(file[position : position + 4], "little")
    return file[position + 4 : position + 4 + length]


def rebase_manifest(manifest: bytes, dataset: str, uri: str) -> bytes:
    """Return the manifest of a fork with its base paths below `uri`, the address that its dataset has now.

    `dataset` is the path of the dataset within the graph.

    >>> entry = write_message([(1, 7), (4, b"/old/nodes/1/tree/f")])
    >>> moved = rebase_manifest(write_message([(3, 9), (18, entry)]), "nodes/1", "s3://new/nodes/1")
    >>> read_message(moved)[0], read_message(read_message(moved)[1][1])
    ((3, 9), ((1, 7), (4, b's3://new/nodes/1/tree/f')))
    """
    return write_message(
        (field, _rebase_entry(value, dataset, uri) if field == _BASE_PATHS else value)
        for field, value in read_message(manifest)
    )


def _rebase_entry(entry: int | bytes, dataset: str, uri: str) -> bytes:
    assert isinstance(entry, bytes)
    parts: Parts = read_message(entry)
    return write_message(
        (field, _rebase_path(value, dataset, uri) if field == _PATH else value) for field, value in parts
    )


def _rebase_path(value: int | bytes, dataset: str, uri: str) -> bytes:
    assert isinstance(value, bytes)
    path = value.decode()
    root, end, rest = f"{path}/".rpartition(f"/{dataset}/")
    if not (root and end):
        message = (
            f"a fork of `{dataset}` inherits files from `{path}`, which is not in this graph; restore it from a backup"
        )
        raise StorageError(message, kind=StorageKind.PERMANENT, path=path)
    return f"{uri}/{rest}".rstrip("/").encode()
