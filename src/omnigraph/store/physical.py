"""The physical schema of a dataset: what the languages call a Blob is a Lance blob column on disk.

Everything else is stored as its Arrow type says.
"""

from __future__ import annotations

from collections.abc import Mapping

import lance
import pyarrow as pa

BLOB_MARK = b"omnigraph.blob"


def physical_schema(logical: pa.Schema) -> pa.Schema:
    """Return the schema to create a dataset with, all field metadata kept."""
    fields = [_physical(field) if BLOB_MARK in (field.metadata or {}) else field for field in logical]
    return pa.schema(fields, metadata=_texts(logical.metadata))


def _physical(field: pa.Field[pa.DataType]) -> pa.Field[pa.DataType]:
    blob: pa.Field[pa.DataType] = lance.blob_field(field.name, nullable=field.nullable)
    return blob.with_metadata(_texts(blob.metadata) | _texts(field.metadata))


def _texts(metadata: Mapping[bytes, bytes] | None) -> dict[bytes | str, bytes | str]:
    # The stubs take wider dictionaries than the library hands out.
    return dict((metadata or {}).items())
