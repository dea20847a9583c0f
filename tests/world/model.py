"""The whole product in plain Python: whole states by commit, a history that is a graph, branches and tags.

Rows hold what is not absent: a property without a value in a row is null, or what all entities got when the property
was added as a required one. So adding a property changes no entity, as docs/changes.md promises.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.world.schema_model import ENDS, PropertyId, Schema, Type, TypeId

Row = dict[Any, Any]
Rows = dict[str, Row]
State = dict[TypeId, Rows]
# Table key, id, then all values by name; how an entity looks from outside.
Shown = dict[tuple[str, str], dict[str, Any]]
CommitNumber = int


@dataclass(frozen=True)
class Commit:
    """A commit with the whole state that it made. `home` is the incarnation of the branch that it was made on."""

    number: CommitNumber
    id: str
    parents: tuple[CommitNumber, ...]
    schema: Schema
    state: State
    home: int
    kind: str


@dataclass
class Branch:
    """A branch: which incarnation it is, its head, and the incarnation that its first commit was made on."""

    incarnation: int
    head: CommitNumber
    origin: int | None
    # The commit it began at.
    start: CommitNumber


@dataclass
class Model:
    """Everything that was ever published, and the names that lead to it."""

    commits: list[Commit] = field(default_factory=list)
    branches: dict[str, Branch] = field(default_factory=dict)
    tags: dict[str, CommitNumber] = field(default_factory=dict)
    # What existing entities got when a required property was added.
    fills: dict[PropertyId, Any] = field(default_factory=dict)
    # States that may be gone for readers, because their branch was deleted or a cleanup was allowed to remove them.
    doubtful: set[CommitNumber] = field(default_factory=set)
    # States that may be gone for merges as well: those that a cleanup was allowed to remove.
    reclaimed: set[CommitNumber] = field(default_factory=set)
    incarnations: int = 0
    identities: int = 0
    names: int = 0

    # -- names ---------------------------------------------------------------------------------------------------

    def new_id(self) -> int:
        self.identities += 1
        return self.identities

    def new_name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def by_id(self, commit_id: str) -> Commit | None:
        return next((one for one in self.commits if one.id == commit_id), None)

    def head(self, branch: str) -> Commit:
        return self.commits[self.branches[branch].head]

    def state(self, branch: str) -> State:
        return self.head(branch).state

    def schema(self, branch: str) -> Schema:
        return self.head(branch).schema

    # -- what happens --------------------------------------------------------------------------------------------

    def publish(
        self,
        branch: str,
        commit_id: str,
        state: State,
        schema: Schema,
        kind: str,
        merged: CommitNumber | None = None,
    ) -> Commit:
        known = self.branches.get(branch)
        parents = () if known is None else (known.head,)
        if merged is not None:
            parents = (*parents, merged)
        if known is None:
            known = self.branches[branch] = Branch(0, 0, None, 0)
        commit = Commit(len(self.commits), commit_id, parents, dict(schema), state, known.incarnation, kind)
        self.commits.append(commit)
        known.head = commit.number
        return commit

    def create_branch(self, name: str, commit: Commit, origin: int) -> None:
        self.incarnations += 1
        self.branches[name] = Branch(self.incarnations, commit.number, origin, commit.number)

    def may_delete(self, name: str) -> bool:
        """Tell whether nothing depends on a branch: no branch that came from it, no tag on a commit made there."""
        incarnation = self.branches[name].incarnation
        others = [one for other, one in self.branches.items() if other != name]
        tagged = [one for one in self.tags.values() if self.commits[one].home == incarnation]
        return name != "main" and not tagged and all(one.origin != incarnation for one in others)

    # -- history -------------------------------------------------------------------------------------------------

    def past(self, *numbers: CommitNumber) -> set[CommitNumber]:
        """Return every commit in the history of some, with themselves."""
        found, pending = set[CommitNumber](), list(numbers)
        while pending:
            number = pending.pop()
            if number not in found:
                found.add(number)
                pending += self.commits[number].parents
        return found

    def bases(self, ours: Iterable[CommitNumber], theirs: CommitNumber) -> list[CommitNumber]:
        """Return the best common ancestors, newest first: those in the history of no other common ancestor."""
        common = self.past(*ours) & self.past(theirs)
        # A parent is older than its children, so what an earlier (newer) one covers needs no second look.
        best: list[CommitNumber] = []
        covered: set[CommitNumber] = set()
        for number in sorted(common, reverse=True):
            if number not in covered:
                best.append(number)
                covered |= self.past(number)
        return best

    def first_parents(self, number: CommitNumber) -> Iterator[Commit]:
        """Yield a commit and its ancestors along first parents."""
        while True:
            commit = self.commits[number]
            yield commit
            if not commit.parents:
                return
            number = commit.parents[0]

    def forget_states(self, keep: int) -> None:
        """Let go of every state that a cleanup which keeps so many commits of each branch may remove."""
        kept = set(self.tags.values())
        for branch in self.branches.values():
            own = [one.number for one in self.first_parents(branch.head) if one.home == branch.incarnation]
            kept |= {branch.head, *own[: max(keep, 1)]}
            # What a branch started from is compared with its first commit; main started from nothing.
            kept |= set() if branch.origin is None else {branch.start}
            for other in self.branches.values():
                if other is not branch:
                    kept |= set(self.bases([branch.head], other.head))
        gone = {one.number for one in self.commits} - kept
        self.doubtful |= gone
        self.reclaimed |= gone

    def delete_branch(self, name: str) -> None:
        """Delete a branch; what it alone led to need not stay readable, but merges may still start from it."""
        incarnation = self.branches.pop(name).incarnation
        self.doubtful |= {one.number for one in self.commits if one.home == incarnation}

    # -- values --------------------------------------------------------------------------------------------------

    def value(self, row: Row, property_id: PropertyId) -> Any:
        return row[property_id] if property_id in row else self.fills.get(property_id)

    def set_value(self, row: Row, property_id: PropertyId, value: Any) -> None:
        """Set a value; rows are not shared between states, so copy them first."""
        if value == self.fills.get(property_id):
            row.pop(property_id, None)
        else:
            row[property_id] = value

    def entity_id(self, type_: Type, row: Row) -> str:
        """Return the id that follows from the key of an entity."""
        texts: list[str] = []
        for one in type_.key:
            texts += list(row[ENDS]) if one == -1 else [key_text(self.value(row, one))]
        if len(texts) == 1:
            return texts[0]
        return "[" + ",".join('"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' for text in texts) + "]"

    def show(self, state: State, own: Schema, named: Schema, types: Iterable[TypeId] | None = None) -> Shown:
        """Return a state that has the schema `own` under the names and types of another one."""
        shown: Shown = {}
        for id_ in named if types is None else types:
            type_, former = named[id_], own.get(id_)
            if former is None:
                continue
            known = {one.id for one in former.properties}
            for entity, row in state.get(id_, {}).items():
                values = {one.name: self.value(row, one.id) if one.id in known else None for one in type_.properties}
                if type_.ends:
                    values["from"], values["to"] = row[ENDS]
                shown[type_.table_key, entity] = values
        return shown


def key_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def copy_state(state: Mapping[TypeId, Rows]) -> State:
    """Return a state whose rows may be changed."""
    return {key: {one: dict(row) for one, row in rows.items()} for key, rows in state.items()}


def same_state(one: State, two: State) -> bool:
    """Compare two states; a type without entities is like none."""
    return {key: rows for key, rows in one.items() if rows} == {key: rows for key, rows in two.items() if rows}
