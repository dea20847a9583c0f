"""`Graph.embed` with tasks in threads or on Spark executors; `engine.embed` plans and publishes."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from omnigraph.engine.arguments import strip_name
from omnigraph.engine.embed import EmbedReceipt
from omnigraph.engine.embed.embed import embed as embed_stored
from omnigraph.engine.embed.plan import Mode
from omnigraph.engine.session import GraphSession
from omnigraph.engine.tasks import NO_PROGRESS, Progress, Threads
from omnigraph.graph import Graph, session_of
from omnigraph.ids import new_ulid
from omnigraph.limits import EMBED_LOCAL_BYTES_MAX
from omnigraph.manifest.model import MAIN
from omnigraph.pipeline.bulk_load.embed_site import count_processes, executor_site
from omnigraph.pipeline.spark.executors import Engine, check_engine, start_executors


def embed(
    graph: Graph,
    branch: str = MAIN,
    types: Sequence[str] | None = None,
    mode: Mode = "fill_missing",
    select: Sequence[str] = (),
    *,
    engine: Engine = "auto",
    master: str | None = None,
    watcher: Progress = NO_PROGRESS,
) -> EmbedReceipt:
    """Embed stored texts like `Graph.embed`, on Spark if `engine` says so or the types are large."""
    check_engine(engine)
    session, branch = session_of(graph), strip_name(branch)
    if not _use_spark(engine, master, session, branch):
        return embed_stored(session, branch, types, mode, select, runner=Threads(watcher))
    runner = start_executors(master, watcher)
    site = executor_site(graph.uri, new_ulid(), count_processes(runner))
    return embed_stored(session, branch, types, mode, select, runner=runner, site=site)


def _use_spark(engine: str, master: str | None, session: GraphSession, branch: str) -> bool:
    if engine != "auto" or master is not None:
        return engine != "local"
    if find_spec("pyspark") is None:
        return False
    snapshot = session.kernel.snapshot(branch)
    nodes = session.catalog(snapshot).nodes.values()
    keys = [item.table_key for item in nodes if any(property_.embed for property_ in item.properties.values())]
    fragments = [item for key in keys for item in session.kernel.dataset(snapshot, key).fragments]
    return sum(file.file_size_bytes or 0 for item in fragments for file in item.files) > EMBED_LOCAL_BYTES_MAX
