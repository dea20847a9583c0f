"""Pictures of small parts of a graph: what they show, and that they are well formed and the same each time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import omnigraph as og
from omnigraph.engine.drawing import lay_out, render_svg
from omnigraph.limits import DRAWN_NODES_MAX

SCHEMA = """
node Person { name: String @key }
node City { name: String @key }
edge Knows: Person -> Person
edge LivesIn: Person -> City
"""
# A chain of ten people; every second of them lives in the city, and p0 knows p0.
PEOPLE = [{"type": "Person", "data": {"name": f"p{n}"}} for n in range(10)]
CHAIN = [{"edge": "Knows", "from": f"p{n}", "to": f"p{n + 1}"} for n in range(9)]
LIVES = [{"edge": "LivesIn", "from": f"p{n}", "to": "<Rome>"} for n in range(0, 10, 2)]
SELF = [{"edge": "Knows", "from": "p0", "to": "p0"}]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[og.Graph]:
    with og.init(tmp_path_factory.mktemp("drawing") / "g.omni", schema=SCHEMA) as opened:
        opened.ingest([*PEOPLE, {"type": "City", "data": {"name": "<Rome>"}}, *CHAIN, *LIVES, *SELF])
        yield opened


def titles(drawing: og.Drawing) -> set[str]:
    root = ElementTree.fromstring(drawing.svg)
    return {title.text or "" for title in root.iterfind(".//{*}g/{*}title")}


def test_whole_small_graph_is_drawn(graph: og.Graph) -> None:
    drawing = graph.show()
    assert repr(drawing) == "<Drawing: 11 nodes, 15 edges>"
    assert titles(drawing) == {"City <Rome>", *(f"Person p{n}" for n in range(10))}
    assert drawing.svg == graph.show().svg


def test_surroundings_reach_as_far_as_the_hops(graph: og.Graph) -> None:
    near = {"Person p4", "Person p5", "Person p6"}
    assert titles(graph.show("Person", "p5")) == near
    assert titles(graph.show("Person", "p5", hops=2)) == near | {"Person p3", "Person p7", "City <Rome>"}


def test_picture_stays_within_its_limit(graph: og.Graph) -> None:
    assert graph.show(limit=4).nodes == 4
    assert graph.show("City", "<Rome>", hops=4, limit=3).nodes == 3
    with pytest.raises(og.LimitExceeded):
        graph.show(limit=DRAWN_NODES_MAX + 1)


def test_empty_graph_and_unknown_nodes(tmp_path: Path, graph: og.Graph) -> None:
    with og.init(tmp_path / "g.omni", schema=SCHEMA) as empty:
        assert repr(empty.show()) == "<Drawing: 0 nodes, 0 edges>"
    with pytest.raises(og.UsageError, match="there is no `Person` with the key 'nix'"):
        graph.show("Person", "nix")
    with pytest.raises(og.UsageError, match="is an edge type"):
        graph.show("Knows", "p0")
    with pytest.raises(og.UsageError, match="cannot write"):
        graph.show().save(tmp_path / "none" / "g.svg")


def test_connected_nodes_are_nearer_than_others() -> None:
    pairs = np.array([[0, 1], [1, 2], [0, 2], [3, 4], [4, 5], [3, 5]])
    places = lay_out(6, pairs)
    apart = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1))
    near = max(apart[a, b] for a, b in pairs)
    far = min(apart[a, b] for a in range(3) for b in range(3, 6))
    assert near < far
    assert np.unique(places.round(6), axis=0).shape == (6, 2)


def test_parallel_edges_bend_apart() -> None:
    nodes = [("A", "1"), ("A", "2")]
    one, two = nodes
    root = ElementTree.fromstring(render_svg(nodes, [(one, two, "X"), (one, two, "Y"), (one, one, "Z")]))
    paths = [path.get("d") for path in root.iterfind("./{*}path")]
    assert len(set(paths)) == 3
