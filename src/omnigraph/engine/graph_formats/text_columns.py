"""The rows of a type as columns of text, which the writers of all formats join."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import pyarrow as pa

from omnigraph.engine.json_text import json_text, string_bytes
from omnigraph.engine.session import View
from omnigraph.lang.catalog import EdgeType, NodeType, Property, Scalar
from omnigraph.rules.arrow_typing import pc
from omnigraph.store.read.lookup import ordered_batches

GraphType: TypeAlias = NodeType | EdgeType

DATETIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"
# The ampersand comes first. Line breaks and tabs would become spaces in attributes.
_XML_ESCAPES: Final = (
    ("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("\t", "&#9;"), ("\n", "&#10;"), ("\r", "&#13;"),
)  # fmt: skip
# Characters that XML 1.0 cannot hold, not even escaped.
_NOT_XML: Final = "[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x{fffe}\\x{ffff}]"


def type_batches(view: View, type_: GraphType) -> Iterator[pa.RecordBatch]:
    """Yield the entities of a type by id: their ids, ends and shown properties."""
    ends = ["src", "dst"] if isinstance(type_, EdgeType) else []
    columns = ["id", *ends, *shown_properties(type_)]
    return (batch for batch in ordered_batches(view.dataset(type_.table_key), columns) if batch.num_rows)


def shown_properties(type_: GraphType) -> dict[str, Property]:
    """Return the properties without blobs, which are no text."""
    return {name: item for name, item in sorted(type_.properties.items()) if item.type.scalar is not Scalar.BLOB}


def plain_text(values: pa.Array[Any]) -> Any:
    """Return values as text, null where there is none: dates in ISO 8601, lists and vectors as JSON."""
    if pa.types.is_list(values.type) or pa.types.is_fixed_size_list(values.type):
        return pc.if_else(pc.is_valid(values), json_text(values), pa.scalar(None, pa.string()))
    if pa.types.is_date64(values.type):
        return pc.strftime(pc.cast(values, pa.timestamp("ms")), format=DATETIME_FORMAT)
    return pc.cast(values, pa.string())


def escape_xml(texts: Any) -> Any:
    """Return texts as they stand in XML, also between quotes."""
    for character, escape in _XML_ESCAPES:
        texts = pc.replace_substring(texts, character, escape)
    return pc.replace_substring_regex(texts, _NOT_XML, "\ufffd")


def join_columns(parts: Iterator[Any]) -> bytes:
    """Return the rows that literal texts and columns of text make up, one after the other."""
    return string_bytes(pc.binary_join_element_wise(*parts, ""))
