"""Operations: what became of a write whose outcome its caller was not told.

Thin over the kernel; decides when nothing more can come of one.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

from ulid import ULID

from omnigraph import clock
from omnigraph.engine.core import Core
from omnigraph.engine.scope import GRAPH, on
from omnigraph.errors import PolicyDenied, UsageError
from omnigraph.ids import OperationId, is_ulid
from omnigraph.limits import PUBLISH_DEADLINE_SECONDS
from omnigraph.manifest import intent
from omnigraph.manifest.model import MAIN, Commit
from omnigraph.manifest.outcome import find_operation, has_published

# A write that may still be on its way is not called absent; see the deadline rule of publishing.
_SETTLED_SECONDS: Final = 10 * PUBLISH_DEADLINE_SECONDS


@dataclass(frozen=True, slots=True)
class Operation:
    """What became of a write: `applied` with its commit, `pending`, or `absent`, which is final.

    Names of branches and tags change without a commit.
    """

    operation_id: str
    outcome: Literal["applied", "pending", "absent"]
    commit: Commit | None = None


def operation(core: Core, operation_id: str) -> Operation:
    """Return what became of a write, by the id that its error named or that its caller chose."""
    operation_id = operation_id.strip()
    found = find_operation(core.kernel, operation_id)
    if found is None:
        _refuse_strangers(core)
        if not is_ulid(operation_id):
            raise UsageError(f"`{operation_id}` is not the id of an operation; an error names it as `operation_id`")
        if has_published(core.kernel, MAIN, OperationId(operation_id)):
            return Operation(operation_id, "applied")
        return Operation(operation_id, "pending" if _may_come(core, operation_id) else "absent")
    if core.actor is None or found.actor != core.actor:
        # A write that was done is never called absent, so whoever may not read the branch is told just that. Its own
        # writer learns nothing new.
        core.require("read", on(core.names_of(found)))
    return Operation(operation_id, "applied", *core.told([found]))


def _refuse_strangers(core: Core) -> None:
    """Refuse whoever may read no branch at all."""
    branches = core.kernel.snapshot(MAIN).state.branches.values()
    for names in core.kernel.all_names_of([None, *(branch.branch_id for branch in branches)]).values():
        with suppress(PolicyDenied):
            core.require("read", on(names))
            return
    core.require("read", GRAPH)


def _may_come(core: Core, operation_id: str) -> bool:
    age_ms = clock.now_us() // 1_000 - ULID.from_str(operation_id).milliseconds
    if age_ms < _SETTLED_SECONDS * 1_000:
        return True
    live, unreadable = intent.pending(core.kernel.store)
    return operation_id in {one.operation_id for one in live} or intent.path_of(OperationId(operation_id)) in unreadable
