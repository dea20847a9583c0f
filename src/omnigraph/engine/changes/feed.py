"""The change feed of a branch: the changes of every commit, oldest first, from a position that the reader keeps.

A poll reads the commits between the position and the head it captured, the cut; a page costs what it delivers. No
reader state is stored, and delivery is at least once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise

import orjson

from omnigraph.engine.arguments import check_type, strip_name
from omnigraph.engine.changes.commit_diff import (
    Block,
    Room,
    States,
    Step,
    cause_of,
    check_bound,
    graph_digest,
    page_room,
)
from omnigraph.engine.changes.cursor import ALL, ChangeFilter, Scope, Token, decode, encode, rejected
from omnigraph.engine.export import export_records
from omnigraph.engine.session import GraphSession
from omnigraph.errors import ChangeFeedGap, GraphError, UsageError
from omnigraph.ids import CommitId, is_ulid
from omnigraph.limits import CHANGE_PAGE_BYTES, CHANGE_PAGE_CHANGES, FEED_COMMITS, FEED_COMMITS_MAX
from omnigraph.manifest.history import FirstParentLine
from omnigraph.manifest.model import MAIN, Snapshot

_AFTER = "after:"


@dataclass(frozen=True, slots=True)
class FeedPage:
    """A page of a feed: with a page token if it ends inside a commit, otherwise with a cursor."""

    blocks: tuple[Block, ...]
    cursor: str | None = None
    caught_up: bool | None = None
    next_page_token: str | None = None

    def to_json(self) -> dict[str, object]:
        """Return the page as every surface shows it.

        Returns:
            A JSON object with `blocks`, and where to continue.

        Example:
            >>> sorted(graph.changes(start="beginning").to_json())
            ['blocks', 'caught_up', 'cursor']
        """
        ends = {"cursor": self.cursor, "caught_up": self.caught_up, "next_page_token": self.next_page_token}
        blocks = [block.to_json() for block in self.blocks]
        return {"blocks": blocks, **{name: value for name, value in ends.items() if value is not None}}


def changes(
    session: GraphSession,
    branch: str = MAIN,
    *,
    start: str | None = None,
    cursor: str | None = None,
    page_token: str | None = None,
    only: ChangeFilter = ALL,
    limit: int = CHANGE_PAGE_CHANGES,
    bytes_max: int = CHANGE_PAGE_BYTES,
    commits_max: int = FEED_COMMITS,
) -> FeedPage:
    """Return the next page of a branch's feed; all of it has the names that the branch has today.

    `start` is `now` (the default), `beginning` or `after:<commit>`; later polls pass `cursor` or `page_token` instead.
    """
    room = page_room(limit, bytes_max)
    check_bound("commits_max", commits_max, FEED_COMMITS_MAX, "change_feed_commits_per_poll")
    positions = {"start": start, "cursor": cursor, "page_token": page_token}
    for argument, value in positions.items():
        check_type(argument, value, str | None)
    if sum(value is not None for value in positions.values()) > 1:
        raise UsageError("pass only one of `start`, `cursor` and `page_token`")
    branch = strip_name(branch)
    view = session.view(branch)
    snapshot = view.snapshot
    selection = only.check_types(view.catalog)
    scope = feed_scope(snapshot, selection)
    if page_token is not None:
        token = decode(page_token, "feed-page", scope)
    elif cursor is not None:
        token = decode(cursor, "feed-cursor", scope)
    else:
        token = Token("feed-cursor", scope, start_commit(session, snapshot, start or "now"))
    steps, cut = steps_after(session, snapshot, token, commits_max)
    return _poll(session, selection, token, room, steps, cut)


def feed_scope(snapshot: Snapshot, selection: ChangeFilter) -> Scope:
    """Return what tokens of this branch and selection are bound to."""
    branch = sha256(snapshot.branch.encode()).hexdigest()[:32]
    return Scope(graph_digest(snapshot), branch, snapshot.state.branch_id or MAIN, selection.digest)


def start_commit(session: GraphSession, snapshot: Snapshot, start: str) -> CommitId:
    """Return the commit after which a feed begins."""
    if start == "now":
        assert snapshot.head is not None, "a graph is born with a commit"
        return snapshot.head
    line = FirstParentLine(session.kernel, snapshot)
    if start == "beginning":
        # The first commit created the empty graph and has no changes.
        return line.first().commit_id
    if not start.startswith(_AFTER):
        raise UsageError("`start` takes `now`, `beginning` or `after:<commit>`", value=start)
    commit_id = CommitId(start.removeprefix(_AFTER).strip())
    if not is_ulid(commit_id):
        commit_id = session.allowed_commit(snapshot.branch, commit_id).commit_id
    if line.find(commit_id) is None:
        raise GraphError(
            f"commit {commit_id} is not in the history of branch `{snapshot.branch}` by first parents; list it with"
            " `omnigraph commit list`",
            code="commit.not_found",
            commit_id=commit_id,
        )
    return commit_id


def steps_after(
    session: GraphSession, snapshot: Snapshot, token: Token, commits_max: int
) -> tuple[list[Step], CommitId]:
    """Return the commits of this poll with their parents, oldest first, and the commit that the feed is cut at."""
    cut = token.cut or snapshot.head
    assert cut is not None, "a graph is born with a commit"
    line = FirstParentLine(session.kernel, snapshot)
    reached, last = line.find(token.commit), line.find(cut)
    if reached is None or last is None or not line.is_ordered(reached, last):
        raise rejected("its commit is not in the history of the branch")
    walk = [reached, *line.after(reached, last, commits_max)]
    if token.position is not None:
        # A partly delivered commit is continued, so its parent is needed as well.
        if reached.parent is None:
            raise rejected("its place is not in the commit")
        walk.insert(0, line.parent_of(reached))
    states = States(session, session.kernel.snapshot(snapshot.branch))
    steps = [Step(states, commit, parent) for parent, commit in pairwise(walk)]
    return steps[:commits_max], cut


def _poll(
    session: GraphSession, selection: ChangeFilter, start: Token, room: Room, steps: list[Step], cut: CommitId
) -> FeedPage:
    """Walk from a position towards the cut, as far as there is room."""
    blocks: list[Block] = []
    reached, position = start.commit, start.position
    for step in steps:
        if not any(session.visible_commits([step.commit])):
            # Made on a branch that this one started from and the actor may not read: none of it would be shown.
            reached, position = step.commit.commit_id, None
            continue
        try:
            part = step.part(selection, position, room)
        except ChangeFeedGap as error:
            if blocks:
                break
            raise _located(error, start) from error
        if not part.texts and not part.is_complete:
            break
        # A commit that continues from an earlier page has said how it changed the schema.
        schema_steps = step.schema_steps() if position is None else ()
        blocks.append(Block(cause_of(session, step.commit), tuple(part.texts), schema_steps))
        if not part.is_complete:
            token = Token("feed-page", start.scope, step.commit.commit_id, cut, part.last)
            return FeedPage(tuple(blocks), next_page_token=encode(token))
        reached, position = step.commit.commit_id, None
    return FeedPage(tuple(blocks), encode(Token("feed-cursor", start.scope, reached)), reached == cut)


def _located(error: ChangeFeedGap, start: Token) -> ChangeFeedGap:
    """Return the error with the reader's cursor, if the reader is at a commit."""
    if start.position is not None:
        return error
    unreadable = error.context["first_unreadable_commit_id"]
    cursor = encode(Token("feed-cursor", start.scope, start.commit))
    return ChangeFeedGap(error.message, first_unreadable_commit_id=unreadable, cursor=cursor)


def baseline(
    session: GraphSession,
    branch: str = MAIN,
    *,
    only: ChangeFilter = ALL,
) -> Iterator[bytes]:
    """Return the newest state of a branch as NDJSON; the last record has the cursor at which its feed continues.

    `only.ops` select nothing here, but the cursor is made for them. A stream that broke off has no cursor.
    """
    branch = strip_name(branch)
    view = session.view(branch, action="export")
    selection = only.check_types(view.catalog)
    head = view.snapshot.head
    assert head is not None, "a graph is born with a commit"
    cursor = encode(Token("feed-cursor", feed_scope(view.snapshot, selection), head))
    types = sorted(view.catalog.types, key=lambda type_: type_.table_key)
    selected = [type_ for type_ in types if selection.has_type(type_.table_key)]

    def stream() -> Iterator[bytes]:
        yield from export_records(view, selected)
        yield orjson.dumps({"baseline": {"snapshot_commit_id": head, "resume_cursor": cursor}}) + b"\n"

    return stream()
