"""Branches, tags and merges of a graph in plain Python: whole states by commit, and nothing clever.

Written from what merges promise. How two versions of one type merge is told by `mergemodel`, what several bases make
together by `basemodel`; here is which states are merged, what else may be wrong with the result, and what decisions
about conflicts make of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from omnigraph.lang.catalog import Catalog
from tests.support.merge_base_model import join_states
from tests.support.merge_model import Row, Type, merge_states

Rows = dict[str, Row]
# All entities by table key and id.
State = Mapping[str, Rows]
# Kind, table key, id.
Conflict = tuple[str, str, str]


@dataclass(frozen=True)
class Commit:
    """A commit with the whole state that it made."""

    commit_id: str
    version: int
    parents: tuple[str, ...]
    state: State
    # The properties that schema changes have added: by identity, the name that each has.
    schema: Mapping[str, str] = field(default_factory=dict)


@dataclass
class History:
    """Every commit that was made, in the order in which they were made, and what names them."""

    commits: dict[str, Commit] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    # Which branch a branch came from, and on which one a commit was made; both by the name it was born with.
    origins: dict[str, str] = field(default_factory=dict)
    births: dict[str, str] = field(default_factory=dict)
    homes: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    def state(self, branch: str) -> State:
        return self.commits[self.branches[branch]].state

    def schema(self, branch: str) -> Mapping[str, str]:
        return self.commits[self.branches[branch]].schema

    def add(self, branch: str, commit: Commit) -> None:
        self.commits[commit.commit_id] = commit
        self.branches[branch] = commit.commit_id
        self.homes[commit.commit_id] = self.births[branch]

    def add_property(self, identity: str) -> None:
        """Let every state have another property of P, without values."""
        for commit_id, commit in self.commits.items():
            rows = {one: row | {identity: None} for one, row in commit.state["node:P"].items()}
            self.commits[commit_id] = replace(commit, state={**commit.state, "node:P": rows})

    def base_schema(self, ones: Iterable[str], two: str) -> Mapping[str, str]:
        """Return the names that a merge starts from; those that the best common ancestors contest are unknown."""
        best = self.bases(ones, two)
        schema = self.commits[best[0]].schema
        for number, commit_id in enumerate(best[1:], start=1):
            below = self.base_schema(best[:number], commit_id)
            other = self.commits[commit_id].schema
            merged = {
                one: merge_names(*(side.get(one) for side in (below, schema, other))) for one in {*schema, *other}
            }
            schema = {one: UNKNOWN if name is None else name for one, name in merged.items()}
        return schema

    def past(self, *commit_ids: str) -> set[str]:
        """Return every commit in the history of some, with themselves."""
        found, pending = set[str](), list(commit_ids)
        while pending:
            commit_id = pending.pop()
            if commit_id not in found:
                found.add(commit_id)
                pending += self.commits[commit_id].parents
        return found

    def bases(self, ones: Iterable[str], two: str) -> list[str]:
        """Return the common ancestors that are part of the history of no other one, newest first."""
        common = self.past(*ones) & self.past(two)
        best = [one for one in common if not any(one in self.past(other) for other in common if other != one)]
        return sorted(best, key=list(self.commits).index, reverse=True)

    def base(self, catalog: Catalog, ones: Iterable[str], two: str) -> State | None:
        """Return what a merge starts from: the best common ancestors, each joined to those before it."""
        best = self.bases(ones, two)
        if not best:
            return None
        state = self.commits[best[0]].state
        for number, commit_id in enumerate(best[1:], start=1):
            below = self.base(catalog, best[:number], commit_id)
            other = self.commits[commit_id].state
            state = {
                key: join_states(type_, state[key], other[key], None if below is None else below[key])
                for key, type_ in types(catalog)
            }
        return state

    def may_delete(self, branch: str) -> bool:
        """Tell whether nothing stands on a branch: no branch that came from it, no tag on a commit made there."""
        birth = self.births[branch]
        children = [name for name in self.branches if name != branch and self.origins[name] == birth]
        tagged = [name for name, commit_id in self.tags.items() if self.homes[commit_id] == birth]
        return branch != "main" and not children and not tagged


UNKNOWN = "?"


def merge_names(base: str | None, ours: str | None, theirs: str | None) -> str | None:
    """Return the merged name of a property; None: both sides gave it another one."""
    if ours == theirs or (theirs == base != UNKNOWN):
        return ours
    return theirs if ours == base != UNKNOWN else None


def merge(catalog: Catalog, base: State, ours: State, theirs: State) -> tuple[State, set[Conflict]]:
    """Return the merged state, and why it must not be published."""
    merged: dict[str, Rows] = {}
    clashes: set[Conflict] = set()
    for key, type_ in types(catalog):
        merged[key], found = merge_states(type_, base[key], ours[key], theirs[key])
        clashes |= {(kind, key, entity) for entity, kind, _ in found}
    return merged, clashes or violations(catalog, merged)


def types(catalog: Catalog) -> list[tuple[str, Type]]:
    found: list[Type] = [*catalog.nodes.values(), *catalog.edges.values()]
    return [(one.table_key, one) for one in found]


def violations(catalog: Catalog, state: State) -> set[Conflict]:
    """Return what is wrong with a state: edges without an end, and values that only one may have but several do."""
    found: set[Conflict] = set()
    for edge in catalog.edges.values():
        sources, targets = state[f"node:{edge.source}"], state[f"node:{edge.target}"]
        for one, row in state[edge.table_key].items():
            if row["src"] not in sources or row["dst"] not in targets:
                found.add(("OrphanEdge", edge.table_key, one))
    for key, type_ in types(catalog):
        found |= {("UniqueViolation", key, one) for one in duplicates(type_, state[key])}
    return found


def duplicates(type_: Type, rows: Rows) -> set[str]:
    """Return the entities that share a value which only one may have."""
    found: set[str] = set()
    for columns in type_.unique:
        held: dict[tuple[object, ...], list[str]] = {}
        for one, row in rows.items():
            values = tuple(row[name] for name in columns)
            if None not in values:
                held.setdefault(values, []).append(one)
        found |= {one for group in held.values() if len(group) > 1 for one in group}
    return found


def decide(
    catalog: Catalog, states: tuple[State, State, State], decisions: Mapping[tuple[str, str], str]
) -> tuple[State, State, State]:
    """Return base, ours and theirs as if both sides had done what was decided, where they clashed."""
    changed = tuple({key: dict(rows) for key, rows in state.items()} for state in states)
    for key, type_ in types(catalog):
        _, clashes = merge_states(type_, *(state[key] for state in states))
        for entity, kind, columns in clashes:
            taken = states[("base", "ours", "theirs").index(decisions[key, entity])][key].get(entity)
            if kind == "DeleteVsUpdate":
                put(changed[1:], key, entity, taken)
                continue
            # What did not clash merges by itself; where it did, the decision is what both sides say.
            for state in changed:
                if entity in state[key] and taken is not None:
                    state[key][entity] = state[key][entity] | {name: taken[name] for name in columns}
    return changed  # type: ignore[return-value]


def put(states: Iterable[dict[str, Rows]], key: str, entity: str, row: Row | None) -> None:
    """Leave an entity in some states as it shall be; None is absent."""
    for state in states:
        if row is None:
            state[key].pop(entity, None)
        else:
            state[key][entity] = row


def renamed_row(row: Row, extras: Collection[str], schema: Mapping[str, str]) -> Row:
    """Return a row with the properties that a schema has, under the names of it."""
    return {schema.get(name, name): value for name, value in row.items() if name in schema or name not in extras}


def named_state(state: State, extras: Collection[str], schema: Mapping[str, str]) -> State:
    rows = {one: renamed_row(row, extras, schema) for one, row in state["node:P"].items()}
    return {**state, "node:P": rows}


def without_values(state: State, identities: Collection[str]) -> State:
    """Return a state in which some properties have no values."""
    return {**state, "node:P": {one: row | dict.fromkeys(identities) for one, row in state["node:P"].items()}}


def sets_values(before: Rows, after: Rows, identities: Collection[str]) -> bool:
    """Tell whether a change gives one of some properties another value."""
    return any(row[name] != before.get(one, {}).get(name) for one, row in after.items() for name in identities)
