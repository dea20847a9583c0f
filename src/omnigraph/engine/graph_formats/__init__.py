"""Export one snapshot for graph tools: as a document in GraphML, GEXF, DOT or Cypher, or as a networkx graph.

Documents list nodes before edges, types by name, entities by id. Ids are unique within a type, so a node is called
`Type:id`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from omnigraph.engine.graph_formats.cypher import write_cypher
from omnigraph.engine.graph_formats.dot import write_dot
from omnigraph.engine.graph_formats.gexf import write_gexf
from omnigraph.engine.graph_formats.graphml import write_graphml
from omnigraph.engine.graph_formats.text_columns import GraphType
from omnigraph.engine.session import View
from omnigraph.errors import UsageError
from omnigraph.lang.catalog import EdgeType, NodeType

GraphFormat: TypeAlias = Literal["graphml", "gexf", "dot", "cypher"]

_WRITERS: Final[Mapping[str, Callable[[View, Sequence[GraphType]], Iterator[bytes]]]] = {
    "graphml": write_graphml,
    "gexf": write_gexf,
    "dot": write_dot,
    "cypher": write_cypher,
}


def export_graph(view: View, types: Sequence[GraphType], format_: str) -> Iterator[bytes]:
    """Return a snapshot in a format of graph tools, in chunks; edges bring the types at their ends along."""
    if format_ not in _WRITERS:
        raise UsageError(f"unknown format `{format_}`; expected ndjson, {', '.join(_WRITERS)}", format=format_)
    ends = {name for type_ in types if isinstance(type_, EdgeType) for name in (type_.source, type_.target)}
    names = ends | {type_.name for type_ in types if isinstance(type_, NodeType)}
    # The type at an end may be hidden from the actor.
    nodes = [view.catalog.nodes[name] for name in sorted(names & view.catalog.nodes.keys())]
    edges = sorted((type_ for type_ in types if isinstance(type_, EdgeType)), key=lambda edge: edge.name)
    return _WRITERS[format_](view, [*nodes, *edges])
