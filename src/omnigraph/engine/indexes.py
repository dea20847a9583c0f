"""Derive the indexes of a schema and build missing ones. An index never changes a result."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from typing import Literal

from omnigraph.display import commit_note, count_of, summarize
from omnigraph.engine.arguments import strip_name
from omnigraph.engine.maintain import at_once, system_actor
from omnigraph.engine.session import GraphSession
from omnigraph.engine.write.write_authorization import require_maintenance
from omnigraph.lang.catalog import EdgeType, NodeType, Property, Scalar, TypeKey
from omnigraph.manifest.intents import Declared, declared
from omnigraph.manifest.model import MAIN, Snapshot
from omnigraph.manifest.plan import CommitPolicy, Effect, Plan
from omnigraph.manifest.requirements import PinIs, SchemaIs
from omnigraph.public_values import Commit
from omnigraph.store.index.index_build import IndexKind, IndexSpec, PendingIndex, build, coverage, misleading, missing
from omnigraph.store.read.dataset import Dataset


def declared_indexes(type_: NodeType | EdgeType) -> tuple[IndexSpec, ...]:
    """Return the indexes of a type: ids and endpoints always, then every indexed or singly keyed property.

    Names contain the stable property id, so that they stay unique when properties swap names.
    """
    if isinstance(type_, EdgeType):
        return tuple(_column(name) for name in ("id", "src", "dst"))
    declared = [type_.properties[columns[0]] for columns in type_.index if len(columns) == 1]
    return (_column("id"), *(spec for property_ in declared for spec in _property(property_)))


def _column(name: str) -> IndexSpec:
    return IndexSpec(name, IndexKind.BTREE, f"{name}_btree")


def _property(property_: Property) -> Iterator[IndexSpec]:
    for kind in _kinds(property_):
        yield IndexSpec(property_.name, kind, f"p{property_.property_id}_{kind.name.lower()}")


def _kinds(property_: Property) -> tuple[IndexKind, ...]:
    type_ = property_.type
    if type_.is_list or type_.scalar is Scalar.BLOB:
        return ()
    if type_.scalar is Scalar.VECTOR:
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
class IndexStatus:
    """An index that the schema declares: `built`, `missing`, or `waiting` for the reason given."""

    type_key: TypeKey
    property: str
    kind: str
    state: Literal["built", "missing", "waiting"]
    reason: str | None = None

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def list_indexes(session: GraphSession, branch: str = MAIN) -> list[IndexStatus]:
    """Return the declared indexes of the types of a branch that the actor may read."""
    view = session.view(strip_name(branch))
    return [status for type_ in view.catalog.types for status in _statuses(session, view.snapshot, type_)]


def _statuses(session: GraphSession, snapshot: Snapshot, type_: NodeType | EdgeType) -> Iterator[IndexStatus]:
    specs = declared_indexes(type_)
    ready, pending = missing(session.kernel.dataset(snapshot, type_.table_key), specs)
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
        work = _Ensure(session, stack)
        receipt = session.kernel.commit(branch, work.prepare, CommitPolicy.MAINTENANCE)
    built = sorted(work.built, key=lambda index: (index[0], index[1].column, index[1].kind))
    pending = sorted(work.pending, key=lambda entry: (entry[0], entry[1].spec.column))
    return IndexReport(branch, tuple(built), tuple(pending), receipt.public_commit if receipt else None)


class _Ensure:
    """One run, which may be prepared several times before it is published."""

    def __init__(self, session: GraphSession, stack: ExitStack) -> None:
        self.session = session
        self._stack = stack
        self._intent: Declared | None = None
        self._lock = threading.Lock()
        self.built: list[tuple[str, IndexSpec]] = []
        self.pending: list[tuple[str, PendingIndex]] = []

    def prepare(self, snapshot: Snapshot) -> Plan | None:
        self.built.clear()
        self.pending.clear()
        catalog = self.session.catalog(snapshot)
        tasks = [partial(self._effect, snapshot, type_) for type_ in catalog.types]
        staged = self.session.kernel.store.in_parallel(tasks, at_once())
        effects = tuple(effect for effect in staged if effect is not None)
        if not effects or self._intent is None:
            return None
        pins = tuple(PinIs(effect.table_key, snapshot.state.pins[effect.table_key].version) for effect in effects)
        return Plan(
            "ensure_indices",
            effects,
            requirements=(SchemaIs(catalog.ir_hash), *pins),
            actor=system_actor(self.session.actor, "ensure_indices"),
            operation_id=self._intent.operation_id,
        )

    def _declare(self, snapshot: Snapshot) -> None:
        """Say that there is something to build, which may take long, before anything is written for it."""
        with self._lock:
            if self._intent is None:
                intent = declared(self.session.kernel.store, "ensure_indices", snapshot, self.session.actor)
                self._intent = self._stack.enter_context(intent)

    def _effect(self, snapshot: Snapshot, type_: NodeType | EdgeType) -> Effect | None:
        key = type_.table_key
        specs = declared_indexes(type_)
        # Checked on the inherited dataset first, so that a branch forks only datasets that change.
        inherited = self.session.kernel.dataset(snapshot, key)
        ready, pending = missing(inherited, specs)
        ready = [*ready, *misleading(inherited)]
        self.pending.extend((key, waiting) for waiting in pending)
        if not ready:
            return None
        self._declare(snapshot)
        dataset = self.session.kernel.writable(snapshot, key)
        change = build(dataset, specs)
        assert change is not None, "building an index is a change"
        self.built.extend((key, spec) for spec in ready)
        return Effect(key, dataset, (change,))


def describe_coverage(dataset: Dataset) -> Iterator[str]:
    """Report indexes that another analyser built, that cover entities newer than themselves, or that lag behind."""
    coverages = coverage(dataset)
    outdated = sorted(name for name, index in coverages.items() if index.is_outdated)
    if outdated:
        yield (
            f"text indexes were built by another analyser: {', '.join(outdated)}; texts are analysed in memory until"
            " `omnigraph optimize` has built the indexes again"
        )
    false = sorted(name for name, index in coverages.items() if index.false)
    if false:
        yield (
            f"indexes claim entities that they were not built on: {', '.join(false)}; these are scanned until"
            " `omnigraph optimize` has built the indexes again"
        )
    uncovered = sorted(
        name for name, index in coverages.items() if index.uncovered - index.false and not index.is_outdated
    )
    if uncovered:
        yield f"indexes do not cover the newest entities: {', '.join(uncovered)}; run `omnigraph optimize`"
