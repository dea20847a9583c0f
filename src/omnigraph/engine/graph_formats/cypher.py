"""Cypher statements, one per line, that create the graph in Neo4j and other databases with that language.

The id of an entity becomes its property `id`, which no property of a schema may be called. Edges find their nodes by
it, through an index that the first statements create.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from omnigraph.engine.graph_formats.text_columns import (
    DATETIME_FORMAT,
    join_columns,
    shown_properties,
    type_batches,
)
from omnigraph.engine.json_text import join_lists, json_text
from omnigraph.engine.session import View
from omnigraph.lang.catalog import EdgeType, NodeType, Type
from omnigraph.rules.arrow_typing import pc

_I64_MAX: Final = 2**63 - 1
# JSON would escape them as \\u00XX, which some databases decode before they look for the end of a text.
_CONTROLS: Final = "[\\x00-\\x07\\x0b\\x0e-\\x1f]"
_NO_NUMBERS: Final = (('"NaN"', "(0.0/0.0)"), ('"Infinity"', "(1.0/0.0)"), ('"-Infinity"', "(-1.0/0.0)"))


def write_cypher(view: View, types: Sequence[Type]) -> Iterator[bytes]:
    """Yield an index per node type, then a statement per node, then one per edge."""
    for name in (type_.name for type_ in types if isinstance(type_, NodeType)):
        yield f"CREATE INDEX IF NOT EXISTS FOR (n:`{name}`) ON (n.`id`);\n".encode()
    for type_ in types:
        for batch in type_batches(view, type_):
            yield join_columns(_parts(type_, batch))


def _parts(type_: Type, batch: pa.RecordBatch) -> Iterator[Any]:
    """Yield literal texts and columns of text that make up the statements of a batch."""
    if isinstance(type_, EdgeType):
        yield f"MATCH (a:`{type_.source}` {{`id`: "
        yield _literals(batch.column("src"))
        yield f"}}), (b:`{type_.target}` {{`id`: "
        yield _literals(batch.column("dst"))
        yield f"}}) CREATE (a)-[:`{type_.name}` {{`id`: "
    else:
        yield f"CREATE (:`{type_.name}` {{`id`: "
    yield _literals(batch.column("id"))
    for name in shown_properties(type_):
        # A property that is null does not exist in such a database.
        yield pc.fill_null(pc.binary_join_element_wise(f", `{name}`: ", _literals(batch.column(name)), ""), "")
    yield "}]->(b);\n" if isinstance(type_, EdgeType) else "});\n"


def _literals(values: Any) -> Any:
    """Return the Cypher literal of each value, null where there is none."""
    return pc.if_else(pc.is_valid(values), _encode(values), pa.scalar(None, pa.string()))


def _encode(values: Any) -> Any:
    type_ = values.type
    if pa.types.is_list(type_) or pa.types.is_fixed_size_list(type_):
        return join_lists(values, pc.fill_null(_literals(values.flatten()), "null"), ", ")
    if pa.types.is_date32(type_):
        return pc.binary_join_element_wise('date("', pc.cast(values, pa.string()), '")', "")
    if pa.types.is_date64(type_):
        texts = pc.strftime(pc.cast(values, pa.timestamp("ms")), format=DATETIME_FORMAT)
        return pc.binary_join_element_wise('datetime("', texts, '")', "")
    if pa.types.is_string(type_):
        texts = json_text(pc.replace_substring_regex(values, _CONTROLS, "\ufffd"))
        # A backslash before a `u` would start a code point for such databases, so the text is put together.
        return pc.replace_substring(texts, "\\\\u", '\\\\" + "u')
    texts = json_text(values)
    if pa.types.is_floating(type_):
        for name, number in _NO_NUMBERS:
            texts = pc.replace_substring(texts, name, number)
    if pa.types.is_uint64(type_):
        # Integers have 64 bits with a sign; a text keeps all digits.
        quoted = pc.binary_join_element_wise('"', texts, '"', "")
        texts = pc.if_else(pc.greater(values, pa.scalar(_I64_MAX, pa.uint64())), quoted, texts)
    return texts
