"""Idempotency keys: a write with a request id is applied at most once, however often it is retried.

The commit stores the id as a property, so a client that lost a response can look it up, or simply retry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ulid import ULID

from omnigraph.errors import Effect, GraphError
from omnigraph.ids import CommitId
from omnigraph.manifest.model import Commit, Snapshot

REQUEST_ID = "request_id"


@dataclass(frozen=True, slots=True)
class RequestKey:
    """An idempotency key and the actor it belongs to: the same id of another actor is another key."""

    request_id: str
    actor: str | None

    def is_of(self, commit: Commit) -> bool:
        """Return True if a commit has the key; a key without an actor matches commits of every actor."""
        return commit.properties.get(REQUEST_ID) == self.request_id and self.actor in (None, commit.actor)


def reject_repeated(snapshot: Snapshot, key: RequestKey, all_commits: Callable[[], dict[CommitId, Commit]]) -> None:
    """Raise if a commit of this branch has the key; the log is read only for an id older than the window."""
    window = snapshot.state.commits
    commit = find_request(window, key)
    if commit is None and window and ULID.from_str(key.request_id).milliseconds * 1_000 < window[0].created_at_us:
        commit = find_request(all_commits().values(), key)
    if commit is not None:
        raise GraphError(
            f"this write was already applied as commit {commit.commit_id}; nothing was written again",
            code="conflict.repeated",
            effect=Effect.APPLIED,
            operation_id=key.request_id,
            graph_commit_id=commit.commit_id,
        )


def find_request(commits: Iterable[Commit], key: RequestKey) -> Commit | None:
    """Return the commit with an idempotency key."""
    return next((commit for commit in commits if key.is_of(commit)), None)
