"""Looks at the graphs of a cluster in storage: whether each exists, and how its schema compares with a declared one."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from omnigraph.cluster.desired import sha256
from omnigraph.cluster.ledger import Json, Ledger, graph_path
from omnigraph.errors import GraphNotFound, OmniGraphError
from omnigraph.graph import open as open_graph
from omnigraph.graph import session_of


@dataclass(frozen=True, slots=True)
class LiveGraph:
    """What a look at a graph showed: `is_wanted` if its schema is the declared one, `is_applied` if the applied one."""

    exists: bool
    is_wanted: bool = False
    is_applied: bool = False
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


def inspect_graph(ledger: Ledger, graph_id: str, schema: str, applied: str | None = None) -> LiveGraph:
    """Open a graph read-only and compare its schema with sources; a missing graph is no error."""
    try:
        with open_graph(ledger.graph_uri(graph_id), read_only=True) as graph:
            is_wanted = not graph.schema.plan(schema).steps
            is_applied = applied is not None and not graph.schema.plan(applied).steps
            digest = sha256(graph.schema.source.encode())
            return LiveGraph(True, is_wanted, is_applied, graph.snapshot().version, digest)
    except GraphNotFound:
        return LiveGraph(False)
    except OmniGraphError as failure:
        return LiveGraph(bool(ledger.objects.list(graph_path(graph_id))), error=failure.message)


def digest_heads(ledger: Ledger, graph_id: str) -> str | None:
    """Return a digest of the newest commits of all branches of a graph; None if it cannot be read."""
    try:
        with open_graph(ledger.graph_uri(graph_id), read_only=True) as graph:
            kernel = session_of(graph).kernel
            heads = sorted((branch, str(kernel.snapshot(branch).head)) for branch in graph.branches.list())
    except OmniGraphError:
        return None
    return sha256(orjson.dumps(heads))


def preview_migration(ledger: Ledger, graph_id: str, schema: str) -> Json:
    """Return the migration of a live graph to a schema, without applying it."""
    with open_graph(ledger.graph_uri(graph_id), read_only=True) as graph:
        return dict(graph.schema.plan(schema).to_json())
