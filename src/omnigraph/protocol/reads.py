"""The methods of opened and served graphs that read: queries, single entities, past states, blobs and export."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from omnigraph.engine.query.explain import Explanation
    from omnigraph.engine.query.result import Result
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
        at: Any = None,
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
        ...

    def explain(
        self,
        source: SourceInput,
        params: Params = None,
        *,
        name: str | None = None,
        branch: str = "main",
        at: Any = None,
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
        ...

    def snapshot(self, branch: str = "main", *, at: Any = None, names: Naming = "now") -> Any:
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

    def at(self, at: Any, branch: str = "main", *, names: Naming = "now") -> Any:
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
        self, type_name: str, key: Any, *, branch: str = "main", at: Any = None, names: Naming = "now"
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

    def blob(
        self,
        type_name: str,
        entity_id: str,
        property_name: str,
        *,
        entity: str = "node",
        branch: str = "main",
        at: Any = None,
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
        ...

    def export(
        self,
        branch: str = "main",
        *,
        at: Any = None,
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
        ...
