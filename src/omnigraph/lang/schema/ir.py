"""The schema IR: a shape with an identity for every type, property and table, as it is stored with the graph.

Pure values. Names may change, identities never do, and none is handed out twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from omnigraph.lang.diagnostic import Diagnostic, LanguageError, Source, Span
from omnigraph.lang.schema.ast import Kind
from omnigraph.lang.schema.codec import Identities, TypeIds, decode_types, encode_shape
from omnigraph.lang.schema.shape import EdgeShape, NodeShape, SchemaShape, TypeShape, canonical_hash

DOMAIN: Final = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
IDENTITY_MAX: Final = 2**64 - 1
# Main and every branch that changes its schema number new identities in a space of their own: the upper bits of the
# number. So no two branches ever give the same number to different things. Main's space is 0.
_SPACE_BITS: Final = 32
_SOURCE: Final = Source("schema IR", "")


def malformed(message: str) -> LanguageError:
    """Return the I7 error for a stored schema."""
    hint = "the stored schema was changed by hand or by another program; restore it from an earlier commit"
    return LanguageError(diagnostics=(Diagnostic("I7", f"malformed schema IR: {message}", _SOURCE, Span(0, 0), hint),))


def first_identity(accepted_next: int, space: int) -> int:
    """Return the next identity to give in a space; `accepted_next` is that of the accepted schema, of any space.

    >>> first_identity(7, 0), first_identity(7, 3) == 3 * 2**32 + 1, first_identity(3 * 2**32 + 5, 3) == 3 * 2**32 + 5
    (7, True, True)
    """
    is_own = space == 0 or accepted_next >> _SPACE_BITS == space
    return accepted_next if is_own else (space << _SPACE_BITS) + 1


def later_identity(ours: int, theirs: int) -> int:
    """Return our next identity, or theirs if it is later in the same space.

    A branch that has added nothing yet still has the counter of the branch that it came from.
    """
    return max(ours, theirs) if ours >> _SPACE_BITS == theirs >> _SPACE_BITS else ours


def is_exhausted(next_identity_id: int, space: int) -> bool:
    """Return True if the next identity does not fit its space any more."""
    return next_identity_id > IDENTITY_MAX or (space > 0 and next_identity_id >> _SPACE_BITS != space)


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
    assert isinstance(next_identity_id, int)
    space = next_identity_id >> _SPACE_BITS
    if next_identity_id != max(item for item in ids if isinstance(item, int) and item >> _SPACE_BITS == space):
        raise malformed("`next_identity_id` is not above every identity in use")
    _check_references(shape)


def _check_order(subject: str, names: list[str]) -> None:
    if names != sorted(set(names)):
        raise malformed(f"its {subject} are not sorted by name, or one is there twice")


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
        columns = {item.name for item in owner.properties} | ({"src", "dst"} if isinstance(owner, EdgeShape) else set())
        named = {column for item in owner.constraints for column in item.columns}
        named |= {item.embed.source for item in owner.properties if item.embed is not None}
        if not named <= columns:
            raise malformed(f"a constraint or embedding of `{owner.name}` names a property that is not there")


# Schemas without keyed edges and defaults keep the version, and with it the hash, that they always had. Releases that
# do not know these refuse the later version: they would write edges whose ids do not follow from the key.
IR_VERSION: Final = 2
IR_VERSION_WITH_EDGE_KEYS: Final = 3
KINDS: Final[tuple[Kind, ...]] = ("interface", "node", "edge")


def _version_of(shape: SchemaShape) -> int:
    types: tuple[TypeShape, ...] = (*shape.interfaces, *shape.nodes, *shape.edges)
    has_defaults = any(item.default is not None for type_ in types for item in type_.properties)
    has_edge_keys = any(
        any(item.kind == "key" for item in edge.constraints) or any("key" in item.marks for item in edge.properties)
        for edge in shape.edges
    )
    return IR_VERSION_WITH_EDGE_KEYS if has_defaults or has_edge_keys else IR_VERSION


@dataclass(frozen=True)
class SchemaIR:
    """An accepted schema; `domain` is unique to its graph, so that identities of different graphs never mix."""

    domain: str
    next_identity_id: int
    shape: SchemaShape
    identities: Identities

    def types(self, kind: Kind) -> Mapping[str, TypeShape]:
        """Return the types of one kind by name."""
        return self._types[kind]

    def ids(self, kind: Kind) -> Mapping[str, TypeIds]:
        """Return the identities of one kind by type name."""
        if kind == "interface":
            return self.identities.interfaces
        return self.identities.nodes if kind == "node" else self.identities.edges

    @cached_property
    def _types(self) -> Mapping[Kind, Mapping[str, TypeShape]]:
        return {
            "interface": {shape.name: shape for shape in self.shape.interfaces},
            "node": {shape.name: shape for shape in self.shape.nodes},
            "edge": {shape.name: shape for shape in self.shape.edges},
        }

    @cached_property
    def hash(self) -> str:
        """Name this exact schema, identities included."""
        return canonical_hash(self.to_json())

    def to_json(self) -> dict[str, object]:
        """Return the stored form; `from_json` reverses it exactly."""
        return {
            "ir_version": _version_of(self.shape),
            "identity_domain": self.domain,
            "next_identity_id": self.next_identity_id,
            **encode_shape(self.shape, self.identities),
        }

    @staticmethod
    def from_json(value: object) -> SchemaIR:
        """Read the stored form; raises `LanguageError` with I7 for anything that `to_json` would not write."""
        if not isinstance(value, dict):
            raise malformed("it is not an object")
        if value.get("ir_version") not in (IR_VERSION, IR_VERSION_WITH_EDGE_KEYS):
            raise malformed(f"`ir_version` is neither {IR_VERSION} nor {IR_VERSION_WITH_EDGE_KEYS}")
        try:
            shape, identities = decode_types(value)
            ir = SchemaIR(value["identity_domain"], value["next_identity_id"], shape, identities)
            written = ir.to_json()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise malformed(f"{type(error).__name__} {error}") from None
        # Round trip: encoding the result again must give the same JSON, so unknown or misplaced fields are detected.
        if not is_same_json(written, value):
            raise malformed("it is not in canonical form: an unknown member, a wrong reference or another order")
        check_integrity(ir.domain, ir.next_identity_id, shape, identities)
        return ir
