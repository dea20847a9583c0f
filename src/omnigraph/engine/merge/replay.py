"""Reverts and cherry-picks: apply the change of one commit, backwards or forwards, to a branch.

The change of a commit is its difference to the first parent; for a merge, everything that was merged.
"""

from __future__ import annotations

from collections.abc import Callable

from omnigraph.engine.arguments import strip_name
from omnigraph.engine.authorization import ALLOW_ALL, on_branch
from omnigraph.engine.information_flow import check_flow
from omnigraph.engine.merge.ancestry import MergeBase, is_ancestor
from omnigraph.engine.merge.apply import Application, Sides
from omnigraph.engine.merge.conflicts import ResolutionsInput, read_resolutions
from omnigraph.engine.merge.merge_receipts import MergeReceipt, Outcome
from omnigraph.engine.session import GraphSession, View, commit_not_found
from omnigraph.errors import GraphError, UsageError
from omnigraph.ids import BranchId
from omnigraph.manifest.history import CommitSource
from omnigraph.manifest.model import MAIN, BranchNames, Commit


def revert(
    session: GraphSession,
    commit_id: str,
    branch: str = MAIN,
    *,
    dry_run: bool = False,
    resolutions: ResolutionsInput = None,
) -> MergeReceipt:
    """Take the change of a commit back on a branch that has it."""
    target, names = _admit(session, branch)
    commit, before, after = _states(session, commit_id, names)

    def choose(ours: View) -> Sides:
        head = ours.snapshot.head
        assert head is not None, "every branch starts with a commit"
        if not is_ancestor(CommitSource(session.kernel, ours.snapshot), commit.commit_id, head):
            raise UsageError(
                f"branch `{branch.strip()}` does not have commit {commit.commit_id}, so there is nothing to revert",
                commit_id=commit.commit_id,
                branch=branch.strip(),
            )
        return Sides(Outcome.MERGED, (commit.commit_id,), MergeBase(after), before)

    return _apply(session, "revert", commit, branch, choose, dry_run, resolutions, target)


def cherry_pick(
    session: GraphSession,
    commit_id: str,
    branch: str = MAIN,
    *,
    dry_run: bool = False,
    resolutions: ResolutionsInput = None,
) -> MergeReceipt:
    """Apply the change of a commit of another branch."""
    target, names = _admit(session, branch)
    commit, before, after = _states(session, commit_id, names)
    assert commit.parent is not None, "a commit without a parent was refused"
    sides = Sides(Outcome.MERGED, (commit.parent,), MergeBase(before), after)
    return _apply(session, "cherry_pick", commit, branch, lambda _: sides, dry_run, resolutions, target)


def _admit(session: GraphSession, branch: str) -> tuple[BranchId | None, BranchNames]:
    """Return the id and names of the branch, after checking `change` and `read`."""
    branch_id, names = session.find_branch(branch)
    session.require("change", on_branch(names))
    # Whether a change applies depends on what the branch holds.
    session.require("read", on_branch(names))
    return branch_id, names


def _states(session: GraphSession, commit_id: str, target: BranchNames) -> tuple[Commit, View, View]:
    """Return a commit, given by id or tag, and the views before and after it, if they may flow to the target.

    The state before a commit was on the same branch, or is what the branch was created from.
    """
    commit_id = strip_name(commit_id, "commit_id")
    commit = session.commit_at(MAIN, commit_id)
    if session.policy is not ALLOW_ALL:
        if not session.may("read", on_branch(session.names_of(commit))):
            raise commit_not_found(MAIN, commit_id)
        check_flow(session, session.kernel.snapshot_of(commit), target)
    after = session.full_view(at=commit.commit_id)
    if commit.parent is None:
        raise GraphError(
            f"commit {commit.commit_id} is the first of the graph; it has no change to apply or revert",
            code="commit.parentless",
            commit_id=commit.commit_id,
        )
    return commit, session.full_view(at=commit.parent), after


def _apply(
    session: GraphSession,
    kind: str,
    commit: Commit,
    branch: str,
    choose: Callable[[View], Sides],
    dry_run: bool,
    resolutions: ResolutionsInput,
    expected: BranchId | None,
) -> MergeReceipt:
    parsed = read_resolutions(resolutions)
    properties = {"commit": commit.commit_id}
    application = Application(
        session, kind, commit.commit_id, branch.strip(), choose, parsed, properties, expected=expected
    )
    return application.preview() if dry_run else application.run()
