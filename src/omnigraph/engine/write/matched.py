"""Runs the pattern of a statement on the committed state, and turns its rows into ids and columns to store.

Vectorised: the query engine gives columns, which are cast to the stored types and aligned by id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.engine.json_text import json_text
from omnigraph.engine.query.budget import DEFAULT_BUDGET, BudgetUsage, charge_to, report_arrow_overflow
from omnigraph.engine.query.context import Caches, QueryRun
from omnigraph.engine.query.physical_plan import ReadPlan
from omnigraph.engine.session import View
from omnigraph.errors import DataError
from omnigraph.lang.catalog import EdgeType, NodeType, PropertyType
from omnigraph.lang.query import ir
from omnigraph.lang.schema.arrow_schema import arrow_type
from omnigraph.rules.arrow_typing import pc
from omnigraph.rules.delta import Ids, one_array


class PatternReader:
    """Runs patterns against one view with the parameters and the time of a mutation."""

    def __init__(self, view: View, params: Mapping[str, Any], now_ms: int, caches: Caches) -> None:
        self._view = view
        self._params = params
        self._now_ms = now_ms
        self._caches = caches

    def rows(self, read: ir.ReadIR) -> pa.Table:
        """Return the rows of a read."""
        run = QueryRun(self._view, self._params, self._now_ms, BudgetUsage(DEFAULT_BUDGET), self._caches, None)
        try:
            with charge_to(run.spending), report_arrow_overflow(run.spending):
                return ReadPlan(read, self._view.catalog).run(run).combine_chunks()
        finally:
            self._caches.trim()


def stored_columns(
    type_: NodeType | EdgeType, rows: pa.Table, types: tuple[PropertyType, ...], names: list[str]
) -> dict[str, Any]:
    """Return columns in the types that they are stored in; E4 for a value that does not fit."""
    stored = {}
    for name, expected in zip(names, types, strict=True):
        target = arrow_type(expected)
        try:
            stored[name] = one_array(rows.column(name)).cast(target)
        except pa.ArrowInvalid as error:
            raise DataError(
                f"a computed value does not fit `{type_.name}.{name}`, which is {expected}: {error}",
                rule="E4",
                property=f"{type_.name}.{name}",
            ) from None
    return stored


def first_of_each(type_: NodeType | EdgeType, ids: Ids, columns: Mapping[str, Any]) -> Any:
    """Return the positions of the first row of each id; rows of one id with different values are an error.

    Which of them would win is undefined, so none does.
    """
    firsts = _first_positions(ids)
    if len(firsts) == len(ids):
        return firsts
    origin = firsts.take(pc.index_in(ids, value_set=ids.take(firsts)))
    for name, values in columns.items():
        texts = json_text(values) if pa.types.is_nested(values.type) else values
        repeated = texts.take(origin)
        same = pc.fill_null(pc.equal(texts, repeated), False)
        both_null = pc.and_(pc.is_null(texts), pc.is_null(repeated))
        differing = np.flatnonzero(~np.asarray(pc.or_(same, both_null)))
        if len(differing):
            entity = ids[int(differing[0])].as_py()
            raise DataError(
                f"the pattern gives `{type_.name}` `{entity}` several values for `{name}`; nothing was written. Narrow"
                " the pattern until each entity has one value",
                rule="E4",
                property=f"{type_.name}.{name}",
                entity_id=entity,
            )
    return firsts


def _first_positions(ids: Ids) -> Any:
    encoded = ids.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    _, first = np.unique(encoded, return_index=True)
    return pa.array(np.sort(first))
