"""Builds missing indexes and adds uncovered fragments to existing ones, each as one staged transaction.

Stages only. An index is known by its column and kind, so a renamed column keeps its index.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np
from lance import LanceOperation, Transaction
from lance.bitmap import Bitmap
from lance.dataset import Index
from lance.file import LanceFileSession
from numpy.typing import NDArray

from omnigraph.limits import VECTOR_UNPARTITIONED_ROWS_MAX
from omnigraph.store.index.exact_knn import choose_centres
from omnigraph.store.index.text_analysis import ANALYSER, analyser_of
from omnigraph.store.index.text_index_build import build_text_segment
from omnigraph.store.read.dataset import Dataset, lance_errors
from omnigraph.store.read.version_diff import newest_row_version
from omnigraph.store.write.transaction import Change, changed, staging

# Lance would put every centroid into its statistics, and warn about it on stderr; no caller needs them.
os.environ.setdefault("LANCE_INCLUDE_VECTOR_CENTROIDS", "false")

# A segment that is there; it travels between processes.
Built: TypeAlias = Index
# Later than any time that storage knows.
_ANY_AGE_US: Final = 1 << 62


class IndexKind(StrEnum):
    """The kinds that this package builds; the values are Lance's names for them."""

    BTREE = "BTree"
    FULLTEXT = "Inverted"
    VECTOR = "IVF_FLAT"


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """A requested index; the name must stay unique in the dataset when columns are renamed."""

    column: str
    kind: IndexKind
    name: str


@dataclass(frozen=True, slots=True)
class PendingIndex:
    """A requested index that cannot be built yet, and why."""

    spec: IndexSpec
    reason: str

    def to_json(self) -> dict[str, str]:
        return {"property": self.spec.column, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of an index that is to be built: what it covers."""

    spec: IndexSpec
    fragments: tuple[int, ...]
    # The centres of the partitions of a vector index, when they are decided; parts that are merged share them.
    centres: NDArray[np.float32] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Renewal:
    """What is missing of the indexes of one version: segments to build, and those that they replace."""

    segments: tuple[Segment, ...]
    superseded: tuple[Index, ...] = ()


@dataclass(frozen=True, slots=True)
class Coverage:
    """Which of the dataset's fragments an index knows; the others are scanned.

    `false` are fragments that the index claims although rows of them are newer than it; they are among the uncovered.
    An `outdated` index covers nothing: another analyser built it, and texts have other terms today.
    """

    indexed: frozenset[int]
    uncovered: frozenset[int]
    false: frozenset[int] = frozenset()
    is_outdated: bool = False


@dataclass(frozen=True, slots=True)
class _Listed:
    """An index that this package built, as a version lists it."""

    spec: IndexSpec
    segments: tuple[Index, ...]
    is_outdated: bool


# A segment this many times as large as what is folded in stays as it is; smaller ones are merged into the new one.
_SEGMENT_GROWTH: Final = 2


def missing(dataset: Dataset, specs: Iterable[IndexSpec]) -> tuple[list[IndexSpec], list[PendingIndex]]:
    """Return the specs that can be built now, and those that wait for data; an empty dataset has neither."""
    if dataset.count() == 0:
        return [], []
    present = {(index.spec.column, index.spec.kind) for index in _indexes(dataset)}
    absent = [spec for spec in specs if (spec.column, spec.kind) not in present]
    pending = [
        PendingIndex(spec, "the column holds no vector yet")
        for spec in absent
        if spec.kind is IndexKind.VECTOR and dataset.count(f"`{spec.column}` IS NOT NULL") == 0
    ]
    waiting = {index.spec for index in pending}
    return [spec for spec in absent if spec not in waiting], pending


def build(dataset: Dataset, specs: Sequence[IndexSpec]) -> Change | None:
    """Stage all missing indexes that can be built, and those that mislead, as one transaction.

    See `missing` and `misleading`.
    """
    plan = renewal(dataset, specs, only={spec.name for spec in misleading(dataset)})
    return renewed(dataset, plan, [build_segment(dataset, segment) for segment in plan.segments])


def renewal(
    dataset: Dataset, specs: Sequence[IndexSpec], shrunk: Collection[int] = (), only: Collection[str] | None = None
) -> Renewal:
    """Return the segments for missing indexes and for fragments that existing ones, or `only` some, do not cover yet.

    Small older segments are merged into the new one, so their number grows with the logarithm of the dataset. A segment
    is built again if its coverage is false, if another analyser built it, if most of its fragments are gone, or if it
    covers a `shrunk` fragment: one that was rewritten without its deleted rows, which it would answer for ever.
    """
    rows = _live(dataset)
    honest = _Honesty(dataset)
    segments: list[Segment] = []
    superseded: list[Index] = []
    for index in _indexes(dataset):
        if only is not None and index.spec.name not in only:
            continue
        spoilt = [
            segment
            for segment in index.segments
            if index.is_outdated
            or _is_spoilt(segment, index.spec.kind, rows, honest.coverage(segment), frozenset(shrunk))
            or _is_undivided(dataset, segment, index.spec.kind, rows)
        ]
        kept = [segment for segment in index.segments if segment not in spoilt]
        fragments, replaced = _fold_plan(kept, rows)
        if fragments:
            segments.append(Segment(index.spec, tuple(sorted(fragments))))
            superseded += [*spoilt, *replaced]
    ready, _ = missing(dataset, specs)
    return Renewal((*segments, *(Segment(spec, tuple(rows)) for spec in ready)), tuple(superseded))


def renewed(dataset: Dataset, plan: Renewal, segments: Sequence[Built]) -> Change | None:
    """Return the segments that were built for a renewal as one transaction."""
    if not segments:
        return None
    return changed(dataset, LanceOperation.CreateIndex(list(segments), list(plan.superseded)), dataset.count())


def moved(change: Change, onto: Dataset, version: int, fragments: Collection[int]) -> Change | None:
    """Return built segments as a change of `version`, which has these fragments, and is later than what they cover.

    The fragments that both have hold the same values; those that are not there any more take their coverage with them.
    """
    operation = change.transaction.operation
    assert isinstance(operation, LanceOperation.CreateIndex)
    segments = [
        replace(index, fragment_ids=Bitmap(covered), dataset_version=version)
        for index in operation.new_indices
        if (covered := set(index.fragment_ids).intersection(fragments))
    ]
    if not segments:
        return None
    later = LanceOperation.CreateIndex(segments, list(operation.removed_indices))
    return replace(change, transaction=Transaction(version, later), row_count=onto.count())


def segment_ids(dataset: Dataset) -> frozenset[str]:
    """Return a fingerprint of the segments that indexes consist of."""
    return frozenset(str(segment.uuid) for index in _indexes(dataset) for segment in index.segments)


def last_covered(dataset: Dataset) -> int:
    """Return the highest id of a fragment that any segment has ever covered, or -1."""
    return max(claimed_fragments(dataset), default=-1)


def coverage(dataset: Dataset) -> dict[str, Coverage]:
    live = frozenset(_live(dataset))
    coverages = {}
    honest = _Honesty(dataset)
    for index in _indexes(dataset):
        if index.is_outdated:
            # Without rows there is nothing to build it again on.
            coverages[index.spec.name] = Coverage(frozenset(), live, is_outdated=bool(live))
            continue
        covered = frozenset().union(*(honest.coverage(segment) for segment in index.segments))
        claimed = {fragment for segment in index.segments for fragment in segment.fragment_ids}
        coverages[index.spec.name] = Coverage(covered, live - covered, (live & claimed) - covered)
    return coverages


def claimed_fragments(dataset: Dataset) -> frozenset[int]:
    """Return the fragments that any index claims to cover, as Lance sees it."""
    return frozenset(
        fragment for index in _indexes(dataset) for segment in index.segments for fragment in segment.fragment_ids
    )


def segments_of(dataset: Dataset, column: str, kind: IndexKind) -> list[tuple[Index, frozenset[int]]]:
    """Return the segments of a column's index, each with the fragments whose rows it really knows.

    An outdated index counts as none.
    """
    honest = _Honesty(dataset)
    return [
        (segment, honest.coverage(segment))
        for index in _indexes(dataset)
        if (index.spec.column, index.spec.kind) == (column, kind) and not index.is_outdated
        for segment in index.segments
    ]


def is_outdated(dataset: Dataset, column: str) -> bool:
    """Return True if another analyser built the full-text index of a column."""
    return any(index.spec.column == column and index.is_outdated for index in _indexes(dataset))


def open_files(dataset: Dataset, segment: Index) -> LanceFileSession:
    """Open the directory that the files of a segment lie in; a fork inherits segments of what it came from."""
    directory = dataset.store.root.child(dataset.ref.directory).uri
    if segment.base_id is not None:
        directory = str(dataset.lance.base_paths()[segment.base_id].path)
    return LanceFileSession(directory, storage_options=dataset.store.lance_options or None)


class _Honesty:
    """Separates claimed from real coverage: no row of a covered fragment may be newer than the segment.

    A writer that hands Lance a wrong list of fields makes it add new fragments to old segments.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._fragments = {fragment.fragment_id: fragment for fragment in dataset.lance.get_fragments()}
        self._newest_row = cache(lambda fragment_id: newest_row_version(dataset, self._fragments[fragment_id]))

    def coverage(self, segment: Index) -> frozenset[int]:
        # A segment was built from the rows of its version; a newer row in a covered fragment cannot be in it.
        claimed = self._fragments.keys() & set(segment.fragment_ids)
        return frozenset(
            fragment_id for fragment_id in claimed if self._newest_row(fragment_id) <= segment.dataset_version
        )


def unindexed_rows(dataset: Dataset, column: str, kind: IndexKind = IndexKind.BTREE) -> int:
    """Return how many rows a lookup by a column has to scan, because no index of the kind covers them."""
    known = frozenset().union(*(covered for _, covered in segments_of(dataset, column, kind)))
    return sum(count for fragment, count in _live(dataset).items() if fragment not in known)


def misleading(dataset: Dataset) -> list[IndexSpec]:
    """Return the indexes that claim fragments which they do not know, or know them by another analyser."""
    false = {name for name, covered in coverage(dataset).items() if covered.false or covered.is_outdated}
    return [index.spec for index in _indexes(dataset) if index.spec.name in false]


def _is_spoilt(
    segment: Index, kind: IndexKind, rows: Mapping[int, int], covered: frozenset[int], shrunk: frozenset[int]
) -> bool:
    """Return True if a segment must be built again, because it claims what it does not know or knows what is gone."""
    claimed = set(segment.fragment_ids)
    if covered != claimed & rows.keys():
        return True
    # Lance drops the coverage of a b-tree that is rewritten, and reads rows by address; it keeps no rows that are gone.
    return kind is not IndexKind.BTREE and (bool(covered & shrunk) or len(covered) < len(claimed - rows.keys()))


def _is_undivided(dataset: Dataset, segment: Index, kind: IndexKind, rows: Mapping[int, int]) -> bool:
    """Return True if a vector index is too large for one partition, as those of earlier versions are."""
    if kind is not IndexKind.VECTOR:
        return False
    if sum(rows.get(fragment, 0) for fragment in segment.fragment_ids) <= VECTOR_UNPARTITIONED_ROWS_MAX:
        return False
    with lance_errors(f"reading an index of {dataset.ref}", dataset):
        indices = dataset.lance.stats.index_stats(segment.name)["indices"]
    return any(statistics["uuid"] == segment.uuid and statistics["num_partitions"] == 1 for statistics in indices)


def _fold_plan(segments: Sequence[Index], rows: Mapping[int, int]) -> tuple[set[int], list[Index]]:
    """Return the fragments of the new segment, and the segments that it replaces."""
    live = {segment.uuid: rows.keys() & set(segment.fragment_ids) for segment in segments}
    fragments = rows.keys() - set().union(*live.values())
    superseded: list[Index] = []
    if not fragments:
        return set(), superseded
    # Tiered compaction, as in a log-structured merge tree: each merge at least grows a segment by half, so a row is
    # indexed O(log n) times and there are O(log n) segments.
    for segment in sorted(segments, key=lambda candidate: sum(rows[fragment] for fragment in live[candidate.uuid])):
        segment_rows = sum(rows[fragment] for fragment in live[segment.uuid])
        if segment_rows > _SEGMENT_GROWTH * sum(rows[fragment] for fragment in fragments):
            break
        fragments |= live[segment.uuid]
        superseded.append(segment)
    return fragments, superseded


def build_segment(dataset: Dataset, plan: Segment) -> Built:
    """Write the files of one segment; nothing names them yet."""
    spec = plan.spec
    plan = with_centres(dataset, plan)
    # Building locks the handle for as long as it takes, and others read through it at the same time.
    handle = copy(dataset.lance)
    with staging(dataset, f"indexing `{spec.column}` of {dataset.ref}", step="index", counted_as="index"):
        if spec.kind is IndexKind.FULLTEXT:
            segment = build_text_segment(dataset, spec.column, spec.name, plan.fragments)
        else:
            options: dict[str, Any] = {"index_type": "BTREE"}
            if plan.centres is not None:
                partitions = {"num_partitions": len(plan.centres), "ivf_centroids": plan.centres}
                options = {"index_type": "IVF_FLAT", "metric": "L2", **partitions}
            # `replace` only permits a name that exists; what goes is what the transaction lists as removed.
            segment = handle.create_index_uncommitted(
                spec.column, name=spec.name, fragment_ids=list(plan.fragments), replace=True, **options
            )
    return segment


def merge_segments(dataset: Dataset, segments: Sequence[Built]) -> Built:
    """Return one segment that covers what several cover, which were built side by side for the same version."""
    if len(segments) == 1:
        return segments[0]
    with lance_errors(f"merging segments of {dataset.ref}"):
        merged = copy(dataset.lance).merge_existing_index_segments(list(segments))
        # Lance leaves an empty folder on a disk when it has merged the parts of a text segment.
        dataset.store.objects.drop_empty(f"{dataset.ref.directory}/_indices/{merged.uuid}", _ANY_AGE_US)
        return merged


def with_centres(dataset: Dataset, segment: Segment) -> Segment:
    """Choose the partitions of a vector index, unless they are chosen already."""
    if segment.spec.kind is not IndexKind.VECTOR or segment.centres is not None:
        return segment
    return replace(segment, centres=choose_centres(dataset, segment.spec.column, segment.fragments))


def _live(dataset: Dataset) -> dict[int, int]:
    return {fragment.id: fragment.num_rows for fragment in dataset.fragments}


def _indexes(dataset: Dataset) -> list[_Listed]:
    """Return every index that this package built; other kinds are left alone."""
    columns = {number: name for name, number in dataset.field_ids.items()}
    kinds = {kind.value.lower(): kind for kind in IndexKind}
    indexes = []
    with lance_errors(f"listing the indexes of {dataset.ref}"):
        for index in dataset.lance.describe_indices():
            kind = kinds.get(index.index_type.lower())
            if kind is None or len(index.fields) != 1:
                continue
            segments = tuple(
                Index(
                    segment.uuid,
                    index.name,
                    index.fields,
                    segment.dataset_version_at_last_update,
                    segment.fragment_ids,
                    segment.index_version,
                    base_id=segment.base_id,
                )
                for segment in index.segments
            )
            is_outdated = kind is IndexKind.FULLTEXT and analyser_of(index.details) != ANALYSER
            spec = IndexSpec(columns[index.fields[0]], kind, index.name)
            indexes.append(_Listed(spec, segments, is_outdated))
    return indexes
