"""Optimize: small fragments rewritten as few large ones, indexes built and brought up to date, in one commit.

Changes no result and deletes nothing. Writers that are faster win; what they did not touch keeps its staged work.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from omnigraph.engine.core import Core
from omnigraph.engine.index import wanted_indexes
from omnigraph.engine.maintain import progress
from omnigraph.engine.maintain.drift import drifted_head
from omnigraph.engine.maintain.workers import Chain, ThisProcess, Workers
from omnigraph.engine.scope import on
from omnigraph.engine.write.gate import admit
from omnigraph.ids import OperationId
from omnigraph.lang.catalog import EdgeType, NodeType
from omnigraph.limits import OPTIMIZE_ATTEMPTS_MAX
from omnigraph.manifest.intent import Declared, declared
from omnigraph.manifest.model import MAIN, Commit, Pin, Snapshot
from omnigraph.manifest.plan import Effect, Plan, Work
from omnigraph.manifest.requirements import PinIs, SchemaIs
from omnigraph.store import compact, index
from omnigraph.store.index import PendingIndex
from omnigraph.store.store import StaleBase


class Skip(StrEnum):
    """Why a type was left as it is."""

    DRIFT = "drift_needs_repair"
    OUTPACED = "writers_were_faster"


class Effort(StrEnum):
    """How much is done to a type: everything, or only what its indexes miss."""

    WHOLE = "whole"
    INDEXES = "indexes"


@dataclass(frozen=True, slots=True)
class TypeOptimized:
    """What became of one type; both versions are told only when it drifted."""

    type_key: str
    fragments_removed: int = 0
    fragments_added: int = 0
    indexes_built: int = 0
    committed: bool = False
    skipped: Skip | None = None
    published_version: int | None = None
    head_version: int | None = None
    pending: tuple[PendingIndex, ...] = ()

    def to_json(self) -> dict[str, object]:
        return {
            "type_key": self.type_key,
            "fragments_removed": self.fragments_removed,
            "fragments_added": self.fragments_added,
            "indexes_built": self.indexes_built,
            "committed": self.committed,
            "skipped": self.skipped.value if self.skipped else None,
            "published_dataset_version": self.published_version,
            "lance_head_version": self.head_version,
            "pending_indexes": [{"property": one.spec.column, "reason": one.reason} for one in self.pending],
        }


@dataclass(frozen=True, slots=True)
class OptimizeReport:
    """One row for each type; `commit` is None when there was nothing to do."""

    branch: str
    types: tuple[TypeOptimized, ...]
    commit: Commit | None

    def to_json(self) -> dict[str, object]:
        return {
            "branch": self.branch,
            "commit": self.commit.commit_id if self.commit else None,
            "datasets": [one.to_json() for one in self.types],
        }


def optimize(
    core: Core,
    branch: str = MAIN,
    actor: str | None = None,
    workers: Workers | None = None,
    only: Mapping[str, Effort] | None = None,
) -> OptimizeReport:
    """Compact every type of a branch, cover what indexes miss, and build those that are declared and missing.

    `workers` execute the tasks; by default it is this process. `only` names the types that are looked after, and how.
    """
    branch = branch.strip()
    core = admit(core, "change", on(branch), actor)
    with ExitStack() as stack:
        work = _Optimize(core, core.actor, stack, workers or ThisProcess(), only)
        receipt = core.kernel.commit(branch, work.prepare, Work.MAINTENANCE)
    # All types are looked after; of those that the actor may not see, nothing is told.
    seen = core.seen(core.kernel.snapshot(branch)).snapshot.state.pins
    rows = tuple(row for row in work.rows if row.type_key in seen)
    return OptimizeReport(branch, rows, receipt.commit if receipt else None)


class _Optimize:
    """One run, which may be prepared several times before it is published."""

    def __init__(
        self,
        core: Core,
        actor: str | None,
        stack: ExitStack,
        workers: Workers,
        only: Mapping[str, Effort] | None,
    ) -> None:
        self.core = core
        self.only = only
        self.actor = actor
        self.workers = workers
        self.rows: list[TypeOptimized] = []
        self._stack = stack
        self._held: Declared | None = None
        self._staged: dict[str, tuple[Pin, Effect | None, TypeOptimized]] = {}
        self._attempts: dict[str, int] = {}
        self._done = self._total = 0

    def prepare(self, snapshot: Snapshot) -> Plan | None:
        catalog = self.core.catalog(snapshot)
        types: list[NodeType | EdgeType] = [*catalog.nodes.values(), *catalog.edges.values()]
        types = [one for one in types if self.only is None or one.table_key in self.only]
        # The intent comes first: while it lives, no sweep takes away what is staged from now on.
        operation_id = self._declare(snapshot)
        self._done, self._total = 0, len(types)
        tasks = [partial(self._optimized, snapshot, one) for one in sorted(types, key=lambda one: one.table_key)]
        results = self.core.kernel.store.in_parallel(tasks)
        effects = tuple(effect for effect, _ in results if effect is not None)
        self.rows = [row for _, row in results]
        if not effects:
            return None
        pins = tuple(PinIs(one.table_key, snapshot.state.pins[one.table_key].version) for one in effects)
        return Plan(
            "optimize",
            effects,
            requirements=(SchemaIs(catalog.ir_hash), *pins),
            actor=self.actor,
            operation_id=operation_id,
        )

    def _declare(self, snapshot: Snapshot) -> OperationId:
        if self._held is None:
            held = declared(self.core.kernel.store, "optimize", snapshot, self.actor)
            self._held = self._stack.enter_context(held)
        return self._held.operation_id

    def _optimized(self, snapshot: Snapshot, one: NodeType | EdgeType) -> tuple[Effect | None, TypeOptimized]:
        result = self._prepared(snapshot, one)
        # Several threads count; a bar that is one behind for a moment harms nobody.
        self._done += 1
        progress.tell("types optimized", self._done, self._total)
        return result

    def _prepared(self, snapshot: Snapshot, one: NodeType | EdgeType) -> tuple[Effect | None, TypeOptimized]:
        key = one.table_key
        pin = snapshot.state.pins[key]
        known = self._staged.get(key)
        # Staged work starts at a version; while the type is still there, it does not matter what else has moved.
        if known is not None and known[0] == pin:
            return known[1], known[2]
        head = drifted_head(self.core.kernel, snapshot, pin)
        if head is not None:
            row = TypeOptimized(key, skipped=Skip.DRIFT, published_version=pin.version, head_version=head)
            return None, row
        self._attempts[key] = self._attempts.get(key, 0) + 1
        if self._attempts[key] > OPTIMIZE_ATTEMPTS_MAX:
            return None, TypeOptimized(key, skipped=Skip.OUTPACED)
        effect, row = self._stage(snapshot, one)
        self._staged[key] = (pin, effect, row)
        return effect, row

    def _stage(self, snapshot: Snapshot, one: NodeType | EdgeType) -> tuple[Effect | None, TypeOptimized]:
        kernel, key = self.core.kernel, one.table_key
        specs = wanted_indexes(one)
        # Asked of the inherited dataset first, so that a branch forks only what it really changes.
        inherited = kernel.dataset(snapshot, key)
        ready, pending = index.missing(inherited, specs)
        is_covered = all(not coverage.uncovered for coverage in index.coverage(inherited).values())
        is_whole = self.only is None or self.only[key] is Effort.WHOLE
        if not ready and is_covered and not (is_whole and compact.plan(inherited)):
            return None, TypeOptimized(key, pending=tuple(pending))
        chain = Chain(kernel.writable(snapshot, key))
        try:
            tasks = compact.plan(chain.base) if is_whole else []
            rewritten = compact.rewritten(chain.base, self.workers.compact(chain.base, tasks))
            chain.add(rewritten)
            renewal = index.renewal(chain.dataset, specs)
            chain.add(index.renewed(chain.dataset, renewal, self.workers.index(chain, renewal.wanted)))
        except StaleBase:
            # A writer is moving this type right now. It wins; the type's turn comes when the plan is prepared again.
            return None, TypeOptimized(key, skipped=Skip.OUTPACED)
        removed, added = compact.fragment_counts(rewritten) if rewritten else (0, 0)
        row = TypeOptimized(key, removed, added, len(ready), True, pending=tuple(pending))
        effect = chain.effect(key)
        if effect is not None and self._held is not None:
            # Named one by one, because writers stage in the same directories.
            self._held.staging(*effect.files)
        return effect, row
