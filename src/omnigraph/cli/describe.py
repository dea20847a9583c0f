"""JSON of commits and snapshots, of opened and of served graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from omnigraph.client.values import Commit, Snapshot

if TYPE_CHECKING:
    from omnigraph.client import Graph as ServedGraph
    from omnigraph.graph import Graph
    from omnigraph.manifest.model import Commit as StoredCommit
    from omnigraph.manifest.model import Snapshot as StoredSnapshot


def commits_json(graph: Graph | ServedGraph, commits: Sequence[StoredCommit | Commit]) -> list[dict[str, Any]]:
    """Return commits as JSON."""
    served = [commit.to_json() for commit in commits if isinstance(commit, Commit)]
    stored = [commit for commit in commits if not isinstance(commit, Commit)]
    if not stored:
        return served
    from omnigraph.engine.history import describe_commits
    from omnigraph.graph import Graph, session_of

    assert isinstance(graph, Graph), "only an opened graph has stored commits"
    return describe_commits(session_of(graph), stored)


def snapshot_json(snapshot: StoredSnapshot | Snapshot) -> dict[str, Any]:
    """Return the state of a branch as JSON."""
    if isinstance(snapshot, Snapshot):
        return snapshot.to_json()
    from omnigraph.engine.history import describe_snapshot

    return describe_snapshot(snapshot)
