"""Embed: vectors for what is stored, with tasks in threads of this process or on the executors of Spark.

What is to be embedded, and how it is published, is decided by `engine.embed`; this says where the work runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from omnigraph.engine.embed import EmbedReceipt
from omnigraph.engine.embed.embed import embed as embed_stored
from omnigraph.engine.embed.plan import Mode
from omnigraph.engine.given import checked
from omnigraph.engine.session import Core
from omnigraph.engine.tasks import NO_PROGRESS, Progress, Threads
from omnigraph.graph import Graph
from omnigraph.ids import new_ulid
from omnigraph.limits import EMBED_LOCAL_BYTES_MAX
from omnigraph.manifest.model import MAIN
from omnigraph.pipeline.bulk_load.embed_site import site_of, slots
from omnigraph.pipeline.spark.executors import Engine, check_engine, executors


@checked
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
    """Do what `Graph.embed` does, on Spark where `engine` says so or the types are large."""
    check_engine(engine)
    core = graph.core
    if not _is_for_spark(engine, master, core, branch):
        return embed_stored(core, branch, types, mode, select, runner=Threads(watcher))
    runner = executors(master, watcher)
    site = site_of(graph.uri, new_ulid(), slots(runner))
    return embed_stored(core, branch, types, mode, select, runner=runner, site=site)


def _is_for_spark(engine: str, master: str | None, core: Core, branch: str) -> bool:
    if engine != "auto" or master is not None:
        return engine != "local"
    if find_spec("pyspark") is None:
        return False
    snapshot = core.kernel.snapshot(branch)
    nodes = core.catalog(snapshot).nodes.values()
    keys = [one.table_key for one in nodes if any(property_.embed for property_ in one.properties.values())]
    fragments = [one for key in keys for one in core.kernel.dataset(snapshot, key).fragments]
    return sum(file.file_size_bytes or 0 for one in fragments for file in one.files) > EMBED_LOCAL_BYTES_MAX
