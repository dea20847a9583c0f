"""Plans: a prepared change as data.

Effects are staged and invisible; updates change the catalog's rows; requirements are checked before the publish.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from omnigraph import public_values
from omnigraph.ids import CommitId, OperationId, new_ulid
from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import LONG_REPREPARE_MAX, REPREPARE_MAX
from omnigraph.manifest.model import Commit, Snapshot
from omnigraph.manifest.requirements import Requirement
from omnigraph.manifest.updates import Update
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.store import Staged
from omnigraph.store.write.file_proof import PendingProofs
from omnigraph.store.write.transaction import Change


class CommitPolicy(Enum):
    """How a commit behaves when the branch moves while it is being prepared.

    `queued` work takes its turn before it reads the graph, so writers of one process never conflict; `attempts` is how
    often it may be prepared again after a lost race; `is_costly` work claims the branch before it is prepared again.
    """

    INSERT = ("insert", False, REPREPARE_MAX, False)
    CHANGE = ("change", True, 0, True)
    LONG_CHANGE = ("long change", False, 0, True)
    MERGE = ("merge", False, LONG_REPREPARE_MAX, True)
    MAINTENANCE = ("maintenance", False, REPREPARE_MAX, True)
    CONTROL = ("control", True, REPREPARE_MAX, True)

    def __init__(self, label: str, queued: bool, attempts: int, is_costly: bool) -> None:
        self.label = label
        self.queued = queued
        self.attempts = attempts
        self.is_costly = is_costly


@dataclass(frozen=True, slots=True)
class Effect:
    """Staged changes of one type, on the dataset that the snapshot pins, or on what was `begun` on top of it."""

    table_key: TypeKey
    base: Dataset
    changes: tuple[Change, ...]
    begun: Staged | None = None

    @property
    def version(self) -> int:
        """The version that the type will be at."""
        return (self.begun.dataset if self.begun else self.base).version + len(self.changes)

    @property
    def row_count(self) -> int:
        if self.changes:
            return self.changes[-1].row_count
        assert self.begun is not None, "an effect changes something"
        return self.begun.dataset.count()

    @property
    def proofs(self) -> tuple[PendingProofs, ...]:
        """The proofs of what was written for it."""
        return (*(self.begun.proofs if self.begun else ()), *(change.proofs for change in self.changes))

    @property
    def files(self) -> tuple[str, ...]:
        """The files that were written for it and that nothing names yet, relative to the graph's root."""
        files = [*(self.begun.files if self.begun else ()), *(file for change in self.changes for file in change.files)]
        return tuple(f"{self.base.ref.directory}/{file}" for file in files)


# The placeholder for an id that is assigned at publish, when the branch is known.
UNNAMED: Final = OperationId("")


@dataclass(frozen=True, slots=True)
class Plan:
    """A prepared change of one branch. `kind` is None for control work that leaves no commit in history.

    `reads` are the types that the change has read; None means any.
    """

    kind: str | None
    effects: tuple[Effect, ...] = ()
    updates: tuple[Update, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    actor: str | None = None
    merged_parent: Commit | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    operation_id: OperationId = UNNAMED
    commit_id: CommitId = field(default_factory=lambda: CommitId(new_ulid()))
    reads: frozenset[TypeKey] | None = None

    def with_properties(self, properties: Mapping[str, str]) -> Plan:
        """Return the plan with further properties of its commit; control work has no commit."""
        return self if self.kind is None else replace(self, properties={**self.properties, **properties})

    def reads_same(self, before: Snapshot, after: Snapshot) -> bool:
        """Return True if everything that the plan has read is the same in another snapshot of the branch."""
        if self.reads is None or before.state.schema.ir_hash != after.state.schema.ir_hash:
            return False
        pins = {key: before.state.pins.get(key) for key in self.reads}
        return all(after.state.pins.get(key) == pin for key, pin in pins.items())


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of a publish: the snapshot it made, and its commit unless it was control work."""

    snapshot: Snapshot
    commit: Commit | None
    operation_id: OperationId
    staged: tuple[Staged, ...] = ()

    @property
    def public_commit(self) -> public_values.Commit | None:
        """The commit as the API shows it."""
        return self.commit.public(self.snapshot.branch) if self.commit else None
