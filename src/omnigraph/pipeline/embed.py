"""`Graph.embed` with tasks in threads or on Spark executors; `engine.embed` plans and publishes."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.engine.arguments import strip_name
from omnigraph.engine.embed import EmbedReceipt
from omnigraph.engine.embed.embed import embed as embed_stored
from omnigraph.engine.embed.plan import Mode
from omnigraph.engine.session import GraphSession
from omnigraph.engine.tasks import Progress, reporting_to
from omnigraph.graph import Graph, session_of
from omnigraph.limits import EMBED_LOCAL_BYTES_MAX
from omnigraph.manifest.model import MAIN
from omnigraph.pipeline.spark.executors import Engine, RunnerChoice


def embed(
    graph: Graph,
    branch: str = MAIN,
    types: Sequence[str] | None = None,
    mode: Mode = "fill_missing",
    select: Sequence[str] = (),
    *,
    engine: Engine = "auto",
    master: str | None = None,
    progress: Progress | None = None,
) -> EmbedReceipt:
    """Embed stored texts like `Graph.embed`, on Spark if `engine` says so or the types are large."""
    choice, session, branch = RunnerChoice(engine, master), session_of(graph), strip_name(branch)
    with reporting_to(progress):
        runner = choice.by_size(_embedded_bytes(session, branch), EMBED_LOCAL_BYTES_MAX)
        return embed_stored(session, branch, types, mode, select, runner=runner)


def _embedded_bytes(session: GraphSession, branch: str) -> int:
    """Return the size of all types that have an `@embed` property."""
    snapshot = session.kernel.snapshot(branch)
    nodes = session.catalog(snapshot).nodes.values()
    keys = [item.table_key for item in nodes if any(property_.embed for property_ in item.properties.values())]
    fragments = [item for key in keys for item in session.kernel.dataset(snapshot, key).fragments]
    return sum(file.file_size_bytes or 0 for item in fragments for file in item.files)
