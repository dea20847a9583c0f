"""The audit log in its public form: recoveries by sweeps, repairs, discards and upgrades."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from omnigraph.engine.arguments import check_type
from omnigraph.engine.authorization import GRAPH
from omnigraph.engine.session import GraphSession
from omnigraph.errors import UsageError
from omnigraph.manifest import recovery
from omnigraph.manifest.recovery import AuditRow, Outcome


class AuditKind(StrEnum):
    """The kind of an audit entry."""

    ROLLED_FORWARD = "rolled_forward"
    ROLLED_BACK = "rolled_back"
    BRANCH_DISCARDED = "branch_discarded"
    REPAIRED = "repaired"
    DISCARDED = "discarded"
    UPGRADED = "upgraded"


_KINDS: Final[Mapping[Outcome, AuditKind]] = {
    Outcome.ROLLED_FORWARD: AuditKind.ROLLED_FORWARD,
    Outcome.ROLLED_BACK: AuditKind.ROLLED_BACK,
    Outcome.ORPHANED_BRANCH_DISCARDED: AuditKind.BRANCH_DISCARDED,
    Outcome.REPAIRED: AuditKind.REPAIRED,
    Outcome.UPGRADED: AuditKind.UPGRADED,
}


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One recovery, repair, discard or upgrade.

    `operation` is the sort of work that was recovered, such as `load`; `actor` is who had begun it. There is a commit
    if the work was published.
    """

    kind: AuditKind
    operation: str
    operation_id: str
    actor: str | None
    commit_id: str | None
    created_at_us: int

    def to_json(self) -> dict[str, object]:
        return {
            "kind": self.kind.value,
            "operation": self.operation,
            "operation_id": self.operation_id,
            "actor_id": self.actor,
            "graph_commit_id": self.commit_id,
            "created_at": self.created_at_us,
        }


def list_audit(
    session: GraphSession,
    *,
    kind: str | None = None,
    by: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int | None = None,
) -> list[AuditEntry]:
    """Return audit entries, newest first; `by` selects those about the work of an actor."""
    session.require("admin", GRAPH)
    check_type("since", since, datetime | None)
    check_type("until", until, datetime | None)
    check_type("limit", limit, int | None)
    audit_kind = None if kind is None else _parse_kind(kind)
    earliest, latest = (None if time is None else _microseconds(time) for time in (since, until))
    if limit is not None and limit < 1:
        raise UsageError(f"`limit` must be >= 1, got {limit}", limit=limit)
    entries = [
        entry
        for entry in map(_entry, recovery.read(session.kernel.store))
        if audit_kind in (None, entry.kind)
        and by in (None, entry.actor)
        and (earliest is None or entry.created_at_us >= earliest)
        and (latest is None or entry.created_at_us < latest)
    ]
    entries.sort(key=lambda entry: (entry.created_at_us, entry.operation_id), reverse=True)
    return entries[:limit]


def _entry(row: AuditRow) -> AuditEntry:
    kind = _KINDS[row.outcome]
    if kind is AuditKind.REPAIRED and row.commit_id is None:
        # A repair that adopted foreign versions has a commit; one that only discarded them has none.
        kind = AuditKind.DISCARDED
    return AuditEntry(kind, row.kind, row.operation_id, row.actor, row.commit_id, row.created_at_us)


def _parse_kind(word: str) -> AuditKind:
    try:
        return AuditKind(word)
    except ValueError:
        known = ", ".join(AuditKind)
        raise UsageError(f"unknown audit kind `{word}`; expected one of {known}", kind=word) from None


def _microseconds(timestamp: datetime) -> int:
    if timestamp.tzinfo is None:
        raise UsageError(f"`{timestamp}` has no time zone; pass one, such as `tzinfo=UTC`")
    return int(timestamp.timestamp() * 1_000_000)
