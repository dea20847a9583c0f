"""Search functions of the query language: text predicates, BM25 and nearest vectors, returning row ids.

Prepared searches are cached per store and dataset version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from threading import Lock
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numpy.typing import ArrayLike

from omnigraph.engine.arguments import Value
from omnigraph.engine.query.budget import check_running
from omnigraph.engine.query.embedders import Embedder, from_settings
from omnigraph.engine.session import View
from omnigraph.errors import DataError, LimitExceeded
from omnigraph.lang.catalog import PropertyType
from omnigraph.limits import FUZZY_EDITS_MAX, FUZZY_WORDS_MAX, SEARCH_CACHE_MAX, SEARCH_WORDS_MAX
from omnigraph.lru import LruCache
from omnigraph.manifest.kernel import Kernel
from omnigraph.store.index.bm25 import Scores
from omnigraph.store.index.exact_knn import Vectors
from omnigraph.store.index.text_search import NO_HITS, TextCache, TextSearch, describe_texts, distinct_words
from omnigraph.store.index.vector_partitions import PartitionCache
from omnigraph.store.index.vector_search import VectorSearch
from omnigraph.store.read.dataset import DatasetRef
from omnigraph.store.read.live_rows import RowIds
from omnigraph.store.store import Store

_Key: TypeAlias = tuple[DatasetRef, str]


@dataclass
class _SearchCaches:
    texts: LruCache[_Key, TextSearch] = field(default_factory=lambda: LruCache(SEARCH_CACHE_MAX))
    vectors: LruCache[_Key, VectorSearch] = field(default_factory=lambda: LruCache(SEARCH_CACHE_MAX))
    cache: TextCache = field(default_factory=TextCache)
    partitions: PartitionCache = field(default_factory=PartitionCache)
    embedder: Embedder | None = None


_caches_by_store: Final[WeakKeyDictionary[Store, _SearchCaches]] = WeakKeyDictionary()
_lock: Final = Lock()


def text_search(view: View, node_type: str, name: str) -> TextSearch:
    """Return the search of a String property, prepared at most once per version."""
    dataset = view.dataset(view.catalog.nodes[node_type].table_key)
    prepared = _caches_of(view)
    return prepared.texts.get_or_create((dataset.ref, name), lambda: TextSearch(dataset, name, prepared.cache))


def vector_search(view: View, node_type: str, name: str) -> VectorSearch:
    """Return the search of a Vector property, prepared at most once per version."""
    dataset = view.dataset(view.catalog.nodes[node_type].table_key)
    prepared = _caches_of(view)
    return prepared.vectors.get_or_create((dataset.ref, name), lambda: VectorSearch(dataset, name, prepared.partitions))


def default_embedder(view: View) -> Embedder:
    """Return the embedder of an opened graph; the settings are read when it is first needed, and once."""
    prepared = _caches_of(view)
    with _lock:
        if prepared.embedder is None:
            prepared.embedder = from_settings()
        return prepared.embedder


def set_default_embedder(kernel: Kernel, embedder: Embedder | None) -> None:
    """Set the embedder of an opened graph; None means the one that the settings name."""
    with _lock:
        _caches_by_store.setdefault(kernel.store, _SearchCaches()).embedder = embedder


def _caches_of(view: View) -> _SearchCaches:
    with _lock:
        return _caches_by_store.setdefault(view.kernel.store, _SearchCaches())


def describe_search(view: View, node_type: str, property: str) -> str:  # noqa: A002 - the language's word
    """Describe how the texts of a property would be searched."""
    return describe_texts(view.dataset(view.catalog.nodes[node_type].table_key), property)


def match_text(
    view: View,
    node_type: str,
    property: str,  # noqa: A002 - the language's word
    query: str,
    function: str,
    max_edits: int | None = None,
) -> RowIds:
    """Return the rows, in row id order, whose text holds any word of the query.

    `fuzzy` forgives up to `max_edits` typing errors (inserted, dropped or replaced letters) per word.
    """
    edits = 0 if function != "fuzzy" else 2 if max_edits is None else max_edits
    if not 0 <= edits <= FUZZY_EDITS_MAX:
        raise DataError(
            f"`fuzzy` forgives between 0 and {FUZZY_EDITS_MAX} typing errors, not {edits}", rule="E4", value=edits
        )
    is_fuzzy = function == "fuzzy"
    _check_word_count(query, FUZZY_WORDS_MAX if is_fuzzy else SEARCH_WORDS_MAX)
    search = text_search(view, node_type, property)
    rows = search.matches_misspelt(query, edits, check_running) if is_fuzzy else search.matches(query)
    return np.unique(rows)


def _check_word_count(query: str, words_max: int) -> None:
    """Raise `LimitExceeded` if a query text has too many distinct words."""
    # Scripts without spaces have words of one letter, and Unicode has signs that stand for up to four words.
    if len(query) <= words_max // 4:
        return
    count = len(distinct_words(query))
    if count > words_max:
        raise LimitExceeded(
            f"the text has {count} distinct words, but a search is limited to {words_max}; use fewer",
            resource="search_words",
            limit=words_max,
            actual=count,
        )


def bm25(
    view: View,
    node_type: str,
    property: str,  # noqa: A002 - the language's word
    query: str,
    candidates: RowIds | None = None,
    limit: int | None = None,
) -> tuple[RowIds, Scores]:
    """Return the matching rows among the candidates with their relevance, best first, equal ones in row id order.

    Rows as good as the last one within the limit come along, so that the caller can break the tie.
    """
    if candidates is not None and len(candidates) == 0:
        return NO_HITS.rows, NO_HITS.scores
    _check_word_count(query, SEARCH_WORDS_MAX)
    hits = text_search(view, node_type, property).search(query, candidates, limit)
    return hits.rows, hits.scores


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
    return search.search(check_vector(vector, search.dimension, property), candidates, limit)


def describe_nearest(view: View, node_type: str, property: str, limit: int | None) -> str:  # noqa: A002
    """Describe how nearest vectors would be found."""
    return vector_search(view, node_type, property).describe(limit)


def check_vector(vector: ArrayLike, dimension: int, property: str) -> Vectors:  # noqa: A002 - the language's word
    """Return a query vector as it is compared, or refuse one that does not fit the property (E4).

    >>> check_vector([1, 2], 2, "vec")
    array([1., 2.], dtype=float32)
    """
    wide = np.asarray(vector, np.float64)
    if wide.shape != (dimension,):
        actual = wide.shape[0] if wide.ndim == 1 else "no list of"
        raise DataError(
            f"`{property}` has vectors of dimension {dimension}, but the query vector has {actual}",
            rule="E4",
            property=property,
            dimension=dimension,
        )
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32)
    if not np.isfinite(narrow).all():
        raise DataError(
            f"the query vector for `{property}` has a number that is not finite as F32",
            rule="E4",
            property=property,
        )
    return narrow


Ids: TypeAlias = npt.NDArray[Any]
Mask: TypeAlias = npt.NDArray[np.bool_]

# Dates are compared as their numbers, and Arrow hands them to numpy only as those.
_PHYSICAL: Final[Mapping[pa.DataType, pa.DataType]] = {pa.date32(): pa.int32(), pa.date64(): pa.int64()}


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers, booleans, dates or timestamps; without `valid` none is null."""

    data: npt.NDArray[Any]
    valid: Mask | None

    def take(self, ids: Ids) -> Numbers:
        return Numbers(self.data[ids], None if self.valid is None else self.valid[ids])


@dataclass(frozen=True, slots=True)
class Strings:
    """Strings, nulls included; with `ranks` if their places in the order of all strings are known, -1 for null."""

    array: Any
    ranks: npt.NDArray[np.int64] | None = None

    def take(self, ids: Ids) -> Strings:
        return Strings(self.array.take(pa.array(ids)), None if self.ranks is None else self.ranks[ids])


@dataclass(frozen=True, slots=True)
class Lists:
    """Lists or vectors, nulls included."""

    array: Any

    def take(self, ids: Ids) -> Lists:
        return Lists(self.array.take(pa.array(ids)))


@dataclass(frozen=True, slots=True)
class Constant:
    """One value for every row; None is null."""

    value: Value
    type: PropertyType


Vector: TypeAlias = Numbers | Strings | Lists | Constant


def is_null_constant(vector: Vector) -> bool:
    """Return True if a vector is null for every row."""
    return isinstance(vector, Constant) and vector.value is None


def vector_from_arrow(array: Any) -> Numbers | Strings | Lists:
    """Wrap an Arrow array.

    >>> vector_from_arrow(pa.array([1, None], pa.int32()))
    Numbers(data=array([1, 0], dtype=int32), valid=array([ True, False]))
    """
    type_ = array.type
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return Strings(array)
    if pa.types.is_list(type_) or pa.types.is_fixed_size_list(type_) or pa.types.is_large_list(type_):
        return Lists(array)
    valid = None
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        array = array.fill_null(
            False if pa.types.is_boolean(type_) else pa.scalar(0, _PHYSICAL.get(type_, type_)).cast(type_)
        )
    if type_ in _PHYSICAL:
        array = array.view(_PHYSICAL[type_])
    return Numbers(array.to_numpy(zero_copy_only=False), valid)


def vector_to_arrow(vector: Vector, type_: Any, count: int) -> Any:
    """Return a vector as an Arrow array of a type."""
    if isinstance(vector, Constant):
        return repeat_value(vector.value, type_, count)
    if isinstance(vector, Strings | Lists):
        return vector.array if vector.array.type == type_ else vector.array.cast(type_)
    mask = None if vector.valid is None else ~vector.valid
    physical = _PHYSICAL.get(type_)
    if physical is not None:
        return pa.array(vector.data, physical, mask=mask).view(type_)
    return pa.array(vector.data, type_, mask=mask)


def repeat_value(value: Value, type_: Any, count: int) -> Any:
    """Return one value repeated."""
    firsts: Any = pa.array(np.zeros(count, np.int64))
    if value is None:
        return pa.nulls(count, type_)
    physical = _PHYSICAL.get(type_)
    if physical is not None:
        return pa.array(np.full(count, value), physical).view(type_)
    if isinstance(value, tuple):
        item = type_.value_type
        if item in _PHYSICAL:
            items = pa.array(value, _PHYSICAL[item]).view(item)
            single = pa.ListArray.from_arrays(pa.array([0, len(value)], pa.int32()), items)
            return single.take(firsts)
        return pa.array([list(value)], type_).take(firsts)
    scalar: Any = pa.scalar(value, type_)
    return pa.repeat(scalar, count)


@dataclass(frozen=True, slots=True)
class Rows:
    """Bindings of a pattern so far; without variables it is only a number of rows.

    `values` are computed columns by name, which expressions over a result read.
    """

    count: int
    columns: Mapping[str, Ids] = field(default_factory=dict)
    values: Mapping[str, Vector] = field(default_factory=dict)

    def take(self, indices: Ids) -> Rows:
        """Return the rows at some places, in that order."""
        columns = {name: array[indices] for name, array in self.columns.items()}
        if not self.values:
            return Rows(len(indices), columns)
        values = {
            name: item if isinstance(item, Constant) else item.take(indices) for name, item in self.values.items()
        }
        return Rows(len(indices), columns, values)

    def where(self, mask: Mask) -> Rows:
        """Return the rows that a mask keeps; itself when it keeps all."""
        # Gathering at places is several times faster than numpy's selection by a mask.
        indices = np.flatnonzero(mask)
        return self if len(indices) == self.count else self.take(indices)

    def with_columns(self, columns: Mapping[str, Ids]) -> Rows:
        return Rows(self.count, {**self.columns, **columns})

    def only(self, names: Iterable[str]) -> Rows:
        """Return the rows with these variables alone; equal rows stay apart."""
        kept_names = set(names)
        if kept_names >= self.columns.keys():
            return self
        return Rows(self.count, {name: array for name, array in self.columns.items() if name in kept_names})

    @property
    def row_bytes(self) -> int:
        return sum(array.dtype.itemsize for array in self.columns.values())


UNIT_ROW = Rows(1)


def concatenate_rows(first: Rows, second: Rows) -> Rows:
    """Return all rows of two tables over the same variables."""
    if second.count == 0:
        return first
    names = first.columns.keys()
    return Rows(
        first.count + second.count,
        {name: np.concatenate([first.columns[name], second.columns[name]]) for name in names},
    )


def distinct_rows(rows: Rows) -> Rows:
    """Return equal rows once; the order may change."""
    if rows.count < 2:
        return rows
    if not rows.columns:
        return UNIT_ROW
    if len(rows.columns) == 1:
        [(name, ids)] = rows.columns.items()
        if bool((ids[1:] > ids[:-1]).all()):
            return rows
        size = int(ids.max()) + 2
        if size <= 64 * rows.count:
            # A flag per entity is faster than sorting as long as the flags are not many more than the rows.
            flags = np.zeros(size, np.bool_)
            flags[ids] = True
            unique_ids = np.flatnonzero(flags).astype(ids.dtype)
            if flags[-1]:
                unique_ids[-1] = -1
            return Rows(len(unique_ids), {name: unique_ids})
    sizes = [int(ids.max()) + 2 for ids in rows.columns.values()]
    return _distinct_by_packing(rows, sizes) if prod(sizes) < 2**62 else _distinct_by_sorting(rows)


def _distinct_by_packing(rows: Rows, sizes: list[int]) -> Rows:
    """Return distinct rows: pack each into one integer, sort, and unpack."""
    numbers = pack_rows(rows)
    if bool((numbers[1:] > numbers[:-1]).all()):
        return rows
    numbers.sort()
    is_first = np.empty(len(numbers), np.bool_)
    is_first[0] = True
    np.not_equal(numbers[1:], numbers[:-1], out=is_first[1:])
    unique = numbers[np.flatnonzero(is_first)]
    columns: dict[str, Ids] = {}
    for (name, ids), size in reversed(list(zip(rows.columns.items(), sizes, strict=True))):
        above = unique // size
        columns[name] = (unique - (above * size + 1)).astype(ids.dtype)
        unique = above
    return Rows(len(unique), {name: columns[name] for name in rows.columns})


def _distinct_by_sorting(rows: Rows) -> Rows:
    _, first_rows = np.unique(pack_rows(rows), return_index=True)
    return rows if len(first_rows) == rows.count else rows.take(first_rows)


def pack_rows(rows: Rows) -> Ids:
    """Return one number per row, equal for equal rows."""
    numbers = np.zeros(rows.count, np.int64)
    room = 2**62
    for ids in rows.columns.values():
        size = int(ids.max(initial=-1)) + 2
        if size > room:
            numbers = np.unique(numbers, return_inverse=True)[1].astype(np.int64)
            room = 2**62 // max(rows.count, 1)
        numbers = numbers * size + (ids.astype(np.int64) + 1)
        room //= size
    return numbers
