"""Walks and paths of the reference evaluator, one edge after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from omnigraph.lang.query import ast
from tests.oracle.answers import Way
from tests.oracle.model import Edge, Graph, Node
from tests.oracle.pattern import Walk

Row: TypeAlias = dict[str, Node | Edge | Way | int | None]


class Walking:
    """Follows walks on a graph."""

    graph: Graph
    params: Mapping[str, Any]

    def walked(self, walk: Walk, row: Row) -> Iterator[Row]:
        start = row[walk.start]
        if not isinstance(start, Node):
            return
        if walk.path is not None:
            yield from self.paths(walk, walk.path, start, row)
            return
        for end, edge, hops in self.arrivals(walk, start):
            if end.type not in walk.end_type.split("|") or (walk.end in row and row[walk.end] != end):
                continue
            longer: Row = row | {walk.end: end}
            if walk.edge_variable is not None:
                longer[walk.edge_variable] = edge
            if walk.hops_variable is not None:
                longer[walk.hops_variable] = hops
            yield longer

    def paths(self, walk: Walk, path: ast.Path, start: Node, row: Row) -> Iterator[Row]:
        """Yield a row for each wanted path: of all that visit no node twice, the first few, or those that tie."""
        by_end: dict[Node, list[Way]] = {}
        for way in self.every_path(walk, path, Way((start,), (), 0.0)):
            end = way.nodes[-1]
            turned = Way(way.nodes[::-1], way.edges[::-1], way.cost) if walk.is_backwards else way
            by_end.setdefault(end, []).append(turned)
        minimum = self.hop_bound(walk.minimum)
        count = path.count if isinstance(path.count, int) else int(self.params[path.count.name])
        for end, ways in by_end.items():
            if end.type not in walk.end_type.split("|") or (walk.end in row and row[walk.end] != end):
                continue
            if minimum and end == start:
                continue
            ways.sort(key=lambda way: (way.cost, len(way.nodes), way.order))
            best = (ways[0].cost, len(ways[0].nodes))
            tied = [way for way in ways if (way.cost, len(way.nodes)) == best]
            for way in tied if path.is_all else ways[:count]:
                yield row | {walk.end: end, path.variable.text: way}

    def every_path(self, walk: Walk, path: ast.Path, way: Way) -> Iterator[Way]:
        yield way
        maximum = self.hop_bound(walk.maximum)
        if maximum is not None and len(way.edges) >= maximum:
            return
        lightest: dict[Node, tuple[float, str, str, Edge]] = {}
        for end, edge in self.neighbours(walk, way.nodes[-1]):
            weight = 1 if path.weight is None else edge.values[path.weight.text]
            if weight is not None and end not in way.nodes:
                choice = (float(weight), edge.type, edge.id, edge)  # type: ignore[arg-type]
                lightest[end] = min(choice, lightest.get(end, choice), key=lambda one: one[:3])
        for end, (weight, _, _, edge) in lightest.items():
            yield from self.every_path(walk, path, Way((*way.nodes, end), (*way.edges, edge), way.cost + weight))

    def arrivals(self, walk: Walk, start: Node) -> Iterator[tuple[Node, Edge | None, int]]:
        if walk.edge_variable is not None:
            yield from ((end, edge, 1) for end, edge in self.neighbours(walk, start))
            return
        for end, hops in self.reached(walk, start).items():
            yield end, None, hops

    def neighbours(self, walk: Walk, node: Node) -> Iterator[tuple[Node, Edge]]:
        """Yield where the edges of a walk lead from a node; a loop leads there once."""
        for way in walk.ways:
            for edge in self.graph.edges[way.edge]:
                leaves = way.out and (node.type, node.id) == (way.source, edge.source)
                enters = way.back and (node.type, node.id) == (way.target, edge.target)
                if leaves:
                    yield self.graph.nodes[way.target][edge.target], edge
                if enters and not (leaves and edge.source == edge.target):
                    yield self.graph.nodes[way.source][edge.source], edge

    def reached(self, walk: Walk, start: Node) -> dict[Node, int]:
        """Return the nodes that a walk joins with its start: each at its shortest distance, if that is within bounds.

        A node one hop nearer than the bounds counts as well when the end of the walk, as written, has a loop: the
        loop is then its last hop. A range that begins at 0 leads to the start itself, too.
        """
        minimum, maximum = self.hop_bound(walk.minimum), self.hop_bound(walk.maximum)
        assert minimum is not None
        if maximum is not None and maximum < minimum:
            return {}
        distances = self.distances(walk, start, maximum)
        emitted = {end: hop for end, hop in distances.items() if hop >= minimum and (hop or not minimum)}
        for end, hop in distances.items():
            if hop == minimum - 1 and self.has_loop(walk, start if walk.is_backwards else end):
                emitted[end] = minimum
        return emitted

    def hop_bound(self, bound: int | str | None) -> int | None:
        return int(self.params[bound]) if isinstance(bound, str) else bound

    def distances(self, walk: Walk, start: Node, maximum: int | None) -> dict[Node, int]:
        found, frontier, hop = {start: 0}, {start}, 0
        while frontier and (maximum is None or hop < maximum):
            hop += 1
            ends = {end for node in frontier for end, _ in self.neighbours(walk, node)}
            frontier = ends - found.keys()
            found |= dict.fromkeys(frontier, hop)
        return found

    def has_loop(self, walk: Walk, node: Node) -> bool:
        return any(end == node for end, _ in self.neighbours(walk, node))
