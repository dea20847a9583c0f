"""The plan of a cluster: desired state against applied state and live graphs, and the approvals that deletions need.

An approval is bound to digests of the folder, of the applied graph, and of its newest commits: data that was written
after the review was not reviewed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, Literal

import orjson

from omnigraph import clock
from omnigraph.cluster.desired import DesiredState, sha256
from omnigraph.cluster.ledger import FOLDER, AppliedState, Json, Ledger, graph_path, unreadable_object
from omnigraph.errors import GraphNotFound, OmniGraphError
from omnigraph.findings import Finding, warning
from omnigraph.graph import open as open_graph
from omnigraph.graph import session_of
from omnigraph.ids import new_ulid
from omnigraph.public_values import PublicValue


@dataclass(frozen=True, slots=True)
class GraphInspection:
    """The result of inspecting a graph; the comparisons are about its schema."""

    exists: bool
    matches_desired: bool = False
    matches_applied: bool = False
    manifest_version: int | None = None
    schema_digest: str | None = None
    error: str | None = None

    def to_json(self) -> Json:
        return {
            "exists": self.exists,
            "manifest_version": self.manifest_version,
            "live_schema_digest": self.schema_digest,
            "error": self.error,
        }


def inspect_graph(ledger: Ledger, graph_id: str, desired: str, applied: str | None = None) -> GraphInspection:
    """Open a graph read-only and compare its schema with the desired and the applied one; it may be missing."""
    try:
        with open_graph(ledger.graph_uri(graph_id), read_only=True) as graph:
            # A change that is not supported is a step of the plan, too.
            matches_desired = not graph.schema.plan(desired).steps
            matches_applied = applied is not None and not graph.schema.plan(applied).steps
            digest = sha256(graph.schema.source.encode())
            return GraphInspection(True, matches_desired, matches_applied, graph.snapshot().version, digest)
    except GraphNotFound:
        return GraphInspection(exists=False)
    except OmniGraphError as failure:
        return GraphInspection(bool(ledger.objects.list(graph_path(graph_id))), error=failure.message)


def digest_heads(ledger: Ledger, graph_id: str) -> str | None:
    """Return a digest of the head commits of all branches of a graph; None if it cannot be read."""
    try:
        with open_graph(ledger.graph_uri(graph_id), read_only=True) as graph:
            kernel = session_of(graph).kernel
            heads = sorted((branch, str(kernel.snapshot(branch).head)) for branch in graph.branches.list())
    except OmniGraphError:
        return None
    return sha256(orjson.dumps(heads))


APPROVAL_FOLDER: Final = f"{FOLDER}/approvals"
_MEMBERS: Final = frozenset(
    {"approval_id", "resource", "operation", "bound_config_digest", "bound_before_digest", "bound_after_digest"}
)


@dataclass(frozen=True, slots=True)
class Approvals:
    """All approvals that the ledger has not recorded as used, by path.

    `begun` has the ids of those whose deletion was interrupted: it goes on, whatever is left of the graph.
    """

    artifacts: Mapping[str, Json]
    begun: frozenset[str]
    digest_heads: Callable[[str], str | None]

    @classmethod
    def read(cls, ledger: Ledger, state: AppliedState) -> Approvals:
        """Read the approvals of a cluster; the ledger decides which are used: a crash may leave a used one unmarked."""
        used = {approval_path(approval_id) for approval_id in state.approval_records}
        artifacts = ledger.read_json("approvals")
        for path, item in artifacts.items():
            if not item.keys() >= _MEMBERS or path != approval_path(str(item["approval_id"])):
                raise unreadable_object(path, "it is no approval")
        sidecars = ledger.read_json("recoveries").values()
        begun = frozenset(str(item.get("approval_id")) for item in sidecars if item.get("kind") == "graph_delete")
        unused = {path: item for path, item in artifacts.items() if path not in used}
        return cls(unused, begun, cache(lambda graph_id: digest_heads(ledger, graph_id)))

    def find(self, change: Change, config_digest: str) -> Json | None:
        """Return an unused approval of exactly this change."""
        return next((item for item in self._open(change) if self._is_bound(item, change, config_digest)), None)

    def is_stale(self, change: Change, config_digest: str) -> bool:
        """Return True if the change was approved, but not in its present form."""
        return any(self._open(change)) and self.find(change, config_digest) is None

    def _open(self, change: Change) -> list[Json]:
        subject = (change.resource, change.operation)
        return [
            item
            for item in self.artifacts.values()
            if (item["resource"], item["operation"]) == subject and item.get("consumed_at") is None
        ]

    def _is_bound(self, item: Json, change: Change, config_digest: str) -> bool:
        bound = (item["bound_config_digest"], item["bound_before_digest"], item["bound_after_digest"])
        if bound != (config_digest, change.before_digest, change.after_digest):
            return False
        # Earlier releases wrote no digest of the commits.
        return item["approval_id"] in self.begun or item.get("bound_heads_digest") == self.digest_heads(
            change.resource.removeprefix("graph.")
        )


def write_approval(ledger: Ledger, change: Change, config_digest: str, actor: str, reason: str) -> Json:
    approval_id = new_ulid()
    artifact: Json = {
        "schema_version": 1,
        "approval_id": approval_id,
        "resource": change.resource,
        "operation": change.operation,
        "reason": reason,
        "bound_config_digest": config_digest,
        "bound_before_digest": change.before_digest,
        "bound_after_digest": change.after_digest,
        "bound_heads_digest": digest_heads(ledger, change.resource.removeprefix("graph.")),
        "approved_by": actor,
        "created_at": clock.now_us(),
        "consumed_at": None,
        "consumed_by_operation": None,
    }
    ledger.write_json(approval_path(approval_id), artifact)
    return artifact


def consumed(artifact: Json, operation_id: str) -> Json:
    """Return an approval after its use; it is kept, and never used again."""
    return {**artifact, "consumed_at": clock.now_us(), "consumed_by_operation": operation_id}


def approval_path(approval_id: str) -> str:
    return f"{APPROVAL_FOLDER}/{approval_id}.json"


Operation = Literal["create", "update", "delete"]
Disposition = Literal["applied", "derived", "deferred", "blocked"]
_METADATA: Final = {"applies_to": "policy_bindings", "embedding_profile": "embedding_profile"}


@dataclass(frozen=True, slots=True)
class Change(PublicValue):
    """The change of a resource. `derived` follows from other changes; `blocked` has a coded reason."""

    resource: str
    operation: Operation
    before_digest: str | None
    after_digest: str | None
    disposition: Disposition
    reason: str | None = None
    binding_change: bool = False
    metadata_change: str | None = None
    migration: Json | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """All changes in the order of their addresses, and what they need and touch."""

    changes: tuple[Change, ...]
    approvals_required: tuple[Json, ...]
    blast_radius: Mapping[str, list[str]]
    findings: tuple[Finding, ...] = ()

    def of(self, kind: str, operation: Operation) -> list[Change]:
        """Return the changes of a kind of resource that may be made."""
        return _select(self.changes, kind, operation, "applied")

    def to_json(self) -> Json:
        return {
            "changes": [change.to_json() for change in self.changes],
            "blast_radius": dict(self.blast_radius),
            "approvals_required": list(self.approvals_required),
        }


def make_plan(ledger: Ledger, desired: DesiredState, state: AppliedState, pending: Mapping[str, str]) -> Plan:
    """Compare desired and applied state; `pending` maps graphs with an unfinished recovery to its operation."""
    approvals = Approvals.read(ledger, state)
    changes: Sequence[Change] = list(compare_resources(desired, state))
    changes = _block(changes, "cluster_recovery_pending", lambda change: graph_of(change.resource) in pending)
    required: list[Json] = []
    for deletion in _select(changes, "graph", "delete", "applied"):
        satisfied = approvals.find(deletion, desired.config_digest) is not None
        reason = "deleting a graph deletes its data"
        required.append({"resource": deletion.resource, "reason": reason, "satisfied": satisfied})
        if not satisfied:
            stale = approvals.is_stale(deletion, desired.config_digest)
            changes = _block_graph(changes, deletion, "approval_stale" if stale else "approval_required")
    findings: list[Finding] = []
    changes = [_with_migration(change, ledger, desired, findings) for change in changes]
    unsupported = {graph_of(item.resource) for item in changes if item.reason == "schema_change_unsupported"}
    changes = _block_dependents(changes, desired, state, {graph for graph in unsupported if graph})
    changes = _block_needed_deletions(changes, desired, state)
    return Plan(tuple(changes), tuple(required), _blast_radius(desired, changes), tuple(findings))


def compare_resources(desired: DesiredState, state: AppliedState) -> Iterator[Change]:
    """Yield the differences between desired and applied state in the order of their addresses."""
    for address in sorted({*desired.resources, *state.resources}):
        after, before = desired.resources.get(address), state.resources.get(address)
        after_digest, before_digest = after.digest if after else None, state.digest(address)
        if after is None:
            yield Change(address, "delete", before_digest, None, "applied")
        elif before is None:
            yield Change(address, "create", None, after_digest, "applied")
        else:
            changed = (word for name, word in _METADATA.items() if after.metadata.get(name) != before.get(name))
            metadata = next(changed, None)
            if after_digest != before_digest or metadata is not None:
                disposition: Disposition = "derived" if address.startswith("graph.") else "applied"
                is_binding = metadata == _METADATA["applies_to"]
                yield Change(address, "update", before_digest, after_digest, disposition, None, is_binding, metadata)


def graph_of(address: str) -> str | None:
    """Return the graph that a resource belongs to; None for policies, providers and pipelines."""
    kind, _, rest = address.partition(".")
    return rest.partition(".")[0] if kind in ("graph", "schema", "query") else None


def _select(changes: Iterable[Change], kind: str, operation: Operation, disposition: Disposition) -> list[Change]:
    return [
        change
        for change in changes
        if change.resource.startswith(f"{kind}.") and (change.operation, change.disposition) == (operation, disposition)
    ]


def waiting_graphs(changes: Iterable[Change]) -> set[str]:
    """Return the addresses of graphs that are no longer declared, but stay: their deletion is blocked."""
    return {change.resource for change in _select(changes, "graph", "delete", "blocked")}


def _block(changes: Iterable[Change], reason: str, is_blocked: Callable[[Change], bool]) -> list[Change]:
    """Block the changes that a condition applies to; one that is blocked already keeps its reason."""
    return [
        replace(change, disposition="blocked", reason=reason)
        if change.disposition != "blocked" and is_blocked(change)
        else change
        for change in changes
    ]


def _block_needed_deletions(changes: Sequence[Change], desired: DesiredState, state: AppliedState) -> list[Change]:
    """Block changes by which a graph that stays would lose its policy or its embedding provider.

    Without its policy, a graph that waits for an approval of its deletion would be open to every actor.
    """
    waiting = waiting_graphs(changes)
    staying = {item.resource for item in changes if item.disposition == "blocked"} & state.resources.keys()
    providers = {f"provider.embedding.{state.resources[address].get('embedding_provider')}" for address in staying}

    def is_needed(change: Change) -> bool:
        address = change.resource
        if change.operation == "delete" and address in providers:
            return True
        bindings = state.resources.get(address, {}).get("applies_to", ()) if address.startswith("policy.") else ()
        if not waiting & set(bindings):
            return False
        # An update keeps the binding, see `Apply._bind_policies`, unless the policy becomes that of the server.
        return change.operation == "delete" or not desired.resources[address].depends_on

    return _block(changes, "dependency_not_applied", is_needed)


def block_deletion(plan: Plan, desired: DesiredState, state: AppliedState, deletion: Change) -> Plan:
    """Keep a graph that a plan deletes, with all that belongs to it, because its approval is stale."""
    required = tuple(
        {**item, "satisfied": False} if item["resource"] == deletion.resource else item
        for item in plan.approvals_required
    )
    changes = _block_needed_deletions(_block_graph(plan.changes, deletion, "approval_stale"), desired, state)
    return replace(plan, changes=tuple(changes), approvals_required=required)


def _block_graph(changes: Iterable[Change], deletion: Change, reason: str) -> list[Change]:
    """Block the deletion of a graph with all that belongs to it."""
    graph = graph_of(deletion.resource)
    return _block(changes, reason, lambda change: graph_of(change.resource) == graph)


def block_after_failure(plan: Plan, desired: DesiredState, state: AppliedState, failed: set[str]) -> Plan:
    """Block what depends on graphs whose own change failed or was not reached, and every deletion of a graph."""
    deleted = {str(graph_of(item.resource)) for item in plan.of("graph", "delete")}
    changes = _block_dependents(plan.changes, desired, state, failed | deleted)
    return replace(plan, changes=tuple(_block_needed_deletions(changes, desired, state)))


def _block_dependents(
    changes: Iterable[Change], desired: DesiredState, state: AppliedState, failed: set[str]
) -> list[Change]:
    """Block all changes of failed graphs, and policies that have no graph yet."""
    missing = {f"graph.{graph}" for graph in failed if f"graph.{graph}" not in state.resources}

    def is_dependent(change: Change) -> bool:
        resource = desired.resources.get(change.resource)
        is_policy = change.resource.startswith("policy.")
        bindings = resource.depends_on if is_policy and resource is not None else ()
        return (bool(bindings) and missing.issuperset(bindings)) or graph_of(change.resource) in failed

    return _block(changes, "dependency_not_applied", is_dependent)


def _with_migration(change: Change, ledger: Ledger, desired: DesiredState, findings: list[Finding]) -> Change:
    """Return the change of a schema with its migration of the live graph."""
    if not (change.resource.startswith("schema.") and change.operation == "update"):
        return change
    graph_id = change.resource.removeprefix("schema.")
    try:
        with open_graph(ledger.graph_uri(graph_id), read_only=True) as graph:
            migration: Any = graph.schema.plan(desired.graphs[graph_id].schema.text).to_json()
    except OmniGraphError as failure:
        findings.append(warning("schema_preview_unavailable", change.resource, failure.message))
        return change
    if not migration["supported"]:
        return replace(change, disposition="blocked", reason="schema_change_unsupported", migration=migration)
    return replace(change, migration=migration)


def _blast_radius(desired: DesiredState, changes: list[Change]) -> dict[str, list[str]]:
    """Return the declared resources that depend on each changed one, directly or not."""
    dependents: dict[str, list[str]] = {}
    for resource in desired.resources.values():
        for needed in resource.depends_on:
            dependents.setdefault(needed, []).append(resource.address)
    return {change.resource: sorted(_transitive_dependents(change.resource, dependents)) for change in changes}


def _transitive_dependents(address: str, dependents: Mapping[str, list[str]]) -> set[str]:
    reached: set[str] = set()
    frontier = [address]
    while frontier:
        for dependent in dependents.get(frontier.pop(), ()):
            if dependent not in reached:
                reached.add(dependent)
                frontier.append(dependent)
    return reached
