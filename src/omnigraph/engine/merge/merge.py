"""Three-way merge of one branch into another, as one commit with two parents.

Which outcome it is follows from history; the rest is `apply`.
"""

from __future__ import annotations

from omnigraph.engine.core import Core, View
from omnigraph.engine.flow import check_flow
from omnigraph.engine.merge.ancestry import Joined, MergeBase, merge_base
from omnigraph.engine.merge.apply import Application, Sides
from omnigraph.engine.merge.receipt import MergeReceipt, Outcome
from omnigraph.engine.merge.resolution import Given, read_resolutions
from omnigraph.engine.merge.workers import ThisProcess, Workers
from omnigraph.engine.scope import transition
from omnigraph.errors import GraphError, ReadSetChanged, UsageError
from omnigraph.ids import CommitId
from omnigraph.manifest.history import CommitSource
from omnigraph.manifest.model import MAIN


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
    core = core.acting_as(actor)
    target, names = core.find_branch(into)
    core.require("branch_merge", transition(source, names))
    # A merge that was done may have taken its source away, which is not what whoever asks again wants to hear.
    core.kernel.refuse_repeated(into)
    given = read_resolutions(resolutions)
    theirs = core.whole_of(core.head(source))
    check_flow(core, theirs.snapshot, names)
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
        expected=target,
    )
    return application.preview() if dry_run else application.run()


def _sides(core: Core, ours: View, theirs: View) -> Sides:
    _refuse_recreated(core, theirs)
    source, target = theirs.snapshot.head, ours.snapshot.head
    assert source is not None, "every branch starts with a commit"
    assert target is not None, "every branch starts with a commit"
    base = merge_base(CommitSource(core.kernel, ours.snapshot, theirs.snapshot), target, source)
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
    return Sides(Outcome.MERGED, base.best, load_base(core, base), theirs, source)


def load_base(core: Core, base: MergeBase[CommitId]) -> MergeBase[View]:
    """Return a merge base with the states of its commits.

    What best common ancestors have in common in turn is left out where cleanup has removed a state of it, or the schema
    was another one: their differences are unknown then, and conflicts take the place of a guess.
    """
    first = core.whole(at=base.first)
    joined = [Joined(core.whole(at=one.state), _load_below(core, one.base, first)) for one in base.joined]
    return MergeBase(first, tuple(joined))


def _load_below(core: Core, base: MergeBase[CommitId] | None, above: View) -> MergeBase[View] | None:
    if base is None:
        return None
    try:
        loaded = load_base(core, base)
    except GraphError as error:
        if error.code != "graph.version_reclaimed":
            raise
        return None
    return loaded if all(view.catalog.ir_hash == above.catalog.ir_hash for view in loaded.states()) else None


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
