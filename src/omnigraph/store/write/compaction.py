"""Compaction: small fragments rewritten as few large ones; row ids, row versions and blobs stay as they are.

Stages only. A rewrite takes b-tree coverage away, so it is committed in one chain with a renewal of the indexes. What
was rewritten at one version can be moved to a later one; rows that went meanwhile are then marked as gone in its files.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from lance import LanceDataset, LanceOperation, Transaction
from lance.fragment import FragmentMetadata
from lance.optimize import Compaction, CompactionTask, RewriteResult

from omnigraph import failpoints
from omnigraph.failpoints import Point
from omnigraph.limits import REMOTE_TAIL_FRAGMENTS_MAX
from omnigraph.store.blobs.cells import blob_bytes_outside
from omnigraph.store.index.index_build import claimed_fragments, last_covered
from omnigraph.store.read.dataset import Dataset, lance_errors
from omnigraph.store.read.live_rows import deletion_path
from omnigraph.store.read.lookup import ROW_ADDRESS
from omnigraph.store.write.fragments import read_fragment
from omnigraph.store.write.transaction import ROWS_PER_FILE, Change, changed, staging
from omnigraph.store.write.upsert import mark_gone

# One part of a compaction and what came of it; both travel between processes.
Task: TypeAlias = CompactionTask
Rewritten: TypeAlias = RewriteResult

# Folding happens inside a commit, so it must stay a matter of milliseconds; larger tails wait for `optimize`.
FOLD_BYTES_MAX: Final = 8 * 1024 * 1024
# An object store takes about as long to answer as to send this much.
SMALL_TAIL_BYTES: Final = 1024 * 1024

# Ids that a long compaction leaves to writers, who add fragments while it runs. There are four billion of them.
IDS_LEFT_TO_WRITERS: Final = 1_024


def plan(dataset: Dataset, *, rows_per_fragment: int = ROWS_PER_FILE) -> list[Task]:
    """Return the tasks that a compaction consists of; each can be executed anywhere, on the same version."""
    with lance_errors(f"planning the compaction of {dataset.ref}"):
        return list(Compaction.plan(dataset.lance, {"target_rows_per_fragment": rows_per_fragment}).tasks)


def execute(dataset: Dataset, task: Task) -> Rewritten:
    """Write the files of one task; nothing names them yet."""
    with staging(dataset, f"compacting {dataset.ref}", step="compact"):
        return task.execute(dataset.lance)


def rewritten(dataset: Dataset, results: Sequence[Rewritten], ids_left: int = 0) -> Change | None:
    """Return what tasks wrote as one transaction on the version that they were planned for.

    `ids_left` fragments may be added by others before the new ones could no longer be moved to a later version.
    """
    groups = []
    last = max((fragment.id for fragment in dataset.fragments), default=-1)
    # An id that an index still knows from a fragment that is gone would pass for covered.
    next_id = max(last, last_covered(dataset)) + 1 + ids_left if results else 0
    for result in results:
        fragments = result.new_fragments
        for fragment in fragments:
            # Lance would leave all of them at zero, and index coverage would point at the wrong fragment.
            fragment.id = next_id
            next_id += 1
        replaced = result.original_fragments  # type: ignore[attr-defined]  # Lance's stub knows it by another name
        groups.append(LanceOperation.RewriteGroup(replaced, fragments))
    return changed(dataset, LanceOperation.Rewrite(groups, []), dataset.count()) if groups else None


def moved(change: Change, base: Dataset, staged: Dataset, onto: Dataset) -> Change | None:
    """Return a rewrite of `base` as a change of a later version; None when that is not worth it, or impossible.

    `staged` is any version that holds the new fragments as they were written.
    """
    now = {fragment.id: fragment for fragment in onto.fragments}
    groups = []
    for group in _groups(change):
        before, new = list(group.old_fragments), list(group.new_fragments)
        left = [now[fragment.id] for fragment in before if fragment.id in now]
        if not _are_same_files(before, left) or max(now) >= min(fragment.id for fragment in new):
            return None
        deleted = _gone_since(base, onto, before)
        if 2 * len(deleted) > sum(fragment.num_rows for fragment in before):
            return None
        if len(deleted):
            updated, emptied = mark_gone(staged, _addresses(deleted, new))
            marked = {fragment.id: fragment for fragment in updated}
            new = [marked.get(fragment.id, fragment) for fragment in new if fragment.id not in emptied]
        groups.append(LanceOperation.RewriteGroup(left, new))
    return changed(onto, LanceOperation.Rewrite(groups, []), onto.count())


def _are_same_files(before: Sequence[FragmentMetadata], now: Sequence[FragmentMetadata]) -> bool:
    """Return True if some fragment is still there, and all that are hold the same values; deletions do not matter."""
    files = _files(before)
    return bool(now) and all(files[number] == paths for number, paths in _files(now).items())


def _files(fragments: Sequence[FragmentMetadata]) -> dict[int, list[str]]:
    """Return the files that hold the values of each fragment, by its id."""
    return {fragment.id: [file.path for file in fragment.files] for fragment in fragments}


def _gone_since(base: Dataset, onto: Dataset, fragments: Sequence[FragmentMetadata]) -> npt.NDArray[np.int64]:
    """Return which of the rows of these fragments, counted through all of them, a later version has there no more.

    A fragment that is gone as a whole may have been emptied, or rewritten by another process: its rows are not here.
    """
    now = {fragment.id: fragment for fragment in onto.fragments}
    deleted, passed = [np.array([], np.int64)], 0
    for fragment in fragments:
        later = now.get(fragment.id)
        if later is None:
            deleted.append(np.arange(passed, passed + fragment.num_rows))
        elif deletion_path(later) != deletion_path(fragment):
            left = np.isin(_row_addresses(base, fragment.id), _row_addresses(onto, fragment.id))
            deleted.append(passed + np.flatnonzero(~left))
        passed += fragment.num_rows
    return np.concatenate(deleted)


def _row_addresses(dataset: Dataset, fragment_id: int) -> npt.NDArray[np.uint64]:
    addresses: npt.NDArray[np.uint64] = read_fragment(dataset, fragment_id, []).column(ROW_ADDRESS).to_numpy()
    return addresses


def _addresses(positions: npt.NDArray[np.int64], fragments: Sequence[FragmentMetadata]) -> npt.NDArray[np.uint64]:
    """Return the addresses of rows that are counted through all of these fragments."""
    ends = np.cumsum([fragment.num_rows for fragment in fragments])
    owners = np.searchsorted(ends, positions, side="right")
    starts = np.concatenate([[0], ends[:-1]])
    ids = np.array([fragment.id for fragment in fragments], np.uint64)
    # A row address is the fragment's id in the high and the offset within it in the low 32 bits.
    addresses: npt.NDArray[np.uint64] = (ids[owners] << np.uint64(32)) | (positions - starts[owners]).astype(np.uint64)
    return addresses


def _groups(change: Change) -> list[LanceOperation.RewriteGroup]:
    operation = change.transaction.operation
    assert isinstance(operation, LanceOperation.Rewrite)
    return list(operation.groups)


def kept_fragments(base: Dataset, onto: Dataset, rewrite: Change | None) -> frozenset[int]:
    """Return the ids of the fragments that hold what they held at `base`, or what a rewrite of it gave them.

    A fragment whose columns were rewritten keeps its id, and gets other files.
    """
    files = _files(base.fragments)
    unchanged = {number for number, paths in _files(onto.fragments).items() if files.get(number) == paths}
    for group in _groups(rewrite) if rewrite is not None else ():
        unchanged -= {fragment.id for fragment in group.old_fragments}
        unchanged |= {fragment.id for fragment in group.new_fragments}
    return frozenset(unchanged)


def shrunk_fragments(rewrite: Change) -> frozenset[int]:
    """Return the fragments that a rewrite wrote without rows which were deleted from those that they replace."""
    return frozenset(
        fragment.id
        for group in _groups(rewrite)
        if any(fragment.deletion_file is not None for fragment in group.old_fragments)
        for fragment in group.new_fragments
    )


def task_bytes(task: Task) -> int:
    """Return how much a task reads."""
    return sum(file.file_size_bytes or 0 for fragment in task.fragments for file in fragment.files)


def fragment_counts(change: Change) -> tuple[int, int]:
    """Return how many fragments a rewrite removes, and how many it adds."""
    groups = _groups(change)
    removed = sum(len(list(group.old_fragments)) for group in groups)
    added = sum(len(list(group.new_fragments)) for group in groups)
    return removed, added


def fold_tail(dataset: Dataset, fragments_max: int, *, moves_blobs: bool = True) -> Change | None:
    """Stage the folding of small trailing fragments into one, once more than `fragments_max` of a size stand there.

    Sizes are tiers, each `fragments_max` times the one before, so a row is rewritten once per tier and a history of
    n one-row commits leaves at most `fragments_max` fragments per tier. Fragments that an index covers stay, and so do
    those with blobs outside of their data files unless `moves_blobs`: folding writes them again.

    On object stores a request costs more than its bytes: what is small stands in few files, whatever the tiers.
    """
    assert fragments_max >= 2
    fragments: Sequence[FragmentMetadata] = dataset.fragments
    few = min(fragments_max, REMOTE_TAIL_FRAGMENTS_MAX) if dataset.store.root.kind.has_round_trips else fragments_max
    if len(fragments) <= few:
        return None
    tail = _tail(fragments, fragments_max, few)
    # Asking for coverage costs more than looking at sizes, and most commits end here.
    if not tail:
        return None
    covered = claimed_fragments(dataset)
    if covered.intersection(fragment.id for fragment in tail):
        fragments = _after_last(fragments, covered)
        tail = _tail(fragments, fragments_max, few)
    outside = blob_bytes_outside(dataset, tail)
    if outside and moves_blobs:
        tail = _tail(fragments, fragments_max, few, outside)
    elif outside:
        tail = _tail(_after_last(fragments, outside), fragments_max, few)
    if not tail:
        return None
    folded = {fragment.id for fragment in tail}
    excluded = [fragment.id for fragment in dataset.fragments if fragment.id not in folded]
    with lance_errors(f"planning the folding of {dataset.ref}"):
        tasks = Compaction.plan(
            dataset.lance, {"target_rows_per_fragment": ROWS_PER_FILE, "excluded_fragment_ids": excluded}
        ).tasks
    return rewritten(dataset, [execute(dataset, task) for task in tasks])


def _tail(
    fragments: Sequence[FragmentMetadata], fragments_max: int, few: int, outside: Mapping[int, int] | None = None
) -> list[FragmentMetadata]:
    """Return the longest run at the end that ends in a full tier or is small and has more than `few`, or nothing.

    `outside` are bytes beside the files.
    """
    size = tier = in_tier = folded = 0
    for run, fragment in enumerate(reversed(fragments), start=1):
        size += sum(file.file_size_bytes or 0 for file in fragment.files) + (outside or {}).get(fragment.id, 0)
        if size > FOLD_BYTES_MAX:
            break
        if (fragment_tier := _tier(fragment.num_rows, fragments_max)) > tier:
            tier, in_tier = fragment_tier, 0
        in_tier += fragment_tier == tier
        if in_tier > fragments_max or (few < run and few < fragments_max and size <= SMALL_TAIL_BYTES):
            folded = run
    return list(fragments[len(fragments) - folded :]) if folded else []


def _tier(rows: int, fragments_max: int) -> int:
    """Return the power of `fragments_max` that a number of rows reaches.

    >>> [_tier(rows, 8) for rows in (0, 1, 7, 8, 63, 64)]
    [0, 0, 0, 1, 1, 2]
    """
    tier = 0
    while rows >= fragments_max:
        rows //= fragments_max
        tier += 1
    return tier


def _after_last(fragments: Sequence[FragmentMetadata], chosen: Container[int]) -> Sequence[FragmentMetadata]:
    last = max(index for index, fragment in enumerate(fragments) if fragment.id in chosen)
    return fragments[last + 1 :]


@contextmanager
def detached_version(dataset: Dataset, change: Change) -> Iterator[Dataset]:
    """Hold a version with a change of a published one, even if the dataset changes meanwhile."""
    store, directory = dataset.store, dataset.ref.directory
    transaction = Transaction(dataset.version, change.transaction.operation)
    failpoints.hit(Point.DURABLE_BEFORE, f"aside {dataset.ref}")
    with lance_errors(f"committing aside of {dataset.ref}"):
        lance = LanceDataset.commit(
            dataset.lance, transaction, detached=True, storage_options=store.lance_options or None
        )
    store.meter.count("commit", str(dataset.ref))
    try:
        failpoints.hit(Point.DURABLE_AFTER, f"aside {dataset.ref}")
        yield Dataset(store, dataset.ref.at(lance.version), lance)
    finally:
        store.objects.discard(f"{directory}/_versions/d{lance.version}.manifest")
        store.objects.discard(f"{directory}/_transactions/{dataset.version}-{transaction.uuid}.txn")


def aside_claim(dataset: Dataset) -> str:
    """Return the beginning of the paths of all versions aside."""
    return f"{dataset.ref.directory}/_versions/d"
