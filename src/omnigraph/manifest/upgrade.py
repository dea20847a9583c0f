"""Upgrade: a graph of an older format becomes one of this release, where it lies and with its history.

One publish of main decides; until it, older releases go on. Versions of before stay as they are, and are read through
the steps of `formats`.
"""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph import release
from omnigraph.errors import GraphError
from omnigraph.manifest import audit, rows
from omnigraph.manifest.audit import AuditRow, Outcome
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, Snapshot
from omnigraph.manifest.plan import Plan, Work
from omnigraph.store.dataset import Dataset
from omnigraph.store.store import Store


@dataclass(frozen=True, slots=True)
class UpgradeReport:
    """The format that main had, the one that it has now, and the branches that were written anew for it."""

    before: int
    after: int
    branches: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        return {"before": self.before, "after": self.after, "branches": list(self.branches)}


class _Upgrading(Kernel):
    """A kernel that takes a main of an older format as it is."""

    def _refuse_old(self, manifest: Dataset) -> None:
        pass


def upgrade(store: Store, actor: str | None = None) -> UpgradeReport:
    """Bring main and then every other branch to the format of this release; what has it already is left alone."""
    kernel = _Upgrading(store)
    try:
        main = kernel.snapshot(MAIN)
        before = _format_of(kernel, main)
        # Main first: its publish is the upgrade. A branch that is missed is read through the steps, and its next
        # commit is in the new format by itself.
        names = (MAIN, *sorted(main.state.branches))
        done = tuple(name for name in names if _upgraded(kernel, name, actor))
    finally:
        kernel.close()
    return UpgradeReport(before, release.FORMAT_STAMP, done)


def _upgraded(kernel: Kernel, name: str, actor: str | None) -> bool:
    """Write one branch anew if it needs it; one that was deleted meanwhile does not."""

    def prepare(snapshot: Snapshot) -> Plan | None:
        is_current = _format_of(kernel, snapshot) == release.FORMAT_STAMP
        return None if is_current else Plan(None, actor=actor)

    try:
        receipt = kernel.commit(name, prepare, Work.CONTROL)
    except GraphError as error:
        if error.code != "branch.not_found":
            raise
        return False
    if receipt is not None:
        audit.record(kernel.store, AuditRow(receipt.operation_id, Outcome.UPGRADED, None, actor, "upgrade"))
    return receipt is not None


def _format_of(kernel: Kernel, snapshot: Snapshot) -> int:
    return rows.check_stamp(kernel.store.open(snapshot.ref).schema, f"the graph at `{kernel.store.root.uri}`")
