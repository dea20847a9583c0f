"""Deletes entities by their ids, nodes with their edges, as one commit; the ids may come from anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from omnigraph.engine.authorization import on_branch
from omnigraph.engine.session import GraphSession
from omnigraph.engine.write.committed_rows import CommittedRows
from omnigraph.engine.write.pending import PendingType, incident_ids
from omnigraph.engine.write.staging import Stager
from omnigraph.engine.write.write_authorization import mask_hidden_type_errors, redact_findings, write_permissions
from omnigraph.lang.catalog import EdgeType, NodeType, TypeKey
from omnigraph.manifest.model import Commit, Snapshot
from omnigraph.manifest.plan import CommitPolicy, Plan
from omnigraph.manifest.requirements import SchemaIs
from omnigraph.rules.delta import Changes, Ids, one_array
from omnigraph.rules.validate import validate


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
    work = _Deletion(session, ids)
    with mask_hidden_type_errors(write_permissions(session, session.kernel.snapshot(branch)).hidden, session.actor):
        receipt = session.kernel.commit(branch, work.prepare, CommitPolicy.CHANGE)
    return DeleteOutcome(work.counts, receipt.commit if receipt is not None else None)


class _Deletion:
    """A deletion that may be prepared several times."""

    def __init__(self, session: GraphSession, ids: Mapping[TypeKey, Ids]) -> None:
        self.session = session
        self.ids = ids
        self.counts: dict[TypeKey, int] = {}
        self._stager = Stager()

    def prepare(self, snapshot: Snapshot) -> Plan | None:
        """Find what exists on a snapshot, and stage its deletion."""
        may = write_permissions(self.session, snapshot)
        may.check(key.name for key in self.ids)
        may.check_conditions(key.name for key in self.ids)
        view = self.session.full_view_of(snapshot)
        catalog, committed = view.catalog, CommittedRows(view)
        pending: dict[TypeKey, PendingType] = {}

        def remove(type_: NodeType | EdgeType, ids: Ids) -> None:
            pending.setdefault(type_.table_key, PendingType(type_, committed)).delete(ids)

        self.counts = {}
        for key, ids in self.ids.items():
            type_, existing = catalog.type_of(key), committed.existing(key, ids)
            self.counts[key] = len(existing)
            remove(type_, existing)
            for edge in catalog.edges.values() if key.kind == "node" and len(existing) else ():
                for column, end in edge.ends.items():
                    if end == type_.name:
                        remove(edge, incident_ids(committed, edge, column, existing))
        changes = Changes(catalog, {key: item.delta() for key, item in sorted(pending.items()) if item.is_touched})
        if not changes.deltas:
            return None
        redact_findings(validate(changes, committed), may.unreadable).raise_if_any()
        return Plan(
            "mutation",
            self._stager.stage(view, dict(changes.deltas), committed),
            requirements=(SchemaIs(catalog.ir_hash),),
            actor=self.session.actor,
            reads=frozenset(committed.types_read | changes.deltas.keys()),
        )
