"""Export one snapshot for graph tools: GraphML (Gephi, yEd, networkx) and DOT (Graphviz).

Nodes come before edges, types by name, entities by id. Ids are unique within a type, so a node is called `Type:id`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias
from xml.sax.saxutils import quoteattr

import pyarrow as pa

from omnigraph.engine.json_text import json_text, string_bytes
from omnigraph.engine.session import View
from omnigraph.errors import UsageError
from omnigraph.lang.catalog import EdgeType, NodeType, Property, Scalar
from omnigraph.rules.arrow_typing import pc
from omnigraph.store.read.lookup import ordered_batches

GraphFormat: TypeAlias = Literal["graphml", "dot"]
_Type: TypeAlias = NodeType | EdgeType

_GRAPHML: Final = '<?xml version="1.0" encoding="UTF-8"?>\n<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n'
# GraphML has no unsigned types, so 32 bits take a long, and 64 bits a text, which keeps all digits.
_GRAPHML_TYPES: Final[Mapping[Scalar, str]] = {
    Scalar.BOOL: "boolean",
    Scalar.I32: "int",
    Scalar.U32: "long",
    Scalar.I64: "long",
    Scalar.F32: "float",
    Scalar.F64: "double",
}
# The ampersand comes first. Line breaks and tabs would become spaces in attributes.
_XML_ESCAPES: Final = (
    ("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("\t", "&#9;"), ("\n", "&#10;"), ("\r", "&#13;"),
)  # fmt: skip
_DATETIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"
# Characters that XML 1.0 cannot hold, not even escaped.
_NOT_XML: Final = "[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x{fffe}\\x{ffff}]"


def export_graph(view: View, types: Sequence[_Type], format_: str) -> Iterator[bytes]:
    """Return a snapshot in a format of graph tools, in chunks; edges bring the types at their ends along."""
    writers: Mapping[str, Callable[[View, Sequence[_Type]], Iterator[bytes]]] = {"graphml": _graphml, "dot": _dot}
    if format_ not in writers:
        raise UsageError(f"unknown format `{format_}`; expected ndjson, {', '.join(sorted(writers))}", format=format_)
    ends = {name for type_ in types if isinstance(type_, EdgeType) for name in (type_.source, type_.target)}
    names = ends | {type_.name for type_ in types if isinstance(type_, NodeType)}
    # The type at an end may be hidden from the actor.
    nodes = [view.catalog.nodes[name] for name in sorted(names & view.catalog.nodes.keys())]
    edges = sorted((type_ for type_ in types if isinstance(type_, EdgeType)), key=lambda edge: edge.name)
    return writers[format_](view, [*nodes, *edges])


def _graphml(view: View, types: Sequence[_Type]) -> Iterator[bytes]:
    keys = _graphml_keys(types)
    lines = [
        f'<key id="{key}" for="{kind}" attr.name={quoteattr(name)} attr.type="{attribute_type}"/>\n'
        for (kind, name, attribute_type), key in keys.items()
    ]
    yield (_GRAPHML + "".join(lines) + '<graph edgedefault="directed">\n').encode()
    for type_ in types:
        for batch in _batches(view, type_):
            yield _join(_graphml_parts(type_, batch, keys))
    yield b"</graph>\n</graphml>\n"


def _graphml_keys(types: Sequence[_Type]) -> dict[tuple[str, str, str], str]:
    """Return the id of each attribute; properties of one name and type share it, whatever type of entity has them."""
    keys: dict[tuple[str, str, str], str] = {}
    for type_ in types:
        for name, property_ in (("type", None), *_shown_properties(type_).items()):
            keys.setdefault((type_.kind, name, _attribute_type(property_)), f"k{len(keys)}")
    return keys


def _attribute_type(property_: Property | None) -> str:
    if property_ is None or property_.type.is_list:
        return "string"
    return _GRAPHML_TYPES.get(property_.type.scalar, "string")


def _graphml_parts(type_: _Type, batch: pa.RecordBatch, keys: Mapping[tuple[str, str, str], str]) -> Iterator[Any]:
    """Yield literal texts and columns of text that make up the elements of a batch."""
    if isinstance(type_, EdgeType):
        for member, column, name in (("id", "id", type_.name), ("source", "src", type_.source)):
            yield f'{"<edge" if member == "id" else ""} {member}="{name}:'
            yield _escape_xml(batch.column(column))
            yield '"'
        yield f' target="{type_.target}:'
        yield _escape_xml(batch.column("dst"))
    else:
        yield f'<node id="{type_.name}:'
        yield _escape_xml(batch.column("id"))
    yield f'"><data key="{keys[type_.kind, "type", "string"]}">{type_.name}</data>'
    for name, property_ in _shown_properties(type_).items():
        key = keys[type_.kind, name, _attribute_type(property_)]
        text = _escape_xml(_plain_text(batch.column(name)))
        # An element is left out where there is no value.
        yield pc.fill_null(pc.binary_join_element_wise(f'<data key="{key}">', text, "</data>", ""), "")
    yield f"</{type_.kind}>\n"


def _escape_xml(texts: Any) -> Any:
    for character, escape in _XML_ESCAPES:
        texts = pc.replace_substring(texts, character, escape)
    return pc.replace_substring_regex(texts, _NOT_XML, "\ufffd")


def _dot(view: View, types: Sequence[_Type]) -> Iterator[bytes]:
    yield b"digraph {\n"
    for type_ in types:
        for batch in _batches(view, type_):
            yield _join(_dot_parts(type_, batch))
    yield b"}\n"


def _dot_parts(type_: _Type, batch: pa.RecordBatch) -> Iterator[Any]:
    """Yield the parts of DOT lines. Properties are left out: Graphviz would take a `color` or a `size` for its own."""
    if isinstance(type_, EdgeType):
        yield f'  "{type_.source}:'
        yield _escape_dot(batch.column("src"))
        yield f'" -> "{type_.target}:'
        yield _escape_dot(batch.column("dst"))
        yield f'" [label="{type_.name}"];\n'
        return
    texts = _escape_dot(batch.column("id"))
    yield f'  "{type_.name}:'
    yield texts
    yield f'" [label="{type_.name}\\n'
    yield texts
    yield '"];\n'


def _escape_dot(texts: Any) -> Any:
    for character, escape in (("\\", "\\\\"), ('"', '\\"'), ("\r", ""), ("\n", "\\n"), ("\0", "")):
        texts = pc.replace_substring(texts, character, escape)
    return texts


def _batches(view: View, type_: _Type) -> Iterator[pa.RecordBatch]:
    ends = ["src", "dst"] if isinstance(type_, EdgeType) else []
    columns = ["id", *ends, *_shown_properties(type_)]
    return (batch for batch in ordered_batches(view.dataset(type_.table_key), columns) if batch.num_rows)


def _shown_properties(type_: _Type) -> dict[str, Property]:
    """Return the properties without blobs, which are no text."""
    return {name: item for name, item in sorted(type_.properties.items()) if item.type.scalar is not Scalar.BLOB}


def _plain_text(values: pa.Array[Any]) -> Any:
    """Return values as text, null where there is none: dates in ISO 8601, lists and vectors as JSON."""
    if pa.types.is_list(values.type) or pa.types.is_fixed_size_list(values.type):
        return pc.if_else(pc.is_valid(values), json_text(values), pa.scalar(None, pa.string()))
    if pa.types.is_date64(values.type):
        return pc.strftime(pc.cast(values, pa.timestamp("ms")), format=_DATETIME_FORMAT)
    return pc.cast(values, pa.string())


def _join(parts: Iterator[Any]) -> bytes:
    return string_bytes(pc.binary_join_element_wise(*parts, ""))
