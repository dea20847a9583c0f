"""The difference between two catalogs, as datasets see it: types that come, go and stay, and their columns.

Pure. Compares by identity, never by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from omnigraph.lang.catalog import Catalog, EdgeType, NodeType
from omnigraph.lang.schema.arrow_schema import arrow_schema
from omnigraph.store.lance_schema import physical_schema

Type = NodeType | EdgeType


@dataclass(frozen=True, slots=True)
class Columns:
    """How the columns of one dataset change; names are those before the change, except of what is added."""

    added: tuple[pa.Field[Any], ...]
    dropped: tuple[str, ...]
    renamed: Mapping[str, str]

    @property
    def changed(self) -> bool:
        return bool(self.added or self.dropped or self.renamed)


@dataclass(frozen=True, slots=True)
class Reshaping:
    """Types by what becomes of them, each in name order; `kept` pairs every old type with its successor."""

    added: tuple[Type, ...]
    kept: tuple[tuple[Type, Type], ...]
    dropped: tuple[Type, ...]


def compare(old: Catalog, new: Catalog) -> Reshaping:
    """Pair the types of two catalogs by identity."""
    before, after = _by_identity(old), _by_identity(new)
    return Reshaping(
        tuple(type_ for identity, type_ in after.items() if identity not in before),
        tuple((before[identity], type_) for identity, type_ in after.items() if identity in before),
        tuple(type_ for identity, type_ in before.items() if identity not in after),
    )


def compare_columns(old: Type, new: Type) -> Columns:
    """Pair the properties of two lives of a type by identity."""
    before = {property_.property_id: property_.name for property_ in old.properties.values()}
    after = {property_.property_id: property_.name for property_ in new.properties.values()}
    fields = physical_schema(arrow_schema(new))
    return Columns(
        tuple(fields.field(name) for identity, name in after.items() if identity not in before),
        tuple(name for identity, name in before.items() if identity not in after),
        {name: after[identity] for identity, name in before.items() if after.get(identity, name) != name},
    )


def _by_identity(catalog: Catalog) -> dict[tuple[int, int], Type]:
    types: list[Type] = [*catalog.nodes.values(), *catalog.edges.values()]
    return {(type_.type_id, type_.incarnation_id): type_ for type_ in types}
