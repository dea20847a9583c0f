"""Set rules on edges: endpoints exist, deletes leave no dangling edges, and sources respect `@card`.

Set operations over key columns: union, difference and count. Only rows that the write affects are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.lang.catalog import Cardinality, Catalog, EdgeType, TypeKey
from omnigraph.rules.arrow_typing import pc
from omnigraph.rules.delta import (
    NO_IDS,
    Changes,
    Committed,
    Delta,
    Findings,
    Ids,
    Intent,
    Violation,
    is_among,
    last_of_each,
    one_array,
    without,
)

_SIDES: Final = (("src", "from", "source"), ("dst", "to", "target"))


def endpoints(changes: Changes, committed: Committed, findings: Findings) -> None:
    """E9: the endpoints of every written edge exist in the final image."""
    for delta in changes.deltas.values():
        if not isinstance(delta.type, EdgeType) or delta.rows.num_rows == 0:
            continue
        for column, word, side in _SIDES:
            node = getattr(delta.type, side)
            ends = delta.column(column)
            # Referential integrity as an anti join of distinct ends: one lookup per side, however many edges share a
            # node.
            missing = _missing(changes, committed, node, pc.unique(ends.drop_null()))
            for row in np.flatnonzero(is_among(ends, missing))[: findings.room].tolist():
                entity, end = str(delta.ids[row]), str(ends[row])
                message = (
                    f"the {side} of an edge `{delta.type.name}` does not exist: `{word}` is `{end}`, and there is no"
                    f" `{node}` with that id; write the `{node}` first, or in the same write"
                )
                findings.add(Violation("E9", message, delta.key, entity, word, end, delta.line(row)))


def _missing(changes: Changes, committed: Committed, node: str, ids: Ids) -> Ids:
    """Return the ids that no node of a type has in the final image."""
    # Final image = written rows, then committed rows without the deleted ones; cheapest first, storage last.
    delta = changes.node(node)
    if delta is not None:
        ids = without(ids, delta.ids)
    if len(ids) == 0 or (delta is not None and delta.intent is Intent.REPLACE):
        return ids
    existing = committed.existing(TypeKey.of("node", node), ids)
    if delta is not None:
        existing = without(existing, delta.deleted)
    return without(ids, existing)


def orphans(changes: Changes, committed: Committed, findings: Findings) -> None:
    """E9: no remaining edge points to a node that a delete or an overwrite removes."""
    for node, removed in _removed_nodes(changes, committed):
        for edge, column, word, side in _incident(changes.catalog, node):
            delta = changes.deltas.get(edge.table_key)
            if delta is not None and delta.intent is Intent.REPLACE:
                continue
            # The inverse direction: only edges at removed nodes can dangle, so those are looked up, never all edges.
            candidates = committed.matching(edge.table_key, ("id", column), {column: removed})
            removed_ids = NO_IDS if delta is None else delta.gone
            dangling = candidates.filter(pa.array(~is_among(one_array(candidates.column("id")), removed_ids))).sort_by(
                "id"
            )
            for entity, end in zip(
                *(dangling.column(name).to_pylist()[: findings.room] for name in ("id", column)), strict=True
            ):
                message = (
                    f"edge `{entity}` of `{edge.name}` would lose its {side}: `{word}` is `{end}`, which this write"
                    f" removes from `{node}`; keep the node, or write `{edge.name}` as well"
                )
                findings.add(Violation("E9", message, edge.table_key, entity, word, end))


def _removed_nodes(changes: Changes, committed: Committed) -> Iterator[tuple[str, Ids]]:
    """Yield each node type that loses ids, with the lost ids."""
    for delta in changes.deltas.values():
        if isinstance(delta.type, EdgeType):
            continue
        removed = without(delta.deleted, delta.ids)
        if delta.intent is Intent.REPLACE:
            before = one_array(committed.matching(delta.key, ("id",), {}).column("id"))
            removed = without(before, delta.ids)
        if len(removed):
            yield delta.type.name, removed


def _incident(catalog: Catalog, node: str) -> Iterator[tuple[EdgeType, str, str, str]]:
    for edge in catalog.edges.values():
        for column, word, side in _SIDES:
            if getattr(edge, side) == node:
                yield edge, column, word, side


def cardinality(changes: Changes, committed: Committed, findings: Findings) -> None:
    """E10: every source whose edges a write adds, moves or removes keeps within `@card`."""
    for delta in changes.deltas.values():
        if not isinstance(delta.type, EdgeType) or delta.type.cardinality == Cardinality():
            continue
        bounds = delta.type.cardinality
        sources, counts = _out_degrees(changes, delta, committed)
        too_few = counts < bounds.minimum
        too_many = counts > bounds.maximum if bounds.maximum is not None else np.zeros(len(counts), bool)
        allowed = f"{bounds.minimum}..{'' if bounds.maximum is None else bounds.maximum}"
        for index in np.flatnonzero(too_few | too_many)[: findings.room].tolist():
            source, count = str(sources[index]), int(counts[index])
            remedy = "remove some" if too_many[index] else "add some, or delete the source as well"
            message = (
                f"`@card({allowed})` of `{delta.type.name}` is violated: source `{source}` would have {count}"
                f" edge{'' if count == 1 else 's'}; {remedy}"
            )
            line = _first_line(delta, source)
            findings.add(Violation("E10", message, delta.key, None, "from", source, line))


def _out_degrees(
    changes: Changes, delta: Delta, committed: Committed
) -> tuple[Ids, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Return the affected sources that still exist, each with its out-degree in the final image.

    Out-degree = written edges + committed edges of the affected sources - those that the write replaces or deletes.
    """
    assert isinstance(delta.type, EdgeType)
    written = delta.column("src").take(pa.array(last_of_each(delta.ids)))
    affected, kept = [written], [written]
    if delta.intent is Intent.UPSERT:
        # An edge that is moved or deleted reduces the out-degree of its former source.
        before = committed.matching(delta.key, ("id", "src"), {"id": delta.gone})
        affected.append(one_array(before.column("src")))
    sources = pc.unique(pa.concat_arrays(affected))
    if delta.intent is not Intent.REPLACE and len(sources):
        before = committed.matching(delta.key, ("id", "src"), {"src": sources})
        is_kept = ~is_among(one_array(before.column("id")), delta.gone)
        kept.append(one_array(before.column("src")).filter(pa.array(is_kept)))
    # A node that goes has no cardinality to keep; that no edge of it stays is the rule on orphans.
    sources = without(sources, _gone_nodes(changes, delta.type.source))
    indices = pc.index_in(pa.concat_arrays(kept), value_set=sources).drop_null().to_numpy() if len(sources) else []
    return sources, np.bincount(np.asarray(indices, np.int64), minlength=len(sources))


def _gone_nodes(changes: Changes, node: str) -> Ids:
    delta = changes.node(node)
    return NO_IDS if delta is None else without(delta.deleted, delta.ids)


def _first_line(delta: Delta, source: str) -> int | None:
    if delta.lines is None:
        return None
    rows = np.flatnonzero(is_among(delta.column("src"), pa.array([source])))
    return delta.line(int(rows[0])) if len(rows) else None
