"""Digests of texts and prints of vectors: how a cache knows again what it has seen.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import numpy as np
from numpy.typing import NDArray

from omnigraph.engine.read.search.embed import Matrix

Words = NDArray[np.uint64]

_DIGEST_BYTES: Final = 16
_SLICE_ROWS: Final = 1_024
_U64: Final = np.uint64


def text_digests(texts: Sequence[str]) -> Words:
    """Return 128 bits for each text, as two numbers; no two texts that anybody has seen share them.

    >>> text_digests(["a", "b", "a"]).shape
    (3, 2)
    """
    # A wrong vector would be found by nobody, so this hash has to be a strong one, and numpy has none.
    joined = b"".join(blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest() for text in texts)
    return np.frombuffer(joined, "<u8").reshape(len(texts), 2).astype(np.uint64)


def vector_prints(vectors: Matrix) -> Words:
    """Return 64 bits for each vector, the same for the same numbers.

    >>> one, other, again = vector_prints(np.array([[1, 0], [0, 1], [1, -0.0]], np.float32)).tolist()
    >>> one == again, one == other
    (True, False)
    """
    count, dimension = vectors.shape
    factors = mixed(np.arange(1, dimension + 1, dtype=np.uint64)) | _U64(1)
    prints = np.empty(count, np.uint64)
    for start in range(0, count, _SLICE_ROWS):
        # Adding zero makes both zeros the same one; in a damaged file there may be anything.
        with np.errstate(invalid="ignore"):
            bits = (vectors[start : start + _SLICE_ROWS] + np.float32(0)).view(np.uint32)
        prints[start : start + _SLICE_ROWS] = (bits * factors).sum(axis=1, dtype=np.uint64)
    return mixed(prints)


def pairs(prints: Words, digests: Words) -> Words:
    """Return one number for each vector together with the text it was made from."""
    return mixed(prints ^ mixed(digests[:, 0]))


def among(values: Words, known: Words) -> NDArray[np.bool_]:
    """Tell which values are among known ones, which are in ascending order.

    >>> among(np.array([1, 3], np.uint64), np.array([2, 3], np.uint64)).tolist()
    [False, True]
    """
    if len(known) == 0:
        return np.zeros(len(values), np.bool_)
    places = np.minimum(np.searchsorted(known, values), len(known) - 1)
    found: NDArray[np.bool_] = known[places] == values
    return found


def mixed(words: Words) -> Words:
    """Spread the difference of two numbers over all bits."""
    words = (words ^ (words >> _U64(30))) * _U64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> _U64(27))) * _U64(0x94D049BB133111EB)
    return words ^ (words >> _U64(31))
