"""Merge with executors: they merge ranges of ids, stage what comes out, and judge it; the driver publishes once.

Which states are merged, and the publishing, are those of `engine.merge`; all that is decided here is where a task runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec

import pyarrow as pa

from omnigraph.engine.branches import delete_merged
from omnigraph.engine.merge import MergeReceipt
from omnigraph.engine.merge import merge as run_merge
from omnigraph.engine.merge.ancestry import MergeBase
from omnigraph.engine.merge.apply_resolutions import Resolutions
from omnigraph.engine.merge.conflicts import Resolution, ResolutionsInput
from omnigraph.engine.merge.merge_tasks import Settled, Task, ThisProcess, Workers
from omnigraph.engine.merge.three_way import Counted, ThreeWayState, Type, violation_conflict
from omnigraph.engine.tasks import Runner
from omnigraph.errors import Effect, OmniGraphError, PipelineUnavailable, UsageError
from omnigraph.graph import Graph
from omnigraph.limits import (
    MERGE_BUCKET_KEYS,
    MERGE_CONFLICTS_MAX,
    MERGE_LOCAL_ENTITIES_MAX,
    MERGE_RANGE_ENTITIES,
    MERGE_RANGES_MAX,
)
from omnigraph.manifest import plan
from omnigraph.manifest.model import MAIN
from omnigraph.pipeline.bulk_load.job import place_of
from omnigraph.pipeline.bulk_load.key_files import Slice
from omnigraph.pipeline.bulk_load.matching import MarkTask, mark_fragment
from omnigraph.pipeline.range_merge.keys import Broken, KeyFile, MergeJob, check_bucket
from omnigraph.pipeline.range_merge.tasks import LookTask, Merged, MergeTask, look, merge_range
from omnigraph.pipeline.spark.executors import Engine, check_engine, executors
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.read.version_diff import moved_estimate
from omnigraph.store.store import Store
from omnigraph.store.write import fragments


def merge(
    graph: Graph,
    source: str,
    into: str = MAIN,
    *,
    delete_branch: bool = False,
    resolutions: ResolutionsInput = None,
    engine: Engine = "auto",
    master: str | None = None,
) -> MergeReceipt:
    """Do what `graph.branches.merge` does, with the same receipt; on Spark, tasks run on executors.

    By default, only what is large runs on Spark, and only where Spark is installed. Of very many conflicts tasks tell
    the first; resolutions of broken rules need `engine="local"`.
    """
    check_engine(engine)
    ranges = Ranges(partial(executors, master))
    workers: dict[str, Workers] = {"auto": BySize(ranges), "local": ThisProcess(), "spark": ranges}
    chosen = workers[engine]
    if engine == "spark" or (engine == "auto" and master is not None):
        # Whoever asks for Spark hears at once when it does not start.
        ranges.start()
        chosen = ranges
    receipt = merge_with(graph, source, into, chosen, ranges, resolutions)
    return delete_merged(graph.branches, receipt) if delete_branch else receipt


def merge_with(
    graph: Graph, source: str, into: str, workers: Workers, ranges: Ranges, resolutions: ResolutionsInput = None
) -> MergeReceipt:
    """Merge with given workers, and remove what those elsewhere have written for themselves."""
    is_published = True
    try:
        return run_merge(graph.session, source, into, resolutions=resolutions, workers=workers)
    except OmniGraphError as error:
        is_published = error.effect is not Effect.NONE
        raise
    finally:
        ranges.clean(graph.session.kernel.store, is_published=is_published)


@dataclass
class _Work:
    """One merge under way: the types that need work, where they are staged, and what tasks have to know."""

    task: Task
    job: MergeJob
    types: Sequence[Type]
    targets: Mapping[str, Dataset]
    ranges: Mapping[str, int]
    files: set[str] = field(default_factory=set)


class Ranges:
    """Workers elsewhere: each task has one range of the ids of one type."""

    def __init__(
        self,
        start: Callable[[], Runner],
        range_entities: int = MERGE_RANGE_ENTITIES,
        bucket_keys: int = MERGE_BUCKET_KEYS,
    ) -> None:
        self._start = start
        self._range_entities = range_entities
        self._bucket_keys = bucket_keys
        self._runner: Runner | None = None
        self._works: list[_Work] = []

    def start(self) -> Runner:
        if self._runner is None:
            self._runner = self._start()
        return self._runner

    def merge(self, task: Task) -> Settled:
        if task.is_forward:
            Resolutions(task.resolutions).reject_unused()
        types = [one for one in task.three.types() if not (task.is_forward and one.table_key in task.adoptable)]
        if not types:
            Resolutions(task.resolutions).reject_unused()
            return Settled({}, adopted=task.adoptable)
        work = self._plan(task, types)
        self._works.append(work)
        results, undecided = self._merged(work)
        counts = _counts(results)
        conflicts = sorted(
            (one for result in results for one in result.conflicts), key=lambda one: (one.type_key, str(one.entity_id))
        )
        broken: list[Broken] = []
        if undecided or not conflicts:
            broken = self._broken(work, results)
        if undecided and (broken or conflicts):
            touched = {(one.table_key, entity_id) for one in results for entity_id in one.touched}
            violations = [violation for _, violation in broken]
            Resolutions(undecided).reject_irrelevant(task.three, lambda *place: place in touched, violations)
        if conflicts:
            cut = conflicts[:MERGE_CONFLICTS_MAX]
            return Settled(counts, cut, is_cut=len(cut) < len(conflicts))
        if broken:
            return self._refused(task, counts, broken, undecided)
        Resolutions(undecided).reject_unused()
        return Settled(counts, effects=self._effects(work, results), adopted=task.adoptable)

    def clean(self, store: Store, *, is_published: bool) -> None:
        """Remove what attempts that did not count left behind, and all files but data."""
        for work in self._works:
            keep = work.files if is_published else set[str]()
            refs = [dataset.ref for dataset in work.targets.values()]
            fragments.remove_staged(store, refs, work.job.place.operation_id, keep)
            store.objects.discard_prefix(work.job.side)
        self._works = []

    # -- the stages --------------------------------------------------------------------------------------------

    def _plan(self, task: Task, types: Sequence[Type]) -> _Work:
        three, kernel = task.three, task.three.ours.kernel
        for view in (*three.base.states(), three.ours, three.theirs):
            # Tasks open versions by path alone, so what was just published must be in its place.
            kernel.finish_links(view.snapshot)
        operation_id = task.hold().operation_id
        staged = [one.table_key for one in types if one.table_key not in task.adoptable]
        targets = {key: kernel.writable(three.ours.snapshot, key) for key in staged}
        committed = {key: (targets.get(key) or three.ours.dataset(key)).ref for key in three.by_key}
        sizes = {one.table_key: size_of(task, one) for one in types}
        side = fragments.side_folder(committed[types[0].table_key], operation_id)
        paths = [path for one in targets.values() for path in fragments.claims(one.ref, operation_id)]
        task.hold().staging(*paths, f"{side}/")
        job = MergeJob(
            place_of(kernel.store.root.uri, operation_id),
            side,
            three.ours.snapshot.state.schema.ir,
            committed,
            0 if task.is_forward else _parts(sum(sizes.values()), self._bucket_keys),
            is_decided=bool(task.resolutions),
        )
        return _Work(
            task, job, types, targets, {key: _parts(size, self._range_entities) for key, size in sizes.items()}
        )

    def _merged(self, work: _Work) -> tuple[list[Merged], list[Resolution]]:
        """Return what became of each range, and the resolutions that settled nothing."""
        three, job = work.task.three, work.job
        decided, undecided = _by_range(work)
        planned = {type_.table_key: _Compared.of(three, type_) for type_ in work.types}
        asked = [LookTask(one.base.first, ref, work.ranges[key]) for key, one in planned.items() for ref in one.others]
        found = iter(self.start().run("comparing", partial(look, job), asked))
        tasks: list[MergeTask] = []
        for key, one in planned.items():
            moves = {ref: next(found) for ref in one.others}
            for number in range(work.ranges[key]):
                own = tuple(decided.pop((key, number), ()))
                moved = {ref: paths[number] for ref, paths in moves.items()}
                if one.is_left_alone(moved):
                    # What their side left alone stays as it is on ours.
                    undecided += own
                    continue
                tasks.append(MergeTask(key, one.base, one.theirs, one.ours, moved, key in work.targets, own))
        results = self.start().run("merging", partial(merge_range, job), tasks)
        return results, [*undecided, *(one for result in results for one in result.open)]

    def _broken(self, work: _Work, results: Sequence[Merged]) -> list[Broken]:
        buckets: dict[int, list[KeyFile]] = {}
        for file in (file for result in results for file in result.keys):
            buckets.setdefault(file.bucket, []).append(file)
        checked = self.start().run("checking", partial(check_bucket, work.job), list(buckets.values()))
        found = [one for result in results for one in result.broken] + [one for part in checked for one in part]
        return sorted(found, key=lambda one: (one[0], one[1].type_key or "", one[1].entity_id or one[1].value or ""))

    @staticmethod
    def _refused(
        task: Task, counts: Mapping[str, Counted], broken: Sequence[Broken], undecided: Sequence[Resolution]
    ) -> Settled:
        if undecided:
            first = undecided[0]
            raise UsageError(
                f"the resolution of `{first.entity_id}` of `{first.type_key}` settles no conflict between the sides,"
                " and those of broken rules are applied in one process only; use the engine `local`",
                type_key=first.type_key,
                entity_id=first.entity_id,
            )
        told = [violation_conflict(task.three, one) for _, one in broken[:MERGE_CONFLICTS_MAX]]
        return Settled(counts, told, is_cut=len(told) < len(broken))

    def _effects(self, work: _Work, results: Sequence[Merged]) -> tuple[plan.Effect, ...]:
        staged: dict[str, list[fragments.FragmentText]] = {key: [] for key in work.targets}
        gone: dict[tuple[str, int], tuple[Slice, ...]] = {}
        for result in (one for one in results if one.table_key in staged):
            staged[result.table_key] += result.fragments
            for fragment, cut in result.gone.items():
                place = (result.table_key, fragment)
                gone[place] = (*gone.get(place, ()), cut)
        tasks = [MarkTask(work.targets[key].ref, fragment, cuts) for (key, fragment), cuts in sorted(gone.items())]
        marked = self.start().run("marking", partial(mark_fragment, work.job.place), tasks)
        by_type: dict[str, list[fragments.Marked]] = {key: [] for key in work.targets}
        for (key, _), one in zip(sorted(gone), marked, strict=True):
            by_type[key].append(one)
        effects = []
        for key, dataset in sorted(work.targets.items()):
            if staged[key] or by_type[key]:
                work.files |= fragments.staged_files(dataset, staged[key])
                change = fragments.upserted(dataset, staged[key], by_type[key])
                effects.append(plan.Effect(key, dataset, (change,)))
        return tuple(effects)


@dataclass(frozen=True, slots=True)
class _Compared:
    """Which versions of a type are compared with which; without `ours`, our side did not change the type."""

    base: MergeBase[DatasetRef]
    ours: DatasetRef | None
    theirs: DatasetRef

    @classmethod
    def of(cls, three: ThreeWayState, type_: Type) -> _Compared:
        base = three.base_of(type_).map(lambda dataset: dataset.ref)
        ours, theirs = (view.sound_dataset(type_.table_key).ref for view in (three.ours, three.theirs))
        return cls(base, None if three.is_ours_unchanged(type_) else ours, theirs)

    @property
    def others(self) -> list[DatasetRef]:
        """All versions but the one that they are compared with, each once."""
        sides = [self.theirs, *([self.ours] if self.ours else [])]
        joined = [ref for ref in self.base.states() if ref != self.base.first]
        return list(dict.fromkeys([*sides, *joined]))

    def is_left_alone(self, moved: Mapping[DatasetRef, str | None]) -> bool:
        """Tell whether their side has a range as the base has it, where nothing of the base is virtual."""
        is_virtual = any(moved[ref] for ref in self.base.states() if ref != self.base.first)
        return moved[self.theirs] is None and not is_virtual


class BySize:
    """Workers here for what this process can hold, and elsewhere for the rest."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges

    def merge(self, task: Task) -> Settled:
        types = [one for one in task.three.types() if not (task.is_forward and one.table_key in task.adoptable)]
        size = sum(size_of(task, one) for one in types)
        if size <= MERGE_LOCAL_ENTITIES_MAX or find_spec("pyspark") is None:
            return ThisProcess().merge(task)
        try:
            self._ranges.start()
        except PipelineUnavailable:
            # Nobody asked for Spark, and this process can do it as well, if it has the memory.
            return ThisProcess().merge(task)
        return self._ranges.merge(task)


def size_of(task: Task, type_: Type) -> int:
    """Return about how many entities of a type either side changed."""
    base, *others = task.three.base_of(type_).states()
    others += [view.dataset(type_.table_key) for view in (task.three.ours, task.three.theirs)]
    return sum(moved_estimate(base, one) for one in others)


def _parts(size: int, part: int) -> int:
    return min(max(1, -(-size // part)), MERGE_RANGES_MAX)


def _counts(results: Sequence[Merged]) -> dict[str, Counted]:
    found: dict[str, Counted] = {}
    for one in results:
        if one.counts != Counted():
            so_far, own = found.get(one.table_key, Counted()), one.counts
            found[one.table_key] = Counted(
                so_far.inserted + own.inserted, so_far.updated + own.updated, so_far.deleted + own.deleted
            )
    return found


def _by_range(work: _Work) -> tuple[dict[tuple[str, int], list[Resolution]], list[Resolution]]:
    """Return resolutions by type and range, and those of types that their side did not change."""
    found: dict[tuple[str, int], list[Resolution]] = {}
    others: list[Resolution] = []
    for one in work.task.resolutions:
        if one.type_key not in work.ranges:
            others.append(one)
            continue
        [number] = work.job.part_of(pa.array([one.entity_id], pa.string()), work.ranges[one.type_key]).tolist()
        found.setdefault((one.type_key, number), []).append(one)
    return found, others
