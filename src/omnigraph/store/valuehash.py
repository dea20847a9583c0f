"""Hashes of column values, whole columns at a time: equal values have equal hashes.

Pure numpy over Arrow buffers. A hash narrows a search; whoever uses it compares the values themselves afterwards.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Hashes = npt.NDArray[np.uint64]

_WORD: Final = 8
# Texts are hashed by their first and last words, so that the work per value is bounded.
_WORDS_MAX: Final = 8
_ODD: Final = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93))
_LOW_BYTES: Final = np.array([(1 << (8 * count)) - 1 for count in range(_WORD + 1)], np.uint64)


def is_hashable(type_: pa.DataType) -> bool:
    """Tell whether values of a type can be hashed: texts, numbers, booleans, dates and times."""
    return pa.types.is_string(type_) or pa.types.is_large_string(type_) or _is_fixed(type_)


def hash_values(values: pa.Array[Any]) -> Hashes:
    """Return a hash for each value; there must be no nulls among them.

    >>> one, again, other = hash_values(pa.array(["a", "a", "b"])).tolist()
    >>> one == again, one == other
    (True, False)
    """
    assert values.null_count == 0, "a null has no hash"
    if _is_fixed(values.type):
        return _mixed(_bits(values), 0)
    return _text_hashes(values.cast(pa.large_string()))


def _is_fixed(type_: pa.DataType) -> bool:
    return pa.types.is_primitive(type_) and type_.bit_width <= 64


def _bits(values: pa.Array[Any]) -> Hashes:
    if pa.types.is_floating(values.type):
        # Adding zero makes both zeros the same one.
        return (np.asarray(values.cast(pa.float64())) + 0.0).view(np.uint64)
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    elif not pa.types.is_integer(values.type):
        values = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())
    return np.asarray(values).astype(np.uint64)


def _mixed(words: Hashes, turn: int) -> Hashes:
    mixed = (words ^ np.uint64(turn)) * _ODD[0]
    mixed ^= mixed >> np.uint64(32)
    mixed *= _ODD[1]
    mixed ^= mixed >> np.uint64(29)
    return mixed


def _text_hashes(texts: pa.Array[Any]) -> Hashes:
    _, offset_buffer, data = texts.buffers()
    assert offset_buffer is not None
    offsets = np.frombuffer(memoryview(offset_buffer), np.int64)[texts.offset : texts.offset + len(texts) + 1]
    starts, lengths = offsets[:-1], np.diff(offsets)
    hashes = _mixed(lengths.astype(np.uint64), 0)
    size = int(offsets[-1])
    padded = np.zeros(size + _WORD, np.uint8)
    if data is not None:
        padded[:size] = np.frombuffer(memoryview(data), np.uint8)[:size]
    # A word begins at every byte, so that one gather reads a word of every text.
    words: Hashes = np.ndarray((len(padded) - _WORD + 1,), "<u8", padded, strides=(1,))
    for turn in range(2 * _WORDS_MAX):
        rows = np.flatnonzero(lengths > turn * _WORD)
        if len(rows) == 0:
            break
        at = starts[rows] + turn * _WORD
        if turn >= _WORDS_MAX:
            at += np.maximum(lengths[rows] - 2 * _WORDS_MAX * _WORD, 0)
        left = np.minimum(starts[rows] + lengths[rows] - at, _WORD)
        hashes[rows] = _mixed(hashes[rows] ^ (words[at] & _LOW_BYTES[left]), turn + 1)
    return hashes


def sorted_hashes(values: pa.Array[Any]) -> Hashes:
    """Return the hashes of the values that are not null, ascending, each once."""
    return np.unique(hash_values(pc.drop_null(values)))
