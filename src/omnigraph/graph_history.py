"""The history half of `Graph`: commits, the log of an entity, differences and the change feed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from omnigraph.docstrings import inherit_docs
from omnigraph.engine import history
from omnigraph.engine.past_names import NOW, Naming
from omnigraph.engine.revisions import AsOf
from omnigraph.graph_reads import GraphReads
from omnigraph.limits import CHANGE_PAGE_BYTES, CHANGE_PAGE_CHANGES, ENTITY_LOG_COMMITS, FEED_COMMITS
from omnigraph.manifest.model import MAIN
from omnigraph.protocol import GraphProtocol
from omnigraph.public_values import Commit, EntityLog, Operation, PropertyBlame

if TYPE_CHECKING:
    from omnigraph.engine.changes import ChangeSet, CommitPage, FeedPage


@inherit_docs(GraphProtocol)
class GraphHistory(GraphReads):
    """The methods of `Graph` that read its history; `GraphProtocol` has the rest of their docstrings."""

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
        from omnigraph.engine.entity_history import log

        return log(self._session, type_name, key, branch=branch, at=at, limit=limit)

    def blame(self, type_name: str, key: object, *, branch: str = MAIN, at: AsOf | None = None) -> PropertyBlame:
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
            commit_id: The commit; see `at` for how to name one.
            bytes_max: The maximum size of the page.
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
            bytes_max: The maximum size of the page.
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
