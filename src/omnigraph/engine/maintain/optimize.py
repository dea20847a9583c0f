"""Compact the types of a branch, and build, extend and list the indexes that its schema declares.

Changes no result and deletes nothing. Data is rewritten before the commit queues for the branch, and then rebased on
concurrent writes, so that neither waits for the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Final, Literal, TypeAlias

from omnigraph.display import commit_note, count_of, summarize
from omnigraph.engine.arguments import strip_name
from omnigraph.engine.maintain import at_once, system_actor
from omnigraph.engine.maintain.repair import find_drift
from omnigraph.engine.session import GraphSession
from omnigraph.engine.tasks import ChooseRunner, Runner, Threads, graph_access, group_by_weight, report_progress
from omnigraph.engine.write.staging import LazyIntent, require_unchanged
from omnigraph.engine.write.write_authorization import require_maintenance
from omnigraph.errors import GraphError, StorageError, StorageKind
from omnigraph.ids import new_ulid
from omnigraph.lang.catalog import EdgeType, Property, Type, TypeKey
from omnigraph.limits import MAINTAIN_TASK_ROWS, OPTIMIZE_ATTEMPTS_MAX
from omnigraph.manifest.model import MAIN, Pin, Snapshot
from omnigraph.manifest.plan import CommitPolicy, Effect, Plan, Receipt
from omnigraph.public_values import Commit, PublicValue, named
from omnigraph.store.index import index_build
from omnigraph.store.index.index_build import Built, IndexKind, IndexSpec, PendingIndex, Segment
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.write import compaction
from omnigraph.store.write.compaction import Rewritten, Task, aside_claim, detached_version
from omnigraph.store.write.transaction import Change

# How a task gets the dataset that it works on.
OpenDataset: TypeAlias = Callable[[], Dataset]

# Tasks run one after the other: Lance itself uses all cores for each.
IN_TURN: Final = Threads(at_once=1)


def compact_fragments(open_dataset: OpenDataset, task: Task) -> Rewritten:
    """Execute one compaction task; files of a failed attempt stay unreferenced."""
    return compaction.execute(open_dataset(), task)


def build_segment(open_dataset: OpenDataset, segment: Segment) -> Built:
    """Build an index segment, or a part of one; parts of different versions cannot be merged."""
    return index_build.build_segment(open_dataset(), segment)


class Skip(StrEnum):
    """Why a type was not optimized."""

    DRIFT = "drift_needs_repair"
    UNREADABLE = "unreadable"
    OUTPACED = "writers_were_faster"


# What storage says of files that are missing or damaged; everything else concerns all types.
_DAMAGED: Final = (StorageKind.NOT_FOUND, StorageKind.PERMANENT, StorageKind.UNKNOWN)


class Effort(StrEnum):
    """How much is done to a type: everything, or only what its indexes miss."""

    WHOLE = "whole"
    INDEXES = "indexes"


@dataclass(frozen=True, slots=True)
class TypeOptimized(PublicValue):
    """The outcome for one type, with its version after the run and the newest one that storage holds."""

    type_key: TypeKey
    fragments_removed: int = 0
    fragments_added: int = 0
    indexes_built: int = 0
    committed: bool = False
    skipped: Skip | None = None
    published_version: int | None = field(default=None, metadata=named("published_dataset_version"))
    head_version: int | None = field(default=None, metadata=named("lance_head_version"))
    pending: tuple[PendingIndex, ...] = field(default=(), metadata=named("pending_indexes"))
    error: str | None = None


@dataclass(frozen=True, slots=True)
class OptimizeReport(PublicValue):
    """One row for each type; `commit` is None when there was nothing to do."""

    branch: str
    types: tuple[TypeOptimized, ...] = field(metadata=named("datasets"))
    commit: Commit | None

    def __repr__(self) -> str:
        removed = sum(type_.fragments_removed for type_ in self.types)
        added = sum(type_.fragments_added for type_ in self.types)
        built = sum(type_.indexes_built for type_ in self.types)
        done = (f"fragments {removed:,} -> {added:,}", f"{count_of(built, 'index')} built")
        types = count_of(sum(type_.committed for type_ in self.types), "type")
        return summarize(self, f"{types} of {len(self.types)} on {self.branch}", *done, commit_note(self.commit))


def optimize(
    session: GraphSession,
    branch: str = MAIN,
    choose_runner: ChooseRunner = lambda _: IN_TURN,
    only: Mapping[TypeKey, Effort] | None = None,
) -> OptimizeReport:
    """Compact every type of a branch, extend indexes to uncovered rows, and build missing ones.

    `choose_runner` returns the runner for tasks over a number of bytes; by default this process. `only` restricts the
    types, and the effort for each.
    """
    branch = strip_name(branch)
    require_maintenance(session, branch)
    session.kernel.reject_read_only()
    with ExitStack() as stack:
        work = _Optimize(session, branch, LazyIntent(session, "optimize", stack), choose_runner, only)
        receipt = work.run()
    pins = (receipt.snapshot if receipt else session.kernel.snapshot(branch)).state.pins
    rows = tuple(_with_versions(row, pins.get(row.type_key)) for row in work.rows)
    return OptimizeReport(branch, rows, receipt.public_commit if receipt else None)


def _with_versions(row: TypeOptimized, pin: Pin | None) -> TypeOptimized:
    """Return the row of a type with its version after the run; of one that drifted, both versions are known."""
    if pin is None or row.published_version is not None:
        return row
    return replace(row, published_version=pin.version, head_version=pin.version)


class _Outpaced(Exception):
    """The staged work of a type is outdated; stage it again without holding the branch's turn."""


@dataclass(frozen=True, slots=True)
class _Staged:
    """The finished work on one type: based on `base`, and rebased to the current version when published."""

    base: Dataset
    rewrite: Change | None
    # A handle on the rewritten fragments, whose detached version no longer exists.
    rewritten: Dataset
    indexes: Change | None
    segments: frozenset[str]

    def moved(self, table_key: TypeKey, onto: Dataset) -> Effect | None:
        """Return it as an effect on a later version; None when that is not possible."""
        if onto.ref.directory != self.base.ref.directory or index_build.segment_ids(onto) != self.segments:
            return None
        rewrite = compaction.moved(self.rewrite, self.base, self.rewritten, onto) if self.rewrite is not None else None
        if rewrite is None and self.rewrite is not None:
            return None
        changes = [rewrite] if rewrite is not None else []
        if self.indexes is not None:
            untouched = compaction.kept_fragments(self.base, onto, rewrite)
            indexes = index_build.moved(self.indexes, onto, onto.version + len(changes), untouched)
            changes += [indexes] if indexes is not None else []
        return Effect(table_key, onto, tuple(changes)) if changes else None


@dataclass
class _Optimize:
    """One run: types are staged, perhaps several times, and then published together."""

    session: GraphSession
    branch: str
    intent: LazyIntent
    choose_runner: ChooseRunner
    only: Mapping[TypeKey, Effort] | None
    _rows: dict[TypeKey, TypeOptimized] = field(default_factory=dict)
    _staged: dict[TypeKey, _Staged] = field(default_factory=dict)
    _effects: dict[TypeKey, tuple[Pin, Effect]] = field(default_factory=dict)
    _claimed: set[str] = field(default_factory=set)
    _is_last: bool = False
    _finished: int = 0
    _total: int = 0

    @property
    def rows(self) -> list[TypeOptimized]:
        return [row for _, row in sorted(self._rows.items())]

    def run(self) -> Receipt | None:
        for attempt in range(1, OPTIMIZE_ATTEMPTS_MAX + 1):
            self._is_last = attempt == OPTIMIZE_ATTEMPTS_MAX
            self._stage_missing(self.session.kernel.snapshot(self.branch))
            if not self._staged:
                return None
            try:
                return self.session.kernel.commit(self.branch, self.prepare, CommitPolicy.MAINTENANCE)
            except _Outpaced:
                continue
        raise AssertionError("the last attempt skips types that were outpaced")

    def prepare(self, snapshot: Snapshot) -> Plan | None:
        """Rebase all staged work on a snapshot. Must be quick: the branch's turn may be held meanwhile."""
        lost = [key for key in self._staged if not self._carried_over(snapshot, key)]
        for key in lost:
            self._rows[key] = TypeOptimized(key, skipped=Skip.OUTPACED)
            del self._staged[key]
            self._effects.pop(key, None)
        if lost and not self._is_last:
            raise _Outpaced
        effects = tuple(effect for _, (_, effect) in sorted(self._effects.items()))
        if not effects:
            return None
        return Plan(
            "optimize",
            effects,
            requirements=require_unchanged(self.session, snapshot, effects),
            actor=system_actor(self.session.actor, "optimize"),
            operation_id=self.intent.declare(snapshot).operation_id,
        )

    def _carried_over(self, snapshot: Snapshot, key: TypeKey) -> bool:
        pin = snapshot.state.pins.get(key)
        previous = self._effects.get(key)
        # Staged work only needs its type to exist; other changes are rebased.
        if pin is None or (previous is not None and previous[0] == pin):
            return pin is not None
        effect = self._staged[key].moved(key, self.session.kernel.writable(snapshot, key))
        if effect is None:
            return False
        self._claim(*effect.files)
        self._effects[key] = (pin, effect)
        return True

    def _claim(self, *paths: str) -> None:
        # List files individually: other writers stage in the same directories.
        new = [path for path in paths if path not in self._claimed]
        if new and self.intent.declared is not None:
            self.intent.declared.staging(*new)
            self._claimed.update(new)

    def _stage_missing(self, snapshot: Snapshot) -> None:
        types = [
            type_
            for type_ in self.session.catalog(snapshot).types
            if (self.only is None or type_.table_key in self.only) and type_.table_key not in self._staged
        ]
        # Declare the intent first: while it is alive, no sweep removes staged files.
        self.intent.declare(snapshot)
        self._finished, self._total = 0, len(types)
        self.session.kernel.store.in_parallel([partial(self._optimized, snapshot, type_) for type_ in types], at_once())

    def _optimized(self, snapshot: Snapshot, type_: Type) -> None:
        key = type_.table_key
        pin = snapshot.state.pins[key]
        try:
            drift = find_drift(self.session.kernel, snapshot, pin)
            if drift is not None:
                self._rows[key] = TypeOptimized(
                    key, skipped=Skip.DRIFT, published_version=pin.version, head_version=drift.newest
                )
            else:
                self._stage(snapshot, type_)
        except (GraphError, StorageError) as error:
            # A type that cannot be read must not keep the others from being maintained; a store that fails does.
            if isinstance(error, StorageError) and error.storage_kind not in _DAMAGED:
                raise
            self._rows[key] = TypeOptimized(key, skipped=Skip.UNREADABLE, error=error.message)
        # Not locked: progress may briefly lag by one.
        self._finished += 1
        report_progress("types optimized", self._finished, self._total)

    def _stage(self, snapshot: Snapshot, type_: Type) -> None:
        kernel, key = self.session.kernel, type_.table_key
        specs = declared_indexes(type_)
        # Checked on the inherited dataset first, so that a branch forks only datasets that change.
        inherited = kernel.dataset(snapshot, key)
        ready, pending = index_build.missing(inherited, specs)
        is_covered = all(not coverage.uncovered for coverage in index_build.coverage(inherited).values())
        is_whole = self.only is None or self.only[key] is Effort.WHOLE
        if not ready and is_covered and not (is_whole and compaction.plan(inherited)):
            self._rows[key] = TypeOptimized(key, pending=tuple(pending))
            return
        staged = self._staged_on(kernel.writable(snapshot, key), specs, is_whole)
        removed, added = compaction.fragment_counts(staged.rewrite) if staged.rewrite else (0, 0)
        self._rows[key] = TypeOptimized(key, removed, added, len(ready), True, pending=tuple(pending))
        self._staged[key] = staged

    def _staged_on(self, base: Dataset, specs: Sequence[IndexSpec], is_whole: bool) -> _Staged:
        tasks = compaction.plan(base) if is_whole else []
        self._claim(aside_claim(base))
        rewrite = compaction.rewritten(base, self._compact(base, tasks), compaction.IDS_LEFT_TO_WRITERS)
        with detached_version(base, rewrite) if rewrite is not None else nullcontext(base) as rewritten:
            shrunk = compaction.shrunk_fragments(rewrite) if rewrite is not None else frozenset()
            renewal = index_build.renewal(rewritten, specs, shrunk)
            built = self._build(rewritten, renewal.segments)
            indexes = index_build.renewed(rewritten, renewal, built)
        files = [
            f"{base.ref.directory}/{file}"
            for change in (rewrite, indexes)
            if change is not None
            for file in change.files
        ]
        self._claim(*files)
        # Publishing holds the branch's turn, so sync these files before it begins.
        base.store.sync_files(files)
        return _Staged(base, rewrite, rewritten, indexes, index_build.segment_ids(base))

    def _compact(self, dataset: Dataset, tasks: Sequence[Task]) -> list[Rewritten]:
        if not tasks:
            return []
        sizes = list(map(compaction.task_bytes, tasks))
        runner = self.choose_runner(sum(sizes))
        return runner.run("compacting", partial(compact_fragments, self._opener(runner, dataset)), tasks, sizes)

    def _build(self, dataset: Dataset, segments: Sequence[Segment]) -> list[Built]:
        if not segments:
            return []
        covered = {fragment for segment in segments for fragment in segment.fragments}
        files = (file for fragment in dataset.fragments if fragment.id in covered for file in fragment.files)
        runner = self.choose_runner(sum(file.file_size_bytes or 0 for file in files))
        work = partial(build_segment, self._opener(runner, dataset))
        if runner.engine == "local":
            return runner.run("indexing", work, segments)
        # Parts with the same IVF centroids can be merged into one segment.
        parts = [split_segment(dataset, index_build.with_centres(dataset, segment)) for segment in segments]
        built = iter(runner.run("indexing", work, [part for segment_parts in parts for part in segment_parts]))
        by_segment = [[next(built) for _ in segment_parts] for segment_parts in parts]
        return [index_build.merge_segments(dataset, built_parts) for built_parts in by_segment]

    def _opener(self, runner: Runner, dataset: Dataset) -> OpenDataset:
        """Return how tasks get a dataset: threads share its handle, executors open it by path."""
        if runner.engine == "local":
            return lambda: dataset
        kernel = self.session.kernel
        # Links of recent commits must be finished first, or their versions are not at their paths yet.
        kernel.finish_links(kernel.snapshot(self.branch))
        return partial(graph_access(kernel.store.root.uri, new_ulid()).open, dataset.ref)


def split_segment(dataset: Dataset, segment: Segment) -> list[Segment]:
    """Split a segment into parts of whole fragments that tasks build in parallel."""
    rows = {fragment.id: fragment.num_rows for fragment in dataset.fragments}
    runs = group_by_weight(segment.fragments, rows.__getitem__, MAINTAIN_TASK_ROWS)
    return [replace(segment, fragments=tuple(run)) for run in runs]


def declared_indexes(type_: Type) -> tuple[IndexSpec, ...]:
    """Return the indexes of a type: ids and endpoints always, then every indexed or singly keyed property.

    Names contain the stable property id, so that they stay unique when properties swap names.
    """
    system = tuple(IndexSpec(name, IndexKind.BTREE, f"{name}_btree") for name in ("id", *type_.ends))
    if isinstance(type_, EdgeType):
        return system
    declared = [type_.properties[columns[0]] for columns in type_.index if len(columns) == 1]
    return system + tuple(
        IndexSpec(property_.name, kind, f"p{property_.property_id}_{kind.name.lower()}")
        for property_ in declared
        for kind in _kinds(property_)
        # The id of a node is indexed already, also where it is declared as its key.
        if (property_.name, kind) != ("id", IndexKind.BTREE)
    )


def _kinds(property_: Property) -> tuple[IndexKind, ...]:
    type_ = property_.type
    if type_.is_list or type_.is_blob:
        return ()
    if type_.is_vector:
        return (IndexKind.VECTOR,)
    if type_.is_text and type_.enum_values is None:
        # A full-text index cannot answer equality, so both kinds are built.
        return (IndexKind.FULLTEXT, IndexKind.BTREE)
    return (IndexKind.BTREE,)


@dataclass(frozen=True, slots=True)
class IndexReport:
    """Indexes built by this run, and those that wait for data; `commit` is None when there was nothing to build."""

    branch: str
    built: tuple[tuple[str, IndexSpec], ...]
    pending: tuple[tuple[str, PendingIndex], ...]
    commit: Commit | None

    def __repr__(self) -> str:
        pending = f"{len(self.pending)} waiting for data" if self.pending else None
        built = f"{count_of(len(self.built), 'index')} built on {self.branch}"
        return summarize(self, built, pending, commit_note(self.commit))

    def to_json(self) -> dict[str, object]:
        return {
            "branch": self.branch,
            "built": [
                {"type_key": key, "property": spec.column, "kind": spec.kind.name.lower()} for key, spec in self.built
            ],
            "pending": [{"type_key": key, **pending.to_json()} for key, pending in self.pending],
            "commit": self.commit.to_json() if self.commit else None,
        }


@dataclass(frozen=True, slots=True)
class IndexStatus(PublicValue):
    """An index that the schema declares: `built`, `missing`, or `waiting` for the reason given."""

    type_key: TypeKey
    property: str
    kind: str
    state: Literal["built", "missing", "waiting"]
    reason: str | None = None


def list_indexes(session: GraphSession, branch: str = MAIN) -> list[IndexStatus]:
    """Return the declared indexes of the types of a branch that the actor may read."""
    view = session.view(strip_name(branch))
    return [status for type_ in view.catalog.types for status in _statuses(session, view.snapshot, type_)]


def _statuses(session: GraphSession, snapshot: Snapshot, type_: Type) -> Iterator[IndexStatus]:
    specs = declared_indexes(type_)
    ready, pending = index_build.missing(session.kernel.dataset(snapshot, type_.table_key), specs)
    reasons = {waiting.spec.name: waiting.reason for waiting in pending}
    for spec in specs:
        kind = spec.kind.name.lower()
        if spec.name in reasons:
            yield IndexStatus(type_.table_key, spec.column, kind, "waiting", reasons[spec.name])
        else:
            yield IndexStatus(type_.table_key, spec.column, kind, "missing" if spec in ready else "built")


def ensure_indices(session: GraphSession, branch: str = MAIN) -> IndexReport:
    """Build every missing index of a branch; types without rows need none, and some indexes wait for enough data."""
    branch = strip_name(branch)
    require_maintenance(session, branch)
    with ExitStack() as stack:
        work = _Ensure(session, LazyIntent(session, "ensure_indices", stack))
        receipt = session.kernel.commit(branch, work.prepare, CommitPolicy.MAINTENANCE)
    built = sorted(work.built, key=lambda index: (index[0], index[1].column, index[1].kind))
    pending = sorted(work.pending, key=lambda entry: (entry[0], entry[1].spec.column))
    return IndexReport(branch, tuple(built), tuple(pending), receipt.public_commit if receipt else None)


@dataclass
class _Ensure:
    """One run, which may be prepared several times before it is published."""

    session: GraphSession
    intent: LazyIntent
    built: list[tuple[str, IndexSpec]] = field(default_factory=list)
    pending: list[tuple[str, PendingIndex]] = field(default_factory=list)

    def prepare(self, snapshot: Snapshot) -> Plan | None:
        self.built.clear()
        self.pending.clear()
        tasks = [partial(self._effect, snapshot, type_) for type_ in self.session.catalog(snapshot).types]
        staged = self.session.kernel.store.in_parallel(tasks, at_once())
        effects = tuple(effect for effect in staged if effect is not None)
        if not effects:
            return None
        return Plan(
            "ensure_indices",
            effects,
            requirements=require_unchanged(self.session, snapshot, effects),
            actor=system_actor(self.session.actor, "ensure_indices"),
            operation_id=self.intent.declare(snapshot).operation_id,
        )

    def _effect(self, snapshot: Snapshot, type_: Type) -> Effect | None:
        key = type_.table_key
        specs = declared_indexes(type_)
        # Checked on the inherited dataset first, so that a branch forks only datasets that change.
        inherited = self.session.kernel.dataset(snapshot, key)
        ready, pending = index_build.missing(inherited, specs)
        ready = [*ready, *index_build.misleading(inherited)]
        self.pending.extend((key, waiting) for waiting in pending)
        if not ready:
            return None
        # Building may take long, so the intent is declared before anything is written.
        self.intent.declare(snapshot)
        dataset = self.session.kernel.writable(snapshot, key)
        change = index_build.build(dataset, specs)
        assert change is not None, "building an index is a change"
        self.built.extend((key, spec) for spec in ready)
        return Effect(key, dataset, (change,))


def describe_coverage(dataset: Dataset) -> Iterator[str]:
    """Report indexes that another analyser built, that claim entities they were not built on, or that lag behind."""
    indexes = sorted(index_build.coverage(dataset).items())
    again = "until `omnigraph optimize` has built the indexes again"
    if outdated := ", ".join(name for name, index in indexes if index.is_outdated):
        yield f"text indexes were built by another analyser: {outdated}; texts are analysed in memory {again}"
    if false := ", ".join(name for name, index in indexes if index.false):
        yield f"indexes claim entities that they were not built on: {false}; these are scanned {again}"
    if late := ", ".join(name for name, index in indexes if index.uncovered - index.false and not index.is_outdated):
        yield f"indexes do not cover the newest entities: {late}; run `omnigraph optimize`"
