"""Schema changes of a live graph: planned against what is accepted, applied as one commit.

May import the ground, the languages, the store and the kernel.
"""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from pathlib import Path

from omnigraph.engine.arguments import check_type
from omnigraph.engine.authorization import GRAPH
from omnigraph.engine.schema_apply import SchemaReceipt, apply, plan
from omnigraph.engine.session import GraphSession
from omnigraph.lang.migrate import MigrationPlan
from omnigraph.lang.source import Source
from omnigraph.manifest.model import MAIN
from omnigraph.source_files import read_source
from omnigraph.stored_queries import QueryFolder, read_queries


def schema_source(schema: str | Path) -> Source:
    """Return a schema given as text, or as the path of a `.pg` file."""
    check_type("schema", schema, str | PathLike)
    is_path = isinstance(schema, Path) or ("{" not in schema and schema.strip().endswith(".pg"))
    return read_source(Path(schema), "S1") if is_path else Source("schema.pg", str(schema))


class Schema:
    """The schema of one opened graph; always the newest, whoever changed it."""

    def __init__(self, session: GraphSession) -> None:
        self._session = session

    @property
    def source(self) -> str:
        """The text of the accepted schema."""
        self._session.require("read", GRAPH)
        return self._session.visible_view(self._session.kernel.snapshot(MAIN)).snapshot.state.schema.source

    def plan(self, schema: str | Path, *, allow_data_loss: bool = False) -> MigrationPlan:
        """Show the steps to a new schema, given as text or as the path of a `.pg` file; changes nothing.

        Takes the right to apply it: the steps tell all that the accepted schema has.
        """
        return plan(self._session, schema_source(schema), allow_data_loss)

    def apply(
        self,
        schema: str | Path,
        *,
        allow_data_loss: bool = False,
        queries: str | Path | Iterable[str | Path] | None = None,
    ) -> SchemaReceipt:
        """Make a new schema the accepted one, as one commit; refused as a whole when a step is not supported.

        Args:
            schema: The new schema, as text or as the path of a `.pg` file.
            allow_data_loss: Make drops final.
            queries: The stored queries that go with the graph: a directory of `.gq` files, or some files. A schema
                that would break one of them is refused.

        Raises:
            GraphError: `schema.breaks_queries`, with the queries that would not compile any more.
        """
        check = None if queries is None else QueryFolder(read_queries(queries)).reject_breakage
        return apply(self._session, schema_source(schema), allow_data_loss, self._session.actor, check)
