"""Approvals: artifacts in storage that allow the deletion of a graph, bound to the digests that were reviewed.

The digests are those of the folder and of the applied graph, and one of the newest commits: data that was written after
the review was not reviewed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from omnigraph import clock
from omnigraph.cluster.ledger import FOLDER, ClusterState, Json, Ledger, unreadable_object
from omnigraph.cluster.live_graphs import digest_heads
from omnigraph.ids import new_ulid

if TYPE_CHECKING:
    from omnigraph.cluster.plan import Change

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
    def read(cls, ledger: Ledger, state: ClusterState) -> Approvals:
        """Read the approvals of a cluster. The ledger decides which are used: a crash may have kept one unmarked."""
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
        """Return True if the change was approved in another form only."""
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
    """Store the approval of a change."""
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
    """Return where an approval is stored."""
    return f"{APPROVAL_FOLDER}/{approval_id}.json"
