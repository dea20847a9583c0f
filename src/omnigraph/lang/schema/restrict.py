"""Restricts a schema to some of its types and properties, as text and as IR, for those who may not read the others.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Final, TypeVar

from omnigraph.lang.catalog import Catalog
from omnigraph.lang.schema.codec import Identities, TypeIds
from omnigraph.lang.schema.ir import SchemaIR
from omnigraph.lang.schema.parser import parse_schema
from omnigraph.lang.schema.shape import EdgeShape, NodeShape
from omnigraph.lang.source import Source

V = TypeVar("V")
S = TypeVar("S", NodeShape, EdgeShape)

_STRING: Final = r'"(?:[^"\\]|\\.)*"'
_COMMENT: Final = re.compile(rf"({_STRING})|[ \t]*(?:(//[^\n]*)|/\*.*?\*/)", re.DOTALL)
_BLANK_LINES: Final = re.compile(rf"({_STRING})|\n(?:[ \t]*\r?\n)+", re.DOTALL)


def with_their_edges(catalog: Catalog, hidden: Set[str]) -> frozenset[str]:
    """Return some types, and all edges that have one of them at an end."""
    edges = (one.name for one in catalog.edges.values() if one.source in hidden or one.target in hidden)
    return frozenset(hidden).union(edges)


def restrict_ir(ir: SchemaIR, hidden: Set[str]) -> SchemaIR:
    """Return an IR without some node and edge types; identities stay what they are."""
    shape = replace(
        ir.shape,
        nodes=tuple(one for one in ir.shape.nodes if one.name not in hidden),
        edges=tuple(one for one in ir.shape.edges if one.name not in hidden),
    )
    own = ir.identities
    return SchemaIR(
        ir.domain,
        ir.next_identity_id,
        shape,
        Identities(own.interfaces, _without(own.nodes, hidden), _without(own.edges, hidden)),
    )


def without_properties(ir: SchemaIR, property_ids: Set[int]) -> SchemaIR:
    """Return an IR without some properties, and without the constraints and embeddings that name one of them."""
    if not property_ids:
        return ir
    own = ir.identities
    shape = replace(
        ir.shape,
        nodes=tuple(_without_properties(one, own.nodes[one.name], property_ids) for one in ir.shape.nodes),
        edges=tuple(_without_properties(one, own.edges[one.name], property_ids) for one in ir.shape.edges),
    )
    nodes, edges = ({name: _kept_ids(one, property_ids) for name, one in ids.items()} for ids in (own.nodes, own.edges))
    return SchemaIR(ir.domain, ir.next_identity_id, shape, Identities(own.interfaces, nodes, edges))


def _without_properties(type_: S, ids: TypeIds, property_ids: Set[int]) -> S:
    gone = {name for name, property_id in ids.property_ids.items() if property_id in property_ids}
    return replace(
        type_,
        properties=tuple(
            replace(one, embed=None) if one.embed is not None and one.embed.source in gone else one
            for one in type_.properties
            if one.name not in gone
        ),
        constraints=tuple(one for one in type_.constraints if not gone & set(one.columns)),
    )


def _kept_ids(ids: TypeIds, property_ids: Set[int]) -> TypeIds:
    return replace(ids, property_ids={name: one for name, one in ids.property_ids.items() if one not in property_ids})


def restrict_source(text: str, hidden: Set[str]) -> str:
    """Return a schema without some node and edge types, and without comments: they may speak of what is hidden.

    >>> restrict_source("// of B\\nnode A {}\\nnode B {} // and A\\nedge E: A -> A\\n", {"B"})
    'node A {}\\nedge E: A -> A\\n'
    """
    plain = _COMMENT.sub(lambda match: match[1] or ("" if match[2] else " "), text)
    declarations = parse_schema(Source("schema.pg", plain))
    # Without comments, only blanks are between the word that begins a declaration and its name.
    starts = [plain.rindex(one.kind, 0, one.name.span.start) for one in declarations]
    parts = [
        plain[start:end].rstrip() + "\n"
        for one, start, end in zip(declarations, starts, [*starts[1:], len(plain)], strict=True)
        if one.kind == "interface" or one.name.text not in hidden
    ]
    return _BLANK_LINES.sub(lambda match: match[1] or "\n", "".join(parts))


def _without(types: Mapping[str, V], hidden: Set[str]) -> dict[str, V]:
    return {name: one for name, one in types.items() if name not in hidden}
