"""The methods of opened and served graphs that read history: commits, entities, differences, the feed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from omnigraph.protocol.reads import Names, Naming

if TYPE_CHECKING:
    from omnigraph.engine.changes import ChangeSet, CommitPage, FeedPage
    from omnigraph.public_values import Commit, EntityLog, Operation, PropertyBlame


class HistoryProtocol(Protocol):
    """Reads of the history of a graph."""

    def commits(self, branch: str = "main", *, limit: int | None = None, before: str | None = None) -> list[Commit]:
        """Return the commits of a branch, newest first and children before parents.

        Args:
            branch: The branch.
            limit: The maximum number of commits.
            before: Start after this commit: pass the last one of the previous page.

        Returns:
            The commits.

        Raises:
            BranchNotFound: There is no such branch.
            CommitNotFound: The branch has no commit `before`.

        Example:
            >>> [commit.kind for commit in graph.commits()]
            ['ingest', 'init']
        """
        ...

    def commit(self, at: Any, branch: str = "main") -> Commit:
        """Return one commit, which may be on any branch.

        Args:
            at: Its id or the beginning of that, a tag, a branch, `HEAD~1`, a manifest version or a timestamp.
            branch: The branch of `HEAD`, versions and timestamps.

        Returns:
            The commit.

        Raises:
            CommitNotFound: There is no such commit.

        Example:
            >>> graph.commit("HEAD~1").kind
            'init'
        """
        ...

    def operation(self, operation_id: str) -> Operation:
        """Look up the outcome of a write by the `operation_id` of an error whose `effect` is `unknown`.

        Args:
            operation_id: The id, from the context of the error.

        Returns:
            `applied` with its commit, `pending`, or `absent`, which is final.

        Raises:
            UsageError: This is not an operation id.

        Example:
            >>> graph.operation(graph.commits()[0].operation_id).outcome
            'applied'
        """
        ...

    def log(self, type_name: str, key: Any, *, branch: str = "main", at: Any = None, limit: Any = None) -> EntityLog:
        """Return the commits that changed one entity, newest first.

        A merge is listed only if it combined both sides; where it took the entity from one side, the commits of that
        side are listed instead.

        Args:
            type_name: A node type, or else an edge type.
            key: The key of the entity, as in `get`.
            branch: The branch whose history is searched.
            at: Start from a past state, as in `query`.
            limit: The maximum number of commits.

        Returns:
            Changes with their commit, operation, changed properties and the entity before and after.

        Raises:
            UsageError: There is no such type, or the key does not fit it.

        Example:
            >>> [change.op for change in graph.log("Person", "Ada")]
            ['insert']
        """
        ...

    def blame(self, type_name: str, key: Any, *, branch: str = "main", at: Any = None) -> PropertyBlame:
        """Return, for each property of one entity, the commit that last set it.

        A property that a merge took over is attributed to the commit of that side; to the merge itself only if the
        merge resolved a conflict with another value.

        Args:
            type_name: A node type, or else an edge type.
            key: The key of the entity, as in `get`.
            branch: The branch whose history is searched.
            at: Start from a past state, as in `query`.

        Returns:
            The properties with their values and commits.

        Raises:
            UsageError: There is no such type, or the key does not fit it.

        Example:
            >>> graph.blame("Person", "Ada")["age"].commit.kind
            'ingest'
        """
        ...

    def diff(
        self,
        a: Any,
        b: Any,
        *,
        kinds: Names = None,
        types: Names = None,
        ops: Names = None,
        branch: str = "main",
        names: Naming = "now",
        images: bool = False,
    ) -> ChangeSet:
        """Return the differences between two states.

        Args:
            a: The first state; see `at` for how to name one.
            b: The second state.
            kinds: Only `node` or `edge`.
            types: Only these types.
            ops: Only `insert`, `update` or `delete`.
            branch: The branch of versions and timestamps.
            names: `now` reads both under today's schema, `then` each under its own.
            images: Add the entities before and after the first changes, as `images` of the result.

        Returns:
            The changed entities, as an Arrow table with counts.

        Raises:
            CommitNotFound: There is no such branch, tag or commit.
            UsageError: A filter has an unknown word.

        Example:
            >>> graph.diff(1, 2).stats()
            {'inserts': 3, 'updates': 0, 'deletes': 0, 'types_affected': 2}
        """
        ...

    def commit_changes(
        self,
        commit_id: str,
        *,
        kinds: Names = None,
        types: Names = None,
        ops: Names = None,
        limit: Any = None,
        page_token: str | None = None,
        names: Naming = "now",
    ) -> CommitPage:
        """Return a page of the changes of a commit against its first parent, with images before and after.

        Args:
            commit_id: The id of the commit.
            kinds: Only `node` or `edge`.
            types: Only these types.
            ops: Only `insert`, `update` or `delete`.
            limit: The maximum number of changes in the page.
            page_token: The `next_page_token` of the previous page.
            names: `now` shows the names that main has today, `then` those of the commit.

        Returns:
            The page; the last one has no `next_page_token`.

        Raises:
            CommitNotFound: There is no such commit.
            CursorRejected: The token is damaged or belongs to another call.

        Example:
            >>> page = graph.commit_changes(graph.commits()[0].commit_id, types=["Person"])
            >>> [change["id"] for change in page.to_json()["changes"]]
            ['Ada', 'Bob']
        """
        ...

    def changes(
        self,
        branch: str = "main",
        *,
        start: str | None = None,
        cursor: str | None = None,
        page_token: str | None = None,
        kinds: Names = None,
        types: Names = None,
        ops: Names = None,
        limit: Any = None,
        commits_max: Any = None,
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
            commits_max: The maximum number of commits in the page.

        Returns:
            The changes by commit, and the `cursor` or `next_page_token` to continue with.

        Raises:
            CursorRejected: The cursor is damaged or belongs to another graph or filter.
            ChangeFeedGap: Cleanup removed versions that the feed needs; take a new `baseline`.

        Example:
            >>> page = graph.changes(start="beginning")
            >>> len(page.blocks), page.caught_up
            (1, True)
        """
        ...

    def baseline(
        self, branch: str = "main", *, kinds: Names = None, types: Names = None, ops: Names = None
    ) -> Iterator[bytes]:
        """Return a branch as NDJSON whose last record has the cursor at which its change feed continues.

        Args:
            branch: The branch to read.
            kinds: Only `node` or `edge`; the feed continues with the same filters.
            types: Only these types.
            ops: Only `insert`, `update` or `delete`, for the feed that follows.

        Returns:
            The chunks, of whole lines.

        Raises:
            BranchNotFound: There is no such branch.

        Example:
            >>> b"".join(graph.baseline()).count(bytes([10]))
            4
        """
        ...
