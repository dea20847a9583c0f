"""Column projection: read a version with other columns than it was stored with.

A shape edits the manifest in memory, as a `Project` transaction would on disk: no data file is read or written, and
row ids, blobs and the indexes of what remains work as they do on the stored version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

import pyarrow as pa

from omnigraph.store.files.manifest_file import read_message, write_message
from omnigraph.store.lance_schema import edit_schema, field_messages

# Members of the manifest message of Lance.
_FIELDS: Final = 1
_FRAGMENTS: Final = 2
_INDEXES: Final = 6
# Added columns get field ids that no stored column ever has: caches know columns by them.
_ADDED_FROM: Final = 1 << 24


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """Columns to drop, to rename and to add as nulls, by the names that are stored; `is_empty` leaves no rows.

    `added` is an Arrow schema in its IPC form, so that a shape can be compared, hashed and sent to tasks.
    """

    renamed: tuple[tuple[str, str], ...] = ()
    dropped: tuple[str, ...] = ()
    added: bytes = b""
    is_empty: bool = False

    @property
    def added_fields(self) -> list[pa.Field[Any]]:
        return list(_schema(self.added)) if self.added else []


AS_STORED: Final = Shape()


def shape_of(renamed: Mapping[str, str], dropped: Sequence[str], added: Sequence[pa.Field[Any]]) -> Shape:
    """Return the shape for some changes of columns; added columns are nullable, even if the schema requires values.

    >>> shape_of({}, [], []) == AS_STORED
    True
    """
    fields = [field.with_nullable(True) for field in added]
    return Shape(
        tuple(sorted(renamed.items())),
        tuple(sorted(dropped)),
        pa.schema(fields).serialize().to_pybytes() if fields else b"",
    )


@lru_cache(maxsize=256)
def _schema(raw: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(raw))


def shaped_manifest(manifest: bytes, schema: Any, shape: Shape, *, with_indexes: bool) -> bytes:
    """Return a manifest message of Lance whose columns are those of a shape; `schema` is the stored Lance schema."""
    left_out = {_FIELDS} | ({_FRAGMENTS} if shape.is_empty else set()) | (set() if with_indexes else {_INDEXES})
    edited = edit_schema(
        schema, add=shape.added_fields, drop=shape.dropped, rename=dict(shape.renamed), next_id=_ADDED_FROM
    )
    fields = [(_FIELDS, message) for message in field_messages(edited)]
    return write_message([*fields, *(part for part in read_message(manifest) if part[0] not in left_out)])


_UNNAMED: Final = (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.date64())
# By its name, since `lance.dataset` as an attribute is a function.
lance_dataset: Final[Any] = import_module("lance.dataset")
_known_to_lance: Final = lance_dataset._needs_substrait_placeholder


def needs_placeholder(type_: Any) -> bool:
    """Return True if a column of this type must be hidden from a filter on another column."""
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return type_.value_type in _UNNAMED or needs_placeholder(type_.value_type)
    return bool(_known_to_lance(type_))


def install() -> None:
    """Install the patch in Lance; idempotent."""
    lance_dataset._needs_substrait_placeholder = needs_placeholder
