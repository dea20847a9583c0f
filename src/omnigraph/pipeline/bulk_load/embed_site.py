"""Access to the embedding provider and the vector cache for tasks on executors.

Each process builds its client once and shares it among its tasks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Final

from omnigraph.engine.embed.cache import GeneratedVectors, VectorCache, VectorSpace, read_generated
from omnigraph.engine.embed.fetch import VectorFetcher
from omnigraph.engine.query.embedders import Embedder, embedding_error, from_settings
from omnigraph.engine.tasks import Runner
from omnigraph.pipeline.bulk_load.job import GraphAccess, Settings, graph_access
from omnigraph.pipeline.spark.executors import Executors
from omnigraph.settings import SETTINGS
from omnigraph.store.read.dataset import Dataset, DatasetRef

_API_KEYS: Final = ("OPENROUTER_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY")
# Executors use the provider and API key of the driver.
SETTING_NAMES: Final = (*(name for name in SETTINGS if name.startswith("OMNIGRAPH_EMBED")), *_API_KEYS)
# Spark Connect does not report its parallelism.
_PROCESSES_UNKNOWN: Final = 8
_lock: Final = Lock()


@dataclass(frozen=True, slots=True)
class ExecutorSite:
    """Graph and embedding-provider access for a task; `sharers` processes share the rate limit."""

    access: GraphAccess
    sharers: int

    def dataset(self, ref: DatasetRef) -> Dataset:
        return self.access.open(ref)

    def filler(self, space: VectorSpace) -> VectorFetcher:
        with _lock:
            return _filler(self, space)

    def made(self, dimension: int, space: VectorSpace | None) -> GeneratedVectors:
        with _lock:
            return _made(self, dimension, space)


@lru_cache(maxsize=4)
def _embedder(settings: Settings, sharers: int) -> Embedder:
    return from_settings(sharers)


@lru_cache(maxsize=8)
def _filler(site: ExecutorSite, space: VectorSpace) -> VectorFetcher:
    # Opening the store sets the driver's settings in this process, those of the provider included.
    store = site.access.store()
    embedder = _embedder(site.access.settings, site.sharers)
    if VectorSpace.of(embedder, space.dimension) != space:
        raise embedding_error(
            f"the graph was opened to embed with `{space.model}` of `{space.provider}`, but the settings now name"
            f" `{embedder.model}` of `{embedder.name}`; open the graph again",
            expected=space.model,
            actual=embedder.model,
        )
    return VectorFetcher(VectorCache(store, space), embedder)


@lru_cache(maxsize=8)
def _made(site: ExecutorSite, dimension: int, space: VectorSpace | None) -> GeneratedVectors:
    return read_generated(site.access.store(), dimension, space)


def executor_site(uri: str, operation_id: str, sharers: int) -> ExecutorSite:
    """Return the access that tasks of one operation have to the graph and the provider."""
    return ExecutorSite(graph_access(uri, operation_id, SETTING_NAMES), max(1, sharers))


def count_processes(runner: Runner) -> int:
    """Return how many processes run tasks concurrently; threads of one process share an embedder."""
    if not isinstance(runner, Executors):
        return 1
    from pyspark.errors import PySparkException

    try:
        return int(runner.spark.sparkContext.defaultParallelism)
    except PySparkException:
        return _PROCESSES_UNKNOWN
