"""Requirements: what must still be true when a plan is published, each with its own check and its own conflict.

Pure. They are checked against the very state that the publish replaces.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from omnigraph.errors import PreconditionFailed, ReadSetChanged, VersionMismatch
from omnigraph.ids import BranchId, CommitId
from omnigraph.lang.catalog import TypeKey
from omnigraph.manifest.model import Snapshot


class Requirement(Protocol):
    def check(self, snapshot: Snapshot) -> None: ...


@dataclass(frozen=True, slots=True)
class HeadIs:
    """The branch has not moved since the plan was prepared."""

    commit_id: CommitId | None

    def check(self, snapshot: Snapshot) -> None:
        if snapshot.head != self.commit_id:
            raise _changed(f"graph_head:{snapshot.branch}", self.commit_id, snapshot.head)


@dataclass(frozen=True, slots=True)
class IfCommit:
    """A condition of the caller; failing it is final. The error hides the head from callers who may not read it."""

    commit_id: CommitId
    is_head_told: bool = True

    def check(self, snapshot: Snapshot) -> None:
        if snapshot.head == self.commit_id:
            return
        if not self.is_head_told:
            raise PreconditionFailed(
                f"branch `{snapshot.branch}` is not at commit {self.commit_id}; nothing was written",
                branch=snapshot.branch,
                expected=self.commit_id,
            )
        raise PreconditionFailed(
            f"branch `{snapshot.branch}` is at commit {snapshot.head}, not at {self.commit_id}; read it again",
            branch=snapshot.branch,
            expected=self.commit_id,
            actual=snapshot.head,
        )


@dataclass(frozen=True, slots=True)
class PinIs:
    """A type is still at the version that the change was staged on."""

    table_key: TypeKey
    version: int

    def check(self, snapshot: Snapshot) -> None:
        pin = snapshot.state.pins.get(self.table_key)
        if pin is None or pin.version != self.version:
            _mismatch(self.table_key, self.version, pin.version if pin else 0)


@dataclass(frozen=True, slots=True)
class SchemaIs:
    """The schema that the plan was checked against is still the accepted one."""

    ir_hash: str

    def check(self, snapshot: Snapshot) -> None:
        if snapshot.state.schema.ir_hash != self.ir_hash:
            raise _changed("schema_ir_hash", self.ir_hash, snapshot.state.schema.ir_hash)


@dataclass(frozen=True, slots=True)
class BranchIs:
    """The branch is the same incarnation, not another one under the same name."""

    branch_id: BranchId | None

    def check(self, snapshot: Snapshot) -> None:
        if snapshot.state.branch_id != self.branch_id:
            raise _changed(f"branch_identifier:{snapshot.branch}", self.branch_id, snapshot.state.branch_id)


def _changed(member: str, expected: object, actual: object) -> ReadSetChanged:
    return ReadSetChanged(
        f"`{member}` was {expected} when the write was prepared and is {actual} now; nothing was written, retry",
        member=member,
        expected=expected,
        actual=actual,
    )


def _mismatch(table_key: TypeKey, expected: int, actual: int) -> None:
    raise VersionMismatch(
        f"`{table_key}` is at version {actual}, not at {expected}; nothing was written, retry",
        type_key=table_key,
        expected=expected,
        actual=actual,
    )
