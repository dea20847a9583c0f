"""The record of names: every name that each incarnation of a branch ever had, after its deletion too.

A live branch has its names in its row of main's catalog, where creating and renaming publish them together with the
name itself. Deleting one writes them to the commit log first, with its commits. So no state is without a record, and
nothing is opened but main and the log, however many branches there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from omnigraph.ids import BranchId
from omnigraph.limits import BRANCH_NAMES_CACHED_MAX
from omnigraph.manifest import commit_log
from omnigraph.manifest.model import MAIN_NAMES, UNKNOWN_NAMES, BranchNames
from omnigraph.manifest.publish import Verified
from omnigraph.store.store import Store


class NameRecord:
    """The names of branches as one handle knows them. Those of deleted branches never change, and are kept."""

    def __init__(self, store: Store, verify_main: Callable[[], Verified]) -> None:
        self._store = store
        self._verify_main = verify_main
        self._deleted: dict[BranchId | None, BranchNames] = {}

    def look_up(
        self, branch_ids: Iterable[BranchId | None], known_main: Verified | None
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
        log = commit_log.open_log(self._store)
        recorded = {} if log is None else commit_log.read_branch_names(log, branch_ids)
        names: dict[BranchId | None, BranchNames] = {one: recorded.get(one, UNKNOWN_NAMES) for one in branch_ids}
        if len(self._deleted) + len(names) > BRANCH_NAMES_CACHED_MAX:
            self._deleted.clear()
        self._deleted.update(names)
        return names


def _live(main: Verified, wanted: set[BranchId | None]) -> dict[BranchId | None, BranchNames]:
    branches = main.snapshot.state.branches.values()
    return {one.branch_id: one.names for one in branches if one.branch_id in wanted}
