"""The keys that set rules compare, as sorted arrays of hashes: those of one chunk of an input, or of a fragment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.lang.catalog import Cardinality, EdgeType, Type
from omnigraph.pipeline.key_buckets.files import KeyArrays
from omnigraph.pipeline.key_buckets.hashes import Candidates, find_duplicates, hash_column, hash_rows, is_among
from omnigraph.rules.arrow_typing import Column, Numbers, pc
from omnigraph.rules.delta import one_array


def key_names(type_: Type) -> tuple[str, ...]:
    """Return the keys that set rules compare: ids, endpoints, and each `@unique` by its number."""
    return ("id", *type_.ends, *unique_names(type_))


def unique_names(type_: Type) -> tuple[str, ...]:
    return tuple(map(str, range(len(type_.unique))))


def released_names(type_: Type) -> tuple[str, ...]:
    """Return the keys that an entity releases when it is replaced: unique values, and the edge count of its source."""
    is_counted = isinstance(type_, EdgeType) and type_.cardinality != Cardinality()
    return (*(("src",) if is_counted else ()), *unique_names(type_))


def columns_of_keys(type_: Type, names: Sequence[str]) -> list[str]:
    """Return the columns that some keys consist of."""
    tuples = {str(index): columns for index, columns in enumerate(type_.unique)}
    return list(dict.fromkeys(column for name in names for column in tuples.get(name, (name,))))


@dataclass(slots=True)
class Keys:
    """The keys of some rows, and the violations that are visible in these rows alone.

    `duplicates` are the first rows that repeat an earlier key, `incomparable` the first rows with values that the
    uniqueness rule refuses to compare.
    """

    arrays: dict[str, KeyArrays] = field(default_factory=dict)
    duplicates: dict[str, Candidates] = field(default_factory=dict)
    incomparable: dict[str, Numbers] = field(default_factory=dict)


def extract_keys(
    type_: Type, rows: pa.Table, names: Sequence[str], extra: Sequence[str], seed: str, limit: int
) -> Keys:
    """Hash the named keys of rows; `extra` hashes (a second one of the id, `check`, or released keys) go with ids."""
    keys = Keys()
    for name in names:
        if name.isdigit():
            columns = [one_array(rows.column(column)) for column in type_.unique[int(name)]]
            complete, incomparable = _find_comparable(columns)
            hashes = hash_rows([column.filter(pa.array(complete)) for column in columns], seed)
            _add_distinct(keys, name, hashes, np.flatnonzero(complete), {}, limit)
            keys.incomparable[name] = np.flatnonzero(incomparable)[:limit]
        elif name == "id":
            extras = {extra_name: _extra_hashes(type_, rows, extra_name, seed) for extra_name in extra}
            hashes = hash_column(rows.column("id"), seed)
            _add_distinct(keys, name, hashes, np.arange(rows.num_rows), extras, limit)
        else:
            keys.arrays[name] = build_key_arrays(hash_column(rows.column(name), seed), np.arange(rows.num_rows), {})
    return keys


def _add_distinct(
    keys: Keys, name: str, hashes: Numbers, rows: Numbers, extras: Mapping[str, Numbers], limit: int
) -> None:
    """Add a key that must be unique, and the rows that repeat it."""
    arrays = build_key_arrays(hashes, rows, extras)
    repeated = arrays["hash"][arrays.pop("count") > 1]
    if len(repeated):
        is_repeated = is_among(hashes, repeated)
        keys.duplicates[name] = find_duplicates(hashes[is_repeated], rows[is_repeated], limit)
    keys.arrays[name] = arrays


def _extra_hashes(type_: Type, rows: pa.Table, name: str, seed: str) -> Numbers:
    if name == "check":
        return hash_column(rows.column("id"), f"{seed}/check")
    if not name.isdigit():
        return hash_column(rows.column(name), seed)
    columns = [one_array(rows.column(column)) for column in type_.unique[int(name)]]
    complete, _ = _find_comparable(columns)
    # Zero marks an incomplete tuple. A tuple that happens to hash to zero costs a needless lookup, nothing more.
    hashes = np.zeros(rows.num_rows, np.uint64)
    hashes[complete] = hash_rows([column.filter(pa.array(complete)) for column in columns], seed)
    return hashes


def build_key_arrays(hashes: Numbers, rows: Numbers, extras: Mapping[str, Numbers]) -> KeyArrays:
    """Sort and deduplicate hashes; keep the first row of each, its count, and the extra hashes of that row.

    Equal hashes with different `check` hashes are different keys.
    """
    # Sorted, so that a range of hashes is a slice of the file, and deduplicated, so that skewed keys cost one entry.
    order = np.argsort(hashes)
    ordered = hashes[order]
    is_new = np.ones(len(order), bool)
    is_new[1:] = ordered[1:] != ordered[:-1]
    if "check" in extras and not is_new.all():
        order = np.lexsort((extras["check"], hashes))
        ordered, check = hashes[order], extras["check"][order]
        is_new[1:] = (ordered[1:] != ordered[:-1]) | (check[1:] != check[:-1])
    starts = np.flatnonzero(is_new)
    first_rows = np.minimum.reduceat(order, starts) if len(starts) else order
    counts = np.diff(np.append(starts, len(order)))
    arrays: KeyArrays = {
        "hash": ordered[starts],
        "row": rows[first_rows].astype(np.uint32),
        "count": counts.astype(np.uint32),
    }
    return arrays | {name: values[first_rows] for name, values in extras.items()}


def _find_comparable(columns: Sequence[Column]) -> tuple[Numbers, Numbers]:
    """Return masks of the rows without nulls, and of the rows with a value that cannot be compared."""
    complete = np.ones(len(columns[0]), bool)
    incomparable = np.zeros(len(columns[0]), bool)
    for column in columns:
        complete &= np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False), bool)
        incomparable |= _is_incomparable(column)
    if any(pa.types.is_nested(column.type) for column in columns):
        complete[:] = False
    return complete, incomparable


def _is_incomparable(column: Column) -> Numbers:
    if pa.types.is_nested(column.type):
        mask: Any = pc.is_valid(column)
    elif pa.types.is_floating(column.type):
        mask = pc.fill_null(pc.invert(pc.is_finite(column)), False)
    else:
        return np.zeros(len(column), bool)
    return np.asarray(mask.to_numpy(zero_copy_only=False), bool)
