"""A small part of a graph as an SVG picture: which nodes and edges it shows, where they are, and how they look."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.display import count_of, summarize, truncate
from omnigraph.engine.arguments import check_type
from omnigraph.engine.entity_lookup import entity_id, find_type
from omnigraph.engine.session import View
from omnigraph.errors import LimitExceeded, UsageError
from omnigraph.lang.catalog import EdgeType, NodeType
from omnigraph.limits import DRAWN_EDGES_MAX, DRAWN_HOPS_MAX, DRAWN_NODES_MAX
from omnigraph.store.read.lookup import find_rows

_ITERATIONS: Final = 200
_LABEL_CHARACTERS: Final = 22
_RADIUS: Final = 9
_COLOURS: Final = ("#3b82f6", "#f59e0b", "#10b981", "#ef4444", "#8b5cf6", "#14b8a6", "#ec4899", "#84cc16")
_INK, _SOFT, _LINE, _PAPER = "#1f2937", "#6b7280", "#9ca3af", "#ffffff"

Positions = npt.NDArray[np.float64]
# A node by type and id; an edge by its two nodes and its type.
Node = tuple[str, str]
Edge = tuple[Node, Node, str]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture of some nodes and edges, which notebooks show."""

    svg: str
    nodes: int
    edges: int

    def __repr__(self) -> str:
        return summarize(self, count_of(self.nodes, "node"), count_of(self.edges, "edge"))

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | PathLike[str]) -> None:
        """Write the picture to a file.

        Args:
            path: The `.svg` file.

        Raises:
            UsageError: The file cannot be written.

        Example:
            >>> graph.show().save(path + ".svg")
        """
        try:
            Path(path).write_text(self.svg, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot write `{path}`: {error.strerror}", path=str(path)) from None


def draw_graph(view: View, type_name: str | None, key: object, hops: int, limit: int) -> Drawing:
    """Draw the surroundings of a node; without one, some edges of every type and the nodes at their ends."""
    for name, value, most in (("limit", limit, DRAWN_NODES_MAX), ("hops", hops, DRAWN_HOPS_MAX)):
        check_type(name, value, int)
        if not 1 <= value <= most:
            raise LimitExceeded(
                f"`{name}` must be from 1 to {most}, got {value}", resource=name, limit=most, actual=value
            )
    nodes, edges = _sample(view, limit) if type_name is None else _surroundings(view, type_name, key, hops, limit)
    return Drawing(render_svg(nodes, edges), len(nodes), len(edges))


def _sample(view: View, limit: int) -> tuple[list[Node], list[Edge]]:
    """Return the first edges of every type, and then nodes without edges, while there is room."""
    nodes: dict[Node, None] = {}
    edges: list[Edge] = []
    types = list(view.catalog.edges.values())
    for type_ in types:
        head = next(view.dataset(type_.table_key).batches(["src", "dst"]), None)
        share = max(1, limit // max(1, len(types)))
        rows = [] if head is None else head.slice(0, share).to_pylist()
        _add_edges(nodes, edges, type_, [(row["src"], row["dst"]) for row in rows], limit)
    for node_type in view.catalog.nodes.values():
        if len(nodes) < limit:
            head = next(view.dataset(node_type.table_key).batches(["id"]), None)
            ids = [] if head is None else head.slice(0, limit - len(nodes)).column(0).to_pylist()
            nodes |= dict.fromkeys((node_type.name, str(id_)) for id_ in ids[: limit - len(nodes)])
    return list(nodes), edges


def _surroundings(view: View, type_name: str, key: object, hops: int, limit: int) -> tuple[list[Node], list[Edge]]:
    """Return the nodes within some hops of a node, nearest first, and the edges that lead to them."""
    type_ = find_type(view.catalog, type_name)
    if not isinstance(type_, NodeType):
        raise UsageError(f"`{type_name}` is an edge type; pass a node type and a key", type=type_name)
    start: Node = (type_.name, entity_id(type_, key))
    ids: Any = pa.array([start[1]], pa.string())
    if find_rows(view.dataset(type_.table_key), ["id"], {"id": ids}).num_rows == 0:
        raise UsageError(f"there is no `{type_name}` with the key {key!r}", type=type_name)
    nodes: dict[Node, None] = {start: None}
    edges: list[Edge] = []
    frontier = {start}
    for _ in range(hops):
        before = set(nodes)
        for edge_type in view.catalog.edges.values():
            for column, end in edge_type.ends.items():
                near = [id_ for name, id_ in sorted(frontier) if name == end]
                _add_edges(nodes, edges, edge_type, _edges_at(view, edge_type, column, near), limit)
        frontier = set(nodes) - before
    return list(nodes), edges


def _edges_at(view: View, type_: EdgeType, column: str, ids: list[str]) -> list[tuple[str, str]]:
    endpoint_ids: Any = pa.array(ids, pa.string())
    rows = find_rows(view.dataset(type_.table_key), ["src", "dst"], {column: endpoint_ids}).slice(0, DRAWN_EDGES_MAX)
    return [(str(row["src"]), str(row["dst"])) for row in rows.select(["src", "dst"]).to_pylist()]


def _add_edges(
    nodes: dict[Node, None], edges: list[Edge], type_: EdgeType, ends: list[tuple[str, str]], limit: int
) -> None:
    """Add edges whose nodes are drawn already, or for which there is room."""
    for source, target in ends:
        edge = ((type_.source, source), (type_.target, target), type_.name)
        new = {edge[0], edge[1]} - nodes.keys()
        if len(nodes) + len(new) <= limit and len(edges) < DRAWN_EDGES_MAX and edge not in edges:
            nodes |= dict.fromkeys((edge[0], edge[1]))
            edges.append(edge)


def lay_out(count: int, pairs: npt.NDArray[np.int64]) -> Positions:
    """Return positions in the unit square by the Fruchterman-Reingold algorithm, the same for the same graph."""
    if count < 2:
        return np.full((count, 2), 0.5)
    angles = 2 * np.pi * np.arange(count) / count
    positions: Positions = 0.5 + 0.4 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    ideal = 1 / np.sqrt(count)
    for step in np.linspace(0.1, 0.002, _ITERATIONS):
        apart = positions[:, None] - positions[None]
        distance = np.maximum(np.hypot(apart[..., 0], apart[..., 1]), 1e-3)
        move = (apart * (ideal**2 / distance**2)[..., None]).sum(axis=1)
        along = positions[pairs[:, 0]] - positions[pairs[:, 1]]
        pull = along * (np.hypot(along[:, 0], along[:, 1]) / ideal)[:, None]
        np.add.at(move, pairs[:, 0], -pull)
        np.add.at(move, pairs[:, 1], pull)
        # Parts that nothing connects would drift away for ever.
        move -= (positions - 0.5) * 2
        length = np.maximum(np.hypot(move[:, 0], move[:, 1]), 1e-9)
        positions = positions + move / length[:, None] * np.minimum(length, step)[:, None]
    low, high = positions.min(axis=0), positions.max(axis=0)
    scaled: Positions = (positions - low) / np.maximum(high - low, 1e-9)
    return scaled


def render_svg(nodes: list[Node], edges: list[Edge]) -> str:
    """Return the picture: a coloured circle per node, an arrow per edge, and a legend of the types."""
    index = {node: number for number, node in enumerate(nodes)}
    pairs = np.array([[index[a], index[b]] for a, b, _ in edges], np.int64).reshape(-1, 2)
    side = int(160 + 70 * np.sqrt(max(1, len(nodes))))
    width, height = int(side * 1.4), side
    # Labels are centred on their nodes.
    margin = np.array([84, 44])
    positions = lay_out(len(nodes), pairs) * (np.array([width, height]) - 2 * margin) + margin
    types = sorted({name for name, _ in nodes})
    colours = {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(types)}
    parts = [_arrowhead(), *_arrows(edges, pairs, positions)]
    for (type_name, id_), (x, y) in zip(nodes, positions.tolist(), strict=True):
        title = f"<title>{escape(type_name)} {escape(id_)}</title>"
        circle = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{_RADIUS}" fill="{colours[type_name]}" stroke="{_PAPER}"/>'
        parts.append(f"<g>{title}{circle}{_text(x, y - _RADIUS - 4, truncate(id_, _LABEL_CHARACTERS), 11, _INK)}</g>")
    for number, name in enumerate(types):
        y = height + 16 * number + 4
        parts.append(f'<circle cx="16" cy="{y}" r="5" fill="{colours[name]}"/>')
        parts.append(_text(28, y + 4, name, 11, _SOFT, "start"))
    full = height + 16 * len(types)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {full}" width="{width}" height="{full}"'
        ' role="img" font-family="system-ui, sans-serif">'
    )
    title = f"<title>{count_of(len(nodes), 'node')}, {count_of(len(edges), 'edge')}</title>"
    return "\n".join([head, title, f'<rect width="{width}" height="{full}" fill="{_PAPER}"/>', *parts, "</svg>"])


def _arrows(edges: list[Edge], pairs: npt.NDArray[np.int64], positions: Positions) -> list[str]:
    parts: list[str] = []
    drawn: Counter[frozenset[int]] = Counter()
    for (_, _, name), (a, b) in zip(edges, pairs.tolist(), strict=True):
        (x1, y1), (x2, y2) = positions[a].tolist(), positions[b].tolist()
        # Edges between the same two nodes bend away from each other.
        bend = 12 * drawn[frozenset((a, b))]
        drawn[frozenset((a, b))] += 1
        if a == b:
            path = f"M{x1:.1f} {y1:.1f}c-30 -{30 + bend} 30 -{30 + bend} 4 -{_RADIUS}"
            middle = (x1, y1 - 26 - bend)
        else:
            length = max(float(np.hypot(x2 - x1, y2 - y1)), 1.0)
            dx, dy = (x2 - x1) / length, (y2 - y1) / length
            middle = ((x1 + x2) / 2 - dy * bend, (y1 + y2) / 2 + dx * bend)
            end = (x2 - dx * (_RADIUS + 3), y2 - dy * (_RADIUS + 3))
            path = f"M{x1:.1f} {y1:.1f}Q{middle[0]:.1f} {middle[1]:.1f} {end[0]:.1f} {end[1]:.1f}"
        parts.append(f'<path d="{path}" fill="none" stroke="{_LINE}" marker-end="url(#arrow)"/>')
        parts.append(_text(middle[0], middle[1] - 3, truncate(name, _LABEL_CHARACTERS), 9, _SOFT))
    return parts


def _arrowhead() -> str:
    return (
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="{_LINE}"/></marker></defs>'
    )


def _text(x: float, y: float, text: str, size: int, colour: str, anchor: str = "middle") -> str:
    at = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}"'
    return f"<text {at}>{escape(text)}</text>"
