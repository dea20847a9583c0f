"""Key files: the hashes that set rules compare, written by tasks beside the data, read by whoever checks.

One file for one type of one split, or for one fragment of what is committed.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.engine.write.loaded import Type
from omnigraph.ids import new_ulid
from omnigraph.lang.catalog import EdgeType
from omnigraph.pipeline.hashing import hash_column, hash_rows
from omnigraph.rules.delta import one_array
from omnigraph.rules.kernels import Column, Numbers, pc
from omnigraph.store.store import Store

# Hashes by what they are hashes of: `id`, `src`, `dst`, and for the n-th `@unique` `n.hash`, `n.row` and `n.odd`.
Keys: TypeAlias = Mapping[str, Numbers]


def key_names(type_: Type) -> tuple[str, ...]:
    """Return what set rules look at in a type: ids, ends, and each `@unique` by its place."""
    ends = ("src", "dst") if isinstance(type_, EdgeType) else ()
    return ("id", *ends, *map(str, range(len(type_.unique))))


def columns_of(type_: Type, names: Sequence[str]) -> list[str]:
    """Return the columns that keys are made of."""
    tuples = {str(place): columns for place, columns in enumerate(type_.unique)}
    return list(dict.fromkeys(column for name in names for column in tuples.get(name, (name,))))


def keys_of(type_: Type, rows: pa.Table, names: Sequence[str], seed: str) -> dict[str, Numbers]:
    """Return the hashes of rows of a type."""
    found: dict[str, Numbers] = {}
    for name in names:
        if name.isdigit():
            tuples = _tuples(rows, type_.unique[int(name)], seed)
            found |= {f"{name}.{part}": values for part, values in tuples.items()}
        else:
            found[name] = hash_column(rows.column(name), seed)
    return found


def joined(parts: Sequence[tuple[int, Keys]]) -> dict[str, Numbers]:
    """Return the keys of consecutive rows, given with the number of their first row, as those of one table."""
    names = parts[0][1] if parts else ()
    arrays: dict[str, Numbers] = {}
    for name in names:
        is_place = name.endswith((".row", ".odd"))
        arrays[name] = np.concatenate([keys[name] + first if is_place else keys[name] for first, keys in parts])
    return arrays


def _tuples(rows: pa.Table, columns: Sequence[str], seed: str) -> dict[str, Numbers]:
    values = [one_array(rows.column(name)) for name in columns]
    complete = np.ones(rows.num_rows, bool)
    odd = np.zeros(rows.num_rows, bool)
    for column in values:
        complete &= np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False), bool)
        odd |= _incomparable(column)
    if any(pa.types.is_nested(column.type) for column in values):
        complete[:] = False
    whole = [column.filter(pa.array(complete)) for column in values]
    return {
        "hash": hash_rows(whole, seed),
        "row": np.flatnonzero(complete).astype(np.int64),
        "odd": np.flatnonzero(odd).astype(np.int64),
    }


def _incomparable(column: Column) -> Numbers:
    """Return which values the rule on tuples refuses to compare, so that it is asked about them."""
    if pa.types.is_nested(column.type):
        mask: Any = pc.is_valid(column)
    elif pa.types.is_floating(column.type):
        mask = pc.fill_null(pc.invert(pc.is_finite(column)), False)
    else:
        return np.zeros(len(column), bool)
    return np.asarray(mask.to_numpy(zero_copy_only=False), bool)


def write_keys(store: Store, folder: str, keys: Keys, ids: Column | None = None) -> str:
    """Write keys under a fresh name and return its path; with `ids` also the texts behind the hashes of `id`.

    Two attempts of one task write two files, and only the one that is told of counts.
    """
    arrays = dict(keys)
    if ids is not None:
        arrays |= _text_arrays(ids)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    path = f"{folder}/{new_ulid()}.npz"
    store.objects.write(path, buffer.getvalue())
    return path


def read_keys(store: Store, path: str) -> dict[str, Numbers]:
    """Return what `write_keys` wrote."""
    with np.load(io.BytesIO(store.objects.read(path)), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _text_arrays(ids: Column) -> dict[str, Numbers]:
    # A fresh array starts at the beginning of its buffers.
    ids = pa.concat_arrays([ids.slice(0, 0), ids]) if ids.offset else ids
    _, offsets, data = ids.buffers()
    count = len(ids) + 1 if len(ids) else 0
    return {
        "texts.offsets": np.frombuffer(offsets, np.int32)[:count] if count else np.zeros(1, np.int32),
        "texts.data": np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8),
    }


def texts_of(keys: Keys) -> Column:
    """Return the texts that were written with the hashes of `id`."""
    offsets = keys["texts.offsets"]
    return pa.StringArray.from_buffers(
        len(offsets) - 1, pa.py_buffer(offsets.tobytes()), pa.py_buffer(keys["texts.data"].tobytes())
    )
