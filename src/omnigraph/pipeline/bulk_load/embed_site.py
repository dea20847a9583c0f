"""Asking: how tasks reach the provider of embeddings and the cache of vectors, wherever they run.

What every process has of it is made once, and shared by its tasks.
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
from omnigraph.pipeline.bulk_load.job import Place, Settings, place_of
from omnigraph.pipeline.spark.executors import Executors
from omnigraph.settings import SETTINGS
from omnigraph.store.read.dataset import Dataset, DatasetRef

_KEYS: Final = ("OPENROUTER_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY")
# Executors ask the provider that the driver was told of, with its key.
SETTING_NAMES: Final = (*(name for name in SETTINGS if name.startswith("OMNIGRAPH_EMBED")), *_KEYS)
# A remote session does not tell how many tasks it runs at once.
_SLOTS_UNKNOWN: Final = 8
_lock: Final = Lock()


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Wherever a task runs; so many processes ask the provider at the same time."""

    place: Place
    sharers: int

    def dataset(self, ref: DatasetRef) -> Dataset:
        return self.place.open(ref)

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
def _filler(site: Elsewhere, space: VectorSpace) -> VectorFetcher:
    # The store puts the driver's settings into this process, among them those of the provider.
    store = site.place.store()
    embedder = _embedder(site.place.settings, site.sharers)
    if VectorSpace.of(embedder, space.dimension) != space:
        raise embedding_error(
            f"the graph was opened to embed with `{space.model}` of `{space.provider}`, but the settings now name"
            f" `{embedder.model}` of `{embedder.name}`; open the graph again",
            expected=space.model,
            actual=embedder.model,
        )
    return VectorFetcher(VectorCache(store, space), embedder)


@lru_cache(maxsize=8)
def _made(site: Elsewhere, dimension: int, space: VectorSpace | None) -> GeneratedVectors:
    return read_generated(site.place.store(), dimension, space)


def site_of(uri: str, operation_id: str, sharers: int) -> Elsewhere:
    """Return how tasks of one operation reach the graph and the provider."""
    return Elsewhere(place_of(uri, operation_id, SETTING_NAMES), max(1, sharers))


def slots(runner: Runner) -> int:
    """Return how many processes run tasks at the same time; threads of one process share an embedder."""
    if not isinstance(runner, Executors):
        return 1
    from pyspark.errors import PySparkException

    try:
        return int(runner.spark.sparkContext.defaultParallelism)
    except PySparkException:
        return _SLOTS_UNKNOWN
