"""Centres of clusters of vectors: k-means in a few rounds, flat or in two levels.

Pure. Clusters need not be the best there are: whoever uses them measures how far each really reaches.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Vectors: TypeAlias = NDArray[np.float32]
Labels: TypeAlias = NDArray[np.intp]

_BLOCK_ROWS: Final = 16_384
_SAMPLE_ROWS: Final = 16_384
_ROUNDS: Final = 4


def find_centres(vectors: Vectors, count: int, rounds: int = _ROUNDS) -> Vectors:
    """Return the centres of so many clusters, from a sample of the vectors."""
    sample = vectors[:: max(len(vectors) // _SAMPLE_ROWS, 1)]
    centres = _spread_out(sample, min(count, len(sample)))
    for _ in range(rounds):
        labels = label(sample, centres)
        order = np.argsort(labels, kind="stable")
        held, starts = np.unique(labels[order], return_index=True)
        sums = np.add.reduceat(sample[order].astype(np.float64), starts)
        centres[held] = sums / np.diff(np.append(starts, len(sample)))[:, None]
    return centres


def find_nested_clusters(vectors: Vectors, count: int) -> tuple[Vectors, Labels]:
    """Return the centres of about so many clusters, and the cluster of every vector.

    Few large clusters come first, then smaller ones within each, so that a vector is compared with about twice the
    square root of all centres. Its cluster need not be that of the nearest centre.
    """
    coarse = find_centres(vectors, max(int(np.sqrt(count)), 1))
    outer = label(vectors, coarse)
    centres, labels, passed = [], np.empty(len(vectors), np.intp), 0
    for place in range(len(coarse)):
        part = np.flatnonzero(outer == place)
        if len(part):
            own = find_centres(vectors[part], max(round(count * len(part) / len(vectors)), 1), rounds=2)
            labels[part] = passed + label(vectors[part], own)
            centres.append(own)
            passed += len(own)
    return np.concatenate(centres), labels


def _spread_out(sample: Vectors, count: int) -> Vectors:
    """Return vectors of a sample that are far from each other: each next one is the farthest from those before."""
    squares = np.einsum("ij,ij->i", sample, sample)
    chosen = [0]
    nearest = np.full(len(sample), np.inf, np.float32)
    for _ in range(count - 1):
        last = chosen[-1]
        np.minimum(nearest, squares + squares[last] - 2 * (sample @ sample[last]), out=nearest)
        chosen.append(int(np.argmax(nearest)))
    return sample[chosen].copy()


def label(vectors: Vectors, centres: Vectors) -> Labels:
    """Return about the nearest centre of every vector."""
    halves = np.einsum("ij,ij->i", centres, centres) / 2
    labels = np.empty(len(vectors), np.intp)
    for start in range(0, len(vectors), _BLOCK_ROWS):
        block = vectors[start : start + _BLOCK_ROWS]
        labels[start : start + _BLOCK_ROWS] = np.argmin(halves - block @ centres.T, axis=1)
    return labels
