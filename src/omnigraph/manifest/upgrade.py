"""In-place upgrade of a graph to the current catalog format; keeps its history.

One publish of main is the commit point; until then, older releases keep working. Earlier versions stay as they are, and
are read through the upgrades of `catalog_format`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from omnigraph.errors import BranchNotFound
from omnigraph.ids import OperationId, new_ulid
from omnigraph.manifest import catalog_format, encoding, recovery
from omnigraph.manifest.heads import recover_names
from omnigraph.manifest.kernel import Kernel, schemas_back_from
from omnigraph.manifest.model import MAIN, Snapshot
from omnigraph.manifest.plan import CommitPolicy, Plan
from omnigraph.manifest.recovery import AuditRow, Outcome
from omnigraph.public_values import PublicValue
from omnigraph.store.store import Store

# The operations of an upgrade that is running, or was killed.
NOTE_PATH = "__upgrade.json"


@dataclass(frozen=True, slots=True)
class UpgradeReport(PublicValue):
    """The format that main had, the one that it has now, and the branches that were rewritten for it.

    `named` are the branches whose earlier names were not recorded, and are now.
    """

    before: int
    after: int
    branches: tuple[str, ...]
    named: tuple[str, ...] = ()


def upgrade(store: Store, actor: str | None = None) -> UpgradeReport:
    """Bring main and then every other branch to the format of this release; what has it already is left alone.

    Operations are written down before the first publish, so that a run after one that was killed in between can give
    every publish its audit row, once.
    """
    kernel = Kernel(store, accepts_old_format=True)
    try:
        main = kernel.snapshot(MAIN)
        before = _format_of(kernel, main)
        old = [
            snapshot
            for snapshot in kernel.live_snapshots()
            if _format_of(kernel, snapshot) != catalog_format.FORMAT_STAMP
        ]
        _record_published(kernel, _written_down(store), actor)
        operations = _write_down(store, old)
        # Main first: its publish is the upgrade. A branch that is missed is read through the steps, and its next
        # commit is in the new format by itself.
        upgraded = tuple(
            snapshot.branch for snapshot in old if _upgraded(kernel, snapshot.branch, operations[_key(snapshot)], actor)
        )
        if operations:
            store.objects.delete(NOTE_PATH)
        named = recover_names(kernel, actor)
    finally:
        kernel.close()
    return UpgradeReport(before, catalog_format.FORMAT_STAMP, upgraded, named)


def _key(snapshot: Snapshot) -> str:
    return snapshot.state.branch_id or MAIN


def _written_down(store: Store) -> dict[str, OperationId]:
    body = store.objects.read_if_exists(NOTE_PATH)
    operations: dict[str, OperationId] = orjson.loads(body) if body is not None else {}
    return operations


def _write_down(store: Store, old: list[Snapshot]) -> dict[str, OperationId]:
    """Return the operation under which each branch is upgraded, those of a run that was killed included."""
    operations = _written_down(store)
    new = {_key(snapshot): OperationId(new_ulid()) for snapshot in old if _key(snapshot) not in operations}
    if new:
        store.objects.write(NOTE_PATH, orjson.dumps(operations | new))
    return operations | new


def _upgraded(kernel: Kernel, name: str, operation_id: OperationId, actor: str | None) -> bool:
    """Rewrite a branch if it still has an old format; one that was deleted meanwhile needs no upgrade."""

    def prepare(snapshot: Snapshot) -> Plan | None:
        is_current = _format_of(kernel, snapshot) == catalog_format.FORMAT_STAMP
        return None if is_current else Plan(None, actor=actor, operation_id=operation_id)

    try:
        receipt = kernel.commit(name, prepare, CommitPolicy.CONTROL)
    except BranchNotFound:
        return False
    if receipt is not None:
        recovery.record_outcome(kernel.store, AuditRow(operation_id, Outcome.UPGRADED, None, actor, "upgrade"))
    return receipt is not None


def _record_published(kernel: Kernel, operations: Mapping[str, OperationId], actor: str | None) -> None:
    """Write the audit rows that are missing for publishes of a run that was killed."""
    for snapshot in kernel.live_snapshots() if operations else ():
        operation_id = operations.get(_key(snapshot))
        if operation_id is not None and _was_published(kernel, snapshot, operation_id):
            recovery.record_outcome(kernel.store, AuditRow(operation_id, Outcome.UPGRADED, None, actor, "upgrade"))


def _was_published(kernel: Kernel, snapshot: Snapshot, operation_id: OperationId) -> bool:
    """Look for an operation among the newest versions of a branch: not before the first in the new format."""
    for schema in schemas_back_from(kernel.store, snapshot.ref):
        if encoding.check_stamp(schema, str(snapshot.ref)) != catalog_format.FORMAT_STAMP:
            return False
        if encoding.operation_of(schema) == operation_id:
            return True
    return False


def _format_of(kernel: Kernel, snapshot: Snapshot) -> int:
    return encoding.check_stamp(kernel.store.open(snapshot.ref).schema, f"the graph at `{kernel.store.root.uri}`")
