"""Set rules on edges: both ends exist, nobody is left without an end, and every source has as many as it may.

Relational: unions, differences and counts over key columns; nothing reads a row that the write does not touch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.lang.catalog import Cardinality, Catalog, EdgeType
from omnigraph.rules.arrow_typing import pc
from omnigraph.rules.delta import (
    NO_IDS,
    Changes,
    Committed,
    Delta,
    Ids,
    Intent,
    is_among,
    last_of_each,
    one_array,
    without,
)
from omnigraph.rules.violations import Findings, Violation

_SIDES: Final = (("src", "from", "source"), ("dst", "to", "target"))


def endpoints(changes: Changes, committed: Committed, findings: Findings) -> None:
    """E9: the ends of every edge that is written exist in the final image."""
    for delta in changes.deltas.values():
        if not isinstance(delta.type, EdgeType) or delta.rows.num_rows == 0:
            continue
        for column, word, side in _SIDES:
            wanted = getattr(delta.type, side)
            ends = delta.column(column)
            missing = _missing(changes, committed, wanted, pc.unique(ends.drop_null()))
            for row in np.flatnonzero(is_among(ends, missing))[: findings.room].tolist():
                entity, end = str(delta.ids[row]), str(ends[row])
                message = (
                    f"the {side} of an edge `{delta.type.name}` does not exist: `{word}` is `{end}`, and there is no"
                    f" `{wanted}` with that id; write the `{wanted}` first, or in the same write"
                )
                findings.add(Violation("E9", message, delta.key, entity, word, end, delta.line(row)))


def _missing(changes: Changes, committed: Committed, node: str, ids: Ids) -> Ids:
    """Return those of the ids that no node of a type has in the final image."""
    delta = changes.node(node)
    if delta is not None:
        ids = without(ids, delta.ids)
    if len(ids) == 0 or (delta is not None and delta.intent is Intent.REPLACE):
        return ids
    there = committed.existing(f"node:{node}", ids)
    if delta is not None:
        there = without(there, delta.deleted)
    return without(ids, there)


def orphans(changes: Changes, committed: Committed, findings: Findings) -> None:
    """E9: no edge that stays loses an end to a node that a delete or an overwrite takes out."""
    for node, vacated in _vacated(changes, committed):
        for edge, column, word, side in _incident(changes.catalog, node):
            delta = changes.deltas.get(edge.table_key)
            if delta is not None and delta.intent is Intent.REPLACE:
                continue
            found = committed.matching(edge.table_key, ("id", column), {column: vacated})
            gone = NO_IDS if delta is None else delta.gone
            left = found.filter(pa.array(~is_among(one_array(found.column("id")), gone))).sort_by("id")
            for entity, end in zip(
                *(left.column(name).to_pylist()[: findings.room] for name in ("id", column)), strict=True
            ):
                message = (
                    f"edge `{entity}` of `{edge.name}` would lose its {side}: `{word}` is `{end}`, which this write"
                    f" takes out of `{node}`; keep the node, or write `{edge.name}` as well"
                )
                findings.add(Violation("E9", message, edge.table_key, entity, word, end))


def _vacated(changes: Changes, committed: Committed) -> Iterator[tuple[str, Ids]]:
    """Yield each node type that loses ids, with those ids."""
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
    """E10: every source whose edges a write adds, moves or removes has as many as `@card` allows."""
    for delta in changes.deltas.values():
        if not isinstance(delta.type, EdgeType) or delta.type.cardinality == Cardinality():
            continue
        bounds = delta.type.cardinality
        sources, counts = _out_degrees(changes, delta, committed)
        too_few = counts < bounds.minimum
        too_many = counts > bounds.maximum if bounds.maximum is not None else np.zeros(len(counts), bool)
        allowed = f"{bounds.minimum}..{'' if bounds.maximum is None else bounds.maximum}"
        for place in np.flatnonzero(too_few | too_many)[: findings.room].tolist():
            source, count = str(sources[place]), int(counts[place])
            remedy = "remove some" if too_many[place] else "add some, or delete the source as well"
            message = (
                f"`@card({allowed})` of `{delta.type.name}` is violated: source `{source}` would have {count}"
                f" edge{'' if count == 1 else 's'}; {remedy}"
            )
            line = _first_line(delta, source)
            findings.add(Violation("E10", message, delta.key, None, "from", source, line))


def _out_degrees(
    changes: Changes, delta: Delta, committed: Committed
) -> tuple[Ids, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Return the sources that a delta touches and that stay, each with its number of edges in the final image."""
    assert isinstance(delta.type, EdgeType)
    ours = delta.column("src").take(pa.array(last_of_each(delta.ids)))
    touched, kept = [ours], [ours]
    if delta.intent is Intent.UPSERT:
        # An edge that moves or goes leaves its former source with one less.
        before = committed.matching(delta.key, ("id", "src"), {"id": delta.gone})
        touched.append(one_array(before.column("src")))
    sources = pc.unique(pa.concat_arrays(touched))
    if delta.intent is not Intent.REPLACE and len(sources):
        there = committed.matching(delta.key, ("id", "src"), {"src": sources})
        stays = ~is_among(one_array(there.column("id")), delta.gone)
        kept.append(one_array(there.column("src")).filter(pa.array(stays)))
    sources = without(sources, _gone_nodes(changes, delta.type.source))
    places = pc.index_in(pa.concat_arrays(kept), value_set=sources).drop_null().to_numpy() if len(sources) else []
    return sources, np.bincount(np.asarray(places, np.int64), minlength=len(sources))


def _gone_nodes(changes: Changes, node: str) -> Ids:
    delta = changes.node(node)
    return NO_IDS if delta is None else without(delta.deleted, delta.ids)


def _first_line(delta: Delta, source: str) -> int | None:
    if delta.lines is None:
        return None
    places = np.flatnonzero(is_among(delta.column("src"), pa.array([source])))
    return delta.line(int(places[0])) if len(places) else None
