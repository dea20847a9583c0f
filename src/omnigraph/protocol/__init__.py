"""The methods that opened and served graphs share, with their documentation.

Implementations inherit these docstrings, and describe only the arguments that they add.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, Protocol

from omnigraph.docstrings import merge_docstrings
from omnigraph.part_protocols import ResolutionsInput
from omnigraph.protocol.reads import HistoryProtocol, Params, ReadsProtocol

if TYPE_CHECKING:
    from omnigraph.public_values import IngestReceipt, MergeReceipt, MutationReceipt
    from omnigraph.source_files import SourceInput


class GraphProtocol(HistoryProtocol, ReadsProtocol, Protocol):
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

    def mutate(
        self,
        source: SourceInput,
        params: Params = None,
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

    def load(
        self,
        data: Any = None,
        *,
        nodes: Mapping[str, Any] | None = None,
        edges: Mapping[str, Any] | None = None,
        mode: Literal["append", "merge", "overwrite"] = "merge",
        on_duplicate: Literal["error", "first", "last"] = "error",
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
            on_duplicate: Entities of the data with the same key: an `error`, or load the `first` or the `last` of them.
                This is decided before other rules are checked.
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

    def ingest(
        self,
        data: Any = None,
        *,
        nodes: Mapping[str, Any] | None = None,
        edges: Mapping[str, Any] | None = None,
        mode: Literal["append", "merge", "overwrite"] = "merge",
        on_duplicate: Literal["error", "first", "last"] = "error",
        branch: str = "main",
        from_branch: str | None = None,
        message: str | None = None,
    ) -> IngestReceipt:
        """Load data as one commit; the former name of `load`."""

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

    def close(self) -> None:
        """Finish background work and release resources.

        Example:
            >>> graph.close()
        """

    def __enter__(self) -> Any: ...

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None: ...


GraphProtocol.ingest.__doc__ = merge_docstrings(
    GraphProtocol.ingest.__doc__ or "", GraphProtocol.load.__doc__ or "", signature(GraphProtocol.load).parameters
)
