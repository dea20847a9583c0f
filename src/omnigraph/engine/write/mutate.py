"""Run the statements of a mutation query, or delete entities by their ids, as one commit; none if nothing changes.

Statements run in memory against one snapshot. The result is validated by the rules, staged, and published.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from omnigraph import clock
from omnigraph.engine.arguments import strip_name
from omnigraph.engine.authorization import on_branch
from omnigraph.engine.query.context import Caches
from omnigraph.engine.session import GraphSession
from omnigraph.engine.write.hidden_type_errors import mask_hidden_type_errors
from omnigraph.engine.write.pending_changes import PendingChanges
from omnigraph.engine.write.staging import Stager
from omnigraph.engine.write.statements import Constants, Run
from omnigraph.engine.write.write_authorization import WritePermissions, renew_permissions, write_permissions
from omnigraph.errors import OmniGraphError
from omnigraph.lang.catalog import Catalog, TypeKey
from omnigraph.lang.diagnostic import LanguageError, Source
from omnigraph.lang.query import CompiledQuery, ir, require_kind
from omnigraph.lang.query.check_context import pattern_reads
from omnigraph.manifest.model import MAIN, Commit, Snapshot
from omnigraph.manifest.plan import CommitPolicy, Plan
from omnigraph.manifest.requirements import IfCommit
from omnigraph.public_values import MutationReceipt
from omnigraph.rules.delta import Ids, one_array


def mutate(
    session: GraphSession,
    source: Source,
    name: str | None = None,
    params: Mapping[str, object] | None = None,
    branch: str = MAIN,
    if_commit: str | None = None,
    *,
    caches: Caches | None = None,
    dry_run: bool = False,
) -> MutationReceipt:
    """Run a mutation. With `if_commit`, only if that commit is the head of the branch.

    A dry run checks everything and publishes nothing; its receipt has the counts.
    """
    branch = strip_name(branch)
    session.require("change", on_branch(branch))
    may, compiled = _compile_early(session, branch, source, name)
    condition = None
    if if_commit is not None:
        expected = session.expected_head(branch, if_commit)
        condition = IfCommit(expected, is_head_told=session.would_allow("read", on_branch(branch)))
    mutation = _Mutation(session, source, name, params or {}, condition, may, compiled, caches or Caches(), dry_run)
    work = CommitPolicy.INSERT if _is_insert_only(compiled) else CommitPolicy.CHANGE
    with mask_hidden_type_errors(mutation.hidden, session.actor):
        receipt = session.kernel.commit(branch, mutation.prepare, work)
    run = mutation.run
    assert run is not None
    commit = session.redact_receipt(receipt.commit, branch) if receipt and receipt.commit else None
    return MutationReceipt(branch, compiled.name, run.affected["node"], run.affected["edge"], session.actor, commit)


def _compile_early(
    session: GraphSession, branch: str, source: Source, name: str | None
) -> tuple[WritePermissions, CompiledQuery]:
    """Compile against the last known snapshot, to choose the commit policy; the write compiles again if that is old.

    This saves a storage request for the head. An error is raised only if the newest snapshot confirms it.
    """
    recent = session.kernel.recent_snapshot(branch)
    if recent is not None:
        with suppress(OmniGraphError):
            may = write_permissions(session, recent)
            return may, _compile(session, may, source, name)
    may = write_permissions(session, session.kernel.snapshot(branch))
    return may, _compile(session, may, source, name)


def _compile(session: GraphSession, may: WritePermissions, source: Source, name: str | None) -> CompiledQuery:
    """Compile a mutation whose patterns match what the actor may read, and check what its statements need."""
    readable, visible = may.readable.catalog, may.visible.catalog
    try:
        compiled = session.compile(source, readable, name, visible)
    except LanguageError:
        if may.unreadable:
            # A pattern that names a type which may only be changed is denied by name; the type is not unknown.
            with suppress(LanguageError):
                _check_permissions(may, session.compile(source, visible, name), visible)
        raise
    _check_permissions(may, require_kind(compiled, "mutation"), readable)
    return compiled


def _check_permissions(may: WritePermissions, compiled: CompiledQuery, patterns: Catalog) -> None:
    """Raise `PolicyDenied` unless the actor may change what the statements write and read what they depend on."""
    if not isinstance(compiled.ir, ir.MutationIR):
        return
    statements = compiled.ir.statements
    may.check(statement.type_name for statement in statements)
    # Edges of hidden types follow a renamed node as they fall with a deleted one; those that the actor sees it changes.
    may.check(name for item in statements if isinstance(item, ir.Rename | ir.RenameMatched) for name in item.repointed)
    # `create` and `upsert` reveal whether an entity exists, and a pattern is a read.
    conditions = {
        item.type_name
        for item in statements
        if not isinstance(item, ir.Insert | ir.InsertMatched) or item.verb is not ir.Verb.INSERT
    }
    for statement in statements:
        if isinstance(statement, ir.Matched):
            conditions |= {use.type_name for use in pattern_reads(statement, patterns)}
    may.check_conditions(sorted(conditions))


def _is_insert_only(query: CompiledQuery) -> bool:
    assert isinstance(query.ir, ir.MutationIR)
    return all(
        isinstance(statement, ir.Insert) and statement.verb is ir.Verb.INSERT for statement in query.ir.statements
    )


@dataclass
class _Mutation:
    """A mutation that may be prepared several times."""

    session: GraphSession
    source: Source
    name: str | None
    params: Mapping[str, object]
    if_commit: IfCommit | None
    may: WritePermissions
    compiled: CompiledQuery
    caches: Caches
    is_dry: bool
    run: Run | None = None

    def __post_init__(self) -> None:
        self.hidden = set(self.may.hidden)
        # What must not differ between attempts.
        self._stager = Stager()
        self._now_us = clock.now_us()
        self._blobs = self.session.blob_reader()
        self._fresh: dict[tuple[int, str], str] = {}

    def prepare(self, snapshot: Snapshot) -> Plan | None:
        """Run all statements on a snapshot and stage the result."""
        if self.if_commit is not None:
            # A mutation that changes nothing publishes nothing, but its condition still has to hold.
            self.if_commit.check(snapshot)
        may = renew_permissions(self.session, self.may, snapshot)
        if may is not self.may:
            self.may, self.compiled = may, _compile(self.session, may, self.source, self.name)
            self.hidden |= may.hidden
        statements, view = self.compiled.ir, self.session.full_view_of(snapshot)
        assert isinstance(statements, ir.MutationIR)
        constants = Constants(self.compiled.params, self.params, self._now_us, self._blobs)
        self.run = Run(view, may.readable, constants, self.caches, self._fresh)
        for index, statement in enumerate(statements.statements):
            self.run.execute(index, statement)
        changes, committed = self.run.pending.changes(), self.run.pending.committed
        if not changes.deltas:
            return None
        may.validate(changes, committed)
        if self.is_dry:
            return None
        condition = () if self.if_commit is None else (self.if_commit,)
        return self._stager.plan(self.session, "mutation", changes, committed, condition)


@dataclass(frozen=True, slots=True)
class DeleteOutcome:
    """How many entities of each type were there, edges that fell with a node not counted; no commit if none were."""

    counts: Mapping[TypeKey, int]
    commit: Commit | None


def read_ids(session: GraphSession, key: TypeKey, branch: str) -> Ids:
    """Return the ids of all entities of a type on a branch."""
    session.require("read", on_branch(branch))
    write_permissions(session, session.kernel.snapshot(branch)).check_conditions([key.name])
    return one_array(session.full_view(branch).sound_dataset(key).read(["id"]).column("id"))


def delete_ids(session: GraphSession, ids: Mapping[TypeKey, Ids], branch: str) -> DeleteOutcome:
    """Delete entities; ids that do not exist are left out. As with a `delete`, `read` of the types is needed."""
    session.require("change", on_branch(branch))
    counts: dict[TypeKey, int] = {}
    stager = Stager()

    def prepare(snapshot: Snapshot) -> Plan | None:
        may = write_permissions(session, snapshot)
        may.check(key.name for key in ids)
        may.check_conditions(key.name for key in ids)
        view = session.full_view_of(snapshot)
        pending = PendingChanges(view)
        for key, type_ids in ids.items():
            existing = pending.committed.existing(key, type_ids)
            counts[key] = len(existing)
            pending.of(view.catalog.type_of(key)).delete(existing)
            for edge in view.catalog.edges.values() if key.kind == "node" and len(existing) else ():
                pending.delete_incident(edge, key.name, existing)
        changes = pending.changes()
        if not changes.deltas:
            return None
        may.validate(changes, pending.committed)
        return stager.plan(session, "mutation", changes, pending.committed)

    with mask_hidden_type_errors(write_permissions(session, session.kernel.snapshot(branch)).hidden, session.actor):
        receipt = session.kernel.commit(branch, prepare, CommitPolicy.CHANGE)
    return DeleteOutcome(counts, receipt.commit if receipt is not None else None)
