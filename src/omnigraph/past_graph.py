"""A past state of a graph, as `Graph.at` returns it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from omnigraph.docstrings import inherit_docs
from omnigraph.engine.blobs import Blob
from omnigraph.engine.past_names import Naming
from omnigraph.engine.query.budget import DEFAULT_BUDGET, Budget
from omnigraph.engine.query.explain import Explanation
from omnigraph.engine.query.result import Result
from omnigraph.engine.revisions import AsOf
from omnigraph.graph_reads import GraphReads
from omnigraph.manifest.model import Snapshot
from omnigraph.source_files import SourceInput

if TYPE_CHECKING:
    from omnigraph.engine.query.embedders import Embedder
    from omnigraph.graph import Graph


@inherit_docs(GraphReads)
class GraphAt:
    """A read-only view of one past state; later writes do not change it.

    Names follow the schema of the branch, unless `names="then"` was requested.
    """

    def __init__(self, graph: Graph, commit_id: str, branch: str, names: Naming, state: AsOf | None = None) -> None:
        self._graph = graph
        self._commit_id = commit_id
        self._state: Any = {"branch": branch, "at": commit_id if state is None else state, "names": names}

    def __repr__(self) -> str:
        return f"<GraphAt: {self._graph.uri} at commit {self._commit_id}, branch {self._state['branch']}>"

    @property
    def commit_id(self) -> str:
        """The commit that made this state."""
        return self._commit_id

    def snapshot(self) -> Snapshot:
        """Return the snapshot of this state.

        Raises:
            PolicyDenied: The actor may not read it any more.

        Example:
            >>> graph.at(2).snapshot().version
            2
        """
        return self._graph.snapshot(**self._state)

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

        Example:
            >>> graph.at(2).query("query q() { match { $p: Person } return { $p.name as name } limit 1 }").columns
            ['name']
        """
        return self._graph.query(source, params, name=name, budget=budget, embedder=embedder, **self._state)

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

        Example:
            >>> graph.at(2).explain("query q() { match { $p: Person } return { $p.name } }").query_name
            'q'
        """
        options = self._state | {"profile": profile, "budget": budget, "embedder": embedder}
        return self._graph.explain(source, params, name=name, **options)

    def get(self, type_name: str, key: object) -> dict[str, Any] | None:
        """Return one entity of this state with its `id` and properties.

        Example:
            >>> graph.at(2).get("Person", "Ada")["age"]
            36
        """
        return self._graph.get(type_name, key, **self._state)

    def to_networkx(self, *, types: Sequence[str] | None = None) -> Any:
        """Return this state, or some of its types, as a `networkx.MultiDiGraph`, which must fit into memory.

        Example:
            >>> graph.at(1).to_networkx().number_of_nodes()
            0
        """
        return self._graph.to_networkx(types=types, **self._state)

    def blob(self, type_name: str, entity_id: str, property_name: str, *, entity: str = "node") -> Blob:
        """Find a blob of this state without reading its bytes.

        Example:
            >>> graph.at(2).blob("Person", "Ada", "photo").length
            4
        """
        return self._graph.blob(type_name, entity_id, property_name, entity=entity, **self._state)

    def export(self, types: Sequence[str] | None = None) -> Iterator[bytes]:
        """Return this state as NDJSON that can be loaded again.

        Example:
            >>> b"".join(graph.at(2).export()).count(bytes([10]))
            3
        """
        return self._graph.export(types=types, **self._state)
