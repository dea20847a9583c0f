"""What `log` and `blame` answer, from their definition: the values of the entity at every commit, and the commit graph.

The definition is that of `git log` for a path: a commit is passed over if the entity is as in one of its parents, and
the walk goes on along the first such parent; otherwise it is listed, and the walk goes on along all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import omnigraph as og

Values = Mapping[str, Any] | None


@dataclass
class HistoryModel:
    """All commits that lead to a branch, oldest last, with the values of one entity at each."""

    commits: Mapping[str, Any]
    values: Mapping[str, Values]
    head: str

    @classmethod
    def read(
        cls,
        graph: og.Graph,
        type_name: str,
        key: str,
        branch: str,
        defaults: Mapping[str, object] = MappingProxyType({}),
    ) -> HistoryModel:
        """Read an entity at every commit.

        `defaults` are those of required properties that the type got later: entities count as having had them always.
        """
        listed = graph.commits(branch)
        values: dict[str, Values] = {}
        for commit in listed:
            row = graph.get(type_name, key, branch=branch, at=commit.commit_id)
            filled = {} if row is None else {name: defaults[name] for name in defaults if row[name] is None}
            values[commit.commit_id] = None if row is None else {**row, **filled}
        return cls({commit.commit_id: commit for commit in listed}, values, listed[0].commit_id)

    def parents(self, commit_id: str) -> list[str]:
        commit = self.commits[commit_id]
        return [parent for parent in (commit.parent, commit.merged_parent) if parent is not None]

    def log(self) -> set[tuple[str, str]]:
        """Return the ids of the commits that changed the entity, with what each did."""
        found: set[tuple[str, str]] = set()
        waiting, visited = [self.head], set[str]()
        while waiting:
            commit_id = waiting.pop()
            if commit_id in visited:
                continue
            visited.add(commit_id)
            parents, now = self.parents(commit_id), self.values[commit_id]
            same = [parent for parent in parents if self.values[parent] == now]
            if same or not parents:
                waiting += same[:1]
                continue
            before = self.values[parents[0]]
            found.add((commit_id, "insert" if before is None else "delete" if now is None else "update"))
            waiting += parents
        return found

    def blame(self, name: str) -> str:
        """Return the commit that set a property: the walk follows the first parent that has the value already."""
        commit_id = self.head
        now = self.values[commit_id]
        assert now is not None
        while True:
            having = (
                parent
                for parent in self.parents(commit_id)
                if (values := self.values[parent]) is not None and values.get(name) == now[name]
            )
            parent = next(having, None)
            if parent is None:
                return commit_id
            commit_id = parent
