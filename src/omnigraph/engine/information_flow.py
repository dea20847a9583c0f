"""Information flow control between branches: no operation copies types to a branch where more actors could read them.

Policy rules distinguish branches only by whether they are protected, so moving data between two protected or two
unprotected branches reveals nothing new. Other moves are checked against what the actor may read at the source.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from omnigraph.engine.authorization import ALLOW_ALL, PolicyBranch, display_name
from omnigraph.engine.session import GraphSession
from omnigraph.errors import PolicyDenied
from omnigraph.ids import BranchId
from omnigraph.lang.catalog import Catalog
from omnigraph.manifest.model import UNKNOWN_NAMES, BranchNames, Snapshot

# Either action reveals the data of a type.
_SHOWING = ("read", "export")


def check_flow(session: GraphSession, source: Snapshot, target: PolicyBranch, today: Snapshot | None = None) -> None:
    """Raise `PolicyDenied` if the target branch could reveal types of a snapshot that are hidden from the actor.

    Checked for the actor on any branch, and for all actors if data leaves a protected branch. `today` is the newest
    snapshot of main if the source is a past state: types are authorized by their names of today.
    """
    if session.policy is ALLOW_ALL:
        return
    origin, catalog = session.names_of(source), session.catalog(source)
    hidden = None if today is None else session.hidden_then(source, today, *_SHOWING)
    if _newly_readable(session, catalog, origin, target, hidden):
        raise PolicyDenied(
            f"branch `{display_name(target)}` could show types that are hidden from `{session.actor}` on branch"
            f" `{display_name(origin)}`; nothing was written. Ask an actor who may read all types there",
            actor=session.actor,
            action="read",
            branch=display_name(origin),
            target_branch=display_name(target),
        )


def types_hidden_at_base(
    session: GraphSession, base: Snapshot, target: PolicyBranch, began: Iterable[BranchId | None] = ()
) -> frozenset[str]:
    """Return the types of a merge base that are hidden from the actor there but readable on the target.

    A merge reveals its base through conflicts, resolutions and the choice of the winning side, so the base is checked
    like a source. `began` are branches that started from this state, whose readers have always seen it.
    """
    if session.policy is ALLOW_ALL:
        return frozenset()
    catalog, branches = session.catalog(base), {base.state.branch_id, *began}
    names = session.kernel.all_names_of(branches)
    return frozenset.intersection(*(_newly_readable(session, catalog, names[branch], target) for branch in branches))


def types_out_of_reach(session: GraphSession, catalog: Catalog) -> frozenset[str]:
    """Return the types that the actor may neither read nor change, on protected and on other branches."""
    # Rules only see whether a branch is protected; a branch without recorded names counts as protected.
    kinds_of_branches = (UNKNOWN_NAMES, BranchNames(()))
    return frozenset.intersection(*(session.hidden_in(catalog, names, "read", "change") for names in kinds_of_branches))


def hidden_base_error(session: GraphSession, target: PolicyBranch) -> PolicyDenied:
    """Return the error of a merge whose base holds types that the actor may not read."""
    return PolicyDenied(
        f"the merge starts from a commit that both sides have in common, and branch `{display_name(target)}` could show"
        f" types of it that are hidden from `{session.actor}`; nothing was written. Ask an actor who may read all types"
        " of both histories",
        actor=session.actor,
        action="read",
        target_branch=display_name(target),
    )


def _newly_readable(
    session: GraphSession,
    catalog: Catalog,
    origin: BranchNames,
    target: PolicyBranch,
    hidden: frozenset[str] | None = None,
) -> frozenset[str]:
    """Return the types that are hidden from the actor on one branch and readable on another.

    `hidden` overrides the types hidden at the origin, for a past state whose types had other names.
    """
    hidden = session.hidden_in(catalog, origin, *_SHOWING) if hidden is None else hidden
    if not hidden:
        return hidden
    revealed = hidden - session.hidden_in(catalog, target, *_SHOWING)
    if session.policy.is_protected(origin) and not session.policy.is_protected(target):
        # Other actors may read on the target, and not at the origin, what this one may read on neither.
        for other in (replace(session, actor=actor) for actor in session.policy.sample_actors()):
            newly_readable = other.hidden_in(catalog, origin, *_SHOWING) - other.hidden_in(catalog, target, *_SHOWING)
            revealed |= hidden & newly_readable
    return revealed


def check_rename(session: GraphSession, name: str, new_name: str) -> None:
    """Require `read` of all types of a branch if renaming it changes whether it is protected.

    A branch that ever had a protected name stays protected, but a rename in the other direction decides who reads it.
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
