"""Reverts and cherry-picks: the change of one commit, backwards or forwards, applied to a branch.

A commit's change is what it did to its first parent; of a merge, that is all that the merge brought in.
"""

from __future__ import annotations

from collections.abc import Callable

from omnigraph.engine.authorization import ALLOW_ALL, on
from omnigraph.engine.information_flow import check_flow
from omnigraph.engine.merge.ancestry import MergeBase, is_ancestor
from omnigraph.engine.merge.apply import Application, Sides
from omnigraph.engine.merge.conflicts import Given, read_resolutions
from omnigraph.engine.merge.merge_receipts import MergeReceipt, Outcome
from omnigraph.engine.session import Core, View, no_moment
from omnigraph.errors import GraphError, UsageError
from omnigraph.ids import BranchId
from omnigraph.manifest.history import CommitSource
from omnigraph.manifest.model import MAIN, BranchNames, Commit


def revert(
    core: Core,
    commit_id: str,
    branch: str = MAIN,
    *,
    dry_run: bool = False,
    resolutions: Given = None,
    actor: str | None = None,
) -> MergeReceipt:
    """Take the change of a commit back on a branch that has it."""
    core, target, names = _admit(core, branch, actor)
    commit, before, after = _states(core, commit_id, names)

    def choose(ours: View) -> Sides:
        head = ours.snapshot.head
        assert head is not None, "every branch starts with a commit"
        if not is_ancestor(CommitSource(core.kernel, ours.snapshot), commit.commit_id, head):
            raise UsageError(
                f"branch `{branch.strip()}` does not have commit {commit.commit_id}, so there is nothing to revert",
                commit_id=commit.commit_id,
                branch=branch.strip(),
            )
        return Sides(Outcome.MERGED, (commit.commit_id,), MergeBase(after), before)

    return _apply(core, "revert", commit, branch, choose, dry_run, resolutions, target)


def cherry_pick(
    core: Core,
    commit_id: str,
    branch: str = MAIN,
    *,
    dry_run: bool = False,
    resolutions: Given = None,
    actor: str | None = None,
) -> MergeReceipt:
    """Apply the change of a commit of another branch."""
    core, target, names = _admit(core, branch, actor)
    commit, before, after = _states(core, commit_id, names)
    assert commit.parent is not None, "a commit without a parent was refused"
    sides = Sides(Outcome.MERGED, (commit.parent,), MergeBase(before), after)
    return _apply(core, "cherry_pick", commit, branch, lambda _: sides, dry_run, resolutions, target)


def _admit(core: Core, branch: str, actor: str | None) -> tuple[Core, BranchId | None, BranchNames]:
    """Return the core of the actor, if it may change the branch, and which branch that is."""
    core = core.acting_as(actor)
    branch_id, names = core.find_branch(branch)
    core.require("change", on(names))
    return core, branch_id, names


def _states(core: Core, commit_id: str, target: BranchNames) -> tuple[Commit, View, View]:
    """Return a commit, which a tag may name, and the graph before and after it, if it may go to the target.

    What was before a commit was on the same branch, or is what that branch was made of.
    """
    commit = core.commit_at(MAIN, commit_id.strip())
    if core.policy is not ALLOW_ALL:
        if not core.may("read", on(core.names_of(commit))):
            raise no_moment(MAIN, commit_id.strip())
        check_flow(core, core.kernel.snapshot_of(commit), target)
    after = core.whole(at=commit.commit_id)
    if commit.parent is None:
        raise GraphError(
            f"commit {commit.commit_id} is the first of the graph; it has no change to apply or take back",
            code="commit.parentless",
            commit_id=commit.commit_id,
        )
    return commit, core.whole(at=commit.parent), after


def _apply(
    core: Core,
    kind: str,
    commit: Commit,
    branch: str,
    choose: Callable[[View], Sides],
    dry_run: bool,
    resolutions: Given,
    expected: BranchId | None,
) -> MergeReceipt:
    given = read_resolutions(resolutions)
    properties = {"commit": commit.commit_id}
    application = Application(
        core, kind, commit.commit_id, branch.strip(), choose, given, properties, expected=expected
    )
    return application.preview() if dry_run else application.run()
