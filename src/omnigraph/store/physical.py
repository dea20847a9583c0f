"""The physical schema of a dataset: what the languages call a Blob is a Lance blob column on disk.

Everything else is stored as its Arrow type says.
"""

from __future__ import annotations

import lance
import pyarrow as pa

BLOB_MARK = b"omnigraph.blob"


def physical_schema(logical: pa.Schema) -> pa.Schema:
    """Return the schema to create a dataset with, all field metadata kept."""
    fields = [_physical(field) if BLOB_MARK in (field.metadata or {}) else field for field in logical]
    return pa.schema(fields, metadata=logical.metadata)


def _physical(field: pa.Field[pa.DataType]) -> pa.Field[pa.DataType]:
    blob: pa.Field[pa.DataType] = lance.blob_field(field.name, nullable=field.nullable)
    metadata: dict[bytes | str, bytes | str] = {}
    metadata.update(blob.metadata or {})
    metadata.update(field.metadata or {})
    return blob.with_metadata(metadata)
