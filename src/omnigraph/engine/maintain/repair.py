"""Repair drift: versions that other tools wrote directly to a dataset are reported, then adopted or discarded.

Rewrites no data: adopting publishes the existing version, discarding deletes its manifest.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import ClassVar

from omnigraph.engine.arguments import strip_name
from omnigraph.engine.authorization import GRAPH
from omnigraph.engine.maintain import system_actor
from omnigraph.engine.session import GraphSession
from omnigraph.errors import UsageError, VersionMismatch
from omnigraph.ids import OperationId
from omnigraph.lang.catalog import TypeKey
from omnigraph.manifest import recovery
from omnigraph.manifest.intents import exclusive_intent
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, Pin, Snapshot
from omnigraph.manifest.plan import CommitPolicy, Plan
from omnigraph.manifest.publish import is_drifted
from omnigraph.manifest.recovery import AuditRow, Outcome
from omnigraph.manifest.requirements import HeadIs, PinIs, Requirement
from omnigraph.manifest.updates import SetVersion
from omnigraph.public_values import Commit, PublicValue, named
from omnigraph.store.files.versions import operations
from omnigraph.store.read.dataset import Dataset


def drifted_head(kernel: Kernel, snapshot: Snapshot, pin: Pin) -> int | None:
    """Return the newest version of a dataset that another tool has moved by path; None if it has not drifted.

    A concurrent writer of the graph moves a dataset too, so the catalog is checked as well. Inherited data is checked
    on the branch that owns it: writers of this branch fork the pinned version under a new name.
    """
    if pin.owner != snapshot.state.branch_id:
        return None
    if not kernel.links.is_displaced(snapshot, pin) and not is_drifted(kernel.store, snapshot.ref, pin.ref):
        return None
    return kernel.store.open_latest(pin.path, pin.fork).version


MAINTENANCE = frozenset({"Rewrite", "ReserveFragments"})


_DISPLACED = "it has the number of a version that the graph has published; it can only be discarded"


class Classification(StrEnum):
    NO_DRIFT = "no_drift"
    VERIFIED = "verified_maintenance"
    SUSPICIOUS = "suspicious"
    UNVERIFIABLE = "unverifiable"


class Action(StrEnum):
    NO_OP = "no_op"
    PREVIEW = "preview"
    HEALED = "healed"
    FORCED = "forced"
    DISCARDED = "discarded"
    REFUSED = "refused"


SETTLED = (Action.HEALED, Action.FORCED, Action.DISCARDED)


@dataclass(frozen=True, slots=True)
class TypeRepaired(PublicValue):
    """The finding for one type, and the action taken."""

    type_key: TypeKey
    published_version: int = field(metadata=named("published_dataset_version"))
    head_version: int = field(metadata=named("lance_head_version"))
    classification: Classification
    action: Action
    operations: tuple[str, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class RepairReport(PublicValue):
    """One row for each type; `commit` is None if nothing was adopted."""

    computed: ClassVar = {"manifest_version": "graph_manifest_version"}
    branch: str
    types: tuple[TypeRepaired, ...] = field(metadata=named("datasets"))
    commit: Commit | None

    @property
    def is_refused(self) -> bool:
        return any(type_.action is Action.REFUSED for type_ in self.types)

    @property
    def manifest_version(self) -> int | None:
        return self.commit.manifest_version if self.commit else None


def repair(session: GraphSession, branch: str = MAIN, *, confirm: bool, force: bool, discard: bool) -> RepairReport:
    """Report drift; with `confirm` adopt verified maintenance, with `force` everything, with `discard` nothing."""
    session.require("admin", GRAPH)
    if (force or discard) and not confirm:
        raise UsageError("`force` and `discard` change the graph; pass `confirm` as well")
    if force and discard:
        raise UsageError("`force` adopts drift and `discard` removes it; pass only one of them")
    branch = strip_name(branch)
    kernel, snapshot = session.kernel, session.kernel.snapshot(branch)
    if not confirm:
        return RepairReport(branch, tuple(_classify_all(kernel, snapshot)), None)
    kernel.reject_read_only()
    # Exclusive: concurrent repairs could adopt and discard the same version.
    with exclusive_intent(kernel.store, "repair", snapshot, session.actor) as intent:
        snapshot = kernel.snapshot(branch)
        rows = [_decide(row, force, discard) for row in _classify_all(kernel, snapshot)]
        for row in rows:
            if row.action is Action.DISCARDED:
                _discard(kernel, snapshot, row)
        by = system_actor(session.actor, "repair:force" if force else "repair")
        commit = _adopt(kernel, snapshot, rows, by, intent.operation_id)
        if any(row.action in SETTLED for row in rows):
            commit_id = commit.commit_id if commit else None
            recovery.record_outcome(
                kernel.store, AuditRow(intent.operation_id, Outcome.REPAIRED, commit_id, by, "repair")
            )
    return RepairReport(branch, tuple(rows), commit)


def _classify_all(kernel: Kernel, snapshot: Snapshot) -> list[TypeRepaired]:
    return [_classify_drift(kernel, snapshot, pin) for _, pin in sorted(snapshot.state.pins.items())]


def _classify_drift(kernel: Kernel, snapshot: Snapshot, pin: Pin) -> TypeRepaired:
    head = drifted_head(kernel, snapshot, pin)
    if head is None:
        return TypeRepaired(pin.table_key, pin.version, pin.version, Classification.NO_DRIFT, Action.NO_OP)
    newest = kernel.store.open_latest(pin.path, pin.fork)
    is_displaced = kernel.links.is_displaced(snapshot, pin)
    foreign = operations(newest, pin.version - 1 if is_displaced else pin.version)
    if None in foreign:
        classification = Classification.UNVERIFIABLE
    elif set(foreign) <= MAINTENANCE and not is_displaced:
        classification = Classification.VERIFIED
    else:
        classification = Classification.SUSPICIOUS
    named = tuple(operation or "unknown" for operation in foreign)
    error = _DISPLACED if is_displaced else _misfit(kernel.dataset(snapshot, pin.table_key), newest)
    return TypeRepaired(pin.table_key, pin.version, newest.version, classification, Action.PREVIEW, named, error)


def _misfit(published: Dataset, newest: Dataset) -> str | None:
    """Say why the graph could not read a foreign version; None: it could."""
    if not newest.schema.equals(published.schema, check_metadata=True) or newest.field_ids != published.field_ids:
        return "its columns are no longer those of the type; it can only be discarded"
    return None if newest.lance.has_stable_row_ids else "its rows have lost their ids; it can only be discarded"


def _decide(row: TypeRepaired, force: bool, discard: bool) -> TypeRepaired:
    if row.classification is Classification.NO_DRIFT:
        return row
    if discard:
        return replace(row, action=Action.DISCARDED)
    if row.error is not None:
        return replace(row, action=Action.REFUSED)
    if row.classification is Classification.VERIFIED:
        return replace(row, action=Action.HEALED)
    return replace(row, action=Action.FORCED if force else Action.REFUSED)


def _discard(kernel: Kernel, snapshot: Snapshot, row: TypeRepaired) -> None:
    """Remove foreign versions, newest first; their files become orphans, which a sweep removes."""
    pin = snapshot.state.pins[row.type_key]
    # A commit published since the check may depend on the version to be discarded.
    if kernel.snapshot(snapshot.branch).state.pins.get(row.type_key) != pin:
        raise VersionMismatch(
            f"`{row.type_key}` was published again while it was being repaired; nothing of it was discarded. Look at"
            " it again with `omnigraph repair`",
            type_key=row.type_key,
            expected=pin.version,
        )
    is_displaced = kernel.links.is_displaced(snapshot, pin)
    last = pin.version if is_displaced else pin.version + 1
    refs = [pin.ref.at(version) for version in range(row.head_version, last - 1, -1)]
    for ref in refs:
        kernel.store.objects.delete(ref.manifest_path)
    kernel.store.forget(refs)
    if is_displaced:
        kernel.finish_links(snapshot)


def _adopt(
    kernel: Kernel, snapshot: Snapshot, rows: list[TypeRepaired], actor: str, operation_id: OperationId
) -> Commit | None:
    adopted = [row for row in rows if row.action in (Action.HEALED, Action.FORCED)]
    if not adopted:
        return None

    def prepare(current: Snapshot) -> Plan:
        updates, pins = [], []
        for row in adopted:
            pin = current.state.pins[row.type_key]
            head = kernel.store.open(pin.ref.at(row.head_version))
            updates.append(SetVersion(row.type_key, row.head_version, pin.fork, head.count()))
            pins.append(PinIs(row.type_key, row.published_version))
        requirements: tuple[Requirement, ...] = (HeadIs(snapshot.head), *pins)
        return Plan("repair", (), tuple(updates), requirements, actor, operation_id=operation_id)

    receipt = kernel.commit(snapshot.branch, prepare, CommitPolicy.CHANGE)
    return receipt.public_commit if receipt else None
