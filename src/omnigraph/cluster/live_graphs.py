"""Inspects the graphs of a cluster in storage, read-only: schemas, heads of branches, and previews of migrations."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from omnigraph.cluster.desired import sha256
from omnigraph.cluster.ledger import Json, Ledger, graph_path
from omnigraph.errors import GraphNotFound, OmniGraphError
from omnigraph.graph import open as open_graph
from omnigraph.graph import session_of


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


def preview_migration(ledger: Ledger, graph_id: str, schema: str) -> Json:
    """Return the migration of a live graph to a schema, without applying it."""
    with open_graph(ledger.graph_uri(graph_id), read_only=True) as graph:
        return dict(graph.schema.plan(schema).to_json())
