"""Fetch vectors of texts from the cache, else from the provider, and cache them.

Responses are cached before anything else happens, so a failure loses no paid response.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.engine.embed.cache import VectorCache, text_digests
from omnigraph.engine.query.embedders import Embedder, Matrix, Purpose
from omnigraph.limits import EMBED_REQUEST_BYTES_MAX, EMBED_REQUESTS_MAX, EMBED_TEXTS_MAX, EMBED_WINDOW_TEXTS


@dataclass(frozen=True, slots=True)
class EmbedCounts:
    """How many vectors were given, how many texts the provider was asked for them, and how many were known."""

    filled: int = 0
    asked: int = 0
    cached: int = 0
    cleared: int = 0

    def __add__(self, other: EmbedCounts) -> EmbedCounts:
        return EmbedCounts(
            self.filled + other.filled,
            self.asked + other.asked,
            self.cached + other.cached,
            self.cleared + other.cleared,
        )

    def to_json(self) -> dict[str, object]:
        return {
            "filled": self.filled,
            "cleared": self.cleared,
            "texts_asked": self.asked,
            "texts_cached": self.cached,
        }


def sum_counts(parts: Iterable[Mapping[str, EmbedCounts]]) -> dict[str, EmbedCounts]:
    """Return the sum of what tasks have counted by property."""
    totals: dict[str, EmbedCounts] = {}
    for part in parts:
        for name, counts in part.items():
            totals[name] = totals.get(name, EmbedCounts()) + counts
    return totals


def add_retry_counts(earlier: Mapping[str, EmbedCounts], now: Mapping[str, EmbedCounts]) -> dict[str, EmbedCounts]:
    """Add the counts of a retried task; requests of the failed attempt still count.

    >>> add_retry_counts({"vec": Tally(filled=2, asked=2)}, {"vec": Tally(filled=1, cached=1)})["vec"]
    Tally(filled=1, asked=2, cached=1, cleared=0)
    """
    return sum_counts([now, {name: EmbedCounts(asked=counts.asked) for name, counts in earlier.items()}])


@dataclass(frozen=True)
class VectorFetcher:
    """Makes vectors of one space."""

    cache: VectorCache
    embedder: Embedder

    def vectors(self, texts: pa.Array[Any]) -> tuple[Matrix, EmbedCounts]:
        """Return the vector of each text; raises DataError with rule E13 when the provider does not give one."""
        parts: list[Matrix] = [np.empty((0, self.cache.space.dimension), np.float32)]
        counts = EmbedCounts()
        for start in range(0, len(texts), EMBED_WINDOW_TEXTS):
            vectors, batch_counts = self._window(texts.slice(start, EMBED_WINDOW_TEXTS))
            parts.append(vectors)
            counts += batch_counts
        return np.concatenate(parts), counts

    def _window(self, texts: pa.Array[Any]) -> tuple[Matrix, EmbedCounts]:
        encoded: Any = texts.dictionary_encode()
        distinct = encoded.dictionary.to_pylist()
        digests = text_digests(distinct)
        vectors = np.zeros((len(distinct), self.cache.space.dimension), np.float32)
        is_known = self.cache.read(digests, vectors)
        if not is_known.all():
            # Another process may have cached them meanwhile; checking is cheaper than a request.
            self.cache.refresh()
            is_known = self.cache.read(digests, vectors)
        missing = np.flatnonzero(~is_known)
        error = self._ask(distinct, missing, vectors, is_known)
        answered = missing[is_known[missing]]
        self.cache.add(digests[answered], vectors[answered])
        if error is not None:
            raise error
        counts = EmbedCounts(len(texts), len(missing), len(distinct) - len(missing))
        return vectors[encoded.indices.to_numpy()], counts

    def _ask(self, texts: Sequence[str], missing: Any, vectors: Matrix, is_known: Any) -> Exception | None:
        """Fill in what the provider answers; return the first error, once all requests have settled."""
        requests = _batch_requests(texts, missing.tolist())
        fetch = lambda rows: self.embedder.embed(  # noqa: E731 - it is handed to threads
            [texts[row] for row in rows], self.cache.space.dimension, Purpose.DOCUMENT
        )
        first: Exception | None = None
        with ThreadPoolExecutor(EMBED_REQUESTS_MAX, thread_name_prefix="omnigraph-embed") as pool:
            futures = [pool.submit(fetch, rows) for rows in requests]
            for rows, future in zip(requests, futures, strict=True):
                error = None if future.cancelled() else future.exception()
                if error is None and not future.cancelled():
                    vectors[rows] = future.result()
                    is_known[rows] = True
                elif isinstance(error, Exception) and first is None:
                    first = error
                    # Where one request fails, those that have not begun would most likely fail as well.
                    pool.shutdown(wait=False, cancel_futures=True)
        return first


def _batch_requests(texts: Sequence[str], rows: Sequence[int]) -> list[list[int]]:
    """Share texts out among requests that are neither too many texts nor too many bytes.

    >>> _batch_requests(["a", "b"], [0, 1])
    [[0, 1]]
    """
    requests: list[list[int]] = []
    size = 0
    for row in rows:
        text_bytes = len(texts[row].encode())
        if not requests or len(requests[-1]) == EMBED_TEXTS_MAX or size + text_bytes > EMBED_REQUEST_BYTES_MAX:
            requests.append([])
            size = 0
        requests[-1].append(row)
        size += text_bytes
    return requests
