"""Merge one branch into another, or apply or revert the change of one commit: find the sides, then `apply`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from omnigraph.engine.arguments import strip_name
from omnigraph.engine.authorization import ALLOW_ALL, between, on_branch
from omnigraph.engine.information_flow import check_flow, hidden_base_error, types_hidden_at_base
from omnigraph.engine.merge.ancestry import Joined, MergeBase, is_ancestor, merge_base
from omnigraph.engine.merge.apply import Application, Sides
from omnigraph.engine.merge.conflicts import ResolutionsInput, read_resolutions
from omnigraph.engine.merge.placement import Placement
from omnigraph.engine.session import GraphSession, View
from omnigraph.errors import GraphError, ReadSetChanged, UsageError
from omnigraph.ids import BranchId, CommitId
from omnigraph.manifest.history import CommitSource
from omnigraph.manifest.model import MAIN, Commit
from omnigraph.public_values import MergeOutcome, MergeReceipt


def merge(
    session: GraphSession,
    source: str,
    into: str = MAIN,
    *,
    dry_run: bool = False,
    resolutions: ResolutionsInput = None,
    placement: Placement | None = None,
) -> MergeReceipt:
    """Merge a branch into another; with `dry_run`, only return the outcome.

    `placement` says where it is merged and in how many parts, instead of the session's runners and its size.
    """
    source, into = strip_name(source, "source"), strip_name(into, "into")
    if source == into:
        raise UsageError(f"`{source}` cannot be merged into itself; name two branches", source=source, target=into)
    target, names = session.find_branch(into)
    session.require("branch_merge", between(source, names))
    # On a retry of an applied merge, report that first: its source may have been deleted since.
    session.kernel.reject_repeated(into)
    parsed = read_resolutions(resolutions)
    theirs = session.full_view_of(session.head(source))
    check_flow(session, theirs.snapshot, names)
    application = Application(
        session,
        "merge",
        source,
        into,
        lambda ours: _sides(session, ours, theirs),
        parsed,
        {"source": source},
        may_adopt=True,
        placement=placement,
        expected=target,
    )
    return application.preview() if dry_run else application.run()


def _sides(session: GraphSession, ours: View, theirs: View) -> Sides:
    # Called for every attempt: the target may have moved, while the source is pinned by the view of the first one.
    _check_source_unchanged(session, theirs)
    source, target = theirs.snapshot.head, ours.snapshot.head
    assert source is not None, "every branch starts with a commit"
    assert target is not None, "every branch starts with a commit"
    commits = CommitSource(session.kernel, ours.snapshot, theirs.snapshot)
    base = merge_base(commits, target, source)
    if base is None:
        raise GraphError(
            f"`{theirs.snapshot.branch}` and `{ours.snapshot.branch}` have no commit in common, so nothing says what"
            " changed; export one and ingest it into the other",
            code="merge.unrelated",
            source=theirs.snapshot.branch,
            target=ours.snapshot.branch,
        )
    # As in git: up to date if the source is an ancestor of the target, fast-forward if the target is one of the source.
    if base.best == (source,):
        return Sides(MergeOutcome.ALREADY_UP_TO_DATE, base.best)
    if base.best == (target,):
        return Sides(MergeOutcome.FAST_FORWARD, base.best, MergeBase(ours), theirs, source)
    permitted = _permitted_base(session, commits, load_base(session, base), ours, theirs)
    return Sides(MergeOutcome.MERGED, base.best, permitted, theirs, source)


def _permitted_base(
    session: GraphSession, commits: CommitSource, base: MergeBase[View], ours: View, theirs: View
) -> MergeBase[View]:
    """Return a base without types that the actor may not read there; raises if such a type influences the merge.

    A type that is equal on both sides needs no base: a hidden base is replaced by the common state.
    """
    if session.policy is ALLOW_ALL:
        return base
    our_pins, their_pins = ours.snapshot.state.pins, theirs.snapshot.state.pins
    same = {key: pin for key, pin in our_pins.items() if key in their_pins and their_pins[key].ref == pin.ref}
    heads = [ours.snapshot.head, theirs.snapshot.head, *(view.snapshot.head for view in base.states())]
    began = _branches_begun(commits, heads)
    target = session.names_of(ours.snapshot)

    def permit(view: View) -> View:
        snapshot = view.snapshot
        hidden = types_hidden_at_base(session, snapshot, target, began.get(snapshot.head, ()))
        keys = {key for key in snapshot.state.pins if key.name in hidden}
        if not keys <= same.keys():
            raise hidden_base_error(session, target)
        pins = {**snapshot.state.pins, **{key: same[key] for key in keys}}
        links = (*snapshot.links, *ours.snapshot.links) if keys else snapshot.links
        return replace(view, snapshot=replace(snapshot, state=replace(snapshot.state, pins=pins), links=links))

    return base.map(permit)


def _branches_begun(
    commits: CommitSource, heads: Iterable[CommitId | None]
) -> dict[CommitId | None, set[BranchId | None]]:
    """Return the commits that branches on the first-parent lines of some commits began with, and these branches."""
    begun: dict[CommitId | None, set[BranchId | None]] = {}
    visited: set[CommitId] = set()
    for head in heads:
        commit = None if head is None else commits[head]
        # Main began with nothing, so its line has no more of them.
        while commit is not None and commit.branch is not None and commit.commit_id not in visited:
            visited.add(commit.commit_id)
            parent = None if commit.parent is None else commits[commit.parent]
            if parent is not None and parent.branch != commit.branch:
                begun.setdefault(parent.commit_id, set()).add(commit.branch)
            commit = parent
    return begun


def load_base(session: GraphSession, base: MergeBase[CommitId]) -> MergeBase[View]:
    """Return a merge base with the views of its commits.

    The nested base of best common ancestors is left out if cleanup removed one of its states: it is then unknown which
    side changed, and a conflict is reported instead of a guess.
    """
    first, joined = session.full_view(at=base.first), []
    for ancestor in base.joined:
        state, below = session.full_view(at=ancestor.state), None
        try:
            below = None if ancestor.base is None else load_base(session, ancestor.base)
        except GraphError as error:
            if error.code != "graph.version_reclaimed":
                raise
        joined.append(Joined(state, below))
    return MergeBase(first, tuple(joined))


def _check_source_unchanged(session: GraphSession, theirs: View) -> None:
    """Raise if the source was deleted, or recreated under the same name, since it was read."""
    name, expected = theirs.snapshot.branch, theirs.snapshot.state.branch_id
    actual = session.kernel.resolve(name)
    if actual != expected:
        raise ReadSetChanged(
            f"branch `{name}` was recreated while it was being merged; nothing was written, retry",
            member=f"branch_merge_source_incarnation:{name}",
            expected=expected,
            actual=actual,
        )


def revert(
    session: GraphSession,
    commit_id: str,
    branch: str = MAIN,
    *,
    dry_run: bool = False,
    resolutions: ResolutionsInput = None,
) -> MergeReceipt:
    """Take the change of a commit back on a branch that has it."""

    def choose(ours: View, commit: Commit, before: View, after: View) -> Sides:
        head = ours.snapshot.head
        assert head is not None, "every branch starts with a commit"
        if not is_ancestor(CommitSource(session.kernel, ours.snapshot), commit.commit_id, head):
            raise UsageError(
                f"branch `{branch.strip()}` does not have commit {commit.commit_id}, so there is nothing to revert",
                commit_id=commit.commit_id,
                branch=branch.strip(),
            )
        # A revert is a merge with the commit as base and its parent as the other side, so the change is undone where
        # nothing has changed since.
        return Sides(MergeOutcome.MERGED, (commit.commit_id,), MergeBase(after), before)

    return _replay(session, "revert", commit_id, branch, choose, dry_run, resolutions)


def cherry_pick(
    session: GraphSession,
    commit_id: str,
    branch: str = MAIN,
    *,
    dry_run: bool = False,
    resolutions: ResolutionsInput = None,
) -> MergeReceipt:
    """Apply the change of a commit of another branch."""

    def choose(_: View, commit: Commit, before: View, after: View) -> Sides:
        assert commit.parent is not None, "a commit without a parent was refused"
        # A cherry-pick is the same with parent and commit exchanged.
        return Sides(MergeOutcome.MERGED, (commit.parent,), MergeBase(before), after)

    return _replay(session, "cherry_pick", commit_id, branch, choose, dry_run, resolutions)


def _replay(
    session: GraphSession,
    kind: str,
    commit_id: str,
    branch: str,
    choose: Callable[[View, Commit, View, View], Sides],
    dry_run: bool,
    resolutions: ResolutionsInput,
) -> MergeReceipt:
    """Apply what `choose` makes of the target, a commit, and the states before and after the commit."""
    target, names = session.find_branch(branch)
    session.require("change", on_branch(names))
    # Whether a change applies depends on what the branch holds.
    session.require("read", on_branch(names))
    commit = session.allowed_commit(branch, strip_name(commit_id, "commit_id"))
    if session.policy is not ALLOW_ALL:
        check_flow(session, session.kernel.snapshot_of(commit), names)
    after = session.full_view(at=commit.commit_id)
    if commit.parent is None:
        raise GraphError(
            f"commit {commit.commit_id} is the first of the graph; it has no change to apply or revert",
            code="commit.parentless",
            commit_id=commit.commit_id,
        )
    # It was on the same branch, or is what the branch was created from.
    before = session.full_view(at=commit.parent)
    application = Application(
        session,
        kind,
        commit.commit_id,
        branch.strip(),
        lambda ours: choose(ours, commit, before, after),
        read_resolutions(resolutions),
        {"commit": commit.commit_id},
        expected=target,
    )
    return application.preview() if dry_run else application.run()
