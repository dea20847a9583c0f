"""`graph.branches`: create, list, rename, delete and merge, under the policy.

Thin: the kernel and the merge know how.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.engine.core import Core, Moment
from omnigraph.engine.given import checking
from omnigraph.engine.scope import GRAPH, on, onto, transition
from omnigraph.errors import OmniGraphError
from omnigraph.manifest import branches
from omnigraph.manifest.model import MAIN, Branch, Snapshot

if TYPE_CHECKING:
    from omnigraph.engine.merge import MergeReceipt
    from omnigraph.engine.merge.resolution import Given


@checking
class Branches:
    """The branches of one opened graph."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def create(self, name: str, from_: str = MAIN, at: Moment | None = None) -> Branch:
        """Make a branch from the newest state of another, or from a commit or tag.

        With `at`, from the state of the branch `from_` at a commit, a tag, a manifest version or a point in time.
        """
        self._core.require("branch_create", transition(from_, name))
        source = self._source(from_, at)
        # What it begins with can be read on the new branch; a commit or tag is judged by the branch that it belongs to.
        self._core.require("read", on(source.branch))
        return branches.create_branch(self._core.kernel, name, source, self._core.actor)

    def _source(self, from_: str, at: Moment | None) -> Snapshot:
        kernel, name = self._core.kernel, from_.strip()
        if at is not None or name == MAIN or name in kernel.snapshot(MAIN).state.branches:
            return kernel.snapshot(name) if at is None else self._core.at(name, at)
        return self._core.at(MAIN, name)

    def list(self) -> list[str]:
        """Return the names of all branches, sorted; `main` is always among them."""
        self._core.require("read", GRAPH)
        return sorted([MAIN, *(one.name for one in branches.list_branches(self._core.kernel))])

    def rename(self, name: str, new_name: str) -> Branch:
        """Give a branch another name; whoever works on it goes on under the new one."""
        self._core.require("branch_delete", onto(name))
        self._core.require("branch_create", transition(name, new_name))
        return branches.rename_branch(self._core.kernel, name, new_name, self._core.actor)

    def delete(self, name: str) -> None:
        """Take a branch away; refused while other branches or tags stand on it."""
        self._core.require("branch_delete", onto(name))
        branches.delete_branch(self._core.kernel, name, self._core.actor)

    def merge(
        self,
        source: str,
        into: str = MAIN,
        delete_branch: bool = False,
        dry_run: bool = False,
        resolutions: Given = None,
    ) -> MergeReceipt:
        """Merge a branch into another, as one commit.

        `dry_run` says what would come out, conflicts included, and writes nothing. `resolutions` settle conflicts: a
        file of JSON or NDJSON, its bytes, or dictionaries. `delete_branch` takes the source away after success; that
        it cannot be deleted does not undo the merge, and the receipt says why.
        """
        from omnigraph.engine.merge import merge

        receipt = merge(self._core, source, into, dry_run=dry_run, resolutions=resolutions)
        return receipt if dry_run or not delete_branch else delete_merged(self, receipt)


def delete_merged(branches: Branches, receipt: MergeReceipt) -> MergeReceipt:
    """Take the source of a merge away; the receipt says whether that worked."""
    try:
        branches.delete(receipt.source)
    except OmniGraphError as error:
        return replace(receipt, branch_deleted=False, branch_delete_error=error.message)
    return replace(receipt, branch_deleted=True)
