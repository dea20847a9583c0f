"""Values as integers: codes that group equal values, sort keys so that any mix of keys is one lexsort, and top-k.

In an order nulls come first ascending and last descending; not-a-number counts as the largest number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from omnigraph.engine.query.vectors import Codes, Constant, Lists, Numbers, Strings, Vector

RowIndices: TypeAlias = npt.NDArray[np.int64]
SortKey: TypeAlias = npt.NDArray[Any]

# So many rows tell well enough where the first of all may end.
_SAMPLE: Final = 8_192
# Fewer rows are sorted before it is known whether their keys fit one integer.
_PACKED_MIN: Final = 4_096


def encode_values(vector: Vector, count: int) -> tuple[Codes, int]:
    """Return a code per row, equal for equal values and one of its own for null, and how many codes there may be."""
    if isinstance(vector, Constant):
        return np.zeros(count, np.int64), 1
    if isinstance(vector, Strings):
        return encode_dictionary(vector.array)
    if isinstance(vector, Lists):
        return _encode_lists(vector)
    return _encode_numbers(vector)


def encode_dictionary(array: Any) -> tuple[Codes, int]:
    """Return a code per value of an Arrow array, 0 for null, and how many codes there may be."""
    encoded = array.dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64) + 1
    return codes, len(encoded.dictionary) + 1


def _encode_numbers(vector: Numbers) -> tuple[Codes, int]:
    data = vector.data
    if data.dtype.kind in "iub" and len(data):
        low, high = int(data.min()), int(data.max())
        if high - low <= 4 * len(data) + 1_024:
            # A narrow range is its own code.
            near = data.astype(np.int8) - low if data.dtype.kind == "b" else data - data.dtype.type(low)
            return _mask_nulls(near.astype(np.int64) + 1, vector), high - low + 2
    if data.dtype.kind == "f":
        # -0.0 equals 0.0.
        data = data + data.dtype.type(0)
    values, codes = np.unique(data, return_inverse=True)
    return _mask_nulls(codes.astype(np.int64) + 1, vector), len(values) + 1


def _mask_nulls(codes: Codes, vector: Numbers) -> Codes:
    return codes if vector.valid is None else np.where(vector.valid, codes, 0)


def _encode_lists(lists: Lists) -> tuple[Codes, int]:
    """Code lists item by item: the code so far and the next item make the next code."""
    lengths = lists.lengths
    items, item_codes = encode_values(lists.items, int(lengths.sum()))
    starts = np.cumsum(lengths) - lengths
    codes = np.where(lists.array.is_valid().to_numpy(zero_copy_only=False), lengths + 1, 0)
    active = np.flatnonzero(lengths > 0)
    position = 0
    while len(active):
        following = items[starts[active] + position]
        new_codes = np.unique(codes[active] * (item_codes + 1) + following, return_inverse=True)[1]
        # Keep this round's codes distinct from those of lists that already ended.
        codes[active] = new_codes + int(codes.max()) + 1
        codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
        position += 1
        active = active[lengths[active] > position]
    return codes, int(codes.max(initial=0)) + 1


def sort_keys(vector: Vector, descending: bool) -> list[SortKey]:
    """Return the numbers to sort by, most significant first; none when all values are equal."""
    if isinstance(vector, Constant):
        return []
    if isinstance(vector, Strings):
        ranks = string_ranks(vector.array) if vector.ranks is None else vector.ranks
        return [~ranks if descending else ranks]
    if isinstance(vector, Lists):
        return [encode_values(vector, len(vector.array))[0]]
    data = _sortable_integers(vector.data)
    if descending:
        data = ~data
    if vector.valid is None:
        return [data]
    if vector.data.dtype.kind != "f" and vector.data.dtype.itemsize < 8:
        # Narrow integers leave room beside them for null.
        return [np.where(vector.valid, data, np.int64(2**40 if descending else -(2**40)))]
    return [~vector.valid if descending else vector.valid, np.where(vector.valid, data, 0)]


def string_ranks(array: Any) -> npt.NDArray[np.int64]:
    """Return the rank of every text among the distinct ones, -1 for null."""
    return rank_strings(array)[0]


def rank_strings(array: Any) -> tuple[npt.NDArray[np.int64], Any, npt.NDArray[np.int64]]:
    """Return the rank of every text, the distinct texts, and their places in the order of their ranks."""
    encoded = array.dictionary_encode()
    order = pc.array_sort_indices(encoded.dictionary).to_numpy()
    ranks = np.empty(len(order) + 1, np.int64)
    ranks[order] = np.arange(len(order))
    ranks[-1] = -1
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return ranks[codes], encoded.dictionary, order


def _sortable_integers(data: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if data.dtype.kind != "f":
        return data.astype(np.uint64 if data.dtype == np.uint64 else np.int64, copy=False)
    wide = data.astype(np.float64) + 0.0
    bits = np.where(np.isnan(wide), np.nan, wide).view(np.int64)
    # The bits of a negative float grow as it falls; flipping all but the sign puts them in order.
    return bits ^ ((bits >> np.int64(63)) & np.int64(0x7FFFFFFFFFFFFFFF))


def top_rows(
    keys: Sequence[SortKey], count: int, limit: int | None, ties: Callable[[RowIndices], list[SortKey]]
) -> RowIndices:
    """Return the indices of the first `limit` rows in order, of all when None; `ties` gives more keys when needed."""
    rows = np.arange(count, dtype=np.int64)
    if limit is not None and keys and limit * 8 < count:
        rows = _candidates(keys[0], max(limit, 1))
        keys = [key[rows] for key in keys]
    order = stable_order(keys, len(rows))
    if _has_ties(keys, order, limit):
        order = stable_order([*keys, *ties(rows)], len(rows))
    ordered: RowIndices = rows[order]
    return ordered if limit is None else ordered[:limit]


def stable_order(keys: Sequence[SortKey], count: int) -> RowIndices:
    """Return the first `count` rows in the order of their keys, the most significant first; ties keep their order."""
    if not keys:
        return np.arange(count, dtype=np.int64)
    packed = _pack_keys(keys, count) if count >= _PACKED_MIN else None
    if packed is None:
        return np.lexsort(tuple(reversed(keys)))
    # Sorting numbers is several times faster than sorting their places.
    packed.sort()
    return packed & np.int64((1 << count.bit_length()) - 1)


def _pack_keys(keys: Sequence[SortKey], count: int) -> npt.NDArray[np.int64] | None:
    """Return the keys of each row and its place as one integer; None if they do not fit."""
    bits = count.bit_length()
    room = 1 << (62 - bits)
    packed = np.zeros(count, np.int64)
    for key in keys:
        low, high = int(key.min()), int(key.max())
        room //= high - low + 1
        if room == 0:
            return None
        near = (key - np.uint64(low) if key.dtype == np.uint64 else key.astype(np.int64) - low).astype(np.int64)
        packed = packed * (high - low + 1) + near
    return (packed << np.int64(bits)) | np.arange(count)


def _candidates(key: SortKey, limit: int) -> RowIndices:
    """Return the rows that could be in the top `limit`: those not worse than its last one."""
    step = len(key) // (_SAMPLE + limit)
    if step > 1:
        # A row worse than the k-th of a sample cannot be in the top k, and a sample is cheap to sort.
        bound = np.partition(key[::step], limit - 1)[limit - 1]
        rows = np.flatnonzero(key <= bound)
        best = key[rows]
        candidates: RowIndices = rows[best <= np.partition(best, limit - 1)[limit - 1]]
        return candidates
    return np.flatnonzero(key <= np.partition(key, limit - 1)[limit - 1])


def _has_ties(keys: Sequence[SortKey], order: npt.NDArray[Any], limit: int | None) -> bool:
    end = len(order) if limit is None else min(len(order), limit + 1)
    if end < 2:
        return False
    head, tail = order[: end - 1], order[1:end]
    return not keys or bool(np.any(np.logical_and.reduce([key[head] == key[tail] for key in keys])))
