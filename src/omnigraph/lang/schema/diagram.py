"""Diagrams of a schema: an entity-relationship diagram of Mermaid, and a graph of Graphviz.

Pure.
"""

from __future__ import annotations

from omnigraph.lang.catalog import Catalog, EdgeType, NodeType, Property


def render_mermaid(catalog: Catalog) -> str:
    """Return an entity-relationship diagram; a relation reads from the source of an edge to its target."""
    lines = ["erDiagram"]
    for node in catalog.nodes.values():
        lines.append(f"  {node.name} {{")
        lines += [f"    {_mermaid_attribute(node, item)}" for item in node.properties.values()]
        lines.append("  }")
    for edge in catalog.edges.values():
        targets = {(0, 1): "o|", (1, 1): "||", (1, None): "|{"}.get(
            (edge.cardinality.minimum, edge.cardinality.maximum), "o{"
        )
        lines.append(f'  {edge.source} }}o--{targets} {edge.target} : "{_edge_label(edge)}"')
    return "\n".join(lines) + "\n"


def _mermaid_attribute(node: NodeType, item: Property) -> str:
    # Mermaid takes a type as one word that begins with a letter, and has no mark for what may be missing.
    type_ = item.type
    word = "enum" if type_.enum_values is not None else type_.scalar.value
    word = f"{word}({type_.dimension})" if type_.dimension is not None else word
    key = " PK" if item.name in node.key else " UK" if (item.name,) in node.unique else ""
    return f"{word}{'[]' if type_.is_list else ''} {item.name}{key}" + (' "optional"' if type_.nullable else "")


def render_dot(catalog: Catalog) -> str:
    """Return a Graphviz graph: node types as records of their properties, edge types as arrows."""
    lines = ["digraph {", "  node [shape=record];"]
    for node in catalog.nodes.values():
        properties = "".join(f"{_record_text(_property_text(node, item))}\\l" for item in node.properties.values())
        lines.append(f'  "{node.name}" [label="{{{node.name}|{properties}}}"];')
    lines += [f'  "{e.source}" -> "{e.target}" [label="{_edge_label(e)}"];' for e in catalog.edges.values()]
    return "\n".join([*lines, "}"]) + "\n"


def _property_text(node: NodeType, item: Property) -> str:
    return f"{item.name}: {item.type}{' @key' if item.name in node.key else ''}"


def _record_text(text: str) -> str:
    """Escape what has a meaning in the label of a record."""
    return "".join(f"\\{character}" if character in '\\"{}|<> ' else character for character in text)


def _edge_label(edge: EdgeType) -> str:
    properties = ", ".join(edge.properties)
    return f"{edge.name} ({properties})" if properties else edge.name
