"""Diff: what differs between any two states of a graph, entity by entity, without images.

Reads two snapshots; edges come before nodes, types by identity, entities by id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute

from omnigraph.engine.changes.pair import Pair, Side, pairs
from omnigraph.engine.changes.rows import AFTER, BEFORE, stored
from omnigraph.engine.changes.selection import Selection, select
from omnigraph.engine.core import Core, Moment, View
from omnigraph.manifest.model import MAIN

# The stubs know fewer argument types than the kernels take.
pc: Any = pyarrow.compute

_TEXT: Final = pa.string()
_COLUMNS: Final[dict[str, pa.DataType]] = {
    "kind": _TEXT,
    "type_name": _TEXT,
    "id": _TEXT,
    "op": _TEXT,
    "published_dataset_version": pa.int64(),
    "from": _TEXT,
    "to": _TEXT,
}
CHANGE_SCHEMA: Final = pa.schema(_COLUMNS)


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """Every entity that differs between two states. `changes` is one Arrow table; ends of edges are `from` and `to`."""

    from_graph_manifest_version: int
    to_graph_manifest_version: int
    graph_branch: str | None
    changes: pa.Table

    def stats(self) -> dict[str, int]:
        """Count the changes by operation, and the types that have any."""
        ops = Counter(self.changes.column("op").to_pylist())
        types = self.changes.select(["kind", "type_name"]).group_by(["kind", "type_name"]).aggregate([])
        return {
            "inserts": ops["insert"],
            "updates": ops["update"],
            "deletes": ops["delete"],
            "types_affected": types.num_rows,
        }

    def to_json(self) -> dict[str, object]:
        """Return the change set as every surface shows it."""
        shown: dict[str, object] = {
            "from_graph_manifest_version": self.from_graph_manifest_version,
            "to_graph_manifest_version": self.to_graph_manifest_version,
        }
        if self.graph_branch is not None:
            shown["graph_branch"] = self.graph_branch
        changes = [_change_json(row) for row in self.changes.to_pylist()]
        return {**shown, "changes": changes, "stats": self.stats()}


def diff(
    core: Core,
    a: Moment,
    b: Moment,
    *,
    kinds: Sequence[str] | None = None,
    types: Sequence[str] | None = None,
    ops: Sequence[str] | None = None,
    branch: str = MAIN,
    actor: str | None = None,
) -> ChangeSet:
    """Return what it takes to get from state `a` to state `b`.

    A state is named by a branch, a tag, a commit, or a manifest version or point in time of `branch`.
    """
    core = core.acting_as(actor)
    before, after = (_state(core, one, branch.strip()) for one in (a, b))
    selection = select(kinds, types, ops, [before.catalog, after.catalog])
    found = [_changes(pair, selection) for pair in sorted(pairs(before, after), key=lambda one: one.kind)]
    is_one_branch = before.snapshot.state.branch_id == after.snapshot.state.branch_id
    return ChangeSet(
        before.snapshot.version,
        after.snapshot.version,
        after.snapshot.branch if is_one_branch else None,
        pa.concat_tables([CHANGE_SCHEMA.empty_table(), *found]),
    )


def _state(core: Core, name: Moment, branch: str) -> View:
    if not isinstance(name, str):
        return core.view(branch, name)
    name = name.strip()
    branches = core.kernel.snapshot(MAIN).state.branches
    return core.view(name) if name == MAIN or name in branches else core.view(branch, name)


def _changes(pair: Pair, selection: Selection) -> pa.Table:
    if pair.is_same_data or not selection.has_type(pair.known.pin.table_key):
        return CHANGE_SCHEMA.empty_table()
    found = pair.differing(of_ops(pair.candidates(), selection))
    if found.num_rows == 0:
        return CHANGE_SCHEMA.empty_table()
    side = pair.known
    rows = found.num_rows
    columns: list[Any] = [
        pa.repeat(pair.kind, rows),
        pa.repeat(side.type_.name, rows),
        found.column("id"),
        ops_of(found),
        pa.repeat(pa.scalar(side.pin.version, pa.int64()), rows),
        *_ends(pair, found),
    ]
    return pa.table(columns, schema=CHANGE_SCHEMA)


def of_ops(candidates: pa.Table, selection: Selection) -> pa.Table:
    """Return the candidates that could be changes of the selected operations."""
    if selection.ops is None:
        return candidates
    wanted = pc.is_in(ops_of(candidates), value_set=pa.array(sorted(selection.ops), pa.string()))
    return candidates.filter(wanted)


def ops_of(candidates: pa.Table) -> Any:
    """Return which operation each candidate would be, if it is a change."""
    was, is_ = (pc.is_valid(candidates.column(name)) for name in (BEFORE, AFTER))
    return pc.if_else(was, pc.if_else(is_, "update", "delete"), "insert")


def _ends(pair: Pair, found: pa.Table) -> tuple[Any, Any]:
    """Return the ends of edges as they are, or for deleted ones as they were."""
    if pair.kind == "node":
        return pa.nulls(found.num_rows, pa.string()), pa.nulls(found.num_rows, pa.string())
    old, new = (_ends_at(side, found.column(name)) for side, name in ((pair.before, BEFORE), (pair.after, AFTER)))
    return pc.coalesce(new[0], old[0]), pc.coalesce(new[1], old[1])


def _ends_at(side: Side | None, row_ids: Any) -> tuple[Any, Any]:
    present = pc.is_valid(row_ids)
    none: Any = pa.nulls(len(row_ids), pa.string())
    if side is None or not pc.any(present).as_py():
        return none, none
    found = stored(side.dataset, row_ids.filter(present), ["src", "dst"])
    mask = present.combine_chunks() if isinstance(present, pa.ChunkedArray) else present
    src, dst = (pc.replace_with_mask(none, mask, found.column(name).combine_chunks()) for name in ("src", "dst"))
    return src, dst


def _change_json(row: dict[str, Any]) -> dict[str, object]:
    ends = {"from": row.pop("from"), "to": row.pop("to")}
    return row if ends["from"] is None else {**row, "endpoints": ends}
