"""Reads what is applied to a cluster from its ledger: graphs, schemas, stored queries, policies and rules for blobs.

Readers need no lock: a revision never changes, and content is stored by its digest.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from omnigraph.cluster.config import CONFIG_NAME, read_storage
from omnigraph.cluster.desired import digest_of, select_queries
from omnigraph.cluster.findings import ClusterError, error
from omnigraph.cluster.ledger import STATE_FOLDER, ClusterState, Ledger
from omnigraph.engine.external_blobs import BlobBase, BlobRules
from omnigraph.errors import UsageError
from omnigraph.lang.diagnostic import Source


def storage_of(location: str) -> str:
    """Return the root of a cluster's storage: that of a folder with `cluster.yaml`, else the location itself."""
    path = Path(location)
    if "://" not in location and (path / CONFIG_NAME).is_file():
        return read_storage(path)
    return location


def read_applied(ledger: Ledger) -> ClusterState:
    """Return the newest revision; raises `ClusterError` without a ledger or a graph."""
    stored = ledger.read()
    if stored is None:
        message = f"there is no ledger at `{ledger.root.uri}`; run `omnigraph cluster import` and `apply`"
        raise ClusterError.of([error("cluster_state_missing", STATE_FOLDER, message)])
    if not stored.state.graphs():
        message = "no graph is applied; run `omnigraph cluster apply`"
        raise ClusterError.of([error("cluster_empty", STATE_FOLDER, message)])
    return stored.state


def choose_graph(state: ClusterState, graph_id: str | None) -> str:
    """Return the id of an applied graph; without an id, that of the only one."""
    graphs = state.graphs()
    if graph_id is None and len(graphs) == 1:
        return graphs[0]
    if graph_id not in graphs:
        names = ", ".join(f"`{name}`" for name in graphs)
        problem = "choose a graph" if graph_id is None else f"there is no graph `{graph_id}`"
        raise UsageError(f"{problem}; the cluster has {names}. Choose one with `--graph ID`", graphs=graphs)
    return graph_id


def locate_graph(location: str, graph_id: str | None) -> str:
    """Return the URI of a graph that is applied to the cluster at a location."""
    ledger = Ledger(storage_of(location))
    return ledger.graph_uri(choose_graph(read_applied(ledger), graph_id))


def read_policies(ledger: Ledger, state: ClusterState) -> dict[str, str]:
    """Return the text of the policy that is bound to each scope: `cluster`, or `graph.ID`."""
    texts: dict[str, str] = {}
    for address, resource in state.resources.items():
        if not address.startswith("policy."):
            continue
        if "applies_to" not in resource:
            message = "the ledger does not say what the policy is bound to; run `omnigraph cluster apply`"
            raise ClusterError.of([error("policy_bindings_missing", address, message)])
        text = require_payload(ledger, address, resource["digest"]).decode()
        for scope in resource["applies_to"]:
            if scope in texts:
                message = f"`{scope}` has two policies; bind one, and apply again"
                raise ClusterError.of([error("duplicate_policy_binding", address, message)])
            texts[scope] = text
    return texts


def applied_schema(ledger: Ledger, graph_id: str, digest: str | None) -> str | None:
    """Return the text of an applied schema; None if it was imported with its graph, is missing or corrupt."""
    try:
        data = None if digest is None else ledger.read_payload(f"schema.{graph_id}", digest)
    except ClusterError:
        return None
    return None if data is None else data.decode()


def applied_blob_rules(state: ClusterState, graph_id: str, *scopes: str) -> BlobRules | None:
    """Return the external blobs that a graph allows in some scopes; None if there are none."""
    policy = state.resources[f"graph.{graph_id}"].get("external_blob_policy")
    if policy is None:
        return None
    if digest_of(policy["allow"]) != policy["digest"]:
        message = "the recorded policy of external blobs does not match its digest; apply again"
        raise ClusterError.of([error("external_blob_policy_digest_mismatch", f"graph.{graph_id}", message)])
    bases = [BlobBase.parse(item["base"], item["scope"]) for item in policy["allow"] if item["scope"] in scopes]
    return BlobRules(tuple(bases)) if bases else None


def read_queries(ledger: Ledger, state: ClusterState, graph_id: str) -> Iterator[Source]:
    """Yield the files of stored queries of a graph, each with the queries that are applied and no others."""
    prefix = f"query.{graph_id}."
    names: dict[str, list[str]] = {}
    for address, resource in state.resources.items():
        # All queries of a file share its digest, and its text holds them all.
        if address.startswith(prefix):
            names.setdefault(resource["digest"], []).append(address.removeprefix(prefix))
    for digest, declared in names.items():
        data = require_payload(ledger, f"{prefix}{declared[0]}", digest)
        yield select_queries(Source(f"{declared[0]}.gq", data.decode()), set(declared))


def require_payload(ledger: Ledger, address: str, digest: str) -> bytes:
    """Return the stored content of a resource; raises `ClusterError` if it is missing or does not match its digest."""
    try:
        data = ledger.read_payload(address, digest)
    except ClusterError as failure:
        message = failure.findings[0].message
        raise ClusterError.of([error("catalog_payload_digest_mismatch", address, message)]) from None
    if data is None:
        message = "its stored content is missing; run `omnigraph cluster apply`, which stores it again"
        raise ClusterError.of([error("catalog_payload_missing", address, message)])
    return data
