"""Writes under an id of their caller's choice: done at most once, however often they are asked for.

The commit keeps the id as a property, so whoever lost an answer can look for it, or simply ask again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ulid import ULID

from omnigraph.errors import Effect, GraphError
from omnigraph.ids import CommitId
from omnigraph.manifest.model import Commit, Snapshot
from omnigraph.manifest.plan import Plan

REQUEST_ID = "request_id"


def reject_repeated(snapshot: Snapshot, request_id: str, all_commits: Callable[[], dict[CommitId, Commit]]) -> None:
    """Refuse what a commit of this branch has done already; older ones are looked for only if the id is as old."""
    window = snapshot.state.commits
    found = find_request(window, request_id)
    if found is None and window and ULID.from_str(request_id).milliseconds * 1_000 < window[0].created_at_us:
        found = find_request(all_commits().values(), request_id)
    if found is not None:
        raise GraphError(
            f"this was done before, by commit {found.commit_id}; nothing was written again",
            code="conflict.repeated",
            effect=Effect.APPLIED,
            operation_id=request_id,
            graph_commit_id=found.commit_id,
        )


def find_request(commits: Iterable[Commit], request_id: str) -> Commit | None:
    """Return the commit that was made under an id."""
    return next((commit for commit in commits if commit.properties.get(REQUEST_ID) == request_id), None)


def tag_with_request_id(plan: Plan | None, request_id: str) -> Plan | None:
    """Return a plan whose commit bears the id; control work has no commit to bear it."""
    if plan is None or plan.kind is None:
        return plan
    return replace(plan, properties={**plan.properties, REQUEST_ID: request_id})
