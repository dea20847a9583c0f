"""Convert and edit Lance schemas while keeping the id of every field.

Lance finds columns in data files by field id. Its own conversion from Arrow numbers fields afresh, so a schema change
built that way would silently read the wrong columns; we edit the protobuf messages of the fields instead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, TypeVar

import lance
import pyarrow as pa
from lance.schema import LanceSchema

from omnigraph.store.files.manifest_file import Parts, read_message, write_message

V = TypeVar("V", int, bytes)
_NAME: Final = 2
_ID: Final = 3
_PARENT: Final = 4
_NULLABLE: Final = 6

# The parent of a top-level field is minus one, which protobuf writes as a 64-bit two's complement.
NO_FIELD: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Field:
    """One field message, children being separate messages that name their parent.

    >>> Field(((2, b"n"), (3, 7))).renamed("m")
    Field(parts=((2, b'm'), (3, 7)))
    """

    parts: Parts

    @property
    def name(self) -> str:
        return self._get(_NAME, b"").decode()

    @property
    def id(self) -> int:
        return self._get(_ID, 0)

    @property
    def parent(self) -> int:
        return self._get(_PARENT, 0)

    @property
    def is_column(self) -> bool:
        return self.parent == NO_FIELD

    def renamed(self, name: str) -> Field:
        return self._with(_NAME, name.encode())

    def relaxed(self) -> Field:
        """Return the field with nulls allowed."""
        return self._with(_NULLABLE, 1)

    def moved(self, offset: int) -> Field:
        """Return the field with its id and its parent's id shifted by `offset`."""
        moved = self._with(_ID, self.id + offset)
        return moved if self.is_column else moved._with(_PARENT, self.parent + offset)

    def _get(self, tag: int, default: V) -> V:
        value = next((value for key, value in self.parts if key == tag), default)
        assert isinstance(value, type(default))
        return value

    def _with(self, tag: int, value: int | bytes) -> Field:
        others = [part for part in self.parts if part[0] != tag]
        return replace(self, parts=tuple(sorted([*others, (tag, value)], key=lambda part: part[0])))


def edit_schema(
    schema: Any,
    *,
    add: Sequence[pa.Field[Any]] = (),
    drop: Collection[str] = (),
    rename: Mapping[str, str] | None = None,
    relax: Collection[str] = (),
    next_id: int,
) -> Any:
    """Return a Lance schema with columns dropped, then renamed or made nullable, then appended.

    New fields are numbered from `next_id`, which must be above every id that a data file of the dataset uses.
    """
    metadata, fields = _decode(schema)
    names = rename or {}
    dropped_ids = {field.id for field in fields if field.is_column and field.name in drop}
    edited = []
    for field in fields:
        # A child follows its parent in the list, so one pass finds every descendant of a dropped column.
        if field.id in dropped_ids or field.parent in dropped_ids:
            dropped_ids.add(field.id)
        else:
            if field.is_column:
                relaxed = field.relaxed() if field.name in relax else field
                field = relaxed.renamed(names.get(field.name, field.name))
            edited.append(field)
    _, added = _decode(LanceSchema.from_pyarrow(pa.schema(list(add))))
    edited.extend(field.moved(next_id) for field in added)
    return LanceSchema._from_protos(metadata, *(write_message(field.parts) for field in edited))


def field_ids(schema: Any) -> dict[str, int]:
    """Return the field id of every column of a Lance schema."""
    _, (_, *messages) = schema.__reduce__()
    return _column_ids(tuple(messages))


@lru_cache(maxsize=256)
def _column_ids(messages: tuple[bytes, ...]) -> dict[str, int]:
    # Every version of a dataset brings these messages again, and they hardly ever change.
    fields = [Field(read_message(message)) for message in messages]
    return {field.name: field.id for field in fields if field.is_column}


def nested_field_ids(schema: Any, column: str) -> tuple[int, ...]:
    """Return the field ids of a column and of all fields nested in it."""
    ids: set[int] = set()
    for field in _decode(schema)[1]:
        # A child follows its parent in the list.
        if (field.is_column and field.name == column) or field.parent in ids:
            ids.add(field.id)
    return tuple(sorted(ids))


def field_messages(schema: Any) -> list[bytes]:
    return [write_message(field.parts) for field in _decode(schema)[1]]


def _decode(schema: Any) -> tuple[Any, list[Field]]:
    _, (metadata, *messages) = schema.__reduce__()
    return metadata, [Field(read_message(message)) for message in messages]


BLOB_MARK = b"omnigraph.blob"


def blob_fields(schema: pa.Schema) -> list[str]:
    return [field.name for field in schema if BLOB_MARK in (field.metadata or {})]


def physical_schema(logical: pa.Schema) -> pa.Schema:
    """Return the schema to create a dataset with: blob columns in Lance's encoding, field metadata unchanged."""
    fields = [_physical(field) if BLOB_MARK in (field.metadata or {}) else field for field in logical]
    return pa.schema(fields, metadata=_texts(logical.metadata))


def _physical(field: pa.Field[pa.DataType]) -> pa.Field[pa.DataType]:
    blob: pa.Field[pa.DataType] = lance.blob_field(field.name, nullable=field.nullable)
    return blob.with_metadata(_texts(blob.metadata) | _texts(field.metadata))


def _texts(metadata: Mapping[bytes, bytes] | None) -> dict[bytes | str, bytes | str]:
    # The stubs take wider dictionaries than the library hands out.
    return dict((metadata or {}).items())
