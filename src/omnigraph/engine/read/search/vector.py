"""Nearest vectors of a node property.

Returns row ids of the pinned version with Euclidean distances.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from omnigraph.engine.core import View
from omnigraph.engine.read.search.prepared import vector_search
from omnigraph.errors import DataError
from omnigraph.store.bm25 import Scores
from omnigraph.store.kmeans import Vectors
from omnigraph.store.live import RowIds


def nearest(
    view: View,
    node_type: str,
    property: str,  # noqa: A002 - the language's word
    vector: ArrayLike,
    candidates: RowIds | None = None,
    limit: int | None = None,
) -> tuple[RowIds, Scores]:
    """Return the rows among the candidates that have a vector, with their distances, nearest first.

    Rows as near as the last one within the limit come along, so that the caller can break the tie.
    """
    search = vector_search(view, node_type, property)
    return search.search(checked_vector(vector, search.dimension, property), candidates, limit)


def describe_nearest(view: View, node_type: str, property: str, limit: int | None) -> str:  # noqa: A002
    """Say how the nearest of a type would be found."""
    return vector_search(view, node_type, property).describe(limit)


def checked_vector(vector: ArrayLike, dimension: int, property: str) -> Vectors:  # noqa: A002 - the language's word
    """Return a query vector as it is compared, or refuse one that does not fit the property (E4).

    >>> checked_vector([1, 2], 2, "vec")
    array([1., 2.], dtype=float32)
    """
    wide = np.asarray(vector, np.float64)
    if wide.shape != (dimension,):
        found = wide.shape[0] if wide.ndim == 1 else "no list of"
        raise DataError(
            f"`{property}` holds vectors of {dimension} numbers, and the query has {found}",
            rule="E4",
            property=property,
            dimension=dimension,
        )
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32)
    if not np.isfinite(narrow).all():
        raise DataError(
            f"the vector to compare `{property}` with holds a number that is not finite as F32",
            rule="E4",
            property=property,
        )
    return narrow
