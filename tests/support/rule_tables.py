"""A graph held in dictionaries, as the set rules ask for it, and short ways to write types and deltas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.lang.catalog import Catalog, EdgeType, NodeType, TypeKey
from omnigraph.lang.diagnostic import Source
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.schema.arrow_schema import arrow_schema
from omnigraph.rules.delta import Changes, Delta, Intent

DOMAIN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
Row = dict[str, Any]


def catalog(schema: str) -> Catalog:
    return compile_schema(Source("schema.pg", schema), domain=DOMAIN).catalog


def table(type_: NodeType | EdgeType, rows: Sequence[Row]) -> pa.Table:
    """Return rows as a table of the type; members that are left out are null."""
    schema = arrow_schema(type_)
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def change(
    types: Catalog,
    rows: Mapping[TypeKey, Sequence[Row]],
    intent: Intent = Intent.UPSERT,
    deleted: Mapping[TypeKey, Sequence[str]] | None = None,
    *,
    numbered: bool = False,
) -> Changes:
    """Return a write of these rows, and of these deletions."""
    gone = deleted or {}
    deltas: dict[TypeKey, Delta] = {}
    for key in sorted({*rows, *gone}):
        type_ = types.type_of(key)
        own = table(type_, rows.get(key, ()))
        lines = np.arange(1, own.num_rows + 1) if numbered else None
        deltas[key] = Delta(type_, own, intent, pa.array(gone.get(key, ()), pa.string()), lines)
    return Changes(types, deltas)


class Held:
    """Committed rows in plain lists; answers slowly and obviously."""

    def __init__(self, types: Catalog, rows: Mapping[TypeKey, Sequence[Row]]) -> None:
        self._types = types
        self._rows = rows

    def existing(self, table_key: TypeKey, ids: Any) -> Any:
        held = {row["id"] for row in self._rows.get(table_key, ())}
        return pa.array([one for one in ids.to_pylist() if one in held], pa.string())

    def matching(self, table_key: TypeKey, columns: Sequence[str], where: Mapping[str, Any]) -> pa.Table:
        wanted = {name: set(values.to_pylist()) for name, values in where.items()}
        whole = table(self._types.type_of(table_key), self._rows.get(table_key, ()))
        fits = [all(row[name] in values for name, values in wanted.items()) for row in whole.to_pylist()]
        return whole.filter(pa.array(fits, pa.bool_())).select(list(columns))
