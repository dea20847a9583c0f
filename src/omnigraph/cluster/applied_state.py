"""What is applied to a cluster, read from its ledger: for servers, for pipelines and for commands.

Readers need no lock: a revision never changes, and content is stored by its digest.

A server follows the ledger: its newest revision is the fingerprint, so what `apply` records is served soon after. A
revision that cannot be served is refused as a whole, and the one before stays in service.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omnigraph.cluster.config import CLUSTER_SCOPE, CONFIG_NAME, read_storage
from omnigraph.cluster.desired import digest_of, select_queries
from omnigraph.cluster.ledger import FOLDER, STATE_FOLDER, AppliedState, Ledger
from omnigraph.cluster.recovery import RECOVERY_FOLDER, read_pending
from omnigraph.engine.external_blobs import SERVER_SAFE, BlobBase, BlobRules
from omnigraph.engine.query.embedders import Embedder, make_embedder
from omnigraph.errors import UsageError
from omnigraph.findings import ClusterError, cluster_error, has_errors
from omnigraph.lang.diagnostic import Source
from omnigraph.pipelines.declaration.config import parse_pipelines
from omnigraph.pipelines.scheduler.book import ScheduleBook
from omnigraph.pipelines.scheduler.child import ScheduledPipeline
from omnigraph.pipelines.scheduler.runner import ReadPipelines
from omnigraph.server.auth import AuthMode, Tokens
from omnigraph.server.registry import (
    Configuration,
    GraphConfig,
    Quarantine,
    fingerprint_files,
    load_checkers,
    load_server_policy,
)


def storage_of(location: str) -> str:
    """Return the root of a cluster's storage: that of a folder with `cluster.yaml`, else the location itself."""
    folder = _folder_of(location)
    return location if folder is None else read_storage(folder)


def _folder_of(location: str) -> Path | None:
    """Return a location that is a folder with `cluster.yaml`; None for one that is storage."""
    path = Path(location)
    return path if "://" not in location and (path / CONFIG_NAME).is_file() else None


def _read_newest(ledger: Ledger) -> AppliedState:
    stored = ledger.read()
    if stored is None:
        message = f"there is no ledger at `{ledger.root.uri}`; run `omnigraph cluster import` and `apply`"
        raise cluster_error("cluster_state_missing", STATE_FOLDER, message)
    return stored.state


def read_applied(ledger: Ledger) -> AppliedState:
    """Return the newest revision; raises `ClusterError` without a ledger or a graph."""
    state = _read_newest(ledger)
    if not state.graphs():
        raise cluster_error("cluster_empty", STATE_FOLDER, "no graph is applied; run `omnigraph cluster apply`")
    return state


def choose_graph(state: AppliedState, graph_id: str | None) -> str:
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


def read_policies(ledger: Ledger, state: AppliedState) -> dict[str, str]:
    """Return the text of the policy that is bound to each scope: `cluster`, or `graph.ID`."""
    texts: dict[str, str] = {}
    for address, resource in state.resources.items():
        if not address.startswith("policy."):
            continue
        if "applies_to" not in resource:
            message = "the ledger does not say what the policy is bound to; run `omnigraph cluster apply`"
            raise cluster_error("policy_bindings_missing", address, message)
        text = require_payload(ledger, address, resource["digest"]).decode()
        for scope in resource["applies_to"]:
            if scope in texts:
                message = f"`{scope}` has two policies; bind one, and apply again"
                raise cluster_error("duplicate_policy_binding", address, message)
            texts[scope] = text
    return texts


def applied_schema(ledger: Ledger, graph_id: str, digest: str | None) -> str | None:
    """Return the text of an applied schema; None if it was imported with its graph, is missing or corrupt."""
    try:
        data = None if digest is None else ledger.read_payload(f"schema.{graph_id}", digest)
    except ClusterError:
        return None
    return None if data is None else data.decode()


def applied_blob_rules(state: AppliedState, graph_id: str, *scopes: str) -> BlobRules | None:
    """Return the external blobs that a graph allows in some scopes; None if there are none."""
    policy = state.resources[f"graph.{graph_id}"].get("external_blob_policy")
    if policy is None:
        return None
    if digest_of(policy["allow"]) != policy["digest"]:
        message = "the recorded policy of external blobs does not match its digest; apply again"
        raise cluster_error("external_blob_policy_digest_mismatch", f"graph.{graph_id}", message)
    bases = [BlobBase.parse(item["base"], item["scope"]) for item in policy["allow"] if item["scope"] in scopes]
    return BlobRules(tuple(bases)) if bases else None


def read_queries(ledger: Ledger, state: AppliedState, graph_id: str) -> Iterator[Source]:
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
        raise cluster_error("catalog_payload_digest_mismatch", address, message) from None
    if data is None:
        message = "its stored content is missing; run `omnigraph cluster apply`, which stores it again"
        raise cluster_error("catalog_payload_missing", address, message)
    return data


SCHEDULE_FOLDER: Final = f"{FOLDER}/schedule"


def read_applied_pipelines(location: str, actor: str | None = None) -> dict[str, ScheduledPipeline]:
    """Return the applied pipelines of a cluster by name; `location` is its folder or its storage.

    Relative paths of sources start at the folder; a location that is storage has none.

    Raises:
        ClusterError: There is no ledger, or content of it is missing.
    """
    ledger = Ledger(storage_of(location))
    state, folder = _read_newest(ledger), _folder_of(location)
    pipelines = {}
    for address, resource in state.resources.items():
        if address.startswith("pipeline."):
            text = require_payload(ledger, address, resource["digest"]).decode()
            [(name, declaration)] = parse_pipelines(text, address, folder and folder.absolute()).items()
            graph_id = str(declaration.graph)
            queries = tuple(read_queries(ledger, state, graph_id))
            pipelines[name] = ScheduledPipeline(declaration, ledger.graph_uri(graph_id), queries, actor)
    return pipelines


def schedule_book(location: str) -> ScheduleBook:
    """Return the book of a cluster's schedule, of which there is one."""
    return ScheduleBook(storage_of(location), SCHEDULE_FOLDER)


def follow_applied_pipelines(location: str, actor: str | None) -> ReadPipelines:
    """Return a function that reads the applied pipelines if the ledger has a new revision."""
    ledger = Ledger(storage_of(location))
    last_revision: tuple[int, int] | None = None

    def read() -> Mapping[str, ScheduledPipeline] | None:
        nonlocal last_revision
        revision = ledger.fingerprint()
        if revision == last_revision:
            return None
        applied = read_applied_pipelines(location, actor)
        last_revision = revision
        return applied

    return read


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
        checkers = load_checkers({name: policies.get(f"graph.{name}") for name in state.graphs()}, mode)
        server_policy = load_server_policy(policies.get(CLUSTER_SCOPE))
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
        return Configuration(tokens, checkers, server_policy, graphs, quarantined)


def applied_embedder(state: AppliedState, graph_id: str) -> Embedder | None:
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
        raise cluster_error("embedding_provider_digest_mismatch", address, message)
    profile = provider["embedding_profile"]
    variable = (profile["api_key"] or "").removeprefix("${").removesuffix("}")
    secret = os.environ.get(variable, "") if variable else ""
    if variable and not secret:
        raise UsageError(f"the provider `{name}` needs its key; set {variable} and restart the server")
    return make_embedder(profile["kind"], profile["base_url"] or "", profile["model"] or "", secret)
