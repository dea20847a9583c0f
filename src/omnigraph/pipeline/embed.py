"""`Graph.embed` with tasks in threads or on Spark executors; `engine.embed` plans and publishes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from omnigraph.docstrings import complete_docs
from omnigraph.engine.arguments import strip_name
from omnigraph.engine.embed import EmbedReceipt
from omnigraph.engine.embed.embed import embed as embed_stored
from omnigraph.engine.embed.plan import Mode
from omnigraph.engine.session import GraphSession
from omnigraph.engine.tasks import Progress, reporting_to
from omnigraph.graph import Graph, session_of
from omnigraph.limits import EMBED_LOCAL_BYTES_MAX
from omnigraph.manifest.model import MAIN
from omnigraph.pipeline.spark.executors import ENGINE_DOCS, Engine, RunnerChoice


@complete_docs(Graph.embed, ENGINE_DOCS)
def embed(
    graph: Graph,
    branch: str = MAIN,
    *,
    types: Sequence[str] | None = None,
    mode: Mode = "fill_missing",
    select: Sequence[str] = (),
    message: str | None = None,
    engine: Engine = "auto",
    spark: Any = None,
    master: str | None = None,
    progress: Progress | None = None,
) -> EmbedReceipt:
    """Compute the vectors of `@embed` properties like `Graph.embed`, on Spark if the types are large.

    Raises:
        UsageError: There is no such type, or an argument does not fit another.
        BranchNotFound: There is no such branch.
        PipelineUnavailable: Spark was asked for and is not installed.

    Example:
        >>> from omnigraph import pipeline
        >>> notes = "node Note { text: String @key  vector: Vector(4)? @embed(text) }"
        >>> with og.init(path + ".notes", schema=notes) as graph:
        ...     pipeline.embed(graph).commit is None
        True
    """
    choice, session = RunnerChoice(engine, master, spark), session_of(graph).with_message(message)
    branch = strip_name(branch)
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
