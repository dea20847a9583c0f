"""Commit history: commits by id and along their parents, read lazily as a walk proceeds.

The newest commits of a branch are in its catalog. Everything older that leads to it is in the commit log: commits go
there when they leave a catalog, when they are merged elsewhere, and when their branch is deleted. So a walk needs the
branch, main and parts of the log, however many other branches there are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Protocol

import orjson
import pyarrow as pa

from omnigraph.errors import GraphError
from omnigraph.ids import ULID_LENGTH, BranchId, CommitId, branch_hint, is_ulid
from omnigraph.limits import COMMIT_LOG_CHUNK_VERSIONS, COMMIT_LOG_IDS_MAX, COMMIT_LOG_SCANS_MAX
from omnigraph.manifest import encoding
from omnigraph.manifest.model import MAIN, BranchNames, Commit, Snapshot
from omnigraph.store import append_log as logs
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.store import Store

if TYPE_CHECKING:
    from omnigraph.manifest.kernel import Kernel


LOG_PATH = "__commit_log"


def spill(store: Store, commits: Sequence[Commit]) -> None:
    """Write commits to the log, durably, before the publish that drops them from the window."""
    logs.append(store, LOG_PATH, encoding.as_table(map(encoding.commit_row, commits)))


def spill_branch(store: Store, snapshot: Snapshot, after: Collection[CommitId], names: tuple[str, ...]) -> None:
    """Write the commits of a branch to the log, from the last one in `after` on, and record `names` as its names.

    Commits of main are left out: main cannot be deleted, and every walk reads it.
    """
    commits = [commit for commit in snapshot.state.commits if commit.branch is not None]
    first_new = max((number for number, commit in enumerate(commits, 1) if commit.commit_id in after), default=0)
    branch_id = snapshot.state.branch_id
    new_commits = [
        replace(commit, branch_names=names) if commit.branch == branch_id else commit for commit in commits[first_new:]
    ]
    if new_commits:
        spill(store, new_commits)


def read(store: Store) -> dict[CommitId, Commit]:
    """Return every commit that has left a window, by id."""
    log = open_log(store)
    return {} if log is None else {commit.commit_id: commit for commit in read_all(log)}


def open_log(store: Store) -> Dataset | None:
    """Return the log as it is now, or None before its first append."""
    return logs.open_log(store, LOG_PATH)


def read_all(log: Dataset) -> list[Commit]:
    """Return every commit of the log."""
    return _decode(log.read())


def read_ids(log: Dataset, commit_ids: Iterable[CommitId]) -> list[Commit]:
    """Return the commits with these ids, as far as the log has them."""
    quoted_ids = _quoted(commit_ids)
    return _decode(log.read(filter=f"object_id in ({quoted_ids})")) if quoted_ids else []


def read_prefix(log: Dataset, prefix: str) -> list[Commit]:
    """Return the commits whose ids begin with a text."""
    # Only the characters of ids are safe inside a filter string; none of them sorts after `Z`.
    if not prefix.isalnum() or not prefix.isascii():
        return []
    return _decode(log.read(filter=f"object_id >= '{prefix}' and object_id <= '{prefix}{'Z' * ULID_LENGTH}'"))


def read_operation(store: Store, operation_id: str) -> list[Commit]:
    """Return the commits whose row mentions an operation id."""
    log = open_log(store)
    if log is None:
        return []
    # Only generated ids are safe inside a filter string.
    return _decode(log.read(filter=f"contains(metadata, '{operation_id}')" if is_ulid(operation_id) else None))


def read_versions(log: Dataset, branch_id: BranchId | None, after: int, until: int) -> list[Commit]:
    """Return the commits that were made on a branch after one manifest version and up to another."""
    # A text, because typed filters have no unsigned numbers.
    on_branch = "table_branch is null" if branch_id is None else f"table_branch = '{branch_id}'"
    return _decode(
        log.read(filter=f"{on_branch} and table_version > {max(after, 0)} and table_version <= {max(until, 0)}")
    )


def read_branch_names(log: Dataset, branch_ids: Collection[BranchId]) -> dict[BranchId, BranchNames]:
    """Return the names of deleted branches, as far as they were recorded at their deletion."""
    quoted_ids = _quoted(sorted(branch_ids))
    names: dict[BranchId, BranchNames] = {}
    for commit in _decode(log.read(filter=f"table_branch in ({quoted_ids})")) if quoted_ids else ():
        if commit.branch is not None and commit.branch_names:
            # A deletion that lost to a concurrent rename has written a shorter list.
            recorded = names.get(commit.branch, BranchNames(()))
            longest = max(recorded.names, commit.branch_names, key=len)
            missing = tuple(name for name in (*recorded.names, *commit.branch_names) if name not in longest)
            names[commit.branch] = BranchNames((*dict.fromkeys(missing), *longest))
    return names


def _quoted(ids: Iterable[str]) -> str:
    """Return ids as the members of a list in a filter string, in which only generated ids are safe."""
    return ", ".join(f"'{text}'" for text in ids if is_ulid(text))


def _decode(table: pa.Table) -> list[Commit]:
    with encoding.report_damage(f"`{LOG_PATH}`", "restore it from a backup"):
        rows = table.to_pylist()
        for row in rows:
            row["json"] = orjson.loads(row["metadata"])
        return [encoding.decode_commit(row) for row in rows]


class Commits(Protocol):
    """Commits by id: a dictionary, or a source that reads them on demand."""

    def __getitem__(self, commit_id: CommitId, /) -> Commit: ...


class CommitSource:
    """Reads commits by id for one walk, and caches them."""

    def __init__(self, kernel: Kernel, *snapshots: Snapshot) -> None:
        self._kernel = kernel
        self._commits: dict[CommitId, Commit] = {}
        self._children: dict[CommitId, Commit] = {}
        # Parents of known commits that are not known themselves.
        self._missing: set[CommitId] = set()
        self._log: Dataset | None = None
        self._is_open = False
        self._chunk = COMMIT_LOG_CHUNK_VERSIONS
        self._scans = 0
        self._is_log_read = False
        # The manifest version from which on the loaded catalogs have all commits made on a branch.
        self._complete_from: dict[BranchId | None, int] = {}
        for snapshot in snapshots:
            self._add(snapshot.state.commits)
            for commit in reversed(snapshot.state.commits):
                self._complete_from[commit.branch] = commit.manifest_version if commit.parent else 0

    def __getitem__(self, commit_id: CommitId) -> Commit:
        commit = self.find(commit_id)
        if commit is None:
            raise GraphError(
                f"commit {commit_id} is not in the commit log; restore it from a backup", code="graph.corrupt"
            )
        return commit

    def find(self, commit_id: CommitId) -> Commit | None:
        """Return a commit of any branch, or None; ancestors of commits read before are found fastest."""
        searches: tuple[Callable[[CommitId], None], ...] = (
            self._read_main,
            self._read_before,
            self._read_ids,
            self._read_hinted_branch,
            self._read_all_branches,
        )
        for search in searches:
            if commit_id in self._commits:
                break
            search(commit_id)
        return self._commits.get(commit_id)

    def of_branch(self, branch_id: BranchId | None, after: int, until: int, count: int) -> list[Commit]:
        """Return the next commits that were made on a branch after one manifest version and up to another, in order."""
        is_complete = self._complete_from.get(branch_id, after + 1) <= after
        if not is_complete:
            self._read_main(CommitId(""))
        low, step = after, 2 * count
        while True:
            high = until if is_complete else min(low + step, until)
            if self._log is not None and not is_complete:
                self._add(read_versions(self._log, branch_id, after, high))
            on_branch = [commit for commit in self._commits.values() if commit.branch == branch_id]
            commits = sorted(
                (commit for commit in on_branch if after < commit.manifest_version <= high),
                key=lambda commit: commit.manifest_version,
            )
            if len(commits) >= count or high == until:
                return commits[:count]
            low, step = high, 2 * step

    def _read_main(self, _: CommitId) -> None:
        if not self._is_open:
            # Commits move from catalogs to the log, so reading the log first would miss those that move meanwhile.
            self._add(self._kernel.snapshot(MAIN).state.commits)
            self._log = open_log(self._kernel.store)
            self._is_open = True

    def _read_before(self, commit_id: CommitId) -> None:
        """Read the commits before a known child on its branch, more at a time the longer the walk gets."""
        child = self._children.get(commit_id)
        # A merged parent lies on another branch.
        if child is None or child.parent != commit_id or (log := self._log_to_scan()) is None:
            return
        version = child.manifest_version
        self._add(read_versions(log, child.branch, version - self._chunk - 1, version - 1))
        if commit_id in self._commits:
            self._chunk *= 2

    def _read_ids(self, commit_id: CommitId) -> None:
        """Read a commit by id, together with known missing parents: a scan for many ids costs the same as for one."""
        if (log := self._log_to_scan()) is not None:
            others = islice(self._missing - {commit_id}, COMMIT_LOG_IDS_MAX - 1)
            self._add(read_ids(log, [commit_id, *others]))

    def _log_to_scan(self) -> Dataset | None:
        """Return the log unless all of it was read; a walk that scans it often reads all of it instead."""
        if self._log is None or self._is_log_read:
            return None
        self._scans += 1
        if self._scans <= COMMIT_LOG_SCANS_MAX:
            return self._log
        self._add(read_all(self._log))
        self._is_log_read = True
        return None

    def _read_hinted_branch(self, commit_id: CommitId) -> None:
        """Read the branch that the id hints at, and the log again: commits move from branches to the log."""
        branches = self._kernel.snapshot(MAIN).state.branches.values()
        hinted = [branch.name for branch in branches if branch_hint(branch.branch_id) == branch_hint(commit_id)]
        for snapshot in self._kernel.snapshots_of(hinted):
            self._add(snapshot.state.commits)
        if hinted:
            self._log, self._is_log_read = open_log(self._kernel.store), False
            self._read_ids(commit_id)

    def _read_all_branches(self, _: CommitId) -> None:
        # Older releases gave no hints, and left commits of nested branches only in the catalogs of these.
        self._add(self._kernel.all_commits().values())

    def _add(self, commits: Iterable[Commit]) -> None:
        for commit in commits:
            if commit.commit_id not in self._commits:
                self._commits[commit.commit_id] = commit
                self._missing.discard(commit.commit_id)
                for parent in (commit.parent, commit.merged_parent):
                    if parent is not None:
                        self._children[parent] = commit
                        if parent not in self._commits:
                            self._missing.add(parent)


def walk_history(kernel: Kernel, snapshot: Snapshot) -> Iterator[Commit]:
    """Yield the commits reachable from a branch's head by first parents and merges, newest first."""
    return walk_newest_first(CommitSource(kernel, snapshot), snapshot.head) if snapshot.head else iter(())


def walk_newest_first(commits: Commits, head: CommitId) -> Iterator[Commit]:
    """Yield a commit and all that lead to it by their corrected dates: newest first, each before its parents.

    The order is total and stable, so a page continues where the last one ended, even after new merges. Commits of
    older releases have no corrected date: among those, a clock that went back can put a parent first.
    """
    waiting, visited = {head}, set[CommitId]()
    while waiting:
        # Where several lines continue, their next commits must be read to compare their dates.
        newest = (
            max(waiting, key=lambda commit_id: _age(commits[commit_id])) if len(waiting) > 1 else next(iter(waiting))
        )
        waiting.remove(newest)
        visited.add(newest)
        commit = commits[newest]
        yield commit
        parents = (parent for parent in (commit.parent, commit.merged_parent) if parent is not None)
        waiting |= {parent for parent in parents if parent not in visited}


class FirstParentLine:
    """The line of first parents of a branch, oldest first, by manifest versions: no walk from the head is needed.

    Every commit that was made on a branch is on its line, and before them those of the branch that it started from.
    """

    def __init__(self, kernel: Kernel, snapshot: Snapshot) -> None:
        self._source = CommitSource(kernel, snapshot)
        starts = {branch.branch_id: branch for branch in kernel.snapshot(MAIN).state.branches.values()}
        self._parts: list[tuple[BranchId | None, int, int]] = []
        branch_id, until = snapshot.state.branch_id, snapshot.version
        while branch_id is not None and branch_id in starts:
            start = starts[branch_id]
            self._parts.append((branch_id, start.parent_version, until))
            branch_id, until = start.parent, start.parent_version
        self._parts.append((branch_id, 0, until))
        self._parts.reverse()

    def find(self, commit_id: CommitId) -> Commit | None:
        """Return a commit of the line; None when it is not on it."""
        commit = self._source.find(commit_id)
        return commit if commit is not None and self._part_of(commit) is not None else None

    def first(self) -> Commit:
        """Return the commit that made the graph."""
        branch_id, after, until = self._parts[0]
        [commit] = self._source.of_branch(branch_id, after, until, 1)
        return commit

    def after(self, commit: Commit, until: Commit, count: int) -> list[Commit]:
        """Return the next commits of the line after one of them, up to another, in order."""
        first, last = self._part_of(commit), self._part_of(until)
        assert first is not None
        assert last is not None
        commits: list[Commit] = []
        low = commit.manifest_version
        for number in range(first, last + 1):
            branch_id, _, high = self._parts[number]
            high = until.manifest_version if number == last else high
            commits += self._source.of_branch(branch_id, low, high, count - len(commits))
            if len(commits) >= count:
                break
            low = high
        return commits

    def is_ordered(self, older: Commit, newer: Commit) -> bool:
        """Return True if `older` comes before `newer` on the line, or is the same commit."""
        positions = [(self._part_of(commit), commit.manifest_version) for commit in (older, newer)]
        return positions[0] <= positions[1]

    def parent_of(self, commit: Commit) -> Commit:
        """Return the first parent of a commit that has one."""
        assert commit.parent is not None
        return self._source[commit.parent]

    def _part_of(self, commit: Commit) -> int | None:
        for number, (branch_id, after, until) in enumerate(self._parts):
            if commit.branch == branch_id and after < commit.manifest_version <= until:
                return number
        return None


def unknown_commit(commit_id: CommitId) -> GraphError:
    """Return the error for a commit that does not exist."""
    return GraphError(
        f"there is no commit {commit_id}; list them with `omnigraph commit list`",
        code="commit.not_found",
        commit_id=commit_id,
    )


def _age(commit: Commit) -> tuple[int, str]:
    return commit.order_us, commit.commit_id
