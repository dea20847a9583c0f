"""Lance manifest files: decode which files a dataset version references, and rebase the base paths of forks.

Independent of Lance's reader on purpose: cleanup compares both before it deletes. An unknown field might reference
files, so it is an error and never skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias
from uuid import UUID

from omnigraph.errors import StorageError, StorageKind

Parts: TypeAlias = tuple[tuple[int, int | bytes], ...]

_VARINT: Final = 0
_BYTES: Final = 2


def read_message(message: bytes) -> Parts:
    """Split a protobuf message into its (field number, value) parts; ValueError when it is damaged.

    >>> read_message(b"\\x12\\x01n\\x18\\x07")
    ((2, b'n'), (3, 7))
    """
    parts: list[tuple[int, int | bytes]] = []
    position = 0
    while position < len(message):
        key, position = read_varint(message, position)
        number, position = read_varint(message, position)
        if key & 7 == _VARINT:
            parts.append((key >> 3, number))
        elif key & 7 != _BYTES or position + number > len(message):
            raise ValueError(f"a part of wire type {key & 7} and length {number} ends after the message")
        else:
            parts.append((key >> 3, message[position : position + number]))
            position += number
    return tuple(parts)


def write_message(parts: Iterable[tuple[int, int | bytes]]) -> bytes:
    """Join (field number, value) parts to a message.

    >>> write_message(((2, b"n"), (3, 7)))
    b'\\x12\\x01n\\x18\\x07'
    """
    message = bytearray()
    for field, value in parts:
        if isinstance(value, int):
            message += _varint(field << 3 | _VARINT) + _varint(value)
        else:
            message += _varint(field << 3 | _BYTES) + _varint(len(value)) + value
    return bytes(message)


def read_varint(message: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if position >= len(message):
            raise ValueError("a message ends within a number")
        byte = message[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, position


def _varint(number: int) -> bytes:
    """Write a number seven bits at a time, lowest first.

    >>> _varint(300).hex()
    'ac02'
    """
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


# Field numbers of Lance's protobuf messages (`table.proto`); the plain ones name no file.
_MANIFEST_PLAIN: Final = frozenset({1, 3, 4, 7, 8, 11, 13, 14, 15, 16, 19, 20, 23})
_FRAGMENTS, _METADATA, _INDEX_SECTION, _READER_FLAGS, _WRITER_FLAGS, _TRANSACTION, _BASES = 2, 5, 6, 9, 10, 12, 18
_FRAGMENT_PLAIN: Final = frozenset({4, 5, 7, 9})
_FRAGMENT_ID, _FILES, _DELETIONS = 1, 2, 3
_FILE_FIELDS: Final = frozenset(range(1, 8))
_FILE_PATH, _FILE_BASE = 1, 7
_DELETION_FIELDS: Final = frozenset({1, 2, 3, 4, 7})
_DELETION_KIND, _DELETION_VERSION, _DELETION_ID, _DELETION_BASE = 1, 2, 3, 7
_INDEX_FIELDS: Final = frozenset(range(1, 11))
_INDEX_UUID, _INDEX_BASE = 1, 9
_BASE_ID, _BASE_NAME, _BASE_IS_ROOT, _BASE_PATH = 1, 2, 3, 4
# Deletions, stable row ids, format 2, configuration, base paths, and versions without a transaction file.
_KNOWN_FLAGS: Final = 0b111111
_DELETION_SUFFIX: Final = {0: "arrow", 1: "bin"}

Value = int | bytes


class UnknownManifest(ValueError):
    """A manifest that this release cannot interpret."""


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file or, with a final `/`, a folder that a version needs; `base` is None for its own directory."""

    path: str
    base: int | None = None


@dataclass(frozen=True, slots=True)
class ManifestContent:
    """The parts of a manifest that reference files.

    `fragments` are undecoded: versions share most of them, so a reader of many versions decodes each only once.
    """

    fragments: tuple[bytes, ...]
    others: tuple[NamedFile, ...]
    bases: dict[int, str]
    metadata: dict[str, bytes]


@contextmanager
def _reported_damage() -> Iterator[None]:
    try:
        yield
    except UnknownManifest:
        raise
    except ValueError as error:
        raise UnknownManifest(f"it is damaged: {error}") from error


@_reported_damage()
def decode_manifest(raw: bytes) -> ManifestContent:
    """Decode a manifest file; raises `UnknownManifest` if any part of it cannot be interpreted."""
    if raw[-4:] != b"LANC":
        raise UnknownManifest("it does not end like a manifest")
    fragments: list[bytes] = []
    others: list[NamedFile] = []
    bases: dict[int, str] = {}
    metadata: dict[str, bytes] = {}
    message = manifest_message(raw)
    if not message:
        # Zeros would read as a version that needs nothing.
        raise UnknownManifest("it is empty")
    for number, value in read_message(message):
        if number == _FRAGMENTS:
            fragments.append(_message(value))
        elif number == _INDEX_SECTION:
            others.extend(_indexes(_section(raw, _integer(value))))
        elif number == _TRANSACTION:
            others.append(NamedFile(f"_transactions/{_message(value).decode()}"))
        elif number == _BASES:
            base, path = _base(_message(value))
            bases[base] = path
        elif number == _METADATA:
            entry = dict(read_message(_message(value)))
            metadata[_message(entry.get(1, b"")).decode()] = _message(entry.get(2, b""))
        elif number in (_READER_FLAGS, _WRITER_FLAGS):
            if _integer(value) & ~_KNOWN_FLAGS:
                raise UnknownManifest(f"it uses features {_integer(value):#b}, which this release does not know")
        else:
            _require_plain("manifest", number, _MANIFEST_PLAIN)
    return ManifestContent(tuple(fragments), tuple(others), bases, metadata)


@_reported_damage()
def decode_fragment(fragment: bytes) -> list[NamedFile]:
    """Return what a fragment needs: its data files with the folders of their larger blobs, and its deletions."""
    fragment_id = 0
    deletions: bytes | None = None
    named: list[NamedFile] = []
    for number, value in read_message(fragment):
        if number == _FRAGMENT_ID:
            fragment_id = _integer(value)
        elif number == _FILES:
            path, base = _data_file(_message(value))
            # Blobs above 64 KiB have separate files in a folder named like the data file; no manifest lists them.
            named += [NamedFile(f"data/{path}", base), NamedFile(f"data/{path.removesuffix('.lance')}/", base)]
        elif number == _DELETIONS:
            deletions = _message(value)
        else:
            _require_plain("fragment", number, _FRAGMENT_PLAIN)
    return named if deletions is None else [*named, _deletion_file(deletions, fragment_id)]


def _data_file(message: bytes) -> tuple[str, int | None]:
    fields = _fields("data file", message, _FILE_FIELDS)
    path = _message(fields.get(_FILE_PATH, b"")).decode()
    if not path.endswith(".lance"):
        raise UnknownManifest(f"it names `{path}` as a data file")
    return path, _base_id(fields.get(_FILE_BASE))


def _deletion_file(message: bytes, fragment_id: int) -> NamedFile:
    fields = _fields("deletion file", message, _DELETION_FIELDS)
    numbers = (_DELETION_KIND, _DELETION_VERSION, _DELETION_ID)
    kind, version, unique = (_integer(fields.get(number, 0)) for number in numbers)
    if kind not in _DELETION_SUFFIX:
        raise UnknownManifest(f"it has deletions of the unknown kind {kind}")
    path = f"_deletions/{fragment_id}-{version}-{unique}.{_DELETION_SUFFIX[kind]}"
    return NamedFile(path, _base_id(fields.get(_DELETION_BASE)))


def _indexes(section: bytes) -> Iterator[NamedFile]:
    for number, value in read_message(section):
        if number != 1:
            raise UnknownManifest(f"its indexes have the unknown field {number}")
        fields = _fields("index", _message(value), _INDEX_FIELDS)
        uuid = _message(dict(read_message(_message(fields.get(_INDEX_UUID, b"")))).get(1, b""))
        if len(uuid) != 16:
            raise UnknownManifest("it has an index without a UUID")
        yield NamedFile(f"_indices/{UUID(bytes=uuid)}/", _base_id(fields.get(_INDEX_BASE)))


def _base(message: bytes) -> tuple[int, str]:
    fields = dict(read_message(message))
    if not fields.keys() <= {_BASE_ID, _BASE_NAME, _BASE_IS_ROOT, _BASE_PATH} or not fields.get(_BASE_IS_ROOT):
        raise UnknownManifest("it inherits files from a place that is not a dataset")
    return _integer(fields.get(_BASE_ID, 0)), _message(fields.get(_BASE_PATH, b"")).decode()


def _fields(kind: str, message: bytes, known: frozenset[int]) -> dict[int, Value]:
    """Return the fields of a message by number; an unknown one might name a file."""
    fields = dict(read_message(message))
    for number in fields:
        _require_plain(kind, number, known)
    return fields


def _base_id(value: Value | None) -> int | None:
    return None if value is None else _integer(value)


def _require_plain(kind: str, number: int, plain: frozenset[int]) -> None:
    if number not in plain:
        raise UnknownManifest(f"its {kind} has the unknown field {number}")


def _section(raw: bytes, position: int) -> bytes:
    """Return a part of a file that is preceded by its length."""
    length = int.from_bytes(raw[position : position + 4], "little")
    section = raw[position + 4 : position + 4 + length]
    if len(section) != length:
        raise UnknownManifest("it is cut off")
    return section


def _message(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise UnknownManifest("a message is stored as a number")
    return value


def _integer(value: Value) -> int:
    if not isinstance(value, int):
        raise UnknownManifest("a number is stored as a message")
    return value


def manifest_message(file: bytes) -> bytes:
    # The file ends in the position of the message, two version numbers and `LANC`.
    return _section(file, int.from_bytes(file[-16:-8], "little"))


def rebase_manifest(manifest: bytes, dataset: str, uri: str) -> bytes:
    """Return the manifest of a fork with its base paths below `uri`, the address that its dataset has now.

    `dataset` is the path of the dataset within the graph.

    >>> entry = write_message([(1, 7), (4, b"/old/nodes/1/tree/f")])
    >>> moved = rebase_manifest(write_message([(3, 9), (18, entry)]), "nodes/1", "s3://new/nodes/1")
    >>> read_message(moved)[0], read_message(read_message(moved)[1][1])
    ((3, 9), ((1, 7), (4, b's3://new/nodes/1/tree/f')))
    """

    def rebase_entry(entry: bytes) -> bytes:
        return _edit_field(entry, _BASE_PATH, lambda path: _rebase_path(path.decode(), dataset, uri).encode())

    return _edit_field(manifest, _BASES, rebase_entry)


def leave_out_indexes(manifest: bytes) -> bytes:
    """Return a manifest that names no index.

    >>> read_message(leave_out_indexes(write_message([(3, 9), (6, 40)])))
    ((3, 9),)
    """
    return write_message(part for part in read_message(manifest) if part[0] != _INDEX_SECTION)


def _edit_field(message: bytes, number: int, edit: Callable[[bytes], bytes]) -> bytes:
    return write_message(
        (field, edit(value) if field == number and isinstance(value, bytes) else value)
        for field, value in read_message(message)
    )


def path_inside(dataset: str, path: str) -> str | None:
    """Return the part of an absolute path below a dataset of any graph, with a final `/`; None if it is elsewhere."""
    root, end, inside = f"{path}/".rpartition(f"/{dataset}/")
    return inside if root and end else None


def _rebase_path(path: str, dataset: str, uri: str) -> str:
    inside = path_inside(dataset, path)
    if inside is None:
        message = (
            f"a fork of `{dataset}` inherits files from `{path}`, which is not in this graph; restore it from a backup"
        )
        raise StorageError(message, kind=StorageKind.PERMANENT, path=path)
    return f"{uri}/{inside}".rstrip("/")
