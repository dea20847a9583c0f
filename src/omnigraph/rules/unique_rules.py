"""Set rules on identity: ids and `@unique` tuples are distinct, within a write and against the committed rows.

Tuples are compared value by value, never as joined strings; a tuple that contains a null is exempt.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from omnigraph.lang.catalog import EdgeType
from omnigraph.rules.arrow_typing import Column, Numbers, pc
from omnigraph.rules.coerce import shown
from omnigraph.rules.delta import Changes, Committed, Delta, Findings, Intent, Violation, is_among, one_array


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
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(codes) else np.array([], np.int64)
    first = np.repeat(order[starts], np.diff(np.r_[starts, len(codes)])) if len(codes) else order
    later = (order != first) & (ordered >= 0)
    pairs = sorted(zip(order[later].tolist(), first[later].tolist(), strict=True))
    return [(holder, again) for again, holder in pairs]


def _lines(changes: Changes, delta: Delta, first: int, again: int) -> str:
    return "" if delta.lines is None else f", in {changes.unit}s {delta.line(first)} and {delta.line(again)}"
