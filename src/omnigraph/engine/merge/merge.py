"""Merge one branch into another, as one commit with two parents: find the base, then `apply`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from omnigraph.engine.arguments import strip_name
from omnigraph.engine.authorization import ALLOW_ALL, between
from omnigraph.engine.information_flow import check_flow, hidden_base_error, types_hidden_at_base
from omnigraph.engine.merge.ancestry import Joined, MergeBase, merge_base
from omnigraph.engine.merge.apply import Application, Sides
from omnigraph.engine.merge.conflicts import ResolutionsInput, read_resolutions
from omnigraph.engine.merge.merge_receipts import MergeReceipt, Outcome
from omnigraph.engine.merge.merge_tasks import ExecuteMerge, merge_in_memory
from omnigraph.engine.session import GraphSession, View
from omnigraph.errors import GraphError, ReadSetChanged, UsageError
from omnigraph.ids import BranchId, CommitId
from omnigraph.manifest.history import CommitSource
from omnigraph.manifest.model import MAIN


def merge(
    session: GraphSession,
    source: str,
    into: str = MAIN,
    *,
    dry_run: bool = False,
    resolutions: ResolutionsInput = None,
    execute: ExecuteMerge = merge_in_memory,
) -> MergeReceipt:
    """Merge a branch into another; with `dry_run`, only return the outcome."""
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
        execute=execute,
        expected=target,
    )
    return application.preview() if dry_run else application.run()


def _sides(session: GraphSession, ours: View, theirs: View) -> Sides:
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
    if base.best == (source,):
        return Sides(Outcome.ALREADY_UP_TO_DATE, base.best)
    if base.best == (target,):
        return Sides(Outcome.FAST_FORWARD, base.best, MergeBase(ours), theirs, source)
    permitted = _permitted_base(session, commits, load_base(session, base), ours, theirs)
    return Sides(Outcome.MERGED, base.best, permitted, theirs, source)


def _permitted_base(
    session: GraphSession, commits: CommitSource, base: MergeBase[View], ours: View, theirs: View
) -> MergeBase[View]:
    """Return a base without types that the actor may not read there; raises if such a type influences the merge.

    A type that is equal on both sides needs no base: a hidden base is replaced by the common state.
    """
    if session.policy is ALLOW_ALL:
        return base
    mine, others = ours.snapshot.state.pins, theirs.snapshot.state.pins
    same = {key: pin for key, pin in mine.items() if key in others and others[key].ref == pin.ref}
    heads = [ours.snapshot.head, theirs.snapshot.head, *(view.snapshot.head for view in base.states())]
    began = _branches_begun(commits, heads)
    target = session.names_of(ours.snapshot)

    def permit(view: View) -> View:
        snapshot = view.snapshot
        hidden = types_hidden_at_base(session, snapshot, target, began.get(snapshot.head, ()))
        keys = {key for key in snapshot.state.pins if key.partition(":")[2] in hidden}
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

    The nested base of best common ancestors is left out if cleanup removed one of its states or its schema differs: it
    is then unknown which side changed, and a conflict is reported instead of a guess.
    """
    first = session.full_view(at=base.first)
    joined = [
        Joined(session.full_view(at=ancestor.state), _load_below(session, ancestor.base, first))
        for ancestor in base.joined
    ]
    return MergeBase(first, tuple(joined))


def _load_below(session: GraphSession, base: MergeBase[CommitId] | None, above: View) -> MergeBase[View] | None:
    if base is None:
        return None
    try:
        loaded = load_base(session, base)
    except GraphError as error:
        if error.code != "graph.version_reclaimed":
            raise
        return None
    return loaded if all(view.catalog.ir_hash == above.catalog.ir_hash for view in loaded.states()) else None


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
