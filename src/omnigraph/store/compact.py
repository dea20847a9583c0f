"""Compaction: small fragments rewritten as few large ones; row ids, row versions and blobs stay as they are.

Stages only. A rewrite takes b-tree coverage away, so `rewrite` is committed in one chain with `index.fold`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from lance import LanceOperation
from lance.fragment import FragmentMetadata
from lance.optimize import Compaction, CompactionTask, RewriteResult

from omnigraph import failpoints
from omnigraph.failpoints import Point
from omnigraph.store.change import ROWS_PER_FILE, Change, changed
from omnigraph.store.dataset import Dataset, lance_errors
from omnigraph.store.index import coverage

# One part of a compaction and what came of it; both travel between processes.
Task: TypeAlias = CompactionTask
Rewritten: TypeAlias = RewriteResult

# Folding happens inside someone's commit, so it must stay a matter of milliseconds; larger tails wait for `rewrite`.
FOLD_BYTES_MAX: Final = 8 * 1024 * 1024


def plan(dataset: Dataset, *, rows_per_fragment: int = ROWS_PER_FILE) -> list[Task]:
    """Return the tasks that a compaction consists of; each can be executed anywhere, on the same version."""
    with lance_errors(f"planning the compaction of {dataset.ref}"):
        return list(Compaction.plan(dataset.lance, {"target_rows_per_fragment": rows_per_fragment}).tasks)


def rewrite(dataset: Dataset, *, rows_per_fragment: int = ROWS_PER_FILE) -> Change | None:
    """Stage the whole compaction as one transaction; `index.fold` on the result restores b-tree coverage."""
    tasks = plan(dataset, rows_per_fragment=rows_per_fragment)
    return rewritten(dataset, [execute(dataset, task) for task in tasks])


def execute(dataset: Dataset, task: Task) -> Rewritten:
    """Write the files of one task; nothing names them yet."""
    failpoints.hit(Point.DURABLE_BEFORE, f"compact {dataset.ref.path}")
    with lance_errors(f"compacting {dataset.ref}"):
        result = task.execute(dataset.lance)
    dataset.store.meter.count("stage", dataset.ref.path)
    failpoints.hit(Point.DURABLE_AFTER, f"compact {dataset.ref.path}")
    return result


def rewritten(dataset: Dataset, results: Sequence[Rewritten]) -> Change | None:
    """Return what tasks wrote as one transaction on the version that they were planned for."""
    groups = []
    next_id = max((fragment.fragment_id for fragment in dataset.lance.get_fragments()), default=-1) + 1
    for result in results:
        fragments = result.new_fragments
        for fragment in fragments:
            # Lance would leave all of them at zero, and index coverage would point at the wrong fragment.
            fragment.id = next_id
            next_id += 1
        replaced = result.original_fragments  # type: ignore[attr-defined]  # Lance's stub knows it by another name
        groups.append(LanceOperation.RewriteGroup(replaced, fragments))
    return changed(dataset, LanceOperation.Rewrite(groups, []), dataset.count()) if groups else None


def task_bytes(task: Task) -> int:
    """Return how much a task reads."""
    return sum(file.file_size_bytes or 0 for fragment in task.fragments for file in fragment.files)


def fragment_counts(change: Change) -> tuple[int, int]:
    """Return how many fragments a rewrite removes, and how many it adds."""
    operation = change.transaction.operation
    assert isinstance(operation, LanceOperation.Rewrite)
    groups = list(operation.groups)
    return sum(len(list(one.old_fragments)) for one in groups), sum(len(list(one.new_fragments)) for one in groups)


def fold_tail(dataset: Dataset, fragments_max: int) -> Change | None:
    """Stage the folding of small trailing fragments into one, once more than `fragments_max` of a size stand there.

    Sizes are tiers, each `fragments_max` times the one before, so a row is rewritten once per tier and a history of
    n one-row commits leaves at most `fragments_max` fragments per tier. Fragments that an index covers stay.
    """
    assert fragments_max >= 2
    fragments = dataset.fragments
    if len(fragments) <= fragments_max:
        return None
    tail = _tail(fragments, fragments_max)
    # Asking for coverage costs more than looking at sizes, and most commits end here.
    if not tail:
        return None
    covered = frozenset().union(*(one.indexed for one in coverage(dataset).values()))
    if covered.intersection(fragment.id for fragment in tail):
        tail = _tail(_after_last(fragments, covered), fragments_max)
    if not tail:
        return None
    folded = {fragment.id for fragment in tail}
    excluded = [fragment.id for fragment in fragments if fragment.id not in folded]
    with lance_errors(f"planning the folding of {dataset.ref}"):
        tasks = Compaction.plan(
            dataset.lance, {"target_rows_per_fragment": ROWS_PER_FILE, "excluded_fragment_ids": excluded}
        ).tasks
    return rewritten(dataset, [execute(dataset, task) for task in tasks])


def _tail(fragments: Sequence[FragmentMetadata], fragments_max: int) -> list[FragmentMetadata]:
    """Return the longest run at the end that ends in a full tier, or nothing."""
    size = tier = in_tier = folded = 0
    for run, fragment in enumerate(reversed(fragments), start=1):
        size += sum(file.file_size_bytes or 0 for file in fragment.files)
        if size > FOLD_BYTES_MAX:
            break
        if (own := _tier(fragment.num_rows, fragments_max)) > tier:
            tier, in_tier = own, 0
        in_tier += own == tier
        if in_tier > fragments_max:
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


def _after_last(fragments: Sequence[FragmentMetadata], covered: frozenset[int]) -> Sequence[FragmentMetadata]:
    last = max(place for place, fragment in enumerate(fragments) if fragment.id in covered)
    return fragments[last + 1 :]
