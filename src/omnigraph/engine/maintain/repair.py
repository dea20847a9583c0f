"""Repair drift: versions that other tools wrote to, or removed from, a dataset are reported, adopted or discarded.

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
from omnigraph.errors import StorageError, StorageKind, UsageError, VersionMismatch
from omnigraph.ids import OperationId
from omnigraph.lang.catalog import Type, TypeKey
from omnigraph.lang.schema.arrow_schema import arrow_schema
from omnigraph.manifest import recovery
from omnigraph.manifest.intents import exclusive_intent
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, Pin, Snapshot
from omnigraph.manifest.plan import CommitPolicy, Plan
from omnigraph.manifest.publish import is_overtaken
from omnigraph.manifest.recovery import AuditRow, Outcome
from omnigraph.manifest.requirements import HeadIs, PinIs, Requirement
from omnigraph.manifest.updates import SetVersion
from omnigraph.public_values import Commit, PublicValue, named
from omnigraph.store.files.manifest_file import UnknownManifest
from omnigraph.store.files.reachability import StoredManifest, missing_files, stored_versions
from omnigraph.store.files.versions import operations
from omnigraph.store.lance_schema import physical_schema
from omnigraph.store.read.dataset import Dataset


@dataclass(frozen=True, slots=True)
class Drift:
    """The stored versions of a dataset that other tools have changed: something newer than the pin, or no pin.

    `is_displaced`: a foreign version has the path of a published one. `is_lost`: the published version is gone.
    """

    newest: int
    is_displaced: bool = False
    is_lost: bool = False


def find_drift(kernel: Kernel, snapshot: Snapshot, pin: Pin) -> Drift | None:
    """Compare a pin with the versions that storage lists; None if no other tool has changed the dataset.

    A concurrent writer of the graph moves a dataset too, so the catalog is checked as well. Newer versions of inherited
    data are checked on the branch that owns it: writers of this branch fork the pinned version under a new name.
    """
    is_displaced = kernel.links.is_displaced(snapshot, pin)
    versions = stored_versions(kernel.store, pin.path, pin.fork)
    newest = max(versions, default=0)
    is_lost = pin.version not in versions and kernel.links.is_lost(snapshot, pin)
    is_moved = pin.owner == snapshot.state.branch_id and (is_displaced or newest > pin.version)
    # The catalog is read last: whatever a writer of the graph links, it has published before.
    if not (is_moved or is_lost) or (not is_displaced and is_overtaken(kernel.store, snapshot.ref)):
        return None
    return Drift(newest, is_displaced, is_lost)


MAINTENANCE = frozenset({"Rewrite", "ReserveFragments"})


_DISPLACED = "it has the number of a version that the graph has published; it can only be discarded"
_OTHER_COLUMNS = "its columns are no longer those of the type; it can only be discarded"
_NO_ROW_IDS = "its rows have lost their ids; it can only be discarded"
_UNREADABLE = "its newest version cannot be read; it can only be discarded"
_LOST = "files of the published version are missing or damaged"
_NOT_NEWER = f"{_LOST}, and storage holds no newer version; restore the dataset from a clone or a backup"
_NEWEST_DAMAGED = f"{_LOST}, and so is the newest version; restore the dataset from a clone or a backup"
_NOT_OWNED = f"{_LOST}, which another branch owns; restore the dataset from a clone or a backup, or delete this branch"
_NOT_DISCARDED = f"{_LOST}, so nothing would remain of the type; adopt the newest version with `force`"


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
    is_lost: bool = field(default=False, metadata=named("published_version_lost"))


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
        return RepairReport(branch, tuple(_classify_all(session, snapshot)), None)
    kernel.reject_read_only()
    # Exclusive: concurrent repairs could adopt and discard the same version.
    with exclusive_intent(kernel.store, "repair", snapshot, session.actor) as intent:
        snapshot = kernel.snapshot(branch)
        rows = [_decide(row, force, discard) for row in _classify_all(session, snapshot)]
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


def _classify_all(session: GraphSession, snapshot: Snapshot) -> list[TypeRepaired]:
    types = sorted(session.catalog(snapshot).types, key=lambda type_: type_.table_key)
    return [_classify_type(session.kernel, snapshot, type_) for type_ in types]


def _classify_type(kernel: Kernel, snapshot: Snapshot, type_: Type) -> TypeRepaired:
    pin = snapshot.state.pins[type_.table_key]
    drift = find_drift(kernel, snapshot, pin)
    if drift is None or not drift.is_displaced:
        # Other tools remove files too, not only versions; what reads cannot do without decides.
        missing = _missing_files(kernel, snapshot, pin)
        if missing and not is_overtaken(kernel.store, snapshot.ref):
            return _classify_lost(kernel, snapshot, type_, drift.newest if drift else pin.version)
    if drift is None:
        return TypeRepaired(pin.table_key, pin.version, pin.version, Classification.NO_DRIFT, Action.NO_OP)
    newest = _open_newest(kernel, pin)
    if newest is None:
        error: str | None = _DISPLACED if drift.is_displaced else _UNREADABLE
        return TypeRepaired(
            pin.table_key, pin.version, drift.newest, Classification.UNVERIFIABLE, Action.PREVIEW, ("unknown",), error
        )
    foreign = operations(newest, pin.version - 1 if drift.is_displaced else pin.version)
    if None in foreign:
        classification = Classification.UNVERIFIABLE
    elif set(foreign) <= MAINTENANCE and not drift.is_displaced:
        classification = Classification.VERIFIED
    else:
        classification = Classification.SUSPICIOUS
    error = _DISPLACED if drift.is_displaced else _misfit(kernel.dataset(snapshot, pin.table_key), newest)
    return TypeRepaired(
        pin.table_key, pin.version, newest.version, classification, Action.PREVIEW, _named(foreign), error
    )


def _missing_files(kernel: Kernel, snapshot: Snapshot, pin: Pin) -> list[str]:
    """Return what storage lacks of a published version, which may still have its staged name only.

    A manifest that cannot be decoded is as good as none.
    """
    ref = pin.ref.stored
    link = next((link for link in kernel.links.unfinished(snapshot) if link.ref == ref), None)
    waits = link is not None and not kernel.links.is_linked(link)
    manifest = StoredManifest(ref.directory, link.manifest) if link and waits else StoredManifest.of(ref)
    try:
        return missing_files(kernel.store, manifest)
    except UnknownManifest:
        return [manifest.path]


def _open_newest(kernel: Kernel, pin: Pin) -> Dataset | None:
    """Open the newest version that storage has of a dataset; None if it is damaged."""
    try:
        return kernel.store.open_latest(pin.path, pin.fork)
    except StorageError as error:
        if error.storage_kind not in (StorageKind.UNKNOWN, StorageKind.PERMANENT):
            raise
        return None


def _classify_lost(kernel: Kernel, snapshot: Snapshot, type_: Type, newest_version: int) -> TypeRepaired:
    """Judge a type whose published version cannot be read: nothing shows what the versions since have changed."""
    pin = snapshot.state.pins[type_.table_key]
    foreign: list[str | None] = []
    if pin.owner != snapshot.state.branch_id:
        error: str | None = _NOT_OWNED
    elif newest_version <= pin.version:
        error = _NOT_NEWER
    elif (newest := _open_newest(kernel, pin)) is None:
        error = _NEWEST_DAMAGED
    else:
        foreign = operations(newest, pin.version)
        error = _misfit_type(type_, kernel.store.reshaped(newest, pin.shape))
    return TypeRepaired(
        pin.table_key,
        pin.version,
        newest_version,
        Classification.UNVERIFIABLE,
        Action.PREVIEW,
        _named(foreign),
        error,
        is_lost=True,
    )


def _named(foreign: list[str | None]) -> tuple[str, ...]:
    return tuple(operation or "unknown" for operation in foreign)


def _misfit(published: Dataset, newest: Dataset) -> str | None:
    """Say why the graph could not read a foreign version; None: it could."""
    if not newest.schema.equals(published.schema, check_metadata=True) or newest.field_ids != published.field_ids:
        return _OTHER_COLUMNS
    return None if newest.lance.has_stable_row_ids else _NO_ROW_IDS


def _misfit_type(type_: Type, newest: Dataset) -> str | None:
    """Say why a type could not be read from a version, where no published one is left to compare it with."""
    expected = physical_schema(arrow_schema(type_))
    if {column.name: column.type for column in newest.schema} != {column.name: column.type for column in expected}:
        return _OTHER_COLUMNS
    return None if newest.lance.has_stable_row_ids else _NO_ROW_IDS


def _decide(row: TypeRepaired, force: bool, discard: bool) -> TypeRepaired:
    if row.classification is Classification.NO_DRIFT:
        return row
    if row.is_lost and discard:
        return replace(row, action=Action.REFUSED, error=row.error or _NOT_DISCARDED)
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
    first = pin.version if is_displaced else pin.version + 1
    stored = stored_versions(kernel.store, pin.path, pin.fork)
    refs = [pin.ref.at(version) for version in sorted(stored, reverse=True) if version >= first]
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
