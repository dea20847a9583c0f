"""Applies a plan: creates graphs, changes schemas, stores queries and policies, deletes what was approved, records it.

Order makes every crash harmless. A sidecar precedes each movement of a graph, content precedes the revision that names
it, deletions come last, and one revision of the ledger records everything; running `apply` again finishes the rest.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Final

from omnigraph.cluster.config import CONFIG_NAME, read_config
from omnigraph.cluster.desired import DesiredState, read_desired
from omnigraph.cluster.ledger import (
    AppliedState,
    ClusterLock,
    Json,
    Ledger,
    ResourceStatus,
    StoredRevision,
    check_content,
    forget_lost,
    graph_path,
    operation_record,
)
from omnigraph.cluster.plan import (
    Approvals,
    Change,
    Plan,
    block_after_failure,
    block_deletion,
    consumed,
    graph_of,
    inspect_graph,
    make_plan,
    waiting_graphs,
)
from omnigraph.cluster.recovery import MovementKind, Sweep, finish_movements, without_graph, write_sidecar
from omnigraph.errors import GraphExists, OmniGraphError, StorageError
from omnigraph.findings import ClusterError, Finding, cluster_error, error, has_errors, warning
from omnigraph.graph import Graph, init, session_of
from omnigraph.graph import open as open_graph
from omnigraph.ids import new_ulid
from omnigraph.lang.migrate.step import Step
from omnigraph.limits import CLUSTER_DELETE_OBJECTS


@dataclass
class _Progress:
    """What an apply has done so far."""

    state: AppliedState
    sidecars: list[str] = field(default_factory=list)
    used_approvals: list[Json] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    # Lost content of the base was stored again. It needs a revision, by which servers notice it.
    has_restored: bool = False


class Apply:
    """One apply under the lock."""

    def __init__(
        self, ledger: Ledger, lock: ClusterLock, desired: DesiredState, actor: str | None, base: StoredRevision
    ) -> None:
        self.ledger = ledger
        self.base = base
        self.lock = lock
        self.desired = desired
        self.actor = actor
        self.operation_id = new_ulid()

    def run(self, swept: Sweep) -> tuple[Json, list[Finding]]:
        """Bring storage to the desired state as far as the plan allows, and record it; returns what to report."""
        self._check_sources()
        content_findings = check_content(self.ledger, swept.state)
        state = forget_lost(swept.state, content_findings)
        plan = make_plan(self.ledger, self.desired, state, swept.pending)
        progress = _Progress(state, list(swept.retired), list(swept.used_approvals))
        progress.findings = [*swept.findings, *content_findings, *plan.findings]
        plan = self._move_graphs(plan, progress)
        self._store_payloads(plan, progress)
        plan = self._delete_graphs(plan, progress)
        state = self._record(plan, progress)
        is_settled = not swept.pending and not has_errors(progress.findings)
        is_converged = is_settled and all(change.disposition != "blocked" for change in plan.changes)
        if is_converged:
            state = replace(state, config_digest=self.desired.config_digest)
        return self._write(state, plan, progress, is_converged)

    def _check_sources(self) -> None:
        """Read every file once more; one that changed since the plan was made stops the apply."""
        config = read_config(self.desired.config.directory)
        if config.text != self.desired.config.text:
            message = "it changed while the command ran; run it again. Nothing was changed"
            raise cluster_error("resource_content_changed", CONFIG_NAME, message)
        changed = {address for address, _ in read_desired(config).digests.items() ^ self.desired.digests.items()}
        if changed:
            message = "its file changed while the command ran; run it again. Nothing was changed"
            raise ClusterError.of([error("resource_content_changed", address, message) for address in sorted(changed)])

    # -- movements ---------------------------------------------------------------------------------------------

    def _move_graphs(self, plan: Plan, progress: _Progress) -> Plan:
        """Create graphs and change schemas; the first failure stops all further movement."""
        movements = [*plan.of("graph", "create"), *plan.of("schema", "update")]
        for index, change in enumerate(movements):
            graph_id = graph_of(change.resource)
            assert graph_id is not None
            try:
                self._move(change, graph_id, progress)
            except OmniGraphError as failure:
                if isinstance(failure, ClusterError):
                    raise
                message = failure.message
                if isinstance(failure, GraphExists):
                    message = f"there is something at `{self.ledger.graph_uri(graph_id)}` already; move it away, or"
                    message += " declare the schema that it has"
                progress.findings.append(error("apply_failed", change.resource, message))
                failed = {str(graph_of(item.resource)) for item in movements[index:]}
                return block_after_failure(plan, self.desired, progress.state, failed)
        return plan

    def _move(self, change: Change, graph_id: str, progress: _Progress) -> None:
        schema = self.desired.graphs[graph_id].schema
        digest = self.desired.resources[f"schema.{graph_id}"].digest
        is_create = change.operation == "create"
        with nullcontext() if is_create else open_graph(self.ledger.graph_uri(graph_id), actor=self.actor) as graph:
            self.lock.require()
            kind: MovementKind = "graph_create" if is_create else "schema_apply"
            version = None if graph is None else graph.snapshot().version
            sidecar = self._write_sidecar(kind, graph_id, digest, schema.text, observed_manifest_version=version)
            self._make_movement(graph, graph_id, sidecar)
        progress.sidecars.append(sidecar)

    def _write_sidecar(self, kind: MovementKind, graph_id: str, digest: str, schema: str, **more: Any) -> str:
        base = self.base.cas
        return write_sidecar(self.ledger, kind, graph_id, digest, schema, self.actor, state_cas_base=base, **more)

    def _make_movement(self, graph: Graph | None, graph_id: str, sidecar: str) -> None:
        schema = self.desired.graphs[graph_id].schema.text
        try:
            self.lock.require()
            if graph is not None:
                # Asked before each attempt to publish: a holder that was paused for long must not move the graph.
                session_of(graph).schema_check = lambda *_: self.lock.require()
                graph.schema.apply(schema)
            # A graph of the declared schema is there already when an earlier run could not record it.
            elif not inspect_graph(self.ledger, graph_id, schema).matches_desired:
                init(self.ledger.graph_uri(graph_id), schema, actor=self.actor).close()
        except StorageError:
            # It may have happened; the next sweep looks at the graph.
            raise
        except OmniGraphError:
            self.ledger.objects.discard(sidecar)
            raise

    def _store_payloads(self, plan: Plan, progress: _Progress) -> None:
        for change in plan.changes:
            resource = self.desired.resources.get(change.resource)
            if change.disposition == "applied" and resource is not None and resource.payload is not None:
                is_stored = self.ledger.write_payload(resource.address, resource.digest, resource.payload)
                if is_stored and self.base.state.digest(resource.address) == resource.digest:
                    progress.has_restored = True
        # The text of a schema only serves `diff` and `refresh`; it is stored again where it was lost or never stored.
        for address, resource in self.desired.resources.items():
            if address.startswith("schema.") and progress.state.digest(address) == resource.digest:
                assert resource.payload is not None
                self.ledger.write_payload(address, resource.digest, resource.payload)

    def _delete_graphs(self, plan: Plan, progress: _Progress) -> Plan:
        """Delete graphs whose approval still holds; keep one that was written to since the plan was made."""
        for change in plan.of("graph", "delete"):
            graph_id = change.resource.removeprefix("graph.")
            self.lock.require()
            approval = Approvals.read(self.ledger, progress.state).find(change, self.desired.config_digest)
            if approval is None:
                plan = block_deletion(plan, self.desired, progress.state, change)
                continue
            before = progress.state.digest(f"schema.{graph_id}") or ""
            approval_id = approval["approval_id"]
            sidecar = self._write_sidecar("graph_delete", graph_id, before, "", approval_id=approval_id)
            self._delete_objects(graph_path(graph_id))
            progress.sidecars.append(sidecar)
            progress.used_approvals.append(consumed(approval, self.operation_id))
        return plan

    def _delete_objects(self, folder: str) -> None:
        """Delete a graph in batches; a holder that was paused and has lost the lock stops with the next one."""
        paths = [info.path for info in self.ledger.objects.list(folder)]
        for start in range(0, len(paths), CLUSTER_DELETE_OBJECTS):
            self.lock.require()
            self.ledger.objects.delete_many(paths[start : start + CLUSTER_DELETE_OBJECTS])
        self.lock.require()
        self.ledger.objects.delete_prefix(folder)

    # -- recording ---------------------------------------------------------------------------------------------

    def _record(self, plan: Plan, progress: _Progress) -> AppliedState:
        """Return the state after the changes that were made."""
        state = progress.state
        for change in plan.of("graph", "delete"):
            state = without_graph(state, change.resource.removeprefix("graph."))
        resources, statuses = dict(state.resources), dict(state.statuses)
        for change in plan.changes:
            address = change.resource
            if change.disposition == "blocked":
                # The status of a graph with a remaining sidecar says more.
                if change.reason != "cluster_recovery_pending" or address not in statuses:
                    statuses[address] = ResourceStatus("blocked", (change.reason or "",))
            elif change.operation == "delete":
                resources.pop(address, None)
                statuses.pop(address, None)
            else:
                resource = self.desired.resources[address]
                kept = {name: resources[address][name] for name in _KEPT if name in resources.get(address, {})}
                resources[address] = {"digest": resource.digest, **resource.metadata, **kept}
                if address.startswith("graph.") and change.operation == "create":
                    resources[address]["incarnation"] = self.operation_id
                statuses[address] = ResourceStatus("applied")
        self._bind_policies(plan, state, resources)
        for address in self.desired.resources.keys() & resources.keys() - {change.resource for change in plan.changes}:
            statuses[address] = ResourceStatus("applied")
        shown = [item for item in statuses.items() if item[0] in self.desired.resources or item[0] in resources]
        return replace(state, resources=dict(sorted(resources.items())), statuses=dict(sorted(shown)))

    def _bind_policies(self, plan: Plan, before: AppliedState, resources: dict[str, Json]) -> None:
        """Bind changed policies to the graphs that are there, and to those that stay until they are deleted."""
        waiting = waiting_graphs(plan.changes)
        for change in plan.changes:
            address = change.resource
            if not address.startswith("policy.") or address not in resources:
                continue
            kept = [scope for scope in before.resources.get(address, {}).get("applies_to", ()) if scope in waiting]
            if change.disposition != "blocked":
                declared = self.desired.resources[address].metadata["applies_to"]
                bound = [scope for scope in declared if not scope.startswith("graph.") or scope in resources]
                resources[address]["applies_to"] = bound + [scope for scope in kept if scope not in bound]
            elif change.operation == "delete" and kept:
                resources[address] = {**resources[address], "applies_to": kept}

    def _write(
        self, state: AppliedState, plan: Plan, progress: _Progress, is_converged: bool
    ) -> tuple[Json, list[Finding]]:
        base = self.base
        used = {item["approval_id"]: item for item in progress.used_approvals}
        state = replace(state, approval_records={**state.approval_records, **used})
        is_changed = state != base.state or progress.has_restored
        stored = base
        # The revision is the commit point. Approvals are marked and sidecars removed after it: a crash in between is
        # settled by the next sweep, which finds both in the revision.
        if is_changed:
            self.lock.require()
            changes = [change.to_json() for change in plan.changes]
            record = operation_record("apply", self.actor, operation_id=self.operation_id, changes=changes)
            stored = self.ledger.write(replace(state, operation=record), base)
        finish_movements(self.ledger, progress.used_approvals, progress.sidecars)
        outcome = {"converged": is_converged, "state_written": is_changed, "state_revision": stored.state.revision}
        return plan.to_json() | outcome, [*self.lock.findings, *progress.findings, *_blocked_findings(plan)]


# What the ledger knows of a resource, and its declaration does not.
_KEPT: Final = ("incarnation",)


def _blocked_findings(plan: Plan) -> list[Finding]:
    return [
        warning(_CODES.get(change.reason or "", change.reason or "blocked"), change.resource, _remedy(change))
        for change in plan.changes
        if change.disposition == "blocked"
    ]


def _remedy(change: Change) -> str:
    if change.reason == "schema_change_unsupported":
        assert change.migration is not None
        refused = [Step.from_json(step) for step in change.migration["steps"]]
        reasons = ", ".join(str(step.message) for step in refused if step.kind == "unsupported_change")
        return f"the schema cannot be changed in this way: {reasons}; change it in another way, and apply again"
    if change.reason == "dependency_not_applied" and graph_of(change.resource) is None and change.operation == "delete":
        return "a graph that was not applied or deleted still uses it; settle that and apply again"
    return _REMEDIES.get(change.reason or "", "it was not applied")


_CODES = {"dependency_not_applied": "apply_dependency_blocked"}
_REMEDIES = {
    "approval_required": "review it, then run `omnigraph cluster approve` for the graph, and apply again",
    "approval_stale": "it was approved in another form; approve it again",
    "cluster_recovery_pending": "an interrupted movement of the graph could not be settled; see the errors",
    "dependency_not_applied": "the graph that it belongs to was not applied; fix that and apply again",
}
