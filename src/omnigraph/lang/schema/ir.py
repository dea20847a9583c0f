"""The schema IR: a shape with an identity for every type, property and table, as it is stored with the graph.

Pure values. Names may change, identities never do, and none is handed out twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from omnigraph.lang.schema.decode import decode_types
from omnigraph.lang.schema.encode import Identities, TypeIds, encode_shape
from omnigraph.lang.schema.integrity import check_integrity, is_same_json, malformed
from omnigraph.lang.schema.shape import SchemaShape, TypeShape, canonical_hash
from omnigraph.lang.schema.syntax import Kind

IR_VERSION: Final = 2
KINDS: Final[tuple[Kind, ...]] = ("interface", "node", "edge")


@dataclass(frozen=True)
class SchemaIR:
    """An accepted schema of one graph; `domain` is the graph's own and tells its identities from another graph's."""

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
        """Return the stored form; `from_json` takes it back unchanged."""
        return {
            "ir_version": IR_VERSION,
            "identity_domain": self.domain,
            "next_identity_id": self.next_identity_id,
            **encode_shape(self.shape, self.identities),
        }

    @staticmethod
    def from_json(value: object) -> SchemaIR:
        """Read the stored form; raises `LanguageError` with I7 for anything that `to_json` would not write."""
        if not isinstance(value, dict):
            raise malformed("it is not an object")
        if value.get("ir_version") != IR_VERSION:
            raise malformed(f"`ir_version` is not {IR_VERSION}")
        try:
            shape, identities = decode_types(value)
            ir = SchemaIR(value["identity_domain"], value["next_identity_id"], shape, identities)
            written = ir.to_json()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise malformed(f"{type(error).__name__} {error}") from None
        # What was read is written again and compared, so that nothing unknown or out of place slips through.
        if not is_same_json(written, value):
            raise malformed("it is not in canonical form: an unknown member, a wrong reference or another order")
        check_integrity(ir.domain, ir.next_identity_id, shape, identities)
        return ir
