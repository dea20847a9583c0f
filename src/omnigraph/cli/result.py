"""The rows of a query, printed in the format that was asked for or is written down.

The same for queries of files, of servers and of aliases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.cli.config import read_config
from omnigraph.cli.formats import Cells, render
from omnigraph.cli.options import Format
from omnigraph.cli.terminal import echo
from omnigraph.limits import TABLE_CELL_CHARACTERS_MAX

if TYPE_CHECKING:
    from omnigraph.engine.read import Result


def print_result(result: Result, target: dict[str, object], shape: Format | None, as_json: bool) -> int:
    """Print a result and return the exit status."""
    defaults = read_config().defaults
    rows = result.to_json_rows()
    metadata = {
        "query_name": result.query_name,
        "target": target,
        "row_count": len(rows),
        "graph_commit_id": result.graph_commit_id,
    }
    wanted = Format.JSON if as_json else shape or Format(defaults.output)
    width = defaults.table_max_column_width or TABLE_CELL_CHARACTERS_MAX
    cells = Cells(width, defaults.table_cell_layout == "wrap")
    for line in render(wanted, list(result.columns), rows, metadata, cells):
        echo(line)
    return 0
