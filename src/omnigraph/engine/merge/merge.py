"""Three-way merge of one branch into another, as one commit with two parents.

Which outcome it is follows from history; the rest is `apply`.
"""

from __future__ import annotations

from omnigraph.engine.core import Core, View
from omnigraph.engine.merge.ancestry import Lookup, is_ancestor, merge_base
from omnigraph.engine.merge.apply import Application, Sides
from omnigraph.engine.merge.receipt import MergeReceipt, Outcome
from omnigraph.engine.merge.resolution import Given, read_resolutions
from omnigraph.engine.merge.workers import ThisProcess, Workers
from omnigraph.engine.scope import transition
from omnigraph.engine.write.gate import admit
from omnigraph.errors import GraphError, ReadSetChanged, UsageError
from omnigraph.ids import CommitId
from omnigraph.manifest.model import MAIN, Commit


def merge(
    core: Core,
    source: str,
    into: str = MAIN,
    *,
    dry_run: bool = False,
    resolutions: Given = None,
    actor: str | None = None,
    workers: Workers | None = None,
) -> MergeReceipt:
    """Merge a branch into another; with `dry_run`, say what would come out and write nothing."""
    source, into = source.strip(), into.strip()
    if source == into:
        raise UsageError(f"`{source}` cannot be merged into itself; name two branches", source=source, target=into)
    core = admit(core, "branch_merge", transition(source, into), actor)
    # A merge that was done may have taken its source away, which is not what whoever asks again wants to hear.
    core.kernel.refuse_repeated(into)
    given = read_resolutions(resolutions)
    theirs = core.whole(source)
    application = Application(
        core,
        "merge",
        source,
        into,
        lambda ours: _sides(core, ours, theirs),
        given,
        {"source": source},
        may_adopt=True,
        workers=workers or ThisProcess(),
    )
    return application.preview() if dry_run else application.run()


def _sides(core: Core, ours: View, theirs: View) -> Sides:
    _refuse_recreated(core, theirs)
    source, target = theirs.snapshot.head, ours.snapshot.head
    assert source is not None, "every branch starts with a commit"
    assert target is not None, "every branch starts with a commit"
    lookup = lookup_of(core, ours, theirs)
    if is_ancestor(source, target, lookup):
        return Sides(Outcome.ALREADY_UP_TO_DATE, source)
    if is_ancestor(target, source, lookup):
        return Sides(Outcome.FAST_FORWARD, target, ours, theirs, source)
    base = merge_base(source, target, lookup)
    if base is None:
        raise GraphError(
            f"`{theirs.snapshot.branch}` and `{ours.snapshot.branch}` have no commit in common, so nothing says what"
            " changed; export one and ingest it into the other",
            code="merge.unrelated",
            source=theirs.snapshot.branch,
            target=ours.snapshot.branch,
        )
    return Sides(Outcome.MERGED, base, core.whole(at=base), theirs, source)


def _refuse_recreated(core: Core, theirs: View) -> None:
    """Refuse a source that went away, or became another branch of the same name, since it was read."""
    name, expected = theirs.snapshot.branch, theirs.snapshot.state.branch_id
    actual = core.kernel.resolve(name)
    if actual != expected:
        raise ReadSetChanged(
            f"branch `{name}` was made anew while it was being merged; nothing was written, run it again",
            member=f"branch_merge_source_incarnation:{name}",
            expected=expected,
            actual=actual,
        )


def lookup_of(core: Core, *views: View) -> Lookup:
    """Return a way to find commits that reads more than the views hold only when it must."""
    known = {one.commit_id: one for view in views for one in view.snapshot.state.commits}
    is_complete = False

    def lookup(commit_id: CommitId) -> Commit:
        nonlocal known, is_complete
        if commit_id not in known and not is_complete:
            known, is_complete = core.kernel.all_commits() | known, True
        return known[commit_id]

    return lookup
