"""`omnigraph serve`: graphs over HTTP."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from omnigraph import settings
from omnigraph.cli.options import argument, option, switch
from omnigraph.cli.output import echo
from omnigraph.cli.startup import restore_gc, tune_for_short_process
from omnigraph.errors import UsageError
from omnigraph.extras import requiring_extra
from omnigraph.limits import SERVER_RECONCILE_SECONDS

if TYPE_CHECKING:
    from omnigraph.server.registry import GraphConfig, GraphRegistry


# ID of a graph that was given without one.
_ONLY = "graph"


def serve(
    uri: Annotated[str | None, argument("GRAPH", "The graph: a path, `s3://…`, `gs://…` or `az://…`.")] = None,
    store: Annotated[str | None, option("--store", "URI", "URI of the graph.")] = None,
    graphs: Annotated[list[str] | None, option("--graph", "ID=URI", "Graph to serve, with its ID; repeatable.")] = None,
    bind: Annotated[
        str, option("--bind", "HOST:PORT", "Address to listen on; port 0 picks a free port.")
    ] = "127.0.0.1:8080",
    unauthenticated: Annotated[bool, switch("--unauthenticated", "Allow anonymous access without tokens.")] = False,
    policies: Annotated[
        list[str] | None,
        option("--policy", "[ID=]FILE", "Policy bundle of a graph; the ID is optional with one graph."),
    ] = None,
    server_policy: Annotated[
        Path | None,
        option("--server-policy", "FILE", "Policy of the server itself: who may list graphs and read metrics."),
    ] = None,
    queries: Annotated[
        list[str] | None,
        option("--queries", "[ID=]DIR", "Stored queries of a graph; the ID is optional with one graph."),
    ] = None,
    reconcile: Annotated[
        bool, switch("--reconcile", "Run recovery and maintenance in the background, once a minute.")
    ] = False,
    cluster: Annotated[
        str | None, option("--cluster", "CLUSTER", "Serve what is applied to a cluster, and follow its ledger.")
    ] = None,
    require_all_graphs: Annotated[
        bool, switch("--require-all-graphs", "Refuse to serve a cluster unless every graph is healthy.")
    ] = False,
) -> int:
    if uri is not None and store is not None and uri != store:
        raise UsageError(f"two graphs were given, `{uri}` and `{store}`; serve several with `--graph ID=URI`")
    store = store or uri
    if cluster is not None and (store or graphs or policies or queries or server_policy):
        options = "`--store`, `--graph`, `--policy`, `--server-policy` and `--queries`"
        raise UsageError(f"`--cluster` says what to serve; leave out {options}")
    configs = [] if cluster is not None else _graph_configs(store, graphs or [], policies or [], queries or [])
    with requiring_extra("servers"):
        from omnigraph.server import run
    from omnigraph.server.auth import read_tokens, token_files
    from omnigraph.server.observability import log_to_stderr
    from omnigraph.server.registry import open_registry

    is_open = unauthenticated or is_set(os.environ.get("OMNIGRAPH_UNAUTHENTICATED", ""))
    tokens = read_tokens()
    if cluster is not None:
        registry = _open_cluster(cluster, is_open, require_all_graphs)
    else:
        registry = open_registry(
            configs,
            tokens,
            is_unauthenticated=is_open,
            server_policy=server_policy,
            read_tokens=read_tokens,
            token_files=token_files(),
        )
    listening = run.bind(bind)
    log_to_stderr()
    if is_open and not tokens.entries:
        reach = "access is anonymous: whatever reaches this address may read and write the graphs"
        logging.getLogger("omnigraph.server").warning(reach)
    every = timedelta(seconds=SERVER_RECONCILE_SECONDS) if reconcile else None
    restore_gc()
    if not run.serve(registry, listening, lambda address: echo(f"OMNIGRAPH_LISTEN_ADDR={address}"), every=every):
        # Threads that wait for unresponsive storage would block the exit; their requests have been answered already.
        os._exit(0)
    return 0


def _open_cluster(location: str, is_unauthenticated: bool, requires_all: bool) -> GraphRegistry:
    from omnigraph.cli.target import open_ledger
    from omnigraph.cluster.applied_state import AppliedSources
    from omnigraph.server.auth import AuthMode, read_tokens, token_files
    from omnigraph.server.registry import open_cluster_registry

    auth_mode = partial(AuthMode, is_unauthenticated=is_unauthenticated)
    requires_all = requires_all or is_set(settings.read("OMNIGRAPH_REQUIRE_ALL_GRAPHS"))
    sources = AppliedSources(open_ledger(location), read_tokens, auth_mode, token_files())
    return open_cluster_registry(sources, requires_all=requires_all)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `omnigraph-server`, another name for `omnigraph serve`."""
    from omnigraph.cli import app

    if arguments is None:
        tune_for_short_process()
    return app.main(["serve", *(sys.argv[1:] if arguments is None else arguments)])


def is_set(flag: str) -> bool:
    """Return True if a flag in the environment is set.

    >>> is_set("1"), is_set("yes"), is_set("0"), is_set("false"), is_set("")
    (True, True, False, False, False)
    """
    return flag.strip().lower() not in ("", "0", "false")


def _graph_configs(store: str | None, graphs: list[str], policies: list[str], queries: list[str]) -> list[GraphConfig]:
    from omnigraph.server.registry import GraphConfig

    if store is None and not graphs:
        store = settings.read("OMNIGRAPH_STORE") or None
    uris = {} if store is None else {_ONLY: store}
    for text in graphs:
        graph_id, sign, uri = text.partition("=")
        if not sign or not graph_id or not uri:
            raise UsageError(f"`--graph {text}` must have the form ID=URI, as in `--graph supply=supply.omni`")
        if graph_id in uris:
            raise UsageError(f"two graphs have the id `{graph_id}`; give them different ids")
        uris[graph_id] = uri
    bundles, folders = _by_graph("policy", policies, uris), _by_graph("queries", queries, uris)
    return [GraphConfig(graph_id, uri, bundles.get(graph_id), folders.get(graph_id)) for graph_id, uri in uris.items()]


def _by_graph(option: str, options: list[str], uris: dict[str, str]) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for text in options:
        graph_id, is_named, path = text.partition("=")
        if not is_named and len(uris) != 1:
            raise UsageError(f"`--{option} {text}` does not name its graph; write `--{option} ID={text}`")
        graph_id, path = (graph_id, path) if is_named else (next(iter(uris)), text)
        if graph_id not in uris or graph_id in files:
            graph_ids = ", ".join(uris) or "none"
            raise UsageError(
                f"`--{option} {text}` names an unknown graph, or the same graph twice; the graphs are: {graph_ids}"
            )
        files[graph_id] = Path(path)
    return files
