"""Attempts: one write on its way to be published, and what happens when others are faster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from omnigraph.errors import ConflictError, OmniGraphError, ReadSetChanged, StorageError
from omnigraph.ids import BranchId
from omnigraph.limits import REPREPARE_MAX
from omnigraph.manifest.model import Snapshot
from omnigraph.manifest.plan import Plan, CommitPolicy
from omnigraph.manifest.publish import ObservedHead

Prepare = Callable[[Snapshot], Plan | None]

# Kinds of commits after which every query answers as before.
UPKEEP: Final = frozenset({"optimize", "ensure_indices"})


@dataclass
class Attempt:
    """One write on its way: what was prepared on which state, and how often it lost."""

    branch: str
    branch_id: BranchId | None
    prepare: Prepare
    work: CommitPolicy
    begun: float
    has_claims: bool | None = None
    prepared: tuple[ObservedHead, Plan] | None = None
    lost: int = 0
    tried_at: float = 0.0
    is_caught_up: bool = False

    def __post_init__(self) -> None:
        self.tried_at = self.begun

    def count_loss(self, before: Snapshot, after: Snapshot, plan: Plan) -> None:
        """Count one more loss; refuse when the work may not be prepared again."""
        # A change answers for what it read. If that is as it was, it may be prepared again on top of what is new.
        is_unaffected = plan.reads_same(before, after) or (
            self.work is CommitPolicy.CHANGE and is_kept_up(before.version, after)
        )
        attempts = REPREPARE_MAX if is_unaffected else self.work.attempts
        if attempts == 0:
            raise ReadSetChanged(
                f"branch `{before.branch}` moved from commit {before.head} to {after.head} while the write was being"
                " prepared; nothing was written, run it again",
                member=f"graph_head:{before.branch}",
                expected=before.head,
                actual=after.head,
            )
        if self.lost >= attempts:
            raise ConflictError(
                f"commit conflict on branch `{before.branch}`: lost to concurrent writers {self.lost} times; nothing"
                " was written, retry later",
                branch=before.branch,
            )
        self.lost += 1


def is_kept_up(since: int, after: Snapshot) -> bool:
    """Tell whether nothing but upkeep, which changes no result, lies between two states of a branch."""
    kinds = [one.kind for one in after.state.commits if one.manifest_version > since]
    return len(kinds) == after.version - since and UPKEEP.issuperset(kinds)


def prepare_first(
    base: ObservedHead, prepare: Prepare, work: CommitPolicy, read_newest: Callable[[], ObservedHead]
) -> tuple[ObservedHead, Plan | None]:
    """Prepare on what was seen last, which may be seconds old; that nothing can be done counts on the head alone."""
    refusal: OmniGraphError | None = None
    plan: Plan | None = None
    try:
        plan = prepare(base.snapshot)
    except StorageError:
        raise
    except OmniGraphError as error:
        refusal = error
    if plan is None and not work.is_costly:
        newest = read_newest()
        if newest.snapshot.ref != base.snapshot.ref:
            return newest, prepare(newest.snapshot)
    if refusal is not None:
        raise refusal
    return base, plan
