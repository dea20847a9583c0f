"""Embedding tasks: find fragments with rows that need vectors, and stage these rows with new vectors.

They run in threads or on Spark executors; a `TaskSite` gives them the graph and the provider.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from omnigraph.engine.embed.cache import GeneratedVectors, VectorCache, VectorSpace, read_generated
from omnigraph.engine.embed.fetch import EmbedCounts, VectorFetcher
from omnigraph.engine.embed.plan import Target, TypePlan, VectorChanges, find_rows_in_need, vectors_to_matrix
from omnigraph.engine.query.embedders import Embedder
from omnigraph.engine.write.staging import physical
from omnigraph.lang.schema.arrow_schema import arrow_schema
from omnigraph.limits import EMBED_STAGE_BYTES, EMBED_WINDOW_TEXTS
from omnigraph.rules.arrow_typing import Column, arrays, pc
from omnigraph.rules.delta import one_array
from omnigraph.store.blobs.cells import blob_columns
from omnigraph.store.blobs.rows import StoredBlobs
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.read.lookup import ROW_ADDRESS, ROW_ID
from omnigraph.store.store import Store
from omnigraph.store.write.fragments import FragmentText, Marked, mark_rows, scan_whole_rows, write_fragments_with_blobs


class TaskSite(Protocol):
    """Access of a task to the graph, the provider and the generated vectors."""

    def dataset(self, ref: DatasetRef) -> Dataset: ...

    def filler(self, space: VectorSpace) -> VectorFetcher: ...

    def made(self, dimension: int, space: VectorSpace | None) -> GeneratedVectors: ...


class LocalSite:
    """Tasks in threads of this process share one cache."""

    def __init__(self, store: Store, embedder: Embedder | None) -> None:
        self._store = store
        self._embedder = embedder
        self._fillers: dict[VectorSpace, VectorFetcher] = {}
        self._made: dict[tuple[int, VectorSpace | None], GeneratedVectors] = {}
        self._lock = Lock()

    def dataset(self, ref: DatasetRef) -> Dataset:
        return self._store.open(ref)

    def filler(self, space: VectorSpace) -> VectorFetcher:
        assert self._embedder is not None, "a vector space implies an embedder"
        with self._lock:
            if space not in self._fillers:
                self._fillers[space] = VectorFetcher(VectorCache(self._store, space), self._embedder)
            return self._fillers[space]

    def made(self, dimension: int, space: VectorSpace | None) -> GeneratedVectors:
        with self._lock:
            if (dimension, space) not in self._made:
                self._made[dimension, space] = read_generated(self._store, dimension, space)
            return self._made[dimension, space]


@dataclass(frozen=True, slots=True)
class Part:
    """Some fragments of one version of a type."""

    ref: DatasetRef
    fragment_ids: Sequence[int]


@dataclass(slots=True)
class StagedPart:
    """What a task staged: new fragments, deletion marks on the old ones, and counts by property."""

    fragments: list[FragmentText] = field(default_factory=list)
    marked: list[Marked] = field(default_factory=list)
    tallies: dict[str, EmbedCounts] = field(default_factory=dict)


def find_fragments_in_need(site: TaskSite, plan: TypePlan, part: Part) -> list[int]:
    """Return those of the fragments that have rows in need."""
    generated, dataset = _generated_vectors(site, plan), site.dataset(part.ref)
    return [fragment_id for fragment_id in part.fragment_ids if _has_need(plan, generated, dataset, fragment_id)]


def _has_need(plan: TypePlan, generated: dict[str, GeneratedVectors], dataset: Dataset, fragment_id: int) -> bool:
    batches = scan_whole_rows(dataset, fragment_id, plan.columns, EMBED_WINDOW_TEXTS * 8)
    return any(find_rows_in_need(plan, pa.Table.from_batches([batch]), generated)[0].any() for batch in batches)


def stage_part(site: TaskSite, plan: TypePlan, operation_id: str, part: Part) -> StagedPart:
    """Stage the rows of some fragments that are in need, with their vectors."""
    staged, dataset = StagedPart(), site.dataset(part.ref)
    filled: list[pa.Table] = []
    for rows in _filled_batches(site, plan, dataset, part, staged):
        filled.append(rows)
        if sum(table.nbytes for table in filled) >= EMBED_STAGE_BYTES:
            staged.fragments += _write_fragments(dataset, filled, operation_id)
            filled = []
    if filled:
        staged.fragments += _write_fragments(dataset, filled, operation_id)
    return staged


def _write_fragments(dataset: Dataset, tables: list[pa.Table], operation_id: str) -> list[FragmentText]:
    rows = pa.concat_tables(tables).combine_chunks()
    names, count = blob_columns(dataset), rows.num_rows
    # Vectors change, and blobs stay what they are.
    row_ids = rows.column(ROW_ID).to_numpy()
    stored_blobs = StoredBlobs(dataset, np.arange(count), row_ids, {name: np.ones(count, np.bool_) for name in names})
    return write_fragments_with_blobs(dataset, physical(rows, dataset), [stored_blobs] if names else [], operation_id)


def _filled_batches(
    site: TaskSite, plan: TypePlan, dataset: Dataset, part: Part, staged: StagedPart
) -> Iterator[pa.Table]:
    """Yield the rows in need with their vectors, so many at a time; what is marked and counted goes to `staged`."""
    generated = _generated_vectors(site, plan)
    window: list[pa.Table] = []
    for fragment_id in part.fragment_ids:
        replaced: list[Any] = []
        for rows in _rows_in_need(plan, generated, dataset, fragment_id, replaced):
            window.append(rows)
            if _is_batch_full(window):
                yield _fill_vectors(site, plan, generated, pa.concat_tables(window).combine_chunks(), staged)
                window = []
        addresses = pa.table({ROW_ADDRESS: np.concatenate([np.empty(0, np.uint64), *replaced])})
        staged.marked.append(mark_rows(dataset, fragment_id, addresses))
    if window:
        yield _fill_vectors(site, plan, generated, pa.concat_tables(window).combine_chunks(), staged)


def _is_batch_full(window: list[pa.Table]) -> bool:
    return (
        sum(table.num_rows for table in window) >= EMBED_WINDOW_TEXTS
        or sum(table.nbytes for table in window) >= EMBED_STAGE_BYTES
    )


def _rows_in_need(
    plan: TypePlan, generated: dict[str, GeneratedVectors], dataset: Dataset, fragment_id: int, replaced: list[Any]
) -> Iterator[pa.Table]:
    """Yield whole rows that change, and note where they lie."""
    layout = arrow_schema(plan.type)
    with_row_ids = layout.append(pa.field(ROW_ID, pa.uint64()))
    for batch in scan_whole_rows(dataset, fragment_id, layout.names, EMBED_WINDOW_TEXTS):
        rows = pa.Table.from_batches([batch])
        changed, _ = find_rows_in_need(plan, rows, generated)
        if changed.any():
            rows = rows.filter(pa.array(changed))
            replaced.append(rows.column(ROW_ADDRESS).to_numpy())
            yield rows.select(with_row_ids.names).cast(with_row_ids)


def _fill_vectors(
    site: TaskSite, plan: TypePlan, generated: dict[str, GeneratedVectors], rows: pa.Table, staged: StagedPart
) -> pa.Table:
    _, changes = find_rows_in_need(plan, rows, generated)
    for target in plan.targets:
        column, counts = _updated_vectors(site, target, rows, changes[target.name])
        staged.tallies[target.name] = staged.tallies.get(target.name, EmbedCounts()) + counts
        index = rows.schema.get_field_index(target.name)
        rows = rows.set_column(index, rows.schema.field(index), column)
    return rows


def _updated_vectors(
    site: TaskSite, target: Target, rows: pa.Table, changes: VectorChanges
) -> tuple[Column, EmbedCounts]:
    """Return the vectors of a property as they are to be."""
    vectors, counts = one_array(rows.column(target.name)), EmbedCounts()
    new_vectors = np.empty((0, target.dimension), np.float32)
    if target.space is not None and changes.filled.any():
        texts = one_array(rows.column(target.source)).filter(pa.array(changes.filled))
        new_vectors, counts = site.filler(target.space).vectors(texts)
    return replace_vectors(vectors, changes, new_vectors, target.dimension), counts + EmbedCounts(
        cleared=int(changes.cleared.sum())
    )


def replace_vectors(vectors: Column, changes: VectorChanges, new_vectors: Any, dimension: int) -> Column:
    """Return a column of vectors with new ones where they are needed, and none where they are not wanted."""
    has_vector = np.asarray(pc.is_valid(vectors), np.bool_)
    matrix = np.zeros((len(vectors), dimension), np.float32)
    matrix[has_vector] = vectors_to_matrix(vectors, dimension)
    matrix[changes.filled] = new_vectors
    is_null = (~has_vector & ~changes.filled) | changes.cleared
    return arrays.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), type=vectors.type, mask=pa.array(is_null))


def _generated_vectors(site: TaskSite, plan: TypePlan) -> dict[str, GeneratedVectors]:
    """Return by property what is known of vectors; a property that is only cleared needs no knowledge."""
    is_strict = plan.mode == "reembed_all"
    return {
        target.name: site.made(target.dimension, target.space if is_strict else None)
        for target in plan.targets
        if target.space is not None
    }
