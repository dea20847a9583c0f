"""Routes of the server itself: the page at `/` for browsers, health, readiness, OpenAPI, graphs and metrics.

They hold no data and no secrets, so they need no token. The policy allows scripts and styles of this server only, and
requests to it alone: a value of a graph that looked like markup could neither run nor send anything.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from omnigraph import __version__, wire
from omnigraph.engine.authorization import Scope
from omnigraph.errors import OmniGraphError, PolicyDenied
from omnigraph.manifest.catalog_format import FORMAT_STAMP
from omnigraph.prometheus import MEDIA_TYPE, Labels
from omnigraph.server import answers
from omnigraph.server.errors import dump
from omnigraph.server.openapi import describe
from omnigraph.server.responses import Response, json_response
from omnigraph.server.routes import ServerRoute
from omnigraph.server.service import Service

HTML: Final = "text/html; charset=utf-8"
SCRIPT: Final = "text/javascript; charset=utf-8"
STYLE: Final = "text/css; charset=utf-8"

_FILES: Final = Path(__file__).parent.parent / "page"
_CONTENT_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
HEADER_NAMES: Final = (*_HEADERS, "Vary")


def welcome(service: Service, actor: str | None) -> Response:
    """Return what is served, for programs."""
    response = json_response({"name": "omnigraph", "version": __version__, "openapi": "/openapi.json"})
    return replace(response, headers={"Vary": "Accept"})


def page() -> Response:
    """Return the page, for browsers."""
    return replace(_static("index.html", HTML), headers={**_HEADERS, "Vary": "Accept"})


@cache
def _static(name: str, media: str) -> Response:
    return Response((_FILES / name).read_bytes(), media, headers=_HEADERS)


def prefers_html(accept: str) -> bool:
    """Return True if a request names HTML, and JSON not before it; browsers do.

    >>> prefers_html("text/html,application/xhtml+xml,*/*;q=0.8"), prefers_html("*/*"), prefers_html("")
    (True, False, False)
    >>> prefers_html("application/json, text/html"), prefers_html("application/json")
    (False, False)
    """
    media = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    if "text/html" not in media:
        return False
    return "application/json" not in media or media.index("text/html") < media.index("application/json")


def health(service: Service, actor: str | None) -> Response:
    document = {"status": "ok", "version": __version__, "internal_schema_version": FORMAT_STAMP}
    return json_response({**document, **({"source_version": commit} if (commit := source_version()) else {})})


@cache
def source_version() -> str | None:
    """Return the source commit that was installed; None unless the package was installed from a repository."""
    try:
        origin = distribution("omnigraph").read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    commit = json.loads(origin or "{}").get("vcs_info", {}).get("commit_id")
    return commit if isinstance(commit, str) else None


def readiness(service: Service, actor: str | None) -> Response:
    """Report whether every graph can be read; a stopping server is not ready.

    Stored queries that do not compile are counted, but do not make the server unready; `/queries` lists them.
    """
    broken = 0
    is_ready = not service.is_stopping
    for served in service.registry.served.values():
        try:
            broken += len(served.stored().broken)
        except OmniGraphError:
            is_ready = False
    report: dict[str, object] = {"status": "ready" if is_ready else "unready", "broken_query_count": broken}
    if service.registry.is_stale:
        # Details may name files and actors, so they are only logged.
        report["configuration"] = "stale"
    return json_response(report, 200 if is_ready else 503)


def description(service: Service, actor: str | None) -> Response:
    return Response(_description(bool(service.registry.tokens.entries)))


@cache
def _description(is_secured: bool) -> bytes:
    return dump(describe(SERVER_ROUTES, is_secured=is_secured))


def graphs(service: Service, actor: str | None) -> Response:
    """List the graphs; a server without tokens, which allows everything, lists them to every client."""
    policy = service.registry.server_policy
    if policy is not None:
        policy.enforce("graph_list", Scope(), actor)
    elif service.registry.tokens.entries:
        raise PolicyDenied(
            "`graph_list` is not allowed: the server has no server policy; start it with `--server-policy`, or bind a"
            " policy of its cluster to `cluster`",
            actor=actor,
            action="graph_list",
        )
    served = sorted(service.registry.served.items())
    return json_response({"graphs": [{"graph_id": name, "uri": graph.graph.uri} for name, graph in served]})


def metrics_text(service: Service, actor: str | None) -> Response:
    if service.registry.server_policy is not None:
        service.registry.server_policy.enforce("metrics_read", Scope(), actor)
    storage: Counter[Labels] = Counter()
    for served in service.registry.served.values():
        for key, count in served.meter.snapshot().items():
            storage[(("operation", key.partition(" ")[0]),)] += count
    cache_bytes = sum(served.graph.cache_bytes for served in service.registry.served.values())
    gauges = [
        ("omnigraph_writes_in_flight", "Admitted writes in flight.", service.admission.inflight),
        ("omnigraph_read_cache_bytes", "Bytes in the read caches of all graphs.", cache_bytes),
        ("omnigraph_graphs", "Graphs served.", len(service.registry.served)),
        ("omnigraph_reconcile_rounds", "Rounds of background maintenance.", service.reconcilers.rounds),
        (
            "omnigraph_reconcile_failures",
            "Rounds of background maintenance that failed.",
            service.reconcilers.failures,
        ),
    ]
    return Response(service.metrics.render(gauges, storage).encode(), MEDIA_TYPE)


# Answered on every connection, also beyond the connection limit and for any `Host`.
ALWAYS_ANSWERED: frozenset[str] = frozenset({"/healthz"})

SERVER_ROUTES: tuple[ServerRoute, ...] = (
    ServerRoute("/", True, welcome, "What is served here; for browsers a page to look at graphs.",
                answers.Welcome, is_instant=True, page=page, headers=HEADER_NAMES),
    ServerRoute("/page.js", True, lambda *_: _static("page.js", SCRIPT), "The script of the page.",
                SCRIPT, is_instant=True, headers=HEADER_NAMES),
    ServerRoute("/page.css", True, lambda *_: _static("page.css", STYLE), "The style of the page.",
                STYLE, is_instant=True, headers=HEADER_NAMES),
    ServerRoute("/healthz", True, health, "Is the server alive?", answers.Health, is_instant=True),
    ServerRoute("/readyz", True, readiness, "Check whether every graph can be read.", answers.Readiness),
    ServerRoute("/openapi.json", True, description, "This description.", wire.JSON),
    ServerRoute("/graphs", False, graphs, "List the graphs.", answers.ServedGraphs),
    ServerRoute("/metrics", False, metrics_text, "Metrics in Prometheus format.", MEDIA_TYPE),
)  # fmt: skip
