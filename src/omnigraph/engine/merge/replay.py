"""Reverts and cherry-picks: the change of one commit, backwards or forwards, applied to a branch.

A commit's change is what it did to its first parent; of a merge, that is all that the merge brought in.
"""

from __future__ import annotations

from collections.abc import Callable

from omnigraph.engine.core import Core, View
from omnigraph.engine.merge.ancestry import MergeBase, is_ancestor
from omnigraph.engine.merge.apply import Application, Sides
from omnigraph.engine.merge.receipt import MergeReceipt, Outcome
from omnigraph.engine.merge.resolution import Given, read_resolutions
from omnigraph.engine.scope import on
from omnigraph.engine.write.gate import admit
from omnigraph.errors import GraphError, UsageError
from omnigraph.manifest.history import CommitSource
from omnigraph.manifest.model import MAIN, Commit


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
    core = admit(core, "change", on(branch), actor)
    commit, before, after = _states(core, commit_id)

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

    return _apply(core, "revert", commit, branch, choose, dry_run, resolutions)


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
    core = admit(core, "change", on(branch), actor)
    commit, before, after = _states(core, commit_id)
    assert commit.parent is not None, "a commit without a parent was refused"
    sides = Sides(Outcome.MERGED, (commit.parent,), MergeBase(before), after)
    return _apply(core, "cherry_pick", commit, branch, lambda _: sides, dry_run, resolutions)


def _states(core: Core, commit_id: str) -> tuple[Commit, View, View]:
    """Return a commit, which a tag may name, and the graph before and after it."""
    after = core.whole(at=commit_id.strip())
    core.require("read", on(after.snapshot.branch))
    assert after.snapshot.head is not None, "every state has a commit that made it"
    commit = core.kernel.find_commit(after.snapshot.head)
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
) -> MergeReceipt:
    given = read_resolutions(resolutions)
    properties = {"commit": commit.commit_id}
    application = Application(core, kind, commit.commit_id, branch.strip(), choose, given, properties)
    return application.preview() if dry_run else application.run()
