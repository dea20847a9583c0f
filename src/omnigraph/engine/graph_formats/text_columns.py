"""The rows of a type as columns of text, which the writers of all formats join."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from omnigraph.engine.json_text import string_bytes
from omnigraph.engine.session import View
from omnigraph.lang.catalog import Property, Scalar, Type
from omnigraph.rules.arrow_typing import pc
from omnigraph.store.read.lookup import ordered_batches

DATETIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"


def type_batches(view: View, type_: Type) -> Iterator[pa.RecordBatch]:
    """Yield the entities of a type by id: their ids, ends and shown properties."""
    columns = ["id", *type_.ends, *shown_properties(type_)]
    return (batch for batch in ordered_batches(view.dataset(type_.table_key), columns) if batch.num_rows)


def shown_properties(type_: Type) -> dict[str, Property]:
    """Return the properties without blobs, which are no text."""
    return {name: item for name, item in sorted(type_.properties.items()) if item.type.scalar is not Scalar.BLOB}


def join_columns(parts: Iterator[Any]) -> bytes:
    """Return the rows that literal texts and columns of text make up, one after the other."""
    return string_bytes(pc.binary_join_element_wise(*parts, ""))
