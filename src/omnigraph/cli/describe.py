"""Commits and snapshots of opened and of served graphs, as every surface shows them.

Knows both kinds, so that commands need not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from omnigraph.client.values import Commit, Snapshot

if TYPE_CHECKING:
    from omnigraph.client import Graph as ServedGraph
    from omnigraph.graph import Graph
    from omnigraph.manifest.model import Commit as StoredCommit
    from omnigraph.manifest.model import Snapshot as StoredSnapshot


def commits_of(graph: Graph | ServedGraph, found: Sequence[StoredCommit | Commit]) -> list[dict[str, Any]]:
    """Return commits as JSON."""
    served = [one.to_json() for one in found if isinstance(one, Commit)]
    stored = [one for one in found if not isinstance(one, Commit)]
    if not stored:
        return served
    from omnigraph.engine.history import describe_commits
    from omnigraph.graph import Graph

    assert isinstance(graph, Graph), "only an opened graph has stored commits"
    return describe_commits(graph.session, stored)


def snapshot_of(one: StoredSnapshot | Snapshot) -> dict[str, Any]:
    """Return the state of a branch as JSON."""
    if isinstance(one, Snapshot):
        return one.to_json()
    from omnigraph.engine.history import describe_snapshot

    return describe_snapshot(one)
