"""JSON of snapshots, of opened and of served graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omnigraph.client.values import Snapshot

if TYPE_CHECKING:
    from omnigraph.manifest.model import Snapshot as StoredSnapshot


def snapshot_json(snapshot: StoredSnapshot | Snapshot) -> dict[str, Any]:
    """Return the state of a branch as JSON."""
    if isinstance(snapshot, Snapshot):
        return snapshot.to_json()
    from omnigraph.engine.history import describe_snapshot

    return describe_snapshot(snapshot)
