"""64-bit hashes of whole columns: what set rules compare instead of values.

Pure numpy. A different hash proves that two values differ; an equal one makes them candidates, to be compared. The
seed keeps anybody from preparing values that agree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.rules.delta import one_array
from omnigraph.rules.kernels import Column, Numbers, pc

Hashes: TypeAlias = Numbers

_U64: Final = np.uint64
_SLICE_ROWS: Final = 16_384
# Longer texts than this many words of eight bytes are hashed one by one.
_WORDS: Final = 64
# How much of a word belongs to a text that has this many bytes left.
_MASKS: Final = np.array([(1 << (8 * count)) - 1 for count in range(9)], np.uint64)


@lru_cache(maxsize=8)
def _factors(seed: str) -> Hashes:
    digest = hashlib.blake2b(seed.encode(), digest_size=24).digest()
    return np.frombuffer(digest, np.uint64) | _U64(1)


def hash_column(column: Column, seed: str) -> Hashes:
    """Return one hash a row; equal values of one type have equal hashes, and a null has some hash."""
    column = one_array(column)
    if pa.types.is_string(column.type):
        # A slice at a time, all that is computed for it stays in the processor's cache.
        slices = (column.slice(start, _SLICE_ROWS) for start in range(0, len(column), _SLICE_ROWS))
        return np.concatenate([np.zeros(0, np.uint64), *(_hash_texts(one, seed) for one in slices)])
    if pa.types.is_floating(column.type):
        # Negative zero equals zero.
        numbers = pc.add(column, pa.scalar(0.0, column.type)).cast(pa.float64())
        bits = pc.fill_null(numbers, 0.0).to_numpy(zero_copy_only=False).view(np.uint64)
    elif pa.types.is_boolean(column.type):
        bits = pc.fill_null(column, False).cast(pa.uint8()).to_numpy().astype(np.uint64)
    else:
        width = {32: pa.int32(), 64: pa.int64()}[column.type.bit_width]
        plain = column.view(width) if pa.types.is_date(column.type) else column
        bits = pc.fill_null(plain, 0).to_numpy(zero_copy_only=False).astype(np.uint64)
    return _mixed(bits * _factors(seed)[0] + _factors(seed)[2])


def hash_rows(columns: Sequence[Column], seed: str) -> Hashes:
    """Return one hash for each tuple of values."""
    total = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        total = _mixed(total * _factors(seed)[1] + hash_column(column, seed))
    return total


def _hash_texts(column: Any, seed: str) -> Hashes:
    if column.null_count:
        column = pc.fill_null(column, "")
    start, factor = _factors(seed)[:2]
    _, offset_buffer, data_buffer = column.buffers()
    if len(column) == 0 or data_buffer is None:
        return np.full(len(column), start, np.uint64)
    offsets = np.frombuffer(offset_buffer, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    # Eight more bytes let the last word be read whole.
    own = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
    data, offsets = np.concatenate([own, np.zeros(8, np.uint8)]), offsets - offsets[0]
    words = np.ndarray((len(data) - 7,), np.uint64, buffer=data.data, strides=(1,))
    lengths = np.diff(offsets)
    hashes = np.where(lengths > 0, start + lengths.astype(np.uint64) * factor, start)
    rows, places, left = np.arange(len(column)), offsets[:-1], lengths
    for _ in range(_WORDS):
        if not (left > 0).all():
            inside = left > 0
            rows, places, left = rows[inside], places[inside], left[inside]
        if len(rows) == 0:
            return hashes
        word = words[places] & _MASKS[np.minimum(left, 8)]
        hashes[rows] = _mixed((hashes[rows] ^ word) * factor)
        places, left = places + 8, left - 8
    for row in rows[left > 0].tolist():
        text = data[offsets[row] : offsets[row + 1]].tobytes()
        hashes[row] = int.from_bytes(hashlib.blake2b(text, digest_size=8, key=seed.encode()[:64]).digest(), "little")
    return hashes


def _mixed(bits: Hashes) -> Hashes:
    """Spread the difference of two numbers over all bits; one to one, so it adds no collision."""
    bits = (bits ^ (bits >> _U64(30))) * _U64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> _U64(27))) * _U64(0x94D049BB133111EB)
    return bits ^ (bits >> _U64(31))
