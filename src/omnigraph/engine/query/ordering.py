"""Ordering: values become sortable numbers, so that any mix of keys and directions is one sort of numbers.

Nulls come first ascending and last descending; not-a-number counts as the largest number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from omnigraph.engine.query.vectors import Constant, Lists, Texts, Vector

Places: TypeAlias = npt.NDArray[np.int64]
SortKey: TypeAlias = npt.NDArray[Any]

# So many rows tell well enough where the first of all may end.
_SAMPLE: Final = 8_192


def sort_keys(vector: Vector, descending: bool) -> list[SortKey]:
    """Return the numbers to sort by, most significant first; none when all values are equal."""
    if isinstance(vector, Constant):
        return []
    if isinstance(vector, Texts):
        ranks = text_ranks(vector.array)
        return [~ranks if descending else ranks]
    if isinstance(vector, Lists):
        from omnigraph.engine.query.aggregate import encode

        return [encode(vector, len(vector.array))[0]]
    data = _as_integers(vector.data)
    if descending:
        data = ~data
    if vector.valid is None:
        return [data]
    if vector.data.dtype.kind != "f" and vector.data.dtype.itemsize < 8:
        # Narrow integers leave room beside them for null.
        return [np.where(vector.valid, data, np.int64(2**40 if descending else -(2**40)))]
    return [~vector.valid if descending else vector.valid, np.where(vector.valid, data, 0)]


def text_ranks(array: Any) -> npt.NDArray[np.int64]:
    """Return the rank of every text among the distinct ones, -1 for null."""
    encoded = array.dictionary_encode()
    order = pc.array_sort_indices(encoded.dictionary).to_numpy()
    ranks = np.empty(len(order) + 1, np.int64)
    ranks[order] = np.arange(len(order))
    ranks[-1] = -1
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    found: npt.NDArray[np.int64] = ranks[codes]
    return found


def _as_integers(data: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return integers in the same order as the numbers."""
    if data.dtype.kind != "f":
        return data.astype(np.uint64 if data.dtype == np.uint64 else np.int64, copy=False)
    wide = data.astype(np.float64) + 0.0
    bits = np.where(np.isnan(wide), np.nan, wide).view(np.int64)
    # The bits of a negative float grow as it falls; flipping all but the sign puts them in order.
    return bits ^ ((bits >> np.int64(63)) & np.int64(0x7FFFFFFFFFFFFFFF))


def top_places(
    keys: Sequence[SortKey], count: int, wanted: int | None, ties: Callable[[Places], list[SortKey]]
) -> Places:
    """Return the places of the first `wanted` rows in order, of all when None; `ties` gives more keys when needed."""
    places = np.arange(count, dtype=np.int64)
    if wanted is not None and keys and wanted * 8 < count:
        places = _contenders(keys[0], max(wanted, 1))
        keys = [key[places] for key in keys]
    order = np.lexsort(tuple(reversed(keys))) if keys else np.arange(len(places))
    if _has_ties(keys, order, wanted):
        more = [*keys, *ties(places)]
        order = np.lexsort(tuple(reversed(more))) if more else order
    ordered: Places = places[order]
    return ordered if wanted is None else ordered[:wanted]


def _contenders(key: SortKey, wanted: int) -> Places:
    """Return the places of all that could be among the first: whatever is not beyond the worst of the best."""
    step = len(key) // (_SAMPLE + wanted)
    if step > 1:
        # What is beyond the best of a sample is beyond the best of all, and a sample is quickly sorted.
        bound = np.partition(key[::step], wanted - 1)[wanted - 1]
        places = np.flatnonzero(key <= bound)
        best = key[places]
        kept: Places = places[best <= np.partition(best, wanted - 1)[wanted - 1]]
        return kept
    return np.flatnonzero(key <= np.partition(key, wanted - 1)[wanted - 1])


def _has_ties(keys: Sequence[SortKey], order: npt.NDArray[Any], wanted: int | None) -> bool:
    end = len(order) if wanted is None else min(len(order), wanted + 1)
    if end < 2:
        return False
    head, tail = order[: end - 1], order[1:end]
    return not keys or bool(np.any(np.logical_and.reduce([key[head] == key[tail] for key in keys])))
