"""The difference between a folder and the ledger as text: schemas, queries and policies line by line."""

from __future__ import annotations

import difflib

import orjson

from omnigraph.cluster.applied_state import applied_schema
from omnigraph.cluster.desired import DesiredState
from omnigraph.cluster.ledger import ClusterState, Json, Ledger
from omnigraph.cluster.plan import Change
from omnigraph.errors import OmniGraphError
from omnigraph.graph import open as open_graph


def diff_change(ledger: Ledger, desired: DesiredState, state: ClusterState, change: Change) -> Json:
    """Return a change with the unified difference of its text; that of graphs and providers is their metadata."""
    before = _applied_text(ledger, state, change.resource)
    after = _desired_text(desired, change.resource)
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"applied/{change.resource}", f"folder/{change.resource}", lineterm=""
    )
    return {"resource": change.resource, "operation": change.operation, "diff": "\n".join(lines)}


def _applied_text(ledger: Ledger, state: ClusterState, address: str) -> str:
    resource = state.resources.get(address)
    if resource is None:
        return ""
    kind, _, name = address.partition(".")
    if kind not in ("schema", "query", "policy", "pipeline"):
        return _metadata_text(resource)
    if kind == "schema":
        # An adopted graph has no stored text: its live schema is what was recorded.
        text = applied_schema(ledger, name, resource["digest"])
        return _live_schema(ledger, name) if text is None else text
    data = ledger.read_payload(address, resource["digest"])
    return "" if data is None else data.decode()


def _live_schema(ledger: Ledger, graph_id: str) -> str:
    try:
        with open_graph(ledger.graph_uri(graph_id), read_only=True) as graph:
            return graph.schema.source
    except OmniGraphError:
        return ""


def _desired_text(desired: DesiredState, address: str) -> str:
    resource = desired.resources.get(address)
    if resource is None:
        return ""
    if resource.payload is not None:
        return resource.payload.decode()
    return _metadata_text({"digest": resource.digest, **resource.metadata})


def _metadata_text(resource: Json) -> str:
    # What the ledger alone knows is no difference.
    shown = {name: value for name, value in resource.items() if name not in ("digest", "incarnation")}
    return orjson.dumps(shown, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode() if shown else ""
