"""Routes of the server itself: is it alive, is it ready, which graphs has it, what has it counted.

The second half of the table of routes; none of them touches what a graph holds, but to see that it can be read.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

from omnigraph import __version__
from omnigraph.engine.authorization import Scope
from omnigraph.errors import OmniGraphError, PolicyDenied
from omnigraph.manifest.catalog_format import FORMAT_STAMP
from omnigraph.server import answers, observability, wire
from omnigraph.server.errors import dump
from omnigraph.server.observability import Labels
from omnigraph.server.openapi import describe
from omnigraph.server.responses import Answer, json_answer
from omnigraph.server.routes import ServerRoute
from omnigraph.server.service import Service


def health(service: Service, actor: str | None) -> Answer:
    return json_answer({"status": "ok", "version": __version__, "internal_schema_version": FORMAT_STAMP})


def readiness(service: Service, actor: str | None) -> Answer:
    """Say whether every graph can be read now; a server that is about to stop is not ready either.

    Stored queries that do not compile are counted. The rest is served, so they do not make the server unready; their
    names are told by `/queries` to those who may know them.
    """
    broken = 0
    is_ready = not service.is_stopping
    for one in service.house.hosted.values():
        try:
            broken += len(one.stored().broken)
        except OmniGraphError:
            is_ready = False
    report: dict[str, object] = {"status": "ready" if is_ready else "unready", "broken_query_count": broken}
    if service.house.is_stale:
        # What is wrong may name files and actors, so it stands in the log alone.
        report["configuration"] = "stale"
    return json_answer(report, 200 if is_ready else 503)


def description(service: Service, actor: str | None) -> Answer:
    return Answer(_description(bool(service.house.tokens.entries)))


@cache
def _description(is_secured: bool) -> bytes:
    return dump(describe(SERVER_ROUTES, is_secured=is_secured))


def graphs(service: Service, actor: str | None) -> Answer:
    judge = service.house.server_policy
    if judge is None:
        raise PolicyDenied(
            "`graph_list` is not allowed: the server has no policy of its own; start it with `--server-policy`",
            actor=actor,
            action="graph_list",
        )
    judge.enforce("graph_list", Scope(), actor)
    served = sorted(service.house.hosted.items())
    return json_answer({"graphs": [{"graph_id": name, "uri": one.graph.uri} for name, one in served]})


def numbers(service: Service, actor: str | None) -> Answer:
    if service.house.server_policy is not None:
        service.house.server_policy.enforce("metrics_read", Scope(), actor)
    storage: Counter[Labels] = Counter()
    for one in service.house.hosted.values():
        for key, count in one.meter.snapshot().items():
            storage[(("operation", key.partition(" ")[0]),)] += count
    held = sum(one.graph.cache_bytes for one in service.house.hosted.values())
    gauges = [
        ("omnigraph_writes_in_flight", "Writes that were admitted and have not ended.", service.admission.inflight),
        ("omnigraph_read_cache_bytes", "Bytes that graphs keep in memory for reads.", held),
        ("omnigraph_graphs", "Graphs that are served.", len(service.house.hosted)),
        ("omnigraph_reconcile_rounds", "Rounds of work in the background.", sum(o.rounds for o in service.reconcilers)),
        ("omnigraph_reconcile_failures", "Those that failed.", sum(one.failures for one in service.reconcilers)),
    ]
    return Answer(service.metrics.render(gauges, storage).encode(), observability.MEDIA)


# Answered on every connection that is accepted, however many there are, and under whatever name the server is asked.
ALWAYS_ANSWERED: frozenset[str] = frozenset({"/healthz"})

SERVER_ROUTES: tuple[ServerRoute, ...] = (
    ServerRoute("/healthz", True, health, "Is the server alive?", answers.Health, is_instant=True),
    ServerRoute("/readyz", True, readiness, "Can every graph be read?", answers.Readiness),
    ServerRoute("/openapi.json", True, description, "This description.", wire.JSON),
    ServerRoute("/graphs", False, graphs, "The graphs that are served.", answers.ServedGraphs),
    ServerRoute("/metrics", False, numbers, "What the server has counted, for Prometheus.", observability.MEDIA),
)
