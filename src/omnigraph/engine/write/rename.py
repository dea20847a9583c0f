"""Give entities other keys: their ids change, and the edges of nodes are re-pointed to the new ids.

A keyed edge whose key holds a renamed end gets another id, too. Vectorised over pending and committed rows; the rules
check the result as they check every write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from omnigraph.engine.write.pending_changes import PendingChanges
from omnigraph.errors import DataError, KeyConflict
from omnigraph.lang.catalog import EdgeType, Type
from omnigraph.lang.schema.arrow_schema import key_ids
from omnigraph.rules.arrow_typing import Column, pc
from omnigraph.rules.delta import Ids, last_of_each, one_array, translate, without


def rename_entities(pending: PendingChanges, type_: Type, rows: pa.Table, values: Mapping[str, Column]) -> Counter[str]:
    """Put values, keys among them, into current rows; return the number of re-pointed edges by type.

    Ids are exchanged all at once, so that two entities can swap their keys.
    """
    old = one_array(rows.column("id"))
    new = _put_with_key(pending, type_, rows, values)
    is_moved = pc.not_equal(old, new)
    old, new = old.filter(is_moved), new.filter(is_moved)
    repointed: Counter[str] = Counter()
    if type_.kind == "node" and len(old):
        for name in pending.committed.view.catalog.edges_at(type_.name):
            repointed[name] = _repoint(pending, pending.committed.view.catalog.edges[name], type_.name, old, new)
    return repointed


def _put_with_key(pending: PendingChanges, type_: Type, rows: pa.Table, values: Mapping[str, Column]) -> Ids:
    """Put values into rows, whose ids follow from their keys; return the new ids."""
    pending_type = pending.of(type_)
    old, rows = one_array(rows.column("id")), pending_type.with_columns(rows, values)
    new = one_array(key_ids(type_, rows))
    is_moved = pc.not_equal(old, new)
    _check_free(pending, type_, old, new)
    stays = pc.invert(is_moved)
    if pc.any(stays).as_py():
        pending_type.update_columns(rows.filter(stays), {name: column.filter(stays) for name, column in values.items()})
    if pc.any(is_moved).as_py():
        pending_type.rename(pending_type.with_columns(rows, {"id": new}).filter(is_moved), old.filter(is_moved), values)
    return new


def _check_free(pending: PendingChanges, type_: Type, old: Ids, new: Ids) -> None:
    """Raise if two entities would have one id: two that are renamed (E5), or one of them and another (E11)."""
    again = np.setdiff1d(np.arange(len(new)), last_of_each(new))
    if len(again):
        entity = new[int(again[0])].as_py()
        raise DataError(
            f"several entities of `{type_.name}` would have the key `{entity}`; nothing was written. Narrow the"
            " condition, or give each another key",
            rule="E5",
            type_key=type_.table_key,
            entity_id=entity,
        )
    occupied_ids = one_array(pending.of(type_).current(without(new, old)).column("id"))
    if len(occupied_ids):
        entity = occupied_ids[0].as_py()
        more = f" and {len(occupied_ids) - 1} more" if len(occupied_ids) > 1 else ""
        raise KeyConflict(
            f"`{type_.name}` `{entity}`{more} exists already; nothing was written. Delete it first, or choose"
            " another key",
            rule="E11",
            type_key=type_.table_key,
            entity_id=entity,
        )


def _repoint(pending: PendingChanges, edge: EdgeType, node: str, old: Ids, new: Ids) -> int:
    """Let the edges of renamed nodes follow them; return how many there are."""
    pending_type = pending.of(edge)
    columns = [column for column, end in edge.ends.items() if end == node]
    edges = pending_type.incident(columns, old)
    if edges.num_rows:
        ends = {column: translate(one_array(edges.column(column)), old, new) for column in columns}
        if edge.key:
            _put_with_key(pending, edge, edges, ends)
        else:
            pending_type.update_columns(edges, ends)
    return edges.num_rows
