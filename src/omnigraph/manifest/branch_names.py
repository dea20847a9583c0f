"""The record of names: every name that each incarnation of a branch ever had, after its deletion too.

A live branch has its names in its row of main's catalog, where creating and renaming publish them together with the
name itself. Deleting one writes them to the commit log first, with its commits. So no state is without a record, and
nothing is opened but main and the log, however many branches there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.errors import GraphError
from omnigraph.ids import BranchId
from omnigraph.limits import BRANCH_NAMES_CACHED_MAX
from omnigraph.manifest import history
from omnigraph.manifest.model import MAIN, MAIN_NAMES, UNKNOWN_NAMES, Branch, BranchNames, Snapshot
from omnigraph.manifest.plan import Plan, CommitPolicy
from omnigraph.manifest.publish import ObservedHead
from omnigraph.manifest.updates import AddBranch, DropBranch
from omnigraph.store.store import Store

if TYPE_CHECKING:
    from omnigraph.manifest.kernel import Kernel


class NameRecord:
    """The names of branches as one handle knows them. Those of deleted branches never change, and are kept."""

    def __init__(self, store: Store, verify_main: Callable[[], ObservedHead]) -> None:
        self._store = store
        self._verify_main = verify_main
        self._deleted: dict[BranchId | None, BranchNames] = {}

    def look_up(
        self, branch_ids: Iterable[BranchId | None], known_main: ObservedHead | None
    ) -> dict[BranchId | None, BranchNames]:
        """Return the names of incarnations; storage is asked at most once for main and once for the log.

        `known_main` is main as the caller last saw it. Whoever asks has looked the branch or commit up, which needs
        main, so a live branch is in there and costs nothing.
        """
        wanted = set(branch_ids)
        found: dict[BranchId | None, BranchNames] = {None: MAIN_NAMES} if None in wanted else {}
        deleted = dict(self._deleted)
        found |= {one: deleted[one] for one in wanted if one in deleted}
        if known_main is not None:
            found |= _live(known_main, wanted)
        if wanted - found.keys():
            found |= _live(self._verify_main(), wanted)
        missing = {one for one in wanted - found.keys() if one is not None}
        return found | self._read_deleted(missing) if missing else found

    def _read_deleted(self, branch_ids: set[BranchId]) -> dict[BranchId | None, BranchNames]:
        log = history.open_log(self._store)
        recorded = {} if log is None else history.read_branch_names(log, branch_ids)
        names: dict[BranchId | None, BranchNames] = {one: recorded.get(one, UNKNOWN_NAMES) for one in branch_ids}
        if len(self._deleted) + len(names) > BRANCH_NAMES_CACHED_MAX:
            self._deleted.clear()
        self._deleted.update(names)
        return names


def _live(main: ObservedHead, wanted: set[BranchId | None]) -> dict[BranchId | None, BranchNames]:
    branches = main.snapshot.state.branches.values()
    return {one.branch_id: one.names for one in branches if one.branch_id in wanted}


def recover_names(kernel: Kernel, actor: str | None = None) -> tuple[str, ...]:
    """Record the names of live branches that an older release made, as far as main's history tells all of them.

    Returns the branches of which the names are known now. One that was made before the oldest version of main that
    cleanup has kept stays without a record.
    """
    recovered: list[Branch] = []

    def prepare(main: Snapshot) -> Plan | None:
        missing = {one.branch_id: one for one in main.state.branches.values() if one.recorded_names is None}
        names = _names_in_history(kernel, main, missing) if missing else {}
        recovered[:] = [replace(missing[one], recorded_names=names[one]) for one in names]
        updates = [update for one in recovered for update in (DropBranch(one.name), AddBranch(one))]
        return Plan(None, updates=tuple(updates), actor=actor) if updates else None

    kernel.commit(MAIN, prepare, CommitPolicy.CONTROL)
    return tuple(sorted(one.name for one in recovered))


def _names_in_history(
    kernel: Kernel, main: Snapshot, branches: Mapping[BranchId, Branch]
) -> dict[BranchId, tuple[str, ...]]:
    """Walk back over the versions of main until each branch was not there yet; return the names of those."""
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
        then = {one.branch_id: one.name for one in earlier.state.branches.values()}
        for branch_id in list(names):
            if branch_id not in then:
                complete[branch_id] = tuple(names.pop(branch_id))
            elif then[branch_id] not in names[branch_id]:
                names[branch_id].insert(0, then[branch_id])
    return complete
