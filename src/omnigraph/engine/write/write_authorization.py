"""Write authorization: what an actor may write where; every write goes through here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from omnigraph.engine.arguments import strip_name
from omnigraph.engine.authorization import ALLOW_ALL, GRAPH, between, on_branch
from omnigraph.engine.information_flow import check_flow
from omnigraph.engine.session import GraphSession, View
from omnigraph.engine.write.committed_rows import CommittedRows
from omnigraph.engine.write.hidden_type_errors import hidden_data_error, redact_findings
from omnigraph.errors import BranchNotFound, PolicyDenied
from omnigraph.lang.schema.render import with_their_edges
from omnigraph.manifest.model import BranchNames, Snapshot
from omnigraph.rules.delta import Changes, Findings
from omnigraph.rules.validate import validate


def require_maintenance(session: GraphSession, branch: str) -> None:
    """Raise `PolicyDenied` unless the actor is an admin, or may change a branch and read all of its types.

    What there is to do depends on every type, and the report says it.
    """
    if not session.would_allow("admin", GRAPH):
        session.require("change", on_branch(branch))
        if session.reads_all_types(session.names_now(branch)):
            return
    session.require("admin", GRAPH)


def missing_base(session: GraphSession, branch: str, from_branch: str | None) -> str | None:
    """Return the branch to create a missing branch from; None if the branch exists."""
    try:
        session.kernel.resolve(branch)
    except BranchNotFound:
        if from_branch is None:
            raise
        session.kernel.reject_read_only()
        return strip_name(from_branch, "from_branch")
    return None


@dataclass(frozen=True, slots=True)
class WritePermissions:
    """The types that a writer may use, and how.

    `visible` is the snapshot without the types in `hidden`. Of the visible types, those in `unchangeable` may only be
    read and those in `unreadable` only be changed. `readable` is the snapshot with neither hidden nor unreadable types:
    what a query of the actor reads, and so what the patterns of its mutations match.
    """

    visible: View
    readable: View
    unchangeable: frozenset[str]
    unreadable: frozenset[str]
    hidden: frozenset[str]
    actor: str | None
    # The names of the branch that the rules were asked for; None without a policy, or for a branch to be created.
    names: BranchNames | None = None

    def check(self, names: Iterable[str]) -> None:
        """Raise `PolicyDenied` if one of the types may not be changed."""
        touched = frozenset(names)
        if touched & self.hidden:
            raise hidden_data_error(self.actor)
        for name in sorted(touched & self.unchangeable):
            raise PolicyDenied(
                f"`change` of `{name}` is not allowed for `{self.actor}`; ask the policy's administrator for a"
                " rule that allows it",
                action="change",
                actor=self.actor,
                type_name=name,
            )

    def check_conditions(self, names: Iterable[str]) -> None:
        """Raise `PolicyDenied` for conditions on unreadable types: the number of matches would reveal their values."""
        for name in sorted(self.unreadable.intersection(names)):
            raise PolicyDenied(
                f"an `update` or `delete` with a condition needs `read` of `{name}`, because it reveals how many"
                f" entities match, and `{self.actor}` may only change it; nothing was written. `insert` needs `change`"
                " alone; or ask for a rule that allows `read`",
                action="read",
                actor=self.actor,
                type_name=name,
            )

    def check_replay(self, names: Iterable[str]) -> None:
        """Raise `PolicyDenied` for a revert or cherry-pick of unreadable types: conflicts reveal values.

        The error is that of a hidden type: it does not reveal which unreadable types a commit touched.
        """
        if not self.unreadable.isdisjoint(names):
            raise hidden_data_error(self.actor)

    def validate(self, changes: Changes, committed: CommittedRows) -> None:
        """Raise with every broken rule, as far as the actor may know of it."""
        self.report(validate(changes, committed))

    def report(self, findings: Findings) -> None:
        """Raise the findings, as far as the actor may know of them."""
        redact_findings(findings, self.unreadable).raise_if_any()


def write_permissions(session: GraphSession, snapshot: Snapshot, branch: str | None = None) -> WritePermissions:
    """Return which types of a snapshot the actor may read and change; it sees neither of the rest.

    `branch` is the name of a branch about to be created from the snapshot, for which other rules may hold.
    """
    names = None if branch is not None or session.policy is ALLOW_ALL else session.names_of(snapshot)
    unreadable, unchangeable = (session.forbidden(snapshot, action, branch or names) for action in ("read", "change"))
    hidden = with_their_edges(session.catalog(snapshot), unreadable & unchangeable)
    unreadable = with_their_edges(session.catalog(snapshot), unreadable)
    return WritePermissions(
        session.view_without(snapshot, hidden),
        readable_view(session, snapshot, unreadable),
        unchangeable - hidden,
        unreadable - hidden,
        hidden,
        session.actor,
        names,
    )


def readable_view(session: GraphSession, snapshot: Snapshot, unreadable: frozenset[str]) -> View:
    """Return the only view that patterns of a mutation are compiled against and run on.

    Cascades of deletes and the rules see all types; they have code of their own, which reads no values for the actor.
    """
    return session.view_without(snapshot, unreadable)


def renew_permissions(session: GraphSession, permissions: WritePermissions, snapshot: Snapshot) -> WritePermissions:
    """Return permissions for the snapshot that is written to; the same if neither head nor names have changed."""
    previous = permissions.visible.snapshot
    if (previous.ref, previous.operation_id) == (snapshot.ref, snapshot.operation_id) and (
        session.policy is ALLOW_ALL or permissions.names == session.names_of(snapshot)
    ):
        return permissions
    return write_permissions(session, snapshot)


def check_base(session: GraphSession, base: str, branch: str) -> None:
    """Raise `PolicyDenied` if the actor may not create the branch of a load from its base."""
    session.require("branch_create", between(base, branch))
    check_flow(session, session.head(base), branch)
