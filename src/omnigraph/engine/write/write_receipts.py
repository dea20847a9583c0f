"""Receipts of mutations and ingests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from omnigraph.manifest.model import Commit


@dataclass(frozen=True, slots=True)
class MutationReceipt:
    """A finished mutation; without a commit when it changed nothing."""

    branch: str
    query_name: str
    affected_nodes: int
    affected_edges: int
    commit: Commit | None
    actor: str | None = None

    def to_json(self) -> dict[str, object]:
        return {
            "branch": self.branch,
            "query_name": self.query_name,
            "affected_nodes": self.affected_nodes,
            "affected_edges": self.affected_edges,
            "actor_id": self.actor,
            "commit": self.commit.to_json(self.branch) if self.commit else None,
        }


@dataclass(frozen=True, slots=True)
class IngestReceipt:
    """A finished ingest: how many entities of each type it read, and its commit, if there was anything to write."""

    branch: str
    base_branch: str | None
    branch_created: bool
    mode: str
    nodes: Mapping[str, int]
    edges: Mapping[str, int]
    commit: Commit | None
    actor: str | None = None

    @property
    def commit_id(self) -> str | None:
        return self.commit.commit_id if self.commit else None

    @property
    def total_entities(self) -> int:
        return sum(self.nodes.values()) + sum(self.edges.values())

    def to_json(self) -> dict[str, object]:
        return {
            "branch": self.branch,
            "base_branch": self.base_branch,
            "branch_created": self.branch_created,
            "mode": self.mode,
            "nodes": [{"name": name, "entities_loaded": count} for name, count in self.nodes.items()],
            "edges": [{"name": name, "entities_loaded": count} for name, count in self.edges.items()],
            "total_entities": self.total_entities,
            "actor_id": self.actor,
            "commit": self.commit.to_json(self.branch) if self.commit else None,
        }
