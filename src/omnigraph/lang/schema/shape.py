"""The shape of a schema: its content, expanded and in canonical order, without identities.

Pure values. Source order, comments and rename hints leave no trace here, so equal shapes have equal hashes.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from omnigraph.lang.catalog import Cardinality, Default, Embed, MergeRule, PropertyType

ConstraintKind = Literal["key", "unique", "index", "range", "check"]
# The constraints that a property may carry itself.
MARKS: Final = ("index", "key", "unique")


@dataclass(frozen=True, slots=True, order=True)
class OpaqueAnnotation:
    """An annotation that the language keeps without knowing its meaning."""

    name: str
    value: str | None = None
    keywords: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PropertyShape:
    """A property. `marks` are its property-form constraints; `is_injected` if an interface supplied it."""

    name: str
    type: PropertyType
    marks: tuple[str, ...] = ()
    embed: Embed | None = None
    description: str | None = None
    annotations: tuple[OpaqueAnnotation, ...] = ()
    is_injected: bool = False
    merge: MergeRule | None = None
    default: Default | None = None


@dataclass(frozen=True, slots=True)
class ConstraintShape:
    """A body constraint over columns in name order; bounds and pattern belong to `range` and `check`."""

    kind: ConstraintKind
    columns: tuple[str, ...]
    minimum: int | float | None = None
    maximum: int | float | None = None
    pattern: str | None = None

    @property
    def sort_key(self) -> tuple[str, tuple[str, ...], str]:
        return self.kind, self.columns, f"{self.minimum} {self.maximum} {self.pattern}"

    def __str__(self) -> str:
        if self.kind == "range":
            low, high = ("" if bound is None else str(bound) for bound in (self.minimum, self.maximum))
            return f"@range({self.columns[0]}, {low}..{high})"
        if self.kind == "check":
            return f"@check({self.columns[0]}, {json.dumps(self.pattern, ensure_ascii=False)})"
        return f"@{self.kind}({', '.join(self.columns)})"


@dataclass(frozen=True, slots=True)
class InterfaceShape:
    name: str
    properties: tuple[PropertyShape, ...]


@dataclass(frozen=True, slots=True)
class NodeShape:
    name: str
    properties: tuple[PropertyShape, ...]
    constraints: tuple[ConstraintShape, ...] = ()
    implements: tuple[str, ...] = ()
    description: str | None = None
    instruction: str | None = None
    annotations: tuple[OpaqueAnnotation, ...] = ()
    merge: MergeRule | None = None


@dataclass(frozen=True, slots=True)
class EdgeShape:
    name: str
    source: str
    target: str
    properties: tuple[PropertyShape, ...]
    constraints: tuple[ConstraintShape, ...]
    cardinality: Cardinality
    description: str | None = None
    instruction: str | None = None
    annotations: tuple[OpaqueAnnotation, ...] = ()
    merge: MergeRule | None = None


TypeShape: TypeAlias = InterfaceShape | NodeShape | EdgeShape


@dataclass(frozen=True, slots=True)
class SchemaShape:
    """All types, each kind in name order."""

    interfaces: tuple[InterfaceShape, ...]
    nodes: tuple[NodeShape, ...]
    edges: tuple[EdgeShape, ...]


def canonical_hash(value: object) -> str:
    """Return `sha256:` and the digest of a JSON value, independent of the order of its keys.

    >>> canonical_hash({"a": 1, "b": 2}) == canonical_hash({"b": 2, "a": 1})
    True
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
