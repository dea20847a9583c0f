"""Look up every name that a branch has had, even after its deletion; recover names that older releases did not record.

A live branch has its names in its row of main's catalog, where creating and renaming publish them together with the
name itself. Deleting a branch first writes them to the commit log, with its commits. So a record always exists, and
only main and the log are opened, however many branches there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.errors import GraphError
from omnigraph.ids import BranchId
from omnigraph.limits import BRANCH_NAMES_CACHED_MAX
from omnigraph.manifest import history
from omnigraph.manifest.heads import BranchHeads, ObservedHead
from omnigraph.manifest.model import MAIN, MAIN_NAMES, UNKNOWN_NAMES, Branch, BranchNames, Snapshot
from omnigraph.manifest.plan import CommitPolicy, Plan
from omnigraph.manifest.updates import AddBranch, DropBranch
from omnigraph.store.store import Store

if TYPE_CHECKING:
    from omnigraph.manifest.kernel import Kernel


class NameRecord:
    """Looks up the names of branches; those of deleted branches never change, and are cached."""

    def __init__(self, store: Store, heads: BranchHeads) -> None:
        self._store = store
        self._heads = heads
        self._deleted: dict[BranchId | None, BranchNames] = {}

    def look_up(self, branch_ids: Iterable[BranchId | None]) -> dict[BranchId | None, BranchNames]:
        """Return the names of branches; reads main and the log at most once each.

        The caller has looked up the branch or commit, which reads main, so a live branch is cached and costs nothing.
        """
        requested = set(branch_ids)
        names: dict[BranchId | None, BranchNames] = {None: MAIN_NAMES} if None in requested else {}
        deleted = dict(self._deleted)
        names |= {branch_id: deleted[branch_id] for branch_id in requested if branch_id in deleted}
        if (cached_main := self._heads.cached(None)) is not None:
            names |= _live_names(cached_main, requested)
        if requested - names.keys():
            names |= _live_names(self._heads.refresh(MAIN, None), requested)
        missing = {branch_id for branch_id in requested - names.keys() if branch_id is not None}
        return names | self._read_deleted(missing) if missing else names

    def _read_deleted(self, branch_ids: set[BranchId]) -> dict[BranchId | None, BranchNames]:
        log = history.open_log(self._store)
        recorded = {} if log is None else history.read_branch_names(log, branch_ids)
        names: dict[BranchId | None, BranchNames] = {
            branch_id: recorded.get(branch_id, UNKNOWN_NAMES) for branch_id in branch_ids
        }
        if len(self._deleted) + len(names) > BRANCH_NAMES_CACHED_MAX:
            self._deleted.clear()
        self._deleted.update(names)
        return names


def _live_names(main: ObservedHead, requested: set[BranchId | None]) -> dict[BranchId | None, BranchNames]:
    branches = main.snapshot.state.branches.values()
    return {branch.branch_id: branch.names for branch in branches if branch.branch_id in requested}


def recover_names(kernel: Kernel, actor: str | None = None) -> tuple[str, ...]:
    """Record the names of live branches made by an older release, if main's history still has all of them.

    Returns the branches whose names are recorded now. A branch older than the oldest version of main that cleanup has
    kept stays without a record.
    """
    recovered: list[Branch] = []

    def prepare(main: Snapshot) -> Plan | None:
        missing = {branch.branch_id: branch for branch in main.state.branches.values() if branch.recorded_names is None}
        names = _names_in_history(kernel, main, missing) if missing else {}
        recovered[:] = [replace(missing[branch_id], recorded_names=names[branch_id]) for branch_id in names]
        updates = [update for branch in recovered for update in (DropBranch(branch.name), AddBranch(branch))]
        return Plan(None, updates=tuple(updates), actor=actor) if updates else None

    kernel.commit(MAIN, prepare, CommitPolicy.CONTROL)
    return tuple(sorted(branch.name for branch in recovered))


def _names_in_history(
    kernel: Kernel, main: Snapshot, branches: Mapping[BranchId, Branch]
) -> dict[BranchId, tuple[str, ...]]:
    """Walk back over the versions of main to where each branch was created; return the names of those found."""
    names = {branch_id: [branch.name] for branch_id, branch in branches.items()}
    complete: dict[BranchId, tuple[str, ...]] = {}
    version = main.version
    while names and version > 1:
        version -= 1
        try:
            earlier = kernel.at_version(MAIN, version)
        except GraphError as error:
            if error.code != "graph.version_reclaimed":
                raise
            return complete
        then = {entry.branch_id: entry.name for entry in earlier.state.branches.values()}
        for branch_id in list(names):
            if branch_id not in then:
                complete[branch_id] = tuple(names.pop(branch_id))
            elif then[branch_id] not in names[branch_id]:
                names[branch_id].insert(0, then[branch_id])
    return complete
