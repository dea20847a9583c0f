"""Receipts of merges, reverts and cherry-picks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from omnigraph.engine.merge.conflicts import Conflict
from omnigraph.ids import CommitId
from omnigraph.manifest.model import Commit


class Outcome(StrEnum):
    """The outcome of a merge; only dry runs have `conflicted`, a real merge raises instead."""

    ALREADY_UP_TO_DATE = "already_up_to_date"
    FAST_FORWARD = "fast_forward"
    MERGED = "merged"
    CONFLICTED = "conflicted"


@dataclass(frozen=True, slots=True)
class TypeCount:
    """Counts of the entities of one type that a merge inserts, updates and deletes; `adopted` if not rewritten."""

    type_key: str
    inserted: int
    updated: int
    deleted: int
    adopted: bool = False

    def to_json(self) -> dict[str, object]:
        return {
            "type_key": self.type_key,
            "inserted": self.inserted,
            "updated": self.updated,
            "deleted": self.deleted,
            "adopted": self.adopted,
        }


@dataclass(frozen=True, slots=True)
class MergeReceipt:
    """The receipt of a merge, revert or cherry-pick, or of its `dry_run`.

    `source` is the merged branch or commit. `bases` are the merge bases, newest first: several after criss-cross
    merges. `types` leaves out types that were adopted without comparing rows. An actor who may not read the target
    gets no bases, and `merged` whatever had to be done.
    """

    source: str
    target: str
    outcome: Outcome
    bases: tuple[CommitId, ...]
    commit: Commit | None = None
    types: tuple[TypeCount, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    dry_run: bool = False
    actor: str | None = None
    # None unless the source was to be deleted.
    branch_deleted: bool | None = None
    branch_delete_error: str | None = None

    @property
    def base(self) -> CommitId | None:
        """The newest commit that the merge started from."""
        return self.bases[0] if self.bases else None

    def published(self, commit: Commit | None) -> MergeReceipt:
        """Return this receipt with the commit that made it so."""
        return replace(self, commit=commit)

    def to_json(self) -> dict[str, object]:
        return {
            "source": self.source,
            "target": self.target,
            "outcome": self.outcome.value,
            "base_commit_id": self.base,
            "base_commit_ids": list(self.bases),
            "commit": self.commit.to_json(self.target) if self.commit else None,
            "types": [type_.to_json() for type_ in self.types],
            "conflicts": [conflict.to_json() for conflict in self.conflicts],
            "dry_run": self.dry_run,
            "actor_id": self.actor,
            "branch_deleted": self.branch_deleted,
            "branch_delete_error": self.branch_delete_error,
        }
