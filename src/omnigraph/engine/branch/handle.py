"""`graph.branches`: create, list, rename, delete and merge, under the policy.

Thin: the kernel and the merge know how.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.engine.branch.tags import mask_hidden_tag
from omnigraph.engine.core import Core, Moment
from omnigraph.engine.flow import check_flow, check_rename
from omnigraph.engine.given import checking
from omnigraph.engine.scope import GRAPH, onto, transition
from omnigraph.errors import OmniGraphError
from omnigraph.manifest import branches
from omnigraph.manifest.model import MAIN, Branch

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
        core = self._core
        core.require("branch_create", transition(from_, name))
        # What it begins with can be read on the new branch; a commit or tag is judged by the branch that it belongs to.
        main, origin = core.kernel.snapshot(MAIN), from_.strip()
        if at is None and (origin == MAIN or origin in main.state.branches):
            source = core.head(origin)
            check_flow(core, source, name)
        else:
            source = core.allowed_at(origin, at) if at is not None else core.allowed_at(MAIN, origin)
            check_flow(core, source, name, main)
        with mask_hidden_tag(core, name):
            return branches.create_branch(core.kernel, name, source, core.actor)

    def list(self) -> list[str]:
        """Return the names of all branches, sorted; `main` is always among them."""
        self._core.require("read", GRAPH)
        return sorted([MAIN, *(one.name for one in branches.list_branches(self._core.kernel))])

    def rename(self, name: str, new_name: str) -> Branch:
        """Give a branch another name; whoever works on it goes on under the new one."""
        core = self._core
        branch_id, names = core.find_branch(name)
        core.require("branch_delete", onto(names))
        core.require("branch_create", transition(names, names.renamed(new_name.strip())))
        check_rename(core, name, new_name)
        with mask_hidden_tag(core, new_name):
            return branches.rename_branch(core.kernel, name, new_name, core.actor, branch_id)

    def delete(self, name: str) -> None:
        """Take a branch away; refused while other branches or tags stand on it."""
        branch_id, names = self._core.find_branch(name)
        self._core.require("branch_delete", onto(names))
        branches.delete_branch(self._core.kernel, name, self._core.actor, branch_id)

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
