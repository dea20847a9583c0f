"""The methods that opened and served graphs share, with their documentation.

`og.Graph` and the client inherit these docstrings, and add to those of methods that take more arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from omnigraph.engine.changes import ChangeSet, CommitPage, FeedPage
    from omnigraph.engine.merge.conflicts import ResolutionsInput
    from omnigraph.engine.query.explain import Explanation
    from omnigraph.engine.query.result import Result
    from omnigraph.public_values import (
        Commit,
        EntityLog,
        IngestReceipt,
        MergeReceipt,
        MutationReceipt,
        Operation,
        PropertyBlame,
    )
    from omnigraph.source_files import SourceInput

_Params = Mapping[str, object] | None
_Names = Sequence[str] | None
_Naming = Literal["now", "then"]


class GraphProtocol(Protocol):
    """The methods that `og.Graph` and a served graph share, with the same arguments, results and errors.

    Commits, tags and snapshots of a served graph are plain values with the same members as those of an opened one.

    Example:
        >>> def count_people(graph: "og.GraphProtocol") -> int:
        ...     return len(graph.query("query q() { match { $p: Person } return { $p } }"))
        >>> count_people(graph)
        2
    """

    branches: Any
    tags: Any
    schema: Any

    @property
    def uri(self) -> str:
        """The address of the graph."""
        ...

    def query(
        self,
        source: SourceInput,
        params: _Params = None,
        *,
        name: str | None = None,
        branch: str = "main",
        at: Any = None,
        names: _Naming = "now",
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
        ...

    def explain(
        self,
        source: SourceInput,
        params: _Params = None,
        *,
        name: str | None = None,
        branch: str = "main",
        at: Any = None,
        names: _Naming = "now",
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
        ...

    def mutate(
        self,
        source: SourceInput,
        params: _Params = None,
        *,
        name: str | None = None,
        branch: str = "main",
        if_commit: str | None = None,
        message: str | None = None,
        dry_run: bool = False,
    ) -> MutationReceipt:
        """Run a mutation as one commit.

        Args:
            source: One or more queries, as text or as the path of a `.gq` file.
            params: Values of the query's `$parameters`.
            name: Which query to run; may be omitted if `source` has only one.
            branch: The branch to write.
            if_commit: Write only if this commit is the head of the branch (optimistic concurrency control).
            message: What the commit is for, shown in its history.
            dry_run: Check everything and count what would change, without writing.

        Returns:
            How many nodes and edges changed, and the commit, unless nothing changed.

        Raises:
            LanguageError: The mutation does not parse or type-check.
            DataError: The result would violate a rule of the schema; nothing was written.
            PreconditionFailed: The head of the branch is not `if_commit`; nothing was written.
            ConflictError: Concurrent writers won several times; nothing was written, retry later.

        Example:
            >>> graph.mutate('query q() { update Person set { age: 37 } where name = "Ada" }').affected_nodes
            1
        """
        ...

    def load(
        self,
        data: Any = None,
        *,
        nodes: Mapping[str, Any] | None = None,
        edges: Mapping[str, Any] | None = None,
        mode: Literal["append", "merge", "overwrite"] = "merge",
        branch: str = "main",
        from_branch: str | None = None,
        message: str | None = None,
    ) -> IngestReceipt:
        """Load data as one commit: a small input in one write, a large one in bulk, on Spark if necessary.

        Args:
            data: NDJSON as a path, bytes or a file object, or an iterable of dictionaries.
            nodes: Data frames by node type: pandas, polars, Arrow tables or record batch readers, whose columns are
                properties.
            edges: The same by edge type, with the columns `from` and `to`.
            mode: `merge` inserts or replaces entities by id, `append` rejects existing ones, `overwrite` replaces the
                types in the data.
            branch: The branch to write.
            from_branch: Create `branch` from this one if it does not exist.
            message: What the commit is for, shown in its history.

        Returns:
            How many entities of each type were read, and the commit.

        Raises:
            DataError: The data breaks a rule of the schema; nothing was written.
            LimitExceeded: The input is too large for one request to a server.

        Example:
            >>> graph.load([{"type": "Person", "data": {"name": "Cid"}}]).total_entities
            1
        """
        ...

    def ingest(
        self,
        data: Any = None,
        *,
        nodes: Mapping[str, Any] | None = None,
        edges: Mapping[str, Any] | None = None,
        mode: Literal["append", "merge", "overwrite"] = "merge",
        branch: str = "main",
        from_branch: str | None = None,
        message: str | None = None,
    ) -> IngestReceipt:
        """Write NDJSON, dictionaries or data frames as one commit.

        Args:
            data: NDJSON as a path, bytes or a file object, or an iterable of dictionaries.
            nodes: Data frames by node type: pandas, polars, Arrow tables or record batch readers, whose columns are
                properties.
            edges: The same by edge type, with the columns `from` and `to`.
            mode: `merge` inserts or replaces entities by id, `append` rejects existing ones, `overwrite` replaces the
                types in the data.
            branch: The branch to write.
            from_branch: Create `branch` from this one if it does not exist.
            message: What the commit is for, shown in its history.

        Returns:
            How many entities of each type were read, and the commit.

        Raises:
            DataError: The data breaks a rule of the schema; nothing was written.
            LimitExceeded: The data is too large for one write; use `pipeline.load`.

        Example:
            >>> graph.ingest([{"type": "Person", "data": {"name": "Cid"}}]).total_entities
            1
        """
        ...

    def snapshot(self, branch: str = "main", *, at: Any = None, names: _Naming = "now") -> Any:
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
        ...

    def at(self, at: Any, branch: str = "main", *, names: _Naming = "now") -> Any:
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
        ...

    def get(
        self, type_name: str, key: Any, *, branch: str = "main", at: Any = None, names: _Naming = "now"
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

    def revert(
        self,
        commit_id: str,
        branch: str = "main",
        *,
        dry_run: bool = False,
        resolutions: ResolutionsInput = None,
        message: str | None = None,
    ) -> MergeReceipt:
        """Revert a commit as a new commit; reverting a merge undoes everything it merged.

        Args:
            commit_id: The id or tag of the commit.
            branch: The branch to write.
            dry_run: Return the outcome, including conflicts, without writing.
            resolutions: How to resolve conflicts: a JSON or NDJSON file, its bytes, or dictionaries.
            message: What the commit is for, shown in its history.

        Returns:
            The outcome, the changes by type, and the commit.

        Raises:
            CommitNotFound: There is no such commit.
            MergeConflict: Later commits changed the same entities; nothing was written.

        Example:
            >>> graph.revert(graph.commits()[0].commit_id).outcome.value
            'merged'
        """
        ...

    def cherry_pick(
        self,
        commit_id: str,
        branch: str = "main",
        *,
        dry_run: bool = False,
        resolutions: ResolutionsInput = None,
        message: str | None = None,
    ) -> MergeReceipt:
        """Apply the changes of a commit of another branch as a new commit.

        Args:
            commit_id: The id or tag of the commit.
            branch: The branch to write.
            dry_run: Return the outcome, including conflicts, without writing.
            resolutions: How to resolve conflicts: a JSON or NDJSON file, its bytes, or dictionaries.
            message: What the commit is for, shown in its history.

        Returns:
            The outcome, the changes by type, and the commit.

        Raises:
            CommitNotFound: There is no such commit.
            MergeConflict: The branch changed the same entities; nothing was written.

        Example:
            >>> branch = graph.branches.create("review")
            >>> added = graph.mutate('query q() { insert Person { name: "Cid" } }', branch="review")
            >>> graph.cherry_pick(added.commit.commit_id).outcome.value
            'merged'
        """
        ...

    def export(
        self,
        branch: str = "main",
        *,
        at: Any = None,
        types: _Names = None,
        names: _Naming = "now",
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
        ...

    def diff(
        self,
        a: Any,
        b: Any,
        *,
        kinds: _Names = None,
        types: _Names = None,
        ops: _Names = None,
        branch: str = "main",
        names: _Naming = "now",
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
        kinds: _Names = None,
        types: _Names = None,
        ops: _Names = None,
        limit: Any = None,
        page_token: str | None = None,
        names: _Naming = "now",
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
        kinds: _Names = None,
        types: _Names = None,
        ops: _Names = None,
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
        self, branch: str = "main", *, kinds: _Names = None, types: _Names = None, ops: _Names = None
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

    def blob(
        self,
        type_name: str,
        entity_id: str,
        property_name: str,
        *,
        entity: str = "node",
        branch: str = "main",
        at: Any = None,
        names: _Naming = "now",
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
        ...

    def close(self) -> None:
        """Finish background work and release resources.

        Example:
            >>> graph.close()
        """
        ...

    def __enter__(self) -> Any: ...

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None: ...
