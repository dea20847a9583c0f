"""The merge of a whole graph: what has to be merged, in how many ranges and where, its rounds of tasks, its effects.

Entities merge independently of each other, so any partition of the ids gives the same result; only rules across rows
need more, which are checked in buckets of keys. Conflicts between the sides are reported before violations of rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias, TypeVar

import pyarrow as pa

from omnigraph.engine.key_buckets.files import mark_replaced
from omnigraph.engine.key_buckets.hashes import bucket_of
from omnigraph.engine.merge.adoption import reject_new_types
from omnigraph.engine.merge.conflicts import Resolution, Resolutions, conflict_from, image_of
from omnigraph.engine.merge.key_checks import KeyPart, check_bucket
from omnigraph.engine.merge.merge_job import MergeJob
from omnigraph.engine.merge.merge_target import MergeTarget
from omnigraph.engine.merge.moves import DiffTask, MovedParts, split_moved_rows
from omnigraph.engine.merge.placement import Placement, estimate_moves, split_parts
from omnigraph.engine.merge.range_merge import Counted, MergedRange, MergeTask, merge_range
from omnigraph.engine.merge.three_way import ThreeWayState
from omnigraph.engine.merge.type_merge import TypeMerge
from omnigraph.engine.runners import Runners, ThisProcess
from omnigraph.engine.session import GraphSession
from omnigraph.engine.tasks import Runner, ThisThread, Threads, report_progress
from omnigraph.lang.catalog import Type, TypeKey
from omnigraph.limits import MERGE_CONFLICTS_MAX
from omnigraph.manifest.intents import Declared
from omnigraph.manifest.model import Pin
from omnigraph.manifest.plan import Effect
from omnigraph.public_values import Conflict
from omnigraph.rules.validate import IndexedViolation
from omnigraph.store.read.dataset import DatasetRef
from omnigraph.store.read.version_diff import Moved, stored_size
from omnigraph.store.write import fragments

T = TypeVar("T")
# A type, and the number of a range of its ids.
RangeKey: TypeAlias = tuple[TypeKey, int]
# A type, and the version whose moved rows are meant: all rows of our side if it is None.
MovesKey: TypeAlias = tuple[TypeKey, DatasetRef | None]


@dataclass(frozen=True, slots=True)
class GraphMerge:
    """A merge to be executed. A fast-forward (`is_forward`) is valid already.

    Types in `adoptable` are not staged unless a resolution changes one of their entities. `hold` declares the intent
    of the staged files: call it right before writing the first one. A dry run has none, and writes nothing.
    """

    three: ThreeWayState
    resolutions: Sequence[Resolution]
    adoptable: Mapping[TypeKey, Pin]
    is_forward: bool
    hold: Callable[[], Declared] | None

    def types(self) -> list[Type]:
        """Return the types to merge; a fast-forward adopts datasets as they are where it can."""
        types = [type_ for type_ in self.three.types() if not (self.is_forward and type_.table_key in self.adoptable)]
        if self.is_forward:
            return types
        # Rules that come with the schema of their side hold for all entities, not only for those that change.
        return list({type_.table_key: type_ for type_ in (*types, *self.three.tightened())}.values())


@dataclass(frozen=True, slots=True)
class Settled:
    """The result of a merge: counts of changed types, and either conflicts, or the staged effects and adopted types.

    `is_cut`: there are more conflicts than these.
    """

    counts: Mapping[TypeKey, Counted]
    conflicts: Sequence[Conflict] = ()
    effects: tuple[Effect, ...] = ()
    adopted: Mapping[TypeKey, Pin] = field(default_factory=dict)
    is_cut: bool = False


class MergeExecutor:
    """Executes the attempts of one merge, and removes what they staged and did not publish."""

    def __init__(self, session: GraphSession, placement: Placement | None = None) -> None:
        self._session = session
        self._placement = placement or Placement()
        self._runs: list[_Run] = []

    def execute(self, merge: GraphMerge) -> Settled:
        """Merge all changed types, apply the resolutions, check the result against every rule, and stage it."""
        report_progress("merging", 0, 1)
        run = _plan(merge, self._placement, self._session.runners)
        self._runs.append(run)
        settled = run.settle()
        report_progress("merging", 1, 1)
        return settled

    def clean(self, *, is_published: bool) -> None:
        """Remove all temporary files, and what was staged, except by the last attempt if that was published."""
        for run in self._runs:
            run.clean(keeps_files=is_published and run is self._runs[-1])
        self._runs = []


def _plan(merge: GraphMerge, placement: Placement, runners: Runners) -> _Run:
    """Return a run of a merge: how large it is, where its tasks run, and what they know."""
    three, by_key = merge.three, merge.three.by_key
    types = [type_.table_key for type_ in merge.types()]
    keys = dict.fromkeys([*types, *(item.type_key for item in merge.resolutions)])
    versions = {key: three.versions(by_key[key]) for key in keys if key in by_key}
    rechecked = frozenset(type_.table_key for type_ in ([] if merge.is_forward else three.tightened()))
    store = three.store()
    moved: dict[MovesKey, Moved] = {
        (key, ref): size for key in types for ref, size in estimate_moves(store, versions[key]).items()
    }
    moved |= {(key, None): stored_size(store.open(versions[key].ours)) for key in rechecked}
    # A dry run writes nothing, not even temporary files, so its tasks run in this process.
    runner = placement.choose_runner(sum(moved.values(), Moved()), ThisProcess() if merge.hold is None else runners)
    is_held = isinstance(runner, ThisThread)
    of_type = {key: sum((size for (owner, _), size in moved.items() if owner == key), Moved()) for key in types}
    job = MergeJob(
        store,
        versions,
        {key: three.ours.snapshot.state.pins[key].ref for key in by_key},
        rechecked=rechecked,
        buckets=0 if merge.is_forward else 1 if is_held else placement.buckets(sum(of_type.values(), Moved())),
        is_held=is_held,
        is_decided=bool(merge.resolutions),
    )
    return _Run(merge, runner, job, moved, {key: 1 if is_held else placement.ranges(of_type[key]) for key in types})


@dataclass
class _Run:
    """One attempt: its tasks by type and range, their results, and the resolutions that have settled nothing yet."""

    merge: GraphMerge
    runner: Runner
    job: MergeJob
    moved: Mapping[MovesKey, Moved]
    ranges: dict[TypeKey, int]
    targets: dict[TypeKey, MergeTarget] = field(default_factory=dict)
    tasks: dict[RangeKey, MergeTask] = field(default_factory=dict)
    results: dict[RangeKey, MergedRange] = field(default_factory=dict)
    open: list[Resolution] = field(default_factory=list)
    overruled: set[TypeKey] = field(default_factory=set)
    files: set[str] = field(default_factory=set)

    def settle(self) -> Settled:
        """Merge, check, and stage; conflicts are reported before violations of rules, and either stops the merge."""
        resolutions = Resolutions(self.merge.resolutions)
        if self.merge.is_forward:
            resolutions.reject_unused()
        if not self.job.is_held:
            self._spread()
        self._merge_ranges()
        conflicts = sorted(
            (conflict for result in self.results.values() for conflict in result.conflicts),
            key=lambda conflict: (conflict.type_key, str(conflict.entity_id)),
        )
        violations = [] if conflicts and not self.open else self._violations()
        if conflicts:
            if self.open:
                # What is still open may be about a rule that breaks once the conflicts are settled.
                Resolutions(self.open).reject_irrelevant(self._exists, self._touched, violations)
            return self._conflicted(conflicts, lambda conflict: conflict)
        if violations and self.open:
            self._override(violations)
            violations = self._violations()
        Resolutions(self.open).reject_unused()
        if violations:
            return self._conflicted(violations, self._as_conflict)
        return Settled(self.counts, effects=self._effects(), adopted=self.adopted)

    def _conflicted(self, items: Sequence[T], as_conflict: Callable[[T], Conflict]) -> Settled:
        cut = items[:MERGE_CONFLICTS_MAX]
        return Settled(self.counts, [*map(as_conflict, cut)], adopted=self.adopted, is_cut=len(cut) < len(items))

    @property
    def adopted(self) -> dict[TypeKey, Pin]:
        return {key: pin for key, pin in self.merge.adoptable.items() if key not in self.overruled}

    @property
    def counts(self) -> dict[TypeKey, Counted]:
        totals: dict[TypeKey, Counted] = {}
        for result in self.results.values():
            if result.counts != Counted():
                totals[result.table_key] = totals.get(result.table_key, Counted()) + result.counts
        return totals

    # -- rounds ----------------------------------------------------------------------------------------------------

    def _spread(self) -> None:
        """Prepare for tasks that run elsewhere, or write what they merge; a dry run writes nothing."""
        if not isinstance(self.runner, Threads):
            # Other processes open versions by path, so links of recent commits must be finished first.
            for view in self.merge.three.views:
                view.kernel.finish_links(view.snapshot)
        if self.merge.hold is None or not self.ranges:
            return
        operation_id = self.merge.hold().operation_id
        access = replace(self.job.store.access, operation_id=operation_id)
        scratch = fragments.side_folder(self.job.committed[next(iter(self.ranges))], operation_id)
        self.merge.hold().staging(f"{scratch}/")
        self.job = replace(self.job, store=self.job.store.with_access(access), scratch=scratch)
        self._open_targets(key for key in self.ranges if key not in self.merge.adoptable)

    def _open_targets(self, keys: Iterable[TypeKey]) -> None:
        for key in keys:
            assert self.merge.hold is not None, "a dry run has no targets"
            target = MergeTarget.open(self.merge.three, self.merge.three.by_key[key])
            self.merge.hold().staging(*fragments.claims(target.base.ref, self.job.operation_id))
            self.targets[key] = target
        refs = {key: target.base.ref for key, target in self.targets.items()}
        staged = {target.begun.ref: target.begun.manifest for target in self.targets.values() if target.begun}
        self.job = replace(self.job, store=self.job.store.with_staged(staged), targets=refs)

    def _merge_ranges(self) -> None:
        """Merge every range in which their side changed something; resolutions for others settle nothing."""
        decided = self._by_range(self.merge.resolutions)
        moves = {} if self.job.is_held else self._split_moved_rows()
        for key, count in self.ranges.items():
            for number in range(count):
                task = MergeTask(key, is_staged=key in self.targets, resolutions=tuple(decided.pop((key, number), ())))
                if not self.job.is_held:
                    parts = {
                        ref: [part.of_range(number) for part in moves[key, ref]] for ref in self.job.versions[key].moved
                    }
                    stored = [part.new[number] for part in moves.get((key, None), ()) if number in part.new]
                    task = replace(task, moves=parts, stored=tuple(stored))
                self.tasks[key, number] = task
        self.open = [resolution for resolutions in decided.values() for resolution in resolutions]
        self._run(key for key, task in self.tasks.items() if task.may_change(self.job))
        idle = self.tasks.keys() - self.results.keys()
        self.open += [resolution for key in sorted(idle) for resolution in self.tasks[key].resolutions]
        self.open += [resolution for result in self.results.values() for resolution in result.open]

    def _split_moved_rows(self) -> dict[MovesKey, list[MovedParts]]:
        """Return the rows of each type that may have moved to a version, by range; and all rows of rechecked types."""
        # A shuffle: the moved rows of every version are read once and handed on by range, to the task that merges it.
        diffs: list[tuple[MovesKey, DiffTask]] = []
        for moves_key, size in self.moved.items():
            key, ref = moves_key
            versions, ranges = self.job.versions[key], self.ranges[key]
            diff = DiffTask(None, versions.ours, ranges) if ref is None else DiffTask(versions.base.first, ref, ranges)
            # Of our side only what theirs has changed as well is read, once that is known.
            diff = replace(diff, lists_only=ref == versions.ours and not versions.base.is_virtual)
            parts = split_parts(size)
            diffs += [(moves_key, replace(diff, part=part, parts=parts)) for part in range(parts)]
        results = self.runner.run("comparing", partial(split_moved_rows, self.job), [task for _, task in diffs])
        moves: dict[MovesKey, list[MovedParts]] = {}
        for (moves_key, _), result in zip(diffs, results, strict=True):
            moves.setdefault(moves_key, []).append(result)
        return moves

    def _run(self, keys: Iterable[RangeKey]) -> None:
        chosen = list(keys)
        tasks = [self.tasks[key] for key in chosen]
        results = self.runner.run("merging", partial(merge_range, self.job), tasks)
        self.results.update(zip(chosen, results, strict=True))

    def _violations(self) -> list[IndexedViolation]:
        """Return everything that is wrong with the merged graph, in the order of the rules."""
        buckets: dict[int, list[KeyPart]] = {}
        for keys in (keys for result in self.results.values() for keys in result.keys):
            buckets.setdefault(keys.bucket, []).append(keys)
        of_buckets = self.runner.run("checking", partial(check_bucket, self.job), list(buckets.values()))
        of_rows = [result.violations for result in self.results.values()]
        return sorted((item for part in (*of_rows, *of_buckets) for item in part), key=_reported_order)

    def _override(self, violations: Sequence[IndexedViolation]) -> None:
        """Apply the open resolutions to entities that break a rule, or that the merge changes: the other end of it."""
        named = {(violation.type_key, violation.entity_id) for _, violation in violations}
        chosen = [
            item
            for item in self.open
            if item.type_key in self.job.versions
            and ((item.type_key, item.entity_id) in named or self._touched(item.type_key, item.entity_id))
        ]
        self.open = [item for item in self.open if item not in chosen]
        self.overruled = {item.type_key for item in chosen}
        reject_new_types(self.merge.three, self.overruled)
        late = [key for key in self.overruled if key not in self.targets] if self.job.scratch else []
        self._open_targets(late)
        again: dict[RangeKey, MergeTask] = {}
        for key, overrides in self._by_range(chosen).items():
            again[key] = replace(self.tasks.get(key, MergeTask(key[0], moves={})), overrides=tuple(overrides))
        # The other ranges of a type that is not taken over as it is any more have to be staged, too.
        again |= {key: task for key, task in self.tasks.items() if key[0] in late and key not in again}
        is_staged = self.job.scratch is not None
        self.tasks |= {key: replace(task, is_staged=is_staged) for key, task in again.items()}
        self._run(again)

    def _by_range(self, resolutions: Iterable[Resolution]) -> dict[RangeKey, list[Resolution]]:
        by_range: dict[RangeKey, list[Resolution]] = {}
        for item in resolutions:
            ids = pa.array([item.entity_id], pa.string())
            [number] = bucket_of(ids, self.job.operation_id, self.ranges.get(item.type_key, 1)).tolist()
            by_range.setdefault((item.type_key, number), []).append(item)
        return by_range

    def _touched(self, key: TypeKey, entity_id: str) -> bool:
        return any(result.table_key == key and entity_id in result.touched for result in self.results.values())

    def _exists(self, key: TypeKey, entity_id: str) -> bool:
        rows = self._rows_of(key) if key in self.job.versions else None
        return rows is not None and any(row is not None for row in rows.images_of(entity_id))

    def _rows_of(self, key: TypeKey) -> TypeMerge:
        type_ = self.merge.three.by_key[key]
        return TypeMerge(self.job.open, type_, self.job.versions.get(key) or self.merge.three.versions(type_))

    def _as_conflict(self, item: IndexedViolation) -> Conflict:
        """Return a rule violation as a conflict, with the entity on all sides."""
        violation = item[1]
        if violation.entity_id is None or violation.type_key is None:
            return conflict_from(violation)
        rows = self._rows_of(violation.type_key)
        images = map(rows.blobs.with_bytes, rows.images_of(violation.entity_id))
        return conflict_from(violation, *map(image_of, images))

    # -- effects ---------------------------------------------------------------------------------------------------

    def _effects(self) -> tuple[Effect, ...]:
        """Stage what is held, or combine what tasks have staged."""
        if self.merge.hold is None:
            return ()
        three = self.merge.three
        reshaped = [type_.table_key for type_ in three.reshaped_types()]
        changed = sorted({key for key in (*self.counts, *reshaped) if key not in self.adopted})
        if not changed:
            return ()
        # From here on a crash leaves files behind, so the intent must be declared first.
        intent = self.merge.hold()
        self.targets |= {key: MergeTarget.open(three, three.by_key[key]) for key in changed if key not in self.targets}
        if self.job.is_held:
            in_memory = {key: result.rows for (key, _), result in self.results.items()}
            effects = [self.targets[key].stage_rows(in_memory.get(key)) for key in changed]
            intent.staging(*(file for effect in effects if effect for file in effect.files))
        else:
            effects = self._combine(changed)
        return tuple(effect for effect in effects if effect is not None)

    def _combine(self, changed: Sequence[TypeKey]) -> list[Effect | None]:
        staged = {key: [result for result in self.results.values() if result.table_key == key] for key in changed}
        replaced = [(self.targets[key].base.ref, result.replaced) for key in changed for result in staged[key]]
        marked = mark_replaced(self.runner, self.job.store, "marking", replaced)
        effects = []
        for key in changed:
            target, texts = self.targets[key], [text for result in staged[key] for text in result.fragments]
            effects.append(target.combine(texts, marked.get(target.base.ref, [])))
            self.files |= fragments.staged_files(target.base, texts)
        return effects

    def clean(self, *, keeps_files: bool) -> None:
        """Remove the temporary files of tasks, and the files that they staged unless the merge consists of them."""
        if self.job.scratch is None:
            return
        store, refs = self.job.store.store(), [target.base.ref for target in self.targets.values()]
        fragments.remove_staged(store, refs, self.job.operation_id, self.files if keeps_files else set())
        store.objects.discard_prefix(self.job.scratch)


def _reported_order(item: IndexedViolation) -> tuple[int, str, str, str, str]:
    rule, violation = item
    names = (violation.type_key, violation.entity_id, violation.property, violation.value)
    return rule, *(name or "" for name in names)  # type: ignore[return-value]
