"""Commits and snapshots of opened and of served graphs, as every surface shows them.

Knows both kinds, so that commands need not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omnigraph.client.values import Commit, Snapshot

if TYPE_CHECKING:
    from omnigraph.client import Graph as ServedGraph
    from omnigraph.graph import Graph
    from omnigraph.manifest.model import Commit as StoredCommit
    from omnigraph.manifest.model import Snapshot as StoredSnapshot


def commit_of(graph: Graph | ServedGraph, one: StoredCommit | Commit) -> dict[str, Any]:
    """Return a commit as JSON."""
    if isinstance(one, Commit):
        return one.to_json()
    from omnigraph.engine.history import describe_commit
    from omnigraph.graph import Graph

    assert isinstance(graph, Graph), "only an opened graph has stored commits"
    return describe_commit(graph.core, one)


def snapshot_of(one: StoredSnapshot | Snapshot) -> dict[str, Any]:
    """Return the state of a branch as JSON."""
    if isinstance(one, Snapshot):
        return one.to_json()
    from omnigraph.engine.history import describe_snapshot

    return describe_snapshot(one)
