"""The centres of the partitions of a vector index, chosen by the number of vectors and from a sample of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.limits import VECTOR_PARTITION_ROWS, VECTOR_PARTITIONS_MAX, VECTOR_UNPARTITIONED_ROWS_MAX
from omnigraph.store.read.dataset import Dataset, lance_errors

Vectors: TypeAlias = NDArray[np.float32]
Labels: TypeAlias = NDArray[np.intp]

_BLOCK_ROWS: Final = 16_384
_SAMPLE_ROWS: Final = 16_384
_ROUNDS: Final = 4


def find_centres(vectors: Vectors, count: int, rounds: int = _ROUNDS) -> Vectors:
    """Return the centres of so many clusters, from a sample of the vectors: Lloyd's k-means, started farthest-first.

    Deterministic. Serves the partitions of an index, the balls within them, and the clusters of vectors in memory.
    """
    sample = vectors[:: max(len(vectors) // _SAMPLE_ROWS, 1)]
    centres = _spread_out(sample, min(count, len(sample)))
    for _ in range(rounds):
        labels = label(sample, centres)
        order = np.argsort(labels, kind="stable")
        held, starts = np.unique(labels[order], return_index=True)
        sums = np.add.reduceat(sample[order].astype(np.float64), starts)
        # Double precision for the sums; a cluster that lost all its vectors keeps its centre.
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
    for cluster in range(len(coarse)):
        part = np.flatnonzero(outer == cluster)
        if len(part):
            fine = find_centres(vectors[part], max(round(count * len(part) / len(vectors)), 1), rounds=2)
            labels[part] = passed + label(vectors[part], fine)
            centres.append(fine)
            passed += len(fine)
    return np.concatenate(centres), labels


def _spread_out(sample: Vectors, count: int) -> Vectors:
    """Return vectors of a sample that are far from each other: each next one is the farthest from those before.

    Gonzalez' farthest-first traversal: its largest radius is at most twice the best possible.
    """
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
    # |v - c|^2 = |v|^2 - 2 (v.c - |c|^2 / 2), and |v|^2 is the same for all centres: one product finds the least.
    halves = np.einsum("ij,ij->i", centres, centres) / 2
    labels = np.empty(len(vectors), np.intp)
    for start in range(0, len(vectors), _BLOCK_ROWS):
        block = vectors[start : start + _BLOCK_ROWS]
        labels[start : start + _BLOCK_ROWS] = np.argmin(halves - block @ centres.T, axis=1)
    return labels


# Vectors of which the centre of a partition is computed, and vectors that show which centres are the nearest of any.
_SAMPLED_PER_PARTITION: Final = 32
_LABELLED_ROWS: Final = 32_768


def choose_centres(dataset: Dataset, column: str, fragments: Collection[int]) -> Vectors:
    """Return the centres for an index on some fragments; few vectors make one partition."""
    type_ = dataset.schema.field(column).type
    assert isinstance(type_, pa.FixedSizeListType)
    rows = sum(fragment.num_rows for fragment in dataset.fragments if fragment.id in fragments)
    count = min(rows // VECTOR_PARTITION_ROWS, VECTOR_PARTITIONS_MAX) if rows > VECTOR_UNPARTITIONED_ROWS_MAX else 1
    # With one partition any centre will do.
    single = np.zeros((1, type_.list_size), np.float32)
    if count <= 1:
        return single
    sample = _sampled(dataset, column, fragments, count * _SAMPLED_PER_PARTITION / rows, type_.list_size)
    return _trained(sample, count) if len(sample) > count else single


def _trained(sample: Vectors, count: int) -> Vectors:
    with np.errstate(all="ignore"):
        centres, _ = find_nested_clusters(sample, count)
        # A centre that is nearest to no vector would make an empty partition, of which Lance warns.
        labels = label(sample[:: max(len(sample) // _LABELLED_ROWS, 1)], centres)
    held: Vectors = centres[np.unique(labels)]
    return held


def _sampled(dataset: Dataset, column: str, fragments: Collection[int], share: float, dimension: int) -> Vectors:
    """Return about a share of the vectors of some fragments, evenly spread."""
    parts = []
    with lance_errors(f"reading `{column}` of {dataset.ref}", dataset):
        for fragment in dataset.lance.get_fragments():
            if fragment.fragment_id in fragments:
                rows = fragment.count_rows()
                positions = np.linspace(0, rows - 1, max(int(rows * min(share, 1.0)), 1)).astype(np.int64)
                vectors: Any = fragment.take(np.unique(positions).tolist(), columns=[column]).column(0).combine_chunks()
                parts.append(vectors.drop_null().flatten().to_numpy())
    numbers: Vectors = np.concatenate(parts).astype(np.float32, copy=False)
    return numbers.reshape(-1, dimension)
