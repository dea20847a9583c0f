"""The history half of `Graph`: commits, the log of an entity, differences and the change feed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from omnigraph.engine import history
from omnigraph.engine.past_names import NOW, Naming
from omnigraph.engine.revisions import AsOf
from omnigraph.graph_reads import GraphReads
from omnigraph.limits import CHANGE_PAGE_BYTES, CHANGE_PAGE_CHANGES, ENTITY_LOG_COMMITS, FEED_COMMITS
from omnigraph.manifest.model import MAIN
from omnigraph.public_values import Commit, EntityLog, Operation, PropertyBlame

if TYPE_CHECKING:
    from omnigraph.engine.changes import ChangeSet, CommitPage, FeedPage


class GraphHistory(GraphReads):
    """The methods of `Graph` that read its history; those without a docstring have that of `GraphProtocol`."""

    def commits(self, branch: str = MAIN, *, limit: int | None = None, before: str | None = None) -> list[Commit]:
        return history.commits(self._session, branch, limit=limit, before=before)

    def commit(self, at: AsOf, branch: str = MAIN) -> Commit:
        return history.commit(self._session, at, branch)

    def log(
        self,
        type_name: str,
        key: object,
        *,
        branch: str = MAIN,
        at: AsOf | None = None,
        limit: int = ENTITY_LOG_COMMITS,
    ) -> EntityLog:
        """Return the commits that changed one entity, newest first.

        A merge is listed only if it combined both sides; where it took the entity from one side, the commits of that
        side are listed instead.

        Args:
            type_name: A node type, or else an edge type.
            key: The key of the entity, as in `get`.
            branch: The branch whose history is searched.
            at: Start from a past state; see `Graph.at`.
            limit: The maximum number of commits.

        Returns:
            Changes with their commit, operation, changed properties and the entity before and after.

        Raises:
            UsageError: There is no such type, or the key does not fit it.

        Example:
            >>> [change.op for change in graph.log("Person", "Ada")]
            ['insert']
        """
        from omnigraph.engine.entity_history import log

        return log(self._session, type_name, key, branch=branch, at=at, limit=limit)

    def blame(self, type_name: str, key: object, *, branch: str = MAIN, at: AsOf | None = None) -> PropertyBlame:
        """Return, for each property of one entity, the commit that last set it.

        A property that a merge took over is attributed to the commit of that side; to the merge itself only if the
        merge resolved a conflict with another value.

        Args:
            type_name: A node type, or else an edge type.
            key: The key of the entity, as in `get`.
            branch: The branch whose history is searched.
            at: Start from a past state; see `Graph.at`.

        Returns:
            The properties with their values and commits.

        Raises:
            UsageError: There is no such type, or the key does not fit it.

        Example:
            >>> graph.blame("Person", "Ada")["age"].commit.kind
            'ingest'
        """
        from omnigraph.engine.entity_history import blame

        return blame(self._session, type_name, key, branch=branch, at=at)

    def operation(self, operation_id: str) -> Operation:
        return history.operation(self._session, operation_id)

    def diff(
        self,
        a: AsOf,
        b: AsOf,
        *,
        kinds: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
        branch: str = MAIN,
        names: Naming = NOW,
        images: bool = False,
    ) -> ChangeSet:
        from omnigraph.engine import changes

        only = changes.ChangeFilter(kinds, types, ops)
        compare = changes.diff_with_images if images else changes.diff
        return compare(self._session, a, b, only=only, branch=branch, names=names)

    def commit_changes(
        self,
        commit_id: AsOf,
        *,
        kinds: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
        limit: int = CHANGE_PAGE_CHANGES,
        bytes_max: int = CHANGE_PAGE_BYTES,
        page_token: str | None = None,
        names: Naming = NOW,
    ) -> CommitPage:
        """Return a page of the changes of a commit against its first parent, with images before and after.

        Args:
            commit_id: The commit; see `Graph.at` for how to name one.
            kinds: Only `node` or `edge`.
            types: Only these types.
            ops: Only `insert`, `update` or `delete`.
            limit: The maximum number of changes in the page.
            bytes_max: The maximum size of the page.
            page_token: The `next_page_token` of the previous page.
            names: `now` shows the names that main has today, `then` those of the commit.

        Returns:
            The page; the last one has no `next_page_token`.

        Raises:
            CommitNotFound: There is no such commit.
            CursorRejected: The token is damaged or belongs to another call.

        Example:
            >>> page = graph.commit_changes(graph.commits()[0].commit_id, limit=1)
            >>> page.next_page_token is None
            False
        """
        from omnigraph.engine import changes

        return changes.commit_changes(
            self._session,
            commit_id,
            only=changes.ChangeFilter(kinds, types, ops),
            limit=limit,
            bytes_max=bytes_max,
            page_token=page_token,
            names=names,
        )

    def changes(
        self,
        branch: str = MAIN,
        *,
        start: str | None = None,
        cursor: str | None = None,
        page_token: str | None = None,
        kinds: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
        limit: int = CHANGE_PAGE_CHANGES,
        bytes_max: int = CHANGE_PAGE_BYTES,
        commits_max: int = FEED_COMMITS,
    ) -> FeedPage:
        """Return the next page of the change feed of a branch.

        Args:
            branch: The branch to follow.
            start: Where to begin: `now`, `beginning` or `after:<commit>`.
            cursor: Continue after the last poll; instead of `start`.
            page_token: Continue inside a commit; instead of `start`.
            kinds: Only `node` or `edge`; filters must stay the same from page to page.
            types: Only these types.
            ops: Only `insert`, `update` or `delete`.
            limit: The maximum number of changes in the page.
            bytes_max: The maximum size of the page.
            commits_max: The maximum number of commits in the page.

        Returns:
            The changes by commit, and the `cursor` or `next_page_token` to continue with.

        Raises:
            CursorRejected: The cursor is damaged or belongs to another graph or filter.
            ChangeFeedGap: Cleanup removed versions that the feed needs; take a new `baseline`.

        Example:
            >>> caught_up = graph.changes(start="now")
            >>> written = graph.mutate('query q() { insert Person { name: "Cid" } }')
            >>> len(graph.changes(cursor=caught_up.cursor).blocks)
            1
        """
        from omnigraph.engine import changes

        return changes.changes(
            self._session,
            branch,
            start=start,
            cursor=cursor,
            page_token=page_token,
            only=changes.ChangeFilter(kinds, types, ops),
            limit=limit,
            bytes_max=bytes_max,
            commits_max=commits_max,
        )

    def baseline(
        self,
        branch: str = MAIN,
        *,
        kinds: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
    ) -> Iterator[bytes]:
        from omnigraph.engine import changes

        return changes.baseline(self._session, branch, only=changes.ChangeFilter(kinds, types, ops))
