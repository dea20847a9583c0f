"""The centres of the partitions of a vector index, chosen by the number of vectors and from a sample of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import numpy as np
import pyarrow as pa

from omnigraph.limits import VECTOR_PARTITION_ROWS, VECTOR_PARTITIONS_MAX, VECTOR_UNPARTITIONED_ROWS_MAX
from omnigraph.store.dataset import Dataset, lance_errors
from omnigraph.store.kmeans import Vectors, find_nested_clusters, label

# Vectors of which the centre of a partition is computed, and vectors that show which centres are the nearest of any.
_SAMPLED_PER_PARTITION: Final = 32
_LABELLED_ROWS: Final = 32_768


def choose_centres(dataset: Dataset, column: str, fragments: Collection[int]) -> Vectors:
    """Return the centres for an index on some fragments; few vectors make one partition."""
    type_ = dataset.schema.field(column).type
    assert isinstance(type_, pa.FixedSizeListType)
    rows = sum(one.num_rows for one in dataset.fragments if one.id in fragments)
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
                places = np.linspace(0, rows - 1, max(int(rows * min(share, 1.0)), 1)).astype(np.int64)
                vectors: Any = fragment.take(np.unique(places).tolist(), columns=[column]).column(0).combine_chunks()
                parts.append(vectors.drop_null().flatten().to_numpy())
    numbers: Vectors = np.concatenate(parts).astype(np.float32, copy=False)
    return numbers.reshape(-1, dimension)
