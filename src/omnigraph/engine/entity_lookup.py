"""Look up an entity by its type and key: the key as a caller writes it, the id that it stands for, and the row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from omnigraph.engine.arguments import check_type
from omnigraph.engine.query.result import Result
from omnigraph.engine.session import View
from omnigraph.errors import UsageError
from omnigraph.lang.catalog import INTEGERS, Catalog, EdgeType, NodeType, PropertyType, Scalar
from omnigraph.lang.diagnostic import did_you_mean
from omnigraph.lang.schema.key_ids import key_id, key_member_type
from omnigraph.rules.coerce import Misfit, fit, shown
from omnigraph.store.read.lookup import find_rows

_COLUMNS_OF_ENDS: Final = {"from": "src", "to": "dst"}
_DIGITS_MAX: Final = 20


def get_entity(view: View, type_name: str, key: object) -> dict[str, Any] | None:
    """Return an entity of a view by its key or id, or None; blobs are left out."""
    rows = find_entity(view, type_name, key).rows()
    return rows[0] if rows else None


def find_entity(view: View, type_name: str, key: object) -> Result:
    """Return an entity of a view as a result of at most one row."""
    check_type("type_name", type_name, str)
    type_ = find_type(view.catalog, type_name)
    ids: Any = pa.array([entity_id(type_, key)], pa.string())
    table = find_rows(view.dataset(type_.table_key), entity_columns(type_), {"id": ids}).select(entity_columns(type_))
    return Result(rename_ends(type_, table), type_.name, view.snapshot.branch, view.snapshot.head)


def find_type(catalog: Catalog, name: str) -> NodeType | EdgeType:
    """Return a node type by name, or else an edge type."""
    type_ = catalog.nodes.get(name) or catalog.edges.get(name)
    if type_ is None:
        known = sorted({*catalog.nodes, *catalog.edges})
        hint = did_you_mean(str(name), known, otherwise=f"the graph has: {', '.join(known)}")
        raise UsageError(f"there is no type `{name}`; {hint}", type=str(name))
    return type_


def entity_id(type_: NodeType | EdgeType, key: object) -> str:
    """Return the id of the entity that has a key; numbers of a key may be written as text."""
    if not type_.key or (isinstance(type_, EdgeType) and isinstance(key, str)):
        if not isinstance(key, str):
            raise UsageError(
                f"`{type_.name}` has no key; pass the `id` of the entity, not {shown(key)}", type=type_.name
            )
        return key
    values = key if isinstance(key, Mapping) else {type_.key[0]: key} if len(type_.key) == 1 else {}
    if isinstance(type_, EdgeType):
        values = {_COLUMNS_OF_ENDS.get(str(name), str(name)): value for name, value in values.items()}
    if set(values) != set(type_.key):
        ends = {column: end for end, column in _COLUMNS_OF_ENDS.items()} if isinstance(type_, EdgeType) else {}
        needed = ", ".join(f"`{ends.get(name, name)}`" for name in type_.key)
        raise UsageError(f"the key of `{type_.name}` is {needed}; pass a mapping with these names", type=type_.name)
    try:
        return key_id(type_, {name: _key_value(values[name], key_member_type(type_, name)) for name in type_.key})
    except Misfit as misfit:
        raise UsageError(f"{shown(key)} is not a key of `{type_.name}`: {misfit.reason}", type=type_.name) from None


def _key_value(value: object, type_: PropertyType) -> Any:
    is_integer = isinstance(value, str) and type_.scalar in INTEGERS and value.removeprefix("-").isdecimal()
    return fit(int(str(value)) if is_integer and len(str(value)) <= _DIGITS_MAX else value, type_)


def entity_columns(type_: NodeType | EdgeType) -> list[str]:
    """Return the columns that describe an entity: all but blobs."""
    return [
        "id",
        *type_.ends,
        *(name for name, item in type_.properties.items() if item.type.scalar is not Scalar.BLOB),
    ]


def rename_ends(type_: NodeType | EdgeType, table: pa.Table) -> pa.Table:
    """Return a table of edges with the ends called `from` and `to`, as everywhere but in storage."""
    names = {"src": "from", "dst": "to"} if isinstance(type_, EdgeType) else {}
    return table.rename_columns([names.get(name, name) for name in table.column_names])
