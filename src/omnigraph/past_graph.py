"""A past state of a graph, as `Graph.at` returns it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from omnigraph.engine.past_names import Naming
from omnigraph.engine.query.budget import DEFAULT_BUDGET, Budget
from omnigraph.engine.query.explain import Explanation
from omnigraph.engine.query.result import Result
from omnigraph.engine.session import GraphSession
from omnigraph.manifest.model import Snapshot
from omnigraph.source_files import SourceInput

if TYPE_CHECKING:
    from omnigraph.engine.query.embedders import Embedder
    from omnigraph.graph import Graph


class GraphAt:
    """A read-only view of one past state; later writes do not change it.

    Names follow the schema of the branch, unless `names="then"` was requested.
    """

    def __init__(self, graph: Graph, session: GraphSession, snapshot: Snapshot, branch: str, names: Naming) -> None:
        assert snapshot.head is not None, "every state has a commit that made it"
        self._graph = graph
        self._session = session
        self._snapshot = snapshot
        self._commit_id = snapshot.head
        self._branch = branch
        self._names = names

    def __repr__(self) -> str:
        return f"<GraphAt: {self._graph.uri} at commit {self._commit_id}, branch {self._branch}>"

    @property
    def commit_id(self) -> str:
        """The commit that made this state."""
        return self._commit_id

    def snapshot(self) -> Snapshot:
        """Return the snapshot of this state."""
        return self._session.redact_snapshot(self._snapshot)

    def query(
        self,
        source: SourceInput,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        budget: Budget = DEFAULT_BUDGET,
        embedder: Embedder | None = None,
    ) -> Result:
        """Run a read query on this state; see `Graph.query`."""
        return self._graph.query(
            source,
            params,
            name=name,
            branch=self._branch,
            at=self._commit_id,
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
        """Return the plan of a read on this state; see `Graph.explain`."""
        return self._graph.explain(
            source,
            params,
            name=name,
            branch=self._branch,
            at=self._commit_id,
            names=self._names,
            profile=profile,
            budget=budget,
            embedder=embedder,
        )

    def export(self, types: Sequence[str] | None = None) -> Iterator[bytes]:
        """Return this state as NDJSON that can be loaded again."""
        return self._graph.export(self._branch, at=self._commit_id, types=types, names=self._names)
