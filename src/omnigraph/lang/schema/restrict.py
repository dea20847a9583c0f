"""Restricts a schema to some of its types, as text and as IR, for those who may not know of the others.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Final, TypeVar

from omnigraph.lang.catalog import Catalog
from omnigraph.lang.schema.encode import Identities
from omnigraph.lang.schema.ir import SchemaIR
from omnigraph.lang.schema.parser import parse_schema
from omnigraph.lang.source import Source

V = TypeVar("V")

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
