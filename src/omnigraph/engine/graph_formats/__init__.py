"""Export one snapshot for graph tools: as a document in GraphML, GEXF, DOT or Cypher, or as a networkx graph.

Documents list nodes before edges, types by name, entities by id. Ids are unique within a type, so a node is called
`Type:id`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from omnigraph.engine.arguments import check_name_list
from omnigraph.engine.entity_lookup import entity_columns, find_type, rename_ends
from omnigraph.engine.graph_formats.cypher import write_cypher
from omnigraph.engine.graph_formats.dot import write_dot
from omnigraph.engine.graph_formats.xml_formats import write_gexf, write_graphml
from omnigraph.engine.query.result import python_rows
from omnigraph.engine.session import View
from omnigraph.errors import UsageError
from omnigraph.lang.catalog import EdgeType, NodeType, Type

GraphFormat: TypeAlias = Literal["graphml", "gexf", "dot", "cypher"]

_WRITERS: Final[Mapping[str, Callable[[View, Sequence[Type]], Iterator[bytes]]]] = {
    "graphml": write_graphml,
    "gexf": write_gexf,
    "dot": write_dot,
    "cypher": write_cypher,
}


def export_graph(view: View, types: Sequence[Type], format_: str) -> Iterator[bytes]:
    """Return a snapshot in a format of graph tools, in chunks; edges bring the types at their ends along."""
    if format_ not in _WRITERS:
        raise UsageError(f"unknown format `{format_}`; expected ndjson, {', '.join(_WRITERS)}", format=format_)
    ends = {name for type_ in types for name in type_.ends.values()}
    names = ends | {type_.name for type_ in types if isinstance(type_, NodeType)}
    # The type at an end may be hidden from the actor.
    nodes = [view.catalog.nodes[name] for name in sorted(names & view.catalog.nodes.keys())]
    edges = sorted((type_ for type_ in types if isinstance(type_, EdgeType)), key=lambda edge: edge.name)
    return _WRITERS[format_](view, [*nodes, *edges])


def to_networkx(view: View, types: Sequence[str] | None = None) -> Any:
    """Return the nodes and edges of a view, or of some types, as a `networkx.MultiDiGraph`."""
    try:
        import networkx  # type: ignore[import-untyped,unused-ignore]  # not a dependency
    except ImportError:
        raise UsageError("`to_networkx` needs networkx; install it with `pip install networkx`") from None
    check_name_list("types", types)
    selected = view.catalog.types if types is None else [find_type(view.catalog, name) for name in types]
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
