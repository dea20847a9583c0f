"""Checks that a stored schema holds together: identities, order and references (I7).

Pure. Guards what is read from disk; a compiled schema passes by construction.
"""

from __future__ import annotations

import re
from typing import Final

from omnigraph.lang.diagnostic import Diagnostic, LanguageError
from omnigraph.lang.schema.encode import Identities, TypeIds
from omnigraph.lang.schema.shape import EdgeShape, NodeShape, SchemaShape, TypeShape
from omnigraph.lang.source import Source, Span

DOMAIN: Final = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
IDENTITY_MAX: Final = 2**64 - 1
_SOURCE: Final = Source("schema IR", "")


def malformed(message: str) -> LanguageError:
    """Return the I7 error for a stored schema."""
    hint = "the stored schema was changed by hand or by another program; restore it from an earlier commit"
    return LanguageError(diagnostics=(Diagnostic("I7", f"malformed schema IR: {message}", _SOURCE, Span(0, 0), hint),))


def is_same_json(left: object, right: object) -> bool:
    """Compare JSON values, number types included: Python holds True == 1 == 1.0, a stored schema does not."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(is_same_json(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(is_same_json(a, b) for a, b in zip(left, right, strict=True))
    return type(left) is type(right) and left == right


def check_integrity(domain: object, next_identity_id: object, shape: SchemaShape, identities: Identities) -> None:
    """Raise I7 unless the identities are sound and every reference leads somewhere."""
    if not isinstance(domain, str) or not DOMAIN.fullmatch(domain):
        raise malformed("`identity_domain` is not an upper-case ULID")
    ids: list[object] = [next_identity_id]
    for types, type_ids, has_table in (
        (shape.interfaces, identities.interfaces, False),
        (shape.nodes, identities.nodes, True),
        (shape.edges, identities.edges, True),
    ):
        _check_order("types", [type_.name for type_ in types])
        for type_ in types:
            ids += _own_ids(type_, type_ids[type_.name], has_table)
    if not all(type(item) is int and 1 <= item <= IDENTITY_MAX for item in ids):
        raise malformed("an identity is not a positive 64-bit integer")
    if len(set(ids)) != len(ids):
        raise malformed("one identity is used twice")
    if next_identity_id != max(item for item in ids if isinstance(item, int)):
        raise malformed("`next_identity_id` is not above every identity in use")
    _check_references(shape)


def _check_order(what: str, names: list[str]) -> None:
    if names != sorted(set(names)):
        raise malformed(f"its {what} are not sorted by name, or one is there twice")


def _own_ids(shape: TypeShape, ids: TypeIds, has_table: bool) -> list[object]:
    _check_order(f"properties of `{shape.name}`", [item.name for item in shape.properties])
    if (ids.incarnation_id is not None) != has_table:
        raise malformed(f"`{shape.name}` must have a table incarnation exactly if it is a node or an edge")
    return [ids.type_id, *ids.property_ids.values(), *([ids.incarnation_id] if has_table else [])]


def _check_references(shape: SchemaShape) -> None:
    interfaces, nodes = {item.name for item in shape.interfaces}, {item.name for item in shape.nodes}
    for node in shape.nodes:
        if not set(node.implements) <= interfaces:
            raise malformed(f"`{node.name}` implements an interface that is not there")
    for edge in shape.edges:
        if not {edge.source, edge.target} <= nodes:
            raise malformed(f"`{edge.name}` ends at a node type that is not there")
    owners: tuple[NodeShape | EdgeShape, ...] = (*shape.nodes, *shape.edges)
    for owner in owners:
        known = {item.name for item in owner.properties} | ({"src", "dst"} if isinstance(owner, EdgeShape) else set())
        named = {column for item in owner.constraints for column in item.columns}
        named |= {item.embed.source for item in owner.properties if item.embed is not None}
        if not named <= known:
            raise malformed(f"a constraint or embedding of `{owner.name}` names a property that is not there")
