"""The pipelines that are applied to a cluster, each with the graph and the stored queries that it runs with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omnigraph.cluster.applied_state import read_queries, require_payload, storage_of
from omnigraph.cluster.config import CONFIG_NAME
from omnigraph.cluster.findings import ClusterError, error
from omnigraph.cluster.ledger import FOLDER, STATE_FOLDER, ClusterState, Ledger
from omnigraph.lang.diagnostic import Source
from omnigraph.pipeline.declared.config import PipelineDeclaration, parse_pipelines
from omnigraph.pipeline.scheduler.book import ScheduleBook
from omnigraph.pipeline.scheduler.child import ScheduledPipeline
from omnigraph.pipeline.scheduler.runner import ReadPipelines

SCHEDULE_FOLDER: Final = f"{FOLDER}/schedule"


@dataclass(frozen=True, slots=True)
class AppliedPipeline:
    """A pipeline as the ledger has it."""

    declaration: PipelineDeclaration
    graph_uri: str
    queries: tuple[Source, ...]


def read_applied_pipelines(location: str) -> dict[str, AppliedPipeline]:
    """Return the applied pipelines of a cluster by name; `location` is its folder or its storage.

    Relative paths of sources start at the folder; a location that is storage has none.

    Raises:
        ClusterError: There is no ledger, or content of it is missing.
    """
    ledger = Ledger(storage_of(location))
    stored = ledger.read()
    if stored is None:
        message = f"there is no ledger at `{ledger.root.uri}`; run `omnigraph cluster import` and `apply`"
        raise ClusterError.of([error("cluster_state_missing", STATE_FOLDER, message)])
    folder = Path(location).absolute() if "://" not in location and (Path(location) / CONFIG_NAME).is_file() else None
    return dict(_read_pipelines(ledger, stored.state, folder))


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
        applied = read_applied_pipelines(location)
        last_revision = revision
        return {
            name: ScheduledPipeline(item.declaration, item.graph_uri, item.queries, actor)
            for name, item in applied.items()
        }

    return read


def _read_pipelines(ledger: Ledger, state: ClusterState, folder: Path | None) -> list[tuple[str, AppliedPipeline]]:
    pipelines = []
    for address, resource in state.resources.items():
        if address.startswith("pipeline."):
            text = require_payload(ledger, address, resource["digest"]).decode()
            [(name, declaration)] = parse_pipelines(text, address, folder).items()
            graph_id = str(declaration.graph)
            queries = tuple(read_queries(ledger, state, graph_id))
            pipelines.append((name, AppliedPipeline(declaration, ledger.graph_uri(graph_id), queries)))
    return pipelines
