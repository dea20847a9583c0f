"""A past state of a graph, as `Graph.at` returns it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from omnigraph.engine.blobs import Blob
from omnigraph.engine.past_names import Naming
from omnigraph.engine.query.budget import DEFAULT_BUDGET, Budget
from omnigraph.engine.query.explain import Explanation
from omnigraph.engine.query.result import Result
from omnigraph.engine.revisions import AsOf
from omnigraph.manifest.model import Snapshot
from omnigraph.source_files import SourceInput

if TYPE_CHECKING:
    from omnigraph.engine.query.embedders import Embedder
    from omnigraph.graph import Graph


class GraphAt:
    """A read-only view of one past state; later writes do not change it.

    Names follow the schema of the branch, unless `names="then"` was requested.
    """

    def __init__(self, graph: Graph, commit_id: str, branch: str, names: Naming, state: AsOf | None = None) -> None:
        self._graph = graph
        self._commit_id = commit_id
        self._state: AsOf = commit_id if state is None else state
        self._branch = branch
        self._names = names

    def __repr__(self) -> str:
        return f"<GraphAt: {self._graph.uri} at commit {self._commit_id}, branch {self._branch}>"

    @property
    def commit_id(self) -> str:
        """The commit that made this state."""
        return self._commit_id

    def snapshot(self) -> Snapshot:
        """Return the snapshot of this state.

        Returns:
            The commit (`head`), the manifest version and the dataset version of every type.

        Raises:
            PolicyDenied: The actor may not read it any more.

        Example:
            >>> graph.at(2).snapshot().version
            2
        """
        return self._graph.snapshot(self._branch, at=self._state, names=self._names)

    def query(
        self,
        source: SourceInput,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        budget: Budget = DEFAULT_BUDGET,
        embedder: Embedder | None = None,
    ) -> Result:
        """Run a read query on this state.

        Args:
            source: One or more queries, as text or as the path of a `.gq` file.
            params: Values of the query's `$parameters`.
            name: Which query to run; may be omitted if `source` has only one.
            budget: Limits on rows, bytes and seconds.
            embedder: Turns query text into vectors; by default the provider configured in the environment.

        Returns:
            An Arrow-backed `Result`.

        Raises:
            LanguageError: The query does not parse or type-check.
            BudgetExceeded: The query needs more than its budget.

        Example:
            >>> graph.at(2).query("query q() { match { $p: Person } return { $p.name as name } limit 1 }").columns
            ['name']
        """
        return self._graph.query(
            source,
            params,
            name=name,
            branch=self._branch,
            at=self._state,
            names=self._names,
            budget=budget,
            embedder=embedder,
        )

    def explain(
        self,
        source: SourceInput,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        profile: bool = False,
        budget: Budget = DEFAULT_BUDGET,
        embedder: Embedder | None = None,
    ) -> Explanation:
        """Return the plan of a read query on this state.

        Args:
            source: One or more queries, as text or as the path of a `.gq` file.
            params: Values of the query's `$parameters`.
            name: Which query to explain; may be omitted if `source` has only one.
            profile: Run the query, and add actual row counts, times and storage requests.
            budget: Limits on rows, bytes and seconds, with `profile`.
            embedder: Turns query text into vectors; by default the provider configured in the environment.

        Returns:
            The plan.

        Raises:
            LanguageError: The query does not parse or type-check.

        Example:
            >>> graph.at(2).explain("query q() { match { $p: Person } return { $p.name } }").query_name
            'q'
        """
        return self._graph.explain(
            source,
            params,
            name=name,
            branch=self._branch,
            at=self._state,
            names=self._names,
            profile=profile,
            budget=budget,
            embedder=embedder,
        )

    def get(self, type_name: str, key: object) -> dict[str, Any] | None:
        """Return one entity of this state with its `id` and properties.

        Args:
            type_name: A node type, or else an edge type.
            key: The key of a node, a mapping for a key of several properties; the id of an edge or a keyless node.

        Returns:
            A dictionary, for edges with `from` and `to`, or None if there is no such entity.

        Raises:
            UsageError: There is no such type, or the key does not fit it.

        Example:
            >>> graph.at(2).get("Person", "Ada")["age"]
            36
        """
        return self._graph.get(type_name, key, branch=self._branch, at=self._state, names=self._names)

    def to_networkx(self, *, types: Sequence[str] | None = None) -> Any:
        """Return this state, or some of its types, as a `networkx.MultiDiGraph`, which must fit into memory.

        Args:
            types: Only these node and edge types.

        Returns:
            A graph whose nodes are `(type, id)`, with properties as attributes; an edge has its id as key.

        Raises:
            UsageError: networkx is not installed, or there is no such type.

        Example:
            >>> graph.at(1).to_networkx().number_of_nodes()
            0
        """
        return self._graph.to_networkx(types=types, branch=self._branch, at=self._state, names=self._names)

    def blob(self, type_name: str, entity_id: str, property_name: str, *, entity: str = "node") -> Blob:
        """Find a blob of this state without reading its bytes.

        Args:
            type_name: The type of the entity.
            entity_id: The id of the entity.
            property_name: The property, of type `Blob`.
            entity: `node` or `edge`.

        Returns:
            A `Blob`: its `length`, its `etag`, and `read(start, end)`.

        Raises:
            BlobNotFound: There is no such entity, or its blob is null.

        Example:
            >>> graph.at(2).blob("Person", "Ada", "photo").length
            4
        """
        return self._graph.blob(
            type_name,
            entity_id,
            property_name,
            entity=entity,
            branch=self._branch,
            at=self._state,
            names=self._names,
        )

    def export(self, types: Sequence[str] | None = None) -> Iterator[bytes]:
        """Return this state as NDJSON that can be loaded again.

        Args:
            types: Only these types.

        Returns:
            The chunks, of whole lines.

        Raises:
            UsageError: There is no such type.

        Example:
            >>> b"".join(graph.at(2).export()).count(bytes([10]))
            3
        """
        return self._graph.export(self._branch, at=self._state, types=types, names=self._names)
