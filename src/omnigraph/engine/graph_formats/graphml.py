"""GraphML, for Gephi, yEd and networkx."""

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
from omnigraph.lang.catalog import EdgeType, Property, Scalar
from omnigraph.rules.arrow_typing import pc

_HEAD: Final = '<?xml version="1.0" encoding="UTF-8"?>\n<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n'
# GraphML has no unsigned types, so 32 bits take a long, and 64 bits a text, which keeps all digits.
_TYPES: Final[Mapping[Scalar, str]] = {
    Scalar.BOOL: "boolean",
    Scalar.I32: "int",
    Scalar.U32: "long",
    Scalar.I64: "long",
    Scalar.F32: "float",
    Scalar.F64: "double",
}


def write_graphml(view: View, types: Sequence[GraphType]) -> Iterator[bytes]:
    """Yield the document: the attributes of all types, nodes, edges."""
    keys = _keys(types)
    lines = [
        f'<key id="{key}" for="{kind}" attr.name={quoteattr(name)} attr.type="{attribute_type}"/>\n'
        for (kind, name, attribute_type), key in keys.items()
    ]
    yield (_HEAD + "".join(lines) + '<graph edgedefault="directed">\n').encode()
    for type_ in types:
        for batch in type_batches(view, type_):
            yield join_columns(_parts(type_, batch, keys))
    yield b"</graph>\n</graphml>\n"


def _keys(types: Sequence[GraphType]) -> dict[tuple[str, str, str], str]:
    """Return the id of each attribute; properties of one name and type share it, whatever type of entity has them."""
    keys: dict[tuple[str, str, str], str] = {}
    for type_ in types:
        for name, property_ in (("type", None), *shown_properties(type_).items()):
            keys.setdefault((type_.kind, name, _attribute_type(property_)), f"k{len(keys)}")
    return keys


def _attribute_type(property_: Property | None) -> str:
    if property_ is None or property_.type.is_list:
        return "string"
    return _TYPES.get(property_.type.scalar, "string")


def _parts(type_: GraphType, batch: pa.RecordBatch, keys: Mapping[tuple[str, str, str], str]) -> Iterator[Any]:
    """Yield literal texts and columns of text that make up the elements of a batch."""
    if isinstance(type_, EdgeType):
        for member, column, name in (("id", "id", type_.name), ("source", "src", type_.source)):
            yield f'{"<edge" if member == "id" else ""} {member}="{name}:'
            yield escape_xml(batch.column(column))
            yield '"'
        yield f' target="{type_.target}:'
        yield escape_xml(batch.column("dst"))
    else:
        yield f'<node id="{type_.name}:'
        yield escape_xml(batch.column("id"))
    yield f'"><data key="{keys[type_.kind, "type", "string"]}">{type_.name}</data>'
    for name, property_ in shown_properties(type_).items():
        key = keys[type_.kind, name, _attribute_type(property_)]
        text = escape_xml(plain_text(batch.column(name)))
        # An element is left out where there is no value.
        yield pc.fill_null(pc.binary_join_element_wise(f'<data key="{key}">', text, "</data>", ""), "")
    yield f"</{type_.kind}>\n"
