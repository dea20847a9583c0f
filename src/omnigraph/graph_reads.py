"""The reading half of `Graph`: queries, single entities, export and blobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from omnigraph import clock
from omnigraph.docstrings import inherit_docs
from omnigraph.engine import export
from omnigraph.engine.arguments import check_type
from omnigraph.engine.blobs import Blob, blob
from omnigraph.engine.export import ExportFormat
from omnigraph.engine.past_names import NOW, Naming
from omnigraph.engine.query import explain as explain_query
from omnigraph.engine.query import run as run_query
from omnigraph.engine.query.budget import DEFAULT_BUDGET, Budget
from omnigraph.engine.query.context import Caches
from omnigraph.engine.query.explain import Explanation
from omnigraph.engine.query.result import Result
from omnigraph.engine.revisions import AsOf
from omnigraph.engine.session import GraphSession, View
from omnigraph.lang.query import CompiledQuery
from omnigraph.limits import DRAWN_NODES
from omnigraph.manifest.model import MAIN, Snapshot
from omnigraph.protocol import GraphProtocol
from omnigraph.source_files import SourceInput, query_source

if TYPE_CHECKING:
    from omnigraph.engine.drawing import Drawing
    from omnigraph.engine.query.embedders import Embedder


@inherit_docs(GraphProtocol)
class GraphReads(GraphProtocol):
    """The methods of `Graph` that read its entities; `GraphProtocol` has the rest of their docstrings."""

    _session: GraphSession
    _caches: Caches

    def snapshot(self, branch: str = MAIN, *, at: AsOf | None = None, names: Naming = NOW) -> Snapshot:
        return self._session.redact_snapshot(self._session.view(branch, at, names=names).snapshot)

    def query(
        self,
        source: SourceInput,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        branch: str = MAIN,
        at: AsOf | None = None,
        names: Naming = NOW,
        budget: Budget = DEFAULT_BUDGET,
        embedder: Embedder | None = None,
    ) -> Result:
        """Run a read query against one snapshot of the graph.

        Args:
            budget: Limits on rows, bytes and seconds.
            embedder: Turns query text into vectors; by default the provider configured in the environment.
        """
        started = clock.elapsed()
        view, compiled = self._prepare_read(source, name, branch, at, names)
        return run_query(
            view,
            compiled,
            params or {},
            started=started,
            now_us=clock.now_us(),
            budget=budget,
            caches=self._caches,
            embedder=embedder,
        )

    def explain(
        self,
        source: SourceInput,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        branch: str = MAIN,
        at: AsOf | None = None,
        names: Naming = NOW,
        profile: bool = False,
        budget: Budget = DEFAULT_BUDGET,
        embedder: Embedder | None = None,
    ) -> Explanation:
        """Return the plan of a read query with estimated row counts.

        Args:
            budget: Limits on rows, bytes and seconds, with `profile`.
            embedder: Turns query text into vectors; by default the provider configured in the environment.
        """
        started = clock.elapsed()
        view, compiled = self._prepare_read(source, name, branch, at, names)
        return explain_query(
            view,
            compiled,
            params or {},
            started=started,
            profile=profile,
            now_us=clock.now_us(),
            budget=budget,
            caches=self._caches,
            embedder=embedder,
        )

    def _prepare_read(
        self, source: SourceInput, name: str | None, branch: str, at: AsOf | None, names: Naming
    ) -> tuple[View, CompiledQuery]:
        view = self._session.view(branch, at, names=names)
        return view, self._session.compile(query_source(source), view.catalog, name)

    def get(
        self,
        type_name: str,
        key: object,
        *,
        branch: str = MAIN,
        at: AsOf | None = None,
        names: Naming = NOW,
    ) -> dict[str, Any] | None:
        from omnigraph.engine.entity_lookup import get_entity

        return get_entity(self._session.view(branch, at, names=names), type_name, key)

    def to_networkx(
        self, *, types: Sequence[str] | None = None, branch: str = MAIN, at: AsOf | None = None, names: Naming = NOW
    ) -> Any:
        """Return the graph, or some of its types, as a `networkx.MultiDiGraph`, which must fit into memory.

        Args:
            types: Only these node and edge types.
            branch: The branch to read.
            at: Read a past state, as in `query`.
            names: Which names a past state has, as in `query`.

        Returns:
            A graph whose nodes are `(type, id)`, with properties as attributes; an edge has its id as key.

        Raises:
            UsageError: networkx is not installed, or there is no such type.

        Example:
            >>> graph.to_networkx().number_of_edges()
            1
        """
        from omnigraph.engine.graph_formats import to_networkx

        return to_networkx(self._session.view(branch, at, names=names), types)

    def show(
        self,
        type_name: str | None = None,
        key: object = None,
        *,
        hops: int = 1,
        limit: int = DRAWN_NODES,
        branch: str = MAIN,
        at: AsOf | None = None,
        names: Naming = NOW,
    ) -> Drawing:
        """Draw a small part of the graph; notebooks show the picture.

        Args:
            type_name: The type of a node to draw with its surroundings; by default some edges of every type.
            key: The key of that node, as in `get`.
            hops: How far the surroundings reach.
            limit: The maximum number of nodes.
            branch: The branch to read.
            at: Read a past state, as in `query`.
            names: Which names a past state has, as in `query`.

        Returns:
            A `Drawing`, whose `svg` is the text of the picture; `save(path)` writes it to a file.

        Raises:
            UsageError: There is no such type or node.
            LimitExceeded: `hops` or `limit` is too large for a picture.

        Example:
            >>> graph.show("Person", "Ada")
            <Drawing: 2 nodes, 1 edge>
        """
        from omnigraph.engine.drawing import draw_graph

        check_type("type_name", type_name, str | None)
        return draw_graph(self._session.view(branch, at, names=names), type_name, key, hops, limit)

    def export(
        self,
        branch: str = MAIN,
        *,
        at: AsOf | None = None,
        types: Sequence[str] | None = None,
        names: Naming = NOW,
        format: ExportFormat = "ndjson",  # noqa: A002 - as in `pipeline.export`
    ) -> Iterator[bytes]:
        check_type("format", format, str)
        return export.export(self._session, branch, at, types, names, format)

    def blob(
        self,
        type_name: str,
        entity_id: str,
        property_name: str,
        *,
        entity: str = "node",
        branch: str = MAIN,
        at: AsOf | None = None,
        names: Naming = NOW,
    ) -> Blob:
        check_type("type_name", type_name, str)
        check_type("property_name", property_name, str)
        return blob(
            self._session,
            type_name,
            entity_id,
            property_name,
            entity=entity,
            branch=branch,
            at=at,
            names=names,
        )
