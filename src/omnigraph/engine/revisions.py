"""Revisions: the texts, numbers and timestamps that name a state, resolved in one place for every surface.

A text is, in this order: a branch or tag; `HEAD`, the newest state of the branch in question; the id of a commit;
`REVISION~N`, its Nth first parent; a manifest version; a timestamp in ISO 8601; or the beginning of the id of a commit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from omnigraph.errors import CommitNotFound, GraphError, UsageError
from omnigraph.ids import ULID_LENGTH, BranchId, CommitId, is_ulid
from omnigraph.limits import AMBIGUOUS_COMMITS_SHOWN, COMMIT_ID_CHARACTERS_MIN, REVISION_CHARACTERS_MAX
from omnigraph.manifest.history import CommitSource
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, Commit, Snapshot
from omnigraph.part_protocols import AsOf as AsOf

HEAD: Final = "HEAD"
_AT_EXPECTED: Final = (
    "`at` must be a branch, a tag, a commit id, `HEAD~1`, a manifest version, or a timestamp as text or datetime"
)
_SHORT_ID: Final = re.compile(f"[0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{{{COMMIT_ID_CHARACTERS_MIN},{ULID_LENGTH}}}")
_ANCESTOR: Final = re.compile(r"(?P<start>.+)~(?P<steps>\d{0,6})")
_VERSION: Final = re.compile(f"[0-9]{{1,{COMMIT_ID_CHARACTERS_MIN - 1}}}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d([T ].*)?")


@dataclass(frozen=True, slots=True)
class Revisions:
    """Finds states for one actor.

    `may_read` decides about the branch that a state belongs to. What the actor may not read is never listed as a
    candidate, and its history is not measured; that a state which was found is hidden is for the caller to check.
    """

    kernel: Kernel
    may_read: Callable[[Snapshot | Commit], bool]

    def find(self, branch: str, at: AsOf) -> Snapshot | Commit:
        """Return the state of a branch or version, or the commit that made a state."""
        if isinstance(at, datetime):
            return self._newest_until(branch, at)
        if isinstance(at, int):
            return self.kernel.at_version(branch, check_version(at))
        if not isinstance(at, str):
            raise UsageError(_AT_EXPECTED, at=str(at))
        text = at.strip()
        if is_ulid(text):
            # Neither a branch nor a tag can have such a name, so main need not be read.
            return self._commit(branch, text)
        if not text or len(text) > REVISION_CHARACTERS_MAX:
            raise commit_not_found(branch, text[:REVISION_CHARACTERS_MAX])
        return self._find_text(branch, text, self.kernel.snapshot(MAIN))

    def _find_text(self, branch: str, text: str, main: Snapshot) -> Snapshot | Commit:
        if (tag := main.state.tags.get(text)) is not None:
            return self.kernel.find_commit(tag.commit_id)
        if text == MAIN or text in main.state.branches:
            return self.kernel.snapshot(text)
        if text == HEAD:
            return self.kernel.snapshot(branch)
        if (ancestor := _ANCESTOR.fullmatch(text)) is not None:
            start = self._find_start(branch, text, ancestor["start"], main)
            return self._ancestor(text, start, int(ancestor["steps"] or "1"))
        if _VERSION.fullmatch(text):
            return self.kernel.at_version(branch, check_version(int(text)))
        if _TIME.fullmatch(text) and (instant := _parse_time(text)) is not None:
            return self._newest_until(branch, instant)
        if _SHORT_ID.fullmatch(text):
            return self._commit(branch, self._expand(branch, text))
        raise commit_not_found(branch, text)

    def _commit(self, branch: str, commit_id: str) -> Commit:
        commit = self.kernel.look_for_commit(CommitId(commit_id))
        if commit is None:
            raise commit_not_found(branch, commit_id)
        return commit

    def _find_start(self, branch: str, text: str, start: str, main: Snapshot) -> Snapshot | Commit:
        """Return the state that a walk starts from; hidden and missing ones raise the same error."""
        try:
            state = self._commit(branch, start) if is_ulid(start) else self._find_text(branch, start, main)
        except CommitNotFound:
            raise commit_not_found(branch, text) from None
        if not self.may_read(state):
            raise commit_not_found(branch, text)
        return state

    def _ancestor(self, text: str, start: Snapshot | Commit, steps: int) -> Commit:
        snapshots = (start,) if isinstance(start, Snapshot) else ()
        commits = CommitSource(self.kernel, *snapshots)
        commit = start.head_commit if isinstance(start, Snapshot) else start
        step, may_read = 0, dict[BranchId | None, bool]()
        while step < steps:
            if commit.parent is None:
                raise GraphError(
                    f"there is no `{text}`: that history has only {step} earlier commits; list them with"
                    " `omnigraph commit list`",
                    code="commit.not_found",
                    at=text,
                )
            commit = commits[commit.parent]
            if commit.branch not in may_read:
                may_read[commit.branch] = self.may_read(commit)
            # Commits that the actor may not read are not counted: their number would tell of a hidden branch.
            step += may_read[commit.branch]
        return commit

    def _newest_until(self, branch: str, at: datetime) -> Commit:
        """Return the newest commit of a branch that is not after a timestamp."""
        until = microseconds_of(_instant(at))
        # Follow first parents only: merged commits were not on the branch before the merge.
        expected = self.kernel.snapshot(branch).head
        for commit in self.kernel.history(branch):
            if commit.commit_id == expected:
                if commit.created_at_us <= until:
                    return commit
                expected = commit.parent
        raise commit_not_found(branch, at)

    def _expand(self, branch: str, text: str) -> str:
        """Return the only id of a readable commit that begins with a text."""
        commits = self.kernel.commits_starting_with(text.upper())
        matches = sorted(commit_id for commit_id, commit in commits.items() if self.may_read(commit))
        if not matches:
            raise commit_not_found(branch, text)
        if len(matches) > 1:
            shown = matches[:AMBIGUOUS_COMMITS_SHOWN]
            more = f" and {len(matches) - len(shown)} more" if len(matches) > len(shown) else ""
            raise GraphError(
                f"`{text}` is the beginning of {len(matches)} commits: {', '.join(shown)}{more}; write more characters",
                code="commit.ambiguous",
                commits=shown,
            )
        return matches[0]


def check_version(at: int) -> int:
    """Return a manifest version; `UsageError` if there cannot be one of that number."""
    if isinstance(at, bool):
        raise UsageError(_AT_EXPECTED, at=str(at))
    if not 0 < at < 1 << 63:
        raise UsageError(f"there is no version {at}; versions count from 1", at=at)
    return at


def commit_not_found(branch: str, at: AsOf) -> GraphError:
    """Return the error for a state that is missing or hidden from the actor."""
    if isinstance(at, datetime):
        time = _instant(at).isoformat()
        return GraphError(
            f"branch `{branch}` has no commit as old as {time}; list them with `omnigraph commit list`",
            code="commit.not_found",
            at=time,
        )
    return GraphError(
        f"there is no branch, tag or commit `{at}`; list them with `omnigraph branch list`, `omnigraph tag list` and"
        " `omnigraph commit list`",
        code="commit.not_found",
        at=at,
    )


def _parse_time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _instant(at: datetime) -> datetime:
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def microseconds_of(instant: datetime) -> int:
    """Return a timestamp as microseconds since 1970, exactly."""
    # Integer arithmetic: a float of seconds cannot represent every microsecond.
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
