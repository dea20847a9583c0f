"""The `schema` of a graph: its source, and planning and applying a new one as one commit."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from pathlib import Path

from omnigraph.engine.arguments import check_type
from omnigraph.engine.authorization import GRAPH
from omnigraph.engine.schema_apply import SchemaReceipt, apply, plan
from omnigraph.engine.session import GraphSession
from omnigraph.lang.catalog import Catalog
from omnigraph.lang.migrate import MigrationPlan
from omnigraph.lang.source import Source
from omnigraph.manifest.model import MAIN
from omnigraph.source_files import read_source
from omnigraph.stored_queries import QueryFolder, read_queries


def schema_source(schema: str | Path) -> Source:
    """Return the source of a schema that is given as text or as the path of a `.pg` file."""
    check_type("schema", schema, str | PathLike)
    is_path = isinstance(schema, Path) or ("{" not in schema and schema.strip().endswith(".pg"))
    return read_source(Path(schema), "S1") if is_path else Source("schema.pg", str(schema))


class Schema:
    """The schema of an open graph, always the newest."""

    def __init__(self, session: GraphSession) -> None:
        self._session = session

    @property
    def source(self) -> str:
        """The text of the accepted schema."""
        self._session.require("read", GRAPH)
        return self._session.visible_view(self._session.kernel.snapshot(MAIN)).snapshot.state.schema.source

    @property
    def catalog(self) -> Catalog:
        """The types and properties of the accepted schema that the actor may see."""
        return self._session.view().catalog

    def plan(self, schema: str | Path, *, allow_data_loss: bool = False) -> MigrationPlan:
        """Return the migration steps to a new schema, given as text or as the path of a `.pg` file.

        Changes nothing, but needs permission to apply, because the steps reveal the accepted schema.
        """
        return plan(self._session, schema_source(schema), allow_data_loss)

    def apply(
        self,
        schema: str | Path,
        *,
        allow_data_loss: bool = False,
        queries: str | Path | Iterable[str | Path] | None = None,
    ) -> SchemaReceipt:
        """Apply a new schema as one commit; nothing is applied if a step is unsupported.

        Args:
            schema: The new schema, as text or as the path of a `.pg` file.
            allow_data_loss: Make drops permanent.
            queries: The stored queries of the graph, as a directory of `.gq` files or a list of files. A schema that
                breaks one of them is rejected.

        Raises:
            GraphError: `schema.breaks_queries`, with the queries that would not compile any more.
        """
        check = None if queries is None else QueryFolder(read_queries(queries)).reject_breakage
        return apply(self._session, schema_source(schema), allow_data_loss, check)
