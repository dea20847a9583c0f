"""What a server needs of a cluster: the applied graphs, with queries and policies by content, read without the lock.

A server follows the ledger: its newest revision is the fingerprint, so what `apply` records is served soon after. A
revision that cannot be served is refused as a whole, and the one before stays in service.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.cluster.applied_state import applied_blob_rules, read_applied, read_policies, read_queries
from omnigraph.cluster.config import CLUSTER_SCOPE
from omnigraph.cluster.desired import digest_of
from omnigraph.cluster.findings import ClusterError, error, has_errors
from omnigraph.cluster.ledger import ClusterState, Ledger
from omnigraph.cluster.recovery import RECOVERY_FOLDER, read_pending
from omnigraph.engine.authorization import PolicyHook
from omnigraph.engine.external_blobs import SERVER_SAFE
from omnigraph.engine.query.embedders import Embedder, make_embedder
from omnigraph.errors import UsageError
from omnigraph.policy import Policy, load_bundle
from omnigraph.server.registry import Configuration, GraphConfig, Quarantine, fingerprint_files

if TYPE_CHECKING:
    from collections.abc import Hashable

    from omnigraph.server.auth import AuthMode, Tokens


@dataclass
class AppliedSources:
    """The configuration of a server that follows the ledger of a cluster."""

    ledger: Ledger
    read_tokens: Callable[[], Tokens]
    make_auth_mode: Callable[[bool, bool], AuthMode]
    token_files: tuple[Path, ...] = ()

    def fingerprint(self) -> Hashable:
        """Return the newest revision, the names of sidecars, and the state of the files of tokens."""
        sidecars = tuple(info.path for info in self.ledger.objects.list(RECOVERY_FOLDER))
        return self.ledger.fingerprint(), sidecars, tuple(fingerprint_files(self.token_files))

    def read(self) -> Configuration:
        """Read the newest revision; raises `ClusterError` with every reason for which it cannot be served."""
        state = read_applied(self.ledger)
        tokens = self.read_tokens()
        policies = read_policies(self.ledger, state)
        mode = self.make_auth_mode(bool(tokens.entries), bool(policies))
        mode.check()
        loaded = {graph_id: _bundle(policies.get(f"graph.{graph_id}"), graph_id) for graph_id in state.graphs()}
        checkers: dict[str, PolicyHook] = {graph_id: mode.checker(policy) for graph_id, policy in loaded.items()}
        server_text = policies.get(CLUSTER_SCOPE)
        judge = None if server_text is None else load_bundle(server_text, scope="server", graph_id="root")
        pending, findings = read_pending(self.ledger)
        if has_errors(findings):
            raise ClusterError.of([item for item in findings if item.severity == "error"])
        graphs: dict[str, GraphConfig] = {}
        quarantined: dict[str, Quarantine] = {}
        for graph_id in state.graphs():
            uri, queries = self.ledger.graph_uri(graph_id), tuple(read_queries(self.ledger, state, graph_id))
            try:
                embedder = applied_embedder(state, graph_id)
            except UsageError as failure:
                quarantined[graph_id] = Quarantine("embedding_provider_unresolved", failure.message)
                embedder = None
            blobs, incarnation = applied_blob_rules(state, graph_id, SERVER_SAFE), state.incarnation(graph_id)
            graphs[graph_id] = GraphConfig(graph_id, uri, None, queries, embedder, blobs, incarnation)
            if graph_id in pending:
                # A server that has the graph open goes on with it, unless it is being deleted.
                message = f"an interrupted `{pending[graph_id]}` is not finished; run `omnigraph cluster apply`"
                is_kept = pending[graph_id] != "graph_delete"
                quarantined[graph_id] = Quarantine("cluster_recovery_pending", message, is_kept)
        return Configuration(tokens, checkers, judge, graphs, quarantined)


def applied_embedder(state: ClusterState, graph_id: str) -> Embedder | None:
    """Return the embedder of a graph's provider, with its secret from the environment; None without a provider.

    Raises:
        UsageError: The variable that holds the secret is not set.
        ClusterError: The recorded profile is not the one that was applied.
    """
    name = state.resources[f"graph.{graph_id}"].get("embedding_provider")
    if name is None:
        return None
    address = f"provider.embedding.{name}"
    provider = state.resources.get(address)
    if provider is None or digest_of(provider.get("embedding_profile")) != provider["digest"]:
        message = "the recorded provider does not match its digest; apply again"
        raise ClusterError.of([error("embedding_provider_digest_mismatch", address, message)])
    profile = provider["embedding_profile"]
    variable = (profile["api_key"] or "").removeprefix("${").removesuffix("}")
    secret = os.environ.get(variable, "") if variable else ""
    if variable and not secret:
        raise UsageError(f"the provider `{name}` needs its key; set {variable} and restart the server")
    return make_embedder(profile["kind"], profile["base_url"] or "", profile["model"] or "", secret)


def _bundle(text: str | None, graph_id: str) -> Policy | None:
    return None if text is None else load_bundle(text, scope="graph", graph_id=graph_id)
