"""The tasks of an embedding: look through fragments for rows in need, and stage these rows with their vectors.

Run in threads of this process or on executors alike; a `Site` says how they reach the graph and the provider.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from omnigraph.engine.embed.cache import Made, Space, VectorCache, read_made
from omnigraph.engine.embed.fetch import Filler, Tally
from omnigraph.engine.embed.plan import Needs, Target, TypePlan, matrix_of, rows_in_need
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


class Site(Protocol):
    """Where tasks run: how they reach the graph, the provider, and what is known of vectors."""

    def dataset(self, ref: DatasetRef) -> Dataset: ...

    def filler(self, space: Space) -> Filler: ...

    def made(self, dimension: int, space: Space | None) -> Made: ...


class Here:
    """This process; tasks in threads share what it knows."""

    def __init__(self, store: Store, embedder: Embedder | None) -> None:
        self._store = store
        self._embedder = embedder
        self._fillers: dict[Space, Filler] = {}
        self._made: dict[tuple[int, Space | None], Made] = {}
        self._lock = Lock()

    def dataset(self, ref: DatasetRef) -> Dataset:
        return self._store.open(ref)

    def filler(self, space: Space) -> Filler:
        assert self._embedder is not None, "only what has an embedder has a space"
        with self._lock:
            if space not in self._fillers:
                self._fillers[space] = Filler(VectorCache(self._store, space), self._embedder)
            return self._fillers[space]

    def made(self, dimension: int, space: Space | None) -> Made:
        with self._lock:
            if (dimension, space) not in self._made:
                self._made[dimension, space] = read_made(self._store, dimension, space)
            return self._made[dimension, space]


@dataclass(frozen=True, slots=True)
class Part:
    """Some fragments of one version of a type."""

    ref: DatasetRef
    fragment_ids: Sequence[int]


@dataclass(slots=True)
class StagedPart:
    """What a task staged: fragments with rows anew, the old ones without them, and by property how it went."""

    fragments: list[FragmentText] = field(default_factory=list)
    marked: list[Marked] = field(default_factory=list)
    tallies: dict[str, Tally] = field(default_factory=dict)


def find_part(site: Site, plan: TypePlan, part: Part) -> list[int]:
    """Return those of the fragments that have rows in need."""
    made, dataset = _made(site, plan), site.dataset(part.ref)
    return [one for one in part.fragment_ids if _has_need(plan, made, dataset, one)]


def _has_need(plan: TypePlan, made: dict[str, Made], dataset: Dataset, fragment_id: int) -> bool:
    batches = scan_whole_rows(dataset, fragment_id, plan.columns, EMBED_WINDOW_TEXTS * 8)
    return any(rows_in_need(plan, pa.Table.from_batches([one]), made)[0].any() for one in batches)


def stage_part(site: Site, plan: TypePlan, operation_id: str, part: Part) -> StagedPart:
    """Stage the rows of some fragments that are in need, with their vectors."""
    staged, dataset = StagedPart(), site.dataset(part.ref)
    ready: list[pa.Table] = []
    for rows in _filled_windows(site, plan, dataset, part, staged):
        ready.append(rows)
        if sum(one.nbytes for one in ready) >= EMBED_STAGE_BYTES:
            staged.fragments += _write(dataset, ready, operation_id)
            ready = []
    if ready:
        staged.fragments += _write(dataset, ready, operation_id)
    return staged


def _write(dataset: Dataset, ready: list[pa.Table], operation_id: str) -> list[FragmentText]:
    rows = pa.concat_tables(ready).combine_chunks()
    names, count = blob_columns(dataset), rows.num_rows
    # Vectors change, and blobs stay what they are.
    row_ids = rows.column(ROW_ID).to_numpy()
    kept = StoredBlobs(dataset, np.arange(count), row_ids, {name: np.ones(count, np.bool_) for name in names})
    return write_fragments_with_blobs(dataset, physical(rows, dataset), [kept] if names else [], operation_id)


def _filled_windows(site: Site, plan: TypePlan, dataset: Dataset, part: Part, staged: StagedPart) -> Iterator[pa.Table]:
    """Yield the rows in need with their vectors, so many at a time; what is marked and counted goes to `staged`."""
    made = _made(site, plan)
    window: list[pa.Table] = []
    for fragment_id in part.fragment_ids:
        gone: list[Any] = []
        for rows in _rows_in_need(plan, made, dataset, fragment_id, gone):
            window.append(rows)
            if _is_full(window):
                yield _filled(site, plan, made, pa.concat_tables(window).combine_chunks(), staged)
                window = []
        addresses = pa.table({ROW_ADDRESS: np.concatenate([np.empty(0, np.uint64), *gone])})
        staged.marked.append(mark_rows(dataset, fragment_id, addresses))
    if window:
        yield _filled(site, plan, made, pa.concat_tables(window).combine_chunks(), staged)


def _is_full(window: list[pa.Table]) -> bool:
    return (
        sum(one.num_rows for one in window) >= EMBED_WINDOW_TEXTS
        or sum(one.nbytes for one in window) >= EMBED_STAGE_BYTES
    )


def _rows_in_need(
    plan: TypePlan, made: dict[str, Made], dataset: Dataset, fragment_id: int, gone: list[Any]
) -> Iterator[pa.Table]:
    """Yield whole rows that change, and note where they lie."""
    layout = arrow_schema(plan.type)
    with_row_ids = layout.append(pa.field(ROW_ID, pa.uint64()))
    for batch in scan_whole_rows(dataset, fragment_id, layout.names, EMBED_WINDOW_TEXTS):
        rows = pa.Table.from_batches([batch])
        changed, _ = rows_in_need(plan, rows, made)
        if changed.any():
            rows = rows.filter(pa.array(changed))
            gone.append(rows.column(ROW_ADDRESS).to_numpy())
            yield rows.select(with_row_ids.names).cast(with_row_ids)


def _filled(site: Site, plan: TypePlan, made: dict[str, Made], rows: pa.Table, staged: StagedPart) -> pa.Table:
    _, needs = rows_in_need(plan, rows, made)
    for target in plan.targets:
        column, tally = _column(site, target, rows, needs[target.name])
        staged.tallies[target.name] = staged.tallies.get(target.name, Tally()) + tally
        place = rows.schema.get_field_index(target.name)
        rows = rows.set_column(place, rows.schema.field(place), column)
    return rows


def _column(site: Site, target: Target, rows: pa.Table, needs: Needs) -> tuple[Column, Tally]:
    """Return the vectors of a property as they are to be."""
    vectors, tally = one_array(rows.column(target.name)), Tally()
    fresh = np.empty((0, target.dimension), np.float32)
    if target.space is not None and needs.filled.any():
        texts = one_array(rows.column(target.source)).filter(pa.array(needs.filled))
        fresh, tally = site.filler(target.space).vectors(texts)
    return with_vectors(vectors, needs, fresh, target.dimension), tally + Tally(cleared=int(needs.cleared.sum()))


def with_vectors(vectors: Column, needs: Needs, fresh: Any, dimension: int) -> Column:
    """Return a column of vectors with new ones where they are needed, and none where they are not wanted."""
    has_vector = np.asarray(pc.is_valid(vectors), np.bool_)
    matrix = np.zeros((len(vectors), dimension), np.float32)
    matrix[has_vector] = matrix_of(vectors, dimension)
    matrix[needs.filled] = fresh
    is_null = (~has_vector & ~needs.filled) | needs.cleared
    return arrays.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), type=vectors.type, mask=pa.array(is_null))


def _made(site: Site, plan: TypePlan) -> dict[str, Made]:
    """Return by property what is known of vectors; a property that is only cleared needs no knowledge."""
    is_strict = plan.mode == "reembed_all"
    return {
        one.name: site.made(one.dimension, one.space if is_strict else None)
        for one in plan.targets
        if one.space is not None
    }
