"""Reconcile: one round of all that keeps a graph in order by itself, at most by one process at a time.

Finishes links, settles dead work, and optimizes the types that are past a threshold. Removes no version, and no residue
but that of dead work.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice

from omnigraph.engine.core import Core
from omnigraph.engine.index import wanted_indexes
from omnigraph.engine.maintain.optimize import Effort, optimize
from omnigraph.engine.scope import GRAPH
from omnigraph.engine.write.gate import admit
from omnigraph.errors import DriftDetected, GraphError
from omnigraph.lang.catalog import EdgeType, NodeType
from omnigraph.limits import (
    RECONCILE_FRAGMENTS_MAX,
    RECONCILE_ROWS_MAX,
    RECONCILE_TYPES_MAX,
    RECONCILE_UNCOVERED_ROWS_MAX,
)
from omnigraph.manifest.intent import Busy, alone
from omnigraph.manifest.model import MAIN, Snapshot
from omnigraph.manifest.sweep import SweepReport, finish_links, resolve_intents
from omnigraph.store import index
from omnigraph.store.change import ROWS_PER_FILE
from omnigraph.store.dataset import Dataset, DatasetRef

RECONCILE = "reconcile"


@dataclass(frozen=True, slots=True)
class ReconcileReport:
    """What one round did; types are told as `branch type`.

    `deferred` ones come in the next round, `left` ones are too large for this and wait for `optimize`.
    """

    is_claimed: bool = False
    links_finished: int = 0
    rolled_forward: int = 0
    rolled_back: int = 0
    compacted: tuple[str, ...] = ()
    folded: tuple[str, ...] = ()
    deferred: int = 0
    left: tuple[str, ...] = ()
    drifted: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        names = ("links_finished", "rolled_forward", "rolled_back", "deferred")
        lists = ("compacted", "folded", "left", "drifted", "unreadable")
        return {
            "skipped": "claimed" if self.is_claimed else None,
            **{name: getattr(self, name) for name in names},
            **{name: list(getattr(self, name)) for name in lists},
        }


@dataclass(frozen=True, slots=True)
class _Due:
    """A type that is past a threshold; `effort` is None when it is too large to be dealt with here."""

    branch: str
    type_key: str
    effort: Effort | None

    def __str__(self) -> str:
        return f"{self.branch} {self.type_key}"


class Reconciliation:
    """Rounds over one graph; what was found in order is not looked at again until it changes."""

    def __init__(self, core: Core, actor: str | None = None) -> None:
        self._core = admit(core, "admin", GRAPH, actor)
        self._in_order: set[DatasetRef] = set()

    def run(self) -> ReconcileReport:
        """Do one round, or nothing while another process does one."""
        core, kernel = self._core, self._core.kernel
        # A policy may have changed since the last round.
        core.require("admin", GRAPH)
        kernel.refuse_read_only()
        with ExitStack() as stack:
            try:
                stack.enter_context(alone(kernel.store, RECONCILE, kernel.snapshot(MAIN), core.actor))
            except Busy as busy:
                return ReconcileReport(is_claimed=True, unreadable=busy.unreadable)
            swept = SweepReport()
            finish_links(kernel, swept)
            resolve_intents(kernel, swept)
            found = list(self._due(core))
            due = [one for one in found if one.effort is not None]
            done = list(islice(due, RECONCILE_TYPES_MAX))
            compacted, folded = _optimize(core, done)
        return ReconcileReport(
            False,
            swept.links_finished,
            swept.rolled_forward,
            swept.rolled_back,
            compacted,
            folded,
            len(due) - len(done),
            tuple(str(one) for one in found if one.effort is None),
            tuple(swept.drifted),
            tuple(swept.unreadable),
        )

    def _due(self, core: Core) -> Iterator[_Due]:
        held: set[DatasetRef] = set()
        for snapshot in core.kernel.live_snapshots():
            catalog = core.catalog(snapshot)
            types: list[NodeType | EdgeType] = [*catalog.nodes.values(), *catalog.edges.values()]
            for one in types:
                pin = snapshot.state.pins[one.table_key]
                # What a branch only inherits is in the hands of whoever it comes from.
                if pin.owner != snapshot.state.branch_id and snapshot.branch != MAIN:
                    continue
                held.add(pin.ref)
                if pin.ref in self._in_order:
                    continue
                try:
                    found = _judge(core, snapshot, one)
                except DriftDetected:
                    # Reported with the links. Repair may settle it without another version, so it is not in order yet.
                    continue
                if found is None:
                    self._in_order.add(pin.ref)
                else:
                    yield found
        self._in_order &= held


def _judge(core: Core, snapshot: Snapshot, one: NodeType | EdgeType) -> _Due | None:
    dataset = core.kernel.dataset(snapshot, one.table_key)
    small = [rows for rows in dataset.fragment_rows if rows < ROWS_PER_FILE]
    uncovered = _uncovered_rows(dataset, one)
    if len(small) > RECONCILE_FRAGMENTS_MAX:
        effort, rows = Effort.WHOLE, max(sum(small), uncovered)
    elif uncovered > RECONCILE_UNCOVERED_ROWS_MAX:
        effort, rows = Effort.INDEXES, uncovered
    else:
        return None
    return _Due(snapshot.branch, one.table_key, effort if rows <= RECONCILE_ROWS_MAX else None)


def _uncovered_rows(dataset: Dataset, one: NodeType | EdgeType) -> int:
    """Return how many rows the most incomplete index misses; one that cannot be built yet misses none."""
    specs = wanted_indexes(one)
    _, pending = index.missing(dataset, specs)
    waiting = {late.spec for late in pending}
    rows = (index.unindexed_rows(dataset, spec.column, spec.kind) for spec in specs if spec not in waiting)
    return max(rows, default=0)


def _optimize(core: Core, due: list[_Due]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    done: dict[Effort, list[str]] = {Effort.WHOLE: [], Effort.INDEXES: []}
    for branch in dict.fromkeys(one.branch for one in due):
        efforts = {one.type_key: one.effort for one in due if one.branch == branch and one.effort is not None}
        try:
            report = optimize(core, branch, only=efforts)
        except GraphError as error:
            # A branch that was deleted meanwhile needs nothing any more.
            if error.code != "branch.not_found":
                raise
            continue
        for row in report.types:
            if row.committed:
                done[efforts[row.type_key]].append(f"{branch} {row.type_key}")
    return tuple(done[Effort.WHOLE]), tuple(done[Effort.INDEXES])
