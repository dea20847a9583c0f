"""Merges that are too large for one process: tasks merge ranges of ids, stage the result and check it.

`engine.merge` chooses the merge base and publishes; this module only distributes the work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from omnigraph.engine.key_buckets.files import FileSlice, mark_replaced
from omnigraph.engine.merge.ancestry import MergeBase
from omnigraph.engine.merge.conflicts import Resolution, Resolutions
from omnigraph.engine.merge.range_tasks import (
    DiffTask,
    KeyPart,
    MergedRange,
    MergeJob,
    MergeTask,
    check_bucket,
    merge_range,
    write_moved_rows,
)
from omnigraph.engine.merge.three_way import (
    Counted,
    ExecuteMerge,
    Settled,
    Task,
    ThreeWayState,
    merge_in_memory,
    violation_conflict,
)
from omnigraph.engine.session import GraphSession
from omnigraph.engine.tasks import Runner, Threads, graph_access, report_progress
from omnigraph.errors import Effect, OmniGraphError, UsageError
from omnigraph.lang.catalog import Type, TypeKey
from omnigraph.limits import (
    MERGE_BUCKET_KEYS,
    MERGE_CONFLICTS_MAX,
    MERGE_LOCAL_ENTITIES_MAX,
    MERGE_RANGE_ENTITIES,
    MERGE_RANGES_MAX,
)
from omnigraph.manifest import plan
from omnigraph.rules.validate import IndexedViolation
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.read.version_diff import moved_estimate
from omnigraph.store.store import Store
from omnigraph.store.write import fragments


@contextmanager
def merging_ranges(session: GraphSession, ranges: RangeMerge | None = None) -> Iterator[ExecuteMerge]:
    """Yield what merges tasks where the session's runners choose, or with `ranges`; removes its temporary files."""
    anywhere, is_published = ranges or RangeMerge(), True

    def execute(task: Task) -> Settled:
        size = sum(estimate_changes(task, type_) for type_ in _types_to_merge(task))
        runner = session.runners.by_size(size, MERGE_LOCAL_ENTITIES_MAX)
        report_progress("merging", 0, 1)
        if task.three.merged is not None or runner.engine == "local":
            settled = merge_in_memory(task)
        else:
            anywhere.runner = runner
            settled = anywhere.merge(task)
        report_progress("merging", 1, 1)
        return settled

    try:
        yield execute if ranges is None else ranges.merge
    except OmniGraphError as error:
        is_published = error.effect is not Effect.NONE
        raise
    finally:
        anywhere.clean(session.kernel.store, is_published=is_published)


@dataclass
class _MergeRun:
    """A merge in flight: the types to merge, the datasets they are staged for, and the job of the tasks."""

    task: Task
    job: MergeJob
    types: Sequence[Type]
    targets: Mapping[TypeKey, Dataset]
    ranges: Mapping[TypeKey, int]
    files: set[str] = field(default_factory=set)


@dataclass
class RangeMerge:
    """Merges with tasks that have one hash range of the ids of one type each, so that no process holds a whole type."""

    runner: Runner = field(default_factory=Threads)
    range_entities: int = MERGE_RANGE_ENTITIES
    bucket_keys: int = MERGE_BUCKET_KEYS
    _runs: list[_MergeRun] = field(default_factory=list)

    def merge(self, task: Task) -> Settled:
        """Merge all changed types; conflicts are reported before violations of rules, and either stops the merge."""
        if task.three.merged is not None:
            # States of different schemas are merged in this process.
            return merge_in_memory(task)
        if task.is_forward:
            Resolutions(task.resolutions).reject_unused()
        types = _types_to_merge(task)
        if not types:
            Resolutions(task.resolutions).reject_unused()
            return Settled({}, adopted=task.adoptable)
        run = self._plan(task, types)
        self._runs.append(run)
        # Entities merge independently of each other, so any partition of the ids gives the result of a whole merge.
        # Only rules across rows need more; those are checked in buckets of keys.
        results, undecided = self._merge_ranges(run)
        counts = _sum_counts(results)
        conflicts = sorted(
            (conflict for result in results for conflict in result.conflicts),
            key=lambda conflict: (conflict.type_key, str(conflict.entity_id)),
        )
        violations_by_rule: list[IndexedViolation] = []
        if undecided or not conflicts:
            violations_by_rule = self._violations(run, results)
        if undecided and (violations_by_rule or conflicts):
            touched = {(result.table_key, entity_id) for result in results for entity_id in result.touched}
            violations = [violation for _, violation in violations_by_rule]
            Resolutions(undecided).reject_irrelevant(task.three, lambda *entity: entity in touched, violations)
        if conflicts:
            cut = conflicts[:MERGE_CONFLICTS_MAX]
            return Settled(counts, cut, is_cut=len(cut) < len(conflicts))
        if violations_by_rule:
            return self._report_violations(task, counts, violations_by_rule, undecided)
        Resolutions(undecided).reject_unused()
        return Settled(counts, effects=self._effects(run, results), adopted=task.adoptable)

    def clean(self, store: Store, *, is_published: bool) -> None:
        """Remove the staged files of failed attempts, and all temporary files."""
        for run in self._runs:
            keep = run.files if is_published else set[str]()
            refs = [dataset.ref for dataset in run.targets.values()]
            fragments.remove_staged(store, refs, run.job.access.operation_id, keep)
            store.objects.discard_prefix(run.job.scratch)
        self._runs = []

    # -- the stages --------------------------------------------------------------------------------------------

    def _plan(self, task: Task, types: Sequence[Type]) -> _MergeRun:
        three, kernel = task.three, task.three.ours.kernel
        for view in (*three.base.states(), three.ours, three.theirs):
            # Tasks open versions by path, so links of recent commits must be finished first.
            kernel.finish_links(view.snapshot)
        operation_id = task.hold().operation_id
        staged = [type_.table_key for type_ in types if type_.table_key not in task.adoptable]
        targets = {key: kernel.writable(three.ours.snapshot, key) for key in staged}
        committed = {key: (targets.get(key) or three.ours.dataset(key)).ref for key in three.by_key}
        sizes = {type_.table_key: estimate_changes(task, type_) for type_ in types}
        scratch = fragments.side_folder(committed[types[0].table_key], operation_id)
        paths = [path for dataset in targets.values() for path in fragments.claims(dataset.ref, operation_id)]
        task.hold().staging(*paths, f"{scratch}/")
        job = MergeJob(
            graph_access(kernel.store.root.uri, operation_id),
            scratch,
            three.ours.snapshot.state.schema.ir,
            committed,
            0 if task.is_forward else _count_parts(sum(sizes.values()), self.bucket_keys),
            is_decided=bool(task.resolutions),
        )
        return _MergeRun(
            task, job, types, targets, {key: _count_parts(size, self.range_entities) for key, size in sizes.items()}
        )

    def _merge_ranges(self, run: _MergeRun) -> tuple[list[MergedRange], list[Resolution]]:
        """Return the result of each range, and the resolutions that settled nothing."""
        three, job = run.task.three, run.job
        decided, undecided = _resolutions_by_range(run)
        planned = {type_.table_key: _ComparedVersions.of(three, type_) for type_ in run.types}
        diffs = [
            DiffTask(compared.base.first, ref, run.ranges[key])
            for key, compared in planned.items()
            for ref in compared.others
        ]
        # A shuffle through files in storage: every version is compared with the first base once, its moved rows are
        # written by range, and a merge task reads its slice of each.
        compared_rows = iter(self.runner.run("comparing", partial(write_moved_rows, job), diffs))
        tasks: list[MergeTask] = []
        for key, compared in planned.items():
            moves = {ref: next(compared_rows) for ref in compared.others}
            for number in range(run.ranges[key]):
                resolutions = tuple(decided.pop((key, number), ()))
                moved = {ref: by_range.get(number) for ref, by_range in moves.items()}
                if compared.is_unchanged(moved):
                    # Their side did not change this range, so ours stays.
                    undecided += resolutions
                    continue
                tasks.append(
                    MergeTask(
                        key, compared.base, compared.theirs, compared.ours, moved, key in run.targets, resolutions
                    )
                )
        results = self.runner.run("merging", partial(merge_range, job), tasks)
        return results, [*undecided, *(resolution for result in results for resolution in result.open)]

    def _violations(self, run: _MergeRun, results: Sequence[MergedRange]) -> list[IndexedViolation]:
        buckets: dict[int, list[KeyPart]] = {}
        # Equal keys fall into one bucket, so a rule across rows holds for the graph exactly if it holds in each bucket.
        for keys in (keys for result in results for keys in result.keys):
            buckets.setdefault(keys.bucket, []).append(keys)
        of_buckets = self.runner.run("checking", partial(check_bucket, run.job), list(buckets.values()))
        violations = [item for part in (*(result.violations for result in results), *of_buckets) for item in part]
        return sorted(
            violations, key=lambda item: (item[0], item[1].type_key or "", item[1].entity_id or item[1].value or "")
        )

    @staticmethod
    def _report_violations(
        task: Task,
        counts: Mapping[TypeKey, Counted],
        violations: Sequence[IndexedViolation],
        undecided: Sequence[Resolution],
    ) -> Settled:
        if undecided:
            first = undecided[0]
            raise UsageError(
                f"the resolution of `{first.entity_id}` of `{first.type_key}` settles no conflict between the sides,"
                " and those of broken rules are applied in one process only; use the engine `local`",
                type_key=first.type_key,
                entity_id=first.entity_id,
            )
        conflicts = [violation_conflict(task.three, violation) for _, violation in violations[:MERGE_CONFLICTS_MAX]]
        return Settled(counts, conflicts, is_cut=len(conflicts) < len(violations))

    def _effects(self, run: _MergeRun, results: Sequence[MergedRange]) -> tuple[plan.Effect, ...]:
        staged: dict[TypeKey, list[fragments.FragmentText]] = {key: [] for key in run.targets}
        staged_results = [result for result in results if result.table_key in staged]
        for result in staged_results:
            staged[result.table_key] += result.fragments
        replaced = [(run.targets[result.table_key].ref, result.replaced) for result in staged_results]
        marked = mark_replaced(self.runner, run.job.access, "marking", replaced)
        effects = []
        for key, dataset in sorted(run.targets.items()):
            if staged[key] or dataset.ref in marked:
                run.files |= fragments.staged_files(dataset, staged[key])
                change = fragments.upserted(dataset, staged[key], marked.get(dataset.ref, []))
                effects.append(plan.Effect(key, dataset, (change,)))
        return tuple(effects)


@dataclass(frozen=True, slots=True)
class _ComparedVersions:
    """The versions of a type to compare; `ours` is None if our side did not change the type."""

    base: MergeBase[DatasetRef]
    ours: DatasetRef | None
    theirs: DatasetRef

    @classmethod
    def of(cls, three: ThreeWayState, type_: Type) -> _ComparedVersions:
        base = three.base_of(type_).map(lambda dataset: dataset.ref)
        ours, theirs = (view.sound_dataset(type_.table_key).ref for view in (three.ours, three.theirs))
        return cls(base, None if three.is_ours_unchanged(type_) else ours, theirs)

    @property
    def others(self) -> list[DatasetRef]:
        """All distinct versions but the first of the base, which they are compared with."""
        sides = [self.theirs, *([self.ours] if self.ours else [])]
        joined = [ref for ref in self.base.states() if ref != self.base.first]
        return list(dict.fromkeys([*sides, *joined]))

    def is_unchanged(self, moved: Mapping[DatasetRef, FileSlice | None]) -> bool:
        """Return True if their side equals the base in a range, and the base is not virtual there."""
        # A virtual base may differ from all of its states, so equality with the first one proves nothing there.
        is_virtual = any(moved[ref] for ref in self.base.states() if ref != self.base.first)
        return moved[self.theirs] is None and not is_virtual


def _types_to_merge(task: Task) -> list[Type]:
    """Return the changed types; a fast-forward adopts datasets as they are where it can."""
    return [type_ for type_ in task.three.types() if not (task.is_forward and type_.table_key in task.adoptable)]


def estimate_changes(task: Task, type_: Type) -> int:
    """Estimate how many entities of a type the two sides changed."""
    base, *others = task.three.base_of(type_).states()
    others += [view.dataset(type_.table_key) for view in (task.three.ours, task.three.theirs)]
    return sum(moved_estimate(base, version) for version in others)


def _count_parts(size: int, part: int) -> int:
    return min(max(1, -(-size // part)), MERGE_RANGES_MAX)


def _sum_counts(results: Sequence[MergedRange]) -> dict[TypeKey, Counted]:
    totals: dict[TypeKey, Counted] = {}
    for result in results:
        if result.counts != Counted():
            so_far, counts = totals.get(result.table_key, Counted()), result.counts
            totals[result.table_key] = Counted(
                so_far.inserted + counts.inserted, so_far.updated + counts.updated, so_far.deleted + counts.deleted
            )
    return totals


def _resolutions_by_range(run: _MergeRun) -> tuple[dict[tuple[TypeKey, int], list[Resolution]], list[Resolution]]:
    """Return resolutions by type and range, and those of types that need no merge."""
    by_range: dict[tuple[TypeKey, int], list[Resolution]] = {}
    others: list[Resolution] = []
    for resolution in run.task.resolutions:
        if resolution.type_key not in run.ranges:
            others.append(resolution)
            continue
        [number] = run.job.partition_of(
            pa.array([resolution.entity_id], pa.string()), run.ranges[resolution.type_key]
        ).tolist()
        by_range.setdefault((resolution.type_key, number), []).append(resolution)
    return by_range, others
