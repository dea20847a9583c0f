"""Input files: found by path, directory, pattern or `s3://` address, and opened wherever a task runs.

Knows storage, not formats; needs no client but the one inside pyarrow.
"""

from __future__ import annotations

import fnmatch
import glob
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from pyarrow import fs

from omnigraph.errors import UsageError
from omnigraph.store.uri import s3_options

_S3 = "s3://"
_PATTERN = frozenset("*?[")
# Hive's spelling of a null among directories.
_NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"

# Columns that directories spell as `name=value`, as Hive and Spark lay out tables.
Partitions: TypeAlias = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class File:
    """One file of an input, by the name that messages use.

    `partitions` are the columns of directories below the source, `parent_partitions` those of the source's own path.
    """

    name: str
    size: int
    partitions: Partitions = ()
    parent_partitions: Partitions = ()


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
    root = os.path.dirname(text)
    if os.path.isdir(text):
        root = text
        names = [os.path.join(folder, name) for folder, _, files in os.walk(text) for name in files]
    elif not os.path.exists(text) and _PATTERN & set(text):
        root = _fixed_folder(text)
        names = [name for name in glob.glob(text, recursive=True) if os.path.isfile(name)]
    else:
        names = [text]
    parents = parse_partitions(root)
    return [
        File(os.path.abspath(name), os.stat(name).st_size, parse_partitions(os.path.dirname(below)), parents)
        for name, below in ((name, os.path.relpath(name, root or os.curdir)) for name in names)
        if name == text or _is_visible(below)
    ]


def _in_bucket(text: str) -> list[File]:
    path = text.removeprefix(_S3)
    is_pattern = bool(_PATTERN & set(path))
    root = _fixed_folder(path) if is_pattern else path
    client = filesystem(text)
    info = client.get_file_info(root)
    if info.type is fs.FileType.File:
        return [File(text, info.size, (), parse_partitions(os.path.dirname(path)))]
    inside = client.get_file_info(fs.FileSelector(root, recursive=True, allow_not_found=True))
    files = [(one, one.path[len(root) :].strip("/")) for one in inside if one.type is fs.FileType.File]
    if is_pattern:
        files = [(one, below) for one, below in files if fnmatch.fnmatchcase(one.path, path)]
    parents = parse_partitions(root)
    return [
        File(f"{_S3}{one.path}", one.size, parse_partitions(os.path.dirname(below)), parents)
        for one, below in files
        if _is_visible(below)
    ]


def _fixed_folder(pattern: str) -> str:
    """Return the directory in which a pattern begins to match.

    >>> _fixed_folder("logs/day=*/part-*.csv")
    'logs'
    """
    return os.path.dirname(pattern[: min(pattern.index(sign) for sign in _PATTERN if sign in pattern)])


def parse_partitions(folder: str) -> Partitions:
    """Return the columns that directories spell, from the outermost on.

    >>> parse_partitions("logs/day=2024-01-02/place=S%C3%A3o Paulo/kind=__HIVE_DEFAULT_PARTITION__")
    (('day', '2024-01-02'), ('place', 'São Paulo'), ('kind', None))
    """
    pairs = [part.split("=", 1) for part in folder.replace(os.sep, "/").split("/") if part.find("=") > 0]
    return tuple((unquote(name), None if value == _NULL_PARTITION else unquote(value)) for name, value in pairs)


def _is_visible(path: str) -> bool:
    """Tell whether a file holds data: writers keep their own under names that begin with `_` or a dot.

    As in Spark, a partition column may begin with `_`, and a copy that Hadoop has not finished is left out.

    >>> _is_visible("_year=2024/part-0"), _is_visible("_temporary/0/part-0"), _is_visible("part-0._COPYING_")
    (True, False, False)
    """
    parts = path.strip("/").split("/")
    is_hidden = [part.startswith(".") or (part.startswith("_") and "=" not in part) for part in parts]
    return not any(is_hidden) and not parts[-1].endswith("._COPYING_")


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
