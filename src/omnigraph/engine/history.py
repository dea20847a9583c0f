"""The history of a graph in its public form: commits, the outcome of write operations, and the audit log."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import Final

from ulid import ULID

from omnigraph import clock
from omnigraph.engine.arguments import check_type, strip_name
from omnigraph.engine.authorization import GRAPH, on_branch
from omnigraph.engine.revisions import AsOf, microseconds_of
from omnigraph.engine.session import GraphSession
from omnigraph.errors import GraphError, PolicyDenied, UsageError
from omnigraph.ids import CommitId, OperationId, is_ulid
from omnigraph.limits import PUBLISH_DEADLINE_SECONDS
from omnigraph.manifest import intents, recovery
from omnigraph.manifest.history import unknown_commit
from omnigraph.manifest.kernel import find_operation, has_published
from omnigraph.manifest.model import MAIN
from omnigraph.manifest.model import Commit as StoredCommit
from omnigraph.manifest.recovery import AuditRow, Outcome
from omnigraph.public_values import Commit, Operation, PublicValue, named


def commits(session: GraphSession, branch: str, limit: int | None, before: str | None) -> list[Commit]:
    """Return the commits reachable from a branch, newest first; `before` and `limit` select a page."""
    session.require("read", on_branch(branch))
    if limit is not None and (type(limit) is not int or limit < 1):
        raise UsageError("`limit` is a number of commits, 1 or more", limit=str(limit))
    walk = session.visible_commits(session.kernel.history(branch))
    if before is not None:
        check_type("before", before, str)
        before_id = find_commit(session, before, branch).commit_id
        if not any(commit.commit_id == before_id for commit in walk):
            raise GraphError(
                f"commit {before_id} is not in the history of branch `{branch.strip()}`; list it with `omnigraph commit"
                " list`",
                code="commit.not_found",
                commit_id=before_id,
            )
    page = islice(walk, None if limit is None else min(limit, sys.maxsize))
    return public_commits(session, session.redact_commits(session.without_hidden_parents(page)))


def commit(session: GraphSession, at: AsOf, branch: str = MAIN) -> Commit:
    """Return the commit of a revision, which may be on any branch."""
    return public_commits(session, session.without_hidden_parents([find_commit(session, at, branch)]))[0]


def find_commit(session: GraphSession, at: AsOf, branch: str = MAIN) -> StoredCommit:
    """Return a commit as it is stored, less what is hidden from the actor."""
    commit_id = at.strip() if isinstance(at, str) else ""
    if not is_ulid(commit_id):
        return session.redact_commits([session.allowed_commit(branch, at)])[0]
    commit = session.kernel.look_for_commit(CommitId(commit_id))
    if commit is None or not session.may("read", on_branch(session.names_of(commit))):
        # A hidden commit raises the same error as a missing one, and an actor without any permission learns neither.
        session.require("read", GRAPH)
        raise unknown_commit(CommitId(commit_id))
    return session.redact_commits([commit])[0]


def public_commits(session: GraphSession, commits: Sequence[StoredCommit]) -> list[Commit]:
    """Return stored commits with the names of their branches."""
    names = session.kernel.names_of(commit.branch for commit in commits)
    return [commit.public(names[commit.branch]) for commit in commits]


# A write that may still be on its way is not called absent; see the deadline rule of publishing.
_SETTLED_SECONDS: Final = 10 * PUBLISH_DEADLINE_SECONDS


def operation(session: GraphSession, operation_id: str) -> Operation:
    """Return the outcome of a write, by the operation id of its error or by the idempotency key of its caller."""
    operation_id = strip_name(operation_id, "operation_id")
    commit = find_operation(session.kernel, operation_id, session.actor)
    if commit is None:
        _require_any_read(session)
        if not is_ulid(operation_id):
            raise UsageError(f"`{operation_id}` is not the id of an operation; an error names it as `operation_id`")
        if has_published(session.kernel, MAIN, OperationId(operation_id)):
            return Operation(operation_id, "applied")
        return Operation(operation_id, "pending" if _is_pending(session, operation_id) else "absent")
    if session.actor is None or commit.actor != session.actor:
        # An applied write is never reported as absent, so an actor who may not read the branch gets a denial. The
        # writer itself learns nothing new.
        session.require("read", on_branch(session.names_of(commit)))
    return Operation(operation_id, "applied", session.redact_receipt(commit, session.kernel.name_of(commit.branch)))


def _require_any_read(session: GraphSession) -> None:
    branches = session.kernel.snapshot(MAIN).state.branches.values()
    for names in session.kernel.all_names_of([None, *(branch.branch_id for branch in branches)]).values():
        with suppress(PolicyDenied):
            session.require("read", on_branch(names))
            return
    session.require("read", GRAPH)


def _is_pending(session: GraphSession, operation_id: str) -> bool:
    age_ms = clock.now_us() // 1_000 - ULID.from_str(operation_id).milliseconds
    if age_ms < _SETTLED_SECONDS * 1_000:
        return True
    live, unreadable = intents.pending(session.kernel.store)
    return (
        operation_id in {intent.operation_id for intent in live}
        or intents.path_of(OperationId(operation_id)) in unreadable
    )


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
class AuditEntry(PublicValue):
    """One recovery, repair, discard or upgrade.

    `operation` is the sort of work that was recovered, such as `load`; `actor` is who had begun it. There is a commit
    if the work was published.
    """

    kind: AuditKind
    operation: str
    operation_id: str
    actor: str | None = field(metadata=named("actor_id"))
    commit_id: str | None = field(metadata=named("graph_commit_id"))
    created_at_us: int = field(metadata=named("created_at"))


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
        for entry in map(_entry, recovery.read_audit(session.kernel.store))
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
    return microseconds_of(timestamp)
