"""Updates: the typed changes that a plan makes to a state, each with its own way to apply.

Pure. An update that does not fit the state is our own bug or a lost race, never a silent no-op.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from omnigraph.errors import GraphError
from omnigraph.ids import BranchId, CommitId
from omnigraph.lang.catalog import TypeKey
from omnigraph.manifest.model import AcceptedSchema, Branch, Commit, Pin, Purge, State, Tag, Tombstone


class Draft:
    """A state in the making."""

    def __init__(self, base: State) -> None:
        self.base = base
        self.head = base.head
        self.schema = base.schema
        self.pins = dict(base.pins)
        self.tombstones = list(base.tombstones)
        self.commits = list(base.commits)
        self.branches = dict(base.branches)
        self.tags = dict(base.tags)
        self.purges = {purge.object_id: purge for purge in base.purges}

    def finish(self, branch_id: BranchId | None) -> State:
        """Return the finished state; branches and tags belong to main alone."""
        on_main = branch_id is None
        paths = [pin.path for pin in self.pins.values()]
        assert len(set(paths)) == len(paths), "two types share a dataset"
        return State(
            branch_id,
            self.head,
            self.schema,
            self.pins,
            tuple(self.tombstones),
            tuple(self.commits),
            self.branches if on_main else {},
            self.tags if on_main else {},
            tuple(self.purges.values()) if on_main else (),
        )


class Update(Protocol):
    def apply(self, draft: Draft) -> None: ...


@dataclass(frozen=True, slots=True)
class SetVersion:
    """A type's dataset moves to another version, maybe of another fork; `adopted_at` marks one of another branch."""

    table_key: TypeKey
    version: int
    fork: str | None
    row_count: int
    adopted_at: int | None = None

    def apply(self, draft: Draft) -> None:
        pin = draft.pins[self.table_key]
        draft.pins[self.table_key] = replace(
            pin,
            version=self.version,
            fork=self.fork,
            row_count=self.row_count,
            adopted_at=self.adopted_at,
            checksum=None,
        )


@dataclass(frozen=True, slots=True)
class Register:
    """A new type with its dataset."""

    pin: Pin

    def apply(self, draft: Draft) -> None:
        if self.pin.table_key in draft.pins:
            raise GraphError(f"`{self.pin.table_key}` is registered already", code="graph.corrupt")
        draft.pins[self.pin.table_key] = self.pin


@dataclass(frozen=True, slots=True)
class Rename:
    """Types get other names, all at once, so that two may swap theirs; identity, path and version stay."""

    new_keys: Mapping[TypeKey, TypeKey]

    def apply(self, draft: Draft) -> None:
        renamed = {new: replace(draft.pins.pop(old), table_key=new) for old, new in self.new_keys.items()}
        if clashes := sorted(renamed.keys() & draft.pins.keys()):
            raise GraphError(f"`{clashes[0]}` is registered already", code="graph.corrupt")
        draft.pins.update(renamed)


@dataclass(frozen=True, slots=True)
class Drop:
    """A type leaves the graph; its tombstone keeps cleanup from touching what history still shows."""

    table_key: TypeKey

    def apply(self, draft: Draft) -> None:
        pin = draft.pins.pop(self.table_key)
        draft.tombstones.append(Tombstone(pin.identity, pin.table_key, pin.path, pin.version + 1))


@dataclass(frozen=True, slots=True)
class SetSchema:
    schema: AcceptedSchema

    def apply(self, draft: Draft) -> None:
        draft.schema = self.schema


@dataclass(frozen=True, slots=True)
class AddCommit:
    """Lineage: the commit joins history and the head moves to it, in the same write as everything else."""

    commit: Commit

    def apply(self, draft: Draft) -> None:
        draft.commits.append(self.commit)
        draft.head = CommitId(self.commit.commit_id)


@dataclass(frozen=True, slots=True)
class ForgetCommits:
    """The oldest rows of the window leave it; the commit log holds them."""

    count: int

    def apply(self, draft: Draft) -> None:
        del draft.commits[: self.count]


@dataclass(frozen=True, slots=True)
class AddBranch:
    branch: Branch

    def apply(self, draft: Draft) -> None:
        if self.branch.name in draft.branches:
            raise GraphError(f"branch `{self.branch.name}` exists", code="branch.exists", branch=self.branch.name)
        draft.branches[self.branch.name] = self.branch


@dataclass(frozen=True, slots=True)
class DropBranch:
    name: str

    def apply(self, draft: Draft) -> None:
        del draft.branches[self.name]


@dataclass(frozen=True, slots=True)
class AddTag:
    tag: Tag

    def apply(self, draft: Draft) -> None:
        if self.tag.name in draft.tags:
            raise GraphError(f"tag `{self.tag.name}` exists", code="tag.exists", tag=self.tag.name)
        draft.tags[self.tag.name] = self.tag


@dataclass(frozen=True, slots=True)
class DropTag:
    name: str

    def apply(self, draft: Draft) -> None:
        del draft.tags[self.name]


@dataclass(frozen=True, slots=True)
class SetPurges:
    """Types and properties are dropped for good, or their bytes are known to be gone."""

    purges: tuple[Purge, ...]

    def apply(self, draft: Draft) -> None:
        draft.purges |= {purge.object_id: purge for purge in self.purges}
