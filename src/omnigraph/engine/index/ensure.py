"""Builds the indexes that a schema wants and the data does not have, and again those that claim what they do not know.

One transaction a dataset, one commit for all. Maintenance: it may be prepared again when writers are faster, and finds
nothing to do when someone else was.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from functools import partial

from omnigraph.engine.core import Core
from omnigraph.engine.index.report import IndexReport
from omnigraph.engine.index.wanted import wanted_indexes
from omnigraph.engine.maintain.system import at_once, system_actor
from omnigraph.engine.scope import on
from omnigraph.engine.write.gate import admit
from omnigraph.lang.catalog import EdgeType, NodeType
from omnigraph.manifest.intent import Declared, declared
from omnigraph.manifest.model import MAIN, Snapshot
from omnigraph.manifest.plan import Effect, Plan, Work
from omnigraph.manifest.requirements import PinIs, SchemaIs
from omnigraph.store.index import IndexSpec, PendingIndex, build, misleading, missing


def ensure_indices(core: Core, branch: str = MAIN, actor: str | None = None) -> IndexReport:
    """Build every missing index of a branch; a type without rows needs none, one that must wait for data is pending."""
    branch = branch.strip()
    core = admit(core, "change", on(branch), actor)
    with ExitStack() as stack:
        work = _Ensure(core, core.actor, stack)
        receipt = core.kernel.commit(branch, work.prepare, Work.MAINTENANCE)
    # All types are looked after; of those that the actor may not see, nothing is told.
    seen = core.seen(receipt.snapshot if receipt else core.kernel.snapshot(branch)).snapshot.state.pins
    built = sorted((one for one in work.built if one[0] in seen), key=lambda one: (one[0], one[1].column, one[1].kind))
    pending = sorted((one for one in work.pending if one[0] in seen), key=lambda one: (one[0], one[1].spec.column))
    return IndexReport(branch, tuple(built), tuple(pending), receipt.commit if receipt else None)


class _Ensure:
    """One run, which may be prepared several times before it is published."""

    def __init__(self, core: Core, actor: str | None, stack: ExitStack) -> None:
        self.core = core
        self.actor = actor
        self._stack = stack
        self._held: Declared | None = None
        self._lock = threading.Lock()
        self.built: list[tuple[str, IndexSpec]] = []
        self.pending: list[tuple[str, PendingIndex]] = []

    def prepare(self, snapshot: Snapshot) -> Plan | None:
        self.built.clear()
        self.pending.clear()
        catalog = self.core.catalog(snapshot)
        types: list[NodeType | EdgeType] = [*catalog.nodes.values(), *catalog.edges.values()]
        tasks = [partial(self._effect, snapshot, one) for one in types]
        effects = tuple(one for one in self.core.kernel.store.in_parallel(tasks, at_once()) if one is not None)
        if not effects or self._held is None:
            return None
        pins = tuple(PinIs(one.table_key, snapshot.state.pins[one.table_key].version) for one in effects)
        return Plan(
            "ensure_indices",
            effects,
            requirements=(SchemaIs(catalog.ir_hash), *pins),
            actor=system_actor(self.actor, "ensure_indices"),
            operation_id=self._held.operation_id,
        )

    def _declare(self, snapshot: Snapshot) -> None:
        """Say that there is something to build, which may take long, before anything is written for it."""
        with self._lock:
            if self._held is None:
                held = declared(self.core.kernel.store, "ensure_indices", snapshot, self.actor)
                self._held = self._stack.enter_context(held)

    def _effect(self, snapshot: Snapshot, one: NodeType | EdgeType) -> Effect | None:
        key = one.table_key
        specs = wanted_indexes(one)
        # Asked of the inherited dataset first, so that a branch forks only what it really changes.
        inherited = self.core.kernel.dataset(snapshot, key)
        ready, pending = missing(inherited, specs)
        ready = [*ready, *misleading(inherited)]
        self.pending.extend((key, waiting) for waiting in pending)
        if not ready:
            return None
        self._declare(snapshot)
        dataset = self.core.kernel.writable(snapshot, key)
        change = build(dataset, specs)
        assert change is not None, "what is ready to be built is a change"
        self.built.extend((key, spec) for spec in ready)
        return Effect(key, dataset, (change,))
