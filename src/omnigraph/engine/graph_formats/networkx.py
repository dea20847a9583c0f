"""networkx, for graph algorithms in Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from omnigraph.engine.arguments import check_name_list
from omnigraph.engine.entity_lookup import entity_columns, find_type, rename_ends
from omnigraph.engine.query.result import python_rows
from omnigraph.engine.session import View
from omnigraph.errors import UsageError
from omnigraph.lang.catalog import EdgeType, NodeType


def to_networkx(view: View, types: Sequence[str] | None = None) -> Any:
    """Return the nodes and edges of a view, or of some types, as a `networkx.MultiDiGraph`."""
    try:
        import networkx  # type: ignore[import-untyped,unused-ignore]  # not a dependency
    except ImportError:
        raise UsageError("`to_networkx` needs networkx; install it with `pip install networkx`") from None
    check_name_list("types", types)
    every: list[NodeType | EdgeType] = [*view.catalog.nodes.values(), *view.catalog.edges.values()]
    selected = every if types is None else [find_type(view.catalog, name) for name in types]
    result = networkx.MultiDiGraph()
    for type_ in selected:
        rows = python_rows(rename_ends(type_, view.dataset(type_.table_key).read(entity_columns(type_))))
        if isinstance(type_, NodeType):
            result.add_nodes_from(((type_.name, row["id"]), {"type": type_.name, **row}) for row in rows)
        else:
            ends = type_.source, type_.target
            result.add_edges_from(
                ((ends[0], row["from"]), (ends[1], row["to"]), row["id"], {"type": type_.name, **row}) for row in rows
            )
    return result
