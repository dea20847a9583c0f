"""Rules across rows: ids and `@unique` tuples are distinct, endpoints exist, no edge dangles, `@card` holds.

Tuples are compared value by value, never as joined strings; a tuple that contains a null is exempt.

Set operations over key columns: union, difference and count. Only rows that the write affects are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.lang.catalog import Cardinality, Catalog, EdgeType, TypeKey
from omnigraph.rules.arrow_typing import Column, Numbers, pc
from omnigraph.rules.coerce import shown
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


def distinct_ids(changes: Changes, committed: Committed, findings: Findings) -> None:
    """E5, E11: no id occurs twice within a write. If the last one wins, the caller has dropped the others."""
    for delta in changes.deltas.values():
        codes = delta.ids.dictionary_encode().indices.to_numpy()
        for first, again in _repeated(codes)[: findings.room]:
            entity = str(delta.ids[again])
            if delta.type.key:
                columns = ", ".join(delta.type.key)
                message = (
                    f"`@key` of `{delta.type.name}.({columns})` is violated: the input holds the key `{entity}` twice"
                    f"{_lines(changes, delta, first, again)}; keep one of them"
                )
                findings.add(Violation("E5", message, delta.key, entity, columns, line=delta.line(again)))
            else:
                message = (
                    f"the input holds two entities of `{delta.type.name}` with the id `{entity}`"
                    f"{_lines(changes, delta, first, again)}; keep one of them, or use mode `merge`: the last wins"
                )
                findings.add(Violation("E11", message, delta.key, entity, line=delta.line(again)))


def new_ids(changes: Changes, committed: Committed, findings: Findings) -> None:
    """E11: a strict insert adds only new ids."""
    for delta in changes.deltas.values():
        if delta.intent is not Intent.INSERT or delta.rows.num_rows == 0:
            continue
        existing_ids = committed.existing(delta.key, delta.ids)
        for row in np.flatnonzero(is_among(delta.ids, existing_ids))[: findings.room].tolist():
            entity = str(delta.ids[row])
            message = f"`{delta.type.name}` has an entity with the id `{entity}`; update it, or use mode `merge`"
            findings.add(Violation("E11", message, delta.key, entity, line=delta.line(row)))


def unique(changes: Changes, committed: Committed, findings: Findings) -> None:
    """E5, E6: no two entities of the final image share the values of a `@unique`."""
    for delta in changes.deltas.values():
        for columns in delta.type.unique if delta.rows.num_rows else ():
            if _is_keyable(delta, columns, findings):
                _check_tuples(delta, columns, committed, findings)


def _is_keyable(delta: Delta, columns: Sequence[str], findings: Findings) -> bool:
    """Return True if all values can be compared; report lists, vectors and numbers that are not finite."""
    fine = True
    for name in columns:
        column = delta.column(name)
        if pa.types.is_nested(column.type):
            rows, rule, reason = pc.is_valid(column), "E5", "holds a list, which cannot be compared; drop the `@unique`"
        elif pa.types.is_floating(column.type):
            rows, rule, reason = pc.invert(pc.is_finite(column)), "E6", "is NaN or infinite; use a finite number"
        else:
            continue
        for row in pc.indices_nonzero(pc.fill_null(rows, False)).to_pylist()[: findings.room]:
            fine = False
            entity = str(delta.ids[row])
            message = f"`{name}` of `@unique({', '.join(columns)})` {reason} (entity `{entity}` of `{delta.type.name}`)"
            findings.add(Violation(rule, message, delta.key, entity, name, line=delta.line(row)))
    return fine


def _check_tuples(delta: Delta, columns: Sequence[str], committed: Committed, findings: Findings) -> None:
    names = list(dict.fromkeys(["id", *columns]))
    ours = delta.rows.select(names)
    complete = np.ones(ours.num_rows, bool)
    for name in columns:
        complete &= ~np.asarray(pc.is_null(ours.column(name)).to_numpy(), bool)
    if not complete.any():
        return
    theirs = ours.slice(0, 0)
    if delta.intent is not Intent.REPLACE:
        # Each column is matched on its own, so candidates may share no tuple; the codes below compare the tuples.
        without_nulls = ours.filter(pa.array(complete))
        where = {name: pc.unique(one_array(without_nulls.column(name))) for name in columns}
        candidates = committed.matching(delta.key, names, where)
        theirs = candidates.filter(pa.array(~is_among(one_array(candidates.column("id")), delta.gone)))
    # Committed rows come first, so that messages name them as the present holders of a value.
    both = pa.concat_tables([theirs.select(names).cast(ours.schema), ours])
    codes = _tuple_codes([one_array(both.column(name)) for name in columns])
    for first, again in _repeated(codes)[: findings.room]:
        holder, entity = str(both.column("id")[first]), str(both.column("id")[again])
        values = [both.column(name)[again].as_py() for name in columns]
        value = shown(values[0]) if len(values) == 1 else f"({', '.join(map(shown, values))})"
        message = (
            f"`@unique` of `{delta.type.name}.({', '.join(columns)})` is violated: `{holder}` and `{entity}` both hold"
            f" {value}; {_remedy(delta, columns)}"
        )
        line = delta.line(again - theirs.num_rows)
        findings.add(Violation("E5", message, delta.key, entity, ", ".join(columns), value, line))


def _remedy(delta: Delta, columns: Sequence[str]) -> str:
    if isinstance(delta.type, EdgeType) and not delta.type.key and {"src", "dst"} <= set(columns):
        # The usual reason is that the same edges are loaded again.
        return "with `@key(src, dst)` instead, a load recognises an edge by its ends and replaces it"
    return "change one of them"


def _tuple_codes(columns: Sequence[Column]) -> Numbers:
    """Return a code for each tuple, equal for equal tuples; -1 if a value is null.

    Dictionary encoding column by column: the code of a prefix and the code of the next value make the next code.
    """
    codes = np.zeros(len(columns[0]), np.int64)
    exempt = np.zeros(len(columns[0]), bool)
    for column in columns:
        if pa.types.is_floating(column.type):
            # Negative zero equals zero, but has its own dictionary entry.
            column = pc.add(column, pa.scalar(0.0, column.type))
        indices = column.dictionary_encode().indices
        exempt |= np.asarray(pc.is_null(indices).to_numpy(zero_copy_only=False), bool)
        next_codes = pc.fill_null(indices, 0).to_numpy().astype(np.int64)
        # Renumbering the pairs keeps the codes below the number of rows, so that the product cannot overflow.
        _, codes = np.unique(codes * (next_codes.max(initial=0) + 1) + next_codes, return_inverse=True)
    return np.where(exempt, -1, codes)


def _repeated(codes: Numbers) -> list[tuple[int, int]]:
    """Return (first index, later index) for each repetition of a code, in the order of the later index."""
    # Stable, so the first of each run of equal codes is the earliest row, which messages name as the holder.
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    is_new = ordered[1:] != ordered[:-1]
    if is_new.all():
        return []
    starts = np.flatnonzero(np.r_[True, is_new])
    first = np.repeat(order[starts], np.diff(np.r_[starts, len(codes)]))
    later = (order != first) & (ordered >= 0)
    pairs = sorted(zip(order[later].tolist(), first[later].tolist(), strict=True))
    return [(holder, again) for again, holder in pairs]


def _lines(changes: Changes, delta: Delta, first: int, again: int) -> str:
    """Say where two rows are: by their lines in one file, or by file and line if they are in two."""
    if delta.lines is None:
        return ""
    first_line, again_line = int(delta.lines[first]), int(delta.lines[again])
    if changes.locate is not None:
        (file, first_line), (other_file, again_line) = changes.locate(first_line), changes.locate(again_line)
        if file != other_file:
            unit = changes.unit
            return f", in {unit} {first_line} of `{file}` and {unit} {again_line} of `{other_file}`"
    return f", in {changes.unit}s {first_line} and {again_line}"


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
            is_left = ~is_among(one_array(candidates.column("id")), removed_ids)
            dangling = candidates.filter(pa.array(is_left)).sort_by("id").slice(0, findings.room)
            for entity, end in zip(dangling["id"].to_pylist(), dangling[column].to_pylist(), strict=True):
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
    nodes = changes.node(delta.type.source)
    written = delta.column("src").take(pa.array(last_of_each(delta.ids)))
    affected, kept = [written], [written]
    if delta.intent is Intent.UPSERT:
        # An edge that is moved or deleted reduces the out-degree of its former source.
        before = committed.matching(delta.key, ("id", "src"), {"id": delta.gone})
        affected.append(one_array(before.column("src")))
    elif delta.intent is Intent.REPLACE and delta.type.cardinality.minimum:
        # Every committed edge goes. A source that the same overwrite removes has no bounds to keep.
        former = pc.unique(one_array(committed.matching(delta.key, ("id", "src"), {}).column("src")))
        if nodes is not None and nodes.intent is Intent.REPLACE:
            former = former.filter(pa.array(is_among(former, nodes.ids)))
        affected.append(former)
    sources = pc.unique(pa.concat_arrays(affected))
    if delta.intent is not Intent.REPLACE and len(sources):
        before = committed.matching(delta.key, ("id", "src"), {"src": sources})
        is_kept = ~is_among(one_array(before.column("id")), delta.gone)
        kept.append(one_array(before.column("src")).filter(pa.array(is_kept)))
    # A removed node has no bounds to keep; `orphans` checks that none of its edges stays.
    if nodes is not None:
        sources = without(sources, without(nodes.deleted, nodes.ids))
    indices = pc.index_in(pa.concat_arrays(kept), value_set=sources).drop_null().to_numpy() if len(sources) else []
    return sources, np.bincount(np.asarray(indices, np.int64), minlength=len(sources))


def _first_line(delta: Delta, source: str) -> int | None:
    if delta.lines is None:
        return None
    rows = np.flatnonzero(is_among(delta.column("src"), pa.array([source])))
    return delta.line(int(rows[0])) if len(rows) else None
