"""GEXF 1.2, for Gephi.

Nodes and edges stand in elements of their own, and each declares its attributes before them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from xml.sax.saxutils import quoteattr

import pyarrow as pa

from omnigraph.engine.graph_formats.text_columns import (
    GraphType,
    escape_xml,
    join_columns,
    plain_text,
    shown_properties,
    type_batches,
)
from omnigraph.engine.session import View
from omnigraph.lang.catalog import EdgeType, NodeType, Property, Scalar
from omnigraph.rules.arrow_typing import pc

_HEAD: Final = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<gexf xmlns="http://www.gexf.net/1.2draft" version="1.2">\n'
    '<graph defaultedgetype="directed">\n'
)
# There are no unsigned types, so 32 bits take a long, and 64 bits a text, which keeps all digits.
_TYPES: Final[Mapping[Scalar, str]] = {
    Scalar.BOOL: "boolean",
    Scalar.I32: "integer",
    Scalar.U32: "long",
    Scalar.I64: "long",
    Scalar.F32: "float",
    Scalar.F64: "double",
}
_Attributes = dict[tuple[str, str], str]


def write_gexf(view: View, types: Sequence[GraphType]) -> Iterator[bytes]:
    """Yield the document: attributes, nodes, edges."""
    by_kind: dict[str, list[GraphType]] = {
        "node": [type_ for type_ in types if isinstance(type_, NodeType)],
        "edge": [type_ for type_ in types if isinstance(type_, EdgeType)],
    }
    attributes = {kind: _attributes(members) for kind, members in by_kind.items()}
    yield _HEAD.encode()
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
                yield join_columns(_parts(type_, batch, attributes[kind]))
        yield f"</{kind}s>\n".encode()
    yield b"</graph>\n</gexf>\n"


def _attributes(types: Sequence[GraphType]) -> _Attributes:
    """Return the id of each attribute; properties of one name and type share it."""
    keys: _Attributes = {("type", "string"): "k0"}
    for type_ in types:
        for name, property_ in shown_properties(type_).items():
            keys.setdefault((name, _attribute_type(property_)), f"k{len(keys)}")
    return keys


def _attribute_type(property_: Property) -> str:
    return "string" if property_.type.is_list else _TYPES.get(property_.type.scalar, "string")


def _parts(type_: GraphType, batch: pa.RecordBatch, keys: _Attributes) -> Iterator[Any]:
    """Yield literal texts and columns of text that make up the elements of a batch."""
    ids = escape_xml(batch.column("id"))
    yield f'<{type_.kind} id="{type_.name}:'
    yield ids
    if isinstance(type_, EdgeType):
        yield f'" source="{type_.source}:'
        yield escape_xml(batch.column("src"))
        yield f'" target="{type_.target}:'
        yield escape_xml(batch.column("dst"))
        yield f'" label="{type_.name}">'
    else:
        yield '" label="'
        yield ids
        yield '">'
    yield f'<attvalues><attvalue for="k0" value="{type_.name}"/>'
    for name, property_ in shown_properties(type_).items():
        head = f'<attvalue for="{keys[name, _attribute_type(property_)]}" value="'
        text = escape_xml(plain_text(batch.column(name)))
        # An attribute is left out where there is no value.
        yield pc.fill_null(pc.binary_join_element_wise(head, text, '"/>', ""), "")
    yield f"</attvalues></{type_.kind}>\n"
