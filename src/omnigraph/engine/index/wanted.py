"""Which physical indexes the declarations of a type ask for.

Pure. The one table for whoever builds indexes and whoever asks whether any is missing.
"""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.lang.catalog import EdgeType, NodeType, Property
from omnigraph.lang.types import Scalar
from omnigraph.store.index import IndexKind, IndexSpec


def wanted_indexes(one: NodeType | EdgeType) -> tuple[IndexSpec, ...]:
    """Return the indexes of a type: ids and endpoints always, then every node property indexed or keyed on its own.

    Names carry the stable property id, so that they stay unique when properties swap names.
    """
    if isinstance(one, EdgeType):
        return tuple(_column(name) for name in ("id", "src", "dst"))
    declared = [one.properties[columns[0]] for columns in one.index if len(columns) == 1]
    return (_column("id"), *(spec for property_ in declared for spec in _property(property_)))


def _column(name: str) -> IndexSpec:
    return IndexSpec(name, IndexKind.BTREE, f"{name}_btree")


def _property(property_: Property) -> Iterator[IndexSpec]:
    for kind in _kinds(property_):
        yield IndexSpec(property_.name, kind, f"p{property_.property_id}_{kind.name.lower()}")


def _kinds(property_: Property) -> tuple[IndexKind, ...]:
    type_ = property_.type
    if type_.is_list or type_.scalar is Scalar.BLOB:
        return ()
    if type_.scalar is Scalar.VECTOR:
        return (IndexKind.VECTOR,)
    if type_.is_text and type_.enum_values is None:
        # The words of a text do not answer whether the whole of it equals something, so both kinds are built.
        return (IndexKind.FULLTEXT, IndexKind.BTREE)
    return (IndexKind.BTREE,)
