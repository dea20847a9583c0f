"""Input files: found by path, directory, pattern or `s3://` address, and opened wherever a task runs.

Knows storage, not formats; needs no client but the one inside pyarrow.
"""

from __future__ import annotations

import fnmatch
import glob
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pyarrow import fs

from omnigraph.errors import UsageError
from omnigraph.store.uri import s3_options

_S3 = "s3://"
_PATTERN = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class File:
    """One file of an input, by the name that messages use."""

    name: str
    size: int


def find_files(source: str | os.PathLike[str]) -> list[File]:
    """Return the files that a path, a directory or a pattern stands for, by name; an empty answer is an error."""
    text = os.fspath(source)
    try:
        found = _in_bucket(text) if text.startswith(_S3) else _on_disk(text)
    except OSError as error:
        raise _unreadable(text, error) from error
    except ValueError as error:
        raise UsageError(f"`{text!r}` is no path: {error}; check it", path=text) from error
    if not found:
        raise UsageError(f"`{text}` matches no file; check the path", path=text)
    return sorted(found, key=lambda one: one.name)


def _on_disk(text: str) -> list[File]:
    text = os.path.expanduser(text.removeprefix("file://"))
    if os.path.isdir(text):
        walked = (os.path.join(folder, name) for folder, _, names in os.walk(text) for name in names)
        names = [name for name in walked if _is_visible(os.path.relpath(name, text))]
    elif not os.path.exists(text) and _PATTERN & set(text):
        names = [name for name in glob.glob(text, recursive=True) if os.path.isfile(name)]
    else:
        names = [text]
    return [File(os.path.abspath(name), os.stat(name).st_size) for name in names]


def _in_bucket(text: str) -> list[File]:
    path = text.removeprefix(_S3)
    base = path if not _PATTERN & set(path) else path[: min(path.index(sign) for sign in _PATTERN if sign in path)]
    folder = base if base == path else base.rpartition("/")[0]
    client = filesystem(text)
    info = client.get_file_info(folder)
    if info.type is fs.FileType.File:
        return [File(text, info.size)]
    inside = client.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=True))
    files = [one for one in inside if one.type is fs.FileType.File]
    if base != path:
        files = [one for one in files if fnmatch.fnmatchcase(one.path, path)]
    return [File(f"{_S3}{one.path}", one.size) for one in files if _is_visible(one.path[len(folder) :])]


def _is_visible(path: str) -> bool:
    """Tell whether a file holds data: writers keep their own under names that begin with `_` or a dot."""
    return not any(part.startswith(("_", ".")) for part in path.strip("/").split("/"))


def filesystem(name: str) -> Any:
    """Return the client that opens a file."""
    if not name.startswith(_S3):
        return fs.LocalFileSystem()
    return _s3(tuple(sorted(s3_options().items())))


@lru_cache(maxsize=4)
def _s3(given: tuple[tuple[str, str], ...]) -> Any:
    options = dict(given)
    endpoint = options.get("aws_endpoint", "")
    scheme, _, host = endpoint.partition("://") if endpoint else ("https", "", "")
    return fs.S3FileSystem(
        access_key=options.get("aws_access_key_id"),
        secret_key=options.get("aws_secret_access_key"),
        session_token=options.get("aws_session_token"),
        region=options.get("aws_region"),
        scheme="http" if scheme == "http" else "https",
        endpoint_override=host or None,
        force_virtual_addressing=options.get("aws_virtual_hosted_style_request") == "true",
    )


def open_file(name: str) -> Any:
    """Open a file for reading at any place."""
    try:
        return filesystem(name).open_input_file(name.removeprefix(_S3))
    except OSError as error:
        raise _unreadable(name, error) from error


def open_stream(name: str, compression: str | None) -> Any:
    """Open a file for reading from its beginning, decompressed."""
    try:
        return filesystem(name).open_input_stream(name.removeprefix(_S3), compression=compression)
    except OSError as error:
        raise _unreadable(name, error) from error


def _unreadable(name: str, error: OSError) -> UsageError:
    reason = (error.strerror or str(error).splitlines()[0]).rstrip(".").lower()
    return UsageError(f"cannot read `{name}`: {reason}; check the path", path=name)
