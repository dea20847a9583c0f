"""GraphML, for Gephi, yEd and networkx, and GEXF 1.2, for Gephi.

In GEXF, nodes and edges stand in elements of their own, and each declares its attributes before them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from xml.sax.saxutils import quoteattr

import pyarrow as pa

from omnigraph.engine.graph_formats.text_columns import DATETIME_FORMAT, join_columns, shown_properties, type_batches
from omnigraph.engine.json_text import json_text
from omnigraph.engine.session import View
from omnigraph.lang.catalog import EdgeType, NodeType, Property, Scalar, Type
from omnigraph.rules.arrow_typing import pc

_DECLARATION: Final = '<?xml version="1.0" encoding="UTF-8"?>\n'
_GRAPHML: Final = '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n'
_GEXF: Final = '<gexf xmlns="http://www.gexf.net/1.2draft" version="1.2">\n<graph defaultedgetype="directed">\n'
# There are no unsigned types, so 32 bits take a long, and 64 bits a text, which keeps all digits.
_GRAPHML_TYPES: Final[Mapping[Scalar, str]] = {
    Scalar.BOOL: "boolean",
    Scalar.I32: "int",
    Scalar.U32: "long",
    Scalar.I64: "long",
    Scalar.F32: "float",
    Scalar.F64: "double",
}
_GEXF_TYPES: Final[Mapping[Scalar, str]] = {**_GRAPHML_TYPES, Scalar.I32: "integer"}
# The ampersand comes first. Line breaks and tabs would become spaces in attributes.
_ESCAPES: Final = (
    ("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("\t", "&#9;"), ("\n", "&#10;"), ("\r", "&#13;"),
)  # fmt: skip
# Characters that XML 1.0 cannot hold, not even escaped.
_NOT_XML: Final = "[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x{fffe}\\x{ffff}]"
_Attributes = dict[tuple[str, str], str]


def write_graphml(view: View, types: Sequence[Type]) -> Iterator[bytes]:
    """Yield the document: the attributes of all types, nodes, edges."""
    keys = _graphml_keys(types)
    lines = [
        f'<key id="{key}" for="{kind}" attr.name={quoteattr(name)} attr.type="{attribute_type}"/>\n'
        for (kind, name, attribute_type), key in keys.items()
    ]
    yield (_DECLARATION + _GRAPHML + "".join(lines) + '<graph edgedefault="directed">\n').encode()
    for type_ in types:
        for batch in type_batches(view, type_):
            yield join_columns(_graphml_parts(type_, batch, keys))
    yield b"</graph>\n</graphml>\n"


def _graphml_keys(types: Sequence[Type]) -> dict[tuple[str, str, str], str]:
    """Return the id of each attribute; properties of one name and type share it, whatever type of entity has them."""
    keys: dict[tuple[str, str, str], str] = {}
    for type_ in types:
        keys.setdefault((type_.kind, "type", "string"), f"k{len(keys)}")
        for name, property_ in shown_properties(type_).items():
            keys.setdefault((type_.kind, name, _attribute_type(property_, _GRAPHML_TYPES)), f"k{len(keys)}")
    return keys


def _graphml_parts(type_: Type, batch: pa.RecordBatch, keys: Mapping[tuple[str, str, str], str]) -> Iterator[Any]:
    """Yield literal texts and columns of text that make up the elements of a batch."""
    yield f'<{type_.kind} id="{type_.name}:'
    yield _escape(batch.column("id"))
    if isinstance(type_, EdgeType):
        yield f'" source="{type_.source}:'
        yield _escape(batch.column("src"))
        yield f'" target="{type_.target}:'
        yield _escape(batch.column("dst"))
    yield f'"><data key="{keys[type_.kind, "type", "string"]}">{type_.name}</data>'
    for name, property_ in shown_properties(type_).items():
        key = keys[type_.kind, name, _attribute_type(property_, _GRAPHML_TYPES)]
        text = _escape(_plain_text(batch.column(name)))
        # An element is left out where there is no value.
        yield pc.fill_null(pc.binary_join_element_wise(f'<data key="{key}">', text, "</data>", ""), "")
    yield f"</{type_.kind}>\n"


def write_gexf(view: View, types: Sequence[Type]) -> Iterator[bytes]:
    """Yield the document: attributes, nodes, edges."""
    by_kind: dict[str, list[Type]] = {
        "node": [type_ for type_ in types if isinstance(type_, NodeType)],
        "edge": [type_ for type_ in types if isinstance(type_, EdgeType)],
    }
    attributes = {kind: _gexf_attributes(members) for kind, members in by_kind.items()}
    yield (_DECLARATION + _GEXF).encode()
    for kind, declared in attributes.items():
        lines = [
            f'<attribute id="{key}" title={quoteattr(name)} type="{attribute_type}"/>\n'
            for (name, attribute_type), key in declared.items()
        ]
        yield f'<attributes class="{kind}">\n{"".join(lines)}</attributes>\n'.encode()
    for kind, members in by_kind.items():
        yield f"<{kind}s>\n".encode()
        for type_ in members:
            for batch in type_batches(view, type_):
                yield join_columns(_gexf_parts(type_, batch, attributes[kind]))
        yield f"</{kind}s>\n".encode()
    yield b"</graph>\n</gexf>\n"


def _gexf_attributes(types: Sequence[Type]) -> _Attributes:
    """Return the id of each attribute; properties of one name and type share it."""
    keys: _Attributes = {("type", "string"): "k0"}
    for type_ in types:
        for name, property_ in shown_properties(type_).items():
            keys.setdefault((name, _attribute_type(property_, _GEXF_TYPES)), f"k{len(keys)}")
    return keys


def _gexf_parts(type_: Type, batch: pa.RecordBatch, keys: _Attributes) -> Iterator[Any]:
    """Yield literal texts and columns of text that make up the elements of a batch."""
    ids = _escape(batch.column("id"))
    yield f'<{type_.kind} id="{type_.name}:'
    yield ids
    if isinstance(type_, EdgeType):
        yield f'" source="{type_.source}:'
        yield _escape(batch.column("src"))
        yield f'" target="{type_.target}:'
        yield _escape(batch.column("dst"))
        yield f'" label="{type_.name}">'
    else:
        yield '" label="'
        yield ids
        yield '">'
    yield f'<attvalues><attvalue for="k0" value="{type_.name}"/>'
    for name, property_ in shown_properties(type_).items():
        head = f'<attvalue for="{keys[name, _attribute_type(property_, _GEXF_TYPES)]}" value="'
        text = _escape(_plain_text(batch.column(name)))
        # An attribute is left out where there is no value.
        yield pc.fill_null(pc.binary_join_element_wise(head, text, '"/>', ""), "")
    yield f"</attvalues></{type_.kind}>\n"


def _attribute_type(property_: Property, names: Mapping[Scalar, str]) -> str:
    return "string" if property_.type.is_list else names.get(property_.type.scalar, "string")


def _plain_text(values: pa.Array[Any]) -> Any:
    """Return values as text, null where there is none: dates in ISO 8601, lists and vectors as JSON."""
    if pa.types.is_list(values.type) or pa.types.is_fixed_size_list(values.type):
        return pc.if_else(pc.is_valid(values), json_text(values), pa.scalar(None, pa.string()))
    if pa.types.is_date64(values.type):
        return pc.strftime(pc.cast(values, pa.timestamp("ms")), format=DATETIME_FORMAT)
    return pc.cast(values, pa.string())


def _escape(texts: Any) -> Any:
    """Return texts as they stand in XML, also between quotes."""
    for character, escape in _ESCAPES:
        texts = pc.replace_substring(texts, character, escape)
    return pc.replace_substring_regex(texts, _NOT_XML, "\ufffd")
