"""The methods of opened and served graphs that read: queries, entities, blobs, export, history, differences, feed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from omnigraph.part_protocols import AsOf

if TYPE_CHECKING:
    from omnigraph.engine.changes import ChangeSet, CommitPage, FeedPage
    from omnigraph.engine.query.physical_plan import Explanation
    from omnigraph.engine.query.result import Result
    from omnigraph.public_values import Commit, EntityLog, Operation, PropertyBlame
    from omnigraph.source_files import SourceInput

Params = Mapping[str, object] | None
Names = Sequence[str] | None
Naming = Literal["now", "then"]


class ReadsProtocol(Protocol):
    """Reads of one snapshot of a graph."""

    def query(
        self,
        source: SourceInput,
        params: Params = None,
        *,
        name: str | None = None,
        branch: str = "main",
        at: AsOf | None = None,
        names: Naming = "now",
    ) -> Result:
        """Run a read query against one snapshot of the graph.

        Args:
            source: One or more queries, as text or as the path of a `.gq` file.
            params: Values of the query's `$parameters`, as Python or JSON values.
            name: Which query to run; may be omitted if `source` has only one.
            branch: The branch to read.
            at: Read a past state; see `at` for how to name one.
            names: `now` reads a past state under today's type and property names, `then` under its own.

        Returns:
            An Arrow-backed `Result`: `to_arrow()`, `to_pandas()`, `to_polars()`, `rows()`.

        Raises:
            LanguageError: The query does not parse or type-check; `diagnostics` has positions.
            BudgetExceeded: The query needs more than its budget.
            BranchNotFound: There is no such branch.
            CommitNotFound: There is no state `at`.

        Example:
            >>> graph.query("query q($n: I32) { match { $p: Person  $p.age > $n } return { $p.name } }", {"n": 40})
            p.name
            ------
            Bob
            1 row of `q` on main
        """

    def explain(
        self,
        source: SourceInput,
        params: Params = None,
        *,
        name: str | None = None,
        branch: str = "main",
        at: AsOf | None = None,
        names: Naming = "now",
        profile: bool = False,
    ) -> Explanation:
        """Return the plan of a read query with estimated row counts.

        Args:
            source: One or more queries, as text or as the path of a `.gq` file.
            params: Values of the query's `$parameters`.
            name: Which query to explain; may be omitted if `source` has only one.
            branch: The branch to read.
            at: Read a past state, as in `query`.
            names: Which names a past state has, as in `query`.
            profile: Run the query, and add actual row counts, times and storage requests.

        Returns:
            The plan, as text (`render()`), HTML in notebooks, or JSON (`to_json()`).

        Raises:
            LanguageError: The query does not parse or type-check.
            BranchNotFound: There is no such branch.

        Example:
            >>> graph.explain("query q() { match { $p: Person } return { $p.name } }").query_name
            'q'
        """

    def snapshot(self, branch: str = "main", *, at: AsOf | None = None, names: Naming = "now") -> Any:
        """Return the newest snapshot of a branch, or that of a past state.

        Args:
            branch: The branch.
            at: A past state; see `at` for how to name one.
            names: Which names a past state has, as in `query`.

        Returns:
            The commit (`head`), the manifest version and the dataset version of every type.

        Raises:
            BranchNotFound: There is no such branch.
            CommitNotFound: There is no state `at`.

        Example:
            >>> graph.snapshot().version
            2
        """

    def at(self, at: AsOf, branch: str = "main", *, names: Naming = "now") -> Any:
        """Return a read-only view of a past state.

        Args:
            at: The state: a commit id or the beginning of one, a tag, a branch, `HEAD~2` for the second commit before
                the newest of `branch` (`NAME~2` for that before another state), a manifest version, or a timestamp as
                a datetime or as text such as `2026-01-31` (without a zone it means UTC).
            branch: The branch of `HEAD`, versions and timestamps.
            names: `now` reads under the type and property names that `branch` has today, `then` under its own.

        Returns:
            A `GraphAt`, which later writes do not change.

        Raises:
            CommitNotFound: There is no such state; `GraphError` with `commit.ambiguous` if several ids begin so.

        Example:
            >>> graph.at("HEAD~1").get("Person", "Ada") is None
            True
        """

    def get(
        self, type_name: str, key: Any, *, branch: str = "main", at: AsOf | None = None, names: Naming = "now"
    ) -> dict[str, Any] | None:
        """Return one entity with its `id` and properties.

        Args:
            type_name: A node type, or else an edge type.
            key: The key of a node, a mapping for a key of several properties; the id of an edge or a keyless node.
            branch: The branch to read.
            at: Read a past state, as in `query`.
            names: Which names a past state has, as in `query`.

        Returns:
            A dictionary, for edges with `from` and `to`, or None if there is no such entity. Blobs are left out; read
            them with `blob`.

        Raises:
            UsageError: There is no such type, or the key does not fit it.
            BranchNotFound: There is no such branch.

        Example:
            >>> graph.get("Person", "Ada")
            {'id': 'Ada', 'age': 36, 'name': 'Ada'}
        """

    def blob(
        self,
        type_name: str,
        entity_id: str,
        property_name: str,
        *,
        entity: str = "node",
        branch: str = "main",
        at: AsOf | None = None,
        names: Naming = "now",
    ) -> Any:
        """Find a blob without reading its bytes.

        Args:
            type_name: The type of the entity.
            entity_id: The id of the entity.
            property_name: The property, of type `Blob`.
            entity: `node` or `edge`.
            branch: The branch to read.
            at: Read a past state, as in `query`.
            names: Which names a past state has, as in `query`.

        Returns:
            A `Blob`: its `length`, its `etag`, and `read(start, end)`.

        Raises:
            BlobNotFound: There is no such entity, or its blob is null.
            UsageError: There is no such type or property, or it is not a `Blob`.

        Example:
            >>> graph.blob("Person", "Ada", "photo").read(0, 4)
            b'PNG!'
        """

    def export(
        self,
        branch: str = "main",
        *,
        at: AsOf | None = None,
        types: Names = None,
        names: Naming = "now",
        format: Literal["ndjson", "graphml", "gexf", "dot", "cypher"] = "ndjson",  # noqa: A002 - as in `pipeline.export`
    ) -> Iterator[bytes]:
        """Return the graph as NDJSON that can be loaded again, in chunks of whole lines; or in another format.

        A line with a large blob spans several chunks. The others are for other graph tools and have no blobs.

        Args:
            branch: The branch to read.
            at: Export a past state, as in `query`.
            types: Only these types.
            names: `now` exports a past state under today's names, so that today's schema accepts it, `then` under its
                own.
            format: `ndjson`, `graphml`, `gexf`, `dot` or `cypher`.

        Returns:
            The chunks.

        Raises:
            BranchNotFound: There is no such branch.
            UsageError: There is no such type.

        Example:
            >>> b"".join(graph.export(types=["Person"])).count(bytes([10]))
            2
        """


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

    def commit(self, at: AsOf, branch: str = "main") -> Commit:
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

    def log(
        self, type_name: str, key: Any, *, branch: str = "main", at: AsOf | None = None, limit: Any = None
    ) -> EntityLog:
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

    def blame(self, type_name: str, key: Any, *, branch: str = "main", at: AsOf | None = None) -> PropertyBlame:
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

    def diff(
        self,
        a: AsOf,
        b: AsOf,
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

    def commit_changes(
        self,
        commit_id: AsOf,
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
