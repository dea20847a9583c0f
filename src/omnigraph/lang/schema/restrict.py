"""Removes hidden types and properties from a schema, as source text and as IR.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Final, TypeVar

from omnigraph.lang.catalog import Catalog
from omnigraph.lang.diagnostic import Source
from omnigraph.lang.schema.codec import Identities, TypeIds
from omnigraph.lang.schema.ir import SchemaIR
from omnigraph.lang.schema.parser import parse_schema
from omnigraph.lang.schema.shape import EdgeShape, NodeShape

V = TypeVar("V")
S = TypeVar("S", NodeShape, EdgeShape)

_STRING: Final = r'"(?:[^"\\]|\\.)*"'
_COMMENT: Final = re.compile(rf"({_STRING})|[ \t]*(?:(//[^\n]*)|/\*.*?\*/)", re.DOTALL)
_BLANK_LINES: Final = re.compile(rf"({_STRING})|\n(?:[ \t]*\r?\n)+", re.DOTALL)


def with_their_edges(catalog: Catalog, hidden: Set[str]) -> frozenset[str]:
    """Return the hidden types and all edge types with a hidden endpoint."""
    edges = (edge.name for edge in catalog.edges.values() if edge.source in hidden or edge.target in hidden)
    return frozenset(hidden).union(edges)


def restrict_ir(ir: SchemaIR, hidden: Set[str]) -> SchemaIR:
    """Return an IR without some node and edge types; identities stay the same."""
    shape = replace(
        ir.shape,
        nodes=tuple(node for node in ir.shape.nodes if node.name not in hidden),
        edges=tuple(edge for edge in ir.shape.edges if edge.name not in hidden),
    )
    ids = ir.identities
    return SchemaIR(
        ir.domain,
        ir.next_identity_id,
        shape,
        Identities(ids.interfaces, _without(ids.nodes, hidden), _without(ids.edges, hidden)),
    )


def without_properties(ir: SchemaIR, property_ids: Set[int]) -> SchemaIR:
    """Return an IR without some properties, and without the constraints and embeddings that name one of them."""
    if not property_ids:
        return ir
    ids = ir.identities
    shape = replace(
        ir.shape,
        nodes=tuple(_without_properties(node, ids.nodes[node.name], property_ids) for node in ir.shape.nodes),
        edges=tuple(_without_properties(edge, ids.edges[edge.name], property_ids) for edge in ir.shape.edges),
    )
    nodes, edges = (
        {name: _kept_ids(type_ids, property_ids) for name, type_ids in by_name.items()}
        for by_name in (ids.nodes, ids.edges)
    )
    return SchemaIR(ir.domain, ir.next_identity_id, shape, Identities(ids.interfaces, nodes, edges))


def _without_properties(type_: S, ids: TypeIds, property_ids: Set[int]) -> S:
    removed = {name for name, property_id in ids.property_ids.items() if property_id in property_ids}
    return replace(
        type_,
        properties=tuple(
            replace(item, embed=None) if item.embed is not None and item.embed.source in removed else item
            for item in type_.properties
            if item.name not in removed
        ),
        constraints=tuple(item for item in type_.constraints if not removed & set(item.columns)),
    )


def _kept_ids(ids: TypeIds, property_ids: Set[int]) -> TypeIds:
    return replace(ids, property_ids={name: id_ for name, id_ in ids.property_ids.items() if id_ not in property_ids})


def restrict_source(text: str, hidden: Set[str]) -> str:
    """Return a schema without some node and edge types, and without comments, which may mention them.

    >>> restrict_source("// of B\\nnode A {}\\nnode B {} // and A\\nedge E: A -> A\\n", {"B"})
    'node A {}\\nedge E: A -> A\\n'
    """
    plain = _COMMENT.sub(lambda match: match[1] or ("" if match[2] else " "), text)
    declarations = parse_schema(Source("schema.pg", plain))
    # Without comments, there is only white space between the keyword of a declaration and its name.
    starts = [plain.rindex(item.kind, 0, item.name.span.start) for item in declarations]
    parts = [
        plain[start:end].rstrip() + "\n"
        for item, start, end in zip(declarations, starts, [*starts[1:], len(plain)], strict=True)
        if item.kind == "interface" or item.name.text not in hidden
    ]
    return _BLANK_LINES.sub(lambda match: match[1] or "\n", "".join(parts))


def _without(types: Mapping[str, V], hidden: Set[str]) -> dict[str, V]:
    return {name: type_ for name, type_ in types.items() if name not in hidden}
