"""Branches, tags and merges of a graph in plain Python: whole states by commit, and nothing clever.

Written from what merges promise. How two versions of one type merge is told by `mergemodel`; here is which states are
merged, what else may be wrong with the result, and what decisions about conflicts make of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from omnigraph.lang.catalog import Catalog
from tests.engine.mergemodel import Row, Type, merge_states

Rows = dict[str, Row]
# All entities by table key and id.
State = Mapping[str, Rows]
# Kind, table key, id.
Conflict = tuple[str, str, str]
NODE, EDGE = "node:P", "edge:E"


@dataclass(frozen=True)
class Commit:
    """A commit with the whole state that it made."""

    commit_id: str
    version: int
    parents: tuple[str, ...]
    state: State


@dataclass
class History:
    """Every commit that was made, and what names them."""

    commits: dict[str, Commit] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    # Which branch a branch came from, and on which one a commit was made; both by the name it was born with.
    origins: dict[str, str] = field(default_factory=dict)
    births: dict[str, str] = field(default_factory=dict)
    homes: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    def state(self, branch: str) -> State:
        return self.commits[self.branches[branch]].state

    def add(self, branch: str, commit: Commit) -> None:
        self.commits[commit.commit_id] = commit
        self.branches[branch] = commit.commit_id
        self.homes[commit.commit_id] = self.births[branch]

    def distances(self, commit_id: str) -> dict[str, int]:
        """Return every commit in the history of one, with the length of the shortest way to it."""
        found, step = {commit_id: 0}, [commit_id]
        while step:
            parents = [(parent, found[one] + 1) for one in step for parent in self.commits[one].parents]
            step = [parent for parent, _ in parents if parent not in found]
            for parent, distance in parents:
                found.setdefault(parent, distance)
        return found

    def bases(self, one: str, two: str) -> set[str]:
        """Return the common ancestors that no other is better than: nearest to both together, then the newest."""
        first, second = self.distances(one), self.distances(two)
        rank = {both: (first[both] + second[both], -self.commits[both].version) for both in first if both in second}
        return {both for both in rank if rank[both] == min(rank.values())}

    def may_delete(self, branch: str) -> bool:
        """Tell whether nothing stands on a branch: no branch that came from it, no tag on a commit made there."""
        birth = self.births[branch]
        children = [name for name in self.branches if name != branch and self.origins[name] == birth]
        tagged = [name for name, commit_id in self.tags.items() if self.homes[commit_id] == birth]
        return branch != "main" and not children and not tagged


def merge(catalog: Catalog, base: State, ours: State, theirs: State) -> tuple[State, set[Conflict]]:
    """Return the merged state, and why it must not be published."""
    merged: dict[str, Rows] = {}
    clashes: set[Conflict] = set()
    for key, type_ in types(catalog):
        merged[key], found = merge_states(type_, base[key], ours[key], theirs[key])
        clashes |= {(kind, key, entity) for entity, kind, _ in found}
    return merged, clashes or violations(merged)


def types(catalog: Catalog) -> tuple[tuple[str, Type], ...]:
    return (NODE, catalog.nodes["P"]), (EDGE, catalog.edges["E"])


def violations(state: State) -> set[Conflict]:
    """Return what is wrong with a state: edges without an end, and values that only one may have but several do."""
    nodes, edges = state[NODE], state[EDGE]
    orphans = {("OrphanEdge", EDGE, one) for one, row in edges.items() if not {row["src"], row["dst"]} <= nodes.keys()}
    return orphans | {("UniqueViolation", NODE, one) for one in duplicates(nodes)}


def duplicates(nodes: Rows) -> set[str]:
    held: dict[str, list[str]] = {}
    for one, row in nodes.items():
        if row["u"] is not None:
            held.setdefault(row["u"], []).append(one)
    return {one for group in held.values() if len(group) > 1 for one in group}


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
                _put(changed[1:], key, entity, taken)
                continue
            # What did not clash merges by itself; where it did, the decision is what both sides say.
            for state in changed:
                if entity in state[key] and taken is not None:
                    state[key][entity] = state[key][entity] | {name: taken[name] for name in columns}
    return changed  # type: ignore[return-value]


def _put(states: Iterable[dict[str, Rows]], key: str, entity: str, row: Row | None) -> None:
    for state in states:
        if row is None:
            state[key].pop(entity, None)
        else:
            state[key][entity] = row
