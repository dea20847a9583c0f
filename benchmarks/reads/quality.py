"""How good a search result is: the share of it that an exact search would also have returned.

Knows no engine. Ties count as equally good.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

# The usual constants of BM25.
_K1, _B = 1.2, 0.75
_SLACK = 1e-4
_BEST = 10


class Truth:
    """Exact answers, computed without any index."""

    def __init__(self, data: Path) -> None:
        posts: Any = pq.read_table(data / "post.parquet", columns=["slug", "text", "vec"]).combine_chunks()
        self._places: dict[str, int] = {slug: place for place, slug in enumerate(posts["slug"].to_pylist())}
        self._vectors: NDArray[np.float32] = posts["vec"].chunk(0).flatten().to_numpy().reshape(len(posts), -1)
        words: Any = pc.split_pattern(posts["text"].chunk(0), " ")
        self._lengths = words.value_lengths().to_numpy()
        self._owners = np.repeat(np.arange(len(posts)), self._lengths)
        encoded = words.flatten().dictionary_encode()
        self._codes = encoded.indices.to_numpy()
        self._dictionary: pa.Array[Any] = encoded.dictionary

    def share(self, params: dict[str, Any], found: Sequence[str]) -> float:
        """Return which share of what was found for words, or else for a vector, belongs there."""
        goodness = self._bm25(params["words"]) if "words" in params else -self._distances(params["vec"])
        # What matches no word at all is no result, however few match.
        wanted = min(_BEST, int(np.count_nonzero(goodness)))
        worst = np.partition(goodness, -wanted)[-wanted]
        kept = goodness[[self._places[slug] for slug in found]]
        return float(np.count_nonzero(kept >= worst - _SLACK * abs(worst))) / wanted

    def _distances(self, vector: Sequence[float]) -> NDArray[np.float64]:
        apart = self._vectors - np.asarray(vector, np.float32)
        squared: NDArray[np.float64] = np.einsum("ij,ij->i", apart, apart).astype(np.float64)
        return squared

    def _bm25(self, query: str) -> NDArray[np.float64]:
        count = len(self._lengths)
        norm = _K1 * (1 - _B + _B * self._lengths / self._lengths.mean())
        scores = np.zeros(count)
        for word in query.split():
            code = pc.index(self._dictionary, word).as_py()
            if code < 0:
                continue
            frequency = np.bincount(self._owners[self._codes == code], minlength=count)
            holders = np.count_nonzero(frequency)
            weight = np.log(1 + (count - holders + 0.5) / (holders + 0.5))
            scores += weight * frequency * (_K1 + 1) / (frequency + norm)
        return scores
