"""The audit of recoveries: one row for each dead intent that a sweep resolved, and each repair.

A log beside the graph; no commit depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa

from omnigraph import clock
from omnigraph.store import log
from omnigraph.store.store import Store

AUDIT_PATH = "_graph_commit_recoveries.lance"

_FIELDS: list[pa.Field[pa.DataType]] = [
    pa.field("graph_commit_id", pa.string()),
    pa.field("recovery_kind", pa.string(), nullable=False),
    pa.field("recovery_for_actor", pa.string()),
    pa.field("operation_id", pa.string(), nullable=False),
    pa.field("writer_kind", pa.string(), nullable=False),
    pa.field("created_at", pa.int64(), nullable=False),
]
SCHEMA = pa.schema(_FIELDS)


class Outcome(StrEnum):
    ROLLED_FORWARD = "RolledForward"
    ROLLED_BACK = "RolledBack"
    ORPHANED_BRANCH_DISCARDED = "OrphanedBranchDiscarded"
    REPAIRED = "Repaired"
    UPGRADED = "Upgraded"


@dataclass(frozen=True, slots=True)
class AuditRow:
    operation_id: str
    outcome: Outcome
    commit_id: str | None
    actor: str | None
    kind: str
    created_at_us: int = field(default_factory=clock.now_us)


def record(store: Store, row: AuditRow) -> None:
    """Write a row, unless its operation has one: whoever settled it before may have died right after."""
    if any(one.operation_id == row.operation_id for one in read(store)):
        return
    values = [row.commit_id, row.outcome.value, row.actor, row.operation_id, row.kind, row.created_at_us]
    arrays = [pa.array([value], column.type) for value, column in zip(values, SCHEMA, strict=True)]
    log.append(store, AUDIT_PATH, pa.Table.from_arrays(arrays, schema=SCHEMA))


def read(store: Store) -> list[AuditRow]:
    """Return the whole audit, oldest first."""
    table = log.read(store, AUDIT_PATH)
    if table is None:
        return []
    return [
        AuditRow(
            row["operation_id"],
            Outcome(row["recovery_kind"]),
            row["graph_commit_id"],
            row["recovery_for_actor"],
            row["writer_kind"],
            row["created_at"],
        )
        for row in table.to_pylist()
    ]
