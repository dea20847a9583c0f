"""Flow: no operation moves what its actor may not read to where it could be read.

Rules see of a branch only whether it is protected. So what goes between branches of the same protection shows nothing
new to anybody; what goes between others is held against what the actor may read at the source.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from omnigraph.engine.authorization import ALLOW_ALL, PolicyBranch, display_name
from omnigraph.engine.session import GraphSession
from omnigraph.errors import PolicyDenied
from omnigraph.ids import BranchId
from omnigraph.lang.catalog import Catalog
from omnigraph.manifest.model import BranchNames, Snapshot

# Either of them shows what a type holds.
_SHOWING = ("read", "export")


def check_flow(session: GraphSession, source: Snapshot, target: PolicyBranch, today: Snapshot | None = None) -> None:
    """Refuse to carry types of a state, which the actor may not read there, to a branch where they could be read.

    To the actor itself, on any branch; and to anybody else, where a protected branch goes to one that is not. `today`
    is the newest state of main when the source is of the past: types are judged by the names that they have today.
    """
    if session.policy is ALLOW_ALL:
        return
    origin, catalog = session.names_of(source), session.catalog(source)
    hidden = None if today is None else session.hidden_then(source, today, *_SHOWING)
    if _shown(session, catalog, origin, target, hidden):
        raise PolicyDenied(
            f"branch `{display_name(target)}` could show types that are hidden from `{session.actor}` on branch"
            f" `{display_name(origin)}`; nothing was written. Ask an actor who may read all types there",
            actor=session.actor,
            action="read",
            branch=display_name(origin),
            target_branch=display_name(target),
        )


def hidden_at_base(
    session: GraphSession, base: Snapshot, target: PolicyBranch, began: Iterable[BranchId | None] = ()
) -> frozenset[str]:
    """Return the types of a merge base that the actor may not read there, and that could be read on the target.

    Conflicts show the base, resolutions take it, and which side wins tells what it holds: so it is judged like a
    source. `began` are branches that began with this state: what it holds was readable there from the first moment.
    """
    if session.policy is ALLOW_ALL:
        return frozenset()
    catalog, branches = session.catalog(base), {base.state.branch_id, *began}
    names = session.kernel.all_names_of(branches)
    return frozenset.intersection(*(_shown(session, catalog, names[branch], target) for branch in branches))


def refuse_hidden_base(session: GraphSession, target: PolicyBranch) -> PolicyDenied:
    """Return the refusal of a merge that would start from what the actor may not read."""
    return PolicyDenied(
        f"the merge starts from a commit that both sides have in common, and branch `{display_name(target)}` could show"
        f" types of it that are hidden from `{session.actor}`; nothing was written. Ask an actor who may read all types"
        " of both histories",
        actor=session.actor,
        action="read",
        target_branch=display_name(target),
    )


def _shown(
    session: GraphSession,
    catalog: Catalog,
    origin: BranchNames,
    target: PolicyBranch,
    hidden: frozenset[str] | None = None,
) -> frozenset[str]:
    """Return the types that are hidden from the actor on one branch, and could be read on another.

    `hidden` is what is hidden from the actor there, if the rules of today do not say it by name.
    """
    hidden = session.hidden_in(catalog, origin, *_SHOWING) if hidden is None else hidden
    if not hidden:
        return hidden
    shown = hidden - session.hidden_in(catalog, target, *_SHOWING)
    if session.policy.is_protected(origin) and not session.policy.is_protected(target):
        shown |= hidden & _revealed(session, catalog, origin, target)
    return shown


def _revealed(session: GraphSession, catalog: Catalog, origin: BranchNames, target: PolicyBranch) -> frozenset[str]:
    """Return the types that some actor may read on the target, and not at the source."""
    revealed: set[str] = set()
    for actor in session.policy.sample_actors():
        other = replace(session, actor=actor)
        revealed |= other.hidden_in(catalog, origin, *_SHOWING) - other.hidden_in(catalog, target, *_SHOWING)
    return frozenset(revealed)


def check_rename(session: GraphSession, name: str, new_name: str) -> None:
    """Ask for `read` of all types of a branch, when its new name is protected and its old ones are not, or reversely.

    A branch stays protected when it loses a protected name, so that takes nothing off; but whoever moves a branch over
    that border decides who reads it.
    """
    if session.policy is ALLOW_ALL:
        return
    names = session.names_now(name)
    if session.policy.is_protected(names) == session.policy.is_protected(new_name):
        return
    if session.hidden(session.head(name)):
        raise PolicyDenied(
            f"to rename `{display_name(names)}` to `{new_name.strip()}` changes its protection, which takes `read` of"
            f" all its types, and some are hidden from `{session.actor}`; nothing was written",
            actor=session.actor,
            action="read",
            branch=display_name(names),
            target_branch=new_name.strip(),
        )
